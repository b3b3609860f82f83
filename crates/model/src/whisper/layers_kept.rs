//! Students of a model: the same one with fewer blocks.

use super::PretrainedWhisper;
use crate::config_error::{ConfigError, invalid};

impl PretrainedWhisper {
    /// Keeps this number of blocks of encoder and decoder, spaced evenly from the first to the last one, as Distil-Whisper
    /// initialises its students (Gandhi et al., 2023, section 4); a single one is the last. `None` keeps all.
    ///
    /// # Errors
    /// When a number is 0, or there are fewer blocks.
    pub fn with_layers(mut self, encoder: Option<usize>, decoder: Option<usize>) -> Result<Self, ConfigError> {
        if let Some(count) = encoder {
            let kept = spaced("encoder_layers", count, self.config.encoder_layers)?;
            self.model.encoder.layers = kept.iter().map(|layer| self.model.encoder.layers[*layer].clone()).collect();
            self.config.encoder_layers = count;
        }
        if let Some(count) = decoder {
            let kept = spaced("decoder_layers", count, self.config.decoder_layers)?;
            self.model.decoder.layers = kept.iter().map(|layer| self.model.decoder.layers[*layer].clone()).collect();
            self.generation.keep_layers(&kept);
            self.config.decoder_layers = count;
        }
        Ok(self)
    }
}

/// Returns `count` of the indices below `of`, spaced evenly.
fn spaced(key: &'static str, count: usize, of: usize) -> Result<Vec<usize>, ConfigError> {
    if !(1..=of).contains(&count) {
        return Err(invalid(key, count, &format!("must be from 1 to the {of} that the model has")));
    }
    let last = of - 1;
    Ok((0..count).map(|i| if i + 1 == count { last } else { i * last / (count - 1) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whisper::{BUNDLED, bundled};
    use burn::tensor::{Device, Int, Tensor};
    use std::path::Path;

    fn model() -> PretrainedWhisper {
        let files = bundled(BUNDLED[0]).expect("bundled");
        PretrainedWhisper::from_files(Path::new(BUNDLED[0]), files, &Device::default()).expect("a model")
    }

    #[test]
    fn kept_blocks_are_spaced_from_the_first_to_the_last() {
        let spaced = |count, of| spaced("decoder_layers", count, of).expect("kept");
        assert_eq!(spaced(2, 32), [0, 31]);
        assert_eq!(spaced(4, 32), [0, 10, 20, 31]);
        assert_eq!(spaced(3, 4), [0, 1, 3]);
        assert_eq!(spaced(1, 4), [3]);
        assert_eq!(spaced(4, 4), [0, 1, 2, 3]);
    }

    #[test]
    fn a_student_computes_with_the_blocks_that_it_kept_and_is_saved_with_their_number() {
        let teacher = model();
        let (encoder, decoder) = (teacher.config.encoder_layers, teacher.config.decoder_layers);
        assert!(encoder > 1 && decoder > 1, "{encoder} and {decoder}");
        let student = model().with_layers(None, Some(1)).expect("a student");
        let folder = tempfile::tempdir().expect("a directory");
        student.save(folder.path(), undertone_store::Dtype::F32).expect("saved");
        let again = PretrainedWhisper::load(folder.path(), &Device::default()).expect("loaded");
        assert_eq!((again.config.encoder_layers, again.config.decoder_layers), (encoder, 1));
        let mel = undertone_ops::normal([1, teacher.config.num_mel_bins, 40], 1.0, &Device::default());
        let ids = Tensor::<2, Int>::from_ints([[1, 2, 3]], &Device::default());
        let logits = |model: &PretrainedWhisper| model.model.forward(mel.clone(), ids.clone()).into_data();
        assert_eq!(logits(&student), logits(&again));
        assert_ne!(logits(&student), logits(&teacher));
        let mut by_hand = teacher.clone();
        by_hand.model.decoder.layers.drain(..decoder - 1);
        assert_eq!(logits(&student), logits(&by_hand));
    }

    #[test]
    fn heads_that_follow_the_audio_move_with_their_layers() {
        let mut teacher = model();
        let json = r#"{"alignment_heads": [[0, 1], [1, 0], [3, 2]], "is_multilingual": true}"#;
        teacher.generation =
            crate::whisper::GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
        teacher.generation.keep_layers(&[0, 3]);
        assert_eq!(teacher.generation.alignment_heads(), [(0, 1), (1, 2)]);
        teacher.generation.keep_layers(&[5]);
        assert!(!teacher.generation.to_json().contains_key("alignment_heads"));
    }

    #[test]
    fn more_blocks_than_there_are_is_refused() {
        let of = model().config.decoder_layers;
        let error = model().with_layers(None, Some(of + 1)).expect_err("refused").to_string();
        assert_eq!(error, format!("`decoder_layers` is {}: must be from 1 to the {of} that the model has", of + 1));
        assert!(model().with_layers(Some(0), None).is_err());
    }
}
