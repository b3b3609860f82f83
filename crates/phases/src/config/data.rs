//! Training and validation data, and how batches are made of it.

use super::splits::Splits;
use super::{ConfigError, SourceConfig, Sources, Split};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undertone_data::augment::AugmentConfig;
use undertone_data::cache::{CacheConfig, CacheWhat};
use undertone_data::limits::MOST_BATCH;
use undertone_data::loader::{Budget, LoaderConfig, OnBadSample, Workers};

/// Training and validation data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// What is trained on: a source, or a list of sources to be mixed.
    pub train: Sources,
    /// Where several sources have no weights: draws from them in proportion to this root of their sizes, as they are
    /// with 1, evenly where it is large.
    pub source_temperature: f64,
    /// What the model is judged by while it is trained: a source of its own, or `{part_of_train: 0.05}`, which keeps that
    /// share of the recordings from training. If nothing is said: 64 other samples of each synthesiser that is trained on;
    /// for recordings it must be said.
    pub valid: Option<SourceConfig>,
    /// What it is judged by afterwards; like `valid`, but with other samples where they are synthesised, if not given.
    pub test: Option<SourceConfig>,
    /// Language of samples that name none, as `en`; multilingual models only.
    pub language: String,
    /// Task of samples that name none: `transcribe` or `translate`; multilingual models only.
    pub task: String,
    /// Samples per batch; where `max_batch_seconds` is given, the most there can be.
    pub batch_size: usize,
    /// Seconds of audio per training batch, padding included: short clips make large batches, long ones small batches.
    pub max_batch_seconds: Option<f64>,
    /// How much more a long clip counts in `max_batch_seconds`: one of `l` seconds as `l + attention_cost * l * l`.
    /// Attention compares every position with every other, so its memory grows with the square.
    pub attention_cost: f64,
    /// Whether training batches are made of clips of like length, so that little is padding.
    pub group_by_length: bool,
    /// Samples per batch where no gradients are kept.
    pub eval_batch_size: usize,
    /// Threads that make samples: `auto` or a number. Changes the speed and nothing else.
    pub workers: Workers,
    /// Batches made ahead.
    pub prefetch_batches: usize,
    /// Bytes those may hold.
    pub prefetch_bytes: usize,
    /// Whether an incomplete last batch of an epoch is left out.
    pub drop_last: bool,
    /// What is done about a sample that cannot be used: `stop`, or `skip` and say so. Of what the model is judged on, texts
    /// that it cannot write and long recordings that cannot be cut are left out; any other that cannot be read stops the run.
    pub on_bad_sample: OnBadSample,
    /// The share of samples that may be skipped before the run stops after all.
    pub max_bad_share: f64,
    /// To what length a training batch is padded.
    pub pad: Pad,
    /// To what length a batch is padded when the model is judged: the window by default, for that is what transcription
    /// and other programs give it.
    pub eval_pad: Pad,
    /// What is done to texts before they are compared.
    pub normalizer: Normalizer,
    /// The file with the spellings that `normalizer: english` takes for the same: a Whisper's `normalizer.json`. The model's
    /// own, if none is named; where that has none either, what is counted is told to be without.
    pub spellings: Option<PathBuf>,
    /// What becomes of recordings that are longer than the model's window and have no times for the parts of their text.
    pub long_audio: LongAudio,
    /// The share of training samples, where the times of what is said are known, that are to tell them.
    pub timestamps: f64,
    /// The share of training samples that are told what was said before them, where that is known.
    pub previous_text: f64,
    /// Whether short recordings share a window in training.
    pub pack: bool,
    /// What is done to training samples so that no two epochs are the same.
    pub augment: AugmentConfig,
    /// What is kept of one epoch for the next.
    pub cache: CacheConfig,
}

/// What becomes of a recording that the model cannot hear at once, and whose text has no times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LongAudio {
    /// The run does not begin, and says which ones they are.
    #[default]
    Refuse,
    /// It is cut where it is silent. The model that the run begins with says what it hears in each part, and the text is
    /// divided by what of it was heard where; parts in which it heard something else are left out, and counted.
    /// What was found is kept in the folder `aligned` in that of the cache, whatever the cache keeps, and found again as long
    /// as the recording's file (its path, size and time), text, window and the model's weights are the same.
    Align,
}

impl Default for DataConfig {
    fn default() -> Self {
        let loader = LoaderConfig::default();
        Self {
            train: Sources::default(),
            source_temperature: 1.0,
            valid: None,
            test: None,
            language: "en".into(),
            task: "transcribe".into(),
            batch_size: 16,
            max_batch_seconds: None,
            attention_cost: 0.0,
            group_by_length: false,
            eval_batch_size: 16,
            workers: loader.workers,
            prefetch_batches: loader.prefetch_batches,
            prefetch_bytes: loader.prefetch_bytes,
            drop_last: false,
            on_bad_sample: loader.on_bad_sample,
            max_bad_share: loader.max_bad_share,
            pad: Pad::Longest,
            eval_pad: Pad::Window,
            normalizer: Normalizer::None,
            spellings: None,
            long_audio: LongAudio::Refuse,
            timestamps: 0.0,
            previous_text: 0.0,
            pack: false,
            augment: AugmentConfig::default(),
            cache: CacheConfig::default(),
        }
    }
}

impl DataConfig {
    /// How training batches are made.
    pub fn training_loader(&self, seed: u64) -> LoaderConfig {
        LoaderConfig {
            batch_size: self.batch_size,
            budget: self.max_batch_seconds.map(|max| Budget { max, quadratic: self.attention_cost }),
            shuffle: true,
            drop_last: self.drop_last,
            group_by_length: self.group_by_length,
            on_bad_sample: self.on_bad_sample,
            max_bad_share: self.max_bad_share,
            ..self.eval_loader(seed)
        }
    }

    /// How batches are made where the model is judged: always the same, and nothing is left out.
    pub fn eval_loader(&self, seed: u64) -> LoaderConfig {
        LoaderConfig {
            batch_size: self.eval_batch_size,
            workers: self.workers,
            prefetch_batches: self.prefetch_batches,
            prefetch_bytes: self.prefetch_bytes,
            shuffle: false,
            seed,
            ..LoaderConfig::default()
        }
    }

    /// Checks every value that can be checked without reading data.
    pub(crate) fn validate(&self, seed: u64) -> Result<(), ConfigError> {
        let value = |text: String| Err(ConfigError::Value(text));
        let at = |key: &str, e: &dyn std::fmt::Display| ConfigError::Value(format!("`data{key}`: {e}"));
        if self.eval_batch_size == 0 {
            return value("`data.eval_batch_size` is 0: it must be at least 1".into());
        }
        if self.eval_batch_size > MOST_BATCH {
            return value(format!(
                "`data.eval_batch_size` is {}: it must be at most {MOST_BATCH}",
                self.eval_batch_size
            ));
        }
        self.training_loader(seed).validate().map_err(|e| at("", &e))?;
        if self.attention_cost != 0.0 && self.max_batch_seconds.is_none() {
            return value("`data.attention_cost` is for `data.max_batch_seconds`: give that, or leave it out".into());
        }
        for (key, share) in [("timestamps", self.timestamps), ("previous_text", self.previous_text)] {
            if !(0.0..=1.0).contains(&share) {
                return value(format!("`data.{key}` is {share}: it is a share of the samples, from 0 to 1"));
            }
        }
        if self.pack && self.previous_text > 0.0 {
            return value("`data.pack` puts recordings together by chance, so that none goes on from the one before it: leave out that or `data.previous_text`".into());
        }
        if self.spellings.is_some() && self.normalizer != Normalizer::English {
            return value("`data.spellings` is for `data.normalizer: english`: give that, or leave it out".into());
        }
        if let Some(path) = self.spellings.as_ref().filter(|path| !path.is_file()) {
            return value(format!("`data.spellings` is `{}`, and there is no such file", path.display()));
        }
        self.augment.validate().map_err(|e| at(".augment", &e))?;
        self.cache.validate().map_err(|e| at(".cache", &e))?;
        let (usual, cache) = (CacheConfig::default(), &self.cache);
        // Where long recordings are aligned, what was found is kept in the folder whatever else is.
        let kept = self.long_audio == LongAudio::Align;
        let unread = [("dir", cache.dir != usual.dir && !kept), ("max_bytes", cache.max_bytes != usual.max_bytes)];
        if let Some((key, _)) = unread.iter().find(|(_, unread)| *unread && cache.what == CacheWhat::Off) {
            return value(format!(
                "`data.cache.what` is off, so that `data.cache.{key}` has no effect: set the one to `audio` or `features`, or leave the other out"
            ));
        }
        if !(self.source_temperature.is_finite() && self.source_temperature > 0.0) {
            return value(format!("`data.source_temperature` is {}: it must be above 0", self.source_temperature));
        }
        if self.source_temperature != 1.0 && (self.train.0.len() == 1 || self.train.weights().is_some()) {
            return value("`data.source_temperature` is for a list of sources without weights: leave it out".into());
        }
        if self.cache.what == CacheWhat::Features {
            let changes = [("augment", self.augment.changes_audio()), ("pack", self.pack)];
            if let Some((key, _)) = changes.iter().find(|(_, on)| *on) {
                return value(format!(
                    "`data.{key}` changes the audio, and `data.cache.what: features` keeps what was computed of it: keep `audio`"
                ));
            }
        }
        if self.max_bad_share != Self::default().max_bad_share && self.on_bad_sample == OnBadSample::Stop {
            return value("`data.max_bad_share` is for `data.on_bad_sample: skip`: give that, or leave it out".into());
        }
        self.train.validate().map_err(|e| at(".train", &e))?;
        for (name, source) in self.train.named() {
            source.validate_speech(true).map_err(|e| at(&format!(".train{name}"), &e))?;
        }
        let splits = self.splits();
        for (split, source) in splits.written().filter(|(split, _)| *split != Split::Train) {
            source.validate_speech(false).map_err(|e| at(&format!(".{}", split.name()), &e))?;
        }
        splits.validate().map_err(|(split, e)| at(&format!(".{}", split.name()), &e))
    }

    /// What is trained on and judged by.
    pub(crate) fn splits(&self) -> Splits<'_> {
        Splits { train: &self.train.0, valid: self.valid.as_ref(), test: self.test.as_ref() }
    }

    /// Refuses what is done with recordings alone: whether there are any to train on, and whether there are `any` at all.
    pub(crate) fn validate_for(&self, trained: bool, any: bool) -> Result<(), ConfigError> {
        let given = [
            ("augment", trained, self.augment.changes_audio() || self.augment.text != Default::default()),
            ("timestamps", trained, self.timestamps != 0.0),
            ("previous_text", trained, self.previous_text != 0.0),
            ("pack", trained, self.pack),
            ("group_by_length", trained, self.group_by_length),
            ("long_audio", any, self.long_audio != LongAudio::Refuse),
            ("cache", any, self.cache.what != CacheWhat::Off),
        ];
        match given.iter().find(|(_, there, given)| *given && !there) {
            Some((key, ..)) => Err(ConfigError::Value(format!(
                "`data.{key}` is for recordings, and the samples are made by a synthesiser, which has settings of its own in `cw`: leave it out"
            ))),
            None => Ok(()),
        }
    }
}

/// To what length a batch's audio is padded with silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pad {
    /// To its longest sample.
    #[default]
    Longest,
    /// To the model's window, 30 s for OpenAI's models: what those were trained on.
    Window,
}

/// What is done to reference and hypothesis before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalizer {
    /// Nothing.
    #[default]
    None,
    /// Whisper's basic normaliser: lower case, no punctuation.
    Basic,
    /// Whisper's English normaliser, by which its word error rates are published: also numbers, contractions and titles,
    /// and British spellings as American ones.
    English,
}
