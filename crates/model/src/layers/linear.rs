//! Linear maps, with a place for adapters.

use super::normal;
use crate::adapters::{BoxedAdapterBank, Gates};
use crate::frozen_dtype::as_loaded;
use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use undertone_ops::{self as ops, AnyFloat};

/// Linear map.
#[derive(Clone, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Param<Tensor<2>>,
    /// `[out]`; Whisper's key projections have none.
    pub bias: Option<Param<Tensor<1>>>,
    /// Adapters, if there are any.
    pub adapters: Option<BoxedAdapterBank>,
}

impl Linear {
    /// Creates weights from N(0, `std`²) and biases of 0.
    pub fn init(d_in: usize, d_out: usize, bias: bool, std: f64, device: &Device) -> Self {
        Self {
            weight: normal([d_out, d_in], std, device).map(as_loaded),
            bias: bias.then(|| Param::from_tensor(Tensor::zeros([d_out], device))),
            adapters: None,
        }
    }

    /// Applies the map without adapters: `[.., in]` → `[.., out]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        ops::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }

    /// Applies the map with the adapters that `gates` selects: `[batch, .., in]` → `[batch, .., out]`.
    pub fn forward_gated<const D: usize>(&self, x: Tensor<D>, gates: Option<&Gates>) -> Tensor<D> {
        self.mapped(x, gates, false)
    }

    /// The same for a result that only attention or GELU reads: it may be in the type of products, as [`ops::linear_lowered`]'s.
    pub fn forward_lowered<const D: usize>(&self, x: Tensor<D>, gates: Option<&Gates>) -> Tensor<D> {
        self.mapped(x, gates, true)
    }

    fn mapped<const D: usize>(&self, x: Tensor<D>, gates: Option<&Gates>, lowered: bool) -> Tensor<D> {
        let parameters = || (self.weight.val(), self.bias.as_ref().map(Param::val));
        let Some((bank, gates)) = self.adapters.as_ref().zip(gates) else {
            let (weight, bias) = parameters();
            return if lowered { ops::linear_lowered(x, weight, bias) } else { ops::linear(x, weight, bias) };
        };
        let forward = |x| {
            let (weight, bias) = parameters();
            bank.forward_mixed(x, weight, bias, gates, lowered)
        };
        let dims = x.dims();
        if D == 3 {
            // The same tensor: a reshape would be one more step of the graph.
            return AnyFloat::from(forward(AnyFloat::from(x).tensor())).tensor();
        }
        let y = forward(x.reshape([dims[0], dims[1..D - 1].iter().product(), dims[D - 1]]));
        let mut shape = dims;
        shape[D - 1] = y.dims()[2];
        y.reshape(shape)
    }
}

/// Implemented by hand because of the parameter paths, which checkpoints and `train.optimizer.groups` use: a bank of
/// adapters is at its type's name, as in `q_proj.lora.lora_a`.
impl Module for Linear {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.adapters.collect_devices(self.bias.collect_devices(self.weight.collect_devices(devices)))
    }

    fn fork(self, device: &Device) -> Self {
        let Self { weight, bias, adapters } = self;
        Self { weight: weight.fork(device), bias: bias.fork(device), adapters: adapters.fork(device) }
    }

    fn to_device(self, device: &Device) -> Self {
        let Self { weight, bias, adapters } = self;
        Self { weight: weight.to_device(device), bias: bias.to_device(device), adapters: adapters.to_device(device) }
    }

    fn train(self) -> Self {
        Self { weight: self.weight.train(), bias: self.bias.train(), adapters: self.adapters.train() }
    }

    fn valid(&self) -> Self {
        Self { weight: self.weight.valid(), bias: self.bias.valid(), adapters: self.adapters.valid() }
    }

    fn materialize(self) -> Self {
        let Self { weight, bias, adapters } = self;
        Self { weight: weight.materialize(), bias: bias.materialize(), adapters: adapters.materialize() }
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module("weight", CONTAINER);
        self.weight.visit(visitor);
        visitor.exit_module("weight", CONTAINER);
        visitor.enter_module("bias", CONTAINER);
        self.bias.visit(visitor);
        visitor.exit_module("bias", CONTAINER);
        self.adapters.visit(visitor);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        mapper.enter_module("weight", CONTAINER);
        let weight = Module::map(self.weight, mapper);
        mapper.exit_module("weight", CONTAINER);
        mapper.enter_module("bias", CONTAINER);
        let bias = Module::map(self.bias, mapper);
        mapper.exit_module("bias", CONTAINER);
        Self { weight, bias, adapters: Module::map(self.adapters, mapper) }
    }
}

const CONTAINER: &str = "Struct:Linear";

impl ModuleDisplayDefault for Linear {
    fn content(&self, content: Content) -> Option<Content> {
        let content = content.add("weight", &self.weight).add("bias", &self.bias);
        content.add("adapters", &self.adapters).optional()
    }

    fn num_params(&self) -> usize {
        Module::num_params(self)
    }
}

impl ModuleDisplay for Linear {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::AdapterConfig;
    use crate::adapters::lora::LoraConfig;
    use crate::testing::randomize_lora;
    use burn::tensor::Tolerance;
    use undertone_store::parameter_infos;

    fn adapted(device: &Device) -> Linear {
        undertone_ops::seed(2);
        let mut linear = Linear::init(4, 6, true, 1.0, device);
        let config = AdapterConfig::from(LoraConfig { r: 2, ..Default::default() });
        linear.adapters = Some(config.boxed_bank(4, 6, &[(1, &config)], 2, device));
        randomize_lora(&mut linear, 1.0, device);
        linear
    }

    #[test]
    fn the_bank_is_at_its_types_name() {
        let names: Vec<String> = parameter_infos(&adapted(&Device::default())).into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["weight", "bias", "lora.lora_a", "lora.lora_b"]);
    }

    #[test]
    fn rows_with_and_without_a_time_axis_get_the_same() {
        let device = Device::default();
        let linear = adapted(&device);
        let x = undertone_ops::normal([3, 4], 1.0, &device);
        for gates in [Gates::One(1), Gates::Each(Tensor::from_floats([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], &device))] {
            let with_time = linear.forward_gated(x.clone().reshape([3, 1, 4]), Some(&gates));
            let without = linear.forward_gated(x.clone(), Some(&gates));
            without.to_data().assert_approx_eq::<f32>(&with_time.reshape([3, 6]).to_data(), Tolerance::default());
        }
        let other = linear.forward_gated(x.clone(), Some(&Gates::One(0)));
        other.to_data().assert_eq(&linear.forward(x).to_data(), true);
    }
}
