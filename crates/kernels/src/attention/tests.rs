use super::*;
use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
use proptest::prelude::*;

/// Attention by its definition, an element at a time.
fn by_definition(a: &Attention, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
    let (width, scale) = (a.width(), (a.d_head as f64).powf(-0.5));
    let mut out = vec![0.0; q.len()];
    for (b, h) in (0..a.batch).flat_map(|b| (0..a.heads).map(move |h| (b, h))) {
        for i in 0..a.queries {
            let at = |time: usize, t: usize, c: usize| (b * time + t) * width + h * a.d_head + c;
            let seen = |j: &usize| {
                (!a.causal || j + a.queries <= i + a.keys) && !a.key_padding.is_some_and(|p| p[b * a.keys + j])
            };
            let score =
                |j: usize| scale * (0..a.d_head).map(|c| q[at(a.queries, i, c)] * k[at(a.keys, j, c)]).sum::<f64>();
            let total: f64 = (0..a.keys).filter(seen).map(|j| score(j).exp()).sum();
            for j in (0..a.keys).filter(seen) {
                let index = (((b * a.heads + h) * a.queries + i) * a.keys + j) as u64;
                let weight = score(j).exp() / total * f64::from(kept(a.seed, index, a.dropout));
                for c in 0..a.d_head {
                    out[at(a.queries, i, c)] += weight * v[at(a.keys, j, c)];
                }
            }
        }
    }
    out
}

#[derive(Clone, Debug)]
struct Case {
    shape: [usize; 5],
    causal: bool,
    padded: bool,
    dropout: f32,
}

impl Case {
    /// Calls `f` with the attention and with queries, keys, values and the output's gradient.
    fn with<T>(&self, f: impl FnOnce(Attention, [Vec<f32>; 4]) -> T) -> T {
        let [batch, heads, queries, keys, d_head] = self.shape;
        // Every fourth key is padding, never the first.
        let padding: Vec<bool> = (0..batch * keys).map(|i| i % keys % 4 == 3).collect();
        let key_padding = self.padded.then_some(padding.as_slice());
        let (causal, dropout) = (self.causal, self.dropout);
        let a = Attention { batch, heads, queries, keys, d_head, causal, key_padding, dropout, seed: 11 };
        let (q, k) = (batch * queries * a.width(), batch * keys * a.width());
        f(a, [random(q, 1), random(k, 2), random(k, 3), random(q, 4)])
    }
}

fn case(time: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let shape = (1_usize..3, 1_usize..3, time.clone(), time, 1_usize..5);
    (shape, any::<bool>(), any::<bool>(), prop_oneof![Just(0.0_f32), Just(0.3)]).prop_map(
        |((batch, heads, queries, keys, d_head), causal, padded, dropout)| Case {
            // With fewer keys than queries, the first causal queries see nothing; there is a separate test for that
            // below.
            shape: [batch, heads, queries, if causal { keys.max(queries) } else { keys }, d_head],
            causal,
            padded,
            dropout,
        },
    )
}

fn check_forward(case: &Case) {
    case.with(|a, [q, k, v, _]| {
        let (out, _) = a.forward(&q, &k, &v);
        assert_close(&out, &by_definition(&a, &wide(&q), &wide(&k), &wide(&v)), 1e-5);
    });
}

fn check_gradients(case: &Case) {
    case.with(|a, [q, k, v, d_out]| {
        let (out, sums) = a.forward(&q, &k, &v);
        let found = a.backward([&q, &k, &v].map(|x| Numbers::F32(x)), Numbers::F32(&out), &sums, &d_out);
        let (wq, wk, wv) = (wide(&q), wide(&k), wide(&v));
        let loss = |y: Vec<f64>| y.iter().zip(&d_out).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
        assert_close(&found.query, &numeric_gradient(&wq, |q| loss(by_definition(&a, q, &wk, &wv))), 1e-5);
        assert_close(&found.key, &numeric_gradient(&wk, |k| loss(by_definition(&a, &wq, k, &wv))), 1e-5);
        assert_close(&found.value, &numeric_gradient(&wv, |v| loss(by_definition(&a, &wq, &wk, v))), 1e-5);
    });
}

proptest! {
    #[test]
    fn equals_its_definition(case in case(1..90)) {
        check_forward(&case);
    }

    #[test]
    fn gradients_are_the_derivatives(case in case(1..8)) {
        check_gradients(&case);
    }
}

#[test]
fn more_queries_than_a_tile() {
    for (causal, dropout) in [(false, 0.0), (true, 0.0), (true, 0.2)] {
        let case = Case { shape: [1, 2, TILE + 5, TILE + 7, 3], causal, padded: true, dropout };
        check_forward(&case);
        check_gradients(&case);
    }
    check_forward(&Case { shape: [2, 1, 2 * PIECE + 3, 40, 4], causal: false, padded: false, dropout: 0.0 });
}

#[test]
fn a_query_that_sees_nothing_gives_zeros() {
    for (queries, keys, causal, padding) in [(3, 2, true, None), (2, 2, false, Some([true, true].as_slice()))] {
        let (batch, heads, d_head) = (1, 1, 2);
        let a = Attention { batch, heads, queries, keys, d_head, causal, key_padding: padding, dropout: 0.0, seed: 0 };
        let (q, k) = (random(queries * 2, 1), random(keys * 2, 2));
        let (out, sums) = a.forward(&q, &k, &k);
        assert_eq!(out[..2], [0.0, 0.0]);
        let gradients = a.backward([&q, &k, &k].map(|x| Numbers::F32(x)), Numbers::F32(&out), &sums, &q);
        assert_eq!(gradients.query[..2], [0.0, 0.0]);
        assert!(gradients.key.iter().chain(&gradients.value).all(|g| g.is_finite()));
    }
}

#[test]
fn scores_that_are_no_numbers_are_not_taken_for_hidden_keys() {
    // Affects all scores of a query: a NaN in it, or infinities that make every score -∞.
    for (query, key) in [(f32::NAN, 1.0), (f32::NEG_INFINITY, 1.0), (1.0, f32::NEG_INFINITY)] {
        for (causal, padded) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = Case { shape: [1, 1, 3, 5, 1], causal, padded, dropout: 0.0 };
            case.with(|a, [mut q, mut k, v, d_out]| {
                (q[1], k) = (query, vec![key; k.len()]);
                let (out, sums) = a.forward(&q, &k, &v);
                assert!(out[1].is_nan() && sums[1].is_nan(), "{query} {key}: {out:?}");
                let gradients = a.backward([&q, &k, &v].map(|x| Numbers::F32(x)), Numbers::F32(&out), &sums, &d_out);
                assert!(gradients.query[1].is_nan() && gradients.value[0].is_nan(), "{gradients:?}");
            });
        }
    }
}

#[test]
fn a_causal_query_is_no_number_from_the_key_on_that_is_none() {
    for poison in [f32::NAN, f32::INFINITY] {
        let (time, at) = (TILE + 6, TILE + 2);
        let case = Case { shape: [1, 1, time, time, 1], causal: true, padded: false, dropout: 0.0 };
        case.with(|a, [q, mut k, v, d_out]| {
            // Above 0: a negative query times ∞ is -∞, which gives a weight of 0 instead of NaN.
            let q: Vec<f32> = q.iter().map(|q| q.abs() + 0.1).collect();
            k[at] = poison;
            let (out, sums) = a.forward(&q, &k, &v);
            for (i, out) in out.iter().enumerate() {
                assert_eq!(out.is_nan(), i >= at, "{poison}: query {i} gives {out}");
            }
            let gradients = a.backward([&q, &k, &v].map(|x| Numbers::F32(x)), Numbers::F32(&out), &sums, &d_out);
            for (i, gradient) in gradients.query.iter().enumerate() {
                assert!(gradient.is_nan() || i < at, "{poison}: query {i} has the gradient {gradient}");
            }
        });
    }
}

#[test]
#[should_panic(expected = "needs a query and a key")]
fn nothing_to_attend_to_is_refused() {
    let case = Case { shape: [1, 1, 1, 0, 2], causal: false, padded: false, dropout: 0.0 };
    case.with(|a, [q, k, v, d_out]| {
        a.backward([&q, &k, &v].map(|x| Numbers::F32(x)), Numbers::F32(&q), &[0.0], &d_out)
    });
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let case = Case { shape: [2, 3, PIECE + 70, 200, 8], causal: false, padded: true, dropout: 0.1 };
    case.with(|a, [q, k, v, d_out]| {
        let (one, three) = on_threads(|| {
            let (out, sums) = a.forward(&q, &k, &v);
            let gradients = a.backward([&q, &k, &v].map(|x| Numbers::F32(x)), Numbers::F32(&out), &sums, &d_out);
            (out, gradients.query, gradients.key, gradients.value)
        });
        assert!(one == three, "bits differ");
    });
}
