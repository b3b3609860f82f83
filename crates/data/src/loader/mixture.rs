//! Several sources in one epoch, each with a share of it.

use std::iter::repeat_n;

use super::order::{Order, epoch_order};

/// Order over several sources, concatenated in one dataset, each of which has a share of the epoch.
///
/// An epoch is as long as all sources together. It takes from each source the number of samples that its share gives,
/// rounded up or down, and mixes them evenly. In the next epoch a source continues where this one stopped: none of its
/// samples comes again before all the others have come, and each pass over it has an order of its own
/// ([`epoch_order`]).
#[derive(Debug, Clone)]
pub struct Mixture {
    sizes: Vec<usize>,
    /// Samples of each source per epoch.
    takes: Vec<usize>,
    seed: u64,
}

/// Error of sources that cannot be mixed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MixtureError {
    /// The number of weights is not that of sources.
    #[error("{weights} weights are given for {sources} sources; give one for each")]
    Count {
        /// Number of sources.
        sources: usize,
        /// Number of weights.
        weights: usize,
    },
    /// A weight that is negative or not a number.
    #[error("the weight of source {source_index} is {weight}; set it to a finite number, 0 or more")]
    Weight {
        /// Index of the source.
        source_index: usize,
        /// Its weight.
        weight: f64,
    },
    /// All weights are zero.
    #[error("every source has the weight 0; give at least one of them more")]
    Nothing,
    /// A source with a positive weight has no samples.
    #[error("source {source_index} has no samples but the weight {weight}; set the weight to 0 or remove the source")]
    Empty {
        /// Index of the source.
        source_index: usize,
        /// Its weight.
        weight: f64,
    },
    /// A share is too small to give even one sample.
    #[error(
        "source {source_index} would give no sample at all: its share is {share} of an epoch's {samples}; weigh it \
         higher, or set its weight to 0"
    )]
    Unheard {
        /// Index of the source.
        source_index: usize,
        /// Its share of an epoch, from 0 to 1.
        share: f64,
        /// Number of samples in an epoch.
        samples: usize,
    },
    /// The temperature is not positive and finite.
    #[error("the temperature is {temperature}; set it to 1 for sizes as they are, higher for more even shares")]
    Temperature {
        /// Value given.
        temperature: f64,
    },
}

impl Mixture {
    /// Returns an order with every sample of every source once in an epoch.
    pub fn whole(sizes: Vec<usize>, seed: u64) -> Self {
        Self { takes: sizes.clone(), sizes, seed }
    }

    /// Returns an order over sources of these sizes with shares in proportion to `weights`. If all sources are empty,
    /// epochs are empty.
    pub fn weighted(sizes: Vec<usize>, weights: &[f64], seed: u64) -> Result<Self, MixtureError> {
        if weights.len() != sizes.len() {
            return Err(MixtureError::Count { sources: sizes.len(), weights: weights.len() });
        }
        for (source_index, (&size, &weight)) in sizes.iter().zip(weights).enumerate() {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(MixtureError::Weight { source_index, weight });
            }
            if size == 0 && weight > 0.0 {
                return Err(MixtureError::Empty { source_index, weight });
            }
        }
        let samples: usize = sizes.iter().sum();
        let heaviest = weights.iter().copied().fold(0.0, f64::max);
        if heaviest == 0.0 && samples > 0 {
            return Err(MixtureError::Nothing);
        }
        // Weights are divided by the largest one, so that the sum of huge weights stays finite.
        let total: f64 = weights.iter().map(|weight| weight / heaviest).sum();
        let (mut reached, mut taken) = (0.0, 0);
        let mut takes = Vec::with_capacity(sizes.len());
        for (source_index, weight) in weights.iter().enumerate().filter(|_| samples > 0) {
            let share = weight / heaviest / total;
            reached += share;
            // Each take ends at the rounded running sum of shares, so that the takes add up to the total.
            let end = (reached * samples as f64).round() as usize;
            if end == taken && *weight > 0.0 {
                return Err(MixtureError::Unheard { source_index, share, samples });
            }
            takes.push(end - taken);
            taken = end;
        }
        takes.resize(sizes.len(), 0);
        Ok(Self { sizes, takes, seed })
    }

    /// Returns an order over sources of these sizes with shares in proportion to the `temperature`-th root of their
    /// sizes (Devlin et al., 2018, for languages): proportional to their sizes with 1, nearly equal with a large
    /// temperature. Empty sources have no share.
    pub fn tempered(sizes: Vec<usize>, temperature: f64, seed: u64) -> Result<Self, MixtureError> {
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(MixtureError::Temperature { temperature });
        }
        let largest = sizes.iter().copied().max().unwrap_or_default().max(1) as f64;
        let weight = |&size: &usize| if size == 0 { 0.0 } else { (size as f64 / largest).powf(temperature.recip()) };
        let weights: Vec<f64> = sizes.iter().map(weight).collect();
        Self::weighted(sizes, &weights, seed)
    }

    /// Returns the number of samples of each source in an epoch; their sum is the number of all samples.
    pub fn takes(&self) -> &[usize] {
        &self.takes
    }

    /// Returns the samples that each source gives to an epoch, in its own order, as indices into the whole dataset.
    ///
    /// The passes over source `s` are [`epoch_order`]s with the seed `seed + s`.
    pub fn sources(&self, epoch: u64) -> Vec<Vec<usize>> {
        let mut first = 0;
        let mut sources = Vec::with_capacity(self.sizes.len());
        for (source, &size) in self.sizes.iter().enumerate() {
            sources.push(self.samples(source, epoch).into_iter().map(|index| first + index).collect());
            first += size;
        }
        sources
    }

    fn samples(&self, source: usize, epoch: u64) -> Vec<usize> {
        let (size, take) = (self.sizes[source], self.takes[source]);
        let mut samples = Vec::with_capacity(take);
        if take == 0 {
            return samples;
        }
        // Position at which the previous epoch stopped, in samples over all passes.
        let from = u128::from(epoch) * take as u128;
        let (mut pass, mut skip) = ((from / size as u128) as u64, (from % size as u128) as usize);
        while samples.len() < take {
            let order = epoch_order(size, self.seed.wrapping_add(source as u64), pass);
            samples.extend(order.into_iter().skip(skip).take(take - samples.len()));
            (pass, skip) = (pass.wrapping_add(1), 0);
        }
        samples
    }
}

impl Order for Mixture {
    fn epoch(&self, epoch: u64) -> Vec<usize> {
        let sources = self.sources(epoch);
        let turns: Vec<usize> = (0..sources.len()).flat_map(|source| repeat_n(source, sources[source].len())).collect();
        let mut sources: Vec<_> = sources.into_iter().map(Vec::into_iter).collect();
        // The seeds below this one belong to the sources.
        let seed = self.seed.wrapping_add(sources.len() as u64);
        epoch_order(turns.len(), seed, epoch).into_iter().filter_map(|turn| sources[turns[turn]].next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_kept_and_no_sample_comes_twice_before_all_have_come(
            sources in prop::collection::vec((1_usize..60, 0.0_f64..5.0), 1..6), seed: u64, first in 0_u64..1000,
        ) {
            let (sizes, weights): (Vec<usize>, Vec<f64>) = sources.into_iter().unzip();
            let Ok(mixture) = Mixture::weighted(sizes.clone(), &weights, seed) else { return Ok(()) };
            let total: usize = sizes.iter().sum();
            let sum: f64 = weights.iter().sum();
            let starts: Vec<usize> = sizes.iter().scan(0, |end, size| { *end += size; Some(*end - size) }).collect();
            let mut taken: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
            for epoch in 0..20 {
                let order = mixture.epoch(epoch);
                prop_assert_eq!(&order, &mixture.epoch(epoch));
                prop_assert_eq!(order.len(), total);
                for source in 0..sizes.len() {
                    let range = starts[source]..starts[source] + sizes[source];
                    let own: Vec<_> = order.iter().filter(|index| range.contains(*index)).copied().collect();
                    prop_assert!((own.len() as f64 - weights[source] / sum * total as f64).abs() < 1.0);
                    taken[source].extend(own);
                }
            }
            for (own, size) in taken.iter().zip(&sizes) {
                for pass in own.chunks(*size) {
                    let mut pass = pass.to_vec();
                    let drawn = pass.len();
                    pass.sort_unstable();
                    pass.dedup();
                    prop_assert_eq!(pass.len(), drawn);
                }
            }
            // From a late epoch on as well as from the first.
            prop_assert_eq!(mixture.epoch(u64::MAX - first).len(), total);
        }

        #[test]
        fn sources_as_large_as_their_shares_give_every_sample_once(
            sizes in prop::collection::vec(0_usize..60, 1..6), seed: u64, epoch: u64,
        ) {
            let mixture = Mixture::tempered(sizes.clone(), 1.0, seed).unwrap();
            prop_assert_eq!(mixture.takes(), &sizes);
            let mut order = mixture.epoch(epoch);
            order.sort_unstable();
            prop_assert_eq!(order, (0..sizes.iter().sum()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_temperature_evens_sources_out() {
        let takes = |temperature| Mixture::tempered(vec![1000, 100, 0, 10], temperature, 1).unwrap().takes;
        assert_eq!(takes(1.0), [1000, 100, 0, 10]);
        assert_eq!(takes(2.0), [784, 248, 0, 78], "31.6 : 10 : 3.16");
        assert_eq!(takes(1e6), [370, 370, 0, 370]);
    }

    #[test]
    fn sources_are_mixed_from_the_first_to_the_last_batch() {
        let mixture = Mixture::weighted(vec![4000, 4000], &[3.0, 1.0], 7).unwrap();
        for batch in mixture.epoch(2).chunks(400) {
            // 300 are expected, with a standard deviation of √(400 · ¾ · ¼) ≈ 8.7.
            let first = batch.iter().filter(|index| **index < 4000).count();
            assert!((255..345).contains(&first), "{first}");
        }
        assert_ne!(mixture.epoch(0), mixture.epoch(1));
    }

    #[test]
    fn sources_that_cannot_be_mixed_are_refused() {
        let refused =
            |sizes: &[usize], weights: &[f64]| Mixture::weighted(sizes.to_vec(), weights, 0).unwrap_err().to_string();
        assert!(refused(&[1, 2], &[1.0]).contains("1 weights are given for 2 sources"));
        assert!(refused(&[1, 2], &[1.0, -1.0]).contains("source 1 is -1"));
        assert!(refused(&[1, 2], &[1.0, f64::NAN]).contains("source 1 is NaN"));
        assert!(refused(&[1, 2], &[0.0, 0.0]).contains("weight 0"));
        assert!(refused(&[1, 0], &[1.0, 0.5]).contains("source 1 has no samples"));
        assert!(refused(&[10, 10], &[1.0, 1e-9]).contains("source 1 would give no sample"));
        for temperature in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(matches!(Mixture::tempered(vec![1], temperature, 0), Err(MixtureError::Temperature { .. })));
        }
        assert!(Mixture::tempered(vec![0, 0], 2.0, 0).unwrap().epoch(3).is_empty());
        assert_eq!(Mixture::weighted(vec![1, 1], &[f64::MAX; 2], 0).unwrap().takes(), [1, 1]);
    }
}
