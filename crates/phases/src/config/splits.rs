//! Sources of each split: the configured `train`, `valid` and `test`, and their defaults.

use super::SourceConfig;
use undertone_data::records::{Column, Share};

/// Split of an experiment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Training data.
    Train,
    /// Validation data, which selects the best checkpoint.
    Valid,
    /// Test data, which no decision depends on.
    Test,
}

impl Split {
    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }

    /// Returns the seed of its samples, given the `seed` of the experiment or of a task.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        match self {
            Self::Train => seed,
            Self::Valid => undertone_ops::seeds::of_validation(seed),
            Self::Test => undertone_ops::seeds::of_test(seed),
        }
    }
}

/// Configured splits of an experiment or a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splits<'a> {
    /// Training data.
    pub train: &'a [SourceConfig],
    /// Validation data, if configured.
    pub valid: Option<&'a SourceConfig>,
    /// Test data, if configured.
    pub test: Option<&'a SourceConfig>,
}

/// Default number of validation samples of a synthesiser.
const VALID_SAMPLES: usize = 64;

impl Splits<'_> {
    /// Returns the sources of a split; `None` if it has no data.
    ///
    /// By default, validation and test data are other samples of the synthesisers in the training data. For recordings
    /// there are no other samples, so the user has to configure them.
    pub fn sources(&self, split: Split) -> Option<Vec<SourceConfig>> {
        match (split, self.valid, self.test) {
            (Split::Train, ..) => Some(self.train.iter().map(|source| self.trained(source)).collect()),
            (Split::Valid, Some(SourceConfig { part_of_train: Some(share), group_by, .. }), _) => {
                let recorded = self.train.iter().filter(|source| source.is_recorded());
                Some(recorded.map(|source| held_out(source, *share, group_by.as_ref())).collect())
            }
            (Split::Valid, Some(valid), _) => Some(vec![valid.clone()]),
            (Split::Valid, None, _) if self.is_recorded() => None,
            (Split::Valid, None, _) => Some(self.train.iter().map(others).collect()),
            (Split::Test, _, Some(test)) => Some(vec![test.clone()]),
            // A synthesiser makes other samples from another seed; recordings would be the ones already used.
            (Split::Test, _, None) => {
                self.sources(Split::Valid).filter(|valid| !valid.iter().any(SourceConfig::is_recorded))
            }
        }
    }

    /// Returns the splits to examine. The test split is among them only if it is configured.
    pub fn all(&self) -> impl Iterator<Item = Split> + use<> {
        [Split::Train, Split::Valid].into_iter().chain(self.test.map(|_| Split::Test))
    }

    /// Returns the sources in the configuration, without those that are derived from others.
    pub fn written(&self) -> impl Iterator<Item = (Split, &SourceConfig)> {
        let valid = self.valid.filter(|valid| valid.part_of_train.is_none());
        let result = [(Split::Valid, valid), (Split::Test, self.test)];
        let result = result.into_iter().filter_map(|(split, source)| Some((split, source?)));
        self.train.iter().map(|source| (Split::Train, source)).chain(result)
    }

    /// Checks that the splits fit together. The error is the offending split and the reason.
    pub fn validate(&self) -> Result<(), (Split, String)> {
        if let Some((split, _)) = self.written().find(|(_, source)| source.part_of_train.is_some()) {
            return Err((split, "`part_of_train` is for `data.valid`: leave it out".into()));
        }
        if let Some((split, _)) = self.written().find(|(_, source)| source.group_by.is_some()) {
            let reason =
                "`group_by` is for `data.valid`, beside `part_of_train`: leave it out, or give `part: {by: …}`";
            return Err((split, reason.into()));
        }
        let unnamed = |source: &SourceConfig| {
            self.is_recorded() && !source.is_recorded() && source.synth.is_none() && source.part_of_train.is_none()
        };
        match (self.valid, self.test) {
            (None, _) if self.is_recorded() => Err((Split::Valid, NONE.into())),
            (Some(valid), _) if unnamed(valid) => {
                Err((Split::Valid, format!("{NONE}; or `synth: cw`, if it is Morse")))
            }
            (_, Some(test)) if unnamed(test) => {
                Err((Split::Test, "there is no data: give its `path` or `hub`, or `synth: cw`, if it is Morse".into()))
            }
            (Some(SourceConfig { part_of_train: Some(share), .. }), _) => {
                self.validate_share(*share).map_err(|reason| (Split::Valid, reason))
            }
            _ => Ok(()),
        }
    }

    fn validate_share(&self, share: f64) -> Result<(), String> {
        if let Some(key) = self.valid.and_then(SourceConfig::key_beside_part_of_train) {
            return Err(format!("`part_of_train` takes its records from the training data: leave out that or `{key}`"));
        }
        if !(share > 0.0 && share < 1.0) {
            return Err(format!("`part_of_train` is {share}: it is a share of the training data, above 0 and below 1"));
        }
        if !self.is_recorded() {
            return Err(
                "`part_of_train` is for recordings, and a synthesiser generates other samples for validation by itself: leave it out"
                    .into(),
            );
        }
        let limits = self.train.iter().filter(|source| source.is_recorded()).filter_map(|source| source.limit);
        match limits.into_iter().find(|limit| kept(*limit, share) >= *limit) {
            Some(limit) => {
                Err(format!("`part_of_train` leaves no training data of the {limit} records that `limit` allows"))
            }
            None => Ok(()),
        }
    }

    /// Whether any training data is recorded.
    fn is_recorded(&self) -> bool {
        self.train.iter().any(SourceConfig::is_recorded)
    }

    /// Returns a source of the training data without the part that is held out for validation.
    fn trained(&self, source: &SourceConfig) -> SourceConfig {
        let valid = self.valid.filter(|_| source.is_recorded());
        let Some((share, by)) = valid.and_then(|valid| Some((valid.part_of_train?, valid.group_by.clone()))) else {
            return source.clone();
        };
        let limit = source.limit.map(|limit| limit.saturating_sub(kept(limit, share)));
        SourceConfig { share: Some(Share { from: 0.0, to: 1.0 - share, by }), limit, ..source.clone() }
    }
}

/// Message for recordings without validation data.
pub(crate) const NONE: &str = "there is no data to evaluate the model on: give other data as `path` or `hub`, a `part:` of the same, or \
                    `data.valid: {part_of_train: 0.05}`, which keeps that share of the training data for it";

/// Returns the part of a source of recordings that is held out for validation.
fn held_out(source: &SourceConfig, share: f64, by: Option<&Column>) -> SourceConfig {
    let limit = source.limit.map(|limit| kept(limit, share));
    SourceConfig {
        share: Some(Share { from: 1.0 - share, to: 1.0, by: by.cloned() }),
        limit,
        weight: None,
        ..source.clone()
    }
}

/// Returns the number of records, out of `limit`, that are held out for validation.
fn kept(limit: usize, share: f64) -> usize {
    ((limit as f64 * share).round() as usize).max(1)
}

/// Returns a source of other samples of a synthesiser, with its settings after the curriculum.
fn others(source: &SourceConfig) -> SourceConfig {
    let SourceConfig { synth, options, cw, .. } = source.clone();
    SourceConfig { synth, options, cw, samples: VALID_SAMPLES, ..SourceConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> SourceConfig {
        SourceConfig { path: Some(std::path::PathBuf::from("train.csv").into()), ..Default::default() }
    }

    fn part_of_train(share: f64) -> SourceConfig {
        SourceConfig { part_of_train: Some(share), ..Default::default() }
    }

    #[test]
    fn synthesisers_are_judged_by_other_samples_of_their_own() {
        let mut train = SourceConfig { samples: 5, weight: Some(1.0), ..Default::default() };
        train.cw.duration_s = [1.0, 2.0];
        train.stages = vec![serde_json::from_value(serde_json::json!({"epochs": 1, "cw": {}})).expect("a stage")];
        let splits = Splits { train: std::slice::from_ref(&train), valid: None, test: None };
        assert_eq!(splits.validate(), Ok(()));
        let result = SourceConfig { samples: 64, cw: train.cw.clone(), ..Default::default() };
        assert_eq!(splits.sources(Split::Valid), Some(vec![result.clone()]));
        assert_eq!(splits.sources(Split::Test), Some(vec![result]));
    }

    #[test]
    fn recordings_are_judged_by_nothing_unless_something_is_said() {
        let train = [recorded(), SourceConfig::default()];
        let none = Splits { train: &train, valid: None, test: None };
        let (split, reason) = none.validate().expect_err("refused");
        assert_eq!(split, Split::Valid);
        for way_out in ["`path`", "`hub`", "`part:`", "{part_of_train: 0.05}"] {
            assert!(reason.contains(way_out), "{reason}");
        }
        assert_eq!((none.sources(Split::Valid), none.sources(Split::Test)), (None, None));
        // A number of samples, but no source.
        let vague = SourceConfig { samples: 10, ..Default::default() };
        for (valid, test, culprit) in
            [(Some(&vague), None, Split::Valid), (Some(&recorded()), Some(&vague), Split::Test)]
        {
            let (split, reason) = Splits { valid, test, ..none }.validate().expect_err("refused");
            assert!(split == culprit && reason.contains("synth: cw"), "{split:?} {reason}");
        }
        let morse = SourceConfig { synth: Some(crate::Synth::Cw), ..vague };
        assert_eq!(Splits { valid: Some(&morse), ..none }.validate(), Ok(()));
    }

    #[test]
    fn a_part_of_the_training_data_is_cut_off_all_recordings() {
        let train = [
            SourceConfig { weight: Some(1.0), limit: Some(100), ..recorded() },
            SourceConfig { weight: Some(2.0), ..Default::default() },
        ];
        let valid = part_of_train(0.1);
        let splits = Splits { train: &train, valid: Some(&valid), test: None };
        assert_eq!(splits.validate(), Ok(()));
        let by_speaker = SourceConfig { group_by: Some("speaker".into()), ..valid.clone() };
        let grouped = Splits { valid: Some(&by_speaker), ..splits };
        assert_eq!(grouped.validate(), Ok(()));
        for split in [Split::Train, Split::Valid] {
            let share = grouped.sources(split).expect("some")[0].share.clone().expect("a share");
            assert_eq!(share.by, Some("speaker".into()));
        }
        let (trained, result) =
            (splits.sources(Split::Train).expect("some"), splits.sources(Split::Valid).expect("some"));
        assert_eq!(
            (trained[0].share.clone(), trained[0].limit),
            (Some(Share { from: 0.0, to: 0.9, by: None }), Some(90))
        );
        assert_eq!(trained[1], train[1]);
        assert_eq!(
            (result[0].share.clone(), result[0].limit),
            (Some(Share { from: 0.9, to: 1.0, by: None }), Some(10))
        );
        assert_eq!((result.len(), result[0].weight), (1, None));
        assert_eq!(splits.sources(Split::Test), None, "it chose the best checkpoint");
        assert_eq!(
            (trained[0].to_string(), result[0].to_string()),
            ("train.csv (90 % of it)".into(), "train.csv (10 % of it)".into())
        );
    }

    #[test]
    fn parts_of_the_training_data_that_make_no_sense_are_refused() {
        let refused = |train: SourceConfig, valid: SourceConfig, culprit: &str| {
            let splits = Splits { train: &[train], valid: Some(&valid), test: None };
            let (_, reason) = splits.validate().expect_err(culprit);
            assert!(reason.contains(culprit), "{reason}");
        };
        refused(recorded(), part_of_train(0.0), "is 0:");
        refused(recorded(), part_of_train(1.0), "is 1:");
        refused(recorded(), part_of_train(f64::NAN), "is NaN");
        refused(recorded(), SourceConfig { limit: Some(3), ..part_of_train(0.5) }, "`limit`");
        refused(SourceConfig { limit: Some(1), ..recorded() }, part_of_train(0.1), "`limit`");
        refused(SourceConfig::default(), part_of_train(0.1), "synthesiser");
        refused(part_of_train(0.1), recorded(), "`part_of_train` is for `data.valid`");
        let grouped = SourceConfig { group_by: Some("speaker".into()), ..recorded() };
        refused(grouped.clone(), recorded(), "`group_by` is for `data.valid`");
        refused(recorded(), grouped, "beside `part_of_train`");
    }
}
