//! Models that are part of this crate.

use std::collections::BTreeMap;

/// Names of the bundled models. Configurations begin with the first one, and `transcribe` reads with the second.
pub const BUNDLED: [&str; 2] = ["whisper-nano-cw", "whisper-nano-cw-wide"];

/// Returns the files of a bundled model by their names in a Hugging Face folder; `None` for a name that is not in
/// [`BUNDLED`].
pub fn bundled(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    macro_rules! files {
        ($folder:literal: $($file:literal),*) => {
            BTreeMap::from([$(($file.to_owned(), include_bytes!(concat!("../../bundled/", $folder, "/", $file)).to_vec())),*])
        };
    }
    macro_rules! folder {
        ($folder:literal) => {
            files!($folder: "config.json", "generation_config.json", "model.safetensors", "preprocessor_config.json",
            "tokenizer.json", "tokenizer_config.json")
        };
    }
    match name {
        "whisper-nano-cw" => Some(folder!("whisper-nano-cw")),
        "whisper-nano-cw-wide" => Some(folder!("whisper-nano-cw-wide")),
        _ => None,
    }
}
