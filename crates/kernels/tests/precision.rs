//! The choice of precision holds for the whole process, so it is tested in one of its own.

use half::bf16;
use undertone_kernels::activation::{gelu, gelu_backward, gelu_kept};
use undertone_kernels::attention::Attention;
use undertone_kernels::linear;
use undertone_kernels::matrix::{Precision, rounded, set_precision};
use undertone_kernels::numbers::Numbers;
use undertone_testing::skipped;

#[test]
fn medium_precision_is_near_the_highest_and_never_it() {
    let (rows, d_in, d_out) = (70, 130, 50);
    let values =
        |n: usize, step: usize| -> Vec<f32> { (0..n).map(|i| (i * step % 1000) as f32 / 500.0 - 1.0).collect() };
    let (x, weight) = (values(rows * d_in, 379), values(d_out * d_in, 617));
    let run = || linear::forward(&x, Numbers::F32(&weight), None, d_in, d_out);
    let highest = run();
    if !set_precision(Precision::Medium) {
        return skipped("this processor has no AVX2");
    }
    let medium = run();
    // Rounded before, it is not rounded again.
    let half: Vec<bf16> = weight.iter().map(|x| bf16::from_f32(*x)).collect();
    assert_eq!(linear::forward(&x, Numbers::Bf16(&half), None, d_in, d_out), medium);
    what_is_kept_gives_the_same_gradients(&x, &weight, [rows, d_in, d_out]);
    packed_keys_give_what_each_tile_packs();
    assert!(set_precision(Precision::Highest), "the highest precision can always be had");
    assert_eq!(run(), highest);
    assert_ne!(medium, highest);
    // Each factor is off by up to 2⁻⁹ of itself; 130 products of such errors, at random signs.
    for (m, h) in medium.iter().zip(&highest) {
        assert!((m - h).abs() < 130_f32.sqrt() * 2.0_f32.powi(-7), "{m} is not near {h}");
    }
}

/// What the forward pass keeps in bf16 is what products of the backward pass would round.
fn what_is_kept_gives_the_same_gradients(x: &[f32], weight: &[f32], [rows, d_in, d_out]: [usize; 3]) {
    for bias in [None, Some(&weight[..d_out])] {
        let (y, kept) = linear::forward_kept(x, Numbers::F32(weight), bias, d_in, d_out);
        assert_eq!(y, linear::forward(x, Numbers::F32(weight), bias, d_in, d_out));
        let kept = kept.expect("a product of many rows rounds its input");
        assert_eq!(Some(&kept), rounded(x).as_ref());
        assert!(kept.iter().zip(x).all(|(kept, x)| *kept == bf16::from_f32(*x)), "bf16 rounds to nearest even");
        let dy: Vec<f32> = y.iter().map(|y| y.sin()).collect();
        let gradient = |x| linear::backward_weight(&dy, x, d_in, d_out);
        assert_eq!(gradient(Numbers::Bf16(&kept)), gradient(Numbers::F32(x)));
    }
    let (one, kept) = linear::forward_kept(&x[..d_in], Numbers::F32(weight), None, d_in, d_out);
    assert!(kept.is_none() && one.len() == d_out, "a row is not rounded");
    let (_, kept) = linear::forward_kept(&x[..rows], Numbers::F32(&weight[..d_out]), None, 1, d_out);
    assert!(kept.is_none(), "a column is not kept");
    let (y, kept) = gelu_kept(x);
    assert_eq!((y, kept), (gelu(x), rounded(x)));
    let mut gradients = [vec![1.0; rows * d_in], vec![1.0; rows * d_in]];
    let kept = rounded(x).expect("the precision is medium");
    let wide: Vec<f32> = kept.iter().map(|x| x.to_f32()).collect();
    gelu_backward(Numbers::Bf16(&kept), &mut gradients[0]);
    gelu_backward(Numbers::F32(&wide), &mut gradients[1]);
    assert_eq!(gradients[0], gradients[1]);
}

/// Attention of more than one tile packs keys and values once; each of its tiles is attention of few queries by itself.
fn packed_keys_give_what_each_tile_packs() {
    let (keys, d_head, tile) = (150, 40, 64);
    let values =
        |n: usize, step: usize| -> Vec<f32> { (0..n).map(|i| (i * step % 997) as f32 / 500.0 - 1.0).collect() };
    for causal in [false, true] {
        let attention = |queries| Attention {
            batch: 1,
            heads: 1,
            queries,
            keys,
            d_head,
            causal,
            key_padding: None,
            dropout: 0.0,
            seed: 0,
        };
        let [q, k, v, d_out] = [211, 379, 617, 83].map(|step| values(keys * d_head, step));
        let (out, sums) = attention(keys).forward(&q, &k, &v);
        // The last tile sees all keys, also of causal attention.
        let first = (keys - 1) / tile * tile;
        let (last, _) = attention(keys - first).forward(&q[first * d_head..], &k, &v);
        assert_eq!(out[first * d_head..], last);
        let inputs = [&q, &k, &v];
        let halves = inputs.map(|x| rounded(x).expect("the precision is medium"));
        let run = |inputs| attention(keys).backward(inputs, Numbers::F32(&out), &sums, &d_out);
        let of_numbers = run(inputs.map(|x| Numbers::F32(x)));
        let of_halves = run(halves.each_ref().map(|x| Numbers::Bf16(x)));
        assert_eq!(of_numbers.query, of_halves.query);
        assert_eq!(of_numbers.key, of_halves.key);
        assert_eq!(of_numbers.value, of_halves.value);
    }
}
