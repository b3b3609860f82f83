//! Configuration of training and validation data, and of batches.

use super::error::ensure;
use super::splits::Splits;
use super::{ConfigError, SourceConfig, Sources, Split};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undertone_data::augment::AugmentConfig;
use undertone_data::cache::{CacheConfig, CacheWhat};
use undertone_data::limits::MOST_BATCH;
use undertone_data::loader::{Budget, LoaderConfig, OnBadSample, Workers};

/// Training, validation and test data, and batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Training data: a source, or a list of sources to be mixed.
    pub train: Sources,
    /// Temperature for mixing several sources without weights: each is drawn in proportion to this root of its size. 1
    /// is in proportion to the sizes, a large temperature nearly uniform.
    pub source_temperature: f64,
    /// Validation data: a source of its own, or `{part_of_train: 0.05}`, which holds out that share of the training
    /// recordings. Default: 64 other samples of each synthesiser in the training data. Recordings have no default.
    pub valid: Option<SourceConfig>,
    /// Test data, for evaluation after training. Default: like `valid` with other samples, if those are synthesised.
    pub test: Option<SourceConfig>,
    /// Language of samples that name none, such as `en`. For multilingual models only.
    pub language: String,
    /// Task of samples that name none: `transcribe` or `translate`. For multilingual models only.
    pub task: String,
    /// Samples per training batch; with `max_batch_seconds`, the maximum.
    pub batch_size: usize,
    /// Maximum seconds of audio per training batch, padding included: short clips make large batches, long ones small
    /// ones.
    pub max_batch_seconds: Option<f64>,
    /// Quadratic cost of a clip in `max_batch_seconds`: a clip of `l` seconds counts as `l + attention_cost * l * l`.
    /// Attention compares every position with every other, so its memory grows with the square of the length.
    pub attention_cost: f64,
    /// Whether training batches are made of clips of similar length, so that there is little padding.
    pub group_by_length: bool,
    /// Samples per batch in evaluation, where no gradients are kept.
    pub eval_batch_size: usize,
    /// Number of data loader threads: `auto` or a number. It affects the speed alone.
    pub workers: Workers,
    /// Maximum number of prefetched batches.
    pub prefetch_batches: usize,
    /// Maximum number of bytes of prefetched batches.
    pub prefetch_bytes: usize,
    /// Whether an incomplete last batch of an epoch is dropped.
    pub drop_last: bool,
    /// Behaviour for a training sample that cannot be used: `stop`, or `skip` it with a report. In validation and test
    /// data, texts that the model cannot write and long recordings that cannot be cut are left out; any other sample
    /// that cannot be read stops the run. Of text tasks, records are skipped in all splits: those without a field, with a label or tag that
    /// is none of the task's, or with an answer that is not where it should be.
    pub on_bad_sample: OnBadSample,
    /// Maximum share of skipped samples: of the recordings of a source that cannot be used, before training, and of the samples that each
    /// epoch has read. The run stops above it.
    pub max_bad_share: f64,
    /// Length that a training batch is padded to.
    pub pad: Pad,
    /// Length that a batch is padded to in evaluation. Default: the window, which transcription and other programs use.
    pub eval_pad: Pad,
    /// Normalisation of reference and hypothesis before they are compared.
    pub normalizer: Normalizer,
    /// Spelling map for `normalizer: english`: a file like Whisper's `normalizer.json`. Default: that of the model. If
    /// the model has none either, a remark with the error rates says that no map was used.
    pub spellings: Option<PathBuf>,
    /// Treatment of recordings that are longer than the model's window and have no times for the parts of their text.
    pub long_audio: LongAudio,
    /// Share of the training samples with known times that are trained with timestamp tokens.
    pub timestamps: f64,
    /// Share of the training samples with a known preceding text that have it in their prompt.
    pub previous_text: f64,
    /// Whether short recordings are packed into one window in training.
    pub pack: bool,
    /// Augmentation of training samples, different in every epoch.
    pub augment: AugmentConfig,
    /// Cache of decoded audio, of features, or of what a frozen encoder makes of them, between epochs.
    pub cache: CacheConfig,
}

/// Treatment of a recording that is longer than the model's window and whose text has no times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LongAudio {
    /// Stop before training, with an error that names these recordings.
    #[default]
    Refuse,
    /// Cut at silences. The initial model transcribes each part, and the reference text is divided by aligning it with
    /// the transcriptions. Parts with a transcription that does not match the text are left out, and counted. The
    /// result is stored in the folder `aligned` of the cache folder, whatever the cache keeps. It is reused while the
    /// recording's file (path, size and time), the text, the window and the model's weights are the same.
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
    /// Returns the configuration of the training data loader.
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

    /// Returns the configuration of the evaluation data loader: always the same batches, without skipping samples.
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
        let at = |key: &str, e: &dyn std::fmt::Display| format!("`data{key}`: {e}");
        let size = self.eval_batch_size;
        ensure(size > 0, || "`data.eval_batch_size` is 0: it must be at least 1")?;
        ensure(size <= MOST_BATCH, || format!("`data.eval_batch_size` is {size}: it must be at most {MOST_BATCH}"))?;
        self.training_loader(seed).validate().map_err(|e| at("", &e))?;
        ensure(
            self.attention_cost == 0.0 || self.max_batch_seconds.is_some(),
            || "`data.attention_cost` is for `data.max_batch_seconds`: give that, or leave it out",
        )?;
        for (key, share) in [("timestamps", self.timestamps), ("previous_text", self.previous_text)] {
            ensure((0.0..=1.0).contains(&share), || {
                format!("`data.{key}` is {share}: it is a share of the samples, from 0 to 1")
            })?;
        }
        ensure(
            !(self.pack && self.previous_text > 0.0),
            || "`data.pack` puts recordings together by chance, so that none goes on from the one before it: leave out that or `data.previous_text`",
        )?;
        ensure(
            self.spellings.is_none() || self.normalizer == Normalizer::English,
            || "`data.spellings` is for `data.normalizer: english`: give that, or leave it out",
        )?;
        if let Some(path) = self.spellings.as_ref().filter(|path| !path.is_file()) {
            return Err(format!("`data.spellings` is `{}`, and there is no such file", path.display()).into());
        }
        self.augment.validate().map_err(|e| at(".augment", &e))?;
        self.cache.validate().map_err(|e| at(".cache", &e))?;
        // The results of aligning long recordings are stored in the folder whatever the cache keeps.
        let kept = self.cache.what() != CacheWhat::Off || self.long_audio == LongAudio::Align;
        ensure(
            kept || self.cache.dir().is_none(),
            || "`data.cache.what` is off, so that `data.cache.dir` has no effect: set the one to `audio`, `features` or `encoder`, or leave the other out",
        )?;
        let temperature = self.source_temperature;
        ensure(temperature.is_finite() && temperature > 0.0, || {
            format!("`data.source_temperature` is {temperature}: it must be above 0")
        })?;
        let is_mixed = self.train.0.len() != 1 && self.train.weights().is_none();
        ensure(
            temperature == 1.0 || is_mixed,
            || "`data.source_temperature` is for a list of sources without weights: leave it out",
        )?;
        self.validate_cache()?;
        let is_usual = self.max_bad_share == Self::default().max_bad_share;
        ensure(
            is_usual || self.on_bad_sample != OnBadSample::Stop,
            || "`data.max_bad_share` is for `data.on_bad_sample: skip`: give that, or leave it out",
        )?;
        self.train.validate().map_err(|e| at(".train", &e))?;
        for (name, source) in self.train.named() {
            source.validate_speech(true).map_err(|e| at(&format!(".train{name}"), &e))?;
        }
        let splits = self.splits();
        for (split, source) in splits.written().filter(|(split, _)| *split != Split::Train) {
            source.validate_speech(false).map_err(|e| at(&format!(".{}", split.name()), &e))?;
        }
        Ok(splits.validate().map_err(|(split, e)| at(&format!(".{}", split.name()), &e))?)
    }

    /// Refuses a cache of what is different in every epoch.
    fn validate_cache(&self) -> Result<(), String> {
        let (what, masks) = (self.cache.what(), self.augment.spec_augment.p > 0.0);
        let name = match what {
            CacheWhat::Off | CacheWhat::Audio => return Ok(()),
            CacheWhat::Features => "features",
            CacheWhat::Encoder => "encoder",
        };
        for (key, changes) in [("augment", self.augment.changes_audio()), ("pack", self.pack)] {
            ensure(!changes, || {
                format!(
                    "`data.{key}` changes the audio, and `data.cache.what: {name}` keeps what was computed of it: keep `audio`"
                )
            })?;
        }
        let of_encoder = what == CacheWhat::Encoder;
        ensure(
            !(of_encoder && masks),
            || "`data.augment.spec_augment` masks features anew in every epoch, and `data.cache.what: encoder` keeps what the encoder makes of them: leave one of them out",
        )?;
        ensure(
            !of_encoder || self.pad == Pad::Window,
            || "`data.cache.what: encoder` needs `data.pad: window`: in shorter batches, what the encoder makes of a recording depends on the longest one beside it",
        )
    }

    /// Returns the splits.
    pub(crate) fn splits(&self) -> Splits<'_> {
        Splits { train: &self.train.0, valid: self.valid.as_ref(), test: self.test.as_ref() }
    }

    /// Returns the maximum share of samples that are skipped; `None` if none is.
    pub(crate) fn skip(&self) -> Option<f64> {
        (self.on_bad_sample == OnBadSample::Skip).then_some(self.max_bad_share)
    }

    /// Refuses settings for recordings if there are none. `trained`: whether there are recordings in the training data;
    /// `any`: whether there are any at all.
    pub(crate) fn validate_for(&self, trained: bool, any: bool) -> Result<(), ConfigError> {
        let given = [
            ("augment", trained, self.augment.changes_audio() || self.augment.text != Default::default()),
            ("timestamps", trained, self.timestamps != 0.0),
            ("previous_text", trained, self.previous_text != 0.0),
            ("pack", trained, self.pack),
            ("group_by_length", trained, self.group_by_length),
            ("long_audio", any, self.long_audio != LongAudio::Refuse),
            ("cache", any, self.cache.what() != CacheWhat::Off),
        ];
        for (key, there, given) in given {
            ensure(there || !given, || {
                format!(
                    "`data.{key}` is for recordings, and the samples are made by a synthesiser, which has settings of its own: leave it out"
                )
            })?;
        }
        Ok(())
    }
}

/// Length that a batch's audio is padded to with silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pad {
    /// The length of its longest sample.
    #[default]
    Longest,
    /// The model's window: 30 s for OpenAI's models, which were trained with it.
    Window,
}

/// Normalisation of reference and hypothesis before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Normalizer {
    /// None.
    #[default]
    None,
    /// Whisper's basic normaliser: lower case, no punctuation.
    Basic,
    /// Whisper's English normaliser, used for its published word error rates: also normalises numbers, contractions and
    /// titles, and replaces British spellings by American ones.
    English,
}
