//! Trainable part of a model, as far as it affects memory.

use crate::Footprint;
use undertone_model::adapters::AdapterConfig;
use undertone_model::target::Target;

/// Part of a model that is trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TrainedPart {
    /// The whole model.
    #[default]
    All,
    /// The encoder.
    Encoder,
    /// The decoder.
    Decoder,
    /// Adapters on the frozen model, all of them at the same time.
    Adapters(Vec<AdapterConfig>),
}

impl Footprint {
    /// Returns the same model with that part trained.
    pub fn training_part(self, part: &TrainedPart) -> Self {
        match part {
            TrainedPart::All => self,
            TrainedPart::Encoder => self.training(self.encoder_parameters(), true),
            TrainedPart::Decoder => self.training(self.trainable.saturating_sub(self.encoder_parameters()), false),
            TrainedPart::Adapters(adapters) => {
                let parameters = adapters.iter().map(|adapter| parameters(adapter, &self)).sum();
                // Gradients pass through every block above the first adapted one.
                self.training(parameters, true)
            }
        }
    }
}

/// Returns an adapter's number of parameters in all blocks of a model.
fn parameters(adapter: &AdapterConfig, model: &Footprint) -> u64 {
    // A target that is not a regular expression is refused when the model is built.
    let targets: Vec<Target> = adapter.target_modules().iter().filter_map(|t| Target::parse(t).ok()).collect();
    model.adapted(&targets, |d_in, d_out| adapter.parameters(d_in as usize, d_out as usize) as u64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use undertone_model::adapters::lora::LoraConfig;
    use undertone_model::text::TextEncoderConfig;
    use undertone_model::whisper::WhisperConfig;

    pub fn adapters(r: usize, targets: &[&str]) -> TrainedPart {
        let target_modules = targets.iter().map(|target| (*target).to_owned()).collect();
        TrainedPart::Adapters(vec![LoraConfig { r, target_modules, ..Default::default() }.into()])
    }

    #[test]
    fn adapters_have_as_many_parameters_as_peft_counts() {
        let tiny = Footprint::whisper(&WhisperConfig::new(384, 1536, 6, [4, 4]));
        // Twelve attentions of two maps of 384 × 384, rank 32: PEFT counts 589,824 of Whisper tiny with q_proj and v_proj.
        assert_eq!(tiny.training_part(&adapters(32, &["q_proj", "v_proj"])).trainable, 589_824);
        let all = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"];
        assert_eq!(tiny.training_part(&adapters(8, &all)).trainable, 8 * (12 * 4 * 768 + 8 * 2 * (384 + 1536)));
        // Twelve blocks of BERT.
        let bert = Footprint::text(&TextEncoderConfig::default(), 128);
        assert_eq!(bert.training_part(&adapters(8, &["query", "value"])).trainable, 294_912);
        assert_eq!(bert.training_part(&adapters(1, &["dense"])).trainable, 12 * (1536 + 2 * (768 + 3072)));
    }

    #[test]
    fn what_is_frozen_takes_less() {
        let config = WhisperConfig { encoder_layers: 12, decoder_layers: 12, ..Default::default() };
        let whole = Footprint::whisper(&config);
        let bytes = |part: &TrainedPart| whole.training_part(part).bytes(4, 1, &crate::Execution::GPU);
        let all = bytes(&TrainedPart::All);
        assert!(bytes(&adapters(16, &["q_proj"])) < all);
        assert!(bytes(&TrainedPart::Encoder) < all && bytes(&TrainedPart::Decoder) < bytes(&TrainedPart::Encoder));
    }
}
