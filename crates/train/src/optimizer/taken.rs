//! Parameters that are taken out of their model for an optimizer step, so that only the step holds them and it can update them in place.

use crate::GradientSum;
use burn::module::{Module, Param, ParamMapper};
use burn::tensor::{Shape, Tensor};
use std::any::Any;
use std::collections::BTreeMap;
use undertone_ops::{AnyFloat, CastType, cast_weights, flatten_all, forget_cast, unflatten_all};
use undertone_store::{MapParameter, map};

/// Parameter that has a gradient.
pub(super) struct Taken {
    pub name: String,
    pub shape: Shape,
    /// `[elements]`, without autodiff.
    pub values: Tensor<1>,
    /// `[elements]`, or a part of it if the optimizer state is sharded.
    pub gradient: Tensor<1>,
}

/// An updated parameter.
pub(crate) struct Moved {
    /// New values, `[elements]`, of the parameter or of a part of it.
    pub values: Tensor<1>,
    /// Number of elements of the whole parameter.
    pub size: usize,
}

/// Places in a model from which parameters were taken, by name.
pub(super) struct Places {
    shapes: BTreeMap<String, Shape>,
    /// [`ParamMapper`] of each parameter.
    mappers: BTreeMap<String, Box<dyn Any>>,
    /// Types that products have read parameters in.
    casts: BTreeMap<String, CastType>,
}

/// Takes the parameters that have gradients out of a model. Returns the model with their empty places, and the
/// parameters in the model's order.
pub(super) fn take<M: Module>(model: M, gradients: &mut GradientSum) -> (M, Places, Vec<Taken>) {
    let places = Places { shapes: BTreeMap::new(), mappers: BTreeMap::new(), casts: BTreeMap::new() };
    let mut taker = Taker { gradients, places, values: Vec::new(), named: Vec::new() };
    let model = map(model, &mut taker);
    let Taker { places, values, named, .. } = taker;
    let taken = |((name, gradient), values): ((String, _), _)| {
        let shape = places.shapes[&name].clone();
        Taken { name, shape, values, gradient }
    };
    let taken = named.into_iter().zip(flatten_all(values)).map(taken).collect();
    (model, places, taken)
}

impl Places {
    /// Puts updated parameters into the places of a model.
    pub fn fill<M: Module>(self, model: M, moved: BTreeMap<String, Moved>) -> M {
        let names: Vec<String> = moved.keys().cloned().collect();
        let flat = moved.into_iter().map(|(name, moved)| (moved.values, self.shapes[&name].clone()));
        let values = names.into_iter().zip(unflatten_all(flat.collect())).collect();
        let mut placer = Placer { places: self, values, replaced: Vec::new() };
        let model = map(model, &mut placer);
        cast_weights(placer.replaced);
        model
    }
}

struct Taker<'a> {
    gradients: &'a mut GradientSum,
    places: Places,
    values: Vec<AnyFloat>,
    /// Name and gradient of each parameter.
    named: Vec<(String, Tensor<1>)>,
}

impl MapParameter for Taker<'_> {
    fn map<const D: usize>(&mut self, path: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.take(path) else { return param };
        let name = path.to_owned();
        let (id, old, mapper) = param.consume();
        let old = old.inner();
        let (shape, device) = (old.shape(), old.device());
        self.places.casts.extend(forget_cast(&old).map(|cast| (name.clone(), cast)));
        self.places.shapes.insert(name.clone(), shape.clone());
        self.places.mappers.insert(name.clone(), Box::new(mapper));
        self.values.push(old.into());
        self.named.push((name, gradient));
        Param::uninitialized(
            id,
            |_, _| unreachable!("a place holder is replaced in the same step"),
            device,
            false,
            shape,
        )
    }
}

struct Placer {
    places: Places,
    values: BTreeMap<String, AnyFloat>,
    /// Updated parameters that products will read in another type.
    replaced: Vec<(CastType, AnyFloat)>,
}

impl MapParameter for Placer {
    fn map<const D: usize>(&mut self, path: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(new) = self.values.remove(path) else { return param };
        let mapper =
            self.places.mappers.remove(path).and_then(|mapper| mapper.downcast::<ParamMapper<Tensor<D>>>().ok());
        let mapper = mapper.expect("the mapper of this very parameter");
        self.replaced.extend(self.places.casts.remove(path).map(|cast| (cast, new.clone())));
        Param::from_mapped_value(param.id, Tensor::from_inner(new.tensor()).require_grad(), *mapper)
    }
}
