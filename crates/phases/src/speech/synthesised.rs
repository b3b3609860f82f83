//! Samples made by a synthesiser.

use super::error::SpeechError;
use super::sample::{SampleAudio, SpeechSample};
use super::tokens::{Spoken, Tokens};
use crate::{Alignment, SourceConfig};
use undertone_cw::{CwSample, CwSynth, morse};
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::loader::SampleError;

/// Synthesised Morse clips, different ones in each epoch.
pub(super) struct Synthesised {
    curriculum: Curriculum,
    samples: usize,
    aligned: bool,
}

/// Number of clips made to find the longest text.
const DRAWN: usize = 64;

impl Synthesised {
    /// # Errors
    /// If the configuration is invalid, or the vocabulary cannot encode Morse.
    pub fn new(source: &SourceConfig, tokens: &Tokens, aligned: bool, seed: u64) -> Result<Self, SpeechError> {
        let alphabet: String = morse::alphabet().collect();
        let named = |source| SpeechError::Text { name: "the Morse alphabet".into(), source };
        tokens.tokenizer().encode(&alphabet).map_err(named)?;
        tokens.encode("an empty sample", Spoken::default())?;
        Ok(Self { curriculum: Curriculum::new(source, seed)?, samples: source.samples, aligned })
    }

    pub fn len(&self) -> usize {
        self.samples
    }

    pub fn name(&self, index: usize) -> String {
        format!("cw {index}")
    }

    /// Returns a clip, a different one in every epoch.
    ///
    /// # Errors
    /// If its text is too long for the decoder.
    pub fn get(&self, index: usize, epoch: u64, tokens: &Tokens) -> Result<SpeechSample, SpeechError> {
        let ordinal = epoch.wrapping_mul(self.samples as u64).wrapping_add(index as u64);
        let CwSample { audio, text, marks, .. } = self.curriculum.at(epoch).sample(ordinal);
        let name = self.name(index);
        let (ids, prompt) = tokens.encode(&name, Spoken { text: &text, ..Spoken::default() })?;
        let alignment = self.aligned.then(|| {
            let tokenizer = tokens.tokenizer();
            let token = |c: char| tokenizer.encode(&c.to_string()).ok().and_then(|ids| ids.first().copied());
            let blank = tokenizer.no_speech();
            Alignment::new(&marks, audio.len() / 320, blank, |c| token(c).unwrap_or(blank))
        });
        Ok(SpeechSample { name, heard: SampleAudio::Audio(audio), text, tokens: ids, prompt, alignment, draw: 0 })
    }

    /// Returns the maximum duration of a clip, in seconds; the actual duration is known only after synthesis.
    pub fn longest(&self) -> f64 {
        let stages = self.curriculum.stages.iter().map(|(_, synth)| synth);
        let longest = stages.chain([&self.curriculum.rest]).map(|synth| synth.config().duration_s[1]);
        longest.fold(0.0, f32::max).into()
    }

    /// Returns a sample as large as any: see [`most_demanding`].
    ///
    /// # Errors
    /// If a sample cannot be made.
    pub fn most_demanding(&self, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let begins = std::iter::once(0).chain(self.curriculum.stages.iter().map(|(end, _)| *end));
        let get = |index, epoch| Ok(self.get(index, epoch, tokens)?);
        most_demanding(&begins.collect::<Vec<_>>(), self.samples, self.longest(), tokens, get)
    }
}

/// Returns a sample as large as any that is made: its audio lasts `seconds`, the maximum, and its text is as long as
/// the longest of `DRAWN` clips of each of these epochs, plus a quarter for those that were not made.
///
/// # Errors
/// If a sample cannot be made.
pub(super) fn most_demanding(
    epochs: &[u64],
    samples: usize,
    seconds: f64,
    tokens: &Tokens,
    get: impl Fn(usize, u64) -> Result<SpeechSample, SampleError>,
) -> Result<SpeechSample, SampleError> {
    let mut longest: Option<SpeechSample> = None;
    for (epoch, index) in epochs.iter().flat_map(|epoch| (0..DRAWN.min(samples)).map(move |i| (*epoch, i))) {
        let sample = get(index, epoch)?;
        if longest.as_ref().is_none_or(|found| sample.tokens.len() > found.tokens.len()) {
            longest = Some(sample);
        }
    }
    let mut sample = longest.ok_or("a synthesiser makes at least one sample")?;
    let audio = (seconds * f64::from(SAMPLE_RATE)).ceil() as usize;
    sample.heard = SampleAudio::Audio(vec![0.0; audio.max(sample.heard.samples())]);
    // The decoder reads all tokens but the last, which is the end.
    let end = tokens.tokenizer().end().and_then(|_| sample.tokens.pop());
    let ends = usize::from(end.is_some());
    let length = ((sample.tokens.len() + ends) * 5 / 4).min(tokens.positions() + ends);
    if let Some(last) = sample.tokens.last().copied() {
        sample.tokens.resize((length - ends).max(sample.tokens.len()), last);
    }
    sample.tokens.extend(end);
    Ok(sample)
}

/// Synthesiser of each epoch.
struct Curriculum {
    /// First epoch after each stage, and the synthesiser of the stage.
    stages: Vec<(u64, CwSynth)>,
    /// Synthesiser of the epochs after all stages.
    rest: CwSynth,
}

impl Curriculum {
    fn new(source: &SourceConfig, seed: u64) -> Result<Self, SpeechError> {
        let mut stages = Vec::with_capacity(source.stages.len());
        let mut end = 0;
        for (index, stage) in source.stages.iter().enumerate() {
            end = stage.epochs.saturating_add(end);
            stages.push((end, CwSynth::new(source.stage(index)?, seed)?));
        }
        Ok(Self { stages, rest: CwSynth::new(source.cw.clone(), seed)? })
    }

    fn at(&self, epoch: u64) -> &CwSynth {
        self.stages.iter().find(|(end, _)| epoch < *end).map_or(&self.rest, |(_, synth)| synth)
    }
}
