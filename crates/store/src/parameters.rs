//! A module's float parameters by path.

use crate::{HostTensor, StoreError};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a parameter without reading its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its path in the module.
    pub name: String,
    /// Lengths of its axes.
    pub shape: Vec<usize>,
    /// Whether training changes it.
    pub trainable: bool,
}

/// Every float parameter of `module` by its path.
pub fn parameters<M: Module>(module: &M) -> BTreeMap<String, HostTensor> {
    let mut visitor = Reader { path: Vec::new(), found: BTreeMap::new() };
    module.visit(&mut visitor);
    visitor.found
}

/// Every float parameter that training changes, by its path: what a checkpoint of a partly frozen model holds.
pub fn trainable_parameters<M: Module>(module: &M) -> BTreeMap<String, HostTensor> {
    let trainable: BTreeSet<String> =
        parameter_infos(module).into_iter().filter(|p| p.trainable).map(|p| p.name).collect();
    let mut found = parameters(module);
    found.retain(|name, _| trainable.contains(name));
    found
}

/// Name, shape and trainability of every float parameter, in the module's order.
pub fn parameter_infos<M: Module>(module: &M) -> Vec<ParameterInfo> {
    let mut visitor = Describer { path: Vec::new(), found: Vec::new() };
    module.visit(&mut visitor);
    visitor.found
}

/// Replaces every float parameter of `module` by what `source` gives for its path.
///
/// # Errors
/// The first error of `source`, or the first parameter whose shape differs.
pub fn load_parameters<M: Module>(
    module: M,
    mut source: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<M, StoreError> {
    let mut mapper = Writer { path: Vec::new(), source: |name: &str| Some(source(name)), error: None };
    let module = module.map(&mut mapper);
    mapper.error.map_or(Ok(module), Err)
}

/// As [`load_parameters`], for the parameters that training changes; frozen ones stay as they are.
///
/// # Errors
/// The first error of `source`, or the first parameter whose shape differs.
pub fn load_trainable<M: Module>(
    module: M,
    mut source: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<M, StoreError> {
    let trainable: BTreeSet<String> =
        parameter_infos(&module).into_iter().filter(|p| p.trainable).map(|p| p.name).collect();
    let mut mapper =
        Writer { path: Vec::new(), source: |name: &str| trainable.contains(name).then(|| source(name)), error: None };
    let module = module.map(&mut mapper);
    mapper.error.map_or(Ok(module), Err)
}

/// Marks each float parameter as trained or frozen by its path.
pub fn set_trainable<M: Module>(module: M, trainable: impl FnMut(&str) -> bool) -> M {
    module.map(&mut Marker { path: Vec::new(), trainable })
}

/// The `enter_module`/`exit_module` pair that keeps a path.
macro_rules! track_path {
    () => {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
    };
}

struct Reader {
    path: Vec<String>,
    found: BTreeMap<String, HostTensor>,
}

impl ModuleVisitor for Reader {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let shape = value.dims().to_vec();
        // Parameters are f32 by design; a cast covers modules that were cast as a whole.
        let data = value.try_into_vec_as::<f32>().expect("parameters are floats");
        self.found.insert(self.path.join("."), HostTensor { shape, data });
    }
}

struct Describer {
    path: Vec<String>,
    found: Vec<ParameterInfo>,
}

impl ModuleVisitor for Describer {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        self.found.push(ParameterInfo {
            name: self.path.join("."),
            shape: value.dims().to_vec(),
            trainable: value.is_require_grad(),
        });
    }
}

/// Replaces what its source has something for.
struct Writer<F> {
    path: Vec<String>,
    source: F,
    error: Option<StoreError>,
}

impl<F: FnMut(&str) -> Option<Result<HostTensor, StoreError>>> Writer<F> {
    fn value<const D: usize>(&mut self, old: &Tensor<D>) -> Option<Result<Tensor<D>, StoreError>> {
        let name = self.path.join(".");
        let new = (self.source)(&name)?;
        Some(new.and_then(|new| Self::fitted(name, new, old)))
    }

    fn fitted<const D: usize>(name: String, new: HostTensor, old: &Tensor<D>) -> Result<Tensor<D>, StoreError> {
        let expected = old.dims().to_vec();
        if new.shape != expected {
            return Err(StoreError::Shape { name, expected, found: new.shape });
        }
        let tensor = Tensor::from_data(TensorData::new(new.data, new.shape), &old.device());
        Ok(tensor.set_require_grad(old.is_require_grad()))
    }
}

impl<F: FnMut(&str) -> Option<Result<HostTensor, StoreError>>> ModuleMapper for Writer<F> {
    track_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.error.is_some() {
            return param;
        }
        match self.value(&param.val()) {
            None => param,
            Some(Ok(value)) => param.map(|_| value),
            Some(Err(error)) => {
                self.error = Some(error);
                param
            }
        }
    }
}

struct Marker<F> {
    path: Vec<String>,
    trainable: F,
}

impl<F: FnMut(&str) -> bool> ModuleMapper for Marker<F> {
    track_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let trainable = (self.trainable)(&self.path.join("."));
        param.set_require_grad(trainable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    fn module() -> Linear {
        LinearConfig::new(3, 2).init(&Device::default().autodiff())
    }

    #[test]
    fn parameters_are_named_by_their_path_and_load_back() {
        let source = parameters(&module());
        assert_eq!(source.keys().collect::<Vec<_>>(), ["bias", "weight"]);
        let loaded = load_parameters(module(), |name| Ok(source[name].clone())).expect("loaded");
        assert_eq!(parameters(&loaded), source);
        assert!(parameter_infos(&loaded).iter().all(|p| p.trainable), "loading keeps what is trained");
    }

    #[test]
    fn what_is_frozen_is_neither_kept_nor_loaded() {
        let frozen = set_trainable(module(), |name| name == "bias");
        let mut kept = trainable_parameters(&frozen);
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["bias"]);
        kept.get_mut("bias").expect("kept").data = vec![3.0, 4.0];
        let loaded = load_trainable(frozen.clone(), |name| Ok(kept[name].clone())).expect("loaded");
        let (before, after) = (parameters(&frozen), parameters(&loaded));
        assert_eq!(before["weight"], after["weight"]);
        assert_eq!(after["bias"].data, [3.0, 4.0]);
        assert_eq!(parameter_infos(&loaded), parameter_infos(&frozen));
    }

    #[test]
    fn a_misshapen_parameter_is_named() {
        let error =
            load_parameters(module(), |_| Ok(HostTensor { shape: vec![7], data: vec![0.0; 7] })).expect_err("refused");
        assert!(matches!(&error, StoreError::Shape { found, .. } if *found == [7]), "{error}");
    }

    #[test]
    fn freezing_is_by_name() {
        let frozen = set_trainable(module(), |name| name == "bias");
        let trained: Vec<String> =
            parameter_infos(&frozen).into_iter().filter(|p| p.trainable).map(|p| p.name).collect();
        assert_eq!(trained, ["bias"]);
    }
}
