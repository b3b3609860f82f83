//! The convolution of Whisper's front end.

use burn::tensor::{Tensor, module, ops::ConvOptions};

/// A one-dimensional convolution.
///
/// # Shapes
/// - `x`: `[batch, channels_in, time]`
/// - `weight`: `[channels_out, channels_in, kernel]`; `bias`: `[channels_out]`
/// - output: `[batch, channels_out, (time + 2 · padding - kernel) / stride + 1]`
pub fn conv1d(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<3> {
    module::conv1d(x, weight, Some(bias), ConvOptions::new([stride], [padding], [1], 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};

    #[test]
    fn slides_the_kernel_over_the_padded_input() {
        let x = Tensor::<3>::from_floats([[[1.0, 2.0, 3.0, 4.0]]], &device());
        let weight = Tensor::<3>::from_floats([[[1.0, 10.0, 100.0]]], &device());
        let bias = Tensor::<1>::from_floats([0.5], &device());
        assert_close(conv1d(x.clone(), weight.clone(), bias.clone(), 1, 1), &[210.5, 321.5, 432.5, 43.5], 1e-5);
        assert_close(conv1d(x, weight, bias, 2, 1), &[210.5, 432.5], 1e-5);
    }
}
