//! Models with options that grow from a pretrained Whisper.

use super::options::{EncoderBlock, PositionEmbeddings};
use super::{PretrainedWhisper, WhisperConfig};
use crate::config_error::ConfigError;
use crate::folder::base_parameters;
use burn::tensor::Device;
use undertone_store::{HostTensor, StoreError, load_parameters};

/// Reason why a model does not grow into another one.
#[derive(Debug, thiserror::Error)]
pub enum GrowthError {
    /// A value that the weights do not allow.
    #[error("`{key}` is {value}, and {own} in the model to grow from: {advice}")]
    Differs {
        /// Key of the value.
        key: &'static str,
        /// Value of the new model.
        value: String,
        /// Value of the model that it grows from.
        own: String,
        /// What to do.
        advice: &'static str,
    },
    /// The configuration does not describe a model.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights contradict their own configuration.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const SAME: &str = "set it to that, or begin with random weights";
const NO_IDENTITY: &str = "it cannot begin as that model computes, so set it to that, or begin with random weights";
const FEWER: &str = "positions can be cut and not added, so set it to at most that";
const POOLED: &str = "set it to a divisor of that, whose heads are the means of several";

impl PretrainedWhisper {
    /// Returns a model of the sizes and options of `config`, with the tokenizer and files of this one, that computes what
    /// this one does: what fits is copied, and new parts begin as the identity. Positions may be fewer.
    ///
    /// Only heads of keys and values may be fewer at another result: each is the mean of those that it replaces (Ainslie et
    /// al., 2023, section 2.1).
    ///
    /// # Errors
    /// Names the first key under which the two models differ in a way that is no growth.
    pub fn grown(self, mut config: WhisperConfig, device: &Device) -> Result<Self, GrowthError> {
        let own = &self.config;
        check(own, &config)?;
        config.vocab_size = own.vocab_size;
        config.decoder_start_token_id = own.decoder_start_token_id;
        (config.eos_token_id, config.pad_token_id) = (own.eos_token_id, own.pad_token_id);
        config.validate()?;
        config.check_new()?;
        let becomes_conformer = own.encoder_block != config.encoder_block;
        let model = config.init(device);
        let (mut grown, mut fresh) = (self.tensors(), base_parameters(&model));
        let model = load_parameters(model, |name| {
            let missing = || StoreError::Missing { name: name.to_owned(), origin: "the new model".into() };
            let new = fresh.remove(name).ok_or_else(missing)?;
            let Some(mut tensor) = grown.remove(name) else { return Ok(begun(name, new)) };
            if becomes_conformer && name.starts_with("encoder.") && name.contains(".fc2.") {
                // A Conformer adds half of it.
                tensor.data.iter_mut().for_each(|value| *value *= 2.0);
            }
            Ok(fitted(name, tensor, &new.shape, &config))
        })?;
        let mut generation = self.generation;
        generation.max_length = generation.max_length.map(|length| length.min(config.max_target_positions));
        // Files that state a number of positions are written anew where it is another one.
        let mut files = self.files;
        if config.max_source_positions != self.config.max_source_positions {
            files.remove("preprocessor_config.json");
            files.remove("processor_config.json");
        }
        if config.max_target_positions != self.config.max_target_positions {
            files.remove("tokenizer_config.json");
        }
        Ok(Self { model, config, generation, raw_config: Default::default(), tokenizer: self.tokenizer, files })
    }
}

/// Checks that the weights of `own` can be those of `new`.
fn check(own: &WhisperConfig, new: &WhisperConfig) -> Result<(), GrowthError> {
    let differs = |key, value: &dyn ToString, own: &dyn ToString, advice| GrowthError::Differs {
        key,
        value: value.to_string(),
        own: own.to_string(),
        advice,
    };
    for (key, value, own) in [
        ("d_model", new.d_model, own.d_model),
        ("encoder_layers", new.encoder_layers, own.encoder_layers),
        ("decoder_layers", new.decoder_layers, own.decoder_layers),
        ("encoder_attention_heads", new.encoder_attention_heads, own.encoder_attention_heads),
        ("decoder_attention_heads", new.decoder_attention_heads, own.decoder_attention_heads),
        ("encoder_ffn_dim", new.encoder_ffn_dim, own.encoder_ffn_dim),
        ("decoder_ffn_dim", new.decoder_ffn_dim, own.decoder_ffn_dim),
        ("num_mel_bins", new.num_mel_bins, own.num_mel_bins),
    ] {
        if value != own {
            return Err(differs(key, &value, &own, SAME));
        }
    }
    if ![own.vocab_size, WhisperConfig::default().vocab_size].contains(&new.vocab_size) {
        return Err(differs("vocab_size", &new.vocab_size, &own.vocab_size, SAME));
    }
    if new.scale_embedding != own.scale_embedding {
        return Err(differs("scale_embedding", &new.scale_embedding, &own.scale_embedding, SAME));
    }
    for (key, value, own) in [
        ("max_source_positions", new.max_source_positions, own.max_source_positions),
        ("max_target_positions", new.max_target_positions, own.max_target_positions),
    ] {
        if value > own {
            return Err(differs(key, &value, &own, FEWER));
        }
    }
    let keys = ["encoder_key_value_heads", "decoder_key_value_heads"].into_iter();
    for ((key, value), own) in keys.zip(new.key_value_heads()).zip(own.key_value_heads()) {
        if value == 0 || !own.is_multiple_of(value) {
            return Err(differs(key, &value, &own, POOLED));
        }
    }
    if new.embedding_width() != own.embedding_width() {
        return Err(differs("embedding_size", &new.embedding_width(), &own.embedding_width(), NO_IDENTITY));
    }
    if new.position_embeddings_type != own.position_embeddings_type {
        let name = |config: &WhisperConfig| match config.position_embeddings_type {
            PositionEmbeddings::Absolute => "`absolute`",
            PositionEmbeddings::Rotary => "`rotary`",
        };
        return Err(differs("position_embeddings_type", &name(new), &name(own), NO_IDENTITY));
    }
    if own.encoder_block == EncoderBlock::Conformer {
        if new.encoder_block != own.encoder_block {
            return Err(differs("encoder_block", &"`transformer`", &"`conformer`", NO_IDENTITY));
        }
        if new.conv_kernel() != own.conv_kernel() {
            return Err(differs("conv_kernel_size", &new.conv_kernel(), &own.conv_kernel(), SAME));
        }
    }
    Ok(())
}

/// Returns the first value of a part that the other model lacks. The last maps of a Conformer block's new parts are 0, so
/// that these add nothing; the maps before them are as drawn, so that all of them learn.
fn begun(name: &str, mut new: HostTensor) -> HostTensor {
    if name.contains(".ffn1.output_dense.") || name.contains(".pointwise_conv2.") {
        new.data.fill(0.0);
    }
    new
}

/// Brings a tensor to its new shape: the first of its positions, or the means of its heads.
fn fitted(name: &str, mut tensor: HostTensor, shape: &[usize], config: &WhisperConfig) -> HostTensor {
    if tensor.shape == shape {
        return tensor;
    }
    if name.ends_with("embed_positions.weight") {
        tensor.data.truncate(shape.iter().product());
        return HostTensor { shape: shape.to_vec(), ..tensor };
    }
    let heads =
        if name.starts_with("encoder.") { config.encoder_attention_heads } else { config.decoder_attention_heads };
    // A head's rows, one behind the other.
    let head = config.d_model / heads * tensor.data.len() / tensor.shape[0];
    let group = tensor.shape[0] / shape[0];
    let mean = |group: &[f32]| -> Vec<f32> {
        let heads = group.len() / head;
        (0..head).map(|at| group[at..].iter().step_by(head).sum::<f32>() / heads as f32).collect()
    };
    let data = tensor.data.chunks(group * head).flat_map(mean).collect();
    HostTensor { shape: shape.to_vec(), data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::values;
    use crate::whisper::{GenerationConfig, WhisperTokenizer};
    use burn::tensor::{Int, Tensor};

    fn pretrained() -> PretrainedWhisper {
        let tokenizer = WhisperTokenizer::of_characters("abc ", &["en"]).expect("a tokenizer");
        let config = WhisperConfig {
            num_mel_bins: 8,
            max_source_positions: 12,
            max_target_positions: 10,
            init_std: 0.3,
            ..WhisperConfig::new(16, 24, 4, [2, 1])
        };
        undertone_ops::seed(8);
        PretrainedWhisper::init(config, tokenizer, GenerationConfig::new(true), &Device::default()).expect("a model")
    }

    /// Configuration of a model that grows from [`pretrained`].
    fn with(change: impl FnOnce(&mut WhisperConfig)) -> WhisperConfig {
        let mut config = WhisperConfig { vocab_size: 51865, ..pretrained().config };
        change(&mut config);
        config
    }

    fn conformer(config: &mut WhisperConfig) {
        config.encoder_block = EncoderBlock::Conformer;
    }

    fn logits(whisper: &PretrainedWhisper) -> Vec<f32> {
        let device = Device::default();
        undertone_ops::seed(9);
        let mel = undertone_ops::normal([2, 8, 20], 1.0, &device);
        values(whisper.model.forward(mel, Tensor::<2, Int>::from_ints([[1, 2, 3], [4, 5, 6]], &device)))
    }

    #[test]
    fn a_grown_model_begins_as_the_one_that_it_grows_from() {
        let (old, device) = (pretrained(), Device::default());
        let expected = logits(&old);
        let config = with(|c| {
            conformer(c);
            (c.conv_kernel_size, c.max_source_positions, c.max_target_positions) = (Some(5), 11, 7);
        });
        let new = old.clone().grown(config, &device).expect("grown");
        assert_eq!(new.tokenizer.to_bytes(), old.tokenizer.to_bytes());
        assert_eq!(new.config.vocab_size, old.config.vocab_size);
        let found = logits(&new);
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5));
        // A folder of it is read as what it is, and may grow again. Its files have the new numbers of positions, whatever those of
        // the old one said.
        let old_folder = tempfile::tempdir().expect("a folder");
        old.save(old_folder.path(), undertone_store::Dtype::F32).expect("written");
        let old = PretrainedWhisper::load(old_folder.path(), &device).expect("read");
        let new = old.grown(new.config.clone(), &device).expect("grown");
        let folder = tempfile::tempdir().expect("a folder");
        new.save(folder.path(), undertone_store::Dtype::F32).expect("written");
        let read = PretrainedWhisper::load(folder.path(), &device).expect("read");
        let number = |file: &str, key: &str| -> u64 {
            let text = std::fs::read_to_string(folder.path().join(file)).expect("a file");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON")[key].as_u64().expect("a number")
        };
        assert_eq!(number("preprocessor_config.json", "nb_max_frames"), 22);
        assert_eq!(number("tokenizer_config.json", "model_max_length"), 7);
        assert_eq!((read.config.clone(), logits(&read)), (new.config.clone(), found.clone()));
        let again = read.grown(new.config.clone(), &device).expect("grown again");
        assert_eq!(logits(&again), found);
    }

    #[test]
    fn fewer_heads_of_keys_are_the_means_of_those_before() {
        let (old, device) = (pretrained(), Device::default());
        let config = with(|c| (c.encoder_key_value_heads, c.decoder_key_value_heads) = (Some(2), Some(1)));
        let new = old.clone().grown(config, &device).expect("grown");
        let (old, new) = (old.tensors(), new.tensors());
        for (name, group) in
            [("encoder.layers.0.self_attn.k_proj.weight", 2), ("decoder.layers.0.encoder_attn.v_proj.bias", 4)]
        {
            let (old, new) = (&old[name], &new[name]);
            let columns = old.data.len() / old.shape[0];
            for (at, value) in new.data.iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let of = |member: usize| old.data[((row / 4 * group + member) * 4 + row % 4) * columns + column];
                let mean = (0..group).map(of).sum::<f32>() / group as f32;
                assert!((value - mean).abs() < 1e-6, "{name} at {at}");
            }
        }
    }

    #[test]
    fn what_cannot_begin_as_the_old_model_is_refused_by_name() {
        type Change = fn(&mut WhisperConfig);
        let cases: [(Change, &str); 9] = [
            (|c| c.d_model = 32, "`d_model` is 32, and 16 in the model to grow from: set it to that"),
            (|c| c.decoder_layers = 2, "`decoder_layers` is 2, and 1"),
            (|c| c.num_mel_bins = 80, "`num_mel_bins` is 80, and 8"),
            (|c| c.vocab_size = 99, "`vocab_size` is 99, and"),
            (|c| c.scale_embedding = true, "`scale_embedding` is true, and false"),
            (
                |c| c.max_target_positions = 11,
                "`max_target_positions` is 11, and 10 in the model to grow from: positions can be cut",
            ),
            (|c| c.encoder_key_value_heads = Some(3), "`encoder_key_value_heads` is 3, and 4"),
            (
                |c| c.embedding_size = Some(8),
                "`embedding_size` is 8, and 16 in the model to grow from: it cannot begin",
            ),
            (
                |c| c.position_embeddings_type = PositionEmbeddings::Rotary,
                "`position_embeddings_type` is `rotary`, and `absolute` in the model to grow from: it cannot begin",
            ),
        ];
        for (change, expected) in cases {
            let error = pretrained().grown(with(change), &Device::default()).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let grown = pretrained().grown(with(conformer), &Device::default()).expect("grown");
        let error = grown.grown(with(|_| ()), &Device::default()).expect_err("it shrinks").to_string();
        assert!(error.starts_with("`encoder_block` is `transformer`, and `conformer`"), "{error}");
        let even = with(|c| (c.encoder_block, c.conv_kernel_size) = (EncoderBlock::Conformer, Some(4)));
        assert!(matches!(pretrained().grown(even, &Device::default()), Err(GrowthError::Config(_))));
    }
}
