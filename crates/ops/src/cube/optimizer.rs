//! Updates of many parameters, by one kernel for each group of them.

use super::launch::UNITS;
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

/// Cubes of a group.
const CUBES: usize = 256;

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

/// Distance from one element of a unit to its next.
#[cube]
pub(super) fn strided() -> usize {
    CUBE_COUNT_X as usize * UNITS
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
            let part = |part: usize| {
                let some = group.iter().skip(part).step_by(4);
                some.map(|x| x.clone().into_tensor_arg()).collect::<SequenceArg<OwnedTensor<f32>>>()
            };
            let mut numbers = SequenceArg::<f32>::new();
            rates.by_ref().take(group.len() / 4).flatten().for_each(|rate| numbers.push(*rate));
            let (cubes, units) = (CubeCount::Static(CUBES as u32, 1, 1), CubeDim::new_1d(UNITS as u32));
            let controlled = control.is_some();
            let control = control.as_ref().unwrap_or(&group[3]).clone().into_tensor_arg();
            adamw_kernel::launch(
                &client,
                cubes,
                units,
                part(0),
                part(1),
                part(2),
                part(3),
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
        let part = |part: usize| {
            let some = group.iter().skip(part).step_by(2);
            some.map(|x| x.clone().into_tensor_arg()).collect::<SequenceArg<OwnedTensor<f32>>>()
        };
        let (cubes, units) = (CubeCount::Static(CUBES as u32, 1, 1), CubeDim::new_1d(UNITS as u32));
        let controlled = control.is_some();
        let control = control.as_ref().unwrap_or(&group[1]).clone().into_tensor_arg();
        mix_kernel::launch(&client, cubes, units, part(0), part(1), control, kept, share, controlled);
        moved.extend(group.into_iter().step_by(2));
    }
    moved
}

#[cube(launch)]
fn adamw_kernel(
    parameters: &mut Sequence<OwnedTensor<f32>>,
    means: &mut Sequence<OwnedTensor<f32>>,
    squares: &mut Sequence<OwnedTensor<f32>>,
    gradients: &Sequence<OwnedTensor<f32>>,
    control: &Tensor<f32>,
    rates: &Sequence<f32>,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    gradient_scale: f32,
    #[comptime] controlled: bool,
) {
    let mut scale = gradient_scale;
    let mut taken = true;
    if controlled {
        scale = control[0];
        taken = control[1] > 0.5f32;
    }
    if taken {
        #[unroll]
        for i in 0..gradients.len() {
            let rate = rates[comptime!(4 * i)];
            let kept = rates[comptime!(4 * i + 1)];
            let of_mean = rates[comptime!(4 * i + 2)];
            let of_square = rates[comptime!(4 * i + 3)];
            let (parameters, gradients) = (&mut parameters[i], &gradients[i]);
            let (means, squares) = (&mut means[i], &mut squares[i]);
            let mut at = ABSOLUTE_POS;
            while at < gradients.len() {
                let gradient = gradients[at] * scale;
                let mean = beta1 * means[at] + (1.0f32 - beta1) * gradient;
                let square = beta2 * squares[at] + (1.0f32 - beta2) * gradient * gradient;
                means[at] = mean;
                squares[at] = square;
                let change = mean * of_mean / ((square * of_square).sqrt() + epsilon);
                parameters[at] = parameters[at] * kept - rate * change;
                at += strided();
            }
        }
    }
}

#[cube(launch)]
fn mix_kernel(
    sums: &mut Sequence<OwnedTensor<f32>>,
    values: &Sequence<OwnedTensor<f32>>,
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
                sums[at] = sums[at] * kept + values[at] * share;
                at += strided();
            }
        }
    }
}
