//! Reading of files.

use super::dtype::Stored;
use super::{MAGIC, NAME};
use crate::parts::{Input, Parts, begins_with};
use crate::{ExchangeError, names, vocabulary};
use burn::tensor::Device;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use undertone_model::whisper::{PretrainedWhisper, WhisperConfig, WhisperTokenizer};
use undertone_store::{HostTensor, MappedFile, StoreError, TensorSource};

/// Whether this is a file of whisper.cpp.
pub(crate) fn matches(path: &Path) -> bool {
    begins_with(path, &MAGIC.to_le_bytes())
}

/// Reads a file of whisper.cpp, its quantised weights expanded to f32. The vocabulary is the file's own; settings for
/// decoding, which it does not have, are those of openai-whisper.
///
/// # Errors
/// When the file is cut short or damaged, or holds another model than a Whisper.
pub fn read(path: &Path, device: &Device) -> Result<PretrainedWhisper, ExchangeError> {
    let unreadable = |reason: String| ExchangeError::Unreadable { path: path.to_owned(), format: NAME, reason };
    let no_file = |reason: String| StoreError::Format { path: path.to_owned(), reason };
    let map = MappedFile::open(path, no_file)?;
    let file = GgmlFile::read(path, map).map_err(unreadable)?;
    let tokenizer = tokenizer(&file).map_err(unreadable)?;
    if let Some(dtype) = file.quantised() {
        tracing::warn!("`{}` has weights in {dtype:?}, which are expanded to f32", path.display());
    }
    let generation = vocabulary::generation(&tokenizer);
    let parts = Parts { config: file.config.clone(), tokenizer: &tokenizer, generation: &generation, tensors: &file };
    Ok(parts.assembled(path, device)?)
}

fn tokenizer(file: &GgmlFile) -> Result<WhisperTokenizer, String> {
    vocabulary::of_tokens(&file.tokens, file.config.vocab_size)
}

/// A file, mapped into memory.
struct GgmlFile {
    path: PathBuf,
    map: MappedFile,
    config: WhisperConfig,
    /// Bytes of the ordinary tokens.
    tokens: Vec<Vec<u8>>,
    tensors: HashMap<String, Entry>,
}

/// Place of a tensor.
struct Entry {
    dtype: Stored,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl GgmlFile {
    fn read(path: &Path, map: MappedFile) -> Result<Self, String> {
        let mut input = Input { all: &map, at: 4 };
        let config = dimensions(&mut input)?;
        let filters = input.number(4)?.checked_mul(input.number(4)?).and_then(|values| values.checked_mul(4));
        input.take(filters.ok_or("its mel filters are too large")?)?;
        let tokens = tokens(&mut input)?;
        let mut tensors = HashMap::new();
        while input.at < map.len() {
            let (name, entry) = entry(&mut input)?;
            tensors.insert(name, entry);
        }
        Ok(Self { path: path.to_owned(), map, config, tokens, tensors })
    }

    /// Type of the quantised tensors, if there are any.
    fn quantised(&self) -> Option<Stored> {
        self.tensors.values().map(|entry| entry.dtype).find(|dtype| dtype.is_quantised())
    }
}

impl TensorSource for GgmlFile {
    fn origin(&self) -> &Path {
        &self.path
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let name = names::of(name)?;
        let mut shape = self.tensors.get(&name)?.shape.clone();
        if names::is_conv_bias(&name) && shape.last() == Some(&1) {
            shape.pop();
        }
        Some(shape)
    }

    fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        let entry = names::of(name).and_then(|name| self.tensors.get(&name));
        let (entry, shape) = entry.zip(self.shape(name)).ok_or_else(|| self.missing(name))?;
        Ok(HostTensor { shape, data: entry.dtype.decode(&self.map[entry.bytes.clone()]) })
    }
}

/// Reads the header.
fn dimensions(input: &mut Input) -> Result<WhisperConfig, String> {
    let mut word = || input.number(4);
    let [vocab_size, max_source_positions, width, heads, layers] = [word()?, word()?, word()?, word()?, word()?];
    let [max_target_positions, d_model, decoder_heads, decoder_layers, num_mel_bins, _] =
        [word()?, word()?, word()?, word()?, word()?, word()?];
    if width != d_model {
        return Err(format!("encoder and decoder have different widths, {width} and {d_model}"));
    }
    Ok(WhisperConfig {
        d_model,
        encoder_layers: layers,
        decoder_layers,
        encoder_attention_heads: heads,
        decoder_attention_heads: decoder_heads,
        encoder_ffn_dim: d_model.saturating_mul(4),
        decoder_ffn_dim: d_model.saturating_mul(4),
        num_mel_bins,
        vocab_size,
        max_source_positions,
        max_target_positions,
        ..WhisperConfig::default()
    })
}

fn tokens(input: &mut Input) -> Result<Vec<Vec<u8>>, String> {
    let count = input.number(4)?;
    let token = |_| {
        let length = input.number(4)?;
        input.take(length).map(<[u8]>::to_vec)
    };
    (0..count).map(token).collect()
}

/// Reads the header of a tensor, and skips its values.
fn entry(input: &mut Input) -> Result<(String, Entry), String> {
    let [axes, length, number] = [input.number(4)?, input.number(4)?, input.number(4)?];
    if !(1..=4).contains(&axes) {
        return Err(format!("a tensor has {axes} axes"));
    }
    // The axis whose values are neighbours comes first.
    let mut shape = (0..axes).map(|_| input.number(4)).collect::<Result<Vec<usize>, String>>()?;
    let row = shape[0];
    shape.reverse();
    let name = String::from_utf8_lossy(input.take(length)?).into_owned();
    let dtype = Stored::of_number(number)
        .ok_or_else(|| format!("tensor `{name}` has type {number}, which is not read: give the file in f16 or q8_0"))?;
    let (bytes, values) = dtype.block();
    if !row.is_multiple_of(values) {
        return Err(format!("tensor `{name}` has rows of {row} values, which are not whole blocks of {values}"));
    }
    let count = shape.iter().try_fold(1usize, |count, axis| count.checked_mul(*axis));
    let length = count.and_then(|count| (count / values).checked_mul(bytes));
    let length = length.ok_or_else(|| format!("tensor `{name}` is too large"))?;
    let start = input.at;
    input.take(length)?;
    Ok((name, Entry { dtype, shape, bytes: start..input.at }))
}
