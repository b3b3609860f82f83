//! AdamW over a module's parameters, its state by name.

use crate::{GradientSum, OptimizerConfig};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_ops::{AdamWRule, Moments};
use undertone_store::{HostTensor, StoreError};

/// AdamW (Loshchilov and Hutter, 2019), with state that can be named, saved and restored exactly.
pub struct AdamW {
    config: OptimizerConfig,
    state: BTreeMap<String, State>,
}

/// Of one parameter.
struct State {
    step: u64,
    moments: Moments,
}

impl AdamW {
    /// A fresh optimizer; state appears with the first gradient of each parameter.
    pub fn new(config: &OptimizerConfig) -> Self {
        Self { config: config.clone(), state: BTreeMap::new() }
    }

    /// Moves every parameter that has a gradient, and consumes the gradients. Parameters that nothing but `model` holds
    /// are changed where they lie.
    pub fn step<M: Module>(&mut self, model: M, gradients: &mut GradientSum, learning_rate: f64) -> M {
        model.map(&mut Stepper { path: Vec::new(), optimizer: self, gradients, learning_rate })
    }

    /// Whether this parameter has ever had a gradient.
    pub fn has_state(&self, name: &str) -> bool {
        self.state.contains_key(name)
    }

    /// The running means as tensors: `<parameter>.m`, `<parameter>.v`, and `<parameter>.step` of one element.
    pub fn to_tensors(&self) -> BTreeMap<String, HostTensor> {
        let mut tensors = BTreeMap::new();
        for (name, state) in &self.state {
            for (suffix, tensor) in [("m", &state.moments.mean), ("v", &state.moments.square)] {
                let data: Vec<f32> = tensor.clone().try_into_vec_as().expect("moments are floats");
                tensors.insert(format!("{name}.{suffix}"), HostTensor { shape: vec![data.len()], data });
            }
            // f32 counts steps exactly up to 16.7 million.
            let step = HostTensor { shape: vec![1], data: vec![state.step as f32] };
            tensors.insert(format!("{name}.step"), step);
        }
        tensors
    }

    /// Restores what [`to_tensors`](Self::to_tensors) gave, for the parameters `names`.
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
            let tensor = |suffix: &str| -> Result<Tensor<1>, StoreError> {
                let host = source(&format!("{name}.{suffix}"))?;
                Ok(Tensor::from_data(TensorData::new(host.data, host.shape), device))
            };
            let step = source(&format!("{name}.step"))?.data.first().copied().unwrap_or_default() as u64;
            let moments = Moments { mean: tensor("m")?, square: tensor("v")? };
            self.state.insert(name, State { step, moments });
        }
        Ok(())
    }
}

struct Stepper<'a> {
    path: Vec<String>,
    optimizer: &'a mut AdamW,
    gradients: &'a mut GradientSum,
    learning_rate: f64,
}

impl ModuleMapper for Stepper<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.join(".");
        let Some(gradient) = self.gradients.take(&name) else { return param };
        let (id, old, mapper) = param.consume();
        let old = old.inner();
        let (shape, device) = (old.dims(), old.device());
        let flat = old.reshape([gradient.dims()[0]]);
        let fresh = || {
            let zeros = || Tensor::zeros([gradient.dims()[0]], &device);
            State { step: 0, moments: Moments { mean: zeros(), square: zeros() } }
        };
        let state = self.optimizer.state.remove(&name).unwrap_or_else(fresh);
        let step = state.step + 1;
        let (new, moments) = self.rule(D, step).apply(flat, gradient, state.moments);
        self.optimizer.state.insert(name, State { step, moments });
        Param::from_mapped_value(id, Tensor::from_inner(new.reshape(shape)).require_grad(), mapper)
    }
}

impl Stepper<'_> {
    /// The rule of a parameter with `axes` axes.
    fn rule(&self, axes: usize, step: u64) -> AdamWRule {
        let config = &self.optimizer.config;
        AdamWRule {
            learning_rate: self.learning_rate,
            beta1: config.beta1,
            beta2: config.beta2,
            epsilon: config.epsilon,
            // Vectors are biases and norms: shrinking those towards zero would fight the data for no gain.
            weight_decay: if axes > 1 { config.weight_decay } else { 0.0 },
            step,
            gradient_scale: self.gradients.scale(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{Linear, LinearConfig};
    use undertone_store::parameters;

    fn config() -> OptimizerConfig {
        OptimizerConfig { weight_decay: 0.1, ..Default::default() }
    }

    fn step(model: Linear, optimizer: &mut AdamW, device: &Device) -> Linear {
        let loss = model.forward(Tensor::<2>::from_floats([[1.0, -2.0]], device)).square().sum();
        let mut gradients = GradientSum::default();
        gradients.add(&model, loss.backward());
        optimizer.step(model, &mut gradients, 0.01)
    }

    #[test]
    fn the_first_step_is_signed_and_decays_matrices_only() {
        let device = Device::default().autodiff();
        let model: Linear = LinearConfig::new(2, 1).init(&device);
        let before = parameters(&model);
        let after = parameters(&step(model, &mut AdamW::new(&config()), &device));
        // With bias correction the first Adam step is lr · sign(gradient), up to ε.
        let (w0, w1) = (&before["weight"].data, &after["weight"].data);
        for (old, new) in w0.iter().zip(w1) {
            let moved = new - old * (1.0 - 0.01 * 0.1);
            assert!((moved.abs() - 0.01).abs() < 1e-5, "weight moved by {moved}");
        }
        let moved = after["bias"].data[0] - before["bias"].data[0];
        assert!((moved.abs() - 0.01).abs() < 1e-5, "bias moved by {moved}");
    }

    #[test]
    fn a_restored_optimizer_takes_the_same_steps() {
        let device = Device::default().autodiff();
        let mut model: Linear = LinearConfig::new(2, 1).init(&device);
        let mut one = AdamW::new(&config());
        for _ in 0..3 {
            model = step(model, &mut one, &device);
        }
        let saved = one.to_tensors();
        let mut two = AdamW::new(&config());
        let names = ["weight", "bias"].map(str::to_owned);
        two.load(names, &device.clone().inner(), |name| Ok(saved[name].clone())).expect("loaded");
        let a = parameters(&step(model.clone(), &mut one, &device));
        let b = parameters(&step(model, &mut two, &device));
        assert_eq!(a, b);
    }
}
