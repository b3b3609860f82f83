//! A training loop written by hand around the operations: `cargo run -p undertone --example own_loop`.
//!
//! Forward, backward, update: no Learner, no module, nothing on disk. A small network learns which letter follows which in
//! a sentence. Each operation runs its fused kernel on the CPU, and Burn's autodiff finds its way through it.
//!
//! Between this and `Learner::train` lies `Learner::step`: one optimizer step on batches of your own, with all that the
//! Learner does about precision, clipping and guards.

use burn::tensor::{Device, Int, Tensor, TensorData};
use undertone::ops::{self, AdamWRule, Moments, embedding, gelu, layer_norm, linear, linear_cross_entropy};

const TEXT: &str = "the quick brown fox jumps over the lazy dog";
const WIDTH: usize = 32;

/// Trained parameter: its shape, its values, `[elements]`, without autodiff, and AdamW's running means.
struct Parameter {
    shape: Vec<usize>,
    value: Tensor<1>,
    moments: Moments,
}

impl Parameter {
    fn new<const D: usize>(value: Tensor<D>) -> Self {
        let (shape, value) = (value.dims().to_vec(), value.flatten::<1>(0, D - 1));
        let moments = Moments { mean: value.zeros_like(), square: value.zeros_like() };
        Self { shape, value, moments }
    }

    /// As a leaf of this step's graph.
    fn leaf<const D: usize>(&self) -> Tensor<D> {
        let shape: [usize; D] = self.shape.clone().try_into().expect("as many dimensions as it was made with");
        self.value.clone().reshape(shape).autodiff().require_grad()
    }

    fn step(&mut self, rule: &AdamWRule, gradient: Tensor<1>) {
        (self.value, self.moments) = rule.apply(self.value.clone(), gradient, self.moments.clone());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex();
    ops::seed(42);
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let letters = alphabet.len();
    let ids: Vec<i64> = TEXT.chars().map(|c| alphabet.iter().position(|a| *a == c).unwrap_or(0) as i64).collect();
    // Three letters are read, the fourth is to be said.
    let contexts: Vec<i64> = ids.windows(4).flat_map(|window| window[..3].to_vec()).collect();
    let targets: Vec<i64> = ids.windows(4).map(|window| window[3]).collect();
    let rows = targets.len();

    let normal = |shape: [usize; 2], std: f64| ops::normal(shape, std, &device);
    let mut words = Parameter::new(normal([letters, WIDTH], 0.1));
    let mut weight = Parameter::new(normal([WIDTH, 3 * WIDTH], 0.1));
    let mut scale = Parameter::new(Tensor::<1>::ones([WIDTH], &device));
    let mut shift = Parameter::new(Tensor::<1>::zeros([WIDTH], &device));

    let (mut first, mut last) = (f32::NAN, f32::NAN);
    for step in 1..=100 {
        // Forward, over leaves of a graph of this step.
        let (w, u, g, b) = (words.leaf::<2>(), weight.leaf::<2>(), scale.leaf::<1>(), shift.leaf::<1>());
        let on = w.device();
        let read = Tensor::<2, Int>::from_data(TensorData::new(contexts.clone(), [rows, 3]), &on);
        let due = Tensor::<1, Int>::from_data(TensorData::new(targets.clone(), [rows]), &on);
        let hidden = embedding(w.clone(), read).reshape([rows, 3 * WIDTH]);
        let hidden = layer_norm(gelu(linear(hidden, u.clone(), None)), g.clone(), b.clone(), 1e-5);
        // The logits of the tied embedding are made and consumed in the same pass.
        let loss = linear_cross_entropy(hidden, w.clone(), None, due, Default::default()).mean();
        last = loss.clone().inner().into_scalar();
        first = if step == 1 { last } else { first };

        // Backward.
        let gradients = loss.backward();

        // Update.
        let rule = AdamWRule {
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step,
            gradient_scale: 1.0,
        };
        let missing = "a parameter has no gradient";
        words.step(&rule, w.grad(&gradients).ok_or(missing)?.flatten(0, 1));
        weight.step(&rule, u.grad(&gradients).ok_or(missing)?.flatten(0, 1));
        scale.step(&rule, g.grad(&gradients).ok_or(missing)?);
        shift.step(&rule, b.grad(&gradients).ok_or(missing)?);
    }
    println!("loss {first:.3} at the first step, {last:.3} at the last of 100");
    assert!(last < 0.1 && first > 2.0, "nothing was learned");
    Ok(())
}
