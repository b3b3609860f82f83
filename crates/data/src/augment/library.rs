//! Recordings that effects draw from.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::AugmentError;
use crate::audio::{self, EXTENSIONS};
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
        let before = files.len();
        find(key, path, &mut files)?;
        if files.len() == before {
            return Err(AugmentError::NoFiles { key, path: path.clone() });
        }
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

/// Returns the file itself, or the audio files in a folder and its subfolders; hidden ones are skipped.
fn find(key: &'static str, path: &Path, files: &mut Vec<PathBuf>) -> Result<(), AugmentError> {
    let fail = |source| AugmentError::Folder { key, path: path.into(), source };
    if !fs::metadata(path).map_err(fail)?.is_dir() {
        files.push(path.into());
        return Ok(());
    }
    let entries = fs::read_dir(path).map_err(fail)?.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let mut inside: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    inside.sort();
    for path in inside.iter().filter(|path| !is_hidden(path)) {
        if path.is_dir() || is_audio(path) {
            find(key, path, files)?;
        }
    }
    Ok(())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn is_audio(path: &Path) -> bool {
    let known = |extension: &std::ffi::OsStr| EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known));
    path.extension().is_some_and(known)
}
