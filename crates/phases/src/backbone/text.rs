//! Text encoders with their tokenizers.

use undertone_model::backbone::{Backbone, BoxedBackbone};
use undertone_model::text::{PretrainedText, TextEncoderConfig, TextTokenizer};
use undertone_tasks::{Framer, TextError};

/// Text encoder with its tokenizer and dimensions.
#[derive(Clone)]
pub struct TextBackbone {
    /// Network.
    pub network: BoxedBackbone,
    /// Tokenizer.
    pub tokenizer: TextTokenizer,
    /// The stages of that tokenizer, for rows of tokens whose parts are known.
    pub framer: Framer,
    /// Maximum number of tokens per input, special tokens included.
    pub max_tokens: usize,
    /// Dimensions in the form of BERT's, for memory estimates.
    pub dimensions: TextEncoderConfig,
}

impl TextBackbone {
    /// Returns a backbone with a network that reads at most `max_tokens` tokens.
    ///
    /// # Errors
    /// When the tokenizer does not enclose texts in a start and an end token.
    pub fn new(network: BoxedBackbone, tokenizer: TextTokenizer, max_tokens: usize) -> Result<Self, TextError> {
        let (dimensions, framer) = (dimensions(&*network, max_tokens), Framer::new(&tokenizer)?);
        Ok(Self { network, tokenizer, framer, max_tokens, dimensions })
    }
}

impl TryFrom<PretrainedText> for TextBackbone {
    type Error = TextError;

    fn try_from(text: PretrainedText) -> Result<Self, TextError> {
        let PretrainedText { model, config, tokenizer, .. } = text;
        let max_tokens = model.max_tokens();
        Ok(Self { dimensions: config, ..Self::new(BoxedBackbone::new("Text", model), tokenizer, max_tokens)? })
    }
}

/// Returns the dimensions of an encoder of which no more is known, as BERT has them: heads of width 64, and a
/// feed-forward width of four times the hidden size.
pub(super) fn dimensions(network: &dyn Backbone, positions: usize) -> TextEncoderConfig {
    let [vocab_size, hidden_size] = network.token_embedding().weight.dims();
    TextEncoderConfig {
        vocab_size,
        max_position_embeddings: positions,
        ..TextEncoderConfig::new(hidden_size, 4 * hidden_size, hidden_size.div_ceil(64), network.block_count())
    }
}
