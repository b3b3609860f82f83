//! Live transcription of speech.

use crate::transcriber::Transcriber;
use crate::transcript::DetectedLanguage;
use crate::vad::SpeechFinder;
use std::ops::Range;

/// Live transcription of speech: each stretch of it once it is over.
pub struct LiveSpeech<'a> {
    transcriber: &'a Transcriber,
    finder: SpeechFinder<'a>,
    /// Samples of the recording from `offset` on.
    audio: Vec<f32>,
    offset: usize,
    /// Language of the first stretch, once there is one: the others are in it, too.
    language: Option<Option<DetectedLanguage>>,
    least_confidence: f32,
}

impl<'a> LiveSpeech<'a> {
    pub fn new(transcriber: &'a Transcriber, least_confidence: f32) -> Self {
        let finder = SpeechFinder::new(transcriber.vad(), transcriber.options().vad.clone(), transcriber.window());
        let language = transcriber.known_language();
        Self { transcriber, finder, audio: Vec::new(), offset: 0, language, least_confidence }
    }

    pub fn push(&mut self, samples: &[f32]) -> String {
        self.audio.extend_from_slice(samples);
        let text = self.finder.push(samples).into_iter().map(|stretch| self.settled(stretch.samples)).collect();
        let passed = self.finder.needed_from().saturating_sub(self.offset).min(self.audio.len());
        self.audio.drain(..passed);
        self.offset += passed;
        text
    }

    pub fn partial(&self) -> String {
        let end = self.offset + self.audio.len();
        let start = self.finder.needed_from().max(end.saturating_sub(self.transcriber.window()));
        if self.finder.is_open() { self.text(start..end).1 } else { String::new() }
    }

    pub fn finish(mut self) -> String {
        self.finder.finish().into_iter().map(|stretch| self.settled(stretch.samples)).collect()
    }

    /// Returns the text of a stretch that is over, and keeps its language.
    fn settled(&mut self, stretch: Range<usize>) -> String {
        let (language, text) = self.text(stretch);
        // A noise that was taken for speech has no language.
        if self.language.is_none() && !text.is_empty() {
            if let Some(DetectedLanguage { code, probability: Some(probability) }) = &language {
                tracing::info!("the language is `{code}` ({probability:.2})");
            }
            self.language = Some(language);
        }
        text
    }

    fn text(&self, stretch: Range<usize>) -> (Option<DetectedLanguage>, String) {
        let kept = self.offset + self.audio.len();
        let own = stretch.start - self.offset..stretch.end.min(kept) - self.offset;
        let (language, segment) = self.transcriber.segment_in(&self.audio, own, true, self.language.clone());
        let text = segment.text(self.least_confidence);
        (language, if text.is_empty() { text } else { format!(" {text}") })
    }
}

#[cfg(test)]
mod tests {
    use crate::live::LiveTranscriber;
    use crate::tests::transcriber;
    use crate::{TranscribeOptions, vad::SpeechFinder};
    use std::path::Path;

    #[test]
    fn each_stretch_of_speech_is_transcribed_once_it_is_over() {
        let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/src/verify/clips/jfk.flac");
        let clip = undertone_data::audio::load(&clip).expect("the clip");
        let audio = [&vec![0.0; 30_000][..], &clip, &vec![0.0; 40_000], &clip[..60_000]].concat();
        // An untrained model, whose text of a stretch is as good as any other.
        let transcriber = transcriber(TranscribeOptions::plain(Some("en"), None)).expect("ready");
        let mut finder = SpeechFinder::new(transcriber.vad(), Default::default(), transcriber.window());
        let mut stretches = finder.push(&audio);
        stretches.extend(finder.finish());
        let expected: String = stretches
            .iter()
            .map(|stretch| transcriber.segment(&audio, stretch.samples.clone(), true).text(0.0))
            .filter(|text| !text.is_empty())
            .map(|text| format!(" {text}"))
            .collect();
        assert!(stretches.len() > 3 && !expected.is_empty(), "{stretches:?}");
        for block in [audio.len(), 4000, 777] {
            let mut live = LiveTranscriber::new(&transcriber, 0.0);
            let mut partial = false;
            let mut text = String::new();
            for samples in audio.chunks(block) {
                text += &live.push(samples);
                partial |= block == 4000 && !live.partial().is_empty();
            }
            assert_eq!(partial, block == 4000);
            text += &live.finish();
            assert_eq!(text, expected, "blocks of {block}");
        }
        let mut silent = LiveTranscriber::new(&transcriber, 0.0);
        assert_eq!(silent.push(&[0.0; 100_000]) + &silent.partial() + &silent.finish(), "");
    }
}
