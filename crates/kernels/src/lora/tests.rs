use super::*;
use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
use proptest::prelude::*;

const ALL: Wanted = Wanted { x: true, a: true, b: true, gates: true };

#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    time: usize,
    d_in: usize,
    d_out: usize,
    columns: usize,
}

/// `x`, `a`, `b` and gates. Of the groups of three gates only every `sparsity`th is not zero, shifted by one group
/// every two samples.
fn inputs(shape: Shape, sparsity: usize) -> [Vec<f32>; 4] {
    let Shape { batch, time, d_in, d_out, columns } = shape;
    let mut gates = random(batch * columns, 4);
    for (i, gate) in gates.iter_mut().enumerate() {
        if !(i % columns / 3 + i / columns / 2).is_multiple_of(sparsity) {
            *gate = 0.0;
        }
    }
    [random(batch * time * d_in, 1), random(columns * d_in, 2), random(d_out * columns, 3), gates]
}

fn bank<'a>([_, a, b, gates]: &'a [Vec<f32>; 4], shape: Shape) -> Bank<'a> {
    Bank { a, b, gates, time: shape.time, d_in: shape.d_in, d_out: shape.d_out }
}

fn by_definition([x, a, b, gates]: [&[f64]; 4], shape: Shape) -> Vec<f64> {
    let Shape { time, d_in, d_out, columns, .. } = shape;
    let mut y = Vec::new();
    for (row, x) in x.chunks(d_in).enumerate() {
        let gates = &gates[row / time * columns..][..columns];
        let dot = |a: &[f64]| x.iter().zip(a).map(|(x, a)| x * a).sum::<f64>();
        let low: Vec<f64> = a.chunks(d_in).zip(gates).map(|(a, gate)| dot(a) * gate).collect();
        y.extend((0..d_out).map(|o| low.iter().zip(&b[o * columns..]).map(|(low, b)| low * b).sum::<f64>()));
    }
    y
}

fn shapes(rows: usize, d: usize, columns: usize) -> impl Strategy<Value = Shape> {
    (1..5_usize, 1..rows, 1..d, 1..d, 1..columns).prop_map(|(batch, time, d_in, d_out, columns)| Shape {
        batch,
        time,
        d_in,
        d_out,
        columns,
    })
}

proptest! {
    #[test]
    fn equals_its_definition(shape in shapes(90, 50, 70), sparsity in 1_usize..5) {
        let inputs = inputs(shape, sparsity);
        let (y, _) = bank(&inputs, shape).forward(&inputs[0]);
        let wide_inputs = inputs.each_ref().map(|input| wide(input));
        assert_close(&y, &by_definition(wide_inputs.each_ref().map(Vec::as_slice), shape), 2e-5);
    }

    #[test]
    fn gradients_are_the_derivatives(shape in shapes(6, 7, 45), sparsity in 1_usize..5, bits in 0_u8..16) {
        let inputs = inputs(shape, sparsity);
        let bank = bank(&inputs, shape);
        let (y, low) = bank.forward(&inputs[0]);
        let dy = random(y.len(), 5);
        let [x, a, b, gates] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let wanted = Wanted { x, a, b, gates };
        let input: &[f32] = if wanted.needs_x() { &inputs[0] } else { &[] };
        let found = bank.backward(Numbers::F32(input), if wanted.needs_low() { &low } else { &[] }, &dy, wanted);
        let wide_inputs = inputs.each_ref().map(|input| wide(input));
        for (i, (found, wanted)) in
            [(found.x, x), (found.a, a), (found.b, b), (found.gates, gates)].into_iter().enumerate()
        {
            prop_assert_eq!(found.is_some(), wanted);
            let expected = numeric_gradient(&wide_inputs[i], |varied| {
                let mut inputs = wide_inputs.each_ref().map(Vec::as_slice);
                inputs[i] = varied;
                by_definition(inputs, shape).iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum()
            });
            if let Some(found) = found {
                assert_close(&found, &expected, 2e-5);
            }
        }
    }
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    for columns in [12, 50] {
        let shape = Shape { batch: 3, time: 700, d_in: 40, d_out: 24, columns };
        let inputs = inputs(shape, if columns == 12 { 4 } else { 1 });
        let bank = bank(&inputs, shape);
        let (one, three) = on_threads(|| bank.forward(&inputs[0]));
        assert_eq!(one, three);
        let dy = random(one.0.len(), 5);
        let (one, three) = on_threads(|| {
            let found = bank.backward(Numbers::F32(&inputs[0]), &one.1, &dy, ALL);
            [found.x, found.a, found.b, found.gates]
        });
        assert_eq!(one, three);
    }
}

#[test]
fn consecutive_samples_of_the_same_columns_share_a_segment() {
    let gates = [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0];
    let shape = Shape { batch: 4, time: 2, d_in: 1, d_out: 1, columns: 3 };
    let inputs = [vec![], vec![0.0; 3], vec![0.0; 3], gates.to_vec()];
    let bank = bank(&inputs, shape);
    let used = bank.segments();
    let used: Vec<_> = used.into_iter().map(|s| (s.rows, s.columns, s.offset)).collect();
    assert_eq!(used, [(0..4, vec![0, 1], 0), (4..6, vec![], 8), (6..8, vec![2], 8)]);
}

#[test]
fn a_column_that_no_sample_uses_is_not_read() {
    let shape = Shape { batch: 2, time: 3, d_in: 4, d_out: 5, columns: 2 };
    let mut inputs = inputs(shape, 1);
    inputs[3] = vec![0.5, 0.0, 0.25, 0.0];
    inputs[1][4..].fill(f32::NAN);
    let bank = bank(&inputs, shape);
    let (y, low) = bank.forward(&inputs[0]);
    let found = bank.backward(Numbers::F32(&inputs[0]), &low, &y, Wanted { gates: false, ..ALL });
    for values in [y, found.x.unwrap_or_default(), found.a.unwrap_or_default(), found.b.unwrap_or_default()] {
        assert!(!values.is_empty() && values.iter().all(|v| v.is_finite()));
    }
}
