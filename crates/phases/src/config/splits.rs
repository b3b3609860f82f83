//! Sources of each split: the configured `train`, `valid` and `test`, and their defaults.

use super::error::ensure;
use super::{PartOfTrain, SourceConfig};
use crate::kinds;
use undertone_data::records::Share;

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

impl Splits<'_> {
    /// Returns the sources of a split; `None` if it has no data.
    ///
    /// By default, validation and test data are other samples of the synthesisers in the training data. For recordings
    /// there are no other samples, so the user has to configure them.
    pub fn sources(&self, split: Split) -> Option<Vec<SourceConfig>> {
        match (split, self.valid, self.test) {
            (Split::Train, ..) => Some(self.train.iter().map(|source| self.trained(source)).collect()),
            (Split::Valid, Some(valid), _) => Some(match valid.part_of_train() {
                Some(part) => self.train.iter().filter_map(|source| held_out(source, part)).collect(),
                None => vec![valid.clone()],
            }),
            (Split::Valid, None, _) if self.is_recorded() => None,
            (Split::Valid, None, _) => Some(self.train.iter().map(SourceConfig::others).collect()),
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
        let valid = self.valid.filter(|valid| valid.part_of_train().is_none());
        let result = [(Split::Valid, valid), (Split::Test, self.test)];
        let result = result.into_iter().filter_map(|(split, source)| Some((split, source?)));
        self.train.iter().map(|source| (Split::Train, source)).chain(result)
    }

    /// Checks that the splits fit together. The error is the offending split and the reason.
    pub fn validate(&self) -> Result<(), (Split, String)> {
        if let Some((split, _)) = self.written().find(|(_, source)| source.part_of_train().is_some()) {
            return Err((split, "`part_of_train` is for `data.valid`: leave it out".into()));
        }
        let is_recorded = self.is_recorded();
        let is_unnamed = |source: &&SourceConfig| {
            is_recorded && source.synthesised().is_some_and(|synthesised| synthesised.synth.is_none())
        };
        let synth = || kinds::default().map_or("…".to_owned(), |kind| kind.name().to_owned());
        let valid = match self.valid {
            None => ensure(!is_recorded, || NONE),
            Some(valid) => {
                ensure(!is_unnamed(&valid), || format!("{NONE}; or `synth: {}`, if it is to be synthesised", synth()))
            }
        };
        valid.map_err(|reason| (Split::Valid, reason))?;
        let test = ensure(self.test.as_ref().is_none_or(|test| !is_unnamed(test)), || {
            let synth = synth();
            format!("there is no data: give its `path` or `hub`, or `synth: {synth}`, if it is to be synthesised")
        });
        test.map_err(|reason| (Split::Test, reason))?;
        let share =
            self.valid.and_then(SourceConfig::part_of_train).map_or(Ok(()), |part| self.validate_share(part.share));
        share.map_err(|reason| (Split::Valid, reason))
    }

    fn validate_share(&self, share: f64) -> Result<(), String> {
        ensure(share > 0.0 && share < 1.0, || {
            format!("`part_of_train` is {share}: it is a share of the training data, above 0 and below 1")
        })?;
        ensure(
            self.is_recorded(),
            || "`part_of_train` is for recordings, and a synthesiser generates other samples for validation by itself: leave it out",
        )?;
        for limit in self.train.iter().filter_map(|source| source.selection()?.limit) {
            ensure(kept(limit, share) < limit, || {
                format!("`part_of_train` leaves no training data of the {limit} records that `limit` allows")
            })?;
        }
        Ok(())
    }

    /// Whether any training data is recorded.
    fn is_recorded(&self) -> bool {
        self.train.iter().any(SourceConfig::is_recorded)
    }

    /// Returns a source of the training data without the part that is held out for validation.
    fn trained(&self, source: &SourceConfig) -> SourceConfig {
        let mut source = source.clone();
        if let (Some(part), Some(selection)) =
            (self.valid.and_then(SourceConfig::part_of_train), source.selection_mut())
        {
            selection.share = Some(Share { from: 0.0, to: 1.0 - part.share, by: part.group_by.clone() });
            selection.limit = selection.limit.map(|limit| limit.saturating_sub(kept(limit, part.share)));
        }
        source
    }
}

/// Message for recordings without validation data.
pub(crate) const NONE: &str = "there is no data to evaluate the model on: give other data as `path` or `hub`, a `part:` of the same, or \
                    `data.valid: {part_of_train: 0.05}`, which keeps that share of the training data for it";

/// Returns the part of a source of recordings that is held out for validation.
fn held_out(source: &SourceConfig, part: &PartOfTrain) -> Option<SourceConfig> {
    let mut source = SourceConfig { weight: None, ..source.clone() };
    let selection = source.selection_mut()?;
    selection.share = Some(Share { from: 1.0 - part.share, to: 1.0, by: part.group_by.clone() });
    selection.limit = selection.limit.map(|limit| kept(limit, part.share));
    Some(source)
}

/// Returns the number of records, out of `limit`, that are held out for validation.
fn kept(limit: usize, share: f64) -> usize {
    ((limit as f64 * share).round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::config::{Origin, Selection};
    use serde_json::json;

    fn recorded() -> SourceConfig {
        SourceConfig::files(std::path::PathBuf::from("train.csv"))
    }

    /// Returns a source of recordings with a maximum number of records.
    fn limited(limit: usize) -> SourceConfig {
        let mut source = recorded();
        source.selection_mut().expect("recordings").limit = Some(limit);
        source
    }

    fn part_of_train(share: f64) -> SourceConfig {
        Origin::PartOfTrain(PartOfTrain { share, group_by: None }).into()
    }

    fn written(source: serde_json::Value) -> Result<SourceConfig, serde_json::Error> {
        serde_json::from_value(source)
    }

    #[test]
    fn synthesisers_are_judged_by_other_samples_of_their_own() {
        let cw = json!({"duration_s": [4, 5]});
        let stages = json!([{"epochs": 1, "cw": {}}]);
        let train = written(json!({"samples": 5, "weight": 1, "cw": cw, "stages": stages})).expect("a source");
        let splits = Splits { train: std::slice::from_ref(&train), valid: None, test: None };
        assert_eq!(splits.validate(), Ok(()));
        let result = written(json!({"samples": 64, "cw": cw})).expect("a source");
        assert_eq!(splits.sources(Split::Valid), Some(vec![result.clone()]));
        assert_eq!(splits.sources(Split::Test), Some(vec![result]));
    }

    #[test]
    fn recordings_are_judged_by_nothing_unless_something_is_said() {
        let train = [recorded(), SourceConfig::default()];
        let none = Splits { train: &train, valid: None, test: None };
        assert_eq!((none.sources(Split::Valid), none.sources(Split::Test)), (None, None));
        let valid = recorded();
        let chosen_by = Splits { valid: Some(&valid), ..none };
        assert_eq!(chosen_by.sources(Split::Test), None, "they chose the best checkpoint");
    }

    #[test]
    fn a_part_of_the_training_data_is_cut_off_all_recordings() {
        let train = [
            SourceConfig { weight: Some(1.0), ..limited(100) },
            SourceConfig { weight: Some(2.0), ..Default::default() },
        ];
        let valid = part_of_train(0.1);
        let splits = Splits { train: &train, valid: Some(&valid), test: None };
        assert_eq!(splits.validate(), Ok(()));
        let by_speaker = Origin::PartOfTrain(PartOfTrain { share: 0.1, group_by: Some("speaker".into()) }).into();
        let grouped = Splits { valid: Some(&by_speaker), ..splits };
        assert_eq!(grouped.validate(), Ok(()));
        for split in [Split::Train, Split::Valid] {
            let share = selection(&grouped.sources(split).expect("some")[0]).share.expect("a share");
            assert_eq!(share.by, Some("speaker".into()));
        }
        let (trained, result) =
            (splits.sources(Split::Train).expect("some"), splits.sources(Split::Valid).expect("some"));
        assert_eq!(
            (selection(&trained[0]).share, selection(&trained[0]).limit),
            (Some(Share { from: 0.0, to: 0.9, by: None }), Some(90))
        );
        assert_eq!(trained[1], train[1]);
        assert_eq!(
            (selection(&result[0]).share, selection(&result[0]).limit),
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
        refused(limited(1), part_of_train(0.1), "`limit`");
        refused(SourceConfig::default(), part_of_train(0.1), "synthesiser");
        refused(part_of_train(0.1), recorded(), "`part_of_train` is for `data.valid`");
        let refused = |source, culprit: &str| {
            let reason = written(source).expect_err(culprit).to_string();
            assert!(reason.contains(culprit), "{reason}");
        };
        refused(json!({"part_of_train": 0.5, "limit": 3}), "`limit`");
        let grouped = json!({"path": "train.csv", "group_by": "speaker"});
        refused(grouped.clone(), "`group_by` is for `data.valid`");
        refused(grouped, "beside `part_of_train`");
    }

    fn selection(source: &SourceConfig) -> Selection {
        source.selection().cloned().expect("recordings")
    }
}
