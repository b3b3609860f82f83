//! Modules of a type that is not known where they are held: a head that somebody else's crate defines, in a `Vec` with others.
//!
//! Burn's [`Module`] cannot be made into a trait object: its visitors and mappers are generic over a parameter's rank.
//! [`DynModule`] is its object-safe mirror, which every module has, and [`Boxed`] a module around such an object. What a
//! crate wants of the modules beside that is a trait of its own, and a [`Family`] says which:
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor};
//! use undertone_model::boxed::{Boxed, DynModule, Erase, Family};
//!
//! /// What is asked of the modules.
//! trait Layer: DynModule<Layers> {
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2>;
//! }
//!
//! #[derive(Debug)]
//! struct Layers;
//!
//! impl Family for Layers {
//!     type Object = dyn Layer;
//! }
//!
//! impl<M: Layer> Erase<M> for Layers {
//!     fn erase(module: Box<M>) -> Box<dyn Layer> {
//!         module
//!     }
//! }
//!
//! impl Layer for Linear {
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2> {
//!         Linear::forward(self, x)
//!     }
//! }
//!
//! #[derive(Module, Debug)]
//! struct Stack {
//!     layers: Vec<Boxed<Layers>>,
//! }
//!
//! let device = Device::default();
//! let stack = Stack { layers: vec![Boxed::new("Linear", LinearConfig::new(3, 2).init(&device))] };
//! assert_eq!(stack.layers[0].forward(Tensor::zeros([1, 3], &device)).dims(), [1, 2]);
//! assert_eq!(stack.num_params(), 8);
//! ```

use burn::module::{
    Content, Devices, DisplaySettings, Flag, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
    Param,
};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::any::Any;
use std::fmt::{Debug, Display, Formatter};
use std::ops::{Deref, DerefMut};

/// Modules of many types that are held as one: which trait they have in common.
pub trait Family: Debug + Sized + 'static {
    /// The trait's object, `dyn Layer` say; the trait has [`DynModule`] of this family above it.
    type Object: ?Sized + DynModule<Self>;
}

/// That a module of type `M` is one of the family.
pub trait Erase<M>: Family {
    /// The module as an object. The body is `module`.
    fn erase(module: Box<M>) -> Box<Self::Object>;
}

/// A module of a family, whatever its type: it stands in a `#[derive(Module)]` struct like any other. Its parameters are
/// one step further down, below the name that it is given, as those of an enum's variants are.
pub struct Boxed<F: Family> {
    name: &'static str,
    module: Box<F::Object>,
}

/// What [`Boxed`] needs of a module: Burn's [`Module`] without generic methods. Every module that can be displayed has it.
pub trait DynModule<F: Family>: Any + Debug + Send {
    /// As [`Module::collect_devices`].
    fn collect_devices_dyn(&self, devices: Devices) -> Devices;
    /// As [`Module::fork`].
    fn fork_dyn(self: Box<Self>, device: &Device) -> Box<F::Object>;
    /// As [`Module::to_device`].
    fn to_device_dyn(self: Box<Self>, device: &Device) -> Box<F::Object>;
    /// As [`Module::train`].
    fn train_dyn(self: Box<Self>) -> Box<F::Object>;
    /// As [`Module::valid`].
    fn valid_dyn(&self) -> Box<F::Object>;
    /// As [`Module::materialize`].
    fn materialize_dyn(self: Box<Self>) -> Box<F::Object>;
    /// As [`Module::num_params`].
    fn num_params_dyn(&self) -> usize;
    /// As [`Module::visit`].
    fn visit_dyn(&self, visitor: &mut dyn DynVisitor);
    /// As [`Module::map`].
    fn map_dyn(self: Box<Self>, mapper: &mut dyn DynMapper) -> Box<F::Object>;
    /// As [`Clone::clone`].
    fn clone_dyn(&self) -> Box<F::Object>;
    /// As [`ModuleDisplay::format`].
    fn format_dyn(&self, settings: DisplaySettings) -> String;
    /// The module itself, to ask for its type.
    fn as_any(&self) -> &dyn Any;
}

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

/// Burn's [`ModuleMapper`] with a parameter's rank, from 1 to 8, as a number: `param` is a `Param<Tensor<rank, _>>`, and so
/// is what comes back.
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

/// What visitors are told that a [`Boxed`] is.
const CONTAINER: &str = "Boxed";

impl<F: Family> Boxed<F> {
    /// A box around `module`, whose parameters' paths begin with `name`.
    pub fn new<M>(name: &'static str, module: M) -> Self
    where
        F: Erase<M>,
    {
        Self { name, module: F::erase(Box::new(module)) }
    }

    /// The module, if it is of this type.
    pub fn downcast_ref<M: 'static>(&self) -> Option<&M> {
        self.module.as_any().downcast_ref()
    }

    fn with(&self, module: Box<F::Object>) -> Self {
        Self { name: self.name, module }
    }

    fn changed(self, change: impl FnOnce(Box<F::Object>) -> Box<F::Object>) -> Self {
        Self { name: self.name, module: change(self.module) }
    }
}

impl<F: Family> Deref for Boxed<F> {
    type Target = F::Object;

    fn deref(&self) -> &F::Object {
        &self.module
    }
}

impl<F: Family> DerefMut for Boxed<F> {
    fn deref_mut(&mut self) -> &mut F::Object {
        &mut self.module
    }
}

impl<F: Family> Clone for Boxed<F> {
    fn clone(&self) -> Self {
        self.with(self.module.clone_dyn())
    }
}

impl<F: Family> Debug for Boxed<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.module.fmt(f)
    }
}

impl<F: Family> Display for Boxed<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.module.format_dyn(DisplaySettings::default()))
    }
}

impl<F: Family> ModuleDisplayDefault for Boxed<F> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&self.module.format_dyn(DisplaySettings::default())).optional()
    }

    fn num_params(&self) -> usize {
        self.module.num_params_dyn()
    }
}

impl<F: Family> ModuleDisplay for Boxed<F> {
    fn format(&self, settings: DisplaySettings) -> String {
        self.module.format_dyn(settings)
    }
}

impl<F: Family> Module for Boxed<F> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.module.collect_devices_dyn(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.changed(|module| module.fork_dyn(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.changed(|module| module.to_device_dyn(device))
    }

    fn train(self) -> Self {
        self.changed(|module| module.train_dyn())
    }

    fn valid(&self) -> Self {
        self.with(self.module.valid_dyn())
    }

    fn materialize(self) -> Self {
        self.changed(|module| module.materialize_dyn())
    }

    fn num_params(&self) -> usize {
        self.module.num_params_dyn()
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module(self.name, CONTAINER);
        self.module.visit_dyn(&mut Typed(visitor));
        visitor.exit_module(self.name, CONTAINER);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let name = self.name;
        mapper.enter_module(name, CONTAINER);
        let module = self.changed(|module| module.map_dyn(&mut Typed(mapper)));
        mapper.exit_module(name, CONTAINER);
        module
    }
}

impl<F: Erase<M>, M: Module + ModuleDisplay + 'static> DynModule<F> for M {
    fn collect_devices_dyn(&self, devices: Devices) -> Devices {
        self.collect_devices(devices)
    }

    fn fork_dyn(self: Box<Self>, device: &Device) -> Box<F::Object> {
        F::erase(Box::new((*self).fork(device)))
    }

    fn to_device_dyn(self: Box<Self>, device: &Device) -> Box<F::Object> {
        F::erase(Box::new((*self).to_device(device)))
    }

    fn train_dyn(self: Box<Self>) -> Box<F::Object> {
        F::erase(Box::new((*self).train()))
    }

    fn valid_dyn(&self) -> Box<F::Object> {
        F::erase(Box::new(self.valid()))
    }

    fn materialize_dyn(self: Box<Self>) -> Box<F::Object> {
        F::erase(Box::new((*self).materialize()))
    }

    fn num_params_dyn(&self) -> usize {
        Module::num_params(self)
    }

    fn visit_dyn(&self, visitor: &mut dyn DynVisitor) {
        self.visit(&mut Untyped(visitor));
    }

    fn map_dyn(self: Box<Self>, mapper: &mut dyn DynMapper) -> Box<F::Object> {
        F::erase(Box::new((*self).map(&mut Untyped(mapper))))
    }

    fn clone_dyn(&self) -> Box<F::Object> {
        F::erase(Box::new(self.clone()))
    }

    fn format_dyn(&self, settings: DisplaySettings) -> String {
        ModuleDisplay::format(self, settings)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes an object of Burn's visitor or mapper: gives each parameter its rank back as a type.
struct Typed<'a, T>(&'a mut T);

/// Makes Burn's visitor or mapper of an object: turns each parameter's rank into a number.
struct Untyped<'a, T: ?Sized>(&'a mut T);

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

/// Both sides are of this file, so a parameter always is what its rank and kind say.
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
    use burn::optim::{GradientsParams, SgdConfig};
    use undertone_store::{load_parameters, parameter_infos, parameters, set_trainable};

    #[derive(Debug)]
    struct Modules;

    impl Family for Modules {
        type Object = dyn DynModule<Self>;
    }

    impl<M: Module + ModuleDisplay + 'static> Erase<M> for Modules {
        fn erase(module: Box<M>) -> Box<dyn DynModule<Self>> {
            module
        }
    }

    /// Parameters of every kind, and a flag.
    #[derive(Module, Debug)]
    struct Parts {
        linear: Linear,
        norm: BatchNorm,
        cube: Param<Tensor<3>>,
        counts: Param<Tensor<1, Int>>,
        open: Param<Tensor<2, Bool>>,
        dropout: Dropout,
    }

    #[derive(Module, Debug)]
    enum Variants {
        Parts(Parts),
    }

    fn parts(device: &Device) -> Parts {
        Parts {
            linear: LinearConfig::new(2, 3).init(device),
            norm: BatchNormConfig::new(3).init(device),
            cube: Param::from_tensor(Tensor::ones([2, 1, 2], device)),
            counts: Param::initialized(Default::default(), Tensor::from_ints([4, 5], device)),
            open: Param::initialized(Default::default(), Tensor::from_bool([[true, false]], device)),
            dropout: DropoutConfig::new(0.5).init(),
        }
    }

    /// Writes down what it meets.
    #[derive(Default, PartialEq, Debug)]
    struct Log(Vec<String>);

    impl ModuleVisitor for Log {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(format!("float {D} {}", param.id));
        }
        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            self.0.push(format!("int {D} {}", param.id));
        }
        fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
            self.0.push(format!("bool {D} {}", param.id));
        }
        fn visit_flag(&mut self, flag: &Param<Flag>) {
            self.0.push(format!("flag {}", flag.is_enabled()));
        }
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(format!("> {name}"));
        }
        fn exit_module(&mut self, name: &str, _: &str) {
            self.0.push(format!("< {name}"));
        }
    }

    /// Doubles floats, adds 1 to whole numbers, turns truths and flags over.
    #[derive(Default)]
    struct Change(Vec<String>);

    impl ModuleMapper for Change {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|x| x.mul_scalar(2.0))
        }
        fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
            param.map(|x| x.add_scalar(1))
        }
        fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
            param.map(Tensor::bool_not)
        }
        fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
            let value = !flag.is_enabled();
            flag.with_value(value)
        }
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(name.to_owned());
        }
    }

    fn log(module: &impl Module) -> Log {
        let mut log = Log::default();
        module.visit(&mut log);
        log
    }

    #[test]
    fn a_boxed_module_is_visited_as_an_enums_variant_is() {
        let parts = parts(&Device::default());
        let boxed = Boxed::<Modules>::new("Parts", parts.clone());
        let plain = Variants::Parts(parts);
        let found = log(&boxed);
        assert_eq!(found, log(&plain));
        let has = |start: &str| found.0.iter().any(|line| line.starts_with(start));
        assert!(
            ["float 1", "float 2", "float 3", "int 1", "bool 2", "flag", "> Parts"].into_iter().all(has),
            "{found:?}"
        );
        assert_eq!(Module::num_params(&boxed), Module::num_params(&plain));
        assert_eq!(parameter_infos(&vec![boxed])[0].name, "0.Parts.linear.weight");
    }

    #[test]
    fn a_boxed_module_is_mapped_as_a_plain_one_is() {
        let parts = parts(&Device::default());
        let (mut mine, mut theirs) = (Change::default(), Change::default());
        let boxed = Boxed::<Modules>::new("Parts", parts.clone()).map(&mut mine);
        let plain = Variants::Parts(parts).map(&mut theirs);
        assert_eq!((mine.0, parameters(&boxed)), (theirs.0, parameters(&plain)));
        let changed = boxed.downcast_ref::<Parts>().expect("its type");
        let counts: Vec<i64> = changed.counts.val().into_data().iter().collect();
        let open: Vec<bool> = changed.open.val().into_data().iter().collect();
        assert_eq!((counts, open), (vec![5, 6], vec![false, true]));
        assert_eq!(log(&boxed), log(&plain));
        assert!(boxed.downcast_ref::<Linear>().is_none());
        assert!(boxed.to_string().contains("ParamTensor"), "{boxed}");
    }

    #[test]
    fn a_boxed_module_goes_where_a_plain_one_does() {
        let (device, training) = (Device::default(), Device::default().autodiff());
        let boxed = vec![Boxed::<Modules>::new("Parts", parts(&device))];
        assert_eq!(boxed.devices(), [device.clone()]);
        let before = parameters(&boxed);
        let trained = boxed.clone().train();
        assert!(parameter_infos(&trained)[0].trainable && !parameter_infos(&trained.valid())[0].trainable);
        for moved in [trained.clone().fork(&training), trained.to_device(&device), boxed.materialize()] {
            assert_eq!(parameters(&moved), before);
        }
    }

    #[test]
    fn a_boxed_module_is_trained_frozen_and_loaded() {
        let device = Device::default();
        let fresh = || Boxed::<Modules>::new("Linear", LinearConfig::new(2, 1).init(&device));
        let module = set_trainable(fresh(), |name| name == "Linear.weight").train();
        let before = parameters(&module);
        let linear = module.downcast_ref::<Linear>().expect("its type");
        let loss = linear.forward(Tensor::<2>::ones([1, 2], &device.clone().autodiff())).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &module);
        assert_eq!(gradients.len(), 1, "the bias is frozen");
        let module = SgdConfig::new().init().step(1.0, module, gradients);
        let after = parameters(&module);
        let moved = |name: &str| before[name] != after[name];
        assert!(moved("Linear.weight") && !moved("Linear.bias"));
        let loaded = load_parameters(fresh(), |name| Ok(after[name].clone())).expect("the same shapes");
        assert_eq!(parameters(&loaded), after);
        let other = load_parameters(Boxed::<Modules>::new("Linear", LinearConfig::new(3, 1).init(&device)), |name| {
            Ok(after[name].clone())
        });
        assert!(other.is_err_and(|error| error.to_string().contains("Linear.weight")));
    }
}
