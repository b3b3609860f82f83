//! Conversion of Burn's visitors and mappers to trait objects, and back.

use burn::module::{Flag, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};
use std::any::Any;

/// Burn's [`ModuleVisitor`] with a parameter's rank, from 1 to 8, as a number: `param` is a `&Param<Tensor<rank, _>>`.
pub trait DynVisitor {
    /// As [`ModuleVisitor::visit_float`].
    fn visit_float(&mut self, rank: usize, param: &dyn Any);
    /// As [`ModuleVisitor::visit_int`].
    fn visit_int(&mut self, rank: usize, param: &dyn Any);
    /// As [`ModuleVisitor::visit_bool`].
    fn visit_bool(&mut self, rank: usize, param: &dyn Any);
    /// As [`ModuleVisitor::visit_flag`].
    fn visit_flag(&mut self, flag: &Param<Flag>);
    /// As [`ModuleVisitor::enter_module`].
    fn enter_module(&mut self, name: &str, container_type: &str);
    /// As [`ModuleVisitor::exit_module`].
    fn exit_module(&mut self, name: &str, container_type: &str);
}

/// Burn's [`ModuleMapper`] with a parameter's rank, from 1 to 8, as a number: `param` is a `Param<Tensor<rank, _>>`,
/// and so is the result.
pub trait DynMapper {
    /// As [`ModuleMapper::map_float`].
    fn map_float(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    /// As [`ModuleMapper::map_int`].
    fn map_int(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    /// As [`ModuleMapper::map_bool`].
    fn map_bool(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    /// As [`ModuleMapper::map_flag`].
    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag>;
    /// As [`ModuleMapper::enter_module`].
    fn enter_module(&mut self, name: &str, container_type: &str);
    /// As [`ModuleMapper::exit_module`].
    fn exit_module(&mut self, name: &str, container_type: &str);
}

/// Adapter from Burn's visitor or mapper to an object: it converts each rank back to a type.
pub(super) struct Typed<'a, T>(pub(super) &'a mut T);

/// Adapter from an object to Burn's visitor or mapper: it converts each rank to a number.
pub(super) struct Untyped<'a, T: ?Sized>(pub(super) &'a mut T);

/// Runs `$body` with the constant `$D` equal to a rank.
macro_rules! with_rank {
    ($rank:expr, $D:ident => $body:expr) => {
        match $rank {
            1 => with_rank!(@ 1, $D => $body),
            2 => with_rank!(@ 2, $D => $body),
            3 => with_rank!(@ 3, $D => $body),
            4 => with_rank!(@ 4, $D => $body),
            5 => with_rank!(@ 5, $D => $body),
            6 => with_rank!(@ 6, $D => $body),
            7 => with_rank!(@ 7, $D => $body),
            8 => with_rank!(@ 8, $D => $body),
            rank => panic!("a parameter of rank {rank}: there are those from 1 to 8"),
        }
    };
    (@ $rank:literal, $D:ident => $body:expr) => {{
        const $D: usize = $rank;
        $body
    }};
}

/// Both conversions are in this file, so a parameter always has its stated rank and kind.
const SAME: &str = "a parameter is of its rank and kind";

macro_rules! enter_and_exit {
    () => {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.0.enter_module(name, container_type);
        }

        fn exit_module(&mut self, name: &str, container_type: &str) {
            self.0.exit_module(name, container_type);
        }
    };
}

impl<V: ModuleVisitor> DynVisitor for Typed<'_, V> {
    fn visit_float(&mut self, rank: usize, param: &dyn Any) {
        with_rank!(rank, D => self.0.visit_float(param.downcast_ref::<Param<Tensor<D>>>().expect(SAME)))
    }

    fn visit_int(&mut self, rank: usize, param: &dyn Any) {
        with_rank!(rank, D => self.0.visit_int(param.downcast_ref::<Param<Tensor<D, Int>>>().expect(SAME)))
    }

    fn visit_bool(&mut self, rank: usize, param: &dyn Any) {
        with_rank!(rank, D => self.0.visit_bool(param.downcast_ref::<Param<Tensor<D, Bool>>>().expect(SAME)))
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.visit_flag(flag);
    }

    enter_and_exit!();
}

impl ModuleVisitor for Untyped<'_, dyn DynVisitor + '_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.visit_float(D, param);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.0.visit_int(D, param);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.0.visit_bool(D, param);
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.visit_flag(flag);
    }

    enter_and_exit!();
}

impl<M: ModuleMapper> DynMapper for Typed<'_, M> {
    fn map_float(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        with_rank!(rank, D => Box::new(self.0.map_float(owned::<Param<Tensor<D>>>(param))))
    }

    fn map_int(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        with_rank!(rank, D => Box::new(self.0.map_int(owned::<Param<Tensor<D, Int>>>(param))))
    }

    fn map_bool(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        with_rank!(rank, D => Box::new(self.0.map_bool(owned::<Param<Tensor<D, Bool>>>(param))))
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.0.map_flag(flag)
    }

    enter_and_exit!();
}

impl ModuleMapper for Untyped<'_, dyn DynMapper + '_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        owned(self.0.map_float(D, Box::new(param)))
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        owned(self.0.map_int(D, Box::new(param)))
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        owned(self.0.map_bool(D, Box::new(param)))
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.0.map_flag(flag)
    }

    enter_and_exit!();
}

fn owned<P: 'static>(param: Box<dyn Any>) -> P {
    *param.downcast().expect(SAME)
}
