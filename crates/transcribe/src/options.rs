//! Options of transcription.

use crate::compression::REPETITIVE;
use crate::error::TranscribeError;
use crate::vad::VadOptions;
use undertone_model::limits::MOST_BEAMS;
use undertone_model::whisper::language_code;

/// How a recording is divided into the windows that a model of speech reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// Only stretches of speech, found by voice activity, packed into windows. They are decoded in batches.
    #[default]
    Vad,
    /// The whole recording, cut at pauses. The windows are decoded in batches.
    Pauses,
    /// One window after the other, each from where the timestamps of the one before end, as in openai-whisper.
    Timestamps,
}

/// Length of audio that the encoder reads at once. What is shorter is padded with silence, which takes as long to read as
/// speech. A model that was trained on shorter windows (`pad: longest`) reads them as well; others write worse.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Window {
    /// That of the model, 30 seconds for a Whisper.
    #[default]
    OfModel,
    /// The longest piece of each batch, as in training with `pad: longest`.
    Longest,
    /// A number of seconds. Longer recordings are cut.
    Seconds(f64),
}

/// Language of the speech, for a multilingual model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// That of the model's `generation_config.json`; detected for each recording if there is none.
    #[default]
    OfModel,
    /// Detected for each recording, from its first window.
    Detected,
    /// A code, such as `en`.
    Code(String),
}

/// Options of a [`Transcriber`](crate::Transcriber). The defaults are those of openai-whisper's `transcribe`, except for the
/// [segmentation](Self::segmentation).
#[derive(Clone, Debug, PartialEq)]
pub struct TranscribeOptions {
    /// Language of the speech.
    pub language: Language,
    /// `transcribe` or `translate`, for multilingual models; the model's own task if there is none.
    pub task: Option<String>,
    /// Division into windows.
    pub segmentation: Segmentation,
    /// Length of the windows.
    pub window: Window,
    /// Number of windows that are decoded together.
    pub batch_size: usize,
    /// Search for speech.
    pub vad: VadOptions,
    /// Number of beams at temperature 0; that of the model's `generation_config.json` if there is none.
    pub beams: Option<usize>,
    /// Share of the beams that must be finished to end the search.
    pub patience: f64,
    /// Exponent of the length by which a sequence's log probability is divided.
    pub length_penalty: Option<f64>,
    /// Number of sequences that are sampled above temperature 0.
    pub best_of: usize,
    /// Temperatures that are tried one after the other, until a result is good enough.
    pub temperatures: Vec<f64>,
    /// Compression ratio of the text above which the next temperature is tried: the text repeats itself.
    pub compression_ratio_threshold: Option<f64>,
    /// Mean log probability of the tokens below which the next temperature is tried.
    pub logprob_threshold: Option<f64>,
    /// Probability of no speech above which a window with a mean log probability below the threshold is left out.
    pub no_speech_threshold: Option<f64>,
    /// Text before the first window, as context: names, spelling, style. Windows that are decoded in batches all have it.
    pub initial_prompt: Option<String>,
    /// Words before every window, as context.
    pub hotwords: Option<String>,
    /// Text that the first window begins with. It is not part of the transcript.
    pub prefix: Option<String>,
    /// Whether the text of a window is the context of the next one, with [`Segmentation::Timestamps`].
    pub condition_on_previous: bool,
    /// Whether words have times.
    pub words: bool,
    /// Seed of sampling.
    pub seed: u64,
}

impl Default for TranscribeOptions {
    fn default() -> Self {
        Self {
            language: Language::default(),
            task: None,
            segmentation: Segmentation::default(),
            window: Window::default(),
            batch_size: 16,
            vad: VadOptions::default(),
            beams: None,
            patience: 1.0,
            length_penalty: None,
            best_of: 5,
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            compression_ratio_threshold: Some(REPETITIVE),
            logprob_threshold: Some(-1.0),
            no_speech_threshold: Some(0.6),
            initial_prompt: None,
            hotwords: None,
            prefix: None,
            condition_on_previous: true,
            words: false,
            seed: 0,
        }
    }
}

/// Most windows that are decoded together.
const MOST_TOGETHER: usize = 4096;

impl TranscribeOptions {
    /// Options for a language and task, if given.
    pub fn of(language: Option<&str>, task: Option<&str>) -> Self {
        let language = language.map_or(Language::OfModel, |code| Language::Code(code.to_owned()));
        Self { language, task: task.map(str::to_owned), ..Self::default() }
    }

    /// One decoding of everything at temperature 0, as in an evaluation: nothing is left out, and nothing is tried again.
    pub fn plain(language: Option<&str>, task: Option<&str>) -> Self {
        Self {
            segmentation: Segmentation::Pauses,
            temperatures: vec![0.0],
            compression_ratio_threshold: None,
            logprob_threshold: None,
            no_speech_threshold: None,
            ..Self::of(language, task)
        }
    }
}

impl TranscribeOptions {
    /// Checks the values, for a model whose own number of beams is `own_beams`.
    pub(crate) fn validate(&self, own_beams: usize) -> Result<(), TranscribeError> {
        let wrong = |option, value: &dyn std::fmt::Debug, advice| {
            Err(TranscribeError::Option { option, value: format!("{value:?}"), advice })
        };
        if self.batch_size == 0 || self.batch_size > MOST_TOGETHER {
            return wrong("the batch size", &self.batch_size, "give 1 to 4096");
        }
        if self.window != Window::OfModel && self.segmentation == Segmentation::Timestamps {
            return wrong("the window", &self.window, "with timestamps the model's own is needed: leave it out");
        }
        if self.best_of == 0 || self.best_of > MOST_BEAMS {
            return wrong("the number of sampled sequences", &self.best_of, "give 1 to 256");
        }
        if self.beams.is_some_and(|beams| beams == 0 || beams > MOST_BEAMS) {
            return wrong("the number of beams", &self.beams.unwrap_or_default(), "give 1 to 256");
        }
        if !(self.patience.is_finite() && self.patience > 0.0) {
            return wrong("the patience", &self.patience, "give a number above 0; 1 is usual");
        }
        if self.patience != 1.0 && self.beams.unwrap_or(own_beams) <= 1 {
            return wrong(
                "the patience",
                &self.patience,
                "it is for several beams: give their number, or leave it out",
            );
        }
        if self.temperatures.is_empty() || self.temperatures.iter().any(|t| !(t.is_finite() && *t >= 0.0)) {
            return wrong("the list of temperatures", &self.temperatures, "give one or more numbers from 0 on");
        }
        if !(0.15..1.0).contains(&self.vad.threshold) {
            return wrong("the threshold of speech", &self.vad.threshold, "give a probability from 0.15 to below 1");
        }
        let lengths = [self.vad.min_speech_s, self.vad.min_silence_s, self.vad.pad_s];
        if lengths.iter().any(|length| !(0.0..=10.0).contains(length)) {
            return wrong("a length of the search for speech", &lengths, "give 0 to 10 seconds");
        }
        Ok(())
    }

    /// Refuses what only a multilingual model can do. Models of one language are mostly of English, so that its code is no
    /// request for another one.
    pub(crate) fn validate_for_one_language(&self) -> Result<(), TranscribeError> {
        if let Some(task) = self.task.as_deref().filter(|task| *task != "transcribe") {
            return Err(TranscribeError::OneLanguage(format!("the task `{task}`")));
        }
        match &self.language {
            Language::Code(code) if language_code(code) != "en" => {
                Err(TranscribeError::OneLanguage(format!("the language `{code}`")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what only a model of speech can do.
    pub(crate) fn validate_for_reader(&self, reader: &str) -> Result<(), TranscribeError> {
        let usual = Self::default();
        let changed = |own: Option<f64>, usual: Option<f64>| own.is_some() && own != usual;
        let used = [
            (self.words, "the times of words"),
            (self.task.as_deref() == Some("translate"), "the translation"),
            (self.segmentation == Segmentation::Timestamps, "the segmentation by timestamps"),
            (self.vad != usual.vad, "the threshold of speech"),
            (self.window != Window::OfModel, "the window"),
            (self.initial_prompt.is_some(), "the initial prompt"),
            (self.hotwords.is_some(), "the hotwords"),
            (self.prefix.is_some(), "the prefix"),
            (self.beams.is_some(), "the number of beams"),
            (self.patience != usual.patience, "the patience"),
            (self.length_penalty.is_some(), "the length penalty"),
            (self.best_of != usual.best_of, "the number of texts that are sampled"),
            (self.seed != usual.seed, "the seed"),
            (self.temperatures != usual.temperatures && self.temperatures != [0.0], "the temperatures"),
            (changed(self.compression_ratio_threshold, usual.compression_ratio_threshold), "the thresholds"),
            (changed(self.logprob_threshold, usual.logprob_threshold), "the thresholds"),
            (changed(self.no_speech_threshold, usual.no_speech_threshold), "the thresholds"),
        ];
        match used.into_iter().find(|(used, _)| *used) {
            Some((_, option)) => Err(TranscribeError::NotSpeech { reader: reader.to_owned(), option }),
            None => Ok(()),
        }
    }
}
