//! Small decoder that writes text from the states of any encoder.

use crate::config_error::{ConfigError, check_dropout, invalid};
use crate::frozen_dtype::widened;
use crate::layers::Embedding;
use crate::limits::{LARGEST_DIMENSION, MOST_LAYERS, MOST_NEW_PARAMETERS, MOST_POSITIONS};
use crate::whisper::{WhisperConfig, WhisperDecoder};
use burn::module::Param;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Dimensions of a decoder over the token embeddings of a text encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextDecoderConfig {
    /// Number of blocks.
    pub layers: usize,
    /// Number of attention heads; divides the width of the embeddings.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub ffn: usize,
    /// Maximum length of a token sequence, prompt included.
    pub max_length: usize,
    /// Dropout after the embeddings and after attention and feed-forward blocks, in training.
    pub dropout: f64,
}

impl Default for TextDecoderConfig {
    fn default() -> Self {
        Self { layers: 2, heads: 4, ffn: 1024, max_length: 64, dropout: 0.1 }
    }
}

impl TextDecoderConfig {
    /// Checks the values for embeddings of width `d_model`.
    ///
    /// # Errors
    /// Names the first key that does not fit.
    pub fn validate(&self, d_model: usize) -> Result<(), ConfigError> {
        let positive =
            [("layers", self.layers), ("heads", self.heads), ("ffn", self.ffn), ("max_length", self.max_length)];
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(invalid(key, 0, "it must be at least 1"));
        }
        for (key, value) in positive {
            let most = match key {
                "layers" => MOST_LAYERS,
                "max_length" => MOST_POSITIONS,
                _ => LARGEST_DIMENSION,
            };
            if value > most {
                return Err(invalid(key, value, &format!("it must be at most {most}")));
            }
        }
        // Two attentions and the feed-forward layers of each block, and the positions.
        let [d, layers, ffn, positions] = [d_model, self.layers, self.ffn, self.max_length].map(|n| n as u128);
        let parameters = layers.saturating_mul(8 * d * d + 2 * d * ffn) + positions * d;
        if parameters > u128::from(MOST_NEW_PARAMETERS) {
            return Err(ConfigError::Other(format!(
                "`layers`, `ffn` and `max_length` make a decoder of {parameters} parameters, and at most \
                 {MOST_NEW_PARAMETERS} are initialised: make them smaller"
            )));
        }
        if !d_model.is_multiple_of(self.heads) {
            let rule = format!("it must divide the width of the token embeddings, which is {d_model}");
            return Err(invalid("heads", self.heads, &rule));
        }
        check_dropout("dropout", self.dropout)
    }

    /// Creates a decoder with Whisper's blocks. The token embeddings, `[vocab_size, d_model]`, are those of the
    /// encoder: shared, frozen, and also used as the output layer. Positions are learned. The states it decodes from
    /// must have the same width.
    ///
    /// Frozen rows cannot learn the scale that logits need. So the last norm, which is trained, starts with that scale:
    /// the inverse of the root mean square norm of the rows. A state that is unrelated to all rows then has logits of
    /// variance 1.
    pub fn init(&self, embeddings: &Embedding, device: &Device) -> WhisperDecoder {
        let [vocab_size, d_model] = embeddings.weight.dims();
        let config = WhisperConfig {
            d_model,
            decoder_layers: self.layers,
            decoder_attention_heads: self.heads,
            decoder_ffn_dim: self.ffn,
            vocab_size,
            max_target_positions: self.max_length,
            dropout: self.dropout,
            // Standard deviation of PyTorch's linear maps; it is 0.02, as in BERT and Whisper, at their width of 768.
            init_std: (3.0 * d_model as f64).powf(-0.5),
            ..Default::default()
        };
        let frozen = Embedding { weight: embeddings.weight.clone().set_require_grad(false) };
        let mut decoder = WhisperDecoder::with_embeddings(frozen, &config, device);
        let norm = row_norm(embeddings);
        if norm > 0.0 {
            decoder.layer_norm.weight = Param::from_tensor(Tensor::full([d_model], norm.recip(), device));
        }
        decoder
    }
}

/// Root mean square of the norms of a table's rows.
pub fn row_norm(embeddings: &Embedding) -> f64 {
    let squares = widened(embeddings.weight.val().inner()).square().sum_dim(1);
    f64::from(squares.mean().into_scalar::<f32>()).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whisper::{DecoderCache, GenerateOptions};
    use burn::module::Module;
    use burn::optim::{AdamWConfig, GradientsParams};
    use burn::tensor::{Bool, Int, TensorData};
    use undertone_ops::{CrossEntropyOptions, cross_entropy};
    use undertone_store::parameter_infos;

    const VOCAB: usize = 40;
    const D_MODEL: usize = 32;
    const START: u32 = 1;
    const END: u32 = 2;

    /// Rows of the given norm around a common direction, as in BERT.
    fn embeddings(norm: f64, device: &Device) -> Embedding {
        let normal = |rows| undertone_ops::normal([rows, D_MODEL], 1.0, device);
        let rows = normal(VOCAB) + normal(1).mul_scalar(0.5);
        let norms = rows.clone().square().sum_dim(1).sqrt();
        Embedding { weight: Param::from_tensor((rows / norms).mul_scalar(norm)) }
    }

    /// Texts of two to nine tokens, with their encoder states and padding.
    struct Pairs {
        texts: Vec<Vec<u32>>,
        states: Tensor<3>,
        padding: Tensor<2, Bool>,
    }

    impl Pairs {
        fn new(embeddings: &Embedding, device: &Device) -> Self {
            let texts: Vec<Vec<u32>> =
                (0..8).map(|i| (0..i + 2).map(|j| (3 + (i * 11 + j * j * 7) % (VOCAB - 3)) as u32).collect()).collect();
            let longest = 9;
            let padded: Vec<i64> = texts.iter().flat_map(|t| padded(t, longest, 0)).collect();
            let ids = Tensor::<2, Int>::from_data(TensorData::new(padded, [8, longest]), device);
            let positions = undertone_ops::normal([1, longest, D_MODEL], 0.25, device);
            let padding = ids.clone().equal_elem(0);
            Self { texts, states: embeddings.forward(ids) + positions, padding }
        }

        fn cache(&self, decoder: &WhisperDecoder, device: &Device) -> DecoderCache {
            decoder.cache(self.states.clone().to_device(device), None).with_padding(self.padding.clone())
        }

        fn loss(&self, decoder: &WhisperDecoder, device: &Device) -> Tensor<1> {
            let rows = |f: fn(&Vec<u32>) -> Vec<i64>| {
                Tensor::<2, Int>::from_data(
                    TensorData::new(self.texts.iter().flat_map(f).collect::<Vec<_>>(), [8, 10]),
                    device,
                )
            };
            let inputs = rows(|text| padded(&[&[START], text.as_slice()].concat(), 10, 0));
            let labels = rows(|text| padded(&[text.as_slice(), &[END]].concat(), 10, -100)).reshape([80]);
            let states = decoder.forward(inputs, &mut self.cache(decoder, device));
            let logits = decoder.logits(states).reshape([80, VOCAB]);
            cross_entropy(logits, labels, CrossEntropyOptions::default()).mean()
        }
    }

    fn padded(tokens: &[u32], length: usize, with: i64) -> Vec<i64> {
        tokens.iter().map(|id| i64::from(*id)).chain(std::iter::repeat(with)).take(length).collect()
    }

    fn config() -> TextDecoderConfig {
        TextDecoderConfig { layers: 2, heads: 4, ffn: 64, max_length: 12, dropout: 0.0 }
    }

    #[test]
    fn learns_to_copy_over_frozen_embeddings_of_any_scale() {
        // BERT's rows are of norm 1.4.
        for norm in [1.4, 20.0] {
            let device = Device::default();
            undertone_ops::seed(7);
            let embeddings = embeddings(norm, &device);
            let pairs = Pairs::new(&embeddings, &device);
            let mut decoder = config().init(&embeddings, &device).train();
            let training = device.clone().autodiff();
            let mut optimizer = AdamWConfig::new().with_weight_decay(0.0).init();
            for _ in 0..250 {
                let gradients = pairs.loss(&decoder, &training).backward();
                let gradients = GradientsParams::from_grads(gradients, &decoder);
                decoder = optimizer.step(3e-3, decoder, gradients);
            }
            let decoder = decoder.valid();
            let loss = pairs.loss(&decoder, &device).into_scalar::<f32>();
            assert!(loss < 0.1, "loss {loss} with embeddings of norm {norm}");
            for beams in [1, 3] {
                let options = GenerateOptions { beams, ..GenerateOptions::new(END, 12) };
                let prompts = vec![vec![START]; 8];
                assert_eq!(decoder.generate(pairs.cache(&decoder, &device), &prompts, &options), pairs.texts);
            }
            let [kept, given] = [decoder.embed_tokens, embeddings].map(|e| e.weight.val().into_data());
            assert_eq!(kept, given, "frozen embeddings were trained");
        }
    }

    #[test]
    fn begins_near_chance_whatever_the_scale_of_the_embeddings() {
        let device = Device::default();
        for norm in [0.1, 1.4, 20.0] {
            undertone_ops::seed(7);
            let embeddings = embeddings(norm, &device);
            let decoder = config().init(&embeddings, &device);
            let loss = Pairs::new(&embeddings, &device).loss(&decoder, &device).into_scalar::<f32>();
            // Chance is ln 40 = 3.7; unscaled, a norm of 20 starts at 90.
            assert!((3.0..6.0).contains(&loss), "loss {loss} with embeddings of norm {norm}");
        }
    }

    #[test]
    fn the_embeddings_are_those_of_the_encoder_and_stay() {
        let device = Device::default();
        let embeddings = embeddings(1.4, &device);
        let decoder = config().init(&embeddings, &device).train();
        let infos = parameter_infos(&decoder);
        assert!(infos.iter().all(|p| p.trainable == (p.name != "embed_tokens.weight")), "{infos:?}");
        assert_eq!(decoder.embed_tokens.weight.id, embeddings.weight.id);
    }

    #[test]
    fn what_describes_no_decoder_is_refused_by_name() {
        let refused = |config: TextDecoderConfig| config.validate(D_MODEL).expect_err("refused").to_string();
        assert_eq!(config().validate(D_MODEL), Ok(()));
        assert!(refused(TextDecoderConfig { layers: 0, ..config() }).starts_with("`layers`"));
        assert!(refused(TextDecoderConfig { max_length: 0, ..config() }).starts_with("`max_length`"));
        assert!(refused(TextDecoderConfig { heads: 5, ..config() }).starts_with("`heads` is 5"));
        assert!(refused(TextDecoderConfig { dropout: 1.0, ..config() }).starts_with("`dropout`"));
    }
}
