//! What all readers of files share: their first bytes, their numbers, and the model that their parts make.

use burn::tensor::Device;
use serde_json::Map;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use undertone_model::whisper::{FolderError, GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer};
use undertone_store::TensorSource;

/// Whether a path is a file that begins with these bytes.
pub(crate) fn begins_with(path: &Path, begin: &[u8]) -> bool {
    let mut found = vec![0; begin.len()];
    // Opening a pipe would block until another process writes into it.
    path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut found)).is_ok_and(|()| found == begin)
}

/// Parts of a model that a file holds.
pub(crate) struct Parts<'a> {
    pub config: WhisperConfig,
    pub tokenizer: &'a WhisperTokenizer,
    pub generation: &'a GenerationConfig,
    /// Weights under Hugging Face's names.
    pub tensors: &'a dyn TensorSource,
}

impl Parts<'_> {
    /// Builds the model. `origin` is its place in errors.
    pub(crate) fn assembled(mut self, origin: &Path, device: &Device) -> Result<PretrainedWhisper, FolderError> {
        let end = self.tokenizer.end();
        self.config.decoder_start_token_id = self.tokenizer.start();
        (self.config.eos_token_id, self.config.pad_token_id) = (end, end);
        let mut config = Map::new();
        self.config.write_hf(&mut config);
        let json = |object| serde_json::Value::Object(object).to_string().into_bytes();
        let files = BTreeMap::from([
            ("config.json".to_owned(), json(config)),
            ("generation_config.json".to_owned(), json(self.generation.to_json())),
            ("tokenizer.json".to_owned(), self.tokenizer.to_bytes().to_vec()),
        ]);
        PretrainedWhisper::of_tensors(origin, files, self.tensors, device)
    }
}

/// Bytes of a file, read from the start.
pub(crate) struct Input<'a> {
    pub all: &'a [u8],
    /// Place of the next byte.
    pub at: usize,
}

impl<'a> Input<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.all.len());
        let end = end.ok_or("it ends early: fetch it again")?;
        let taken = &self.all[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads a little-endian number of at most four bytes.
    pub fn number(&mut self, bytes: usize) -> Result<usize, String> {
        let bytes = self.take(bytes)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }
}
