//! The object of openai-whisper's JSON.

use super::Layout;
use crate::transcript::Transcript;
use serde_json::{Value, json};

impl Transcript {
    /// Returns the object that [`Format::Json`](super::Format::Json) writes.
    pub fn to_json(&self, layout: &Layout) -> Value {
        object(self, layout, None)
    }
}

/// Returns the object of a transcript.
pub(super) fn object(transcript: &Transcript, layout: &Layout, name: Option<&str>) -> Value {
    let segment = |(id, segment): (usize, &crate::Segment)| {
        let mut object = json!({
            "id": id,
            "start": rounded(segment.start()),
            "end": rounded(segment.end()),
            "text": segment.text(layout.least_confidence),
            "tokens": segment.tokens,
            "temperature": segment.temperature,
            "avg_logprob": rounded(segment.mean_log_prob),
            "compression_ratio": rounded(segment.compression_ratio),
        });
        if let Some(no_speech) = segment.no_speech {
            object["no_speech_prob"] = rounded(f64::from(no_speech)).into();
        }
        if !segment.words.is_empty() {
            object["words"] = segment.words.iter().map(word).collect();
        }
        if layout.characters {
            object["confidence"] = segment.characters.iter().map(|(_, p)| rounded(f64::from(*p))).collect();
        }
        object
    };
    let segments: Vec<Value> = transcript.segments.iter().enumerate().map(segment).collect();
    let mut object = json!({"text": transcript.text(layout.least_confidence), "segments": segments});
    if let Some(language) = &transcript.language {
        object["language"] = language.code.as_str().into();
        if let Some(probability) = language.probability {
            object["language_probability"] = rounded(f64::from(probability)).into();
        }
    }
    object["duration"] = rounded(transcript.seconds()).into();
    if let Some(name) = name {
        object["audio"] = name.into();
    }
    object
}

fn word(word: &crate::Word) -> Value {
    json!({
        "word": word.text,
        "start": rounded(word.start),
        "end": rounded(word.end),
        "probability": rounded(f64::from(word.probability)),
    })
}

/// Returns a number of seconds as files have it, with three decimals.
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
