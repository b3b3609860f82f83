//! Low-rank adapters on linear maps.

use crate::layers::Linear;
use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Tensor};
use undertone_ops as ops;

/// A low-rank update of a linear map (Hu et al., 2022), in PEFT's names: `x ↦ W x + (alpha / r) · lora_b (lora_a x)`.
#[derive(Module, Debug)]
pub struct Lora {
    /// `[r, in]`.
    pub lora_a: Param<Tensor<2>>,
    /// `[out, r]`.
    pub lora_b: Param<Tensor<2>>,
    #[module(skip)]
    scale: f64,
}

/// The size of adapters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraConfig {
    /// The rank.
    pub r: usize,
    /// The update counts `alpha / r` times.
    pub alpha: f64,
}

impl LoraConfig {
    /// An adapter for `linear`, as PEFT begins it: `lora_a` uniform in ±1/√in, `lora_b` zero, so that nothing changes yet.
    pub fn init(&self, linear: &Linear, device: &Device) -> Lora {
        let [d_out, d_in] = linear.weight.dims();
        let bound = (d_in as f64).powf(-0.5);
        Lora {
            lora_a: Param::from_tensor(Tensor::random([self.r, d_in], Distribution::Uniform(-bound, bound), device)),
            lora_b: Param::from_tensor(Tensor::zeros([d_out, self.r], device)),
            scale: self.alpha / self.r as f64,
        }
    }
}

impl Lora {
    /// The update of `x`: `[.., in]` → `[.., out]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let low = ops::linear(x, self.lora_a.val(), None).mul_scalar(self.scale);
        ops::linear(low, self.lora_b.val(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_scaled_product_of_its_matrices() {
        let device = Device::default();
        let mut linear = Linear::init(3, 2, true, 0.5, &device);
        let x = Tensor::<2>::from_floats([[1.0, 2.0, -1.0]], &device);
        let frozen: Vec<f32> = linear.forward(x.clone()).try_into_vec_as().expect("floats");
        let mut lora = LoraConfig { r: 1, alpha: 4.0 }.init(&linear, &device);
        lora.lora_a = Param::from_tensor(Tensor::from_floats([[1.0, 0.0, 2.0]], &device));
        linear.lora = Some(lora);
        let begun: Vec<f32> = linear.forward(x.clone()).try_into_vec_as().expect("floats");
        assert_eq!(begun, frozen, "an adapter begins without effect");
        let lora = linear.lora.as_mut().expect("just put there");
        lora.lora_b = Param::from_tensor(Tensor::from_floats([[1.0], [-2.0]], &device));
        // lora_a x = 1 - 2 = -1; times alpha / r = 4.
        let moved: Vec<f32> = linear.forward(x).try_into_vec_as().expect("floats");
        for ((moved, frozen), expected) in moved.iter().zip(&frozen).zip([-4.0, 8.0]) {
            assert!((moved - frozen - expected).abs() < 1e-5, "{moved} is not {frozen} + {expected}");
        }
    }
}
