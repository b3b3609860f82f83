//! Arguments of decoding.

use crate::commands::choices::one_of;
use crate::failure::Failure;
use undertone::transcribe::vad::VadOptions;
use undertone::transcribe::{Language, REPETITIVE, Segmentation, TranscribeOptions, Window};

#[derive(clap::Args)]
#[command(next_help_heading = "Decoding")]
pub struct Decoding {
    /// How a recording is divided: `vad` finds the speech and decodes it in batches; `pauses` decodes all of it in
    /// batches; `timestamps` goes from window to window as openai-whisper does
    #[arg(long, default_value = "vad", value_parser = one_of(SEGMENTATIONS))]
    segmentation: Segmentation,
    /// Window that the encoder reads: `model` is the whole one of 30 s; `longest` the longest clip of each batch; or a number
    /// of seconds. A model that was trained with `pad: longest` reads short clips several times as fast so; others write
    /// worse
    #[arg(long, value_name = "SECONDS", default_value = "model", value_parser = window)]
    window: Window,
    /// Number of windows that are decoded together; 16 if not given
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Number of beams; the model's own number if not given, which is usually 1
    #[arg(long, value_name = "N")]
    beams: Option<usize>,
    /// Share of the beams that must be finished to end the search
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    patience: f64,
    /// Exponent of the length by which the log probability of a text is divided; above 0 favours long texts
    #[arg(long, value_name = "EXPONENT", allow_hyphen_values = true)]
    length_penalty: Option<f64>,
    /// Number of texts that are sampled above temperature 0; 5 if not given
    #[arg(long, value_name = "N")]
    best_of: Option<usize>,
    /// Temperatures that are tried one after the other while a text repeats itself or is improbable; `0` never tries again
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,0.2,0.4,0.6,0.8,1")]
    temperatures: Vec<f64>,
    /// Compression ratio above which a text repeats itself
    #[arg(long, value_name = "RATIO", default_value_t = REPETITIVE)]
    compression_ratio_threshold: f64,
    /// Mean log probability below which a text is improbable
    #[arg(long, value_name = "LOG", default_value_t = -1.0, allow_hyphen_values = true)]
    logprob_threshold: f64,
    /// Probability of no speech above which an improbable text is left out
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.6)]
    no_speech_threshold: f64,
    /// Text before the first window, as context: names, spelling, style
    #[arg(long, value_name = "TEXT")]
    initial_prompt: Option<String>,
    /// Words before every window, as context
    #[arg(long, value_name = "WORDS")]
    hotwords: Option<String>,
    /// Text that the recording begins with; it is not repeated in the output
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Do not take the text of a window as context for the next one, with `--segmentation timestamps`
    #[arg(long)]
    no_context: bool,
    /// Probability above which speech begins, with `--segmentation vad`; 0.5 if not given
    #[arg(long, value_name = "PROBABILITY")]
    vad_threshold: Option<f32>,
    /// Seed of sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Segmentations by their names.
const SEGMENTATIONS: [(&str, Segmentation); 3] =
    [("vad", Segmentation::Vad), ("pauses", Segmentation::Pauses), ("timestamps", Segmentation::Timestamps)];

impl Decoding {
    /// Whether one window is decoded after the other.
    pub fn is_sequential(&self) -> bool {
        self.segmentation == Segmentation::Timestamps
    }

    /// Refuses arguments that have no effect beside the others; `live` is standard input.
    pub fn validate(&self, live: bool) -> Result<(), Failure> {
        let refused = |text: &str| Err(Failure::BadInput(text.into()));
        if self.vad_threshold.is_some() && self.segmentation != Segmentation::Vad {
            return refused("--vad-threshold is for `--segmentation vad`: leave it out");
        }
        if self.no_context && self.segmentation != Segmentation::Timestamps {
            return refused("--no-context is for `--segmentation timestamps`: the other windows have no context");
        }
        if self.batch_size.is_some() && (live || self.segmentation == Segmentation::Timestamps) {
            return refused(
                "--batch-size is for windows that are decoded together: here one follows the other, so leave it out",
            );
        }
        if self.best_of.is_some() && self.temperatures.iter().all(|temperature| *temperature == 0.0) {
            return refused("--best-of is for temperatures above 0: leave it out, or give --temperatures");
        }
        if live && (self.segmentation != Segmentation::Vad || self.prefix.is_some()) {
            return refused(
                "standard input is transcribed while it arrives, by voice activity: leave out --segmentation and --prefix",
            );
        }
        Ok(())
    }

    /// Refuses a segmentation with a model that is given its pieces by a reader.
    pub fn validate_for_reader(&self, reader: &str) -> Result<(), Failure> {
        if self.segmentation == Segmentation::Pauses {
            return Err(Failure::BadInput(format!(
                "the model reads `{reader}`, whose reader divides recordings: leave out --segmentation"
            )));
        }
        Ok(())
    }

    /// Returns the length of the window in seconds, if one is given.
    pub fn window_s(&self) -> Option<f64> {
        match self.window {
            Window::Seconds(seconds) => Some(seconds),
            Window::OfModel | Window::Longest => None,
        }
    }

    /// Returns the options for a language and a task, with or without the times of words.
    pub fn options(&self, language: Option<&str>, task: Option<&str>, words: bool) -> TranscribeOptions {
        let language = match language {
            None => Language::OfModel,
            Some("auto") => Language::Detected,
            Some(code) => Language::Code(code.to_lowercase()),
        };
        let (usual, usual_vad) = (TranscribeOptions::default(), VadOptions::default());
        TranscribeOptions {
            language,
            task: task.map(str::to_owned),
            segmentation: self.segmentation,
            window: self.window,
            batch_size: self.batch_size.unwrap_or(usual.batch_size),
            vad: VadOptions { threshold: self.vad_threshold.unwrap_or(usual_vad.threshold), ..usual_vad },
            beams: self.beams,
            patience: self.patience,
            length_penalty: self.length_penalty,
            best_of: self.best_of.unwrap_or(usual.best_of),
            temperatures: self.temperatures.clone(),
            compression_ratio_threshold: Some(self.compression_ratio_threshold),
            logprob_threshold: Some(self.logprob_threshold),
            no_speech_threshold: Some(self.no_speech_threshold),
            initial_prompt: self.initial_prompt.clone(),
            hotwords: self.hotwords.clone(),
            prefix: self.prefix.clone(),
            condition_on_previous: !self.no_context,
            words,
            seed: self.seed,
        }
    }
}

fn window(text: &str) -> Result<Window, String> {
    match (text, text.parse()) {
        ("model", _) => Ok(Window::OfModel),
        ("longest", _) => Ok(Window::Longest),
        (_, Ok(seconds)) => Ok(Window::Seconds(seconds)),
        _ => Err("give `model`, `longest` or a number of seconds".into()),
    }
}
