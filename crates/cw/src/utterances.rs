//! The synthesiser as a source that configurations can select by name.

use super::{CwConfig, CwInfo, CwSynth, CwTask, ELEMENT_CLASSES, MorseReader, RadioEffect, morse, timing};
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use undertone_data::loader::{Dataset, SampleError};
use undertone_data::options::{self, Options, OptionsError};
use undertone_data::source::{self, Alphabet, NameTaken, SourceRequest, SpeechSource, Utterance, Utterances};
use undertone_data::{augment, reader};

/// The source `cw`, whose keys are those of [`CwConfig`]. The clips differ in every epoch.
///
/// ```
/// use undertone_data::source::{self, SourceRequest};
///
/// undertone_cw::register()?;
/// let request = SourceRequest { config: serde_json::json!({"wpm": [20, 25]}), samples: 4, seed: 42 };
/// let clips = source::open("cw", &request)?;
/// assert_ne!(clips.get(0, 0)?, clips.get(0, 1)?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MorseSource;

/// Registers [`MorseSource`] as the source of configurations that name none, [`MorseReader`] and [`RadioEffect`]. Further
/// calls change nothing.
///
/// # Errors
/// If another source, reader or augmentation has the name `cw`.
pub fn register() -> Result<(), NameTaken> {
    static REGISTERED: OnceLock<Result<(), NameTaken>> = OnceLock::new();
    let register = || {
        source::register_default(MorseSource)?;
        reader::register(MorseReader)?;
        augment::register(RadioEffect)
    };
    REGISTERED.get_or_init(register).clone()
}

impl SpeechSource for MorseSource {
    fn name(&self) -> &str {
        "cw"
    }

    fn open(&self, request: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
        let config: CwConfig = serde_json::from_value(request.config.clone())?;
        Ok(Box::new(Clips { synth: CwSynth::new(config, request.seed)?, samples: request.samples }))
    }

    fn complete(&self, options: &Options) -> Result<Options, OptionsError> {
        let config: CwConfig = options::read(options)?;
        config.validate().map_err(|error| OptionsError::Value(error.to_string()))?;
        Ok(options::write(&config))
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<CwConfig>())
    }

    /// 45 words per minute are 4.5 characters a second. The limit is twice that, for texts of short characters.
    fn alphabet(&self) -> Option<Alphabet> {
        Some(Alphabet { characters: morse::alphabet().collect(), most_per_second: 9.0 })
    }

    fn reader(&self) -> Option<&str> {
        Some("cw")
    }

    fn element_classes(&self, options: &Options) -> Result<usize, String> {
        match options::read::<CwConfig>(options).map_err(|error| error.to_string())?.task {
            CwTask::Copy => Ok(ELEMENT_CLASSES),
            task => Err(format!("the task `{task}` writes something else than what is sent")),
        }
    }
}

/// What results can be grouped by: `snr_db`, which a clip without noise has not, and of a clip with a sender `wpm`,
/// `pitch_hz` and the kind of its text, `source`.
fn columns(info: &CwInfo) -> BTreeMap<String, String> {
    let sender = info.source.as_ref().and_then(|source| serde_json::to_value(source).ok());
    let name = sender.as_ref().and_then(Value::as_str);
    [
        ("snr_db", info.snr_db.map(|snr| format!("{snr:.1}"))),
        ("wpm", sender.as_ref().map(|_| format!("{:.1}", info.wpm))),
        ("pitch_hz", sender.as_ref().map(|_| format!("{:.0}", info.pitch_hz))),
        ("source", name.map(str::to_owned)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
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
        let (timing, columns) = (Some(timing(&clip.marks)), columns(&clip.info));
        Ok(Utterance { audio: clip.audio, text: clip.text, timing, columns })
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
        assert_eq!(clip.columns["wpm"], format!("{:.1}", expected.info.wpm));
        assert_eq!(clip.columns.get("snr_db").cloned(), expected.info.snr_db.map(|snr| format!("{snr:.1}")));
        assert_eq!((clips.name(3), clips.length(3)), ("cw 3".to_owned(), Some(8.0)));
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_refused() {
        let refused = |config| MorseSource.open(&request(config)).err().unwrap().to_string();
        assert!(refused(serde_json::json!({"wmp": 20})).contains("unknown field `wmp`"));
        assert!(refused(serde_json::json!({"wpm": [30, 20]})).starts_with("wpm is [30, 20]"));
    }

    #[test]
    fn options_are_completed_or_refused_by_the_name_of_their_key() {
        let options = |value: serde_json::Value| value.as_object().unwrap().clone();
        let all = MorseSource.complete(&options(serde_json::json!({"wpm": [20.5, 25]}))).unwrap();
        assert_eq!((&all["wpm"], &all["task"]), (&serde_json::json!([20.5, 25.0]), &serde_json::json!("copy")));
        assert_eq!(MorseSource.complete(&all).unwrap(), all);
        let refused = |value| MorseSource.complete(&options(value)).unwrap_err().to_string();
        assert!(refused(serde_json::json!({"text": {"wrods": 1}})).starts_with("`text.wrods`: there is no such key"));
        assert!(refused(serde_json::json!({"wpm": [30, 20]})).starts_with("wpm is [30, 20]"));
    }

    #[test]
    fn only_copied_text_has_a_timing() {
        let classes = |task: &str| {
            let options = serde_json::json!({"task": task});
            MorseSource.element_classes(options.as_object().unwrap())
        };
        assert_eq!(classes("copy"), Ok(ELEMENT_CLASSES));
        assert!(classes("log").unwrap_err().contains("`log`"));
    }
}
