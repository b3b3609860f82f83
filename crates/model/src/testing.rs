//! Shared helpers of the tests.

use burn::tensor::Tensor;

/// Returns the elements of a tensor.
pub fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.try_into_vec_as().expect("floats")
}
