//! What the backward pass keeps where products are in bf16. Their precision holds for the whole process, so this is one of its own.

use burn::tensor::{Device, Distribution, Tensor};
use undertone_kernels::matrix::{Precision, set_precision};
use undertone_ops::{AttentionOptions, Compute, attention, autocast, gelu, linear, runs_ahead};
use undertone_testing::skipped;

/// Gradients of the inputs of a block of attention and a wide layer, as vectors.
fn gradients(inputs: &[Tensor<2>; 3], states: &Tensor<3>, wide: &Tensor<2>) -> Vec<Vec<f32>> {
    let maps = inputs.each_ref().map(|map| map.clone().autodiff().require_grad());
    let (states, wide) = (states.clone().autodiff().require_grad(), wide.clone().autodiff().require_grad());
    let gradients = autocast(Compute::Bf16, || {
        let [q, k, v] = maps.each_ref().map(|map| linear(states.clone(), map.clone(), None));
        let y = states.clone() + attention(q, k, v, AttentionOptions::new(2));
        gelu(linear(y, wide.clone(), None)).square().sum().backward()
    });
    let vector = |gradient: Option<Tensor<1>>| gradient.expect("a gradient").try_into_vec_as().expect("numbers");
    let flat = |map: &Tensor<2>| vector(map.grad(&gradients).map(|gradient| gradient.flatten(0, 1)));
    let mut found: Vec<Vec<f32>> = maps.iter().chain([&wide]).map(flat).collect();
    found.push(vector(states.grad(&gradients).map(|gradient| gradient.flatten(0, 2))));
    found
}

/// Returns how far numbers are from the expected ones, as a share of their length.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
    length(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / length(&mut expected.iter().copied())
}

#[test]
fn gradients_in_bf16_are_those_of_the_inputs_they_belong_to() {
    let device = Device::default();
    if runs_ahead(&device) {
        return skipped("only a CPU keeps inputs so");
    }
    let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Normal(0.0, 0.2), &device);
    let maps = [(); 3].map(|()| random([16, 16]));
    let (wide, states) = (random([64, 16]), Tensor::<3>::random([2, 70, 16], Distribution::Normal(0.0, 1.0), &device));
    let exact = gradients(&maps, &states, &wide);
    if !set_precision(Precision::Medium) {
        return skipped("this processor has no AVX2");
    }
    for (found, exact) in gradients(&maps, &states, &wide).iter().zip(&exact) {
        // A product of two rounded factors is off by at most 2⁻⁷ of itself.
        assert!(distance(found, exact) < 1.0 / 64.0, "{}", distance(found, exact));
    }
    // One tensor after another, some of them in the memory of the last: what was rounded for one is not taken for the other.
    let mut x = Tensor::<2>::ones([64, 16], &device);
    for step in 1..20_u8 {
        x = x.add_scalar(f32::from(step));
        let weight = maps[0].clone().autodiff().require_grad();
        let found = autocast(Compute::Bf16, || linear(x.clone().autodiff(), weight.clone(), None).sum().backward());
        let found: Vec<f32> = weight.grad(&found).expect("a gradient").try_into_vec_as().expect("numbers");
        let expected = 64.0 * (1.0 + f32::from(step) * f32::from(step + 1) / 2.0);
        assert!(found.iter().all(|x| (x - expected).abs() <= expected / 256.0), "{} instead of {expected}", found[0]);
    }
}
