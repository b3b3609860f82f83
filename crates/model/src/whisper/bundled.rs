//! Models that are part of this crate.

use std::collections::BTreeMap;

/// Names of the bundled models.
pub const BUNDLED: [&str; 1] = ["whisper-nano-cw"];

/// Returns the files of a bundled model by their names in a Hugging Face folder; `None` for a name that is not in
/// [`BUNDLED`].
pub fn bundled(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    macro_rules! files {
        ($folder:literal: $($file:literal),*) => {
            BTreeMap::from([$(($file.to_owned(), include_bytes!(concat!("../../bundled/", $folder, "/", $file)).to_vec())),*])
        };
    }
    match name {
        "whisper-nano-cw" => {
            Some(files!("whisper-nano-cw": "config.json", "generation_config.json", "model.safetensors",
            "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"))
        }
        _ => None,
    }
}
