//! Models that come with this crate.

use std::collections::BTreeMap;

/// The names of the bundled models: the one that is fine-tuned where a configuration names no other, and the one that reads
/// recordings off the air.
pub const BUNDLED: [&str; 2] = ["whisper-nano-cw", "whisper-nano-radio"];

/// The files of a bundled model by their names in a Hugging Face folder; none for a name that is not in [`BUNDLED`].
pub fn bundled(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    macro_rules! files {
        ($folder:literal) => {
            files!($folder: "config.json", "generation_config.json", "model.safetensors", "preprocessor_config.json",
                "tokenizer.json", "tokenizer_config.json")
        };
        ($folder:literal: $($file:literal),*) => {
            BTreeMap::from([$(($file.to_owned(), include_bytes!(concat!("../../bundled/", $folder, "/", $file)).to_vec())),*])
        };
    }
    match name {
        "whisper-nano-cw" => Some(files!("whisper-nano-cw")),
        "whisper-nano-radio" => Some(files!("whisper-nano-radio")),
        _ => None,
    }
}
