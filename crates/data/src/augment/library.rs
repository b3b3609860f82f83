//! Recordings that effects draw from.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::AugmentError;
use crate::audio;
use crate::records::Paths;

/// Maximum length of noise that is kept, in hours: 0.9 GB in 16 bits.
pub(super) const HOURS: usize = 8;
/// Number of files that are decoded at a time, so that the limit is noticed before the memory is full.
const AT_ONCE: usize = 64;

/// Reads every file under `paths` in the order of its path, decodes it and passes it through `keep`; at most `most`
/// samples.
pub(super) fn load<T: Send>(
    key: &'static str,
    paths: &Paths,
    most: usize,
    keep: impl Fn(&Path, Vec<f32>) -> Result<Vec<T>, AugmentError> + Sync,
) -> Result<Vec<Vec<T>>, AugmentError> {
    let mut files = Vec::new();
    for path in paths.as_slice() {
        let found = audio::audio_files(path).map_err(|source| AugmentError::Audio { key, source })?;
        if found.is_empty() {
            return Err(AugmentError::NoFiles { key, path: path.clone() });
        }
        files.extend(found);
    }
    let decode = |file: &PathBuf| {
        let audio = audio::load(file).map_err(|source| AugmentError::Audio { key, source })?;
        keep(file, audio)
    };
    let (mut kept, mut samples) = (Vec::new(), 0);
    for files in files.chunks(AT_ONCE) {
        let decoded: Vec<Vec<T>> = files.par_iter().map(decode).collect::<Result<_, _>>()?;
        samples += decoded.iter().map(Vec::len).sum::<usize>();
        if samples > most {
            return Err(AugmentError::TooMuch { key, hours: most / (3600 * audio::SAMPLE_RATE as usize) });
        }
        kept.extend(decoded);
    }
    Ok(kept)
}
