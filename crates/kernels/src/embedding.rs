//! Embedding look-up.

/// Returns the rows of `weight` `[rows, d]` that `ids` select: `[ids, d]`.
///
/// # Panics
/// If an id is not below `rows`.
pub fn forward(weight: &[f32], ids: &[usize], d: usize) -> Vec<f32> {
    let rows = weight.len() / d;
    let mut y = Vec::with_capacity(ids.len() * d);
    for id in ids {
        y.extend_from_slice(&weight[row(*id, rows) * d..][..d]);
    }
    y
}

/// Returns the gradient `[rows, d]` of [`forward`]'s table from its output's gradient `dy` `[ids, d]`: each row is the
/// sum, in order, over the positions of its id.
///
/// # Panics
/// If an id is not below `rows`, or `dy` is not a row for each id.
pub fn backward(dy: &[f32], ids: &[usize], rows: usize, d: usize) -> Vec<f32> {
    assert_eq!(dy.len(), ids.len() * d, "a row of {d} for each of {} ids", ids.len());
    // The system's zeroed pages: most rows of a vocabulary are not in a batch, and are never accessed.
    let mut gradient = vec![0.0; rows * d];
    for (id, dy) in ids.iter().zip(dy.chunks_exact(d)) {
        for (sum, dy) in gradient[row(*id, rows) * d..][..d].iter_mut().zip(dy) {
            *sum += dy;
        }
    }
    gradient
}

/// Returns `id`, if the table has it.
fn row(id: usize, rows: usize) -> usize {
    assert!(id < rows, "id {id} is outside the embedding's {rows} rows");
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;
    use proptest::prelude::*;

    #[test]
    fn rows_are_looked_up() {
        assert_eq!(forward(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 0, 2], 2), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
        assert_eq!(forward(&[1.0, 2.0], &[], 2), []);
    }

    #[test]
    fn gradients_of_equal_ids_are_summed() {
        let dy = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0];
        assert_eq!(backward(&dy, &[2, 0, 2], 4, 2), [10.0, 20.0, 0.0, 0.0, 101.0, 202.0, 0.0, 0.0]);
        assert_eq!(backward(&[], &[], 2, 2), [0.0; 4]);
    }

    #[test]
    #[should_panic(expected = "id 3 is outside the embedding's 3 rows")]
    fn an_id_outside_is_refused() {
        forward(&[0.0; 6], &[0, 3], 2);
    }

    #[test]
    #[should_panic(expected = "id 7 is outside the embedding's 3 rows")]
    fn a_gradient_of_an_id_outside_is_refused() {
        backward(&[0.0; 2], &[7], 3, 2);
    }

    proptest! {
        /// `Σ dy · forward(w)` is linear in `w`, so it is `Σ backward(dy) · w`.
        #[test]
        fn backward_is_the_transpose_of_forward(ids in prop::collection::vec(0_usize..11, 0..40), d in 1_usize..20) {
            let (weight, dy) = (random(11 * d, 1), random(ids.len() * d, 2));
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let of_output = dot(&dy, &forward(&weight, &ids, d));
            let of_table = dot(&backward(&dy, &ids, 11, d), &weight);
            prop_assert!((of_output - of_table).abs() < 1e-4);
        }
    }
}
