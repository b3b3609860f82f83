//! The synthesiser as a source that configurations can select by name.

use super::{CwConfig, CwSynth};
use undertone_data::loader::{Dataset, SampleError};
use undertone_data::source::{SourceRequest, SpeechSource, Utterance, Utterances};

/// The source `cw`, whose keys are those of [`CwConfig`]. The clips differ in every epoch.
///
/// ```
/// use undertone_data::source::{self, SourceRequest};
///
/// source::register(undertone_cw::MorseSource)?;
/// let request = SourceRequest { config: serde_json::json!({"wpm": [20, 25]}), samples: 4, seed: 42 };
/// let clips = source::open("cw", &request)?;
/// assert_ne!(clips.get(0, 0)?, clips.get(0, 1)?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MorseSource;

impl SpeechSource for MorseSource {
    fn name(&self) -> &str {
        "cw"
    }

    fn open(&self, request: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
        let config: CwConfig = serde_json::from_value(request.config.clone())?;
        Ok(Box::new(Clips { synth: CwSynth::new(config, request.seed)?, samples: request.samples }))
    }
}

struct Clips {
    synth: CwSynth,
    samples: usize,
}

impl Dataset for Clips {
    type Item = Utterance;

    fn len(&self) -> usize {
        self.samples
    }

    fn get(&self, index: usize, epoch: u64) -> Result<Utterance, SampleError> {
        let clip = self.synth.sample(epoch.wrapping_mul(self.samples as u64).wrapping_add(index as u64));
        Ok(Utterance { audio: clip.audio, text: clip.text })
    }

    fn name(&self, index: usize) -> String {
        format!("cw {index}")
    }

    fn length(&self, _: usize) -> Option<f64> {
        Some(f64::from(self.synth.config().duration_s[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(config: serde_json::Value) -> SourceRequest {
        SourceRequest { config, samples: 4, seed: 42 }
    }

    #[test]
    fn clips_are_the_synthesisers() {
        let clips = MorseSource.open(&request(serde_json::json!({}))).unwrap();
        let expected = CwSynth::new(CwConfig::default(), 42).unwrap().sample(2 * 4 + 3);
        let clip = clips.get(3, 2).unwrap();
        assert_eq!((clips.len(), clip.audio, clip.text), (4, expected.audio, expected.text));
        assert_eq!((clips.name(3), clips.length(3)), ("cw 3".to_owned(), Some(8.0)));
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_refused() {
        let refused = |config| MorseSource.open(&request(config)).err().unwrap().to_string();
        assert!(refused(serde_json::json!({"wmp": 20})).contains("unknown field `wmp`"));
        assert!(refused(serde_json::json!({"wpm": [30, 20]})).starts_with("wpm is [30, 20]"));
    }
}
