//! Transcription with one model.

use crate::decoded::Decoded;
use crate::error::TranscribeError;
use crate::options::{Language, Segmentation, TranscribeOptions, Window};
use crate::pieces::{AudioPiece, Divider};
use crate::prompt_parts::PromptParts;
use crate::reading::Reading;
use crate::transcript::{DetectedLanguage, Segment, Transcript, Word};
use crate::vad::VadNetwork;
use crate::words::{TimedWord, WindowText, timed_words};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::OnceLock;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::features::LogMel;
use undertone_data::reader::{Piece, Reader};
use undertone_model::frozen::hold_whisper_exactly;
use undertone_model::whisper::PretrainedWhisper;
use undertone_ops::runs_on_host;
use undertone_store::frozen_checksum;

/// A Whisper that transcribes audio of any length.
pub struct Transcriber {
    pub(crate) whisper: PretrainedWhisper,
    pub(crate) reading: Reading,
    pub(crate) log_mel: LogMel,
    pub(crate) options: TranscribeOptions,
    pub(crate) parts: PromptParts,
    pub(crate) device: Device,
    vad: OnceLock<VadNetwork>,
}

/// A piece that waits to be decoded.
pub(crate) struct Waiting {
    /// The recording that it belongs to.
    pub recording: usize,
    /// Whether it is the recording's first piece.
    pub first: bool,
    pub piece: AudioPiece,
    /// Language, if it is known.
    pub language: Option<Option<DetectedLanguage>>,
    /// Encoder's states, `[1, time, d_model]`, if they are computed already.
    pub states: Option<Tensor<3>>,
}

/// Number of pieces whose encoder's states are computed before their batch is complete.
const ENCODED_TOGETHER: usize = 4;

/// Samples of a recording that are divided at a time: a minute.
const BLOCK: usize = 60 * SAMPLE_RATE as usize;

impl Transcriber {
    /// Returns a transcriber with a model that is loaded.
    ///
    /// # Errors
    /// If the model does not know the language or task, cannot read what its folder says that it reads, or lacks what the
    /// options ask for.
    pub fn new(
        whisper: PretrainedWhisper,
        device: &Device,
        mut options: TranscribeOptions,
    ) -> Result<Self, TranscribeError> {
        options.validate(whisper.generate_options().beams)?;
        let (log_mel, mut reading) = (LogMel::new(whisper.config.num_mel_bins)?, Reading::of(&whisper)?);
        reading.window = options.window.longest_piece(reading.window)?;
        if let Some(reader) = &reading.reader {
            options.validate_for_reader(reader.name())?;
            // In doubt it has its own means.
            options.temperatures.truncate(1);
        }
        if !whisper.generation.is_multilingual {
            options.validate_for_one_language()?;
        }
        let parts = PromptParts::new(&whisper, &options)?;
        let whisper = hold_whisper_exactly(whisper);
        let vad = OnceLock::new();
        let this = Self { whisper, reading, log_mel, options, parts, device: device.clone(), vad };
        this.check_language_and_task()?;
        let first = this.whisper.tokenizer.timestamp_begin();
        let times = first.is_some_and(|first| this.whisper.config.vocab_size > first as usize);
        if this.options.segmentation == Segmentation::Timestamps && this.reader().is_none() && !times {
            return Err(TranscribeError::NoTimestamps);
        }
        if this.is_sequential() && this.whisper.tokenizer.vocab_size() > this.whisper.tokenizer.times().end as usize {
            tracing::warn!("words that were added to the vocabulary are not written with `--segmentation timestamps`");
        }
        Ok(this)
    }

    fn check_language_and_task(&self) -> Result<(), TranscribeError> {
        let language = self.known_language().flatten().map(|language| language.code);
        self.start(language.as_deref(), None)?;
        Ok(())
    }

    /// Whether its model knows several languages.
    pub fn is_multilingual(&self) -> bool {
        self.whisper.generation.is_multilingual
    }

    /// Changes the language and the task of the recordings that follow, for a multilingual model.
    ///
    /// # Errors
    /// If the model does not know them. The earlier ones stay then.
    pub fn set_language_and_task(&mut self, language: Language, task: Option<String>) -> Result<(), TranscribeError> {
        let language = std::mem::replace(&mut self.options.language, language);
        let task = std::mem::replace(&mut self.options.task, task);
        self.check_language_and_task().inspect_err(|_| {
            self.options.language = language;
            self.options.task = task;
        })
    }

    /// Returns the reader of its model; `None` for a model of speech.
    pub fn reader(&self) -> Option<&dyn Reader> {
        self.reading.reader.as_deref()
    }

    /// Returns the options.
    pub fn options(&self) -> &TranscribeOptions {
        &self.options
    }

    /// Returns the text of 16 kHz mono audio.
    pub fn audio(&self, audio: &[f32]) -> String {
        self.transcript(audio).text(0.0)
    }

    /// Returns the transcript of 16 kHz mono audio.
    pub fn transcript(&self, audio: &[f32]) -> Transcript {
        self.transcript_in(audio, None, None)
    }

    /// As [`transcript`](Self::transcript), in another language or for another task, if given. If the model does not
    /// support them, its own are used.
    pub fn transcript_in(&self, audio: &[f32], language: Option<&str>, task: Option<&str>) -> Transcript {
        if self.is_sequential() {
            let mut given = Some(audio.to_vec());
            let read = || Ok::<_, Infallible>(given.take().filter(|audio| !audio.is_empty()));
            let Ok(transcript) = self.sequential(read, &mut |_, _| {});
            return transcript;
        }
        let task = task.filter(|task| self.start(language, Some(task)).is_ok());
        let given = language.filter(|code| self.start(Some(code), task).is_ok());
        let given = given.map(|code| Some(DetectedLanguage { code: code.to_owned(), probability: None }));
        let mut language = given.or_else(|| self.known_language());
        let mut transcript = Transcript { samples: audio.len(), ..Transcript::default() };
        let mut first = true;
        for pieces in self.divided(audio).chunks(self.options.batch_size) {
            let waiting = pieces.iter().map(|piece| Waiting {
                recording: 0,
                first: std::mem::take(&mut first),
                piece: piece.clone(),
                language: language.clone(),
                states: None,
            });
            for (found, segment) in self.windows(waiting.collect(), task) {
                language.get_or_insert(found);
                transcript.segments.extend(segment);
            }
        }
        transcript.language = language.flatten();
        transcript
    }

    /// Whether one window after the other is decoded.
    pub(crate) fn is_sequential(&self) -> bool {
        self.reader().is_none() && self.options.segmentation == Segmentation::Timestamps
    }

    /// Returns the division of a recording into pieces.
    pub(crate) fn divider(&self) -> Divider<'_> {
        Divider::new(&self.reading, &self.options, || self.vad())
    }

    /// Returns the network that finds speech.
    pub(crate) fn vad(&self) -> &VadNetwork {
        self.vad.get_or_init(VadNetwork::new)
    }

    fn divided(&self, audio: &[f32]) -> Vec<AudioPiece> {
        let mut divider = self.divider();
        // In blocks, because the network that finds speech holds its features of all that it is given at once.
        let mut pieces: Vec<AudioPiece> = audio.chunks(BLOCK).flat_map(|block| divider.push(block)).collect();
        pieces.extend(divider.finish());
        pieces
    }

    /// Returns the length of the model's window, in samples.
    pub(crate) fn window(&self) -> usize {
        self.reading.window
    }

    /// Returns the maximum length of a piece at the start of this audio, in samples.
    pub(crate) fn longest_piece(&self, audio: &[f32]) -> usize {
        self.reader().map_or(self.window(), |reader| reader.longest_piece(audio, self.window()))
    }

    /// Cuts longer audio into pieces that fit the model's window.
    pub(crate) fn pieces(&self, audio: &[f32]) -> Vec<Piece> {
        self.reading.pieces(audio)
    }

    /// Transcribes a piece of audio.
    pub(crate) fn segment(&self, audio: &[f32], samples: Range<usize>, begins_word: bool) -> Segment {
        self.segment_in(audio, samples, begins_word, self.known_language()).1
    }

    /// Transcribes a piece of audio in a language, which is detected if it is unknown. Returns it with the segment.
    pub(crate) fn segment_in(
        &self,
        audio: &[f32],
        samples: Range<usize>,
        begins_word: bool,
        language: Option<Option<DetectedLanguage>>,
    ) -> (Option<DetectedLanguage>, Segment) {
        let piece = AudioPiece::read(&self.reading, audio, Piece { samples: samples.clone(), begins_word });
        let waiting = Waiting { recording: 0, first: true, piece, language, states: None };
        let (language, segment) = self.windows(vec![waiting], None).pop().unwrap_or_default();
        (language, segment.unwrap_or(Segment { samples, begins_word, ..Segment::default() }))
    }

    /// Decodes pieces together. Returns each one's language, and its segment unless it has no speech.
    pub(crate) fn windows(
        &self,
        waiting: Vec<Waiting>,
        task: Option<&str>,
    ) -> Vec<(Option<DetectedLanguage>, Option<Segment>)> {
        let mut states: Vec<Tensor<3>> = waiting.iter().map_while(|waiting| waiting.states.clone()).collect();
        if states.len() < waiting.len() {
            states.push(self.encode_pieces(&waiting[states.len()..]));
        }
        let states = Tensor::cat(states, 0);
        let unknown = waiting.iter().any(|waiting| waiting.language.is_none());
        let detected = if unknown { self.detect(states.clone()) } else { Vec::new() };
        // Pieces of the recording whose first one is in this batch too have the language of that one.
        let language_of = |row: usize| match &waiting[row].language {
            Some(known) => known.clone(),
            None => {
                let first = waiting.iter().position(|other| other.recording == waiting[row].recording);
                detected.get(first.unwrap_or(row)).cloned()
            }
        };
        let languages: Vec<Option<DetectedLanguage>> = (0..waiting.len()).map(language_of).collect();
        let prompts = waiting.iter().zip(&languages).map(|(waiting, language)| {
            // A language that was detected is in the vocabulary, one that was given was checked.
            let start = self.start(language.as_ref().map(|language| language.code.as_str()), task).unwrap_or_default();
            self.prompt(&self.parts.initial, &start, waiting.first)
        });
        let prompts: Vec<Vec<u32>> = prompts.collect();
        let pieces: Vec<AudioPiece> = waiting.into_iter().map(|waiting| waiting.piece).collect();
        let codes: Vec<Option<&str>> =
            languages.iter().map(|language| language.as_ref().map(|language| language.code.as_str())).collect();
        let segments = self.decoded(&pieces, states, &prompts, &codes);
        languages.into_iter().zip(segments).collect()
    }

    /// Computes the encoder's states of the last pieces of a batch once there are a few, while the next ones are still looked
    /// for. Where the longest piece of a batch decides how long its windows are, they wait for all of it.
    pub(crate) fn encode_ahead(&self, batch: &mut [Waiting]) {
        let done = batch.iter().take_while(|waiting| waiting.states.is_some()).count();
        let new = &mut batch[done..];
        if new.len() < ENCODED_TOGETHER || self.options.window == Window::Longest {
            return;
        }
        let states = self.encode_pieces(new);
        for (row, waiting) in new.iter_mut().enumerate() {
            waiting.states = Some(states.clone().narrow(0, row, 1));
        }
    }

    /// Computes the encoder's states of pieces. On a CPU each thread has pieces of its own: together in every operation, threads
    /// would wait for each other, above all while another one looks for speech.
    fn encode_pieces(&self, waiting: &[Waiting]) -> Tensor<3> {
        let audio: Vec<&[f32]> = waiting.iter().map(|waiting| waiting.piece.given()).collect();
        let threads = if runs_on_host(&self.device) { rayon::current_num_threads() } else { 1 };
        let together = audio.len().div_ceil(threads).max(1);
        if together == audio.len() || self.options.window == Window::Longest {
            return self.encode(&audio);
        }
        Tensor::cat(audio.par_chunks(together).map(|audio| self.encode(audio)).collect(), 0)
    }

    fn decoded(
        &self,
        pieces: &[AudioPiece],
        states: Tensor<3>,
        prompts: &[Vec<u32>],
        languages: &[Option<&str>],
    ) -> Vec<Option<Segment>> {
        let mut decoded = self.decode(&states, prompts, None);
        for ((decoded, piece), prompt) in decoded.iter_mut().zip(pieces).zip(prompts) {
            self.read_signal_alone(decoded, &piece.audio, prompt);
            self.count_repeats(decoded, &piece.audio);
        }
        let words =
            if self.options.words { self.words(pieces, states, prompts, languages, &decoded) } else { Vec::new() };
        let mut words = words.into_iter();
        let segments = decoded.into_iter().zip(pieces).map(|(decoded, piece)| {
            let words = words.next().unwrap_or_default();
            if self.is_silent(&decoded) {
                return None;
            }
            Some(self.segment_of(decoded, piece.samples(), piece.begins_word, piece.words(words)))
        });
        segments.collect()
    }

    fn words(
        &self,
        pieces: &[AudioPiece],
        states: Tensor<3>,
        prompts: &[Vec<u32>],
        languages: &[Option<&str>],
        decoded: &[Decoded],
    ) -> Vec<Vec<TimedWord>> {
        let starts: Vec<&[u32]> = prompts.iter().map(|prompt| self.without_context(prompt)).collect();
        let texts = decoded.iter().zip(pieces).zip(starts.iter().zip(languages)).map(
            |((decoded, piece), (prompt, language))| WindowText {
                prompt,
                tokens: decoded.generated.tokens.clone(),
                log_probs: decoded.generated.log_probs.clone(),
                frames: frames(piece.audio.len()),
                language: self.written_language(*language),
            },
        );
        timed_words(&self.whisper, states, &texts.collect::<Vec<_>>())
    }

    /// Returns the language that is written, if it is known: a translation's is that of no recording.
    pub(crate) fn written_language<'a>(&self, spoken: Option<&'a str>) -> Option<&'a str> {
        let task = self.options.task.as_deref().or(self.whisper.generation.task.as_deref());
        spoken.filter(|_| task != Some("translate"))
    }

    /// Returns the part of a prompt after its context.
    fn without_context<'a>(&self, prompt: &'a [u32]) -> &'a [u32] {
        let start = prompt.iter().position(|token| *token == self.whisper.tokenizer.start());
        &prompt[start.unwrap_or_default()..]
    }

    /// Returns the segment of a window's tokens.
    pub(crate) fn segment_of(
        &self,
        decoded: Decoded,
        samples: Range<usize>,
        begins_word: bool,
        words: Vec<Word>,
    ) -> Segment {
        Segment {
            samples,
            characters: self.characters(&decoded.generated.tokens, &decoded.generated.log_probs),
            begins_word,
            words,
            temperature: decoded.temperature,
            mean_log_prob: decoded.generated.mean_log_prob(),
            compression_ratio: decoded.compression_ratio,
            no_speech: decoded.generated.no_speech,
            tokens: decoded.generated.tokens,
        }
    }

    /// Returns the characters of tokens, each with the probability of the token that completes it, without surrounding
    /// spaces.
    pub(crate) fn characters(&self, tokens: &[u32], log_probs: &[f32]) -> Vec<(char, f32)> {
        let times = self.whisper.tokenizer.times();
        let (tokens, probabilities): (Vec<u32>, Vec<f32>) = tokens
            .iter()
            .zip(log_probs)
            .filter(|(token, _)| !times.contains(*token))
            .map(|(token, log_prob)| (*token, log_prob.exp()))
            .unzip();
        let text = self.whisper.tokenizer.decode(&tokens);
        let so_far = (1..=tokens.len()).map(|count| self.whisper.tokenizer.decode(&tokens[..count]));
        let characters = with_confidences(&text, so_far.zip(probabilities));
        let is_text = |(character, _): &(char, f32)| !character.is_whitespace();
        let first = characters.iter().position(is_text).unwrap_or(characters.len());
        let last = characters.iter().rposition(is_text).map_or(first, |last| last + 1);
        characters[first..last].to_vec()
    }

    /// Returns a checksum of everything besides the audio that its texts depend on: the values of the weights (not
    /// their file, nor whether they are trained), dimensions, vocabulary, prompt and decoding settings. The device is
    /// not part of it, so that a run that is resumed on another device finds earlier transcriptions.
    pub fn fingerprint(&self) -> String {
        let whisper = &self.whisper;
        let weights = frozen_checksum(&whisper.model.clone().no_grad());
        let threshold = whisper.generation.min_mean_logprob.map(|least| format!(" {least}")).unwrap_or_default();
        let rest = format!("{:?} {:?} {:?}{threshold}", whisper.config, self.options, whisper.generate_options());
        let rest = Sha256::new().chain_update(whisper.tokenizer.to_bytes()).chain_update(rest);
        format!("{weights:08x} {:x}", rest.finalize())
    }
}

impl Word {
    /// Returns a window's word at its place in the recording, given by `place`, in samples.
    pub(crate) fn placed(word: TimedWord, place: impl Fn(Range<usize>) -> Range<usize>) -> Self {
        let rate = f64::from(SAMPLE_RATE);
        let [start, end] = [word.start, word.end].map(|seconds| (seconds * rate).round() as usize);
        let placed = place(start..end);
        let [start, end] = [placed.start, placed.end].map(|samples| samples as f64 / rate);
        Self { text: word.text, start, end, probability: word.probability }
    }
}

/// Number of the encoder's frames, of 20 ms, with audio.
pub(crate) fn frames(samples: usize) -> usize {
    samples.div_ceil(SAMPLE_RATE as usize / 50)
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
    use super::with_confidences;

    #[test]
    fn a_character_has_the_confidence_of_the_token_that_completes_it() {
        let so_far = [("a", 0.9), ("a\u{fffd}", 0.5), ("aé", 0.4), ("aé bc", 0.3)];
        let found = with_confidences("aé bc", so_far.map(|(text, p)| (text.to_owned(), p)).into_iter());
        assert_eq!(found, [('a', 0.9), ('é', 0.4), (' ', 0.3), ('b', 0.3), ('c', 0.3)]);
    }
}
