//! What the inputs of tasks look like to a router, to tell those that belong to none.

use std::collections::BTreeMap;
use undertone_store::{HostTensor, StoreError, TensorFile};

/// Distribution of a router's inputs: a normal one for each task, all with one covariance (Lee et al., 2018, "A simple
/// unified framework for detecting out-of-distribution samples").
#[derive(Clone, Debug, PartialEq)]
pub struct KnownInputs {
    /// Width of the inputs.
    d_model: usize,
    /// Means, `[tasks, d_model]`.
    means: Vec<f32>,
    /// Lower triangle `L` of the covariance `L Lᵀ`, `[d_model, d_model]`.
    factor: Vec<f32>,
    /// Distances of inputs that it was not fitted to, ascending.
    own: Vec<f32>,
}

/// Names of the tensors in a file.
const MEANS: &str = "means";
const FACTOR: &str = "covariance_factor";
const OWN: &str = "own_distances";

impl KnownInputs {
    /// Fits the distribution to inputs, each of width `d_model`, with their tasks, below `tasks`. `others` are inputs of
    /// the same tasks to compare with. `None` if a task has no input, or `others` is empty.
    ///
    /// The covariance is the oracle approximating shrinkage estimate (Chen et al., 2010), which needs fewer inputs than they
    /// are wide.
    pub fn fit(d_model: usize, inputs: &[(Vec<f32>, usize)], tasks: usize, others: &[Vec<f32>]) -> Option<Self> {
        let mut means = vec![0.0_f64; tasks * d_model];
        let mut counts = vec![0_usize; tasks];
        for (input, task) in inputs {
            counts[*task] += 1;
            means[task * d_model..][..d_model].iter_mut().zip(input).for_each(|(mean, x)| *mean += f64::from(*x));
        }
        if counts.contains(&0) || others.is_empty() || d_model == 0 {
            return None;
        }
        for (mean, count) in means.chunks_mut(d_model).zip(counts) {
            mean.iter_mut().for_each(|mean| *mean /= count as f64);
        }
        let mut covariance = vec![0.0_f64; d_model * d_model];
        for (input, task) in inputs {
            let mean = &means[task * d_model..][..d_model];
            let centred: Vec<f64> = input.iter().zip(mean).map(|(x, mean)| f64::from(*x) - mean).collect();
            for (row, x) in covariance.chunks_mut(d_model).zip(&centred) {
                row.iter_mut().zip(&centred).for_each(|(sum, y)| *sum += x * y);
            }
        }
        covariance.iter_mut().for_each(|sum| *sum /= inputs.len() as f64);
        shrink(&mut covariance, d_model, inputs.len());
        let factor = cholesky(&covariance, d_model);
        let narrow = |numbers: Vec<f64>| numbers.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
        let mut known = Self { d_model, means: narrow(means), factor: narrow(factor), own: Vec::new() };
        known.own = others.iter().map(|input| known.distance(input)).collect();
        known.own.sort_by(f32::total_cmp);
        Some(known)
    }

    /// Mahalanobis distance of an input from the nearest task.
    ///
    /// # Panics
    /// If the input has another width.
    pub fn distance(&self, input: &[f32]) -> f32 {
        assert_eq!(input.len(), self.d_model, "an input is as wide as those before");
        let squares = self.means.chunks(self.d_model).map(|mean| {
            let mut whitened = vec![0.0_f64; self.d_model];
            for i in 0..self.d_model {
                let row = &self.factor[i * self.d_model..][..=i];
                let known: f64 = row.iter().zip(&whitened[..i]).map(|(l, x)| f64::from(*l) * x).sum();
                whitened[i] = (f64::from(input[i]) - f64::from(mean[i]) - known) / f64::from(row[i]);
            }
            whitened.iter().map(|x| x * x).sum::<f64>()
        });
        squares.fold(f64::INFINITY, f64::min).sqrt() as f32
    }

    /// Share of the tasks' own inputs that are at least as far from all tasks as this one, as a conformal p-value: of own
    /// inputs a share `p` has at most `p` (Bates et al., 2023). It is never 0: of n compared inputs it is at least 1 / (n + 1).
    pub fn own_share(&self, input: &[f32]) -> f64 {
        self.share_beyond(self.distance(input))
    }

    /// Share of the tasks' own inputs that are at least so far from all tasks, as for [`own_share`](Self::own_share).
    pub fn share_beyond(&self, distance: f32) -> f64 {
        let nearer = self.own.partition_point(|own| *own < distance);
        (1 + self.own.len() - nearer) as f64 / (1 + self.own.len()) as f64
    }

    /// Least share that [`own_share`](Self::own_share) returns: a limit that is no higher rejects nothing.
    pub fn least_share(&self) -> f64 {
        self.share_beyond(f32::INFINITY)
    }

    /// Tensors for a file.
    pub fn tensors(&self) -> BTreeMap<String, HostTensor> {
        let (d, tasks) = (self.d_model, self.means.len() / self.d_model);
        let tensor = |shape: &[usize], data: &[f32]| HostTensor { shape: shape.to_vec(), data: data.to_vec() };
        let tensors = [
            (MEANS, tensor(&[tasks, d], &self.means)),
            (FACTOR, tensor(&[d, d], &self.factor)),
            (OWN, tensor(&[self.own.len()], &self.own)),
        ];
        tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
    }

    /// Reads the tensors of a file, for inputs of this width; `None` if they are of another.
    ///
    /// # Errors
    /// When a tensor is missing.
    pub fn read(file: &TensorFile, d_model: usize) -> Result<Option<Self>, StoreError> {
        let [means, factor, own] = [MEANS, FACTOR, OWN].map(|name| file.read(name));
        let (means, factor, own) = (means?, factor?, own?);
        let fits = d_model > 0 && factor.shape == [d_model, d_model] && means.shape.last() == Some(&d_model);
        Ok(fits.then_some(Self { d_model, means: means.data, factor: factor.data, own: own.data }))
    }
}

/// Mixes a covariance of `count` samples with a multiple of the identity that has the same trace.
fn shrink(covariance: &mut [f64], d: usize, count: usize) {
    let trace: f64 = (0..d).map(|i| covariance[i * d + i]).sum();
    let square: f64 = covariance.iter().map(|x| x * x).sum();
    let (p, n) = (d as f64, count as f64);
    let (above, below) = ((1.0 - 2.0 / p) * square + trace * trace, (n + 1.0 - 2.0 / p) * (square - trace * trace / p));
    // Inputs that are all the same have no covariance at all.
    let least = 1e-6;
    let share = if below > 0.0 { (above / below).clamp(least, 1.0) } else { 1.0 };
    covariance.iter_mut().for_each(|x| *x *= 1.0 - share);
    let mean = (trace / p).max(least);
    (0..d).for_each(|i| covariance[i * d + i] += share * mean);
}

/// Returns the lower triangle `L` of a positive definite matrix `L Lᵀ`, with zeros above.
fn cholesky(matrix: &[f64], d: usize) -> Vec<f64> {
    let mut l = vec![0.0_f64; d * d];
    for i in 0..d {
        for j in 0..=i {
            let (before, row) = (&l[j * d..][..j], &l[i * d..][..j]);
            let rest = matrix[i * d + j] - before.iter().zip(row).map(|(a, b)| a * b).sum::<f64>();
            l[i * d + j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / l[j * d + j] };
        }
    }
    l
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_store::{Dtype, write_tensors};

    /// Numbers between -1 and 1: the bits of SplitMix64 (Steele et al., 2014).
    fn noise(seed: usize, count: usize) -> Vec<f32> {
        let number = |i: usize| {
            let mut z = ((seed * 1_000_003 + i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 40) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(number).collect()
    }

    /// Inputs of two tasks, around (4, 0, …) and (-4, 0, …), and much flatter along the last axis.
    fn inputs(seed: usize, count: usize) -> Vec<(Vec<f32>, usize)> {
        let of = |i: usize| {
            let mut x = noise(seed + i, 5);
            x[0] += if i.is_multiple_of(2) { 4.0 } else { -4.0 };
            x[4] *= 0.01;
            (x, i % 2)
        };
        (0..count).map(of).collect()
    }

    fn known() -> KnownInputs {
        let others: Vec<Vec<f32>> = inputs(1000, 200).into_iter().map(|(x, _)| x).collect();
        KnownInputs::fit(5, &inputs(1, 400), 2, &others).expect("fitted")
    }

    #[test]
    fn own_inputs_have_any_share_and_others_a_small_one() {
        let known = known();
        let shares: Vec<f64> = inputs(5000, 200).iter().map(|(x, _)| known.own_share(x)).collect();
        let below = |limit: f64| shares.iter().filter(|share| **share <= limit).count() as f64 / 200.0;
        for limit in [0.1, 0.5, 0.9] {
            assert!((below(limit) - limit).abs() < 0.1, "{} of the own inputs have at most {limit}", below(limit));
        }
        // Between the tasks; beside them; and where all inputs are flat.
        for other in [[0.0; 5], [4.0, 9.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0, 1.0]] {
            assert!(known.own_share(&other) < 0.01, "{other:?}: {}", known.own_share(&other));
        }
        // No input has a lower one, however far it is.
        assert_eq!(known.least_share(), 1.0 / 201.0);
        assert_eq!(known.own_share(&[1e6; 5]), known.least_share());
    }

    #[test]
    fn distance_is_that_of_the_covariance() {
        let known = known();
        let along = |axis: usize, by: f32| {
            let mut x = known.means[..5].to_vec();
            x[axis] += by;
            known.distance(&x)
        };
        // Uniform numbers between -1 and 1 have the variance 1/3.
        assert!((along(1, 1.0) - 3.0_f32.sqrt()).abs() < 0.2, "{}", along(1, 1.0));
        assert!(along(4, 1.0) > 5.0, "{}", along(4, 1.0));
        assert!(along(0, 0.0) < 1e-6);
    }

    #[test]
    fn fewer_inputs_than_axes_are_enough_and_none_are_refused() {
        let few: Vec<(Vec<f32>, usize)> = (0..6).map(|i| (noise(i, 40), i % 2)).collect();
        let known = KnownInputs::fit(40, &few, 2, &[noise(9, 40)]).expect("fitted");
        assert!(known.distance(&noise(10, 40)).is_finite());
        assert_eq!(KnownInputs::fit(40, &few, 3, &[noise(9, 40)]), None);
        assert_eq!(KnownInputs::fit(40, &few, 2, &[]), None);
        let same: Vec<(Vec<f32>, usize)> = (0..4).map(|_| (vec![1.0; 3], 0)).collect();
        let known = KnownInputs::fit(3, &same, 1, &[vec![1.0; 3]]).expect("fitted");
        assert!(known.own_share(&[1.0; 3]) == 1.0 && known.own_share(&[2.0, 1.0, 1.0]) == 0.5);
    }

    #[test]
    fn files_hold_all_of_it() {
        let (known, dir) = (known(), tempfile::tempdir().expect("a directory"));
        let path = dir.path().join("inputs.safetensors");
        write_tensors(&path, &known.tensors(), Dtype::F32).expect("written");
        let file = TensorFile::open(&path).expect("a file");
        assert_eq!(KnownInputs::read(&file, 5).expect("read"), Some(known));
        assert_eq!(KnownInputs::read(&file, 6).expect("read"), None);
    }
}
