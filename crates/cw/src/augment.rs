//! The radio path as an augmentation of recordings: `augment.cw`.

use super::MorseStations;
use super::radio::RadioChannel;
use schemars::{Schema, SchemaGenerator};
use undertone_data::augment::{AudioEffect, Effect};
use undertone_data::options::{self, Options, OptionsError};

/// The augmentation `cw`, whose keys are those of [`RadioChannel`]. Other stations are sent by [`MorseStations`].
///
/// ```
/// use undertone_data::augment::{Augment, AugmentConfig};
///
/// undertone_cw::register()?;
/// let config: AugmentConfig = serde_json::from_str(r#"{"cw": {"p": 0.5}}"#)?;
/// let augment = Augment::new(&config, 480_000)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RadioEffect;

impl Effect for RadioEffect {
    fn name(&self) -> &str {
        "cw"
    }

    fn complete(&self, settings: &Options) -> Result<Options, OptionsError> {
        let channel: RadioChannel = options::read(settings)?;
        channel.validate().map_err(|error| OptionsError::Value(error.to_string()))?;
        Ok(options::write(&channel))
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<RadioChannel>()
    }

    fn open(&self, settings: &Options) -> Result<Option<Box<dyn AudioEffect>>, OptionsError> {
        let channel: RadioChannel = options::read(settings)?;
        Ok((channel.p > 0.0).then(|| Box::new(channel) as Box<dyn AudioEffect>))
    }
}

impl AudioEffect for RadioChannel {
    fn apply(&self, audio: &mut [f32], draw: u64) -> bool {
        self.transmit(Some(&MorseStations), audio, draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::augment::{Augment, AugmentConfig};

    fn config(settings: &str) -> Result<AugmentConfig, serde_json::Error> {
        crate::register().expect("registered");
        serde_json::from_str(&format!(r#"{{"cw": {settings}}}"#))
    }

    #[test]
    fn recordings_are_sent_over_the_air_by_the_name_of_the_source() {
        let config = config(r#"{"p": 1, "qrn": {"probability": 1}}"#).expect("read");
        assert!(config.changes_audio());
        let clean: Vec<f32> = (0..32_000).map(|n| 0.1 * (n as f32 * 0.3).sin()).collect();
        let (mut heard, mut expected) = (clean.clone(), clean.clone());
        Augment::new(&config, 480_000).expect("made").audio(&mut heard, 7);
        let channel: RadioChannel = serde_json::from_str(r#"{"p": 1, "qrn": {"probability": 1}}"#).expect("read");
        assert!(channel.transmit(Some(&MorseStations), &mut expected, 7));
        undertone_data::level::limit(&mut expected, 1.0);
        assert_eq!(heard, expected);
        assert_ne!(heard, clean);
    }

    #[test]
    fn refusals_name_the_key() {
        let refused = |settings| config(settings).expect_err("refused").to_string();
        assert!(refused(r#"{"p": 1, "qrm": {"wpm": [0, 1]}}"#).starts_with("augment.cw.qrm.wpm is [0, 1]"));
        assert!(refused(r#"{"qrn": {"probability": 2}}"#).starts_with("augment.cw.qrn.probability is 2"));
        assert!(refused(r#"{"qsb": {"depth_db": [5, 1]}}"#).starts_with("augment.cw.qsb.depth_db is [5, 1]"));
        assert!(refused(r#"{"p": 2}"#).starts_with("augment.cw.p is 2"));
        assert!(refused(r#"{"qrs": {}}"#).starts_with("`cw.qrs`: there is no such key"));
    }
}
