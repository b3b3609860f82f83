//! Formats that models are read from.

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;

use crate::{ExchangeError, ctranslate2, ggml, openai};
use burn::tensor::Device;
use std::path::Path;
use undertone_model::whisper::PretrainedWhisper;

/// A format of another program that models are read from.
pub struct Format {
    /// Name of the format in messages.
    pub name: &'static str,
    /// Whether a file or folder looks like one of this format.
    matches: fn(&Path) -> bool,
    read: fn(&Path, &Device) -> Result<PretrainedWhisper, ExchangeError>,
}

const FORMATS: [Format; 3] = [
    Format { name: ggml::NAME, matches: ggml::matches, read: ggml::read },
    Format { name: openai::NAME, matches: openai::matches, read: openai::read },
    Format { name: ctranslate2::NAME, matches: ctranslate2::matches, read: ctranslate2::read },
];

impl Format {
    /// Returns the format of a file or folder by how it begins; `None` if it is none of these.
    pub fn of(path: &Path) -> Option<&'static Self> {
        FORMATS.iter().find(|format| (format.matches)(path))
    }

    /// Reads a model onto `device`.
    ///
    /// # Errors
    /// When the file is damaged, or holds something else than a Whisper.
    pub fn read(&self, path: &Path, device: &Device) -> Result<PretrainedWhisper, ExchangeError> {
        (self.read)(path, device)
    }
}
