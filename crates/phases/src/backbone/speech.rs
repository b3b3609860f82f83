//! Speech encoders with their tokenizers, and the decoders that write text from their states.

use super::text::dimensions;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use undertone_data::features::HOP;
use undertone_fit::Footprint;
use undertone_model::adapters::Gates;
use undertone_model::backbone::BoxedBackbone;
use undertone_model::whisper::{PretrainedWhisper, TokenizerError};
use undertone_ops::{Distillation, Taught};
use undertone_store::Dtype;
use undertone_tasks::GenerationSettings;
use undertone_train::BoxError;

/// Speech encoder with its tokenizer, its decoder, and the audio that it reads: log-mel features of Whisper's kind, a
/// frame every 10 ms.
#[derive(Clone)]
pub struct SpeechBackbone {
    /// Network. [`Backbone::writes_text`](undertone_model::backbone::Backbone::writes_text) is true for it.
    pub network: BoxedBackbone,
    /// Tokenizer.
    pub tokenizer: Arc<dyn SpeechTokenizer>,
    /// Loss and generation of text.
    pub decoder: Arc<dyn SpeechDecoder>,
    /// Number of mel bins: 80 or 128.
    pub mel_bins: usize,
    /// Length of the window, in frames of 10 ms: audio in one piece is no longer.
    pub max_frames: usize,
    /// Number of frames that each position of the network's states stands for: the stride of its convolutions.
    pub frames_per_position: usize,
    /// Spelling map of the English normaliser, the content of a `normalizer.json`.
    pub spellings: Option<Vec<u8>>,
    /// Small files of its folder, which are saved with the trained weights.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Text as the tokens of a speech backbone.
pub trait SpeechTokenizer: Send + Sync {
    /// Returns the tokens of a text, without special tokens.
    ///
    /// # Errors
    /// When the vocabulary cannot encode it.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError>;

    /// Returns the text of tokens, without special tokens.
    fn decode(&self, tokens: &[u32]) -> String;

    /// Maximum number of tokens of a text, prompt included.
    fn max_tokens(&self) -> usize;

    /// Token that ends a text. Without one (CTC) the tokens of a text are its labels as they are; with one a decoder
    /// reads all tokens but the last, and predicts all that follow the prompt.
    fn end(&self) -> Option<u32> {
        None
    }

    /// Returns the tokens before a text in a language and for a task; those of the model, if none are given. With an
    /// [end token](Self::end) there is at least a start token.
    ///
    /// # Errors
    /// When the vocabulary has no token for the language or task.
    fn prompt(&self, language: Option<&str>, task: Option<&str>) -> Result<Vec<u32>, TokenizerError> {
        let _ = (language, task);
        Ok(Vec::new())
    }

    /// Whether the prompt names a language and a task.
    fn is_multilingual(&self) -> bool {
        false
    }

    /// Timestamp token of 0 s, if there are timestamp tokens.
    fn timestamp_begin(&self) -> Option<u32> {
        None
    }

    /// Token before the preceding text, if there is one.
    fn start_of_previous(&self) -> Option<u32> {
        None
    }

    /// Token for no speech, the blank of alignment targets; by default the end token, or 0.
    fn no_speech(&self) -> u32 {
        self.end().unwrap_or_default()
    }
}

/// Decoder of a speech backbone: it makes text of the network's last states, and computes the loss of a text. Whisper's
/// generates token by token; [`Ctc`](super::Ctc) reads a label at each position.
pub trait SpeechDecoder: Any + Send + Sync {
    /// Computes the loss of the reference texts of each group of rows, summed over their tokens, `[1]` each; 0 for an
    /// empty group. `label_smoothing` is the share of each target's probability that is spread over all tokens; 0 if
    /// the tokenizer has no end token.
    ///
    /// # Errors
    /// When the network is none of this decoder.
    fn losses(
        &self,
        states: SpeechStates,
        targets: &SpeechTargets,
        groups: &[Vec<usize>],
        label_smoothing: f64,
    ) -> Result<Vec<Tensor<1>>, BoxError>;

    /// Computes the [`losses`](Self::losses) of the groups with the divergence from a teacher, whose states at every token are
    /// `taught`. Only for decoders that write token by token; by default it is refused.
    ///
    /// # Errors
    /// When the decoder cannot be taught, or the network is none of it.
    fn distilled(
        &self,
        _states: SpeechStates,
        _targets: &SpeechTargets,
        _groups: &[Vec<usize>],
        _taught: Taught,
        _label_smoothing: f64,
    ) -> Result<Vec<Distillation>, BoxError> {
        Err("the decoder of this backbone cannot learn from a teacher: leave out `loss.distillation`".into())
    }

    /// Computes what a teacher predicts with: the last states at every token of the reference texts, `[batch · tokens, width]`, and the
    /// output layer, `[tokens of the vocabulary, width]`. Only for decoders that write token by token; by default it is refused.
    ///
    /// # Errors
    /// When the decoder cannot teach, or the network is none of it.
    fn predictions(&self, _states: SpeechStates, _targets: &SpeechTargets) -> Result<[Tensor<2>; 2], BoxError> {
        Err("the decoder of this backbone cannot teach another model".into())
    }

    /// Generates the tokens of each row of `groups`, in their order. `prompts` are the prompts of all rows.
    ///
    /// # Errors
    /// When the network is none of this decoder.
    fn generate(
        &self,
        states: SpeechStates,
        prompts: &[Vec<u32>],
        groups: &[RowGroup],
    ) -> Result<Vec<Vec<Vec<u32>>>, BoxError>;

    /// Returns the memory footprint of the model, for estimates; `None` for that of an encoder of its dimensions.
    fn footprint(&self) -> Option<Footprint> {
        None
    }

    /// Saves the model with the weights of `network` into a folder, from which it can be loaded again; `None` to write
    /// the files of its folder, and `model.safetensors` with the paths of the network's parameters.
    fn save(&self, network: &BoxedBackbone, folder: &Path) -> Option<Result<(), BoxError>> {
        let _ = (network, folder);
        None
    }
}

/// Last states of a batch of speech, and what belongs to them.
#[derive(Clone)]
pub struct SpeechStates<'a> {
    /// Network in training, with its adapters.
    pub network: &'a BoxedBackbone,
    /// Last states, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// Number of valid positions of each row.
    pub lengths: &'a [usize],
    /// Gates of the adapters.
    pub gates: Option<Gates>,
    /// Vector of each row's task, `[batch, d_model]`, in a run with tasks. A decoder adds it to the embedding of the
    /// start token, CTC to all states.
    pub task: Option<Tensor<2>>,
}

/// Reference texts of a batch, as tokens.
#[derive(Clone, Copy, Debug)]
pub struct SpeechTargets<'a> {
    /// Tokens per row.
    pub tokens: usize,
    /// Input tokens of a decoder, `[batch, tokens]`; empty without an end token.
    pub inputs: &'a [i64],
    /// Labels, `[batch, tokens]`; -100 for the prompt and padding.
    pub labels: &'a [i64],
}

/// Rows of a batch whose texts are generated alike.
#[derive(Clone, Debug)]
pub struct RowGroup<'a> {
    /// Indices of the rows.
    pub rows: Vec<usize>,
    /// Settings of their task; `None` for those of the model.
    pub generation: Option<&'a GenerationSettings>,
}

impl<'a> SpeechTargets<'a> {
    /// Returns the labels of a row.
    pub fn row(&self, row: usize) -> &'a [i64] {
        &self.labels[row * self.tokens..][..self.tokens]
    }
}

impl SpeechBackbone {
    /// Returns a backbone with a window of `max_frames` frames of 10 ms, each position of whose states stands for two
    /// frames.
    pub fn new(
        network: BoxedBackbone,
        tokenizer: impl SpeechTokenizer + 'static,
        decoder: impl SpeechDecoder,
        mel_bins: usize,
        max_frames: usize,
    ) -> Self {
        Self {
            network,
            tokenizer: Arc::new(tokenizer),
            decoder: Arc::new(decoder),
            mel_bins,
            max_frames,
            frames_per_position: 2,
            spellings: None,
            files: BTreeMap::new(),
        }
    }

    /// Length of the window, in samples of 16 kHz.
    pub fn window(&self) -> usize {
        self.max_frames * HOP
    }

    /// Number of audio samples per position of the network's states.
    pub(crate) fn position(&self) -> usize {
        self.frames_per_position.max(1) * HOP
    }

    /// Returns the Whisper that this is, if it is one.
    pub fn whisper(&self) -> Option<&PretrainedWhisper> {
        (&*self.decoder as &dyn Any).downcast_ref()
    }

    /// Sets the spelling map, which is saved with the model.
    pub fn with_spellings(self, json: Vec<u8>) -> Self {
        if let Some(whisper) = self.whisper() {
            let mut whisper = whisper.clone();
            whisper.set_spellings(json);
            return Self { network: self.network, ..whisper.into() };
        }
        let mut files = self.files;
        files.insert(PretrainedWhisper::SPELLINGS.to_owned(), json.clone());
        Self { spellings: Some(json), files, ..self }
    }

    /// Checks that its parts fit together.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !self.network.writes_text() {
            return Err("its network writes no text by itself: `Backbone::writes_text`");
        }
        if self.max_frames == 0 || self.frames_per_position == 0 {
            return Err("`max_frames` and `frames_per_position` must be at least 1");
        }
        let starts_with_text = self.tokenizer.prompt(None, None).is_ok_and(|prompt| prompt.is_empty());
        if self.tokenizer.end().is_some() && starts_with_text {
            return Err("its tokenizer has an end token and no start token: `SpeechTokenizer::prompt`");
        }
        Ok(())
    }

    /// Returns its memory footprint, on full windows.
    pub(crate) fn footprint(&self) -> Footprint {
        let positions = self.window().div_ceil(self.position());
        let encoder = || Footprint::text(&dimensions(&*self.network, positions), positions);
        self.decoder.footprint().unwrap_or_else(encoder)
    }

    /// Saves it with the weights of `network`.
    pub(crate) fn save(&self, network: &BoxedBackbone, folder: &Path) -> Result<(), BoxError> {
        let write = || Ok(undertone_model::backbone::write_folder(folder, self.files.clone(), network, Dtype::F32)?);
        self.decoder.save(network, folder).unwrap_or_else(write)
    }
}

/// Returns row indices on `device`.
pub(crate) fn row_ids(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    Tensor::from_ints(TensorData::from(rows.as_slice()), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelConfig;

    /// A tokenizer with an end token and no start token.
    struct Ending;

    impl SpeechTokenizer for Ending {
        fn encode(&self, _: &str) -> Result<Vec<u32>, TokenizerError> {
            Ok(Vec::new())
        }

        fn decode(&self, _: &[u32]) -> String {
            String::new()
        }

        fn max_tokens(&self) -> usize {
            1
        }

        fn end(&self) -> Option<u32> {
            Some(0)
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_named() {
        let speech: SpeechBackbone = ModelConfig::default().load(&Device::flex(), 1).expect("the bundled model").into();
        assert_eq!(speech.check(), Ok(()));
        let still = SpeechBackbone { frames_per_position: 0, ..speech.clone() };
        assert!(still.check().expect_err("refused").contains("`frames_per_position`"));
        let ending = SpeechBackbone { tokenizer: Arc::new(Ending), ..speech };
        assert!(ending.check().expect_err("refused").contains("no start token"));
    }
}
