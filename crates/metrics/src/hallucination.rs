//! Words written where nobody spoke.

/// Words that were written over audio without text, such as silence, noise or music, and the length of that audio.
///
/// Speech recognisers of the encoder-decoder kind hallucinate there: they write whole sentences over nothing (Koenecke
/// et al., "Careless Whisper: speech-to-text hallucination harms", 2024). Error rates hardly show it: such samples add
/// to the errors and nothing to the length. Samples whose reference has words add nothing to either.
///
/// ```
/// use undertone_metrics::Hallucination;
///
/// let mut found = Hallucination::of("", "thank you for watching", 30.0);
/// found += Hallucination::of("good morning", "good morning", 2.0);
/// found += Hallucination::of("", "", 30.0);
/// assert_eq!(found.words_per_minute(), Some(4.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hallucination {
    /// Number of words.
    pub words: usize,
    /// Seconds of audio without text.
    pub seconds: f64,
}

impl Hallucination {
    /// Name of the rate in logs.
    pub const NAME: &str = "hallucinated_words_per_minute";

    /// Counts of one sample of `seconds` seconds. Words are separated by white space.
    pub fn of(reference: &str, hypothesis: &str, seconds: f64) -> Self {
        if Self::is_possible(reference) {
            Self { words: hypothesis.split_whitespace().count(), seconds }
        } else {
            Self::default()
        }
    }

    /// Whether any word that is written for this reference is hallucinated: it has none itself.
    pub fn is_possible(reference: &str) -> bool {
        reference.trim().is_empty()
    }

    /// Words per minute of audio without text; `None` if there is no such audio.
    pub fn words_per_minute(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| 60.0 * self.words as f64 / self.seconds)
    }
}

sums!(Hallucination { words, seconds });

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_audio_without_text_counts() {
        assert_eq!(Hallucination::of("a b", "a b c d", 10.0).words_per_minute(), None);
        assert_eq!(Hallucination::of(" ", "", 10.0).words_per_minute(), Some(0.0));
        assert_eq!(Hallucination::of("", "uh  huh ", 10.0).words_per_minute(), Some(12.0));
    }

    proptest! {
        #[test]
        fn longer_audio_counts_for_more(words in prop::collection::vec(0usize..9, 2..6)) {
            let mut sum = Hallucination::default();
            for (sample, words) in words.iter().enumerate() {
                sum += Hallucination::of("", &"so ".repeat(*words), 30.0 * (sample + 1) as f64);
            }
            let minutes = (1..=words.len()).sum::<usize>() as f64 / 2.0;
            let expected = words.iter().sum::<usize>() as f64 / minutes;
            prop_assert!((sum.words_per_minute().expect("audio") - expected).abs() < 1e-9);
        }
    }
}
