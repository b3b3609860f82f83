//! Samples of speech and text, from a synthesiser or a manifest, ready for a Whisper.

use crate::{Alignment, ConfigError, Experiment, SourceConfig};
use std::path::PathBuf;
use undertone_data::audio::{self, SAMPLE_RATE};
use undertone_data::cw::{CwError, CwSample, CwSynth, morse};
use undertone_data::loader::{Dataset, SampleError};
use undertone_data::manifest::{Entry, Manifest, ManifestError};
use undertone_model::whisper::{PretrainedWhisper, TokenizerError, WhisperTokenizer};

/// One sample: what is heard, and the tokens it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSample {
    /// What a person would call it.
    pub name: String,
    /// 16 kHz, mono.
    pub audio: Vec<f32>,
    /// What it says.
    pub text: String,
    /// Prompt, text and end.
    pub tokens: Vec<u32>,
    /// How many of the tokens are the prompt.
    pub prompt: usize,
    /// Targets from known timing, where they are wanted.
    pub alignment: Option<Alignment>,
    /// A number of its own for this sample in this epoch: what else is random about it comes from it.
    pub draw: u64,
}

/// Why a sample or a dataset is unusable.
#[derive(Debug, thiserror::Error)]
pub enum SpeechError {
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The synthesiser's configuration makes no sense.
    #[error(transparent)]
    Cw(#[from] CwError),
    /// A stage of the curriculum makes no sense.
    #[error(transparent)]
    Stage(#[from] ConfigError),
    /// A text does not fit the vocabulary or the decoder.
    #[error("sample `{name}`: {source}")]
    Text {
        /// The sample.
        name: String,
        /// Why.
        source: TokenizerError,
    },
    /// Audio longer than the model's window.
    #[error(
        "sample `{name}` is {seconds:.2} s long and the model hears {window:.2} s at once: cut it into segments with start and end"
    )]
    TooLong {
        /// The sample.
        name: String,
        /// Its length.
        seconds: f64,
        /// The model's window.
        window: f64,
    },
}

/// Samples from one source.
pub struct SpeechDataset {
    origin: Origin,
    tokens: Tokens,
    /// The longest audio, in samples.
    window: usize,
    aligned: bool,
    seed: u64,
}

/// Clips of a synthesiser that are looked at for the longest text.
const DRAWN: usize = 64;

enum Origin {
    Cw { curriculum: Box<Curriculum>, samples: usize },
    Manifest { path: PathBuf, entries: Vec<Entry> },
}

/// Synthesisers by epoch.
struct Curriculum {
    /// The first epoch after each stage, and the stage's synthesiser.
    stages: Vec<(u64, CwSynth)>,
    /// The one for all epochs after the stages.
    rest: CwSynth,
}

impl Curriculum {
    fn new(source: &SourceConfig, seed: u64) -> Result<Self, SpeechError> {
        let mut stages = Vec::with_capacity(source.stages.len());
        let mut end = 0;
        for (index, stage) in source.stages.iter().enumerate() {
            end += stage.epochs;
            stages.push((end, CwSynth::new(source.stage(index)?, seed)?));
        }
        Ok(Self { stages, rest: CwSynth::new(source.cw.clone(), seed)? })
    }

    fn at(&self, epoch: u64) -> &CwSynth {
        self.stages.iter().find(|(end, _)| epoch < *end).map_or(&self.rest, |(_, synth)| synth)
    }
}

/// How text becomes tokens.
struct Tokens {
    tokenizer: WhisperTokenizer,
    generation: undertone_model::whisper::GenerationConfig,
    language: String,
    task: String,
    /// The decoder's positions.
    positions: usize,
}

impl SpeechDataset {
    /// The samples of `source` for a model; `seed` sets this split apart from others.
    ///
    /// # Errors
    /// When the manifest is unusable, or a text in it does not fit the model: everything that can be known without
    /// decoding audio.
    pub fn new(
        experiment: &Experiment,
        source: &SourceConfig,
        whisper: &PretrainedWhisper,
        seed: u64,
    ) -> Result<Self, SpeechError> {
        let tokens = Tokens {
            tokenizer: whisper.tokenizer.clone(),
            generation: whisper.generation.clone(),
            language: experiment.data.language.clone(),
            task: experiment.data.task.clone(),
            positions: whisper.config.max_target_positions,
        };
        let origin = match &source.path {
            Some(path) => {
                let entries = Manifest::load(path, true)?.entries;
                for entry in &entries {
                    let (language, task) = (entry.language.as_deref(), entry.task.as_deref());
                    tokens.encode(&entry_name(path, entry), &entry.text, language, task)?;
                }
                Origin::Manifest { path: path.clone(), entries }
            }
            None => {
                let alphabet: String = morse::alphabet().collect();
                let named = |source| SpeechError::Text { name: "the Morse alphabet".into(), source };
                tokens.tokenizer.encode(&alphabet).map_err(named)?;
                tokens.encode("an empty sample", "", None, None)?;
                Origin::Cw { curriculum: Box::new(Curriculum::new(source, seed)?), samples: source.samples }
            }
        };
        let window = whisper.config.max_frames() * 160;
        Ok(Self { origin, tokens, window, aligned: experiment.loss.alignment.is_on(), seed })
    }

    /// A sample as demanding as any that can come: its audio is as long as the longest, and so is its text.
    ///
    /// Of a manifest both are known, but for the length of audio that has no `end`: that may fill the window. Of a
    /// synthesiser the longest clip is what its configuration allows, and the longest text that of `DRAWN` clips of each
    /// stage, with a quarter more for what was not drawn.
    ///
    /// # Errors
    /// When a sample cannot be made.
    pub fn most_demanding(&self) -> Result<SpeechSample, SampleError> {
        match &self.origin {
            Origin::Manifest { path, entries } => {
                let mut longest = (Vec::new(), 0);
                let mut audio = 0;
                for entry in entries {
                    let name = entry_name(path, entry);
                    let (language, task) = (entry.language.as_deref(), entry.task.as_deref());
                    let (tokens, prompt) = self.tokens.encode(&name, &entry.text, language, task)?;
                    if tokens.len() > longest.0.len() {
                        longest = (tokens, prompt);
                    }
                    let seconds = entry.end.map(|end| end - entry.start.unwrap_or(0.0));
                    let length = seconds.map_or(self.window, |s| (s * f64::from(SAMPLE_RATE)).ceil() as usize);
                    audio = audio.max(length.min(self.window));
                }
                let (tokens, prompt) = longest;
                let (name, text) = ("the longest of the manifest".into(), String::new());
                Ok(SpeechSample { name, audio: vec![0.0; audio], text, tokens, prompt, alignment: None, draw: 0 })
            }
            Origin::Cw { curriculum, samples } => {
                let begins = std::iter::once(0).chain(curriculum.stages.iter().map(|(end, _)| *end));
                let mut longest: Option<SpeechSample> = None;
                for (epoch, index) in begins.flat_map(|epoch| (0..DRAWN.min(*samples)).map(move |i| (epoch, i))) {
                    let sample = self.get(index, epoch)?;
                    if longest.as_ref().is_none_or(|found| sample.tokens.len() > found.tokens.len()) {
                        longest = Some(sample);
                    }
                }
                let mut sample = longest.ok_or("a synthesiser makes at least one sample")?;
                let synths = curriculum.stages.iter().map(|(_, synth)| synth).chain([&curriculum.rest]);
                let seconds = synths.map(|synth| synth.config().duration_s[1]).fold(0.0, f32::max);
                let audio = (f64::from(seconds) * f64::from(SAMPLE_RATE)).ceil() as usize;
                sample.audio.resize(audio.max(sample.audio.len()).min(self.window), 0.0);
                // The decoder reads all tokens but the last, which is the end.
                let tokens = (sample.tokens.len() * 5 / 4).min(self.tokens.positions + 1);
                let last = sample.tokens[sample.tokens.len().saturating_sub(2)];
                let end = sample.tokens.pop();
                sample.tokens.resize(tokens.max(sample.tokens.len() + 1) - 1, last);
                sample.tokens.extend(end);
                Ok(sample)
            }
        }
    }

    fn synthesise(&self, index: usize, clip: CwSample, draw: u64) -> Result<SpeechSample, SpeechError> {
        let name = self.name(index);
        let (tokens, prompt) = self.tokens.encode(&name, &clip.text, None, None)?;
        self.check_length(&name, clip.audio.len())?;
        let alignment = self.aligned.then(|| {
            let token =
                |c: char| self.tokens.tokenizer.encode(&c.to_string()).ok().and_then(|ids| ids.first().copied());
            let blank = self.tokens.tokenizer.no_speech().unwrap_or_else(|| self.tokens.tokenizer.end());
            Alignment::new(&clip.marks, clip.audio.len() / 320, blank, |c| token(c).unwrap_or(blank))
        });
        Ok(SpeechSample { name, audio: clip.audio, text: clip.text, tokens, prompt, alignment, draw })
    }

    fn read(&self, index: usize, entry: &Entry, draw: u64) -> Result<SpeechSample, SampleError> {
        let name = self.name(index);
        let audio = audio::load_segment(&entry.audio, entry.start, entry.end)?;
        self.check_length(&name, audio.len())?;
        let (tokens, prompt) =
            self.tokens.encode(&name, &entry.text, entry.language.as_deref(), entry.task.as_deref())?;
        Ok(SpeechSample { name, audio, text: entry.text.clone(), tokens, prompt, alignment: None, draw })
    }

    fn check_length(&self, name: &str, samples: usize) -> Result<(), SpeechError> {
        if samples <= self.window {
            return Ok(());
        }
        let seconds = |n: usize| n as f64 / f64::from(SAMPLE_RATE);
        Err(SpeechError::TooLong { name: name.to_owned(), seconds: seconds(samples), window: seconds(self.window) })
    }
}

impl Dataset for SpeechDataset {
    type Item = SpeechSample;

    fn len(&self) -> usize {
        match &self.origin {
            Origin::Cw { samples, .. } => *samples,
            Origin::Manifest { entries, .. } => entries.len(),
        }
    }

    fn get(&self, index: usize, epoch: u64) -> Result<SpeechSample, SampleError> {
        let ordinal = epoch * self.len() as u64 + index as u64;
        let draw = mixed(self.seed ^ mixed(ordinal));
        match &self.origin {
            Origin::Cw { curriculum, .. } => Ok(self.synthesise(index, curriculum.at(epoch).sample(ordinal), draw)?),
            Origin::Manifest { entries, .. } => self.read(index, &entries[index], draw),
        }
    }

    fn name(&self, index: usize) -> String {
        match &self.origin {
            Origin::Cw { .. } => format!("cw {index}"),
            Origin::Manifest { path, entries } => entry_name(path, &entries[index]),
        }
    }
}

/// SplitMix64's finaliser (Steele et al., 2014): neighbouring numbers become unrelated ones.
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Tokens {
    /// Prompt, text and end, and the prompt's length.
    fn encode(
        &self,
        name: &str,
        text: &str,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<(Vec<u32>, usize), SpeechError> {
        let named = |source| SpeechError::Text { name: name.to_owned(), source };
        let language = language.unwrap_or(&self.language);
        let task = task.unwrap_or(&self.task);
        let mut tokens = self.tokenizer.prompt(&self.generation, Some(language), Some(task)).map_err(named)?;
        let prompt = tokens.len();
        tokens.extend(self.tokenizer.encode(text).map_err(named)?);
        tokens.push(self.tokenizer.end());
        // The decoder reads all tokens but the last.
        if tokens.len() - 1 > self.positions {
            let text = text.to_owned();
            return Err(named(TokenizerError::TooLong { tokens: tokens.len() - 1, room: self.positions, text }));
        }
        Ok((tokens, prompt))
    }
}

fn entry_name(manifest: &std::path::Path, entry: &Entry) -> String {
    let folder = manifest.parent().unwrap_or(std::path::Path::new(""));
    let mut name = entry.audio.strip_prefix(folder).unwrap_or(&entry.audio).display().to_string();
    if let Some(start) = entry.start {
        name.push_str(&format!(" from {start} s"));
    }
    name
}
