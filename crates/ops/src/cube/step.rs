//! Decision on a training step, in one launch.

use super::launch::empty;
use crate::step_rules::StepRules;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Arguments as for [`crate::StepControl`].
#[derive(Clone, Debug)]
pub(crate) struct StepControl {
    weights: Vec<f32>,
    gradient_scale: f32,
    clip_norm: f32,
    highest_loss: f32,
}

impl StepControl {
    pub fn new(weights: &[f64], rules: StepRules) -> Self {
        Self {
            weights: weights.iter().map(|weight| *weight as f32).collect(),
            gradient_scale: rules.gradient_scale as f32,
            clip_norm: rules.clip_norm as f32,
            highest_loss: rules.highest_loss.min(f64::from(f32::MAX)) as f32,
        }
    }

    /// Takes the squared gradient norm and the terms of the loss. Returns `[4 + terms]`.
    pub fn decide(&self, inputs: Vec<CubeTensor>) -> Vec<CubeTensor> {
        let inputs: Vec<CubeTensor> = inputs.into_iter().map(into_contiguous).collect();
        let numbers = empty(&inputs[0], [inputs.len() + 3]);
        let client = inputs[0].client.clone();
        let mut inputs = inputs.into_iter().map(CubeTensor::into_tensor_arg);
        let squares = inputs.next().expect("the squares");
        let terms: SequenceArg<OwnedTensor<f32>> = inputs.collect();
        let mut weights = SequenceArg::<f32>::new();
        self.weights.iter().for_each(|weight| weights.push(*weight));
        let out = numbers.clone().into_tensor_arg();
        let (one, unit) = (CubeCount::Static(1, 1, 1), CubeDim::new_1d(1));
        let (scale, clip, most) = (self.gradient_scale, self.clip_norm, self.highest_loss);
        step_control::launch(&client, one, unit, squares, terms, out, weights, scale, clip, most);
        vec![numbers]
    }
}

#[cube(launch)]
fn step_control(
    squares: &Tensor<f32>,
    terms: &Sequence<OwnedTensor<f32>>,
    numbers: &mut Tensor<f32>,
    weights: &Sequence<f32>,
    gradient_scale: f32,
    clip_norm: f32,
    highest_loss: f32,
) {
    let norm = squares[0].sqrt() * gradient_scale;
    let mut loss = 0.0f32;
    #[unroll]
    for i in 0..terms.len() {
        let term = &terms[i];
        loss += term[0] * weights[i];
        numbers[4 + i] = term[0];
    }
    let mut factor = gradient_scale;
    if clip_norm > 0.0f32 && norm > clip_norm {
        factor = gradient_scale * (clip_norm / norm);
    }
    // A comparison with NaN is false.
    let mut taken = 0.0f32;
    if norm.abs() < f32::MAX && loss.abs() < f32::MAX && loss <= highest_loss {
        taken = 1.0f32;
    }
    numbers[0] = factor;
    numbers[1] = taken;
    numbers[2] = norm;
    numbers[3] = loss;
}
