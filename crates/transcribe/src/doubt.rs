//! A second reading of the signal alone, where a model that reads something other than speech has low confidence.

use crate::decoded::{Decoded, mean_log};
use crate::transcriber::Transcriber;
use undertone_metrics::cer;

/// Mean log probability below which confidence is low. For recordings that are transcribed without error it is higher.
const DOUBT: f64 = -0.02;
/// Mean log probability below which a transcription may be replaced by a different text. Above it, the signal alone may
/// be a stronger one beside the transcribed one.
const MUCH_DOUBT: f64 = -0.25;
/// Character error rate below which two texts count as transcriptions of the same signal.
const MOST_CHANGED: f64 = 0.4;
/// Mean log probability above which the transcription of the signal alone is used if there is no other: noise, speech and
/// music may have parts that resemble a signal.
const SURE: f64 = -0.5;

impl Transcriber {
    /// Replaces the decoding of a piece by that of its signal alone, if the model has low confidence in the first, its
    /// reader finds a signal, and the second is better.
    pub(crate) fn read_signal_alone(&self, decoded: &mut Decoded, audio: &[f32], prompt: &[u32]) {
        let own = self.reading_of(decoded);
        let Some(reader) = self.reader().filter(|_| own.is_doubtful()) else { return };
        let signals = reader.signals(audio, self.window());
        if signals.is_empty() {
            return;
        }
        let alone = self.decode(&self.encode(&signals), &vec![prompt.to_vec(); signals.len()], None).into_iter();
        let read = alone.map(|alone| (self.reading_of(&alone), alone));
        let surest = read.max_by(|(a, _), (b, _)| a.mean_log.total_cmp(&b.mean_log));
        if let Some((_, alone)) = surest.filter(|(reading, _)| reading.replaces(&own)) {
            *decoded = alone;
        }
    }

    fn reading_of(&self, decoded: &Decoded) -> Reading {
        let text = if self.is_silent(decoded) { String::new() } else { decoded.text.clone() };
        Reading { text, mean_log: mean_log(&decoded.generated.log_probs) }
    }
}

/// Text of a window, empty if it is left out, and the mean log probability of its tokens.
struct Reading {
    text: String,
    mean_log: f64,
}

impl Reading {
    fn is_doubtful(&self) -> bool {
        self.text.is_empty() || self.mean_log < DOUBT
    }

    /// Whether this transcription of the signal alone replaces `other`.
    fn replaces(&self, other: &Self) -> bool {
        if self.text.is_empty() || other.text.is_empty() {
            return !self.text.is_empty() && self.mean_log > SURE;
        }
        let same_text = cer(&other.text, &self.text).rate().is_some_and(|rate| rate < MOST_CHANGED);
        self.mean_log > other.mean_log && (same_text || other.mean_log < MUCH_DOUBT)
    }
}
