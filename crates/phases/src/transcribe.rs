//! Transcription of audio.

use crate::hash::hex;
use crate::reading::{ReaderError, Reading};
use crate::{ModelConfig, SourceError};
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::path::Path;
use undertone_data::audio::{self, AudioError};
use undertone_data::features::{FeatureError, LogMel};
use undertone_data::reader::{Piece, Reader};
use undertone_data::text::append;
use undertone_metrics::cer;
use undertone_model::whisper::{PretrainedWhisper, TokenizerError, Whisper};
use undertone_store::frozen_checksum;

/// Whisper for transcription of audio of any length.
pub struct Transcriber {
    whisper: PretrainedWhisper,
    reading: Reading,
    log_mel: LogMel,
    language: Option<String>,
    task: Option<String>,
    prompt: Vec<u32>,
    device: Device,
}

/// Transcription of a stretch of audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// Position in the audio, in samples of 16 kHz.
    pub samples: Range<usize>,
    /// Characters, each with the model's confidence.
    pub characters: Vec<(char, f32)>,
    /// Whether it starts with a new word. Otherwise it continues the last word of the passage before.
    pub begins_word: bool,
}

/// Replacement of a character with low confidence.
const UNREAD: char = '_';

impl Passage {
    /// Returns its text, with `_` for each character with a confidence below `least_confidence`.
    pub fn text(&self, least_confidence: f32) -> String {
        let read = |(character, confidence): &(char, f32)| match *confidence < least_confidence && *character != ' ' {
            true => UNREAD,
            false => *character,
        };
        self.characters.iter().map(read).collect()
    }

    /// Appends its text to that of the passages before.
    pub fn append_to(&self, text: &mut String, least_confidence: f32) {
        let own = self.text(least_confidence);
        if self.begins_word { append(text, &own) } else { text.push_str(&own) }
    }
}

/// Reason why audio cannot be transcribed.
#[derive(Debug, thiserror::Error)]
pub enum TranscribeError {
    /// The model is not available.
    #[error(transparent)]
    Model(#[from] SourceError),
    /// Whisper has no features with the model's number of mel bins.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The language or task is not in the model's vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The audio cannot be read.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// The model cannot read what its folder says that it reads.
    #[error(transparent)]
    Reader(#[from] ReaderError),
}

impl Transcriber {
    /// Loads the Whisper `name` (see [`ModelConfig::named`]) onto a device: a folder, a run's directory or a bundled
    /// model. Language and task are for multilingual models only.
    ///
    /// # Errors
    /// When there is no such Whisper, or it does not support the language.
    pub fn load(
        name: &Path,
        device: &Device,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Self, TranscribeError> {
        Self::new(ModelConfig::named(name).load(device, 0)?, device, language, task)
    }

    /// Returns a transcriber with a model that is already loaded.
    ///
    /// # Errors
    /// When the model does not support the language, or cannot read what its folder says that it reads.
    pub fn new(
        whisper: PretrainedWhisper,
        device: &Device,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Self, TranscribeError> {
        let prompt = whisper.tokenizer.prompt(&whisper.generation, language, task)?;
        let (log_mel, reading) = (LogMel::new(whisper.config.num_mel_bins)?, Reading::of(&whisper)?);
        let (language, task) = (language.map(str::to_owned), task.map(str::to_owned));
        Ok(Self { whisper, reading, log_mel, language, task, prompt, device: device.clone() })
    }

    /// Transcribes an audio file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(&self, path: &Path) -> Result<String, TranscribeError> {
        Ok(self.audio(&audio::load(path)?))
    }

    /// Transcribes 16 kHz mono audio. Audio longer than the model's window is cut in pauses, or
    /// where the model's reader cuts it.
    pub fn audio(&self, audio: &[f32]) -> String {
        self.prompted(audio, &self.prompt)
    }

    /// As [`Transcriber::audio`], in another language or for another task, if given. If the model does not support
    /// them, its own prompt is used.
    pub(crate) fn audio_in(&self, audio: &[f32], language: Option<&str>, task: Option<&str>) -> String {
        self.prompted(audio, &self.prompt_in(language, task))
    }

    fn prompt_in(&self, language: Option<&str>, task: Option<&str>) -> Vec<u32> {
        let (language, task) = (language.or(self.language.as_deref()), task.or(self.task.as_deref()));
        let prompt = self.whisper.tokenizer.prompt(&self.whisper.generation, language, task);
        prompt.unwrap_or_else(|_| self.prompt.clone())
    }

    /// Returns the reader of its model; `None` for a model of speech.
    pub fn reader(&self) -> Option<&dyn Reader> {
        self.reading.reader.as_deref()
    }

    /// Returns the transcription of 16 kHz mono audio, window by window.
    pub fn passages<'a>(&'a self, audio: &'a [f32]) -> impl Iterator<Item = Passage> + 'a {
        self.prompted_passages(audio, self.prompt.clone())
    }

    fn prompted(&self, audio: &[f32], prompt: &[u32]) -> String {
        self.prompted_passages(audio, prompt.to_vec()).fold(String::new(), |mut text, passage| {
            passage.append_to(&mut text, 0.0);
            text
        })
    }

    fn prompted_passages<'a>(&'a self, audio: &'a [f32], prompt: Vec<u32>) -> impl Iterator<Item = Passage> + 'a {
        self.pieces(audio).into_iter().map(move |Piece { samples, begins_word }| {
            let characters = self.piece(&audio[samples.clone()], &prompt);
            Passage { samples, characters, begins_word }
        })
    }

    /// Returns the length of the model's window, in samples.
    pub(crate) fn window(&self) -> usize {
        self.reading.window
    }

    /// Cuts longer audio into pieces that fit the model's window.
    pub(crate) fn pieces(&self, audio: &[f32]) -> Vec<Piece> {
        self.reading.pieces(audio)
    }

    /// Transcribes samples that fit the window.
    pub(crate) fn passage(&self, audio: &[f32], samples: Range<usize>, begins_word: bool) -> Passage {
        let characters = self.piece(&audio[samples.clone()], &self.prompt);
        Passage { samples, characters, begins_word }
    }

    /// Returns a checksum of everything besides the audio that its texts depend on: the values of the weights (not
    /// their file, nor whether they are trained), dimensions, vocabulary, prompt and decoding settings. The device is
    /// not part of it, so that a run that is resumed on another device finds earlier transcriptions.
    pub(crate) fn fingerprint(&self) -> String {
        let whisper = &self.whisper;
        let weights = frozen_checksum(&whisper.model.clone().no_grad());
        let threshold = whisper.generation.logprob_threshold.map(|least| format!(" {least}")).unwrap_or_default();
        let rest = format!("{:?} {:?} {:?}{threshold}", whisper.config, self.prompt, whisper.generate_options());
        let rest = Sha256::new().chain_update(whisper.tokenizer.to_bytes()).chain_update(rest);
        format!("{weights:08x} {}", hex(rest))
    }

    /// Returns the characters of audio that fits the window, without surrounding spaces. If the model has low confidence
    /// and its reader finds a signal in the audio, that signal alone is transcribed as well, and the better
    /// transcription is used.
    fn piece(&self, audio: &[f32], prompt: &[u32]) -> Vec<(char, f32)> {
        let mut read = self.read(audio, prompt);
        let doubtful = self.reader().filter(|_| read.is_doubtful());
        if let Some(signal) = doubtful.and_then(|reader| reader.signal(audio)) {
            let alone = self.read(&signal, prompt);
            if alone.replaces(&read) {
                read = alone;
            }
        }
        read.characters
    }

    fn read(&self, audio: &[f32], prompt: &[u32]) -> Transcript {
        let Whisper { encoder, decoder } = &self.whisper.model;
        let mel = self.log_mel.features_padded(audio, self.window());
        let mel = Tensor::from_data(TensorData::new(mel.data, [1, mel.bins, mel.frames]), &self.device);
        let states = encoder.forward(mel);
        let options = self.whisper.generate_options();
        let cache = decoder.cache(states.clone(), None);
        let tokens = decoder.generate(cache, &[prompt.to_vec()], &options).pop().unwrap_or_default();
        let confidences = decoder.probabilities(states, prompt, &tokens);
        let mean_log = mean_log(&confidences);
        if self.whisper.generation.logprob_threshold.is_some_and(|least| mean_log < least) {
            return Transcript { characters: Vec::new(), mean_log };
        }
        let text = self.whisper.tokenizer.decode(&tokens);
        let so_far = (1..=tokens.len()).map(|count| self.whisper.tokenizer.decode(&tokens[..count]));
        let characters = with_confidences(&text, so_far.zip(confidences));
        let first = characters.iter().position(|(character, _)| !character.is_whitespace()).unwrap_or(characters.len());
        let last =
            characters.iter().rposition(|(character, _)| !character.is_whitespace()).map_or(first, |last| last + 1);
        Transcript { characters: characters[first..last].to_vec(), mean_log }
    }
}

/// Transcription of a window.
struct Transcript {
    /// Characters, each with the model's confidence.
    characters: Vec<(char, f32)>,
    /// Mean log probability of the tokens.
    mean_log: f64,
}

/// Mean log probability below which confidence is low. For recordings that are transcribed without error it is higher.
const DOUBT: f64 = -0.02;
/// Mean log probability below which a transcription may be replaced by a different text. Above it, the signal alone may
/// be a stronger one beside the transcribed one.
const MUCH_DOUBT: f64 = -0.25;
/// Character error rate below which two texts count as transcriptions of the same signal.
const MOST_CHANGED: f64 = 0.4;
/// Mean log probability above which the transcription of the signal alone is used if there is no other: speech and
/// music may have parts that resemble a signal.
const SURE: f64 = -0.1;

impl Transcript {
    fn is_doubtful(&self) -> bool {
        self.characters.is_empty() || self.mean_log < DOUBT
    }

    /// Whether this transcription of the signal alone replaces `other`.
    fn replaces(&self, other: &Self) -> bool {
        if self.characters.is_empty() || other.characters.is_empty() {
            return !self.characters.is_empty() && self.mean_log > SURE;
        }
        let [mine, others] =
            [self, other].map(|reading| reading.characters.iter().map(|(c, _)| *c).collect::<String>());
        let same_text = cer(&others, &mine).rate().is_some_and(|rate| rate < MOST_CHANGED);
        self.mean_log > other.mean_log && (same_text || other.mean_log < MUCH_DOUBT)
    }
}

/// Returns the mean of the logarithms; 0 for an empty slice.
fn mean_log(probabilities: &[f32]) -> f64 {
    let sum: f64 = probabilities.iter().map(|probability| f64::from(*probability).ln()).sum();
    sum / probabilities.len().max(1) as f64
}

/// Returns the characters of a text, each with the confidence of the token that completes it. `so_far` is the text of
/// the tokens up to and including each token, with its confidence. There an incomplete character is decoded differently
/// or not at all.
fn with_confidences(text: &str, so_far: impl Iterator<Item = (String, f32)>) -> Vec<(char, f32)> {
    let mut characters = Vec::new();
    for (spelled, confidence) in so_far {
        let complete = text.chars().zip(spelled.chars()).take_while(|(due, found)| due == found);
        let new = complete.skip(characters.len()).map(|(character, _)| (character, confidence));
        characters.extend(new.collect::<Vec<_>>());
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speech::tests::two_seconds;
    use undertone_cw::{CwConfig, CwFarnsworth, CwHand, CwSynth, CwText};
    use undertone_model::whisper::{GenerationConfig, WhisperTokenizer};
    use undertone_store::load_parameters;

    fn untrained(device: &Device) -> PretrainedWhisper {
        let tokenizer = WhisperTokenizer::of_characters("ABC", &["en", "de"]).expect("a tokenizer");
        PretrainedWhisper::init(two_seconds(), tokenizer, GenerationConfig::new(true), device).expect("a model")
    }

    #[test]
    fn another_language_or_task_is_asked_for_as_their_own_transcriber_asks() {
        let device = Device::flex();
        let whisper = untrained(&device);
        let [english, german, translating] =
            [("en", "transcribe"), ("de", "transcribe"), ("de", "translate")].map(|(language, task)| {
                Transcriber::new(whisper.clone(), &device, Some(language), Some(task)).expect("ready")
            });
        assert_eq!(english.prompt_in(None, None), english.prompt);
        assert_eq!(english.prompt_in(Some("de"), None), german.prompt);
        assert_eq!(english.prompt_in(Some("de"), Some("translate")), translating.prompt);
        assert_eq!(german.prompt_in(None, Some("translate")), translating.prompt);
        assert_eq!(
            german.prompt_in(Some("xx"), None),
            german.prompt,
            "what the model does not know is refused elsewhere"
        );
        assert!(english.prompt != german.prompt && german.prompt != translating.prompt);
    }

    #[test]
    fn a_window_that_the_model_doubts_is_left_out() {
        let device = Device::flex();
        let whisper = ModelConfig::default().load(&device, 0).expect("the bundled model");
        let mut transcriber = Transcriber::new(whisper, &device, None, None).expect("a transcriber");
        let config = CwConfig { clean: 1.0, duration_s: [5.0, 5.0], ..CwConfig::default() };
        let audio = CwSynth::new(config, 3).expect("a synthesiser").sample(0).audio;
        let sure = transcriber.audio(&audio);
        assert!(sure.len() > 2, "{sure}");
        transcriber.whisper.generation.logprob_threshold = Some(-2.0);
        assert_eq!(transcriber.audio(&audio), sure);
        // No probability is above 1.
        transcriber.whisper.generation.logprob_threshold = Some(1e-3);
        assert_eq!(transcriber.audio(&audio), "");
        assert!((mean_log(&[0.5, 0.125]) - 0.25_f64.ln()).abs() < 1e-9 && mean_log(&[]) == 0.0);
    }

    #[test]
    fn a_station_is_read_beside_another_one() {
        let device = Device::flex();
        let whisper = ModelConfig::default().load(&device, 0).expect("the bundled model");
        let transcriber = Transcriber::new(whisper, &device, None, None).expect("a transcriber");
        let station = |pitch: f32, text: &str| {
            let config = CwConfig {
                text: CwText { fixed: vec![text.into()], ..CwText::default() },
                pitch_hz: [pitch; 2],
                wpm: [22.0; 2],
                farnsworth: CwFarnsworth { probability: 0.0, ..CwFarnsworth::default() },
                hand: CwHand { probability: 0.0, ..CwHand::default() },
                duration_s: [1.0, 7.9],
                clean: 1.0,
                noise_only: 0.0,
                ..CwConfig::default()
            };
            CwSynth::new(config, 3).expect("a synthesiser").sample(0)
        };
        let (clip, other) = (station(600.0, "THE WIND WAS"), station(800.0, "MY DOG IS OLD"));
        let both: Vec<f32> = clip.audio.iter().zip(&other.audio).map(|(a, b)| a + 0.3 * b).collect();
        let alone = transcriber.audio(&clip.audio);
        assert!(alone.len() > 2, "{alone}");
        assert_eq!(transcriber.audio(&both), alone);
        assert_ne!(text_of(&transcriber.read(&both, &transcriber.prompt)), alone, "both tones at once are not read");
    }

    fn text_of(reading: &Transcript) -> String {
        reading.characters.iter().map(|(character, _)| character).collect()
    }

    #[test]
    fn a_character_has_the_confidence_of_the_token_that_completes_it() {
        let so_far = [("a", 0.9), ("a\u{fffd}", 0.5), ("aé", 0.4), ("aé bc", 0.3)];
        let found = with_confidences("aé bc", so_far.map(|(text, p)| (text.to_owned(), p)).into_iter());
        assert_eq!(found, [('a', 0.9), ('é', 0.4), (' ', 0.3), ('b', 0.3), ('c', 0.3)]);
    }

    #[test]
    fn a_fingerprint_tells_what_is_heard_differently_and_nothing_else() {
        let device = Device::flex();
        let whisper = untrained(&device);
        let of = |whisper: PretrainedWhisper, language| {
            Transcriber::new(whisper, &device, Some(language), Some("transcribe")).expect("ready").fingerprint()
        };
        let known = of(whisper.clone(), "en");
        let mut frozen = whisper.clone();
        frozen.model = frozen.model.no_grad();
        assert_eq!(of(frozen, "en"), known, "what is trained of it is no matter");
        assert_ne!(of(whisper.clone(), "de"), known, "another language");
        let mut parameters = undertone_store::parameters(&whisper.model);
        let changed = parameters.values_mut().last().expect("parameters");
        changed.data[0] = f32::from_bits(changed.data[0].to_bits() ^ 1);
        let mut other = whisper.clone();
        other.model = load_parameters(other.model, |name| Ok(parameters[name].clone())).expect("loaded");
        assert_ne!(of(other, "en"), known, "one bit of a weight");
        let mut whisper = whisper;
        whisper.generation.suppress_tokens.push(3);
        assert_ne!(of(whisper, "en"), known, "a character that it never writes");
    }
}
