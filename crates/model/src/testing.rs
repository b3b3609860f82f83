//! Shared helpers of the tests.

use crate::adapters::lora::LoraBank;
use crate::layers::Linear;
use burn::module::Param;
use burn::tensor::{Device, Tensor};

/// Returns the elements of a tensor.
pub fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.try_into_vec_as().expect("floats")
}

/// Sets the second matrices of a map's adapters, which begin at zero, to random numbers.
pub fn randomize_lora(linear: &mut Linear, std: f64, device: &Device) {
    if let Some(bank) = linear.adapters.as_mut().and_then(|bank| bank.downcast_mut::<LoraBank>()) {
        bank.lora_b = Param::from_tensor(undertone_ops::normal(bank.lora_b.dims(), std, device));
    }
}
