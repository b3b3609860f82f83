//! A module's float parameters by path.

use crate::visit::{MapParameter, VisitParameter, map, visit};
use crate::{HostTensor, StoreError};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};
use crc32fast::Hasher;
use std::collections::{BTreeMap, BTreeSet};

/// Description of a parameter without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Path in the module.
    pub name: String,
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Whether training changes it.
    pub trainable: bool,
}

/// Reads every float parameter of `module`, by path.
pub fn parameters<M: Module>(module: &M) -> BTreeMap<String, HostTensor> {
    read(module, |_| true)
}

/// Reads every trainable float parameter of `module`, by path. This is what a checkpoint of a partly frozen model
/// holds. Frozen parameters are not read from the device.
pub fn trainable_parameters<M: Module>(module: &M) -> BTreeMap<String, HostTensor> {
    read(module, |info| info.trainable)
}

fn read<M: Module>(module: &M, wanted: impl Fn(&ParameterInfo) -> bool) -> BTreeMap<String, HostTensor> {
    let mut found = BTreeMap::new();
    each(module, |info, values| {
        if wanted(&info) {
            let data = values().try_into_vec().expect("parameters are floats");
            found.insert(info.name, HostTensor { shape: info.shape, data });
        }
    });
    found
}

/// CRC-32 of names, shapes and values of the frozen float parameters. Their order in the module does not matter. They
/// are read from the device one after the other: on two CPU cores this takes a fifth of a second for whisper-tiny's 38
/// million.
///
/// It detects accidental differences between models (another file, another revision), for all but one pair in 2³². It
/// does not protect against an attacker.
pub fn frozen_checksum<M: Module>(module: &M) -> u32 {
    let mut found = BTreeMap::new();
    each(module, |info, values| {
        if !info.trainable {
            let mut sum = Hasher::new();
            info.shape.iter().for_each(|length| sum.update(&(*length as u64).to_le_bytes()));
            sum.update(values().as_bytes());
            found.insert(info.name, sum.finalize());
        }
    });
    let mut sum = Hasher::new();
    for (name, parameter) in found {
        // The length first: otherwise the end of a name could be taken for the beginning of what follows.
        sum.update(&(name.len() as u64).to_le_bytes());
        sum.update(name.as_bytes());
        sum.update(&parameter.to_le_bytes());
    }
    sum.finalize()
}

/// Returns name, shape and trainability of every float parameter, in the module's order.
pub fn parameter_infos<M: Module>(module: &M) -> Vec<ParameterInfo> {
    let mut found = Vec::new();
    each(module, |info, _| found.push(info));
    found
}

/// Replaces every float parameter of `module` by the tensor that `source` returns for its path, in the type of the
/// parameter.
///
/// # Errors
/// The first error of `source`, or the first parameter whose shape differs.
pub fn load_parameters<M: Module>(
    module: M,
    mut source: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<M, StoreError> {
    let mut mapper = Writer { source: |name: &str| Some(source(name)), error: None };
    let module = map(module, &mut mapper);
    mapper.error.map_or(Ok(module), Err)
}

/// Like [`load_parameters`], but for trainable parameters only; frozen ones stay as they are.
///
/// # Errors
/// The first error of `source`, or the first parameter whose shape differs.
pub fn load_trainable<M: Module>(
    module: M,
    mut source: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<M, StoreError> {
    let trainable: BTreeSet<String> =
        parameter_infos(&module).into_iter().filter(|p| p.trainable).map(|p| p.name).collect();
    let mut mapper = Writer { source: |name: &str| trainable.contains(name).then(|| source(name)), error: None };
    let module = map(module, &mut mapper);
    mapper.error.map_or(Ok(module), Err)
}

/// Marks each float parameter as trained or frozen by its path.
pub fn set_trainable<M: Module>(module: M, trainable: impl FnMut(&str) -> bool) -> M {
    map(module, &mut Marker { trainable })
}

/// Calls `found` with each float parameter of `module`, and with what reads its values from the device as f32.
fn each<M: Module>(module: &M, found: impl FnMut(ParameterInfo, &dyn Fn() -> TensorData)) {
    visit(module, &mut Each(found));
}

struct Each<F>(F);

impl<F: FnMut(ParameterInfo, &dyn Fn() -> TensorData)> VisitParameter for Each<F> {
    fn visit<const D: usize>(&mut self, path: &str, param: &Param<Tensor<D>>) {
        let value = param.val();
        let (name, shape, trainable) = (path.to_owned(), value.dims().to_vec(), value.is_require_grad());
        let values = || value.clone().try_into_data_as::<f32>().expect("parameters are floats");
        (self.0)(ParameterInfo { name, shape, trainable }, &values);
    }
}

/// Replaces the parameters for which its source returns a tensor.
struct Writer<F> {
    source: F,
    error: Option<StoreError>,
}

impl<F: FnMut(&str) -> Option<Result<HostTensor, StoreError>>> Writer<F> {
    fn value<const D: usize>(&mut self, path: &str, old: &Tensor<D>) -> Option<Result<Tensor<D>, StoreError>> {
        let new = (self.source)(path)?;
        Some(new.and_then(|new| Self::fitted(path.to_owned(), new, old)))
    }

    fn fitted<const D: usize>(name: String, new: HostTensor, old: &Tensor<D>) -> Result<Tensor<D>, StoreError> {
        let expected = old.dims().to_vec();
        if new.shape != expected {
            return Err(StoreError::Shape { name, expected, found: new.shape });
        }
        let value = new.on(&old.device());
        let value = if old.dtype() == value.dtype() { value } else { value.cast(old.dtype()) };
        Ok(value.set_require_grad(old.is_require_grad()))
    }
}

impl<F: FnMut(&str) -> Option<Result<HostTensor, StoreError>>> MapParameter for Writer<F> {
    fn map<const D: usize>(&mut self, path: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.error.is_some() {
            return param;
        }
        match self.value(path, &param.val()) {
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
    trainable: F,
}

impl<F: FnMut(&str) -> bool> MapParameter for Marker<F> {
    fn map<const D: usize>(&mut self, path: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let trainable = (self.trainable)(path);
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
    fn the_checksum_of_what_is_frozen_sees_values_names_and_shapes_and_nothing_that_is_trained() {
        let with = |tensors: &BTreeMap<String, HostTensor>, trained: &'static str| {
            let module = set_trainable(module(), |name| name == trained);
            load_parameters(module, |name| Ok(tensors[name].clone())).expect("loaded")
        };
        let tensors = parameters(&module());
        let sum = frozen_checksum(&with(&tensors, "bias"));
        assert_eq!(frozen_checksum(&with(&tensors, "bias")), sum);
        let mut changed = tensors.clone();
        changed.get_mut("bias").expect("a bias").data[1] += 1.0;
        assert_eq!(frozen_checksum(&with(&changed, "bias")), sum, "a trained value");
        let last = changed.get_mut("weight").expect("a weight").data.last_mut().expect("a value");
        *last = f32::from_bits(last.to_bits() ^ 1);
        assert_ne!(frozen_checksum(&with(&changed, "bias")), sum, "one bit of a frozen value");
        let zeros = |inputs, outputs, trained: &'static str| {
            let module: Linear = LinearConfig::new(inputs, outputs).init(&Device::default().autodiff());
            let zeros = |shape: Vec<usize>| HostTensor { data: vec![0.0; shape.iter().product()], shape };
            let module = load_parameters(module, |name| {
                Ok(zeros(if name == "bias" { vec![outputs] } else { vec![inputs, outputs] }))
            });
            frozen_checksum(&set_trainable(module.expect("loaded"), |name| name == trained))
        };
        assert_ne!(zeros(3, 2, "bias"), zeros(2, 3, "bias"), "the same values in another shape");
        assert_ne!(zeros(3, 2, "none"), zeros(3, 2, "bias"), "a parameter more");
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
