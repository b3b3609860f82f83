//! Samples made by a synthesiser.

use super::error::SpeechError;
use super::sample::{SampleAudio, SpeechSample};
use super::tokens::{Spoken, Tokens};
use crate::{Alignment, config};
use serde_json::Value;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::loader::SampleError;
use undertone_data::options::Options;
use undertone_data::source::{SourceError, SourceRequest, SpeechSource, Utterance, Utterances};

/// Utterances of a synthesiser, converted to samples for a model; different ones in each epoch.
pub(super) struct Synthesised {
    curriculum: Curriculum,
    /// Number of audio samples per encoder position, if alignment targets are needed.
    position: Option<usize>,
    /// Maximum duration in seconds, for utterances of unknown duration.
    window: f64,
}

/// Number of clips made to find the longest text.
const DRAWN: usize = 64;

impl Synthesised {
    /// Opens a synthesiser for a model with a window of `window` samples. Samples have alignment targets if `position`,
    /// the number of audio samples per encoder position, is given.
    ///
    /// # Errors
    /// If there is no such synthesiser, if it refuses its options or is empty, or if the vocabulary cannot encode its
    /// alphabet.
    pub fn new(
        source: &config::Synthesised,
        tokens: &Tokens,
        position: Option<usize>,
        window: usize,
        seed: u64,
    ) -> Result<Self, SpeechError> {
        let kind = source.kind()?;
        if let Some(alphabet) = kind.alphabet() {
            let named = |error| SpeechError::Text { name: format!("the alphabet of `{}`", kind.name()), source: error };
            tokens.tokenizer().encode(&alphabet.characters).map_err(named)?;
        }
        tokens.encode("an empty sample", Spoken::default())?;
        let curriculum = Curriculum::new(source, &*kind, seed)?;
        Ok(Self { curriculum, position, window: window as f64 / f64::from(SAMPLE_RATE) })
    }

    pub fn len(&self) -> usize {
        self.curriculum.rest.len()
    }

    pub fn name(&self, index: usize) -> String {
        self.curriculum.rest.name(index)
    }

    /// Returns a sample, a different one in every epoch.
    ///
    /// # Errors
    /// The errors of the synthesiser, and an error if its text does not fit the vocabulary or the decoder.
    pub fn get(&self, index: usize, epoch: u64, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let Utterance { audio, text, timing, columns } = self.curriculum.at(epoch).get(index, epoch)?;
        let name = self.name(index);
        let (ids, prompt) = tokens.encode(&name, Spoken { text: &text, ..Spoken::default() })?;
        let alignment = timing.zip(self.position).map(|(timing, position)| {
            let tokenizer = tokens.tokenizer();
            let token = |c: char| tokenizer.encode(&c.to_string()).ok().and_then(|ids| ids.first().copied());
            let blank = tokenizer.no_speech();
            let (positions, rate) = (audio.len() / position, SAMPLE_RATE as f32 / position as f32);
            Alignment::new(&timing, positions, rate, blank, |c| token(c).unwrap_or(blank))
        });
        let audio = SampleAudio::Audio(audio);
        Ok(SpeechSample { name, audio, states: None, text, tokens: ids, prompt, alignment, columns, draw: 0 })
    }

    /// Returns the maximum duration of a sample in any stage, in seconds; the actual duration is known only after
    /// synthesis.
    pub fn seconds(&self, index: usize) -> f64 {
        let longest = self.curriculum.all().map(|utterances| utterances.length(index).unwrap_or(self.window));
        longest.fold(0.0, f64::max)
    }

    /// Returns a sample as large as any that is likely to occur: see [`most_demanding`].
    ///
    /// # Errors
    /// If a sample cannot be made.
    pub fn most_demanding(&self, tokens: &Tokens) -> Result<SpeechSample, SampleError> {
        let begins = std::iter::once(0).chain(self.curriculum.stages.iter().map(|(end, _)| *end));
        let longest = (0..self.len()).map(|index| self.seconds(index)).fold(0.0, f64::max);
        let get = |index, epoch| self.get(index, epoch, tokens);
        most_demanding(&begins.collect::<Vec<_>>(), self.len(), longest, tokens, get)
    }
}

/// Returns a sample as large as any that is made: its audio lasts `seconds`, the maximum, and its text is as long as
/// the longest of `DRAWN` clips of each of these epochs, plus a quarter for those that were not made.
fn most_demanding(
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
    sample.audio = SampleAudio::Audio(vec![0.0; audio.max(sample.audio.samples())]);
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

/// Utterances of each epoch.
struct Curriculum {
    /// First epoch after each stage, and the utterances of the stage.
    stages: Vec<(u64, Box<Utterances>)>,
    /// Utterances of the epochs after all stages.
    rest: Box<Utterances>,
}

impl Curriculum {
    fn new(source: &config::Synthesised, kind: &dyn SpeechSource, seed: u64) -> Result<Self, SpeechError> {
        let open = |options: Options| {
            let request = SourceRequest { config: Value::Object(options), samples: source.samples, seed };
            let opened = kind.open(&request);
            opened.map_err(|error| SourceError::Open { name: kind.name().to_owned(), source: error })
        };
        let (stages, rest) = source.curriculum()?;
        let rest = open(rest)?;
        if rest.is_empty() {
            return Err(SpeechError::Empty(kind.name().to_owned()));
        }
        let stages = stages.into_iter().map(|(end, options)| Ok((end, open(options)?)));
        let stages: Vec<(u64, Box<Utterances>)> = stages.collect::<Result<_, SourceError>>()?;
        match stages.iter().position(|(_, stage)| stage.len() != rest.len()) {
            Some(stage) => Err(SpeechError::Stage { stage, samples: stages[stage].1.len(), of: rest.len() }),
            None => Ok(Self { stages, rest }),
        }
    }

    fn at(&self, epoch: u64) -> &Utterances {
        &**self.stages.iter().find(|(end, _)| epoch < *end).map_or(&self.rest, |(_, stage)| stage)
    }

    fn all(&self) -> impl Iterator<Item = &Utterances> {
        self.stages.iter().map(|(_, stage)| &**stage).chain([&*self.rest])
    }
}
