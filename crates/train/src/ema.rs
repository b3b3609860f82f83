//! An exponential moving average of the weights.

use crate::gradients::{merge_by_name, trained};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_ops::{AnyFloat, StepControl, average, flatten_all, settled};
use undertone_store::{HostTensor, MapParameter, StoreError, map};

/// The average of every trainable parameter over the steps (Polyak and Juditsky, 1992), by name.
#[derive(Debug)]
pub(crate) struct Ema {
    decay: f64,
    weights: BTreeMap<String, Tensor<1>>,
    /// Step of the first update.
    began: Option<u64>,
}

impl Ema {
    /// Makes an average without values.
    pub fn new(decay: f64) -> Self {
        Self { decay, weights: BTreeMap::new(), began: None }
    }

    /// Makes an average of the same decay without values.
    pub fn without_values(&self) -> Self {
        Self::new(self.decay)
    }

    /// Updates the average with `model` after optimizer step `step`, counted from 1, unless `control` prevented the
    /// step.
    pub fn update<M: Module>(&mut self, model: &M, step: u64, control: Option<&StepControl>) {
        // Early on the first weights would count too much, so the decay is warmed up as in TensorFlow.
        let decay = self.decay.min((1.0 + step as f64) / (10.0 + step as f64));
        if self.weights.is_empty() {
            self.began = Some(step);
        }
        let (names, values): (Vec<_>, Vec<_>) = trained(model).into_iter().unzip();
        let values = flatten_all(values.into_iter().map(AnyFloat::plain).collect());
        let averaged = |pairs| average(pairs, decay, control);
        merge_by_name(&mut self.weights, names.into_iter().zip(values), settled, averaged);
    }

    /// Clears the average if `step` was its first update, because that step did not update parameters.
    pub fn take_back(&mut self, step: u64) {
        if self.began == Some(step) {
            self.weights.clear();
        }
    }

    /// Returns `model` with the averages in place of its trainable parameters.
    pub fn of<M: Module>(&self, model: M) -> M {
        map(model, &mut Placer { weights: &self.weights })
    }

    /// Returns the averages, flattened, by name.
    pub fn to_tensors(&self) -> BTreeMap<String, HostTensor> {
        let host = |tensor: &Tensor<1>| {
            let data: Vec<f32> = tensor.clone().try_into_vec_as().expect("weights are floats");
            HostTensor { shape: vec![data.len()], data }
        };
        self.weights.iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect()
    }

    /// Restores the averages from the tensors of [`to_tensors`](Self::to_tensors).
    ///
    /// # Errors
    /// The first error of `source`.
    pub fn load(
        &mut self,
        names: impl IntoIterator<Item = String>,
        device: &Device,
        source: impl Fn(&str) -> Result<HostTensor, StoreError>,
    ) -> Result<(), StoreError> {
        for name in names {
            let host = source(&name)?;
            let values = Tensor::from_data(TensorData::new(host.data, host.shape), device);
            self.weights.insert(name, settled(values));
        }
        Ok(())
    }
}

struct Placer<'a> {
    weights: &'a BTreeMap<String, Tensor<1>>,
}

impl MapParameter for Placer<'_> {
    fn map<const D: usize>(&mut self, path: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(average) = self.weights.get(path) else { return param };
        let (id, old, mapper) = param.consume();
        Param::from_mapped_value(id, average.clone().reshape(old.dims()), mapper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{Linear, LinearConfig};
    use undertone_store::parameters;

    fn filled(value: f32, device: &Device) -> Linear {
        let mut model: Linear = LinearConfig::new(2, 1).with_bias(false).init(device);
        model.weight = model.weight.map(|w| Tensor::full(w.dims(), value, device).require_grad());
        model
    }

    #[test]
    fn it_follows_the_weights_and_is_restored_to_the_bit() {
        let device = Device::default().autodiff();
        let mut ema = Ema::new(0.5);
        ema.update(&filled(1.0, &device), 1, None);
        ema.update(&filled(3.0, &device), 100, None);
        let average = |ema: &Ema| parameters(&ema.of(filled(0.0, &device).valid()))["weight"].data.clone();
        assert_eq!(average(&ema), [2.0, 2.0]);
        let saved = ema.to_tensors();
        let mut restored = Ema::new(0.5);
        let names = saved.keys().cloned();
        restored.load(names, &device.clone().inner(), |name| Ok(saved[name].clone())).expect("loaded");
        assert_eq!(average(&restored), [2.0, 2.0]);
    }

    #[test]
    fn its_decay_warms_up() {
        let device = Device::default().autodiff();
        let mut ema = Ema::new(0.999);
        ema.update(&filled(1.0, &device), 1, None);
        ema.update(&filled(0.0, &device), 2, None);
        let saved = ema.to_tensors()["weight"].data[0];
        assert!((saved - 3.0 / 12.0).abs() < 1e-6, "{saved}");
    }
}
