//! Connectionist temporal classification (CTC; Graves et al., 2006): text from an encoder alone, without a decoder.

use crate::host;
use crate::sum;
use burn::tensor::activation::log_softmax;
use burn::tensor::module;
use burn::tensor::{Int, Tensor, TensorData};

/// Returns the CTC loss of logits against label sequences, summed over the rows, `[1]`: the negative log probability of
/// all alignments of a row's labels with its positions. A row with too few positions for its labels has no alignment:
/// it counts as 0 and has no gradient.
///
/// # Shapes
/// - `logits`: `[batch, time, classes]`
/// - `labels`: those of each row, without blanks
/// - `lengths`: number of valid positions of each row, at least 1
///
/// # Panics
/// If there are not as many sequences and lengths as rows.
pub fn ctc_loss(logits: Tensor<3>, labels: &[Vec<i64>], lengths: &[usize], blank: usize) -> Tensor<1> {
    let ([rows, time, _], device) = (logits.dims(), logits.device());
    assert_eq!([labels.len(), lengths.len()], [rows; 2], "rows of labels and lengths");
    let ints = |values: Vec<i64>| Tensor::<1, Int>::from_data(TensorData::new(values, [rows]), &device);
    // One column more than the longest sequence: no tensor is empty, and no row reads beyond its labels.
    let width = 1 + labels.iter().map(Vec::len).max().unwrap_or_default();
    let padded = labels.iter().flat_map(|labels| {
        let padding = std::iter::repeat_n(blank as i64, width - labels.len());
        labels.iter().copied().chain(padding)
    });
    let targets = Tensor::<2, Int>::from_data(TensorData::new(padded.collect(), [rows, width]), &device);
    let counts = ints(labels.iter().map(|labels| labels.len() as i64).collect());
    let lengths = ints(lengths.iter().map(|length| (*length).clamp(1, time) as i64).collect());
    let log_p = log_softmax(host::f32(logits), 2).swap_dims(0, 1);
    let losses = module::ctc_loss(log_p, targets, lengths, counts, blank);
    let impossible = losses.clone().is_inf();
    sum(losses.mask_fill(impossible, 0.0))
}

/// Returns the labels of each row by greedy CTC decoding: the most probable class of each valid position, without
/// repetitions and blanks.
///
/// # Shapes
/// - `logits`: `[batch, time, classes]`
/// - `lengths`: number of valid positions of each row
pub fn ctc_greedy(logits: Tensor<3>, lengths: &[usize], blank: usize) -> Vec<Vec<u32>> {
    let [_, time, _] = logits.dims();
    let best: Vec<u32> = logits.argmax(2).into_data().iter::<i64>().map(|class| class as u32).collect();
    let rows = best.chunks(time).zip(lengths).map(|(row, length)| {
        let mut labels = row[..(*length).min(time)].to_vec();
        labels.dedup();
        labels.retain(|label| *label as usize != blank);
        labels
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};

    /// Logits whose values no formula of the loss favours: `sin(7 · row + 3 · position + 5 · class)`.
    fn logits(rows: usize, time: usize, classes: usize) -> Tensor<3> {
        let value = |i: usize| {
            let (row, position, class) = (i / (time * classes), i / classes % time, i % classes);
            ((7 * row + 3 * position + 5 * class) as f32).sin()
        };
        let values: Vec<f32> = (0..rows * time * classes).map(value).collect();
        Tensor::from_data(TensorData::new(values, [rows, time, classes]), &device().autodiff())
    }

    fn labels() -> Vec<Vec<i64>> {
        vec![vec![1, 2, 2], vec![3], vec![]]
    }

    // The numbers are the definition's, in f64, by a sum over all 4^n paths (Python, for row b with n positions):
    //   p = [softmax([sin(7*b + 3*t + 5*c) for c in range(4)]) for t in range(n)]
    //   paths = [path for path in itertools.product(range(4), repeat=n)
    //            if [k for k, _ in itertools.groupby(path) if k != 0] == labels[b]]
    //   weight = {path: math.prod(p[t][path[t]] for t in range(n)) for path in paths}
    //   loss = -math.log(sum(weight.values()))
    //   gradient[t][c] = p[t][c] - sum(w for path, w in weight.items() if path[t] == c) / sum(weight.values())
    const LOSSES: [f32; 3] = [6.262747, 3.767322, 3.843195];
    #[rustfmt::skip]
    const GRADIENT: [f32; 72] = [
        -0.235200, -0.408260, 0.149598, 0.493863, 0.112198, -0.207996, 0.014927, 0.080872,
        -0.044502, 0.048243, -0.555705, 0.551964, -0.475754, 0.466792, -0.061123, 0.070084,
        -0.196644, 0.083840, -0.457797, 0.570601, -0.145929, 0.440526, -0.360421, 0.065824,
        -0.221376, 0.150427, 0.098362, -0.027412, -0.236557, 0.326745, 0.424893, -0.515081,
        -0.000558, 0.126369, 0.114890, -0.240701, -0.494998, 0.393304, 0.365215, -0.263521,
        0.000000, 0.000000, 0.000000, 0.000000, 0.000000, 0.000000, 0.000000, 0.000000,
        -0.435912, 0.243345, 0.084692, 0.107875, -0.933055, 0.173542, 0.455614, 0.303899,
        -0.432644, 0.199475, 0.084776, 0.148392, 0.000000, 0.000000, 0.000000, 0.000000,
        0.000000, 0.000000, 0.000000, 0.000000, 0.000000, 0.000000, 0.000000, 0.000000,
    ];

    #[test]
    fn loss_and_gradient_are_those_of_the_sum_over_all_paths() {
        let x = logits(3, 6, 4).require_grad();
        let loss = ctc_loss(x.clone(), &labels(), &[6, 4, 3], 0);
        assert_close(loss.clone(), &[LOSSES.iter().sum()], 1e-4);
        let gradient = x.grad(&loss.backward()).expect("a gradient");
        assert_close(gradient, &GRADIENT, 1e-5);
        let alone = ctc_loss(x.narrow(0, 1, 1), &labels()[1..2], &[4], 0);
        assert_close(alone, &LOSSES[1..2], 1e-4);
    }

    #[test]
    fn a_row_too_short_for_its_labels_counts_as_nothing() {
        let x = logits(2, 3, 4).require_grad();
        // Equal neighbours need a blank in between: four positions.
        let loss = ctc_loss(x.clone(), &[vec![1, 1, 2], vec![3]], &[3, 3], 0);
        let possible = ctc_loss(x.clone().narrow(0, 1, 1), &[vec![3]], &[3], 0);
        let expected: Vec<f32> = possible.try_into_vec_as().expect("floats");
        assert_close(loss.clone(), &expected, 1e-5);
        let gradient = x.grad(&loss.backward()).expect("a gradient");
        let values: Vec<f32> = gradient.try_into_vec_as().expect("floats");
        assert!(values[..12].iter().all(|value| *value == 0.0), "{values:?}");
        assert!(values[12..].iter().any(|value| value.abs() > 1e-3), "{values:?}");
    }

    #[test]
    fn greedy_decoding_drops_repetitions_and_blanks_and_heeds_lengths() {
        let path = [[1, 1, 0, 1, 2, 2], [0, 3, 3, 0, 0, 2]];
        let one_hot: Vec<f32> =
            path.concat().iter().flat_map(|best| (0..4).map(move |c| f32::from(c == *best))).collect();
        let logits = Tensor::from_data(TensorData::new(one_hot, [2, 6, 4]), &device());
        assert_eq!(ctc_greedy(logits.clone(), &[6, 6], 0), [vec![1, 1, 2], vec![3, 2]]);
        assert_eq!(ctc_greedy(logits, &[4, 0], 0), [vec![1, 1], vec![]]);
    }
}
