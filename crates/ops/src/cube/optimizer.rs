//! Updates of many parameters, by one kernel for each group of them.

use super::launch::{vector_width, wide_grid, wide_stride};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Values that all parameters of a step share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamW {
    pub beta1: f32,
    pub beta2: f32,
    pub epsilon: f32,
    pub gradient_scale: f32,
}

/// Values of one parameter: the learning rate, the share of the parameter that weight decay leaves, and the factors of
/// the running means.
pub(crate) type Rates = [f32; 4];

/// Splits tensors into groups that fit a kernel's buffers, with `each` tensors per parameter.
pub(super) fn grouped(tensors: Vec<CubeTensor>, client: &Client, each: usize) -> Vec<Vec<CubeTensor>> {
    // One buffer is the kernel's own description of its inputs, and one is the control of the step or an output. A
    // kernel with more than 64 takes long to compile.
    let buffers = (client.properties().hardware.max_bindings as usize).clamp(each + 2, 64) - 2;
    let most = buffers / each * each;
    let mut groups = Vec::new();
    let mut tensors = tensors.into_iter().peekable();
    while tensors.peek().is_some() {
        groups.push(tensors.by_ref().take(most).collect());
    }
    groups
}

/// Returns every `each`th tensor of a group from `first` on, for a kernel.
pub(super) fn every<E: CubePrimitive>(group: &[CubeTensor], first: usize, each: usize) -> SequenceArg<OwnedTensor<E>> {
    group.iter().skip(first).step_by(each).map(|x| x.clone().into_tensor_arg()).collect()
}

/// Length of the longest tensor in vectors of `width`.
pub(super) fn longest(tensors: &[CubeTensor], width: usize) -> usize {
    tensors.iter().map(|x| x.meta.num_elements().div_ceil(width)).max().unwrap_or(0)
}

impl AdamW {
    /// Takes parameter, mean, mean square and gradient of each parameter. Returns parameter, mean and mean square after
    /// the step. `control` is `[factor of the gradients, 1 if the step is taken]`.
    pub fn step(self, tensors: Vec<CubeTensor>, rates: &[Rates], control: Option<CubeTensor>) -> Vec<CubeTensor> {
        let client = tensors[0].client.clone();
        let tensors = tensors.into_iter().map(into_contiguous);
        // A tensor that something else holds is not overwritten.
        let own = |(i, x): (usize, CubeTensor)| if i % 4 < 3 && !x.can_mut() { x.copy() } else { x };
        let tensors = tensors.enumerate().map(own).collect();
        let mut rates = rates.iter();
        let mut moved = Vec::new();
        for group in grouped(tensors, &client, 4) {
            let mut numbers = SequenceArg::<f32>::new();
            rates.by_ref().take(group.len() / 4).flatten().for_each(|rate| numbers.push(*rate));
            let width = vector_width(group.iter());
            let (cubes, units) = wide_grid(&client, longest(&group, width));
            let controlled = control.is_some();
            let control = control.as_ref().unwrap_or(&group[3]).clone().into_tensor_arg();
            adamw_kernel::launch(
                &client,
                cubes,
                units,
                width,
                every(&group, 0, 4),
                every(&group, 1, 4),
                every(&group, 2, 4),
                every(&group, 3, 4),
                control,
                numbers,
                self.beta1,
                self.beta2,
                self.epsilon,
                self.gradient_scale,
                controlled,
            );
            moved.extend(group.into_iter().enumerate().filter(|(i, _)| i % 4 < 3).map(|(_, x)| x));
        }
        moved
    }
}

/// Computes `sum · kept + value · share` for each pair, in place. `control` is as for [`AdamW::step`].
pub(crate) fn mix(tensors: Vec<CubeTensor>, [kept, share]: [f32; 2], control: Option<CubeTensor>) -> Vec<CubeTensor> {
    let client = tensors[0].client.clone();
    let tensors = tensors.into_iter().map(into_contiguous);
    let own = |(i, x): (usize, CubeTensor)| if i % 2 == 0 && !x.can_mut() { x.copy() } else { x };
    let tensors = tensors.enumerate().map(own).collect();
    let mut moved = Vec::new();
    for group in grouped(tensors, &client, 2) {
        let width = vector_width(group.iter());
        let (cubes, units) = wide_grid(&client, longest(&group, width));
        let controlled = control.is_some();
        let control = control.as_ref().unwrap_or(&group[1]).clone().into_tensor_arg();
        mix_kernel::launch(
            &client,
            cubes,
            units,
            width,
            every(&group, 0, 2),
            every(&group, 1, 2),
            control,
            kept,
            share,
            controlled,
        );
        moved.extend(group.into_iter().step_by(2));
    }
    moved
}

#[cube(launch)]
fn adamw_kernel<N: Size>(
    parameters: &mut Sequence<OwnedTensor<Vector<f32, N>>>,
    means: &mut Sequence<OwnedTensor<Vector<f32, N>>>,
    squares: &mut Sequence<OwnedTensor<Vector<f32, N>>>,
    gradients: &Sequence<OwnedTensor<Vector<f32, N>>>,
    control: &Tensor<f32>,
    rates: &Sequence<f32>,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    gradient_scale: f32,
    #[comptime] controlled: bool,
) {
    let mut factor = gradient_scale;
    let mut taken = true;
    if controlled {
        factor = control[0];
        taken = control[1] > 0.5f32;
    }
    let scale = Vector::<f32, N>::new(factor);
    if taken {
        #[unroll]
        for i in 0..gradients.len() {
            let rate = Vector::<f32, N>::new(rates[comptime!(4 * i)]);
            let kept = Vector::<f32, N>::new(rates[comptime!(4 * i + 1)]);
            let of_mean = Vector::<f32, N>::new(rates[comptime!(4 * i + 2)]);
            let of_square = Vector::<f32, N>::new(rates[comptime!(4 * i + 3)]);
            let (parameters, gradients) = (&mut parameters[i], &gradients[i]);
            let (means, squares) = (&mut means[i], &mut squares[i]);
            let mut at = ABSOLUTE_POS;
            while at < gradients.len() {
                // All reads before the first use, so that they are under way at the same time.
                let (parameter, gradient) = (parameters[at], gradients[at] * scale);
                let (mean, square) = (means[at], squares[at]);
                let mean = Vector::new(beta1) * mean + Vector::new(1.0f32 - beta1) * gradient;
                let square = Vector::new(beta2) * square + Vector::new(1.0f32 - beta2) * gradient * gradient;
                means[at] = mean;
                squares[at] = square;
                let change = mean * of_mean / ((square * of_square).sqrt() + Vector::new(epsilon));
                parameters[at] = parameter * kept - rate * change;
                at += wide_stride();
            }
        }
    }
}

#[cube(launch)]
fn mix_kernel<N: Size>(
    sums: &mut Sequence<OwnedTensor<Vector<f32, N>>>,
    values: &Sequence<OwnedTensor<Vector<f32, N>>>,
    control: &Tensor<f32>,
    kept: f32,
    share: f32,
    #[comptime] controlled: bool,
) {
    let mut taken = true;
    if controlled {
        taken = control[1] > 0.5f32;
    }
    if taken {
        #[unroll]
        for i in 0..values.len() {
            let (sums, values) = (&mut sums[i], &values[i]);
            let mut at = ABSOLUTE_POS;
            while at < values.len() {
                sums[at] = sums[at] * Vector::new(kept) + values[at] * Vector::new(share);
                at += wide_stride();
            }
        }
    }
}
