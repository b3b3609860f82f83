//! The model file of whisper.cpp: one file with dimensions, mel filters, vocabulary and weights.
//!
//! All numbers are little-endian. Biases, layer norms and positions are always f32; the convolutions are f16 unless all
//! is f32; the other matrices have the file's type.
//!
//! ```no_run
//! use undertone_exchange::ggml::{self, GgmlType};
//! use undertone_model::whisper::PretrainedWhisper;
//!
//! let whisper = PretrainedWhisper::load("best".as_ref(), &burn::tensor::Device::default())?;
//! ggml::write("best.bin".as_ref(), &whisper, GgmlType::F16)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod dtype;
mod fit;
mod read;
#[cfg(test)]
mod tests;

use crate::{ExchangeError, names};
pub use dtype::GgmlType;
pub(crate) use read::matches;
pub use read::read;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use undertone_data::features::{FREQUENCIES, mel_weights};
use undertone_model::whisper::{PretrainedWhisper, WhisperConfig, WhisperTokenizer};
use undertone_store::{HostTensor, write_streamed};

/// Name of the format in messages.
pub(crate) const NAME: &str = "whisper.cpp's format";

/// First word of a file.
const MAGIC: u32 = 0x6767_6d6c;

/// Writes a model as a file that whisper.cpp loads. The write is atomic.
///
/// # Errors
/// When whisper.cpp cannot hold the model, before anything is written; or when the file system refuses.
pub fn write(path: &Path, whisper: &PretrainedWhisper, dtype: GgmlType) -> Result<(), ExchangeError> {
    ExchangeError::check_stock("whisper.cpp", &whisper.config)?;
    let unfit = |reason| ExchangeError::Unfit { program: "whisper.cpp", reason };
    fit::check(whisper, dtype).map_err(unfit)?;
    let filters = mel_weights(whisper.config.num_mel_bins).map_err(|e| unfit(e.to_string()))?;
    let vocabulary = vocabulary(&whisper.tokenizer).map_err(unfit)?;
    let tensors = tensors(whisper.tensors(), dtype).map_err(unfit)?;
    write_streamed(path, |file| {
        write_dimensions(file, &whisper.config, dtype)?;
        write_filters(file, &filters)?;
        write_vocabulary(file, &vocabulary)?;
        tensors.iter().try_for_each(|tensor| tensor.write(file))
    })?;
    Ok(())
}

/// A tensor under whisper.cpp's name.
struct Entry {
    name: String,
    dtype: GgmlType,
    tensor: HostTensor,
}

impl Entry {
    fn write(&self, file: &mut dyn Write) -> io::Result<()> {
        let Self { name, dtype, tensor } = self;
        for number in [tensor.shape.len() as u32, name.len() as u32, dtype.of_tensor()] {
            word(file, number)?;
        }
        // The axis whose values are neighbours comes first.
        tensor.shape.iter().rev().try_for_each(|&length| word(file, length as u32))?;
        file.write_all(name.as_bytes())?;
        file.write_all(&dtype.encode(&tensor.data))
    }
}

/// Returns the tensors under whisper.cpp's names, each with the type that whisper.cpp expects; or the reason why one
/// cannot be stored.
fn tensors(all: BTreeMap<String, HostTensor>, dtype: GgmlType) -> Result<Vec<Entry>, String> {
    let entry = |(path, mut tensor): (String, HostTensor)| {
        let name = names::of(&path).ok_or_else(|| format!("it has no place for `{path}`"))?;
        let stored = stored_type(&name, tensor.shape.len(), dtype);
        if names::is_conv_bias(&name) {
            tensor.shape.push(1);
        }
        fit::check_values(&path, &tensor, stored)?;
        Ok(Entry { name, dtype: stored, tensor })
    };
    all.into_iter().map(entry).collect()
}

/// Returns the type that whisper.cpp expects of a tensor in a file of type `dtype`.
fn stored_type(name: &str, axes: usize, dtype: GgmlType) -> GgmlType {
    match axes {
        _ if names::is_positions(name) => GgmlType::F32,
        0 | 1 => GgmlType::F32,
        // The kernels of the convolutions: rows of three values are no blocks of 32.
        3 if dtype.is_quantised() => GgmlType::F16,
        _ => dtype,
    }
}

/// Returns the bytes of all tokens before the first special one. whisper.cpp adds those that follow by itself.
fn vocabulary(tokenizer: &WhisperTokenizer) -> Result<Vec<Vec<u8>>, String> {
    let bytes = |id| {
        tokenizer.token_bytes(id).ok_or_else(|| format!("token {id} of its vocabulary is not a sequence of bytes"))
    };
    (0..tokenizer.end()).map(bytes).collect()
}

fn write_dimensions(file: &mut dyn Write, config: &WhisperConfig, dtype: GgmlType) -> io::Result<()> {
    word(file, MAGIC)?;
    let dimensions = [
        config.vocab_size, config.max_source_positions, config.d_model, config.encoder_attention_heads,
        config.encoder_layers, config.max_target_positions, config.d_model, config.decoder_attention_heads,
        config.decoder_layers, config.num_mel_bins,
    ];
    dimensions.into_iter().try_for_each(|number| word(file, number as u32))?;
    word(file, dtype.of_file())
}

fn write_filters(file: &mut dyn Write, filters: &[f32]) -> io::Result<()> {
    word(file, (filters.len() / FREQUENCIES) as u32)?;
    word(file, FREQUENCIES as u32)?;
    file.write_all(&GgmlType::F32.encode(filters))
}

fn write_vocabulary(file: &mut dyn Write, tokens: &[Vec<u8>]) -> io::Result<()> {
    word(file, tokens.len() as u32)?;
    tokens.iter().try_for_each(|token| {
        word(file, token.len() as u32)?;
        file.write_all(token)
    })
}

/// Writes a number of 32 bits.
fn word(file: &mut dyn Write, number: u32) -> io::Result<()> {
    file.write_all(&number.to_le_bytes())
}
