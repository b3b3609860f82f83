//! Layers over the operations of `undertone-ops`. Their parameters have the names and layouts of Hugging Face, so that
//! a module's path is its tensor's name on disk.

mod linear;

pub use linear::Linear;

use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use undertone_ops as ops;

/// Layer norm.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// `[d_model]`.
    pub weight: Param<Tensor<1>>,
    /// `[d_model]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
}

impl LayerNorm {
    /// Creates scale 1 and shift 0; ε is PyTorch's 1e-5.
    pub fn init(d_model: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::ones([d_model], device)),
            bias: Param::from_tensor(Tensor::zeros([d_model], device)),
            epsilon: 1e-5,
        }
    }

    /// Sets ε, which is added to the variance.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    /// Normalises the last axis; the shape stays the same.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        ops::layer_norm(x, self.weight.val(), self.bias.val(), self.epsilon)
    }
}

/// A convolution over time with kernel 3 and padding 1.
#[derive(Module, Debug)]
pub struct Conv1d {
    /// `[out, in, 3]`.
    pub weight: Param<Tensor<3>>,
    /// `[out]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    stride: usize,
}

impl Conv1d {
    /// Creates weights from N(0, `std`²) and biases of 0.
    pub fn init(d_in: usize, d_out: usize, stride: usize, std: f64, device: &Device) -> Self {
        Self {
            weight: normal([d_out, d_in, 3], std, device),
            bias: Param::from_tensor(Tensor::zeros([d_out], device)),
            stride,
        }
    }

    /// Applies the convolution: `[batch, time, in]` → `[batch, ⌈time / stride⌉, out]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        ops::conv1d(x, self.weight.val(), self.bias.val(), self.stride, 1)
    }
}

/// Embedding table.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[rows, d_model]`.
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    /// Creates rows from N(0, `std`²).
    pub fn init(rows: usize, d_model: usize, std: f64, device: &Device) -> Self {
        Self { weight: normal([rows, d_model], std, device) }
    }

    /// Looks up ids: `[batch, time]` → `[batch, time, d_model]`.
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        ops::embedding(self.weight.val(), ids)
    }

    /// Returns rows `start .. start + count`. Positions are consecutive, so they need no look-up.
    pub fn rows(&self, start: usize, count: usize) -> Tensor<2> {
        self.weight.val().narrow(0, start, count)
    }
}

/// Returns the mean over time of the states that are not padding, `[batch, time, d_model]` → `[batch, d_model]`.
/// `padding`, `[batch, time]`, is true where a state is padding. A sequence of padding alone gives zeros.
pub fn mean_pool(states: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
    let Some(padding) = padding else {
        return states.mean_dim(1).squeeze_dim(1);
    };
    let [batch, time, d_model] = states.dims();
    let counts = padding.clone().bool_not().int().sum_dim(1).clamp_min(1).float();
    let hidden = padding.clone().unsqueeze_dim::<3>(2).expand([batch, time, d_model]);
    states.mask_fill(hidden, 0.0).sum_dim(1).squeeze_dim(1) / counts
}

pub(crate) fn normal<const D: usize>(shape: [usize; D], std: f64, device: &Device) -> Param<Tensor<D>> {
    Param::from_tensor(ops::normal(shape, std, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooling_leaves_padding_out() {
        let device = Device::default();
        for device in [device.clone(), device.autodiff()] {
            let states = Tensor::<3>::from_floats([[[1.0, 2.0], [3.0, 6.0], [f32::NAN, 9.0]], [[7.0; 2]; 3]], &device);
            let padding = Tensor::<2, Bool>::from_bool([[false, false, true], [true, true, true]], &device);
            let pooled: Vec<f32> = mean_pool(states, Some(&padding)).try_into_vec_as().expect("floats");
            assert_eq!(pooled, [2.0, 4.0, 0.0, 0.0]);
            let whole = mean_pool(Tensor::<3>::from_floats([[[1.0, 2.0], [3.0, 6.0]]], &device), None);
            assert_eq!(whole.try_into_vec_as::<f32>().expect("floats"), [2.0, 4.0]);
        }
    }
}
