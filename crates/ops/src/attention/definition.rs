//! Tests of attention against its definition.

use super::tests::composed;
use super::{AttentionOptions, attention};
use crate::testing::{assert_close, device, pseudo_random};
use burn::tensor::{Bool, DType, Tensor};

/// Attention by its definition, in loops on the host.
fn by_definition(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    (t, s, heads, dk): (usize, usize, usize, usize),
    causal: bool,
    padded: &[bool],
) -> Vec<f32> {
    let width = heads * dk;
    let mut out = vec![0.0; t * width];
    for head in 0..heads {
        for i in 0..t {
            let logits: Vec<f64> = (0..s)
                .map(|j| {
                    if padded[j] || (causal && j > i + s - t) {
                        return f64::NEG_INFINITY;
                    }
                    let dot: f64 = (0..dk)
                        .map(|c| f64::from(q[i * width + head * dk + c]) * f64::from(k[j * width + head * dk + c]))
                        .sum();
                    dot / (dk as f64).sqrt()
                })
                .collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
            for c in 0..dk {
                let y: f64 =
                    (0..s).map(|j| (logits[j] - max).exp() / sum * f64::from(v[j * width + head * dk + c])).sum();
                out[i * width + head * dk + c] = y as f32;
            }
        }
    }
    out
}

#[test]
fn equals_its_definition_with_and_without_autodiff() {
    let (t, s, heads, dk) = (5, 7, 3, 4);
    for causal in [false, true] {
        for padded in [vec![false; s], (0..s).map(|j| j == 1 || j == 2).collect::<Vec<_>>()] {
            let (q, k, v) =
                (pseudo_random(t * heads * dk, 1), pseudo_random(s * heads * dk, 2), pseudo_random(s * heads * dk, 3));
            let expected = by_definition(&q, &k, &v, (t, s, heads, dk), causal, &padded);
            for device in [device(), device().autodiff()] {
                let tensor =
                    |x: &[f32], time: usize| Tensor::<1>::from_floats(x, &device).reshape([1, time, heads * dk]);
                let mask = Tensor::<1, Bool>::from_bool(padded.as_slice(), &device.clone().inner()).unsqueeze::<2>();
                let mut options = AttentionOptions::new(heads).with_key_padding(Some(mask));
                options.causal = causal;
                let y = attention(tensor(&q, t), tensor(&k, s), tensor(&v, s), options);
                assert_close(y, &expected, 1e-5);
            }
        }
    }
}

/// PyTorch's fused attention, too, rounds its output and the weights that it sums: together 4.9e-4 for values of 1 in
/// f16.
#[test]
fn scores_of_thirty_are_not_rounded_to_half_precision() {
    let (time, heads, width) = (24, 2, 32);
    for (dtype, tolerance) in [(DType::F16, 5e-4), (DType::BF16, 4e-3)] {
        if !device().supports_dtype(dtype) {
            continue;
        }
        let low = |seed, scale: f32| {
            let x: Vec<f32> = pseudo_random(time * width, seed).iter().map(|x| x * scale).collect();
            Tensor::<1>::from_floats(x.as_slice(), &device()).reshape([1, time, width]).cast(dtype)
        };
        // Sums of 16 products of such numbers, divided by the root of 16, are about 30.
        let [q, k, v] = [low(1, 6.0), low(2, 6.0), low(3, 1.0)];
        let [exact_q, exact_k, exact_v] = [&q, &k, &v].map(|x| x.clone().try_into_vec_as::<f32>().expect("floats"));
        let expected =
            by_definition(&exact_q, &exact_k, &exact_v, (time, time, heads, width / heads), false, &[false; 24]);
        for body in [attention, composed] {
            let answer = body(q.clone(), k.clone(), v.clone(), AttentionOptions::new(heads));
            assert_close(answer, &expected, tolerance);
            let [q, k, v] = [&q, &k, &v].map(|x| x.clone().autodiff().require_grad());
            assert_close(body(q, k, v, AttentionOptions::new(heads)).inner(), &expected, tolerance);
        }
    }
}
