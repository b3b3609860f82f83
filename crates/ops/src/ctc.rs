//! Connectionist temporal classification (CTC; Graves et al., 2006): text from an encoder alone, without a decoder.

#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::linear::embedding;
use crate::loss::{CrossEntropyOptions, cross_entropy, linear_cross_entropy};
use crate::precision::lowered;
use crate::{host, matmul, sum};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData, module};

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
    let losses = path_losses(log_p, targets, lengths, counts, blank);
    let impossible = losses.clone().is_inf();
    sum(losses.mask_fill(impossible, 0.0))
}

/// Returns the loss of each row from log probabilities `[time, batch, classes]`, infinite where it has no path.
fn path_losses(
    log_p: Tensor<3>,
    targets: Tensor<2, Int>,
    lengths: Tensor<1, Int>,
    counts: Tensor<1, Int>,
    blank: usize,
) -> Tensor<1> {
    #[cfg(feature = "cube")]
    if Backing::of(&log_p.device()).is_cube() {
        return relative_path_losses(log_p, targets, lengths, counts, blank);
    }
    module::ctc_loss(log_p, targets, lengths, counts, blank)
}

/// Losses by CubeCL's kernel, which takes a sum of log probabilities below -10,000 for impossible: 1,500 positions of 1,000 equally
/// probable classes reach that. It gets log probabilities relative to the most probable class of each position, so that only a row whose
/// paths are that far below the most probable classes is lost. The gradient of the logits is the same.
#[cfg(feature = "cube")]
fn relative_path_losses(
    log_p: Tensor<3>,
    targets: Tensor<2, Int>,
    lengths: Tensor<1, Int>,
    counts: Tensor<1, Int>,
    blank: usize,
) -> Tensor<1> {
    let ([time, rows, _], device) = (log_p.dims(), log_p.device());
    let highest = log_p.clone().detach().max_dim(2);
    let losses = module::ctc_loss(log_p - highest.clone(), targets, lengths.clone(), counts, blank);
    let position = Tensor::<1, Int>::arange(0..time as i64, &device).unsqueeze_dim::<2>(1).expand([time, rows]);
    let is_padding = position.greater_equal(lengths.unsqueeze::<2>().expand([time, rows]));
    losses - highest.reshape([time, rows]).mask_fill(is_padding, 0.0).sum_dim(0).reshape([rows])
}

/// Returns the CTC loss of the logits `x · weightᵀ + bias` against label sequences, summed over the rows, `[1]`, as [`ctc_loss`] of
/// those logits does, but without holding all of them.
///
/// Every path takes one class at each position, so the denominators of the softmax, log Z, leave the sum over the paths:
/// `loss = Σ_t log Z(t) - log Σ_paths exp Σ_t logit(t, path_t)`. The paths need the logits of a row's own labels and of the blank alone,
/// and the CTC loss over these few classes is the same with denominators of their own, log Z'. What is missing is
/// `Σ_t log Z(t) - log Z'(t)`: the cross-entropy of the blank over all classes, less that over the row's own.
///
/// # Shapes
/// - `x`: `[batch, time, d_model]`; `weight`: `[classes, d_model]`; `bias`: `[classes]`
/// - `labels`: those of each row, without blanks
/// - `lengths`: number of valid positions of each row, at least 1
///
/// # Panics
/// If there are not as many sequences and lengths as rows.
pub fn linear_ctc_loss(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    labels: &[Vec<i64>],
    lengths: &[usize],
    blank: usize,
) -> Tensor<1> {
    let ([rows, time, d_model], device) = (x.dims(), x.device());
    assert_eq!([labels.len(), lengths.len()], [rows; 2], "rows of labels and lengths");
    let own: Vec<OwnClasses> = labels.iter().map(|labels| OwnClasses::of(labels, blank as i64)).collect();
    let logits = own_logits(x.clone(), weight.clone(), bias.clone(), ids(&own, blank as i64, &device));
    // The positions that count: the valid ones of rows that have a path.
    let counted: Vec<usize> =
        labels.iter().zip(lengths).map(|(labels, length)| counted(labels, *length, time)).collect();
    let options = CrossEntropyOptions::default();
    let blanks = |class: usize| {
        let of_row =
            |counted: usize| (0..time).map(move |t| if t < counted { class as i64 } else { options.ignore_index });
        let targets: Vec<i64> = counted.iter().copied().flat_map(of_row).collect();
        Tensor::<1, Int>::from_data(TensorData::new(targets, [rows * time]), &device)
    };
    let width = logits.dims()[2];
    let over_own = cross_entropy(logits.clone().reshape([rows * time, width]), blanks(0), options);
    let over_all = linear_cross_entropy(x.reshape([rows * time, d_model]), weight, bias, blanks(blank), options);
    let labels: Vec<Vec<i64>> = own.into_iter().map(|own| own.labels).collect();
    ctc_loss(logits, &labels, lengths, 0) + (over_all.sum - over_own.sum)
}

/// Classes that the paths of a row go through.
struct OwnClasses {
    /// The blank, and each label once.
    classes: Vec<i64>,
    /// Labels of the row, as places in `classes`.
    labels: Vec<i64>,
}

impl OwnClasses {
    fn of(labels: &[i64], blank: i64) -> Self {
        let mut classes = labels.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let place = |label: &i64| 1 + classes.partition_point(|class| class < label) as i64;
        let labels = labels.iter().map(place).collect();
        classes.insert(0, blank);
        Self { classes, labels }
    }
}

/// Returns the classes of each row, `[batch, classes]`, in which the blank comes again until all rows are as long.
fn ids(own: &[OwnClasses], blank: i64, device: &Device) -> Tensor<2, Int> {
    let width = own.iter().map(|own| own.classes.len()).max().unwrap_or_default();
    let padded = own.iter().flat_map(|own| {
        let padding = std::iter::repeat_n(blank, width - own.classes.len());
        own.classes.iter().copied().chain(padding)
    });
    Tensor::from_data(TensorData::new(padded.collect(), [own.len(), width]), device)
}

/// Returns the logits of each row's own classes, `[batch, time, classes]`, f32.
fn own_logits(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, ids: Tensor<2, Int>) -> Tensor<3> {
    // A weight that is held in half precision comes as f32: both factors are, before they are lowered together.
    // The sums are in f32, as those of all classes are.
    let [x, weight] = [x, embedding(weight, ids.clone())].map(|factor| host::f32(lowered(host::f32(factor))));
    let logits = matmul(x, weight.swap_dims(1, 2));
    match bias {
        Some(bias) => logits + host::f32(embedding(bias.unsqueeze_dim(1), ids)).swap_dims(1, 2),
        None => logits,
    }
}

/// Returns the number of valid positions of a row, or 0 if they are too few for its labels, of which equal neighbours need a blank in between.
fn counted(labels: &[i64], length: usize, time: usize) -> usize {
    let (length, blanks) = (length.clamp(1, time), labels.windows(2).filter(|pair| pair[0] == pair[1]).count());
    if labels.len() + blanks <= length { length } else { 0 }
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
    use crate::testing::{Inputs, assert_close, compare, device};
    use proptest::prelude::*;

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
    fn a_long_row_of_many_classes_counts() {
        let (time, classes) = (1500, 1000);
        let x = Tensor::<3>::zeros([2, time, classes], &device().autodiff()).require_grad();
        let lengths = [time, time - 100];
        let loss = ctc_loss(x.clone(), &[vec![1], vec![2]], &lengths, 0);
        // Each of the `n (n + 1) / 2` paths through `n` positions begins and ends the label elsewhere.
        let of_row = |n: f64| n * (classes as f64).ln() - (n * (n + 1.0) / 2.0).ln();
        let expected: f64 = lengths.iter().map(|n| of_row(*n as f64)).sum();
        assert_close(loss.clone(), &[expected as f32], 1e-5 * expected as f32);
        let gradient = x.grad(&loss.backward()).expect("a gradient");
        let of_label = gradient.slice([0..1, 0..time, 1..2]).sum().into_scalar::<f32>();
        // The label is expected at a third of the positions.
        let expected = time as f32 / classes as f32 - (time as f32 + 2.0) / 3.0;
        assert!((of_label - expected).abs() < 0.5, "{of_label} and {expected}");
    }

    proptest! {
        #[test]
        fn with_its_layer_equals_the_parts(
            (rows, time, classes, d) in (1_usize..4, 1_usize..9, 3_usize..40, 1_usize..12),
            label_counts in prop::collection::vec(0_usize..6, 4),
            seed in 1_i64..50,
            (biased, half) in any::<(bool, bool)>(),
        ) {
            let blank = (seed as usize * 3) % classes;
            // Few different labels, so that neighbours are often equal, and some rows without a path.
            let label = |row: usize, i: usize| ((seed + (row * 5 + i / 2 * 7) as i64) % 3 + blank as i64 + 1) % classes as i64;
            let labels: Vec<Vec<i64>> = (0..rows)
                .map(|row| (0..label_counts[row]).map(|i| label(row, i)).filter(|label| *label != blank as i64).collect())
                .collect();
            let lengths: Vec<usize> = (0..rows).map(|row| 1 + (seed as usize + row * 4) % time).collect();
            let inputs = Inputs::default().half(half);
            let inputs: [Tensor<2>; 3] = [[rows * time, d], [classes, d], [1, classes]].map(|shape| inputs.tensor(shape));
            let parts = |x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<2>>| {
                let logits = host::f32(x).matmul(host::f32(weight).transpose());
                let logits = bias.map_or(logits.clone(), |bias| logits + host::f32(bias));
                ctc_loss(logits.reshape([rows, time, classes]), &labels, &lengths, blank)
            };
            let whole = |x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<2>>| {
                let bias = bias.map(|bias| bias.reshape([classes]));
                linear_ctc_loss(x.reshape([rows, time, d]), weight, bias, &labels, &lengths, blank)
            };
            // A gradient of an input that no path depends on is 0, and not absent.
            let [x, weight, bias] = inputs;
            if biased {
                compare([x, weight, bias], |[x, w, b]| whole(x, w, Some(b)), |[x, w, b]| parts(x, w, Some(b)));
            } else {
                compare([x, weight], |[x, w]| whole(x, w, None), |[x, w]| parts(x, w, None));
            }
        }
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
