//! The recordings that the arguments name.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use undertone::data::audio::audio_files;

/// A recording, and the name of its output without extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The audio file.
    pub path: PathBuf,
    /// Path of its output in the output directory, without extension: a file in a folder keeps its place in it.
    pub name: PathBuf,
}

/// Returns the recordings of files and folders, in order; a folder's are sorted by name.
pub fn recordings(paths: &[PathBuf], unique: bool) -> Result<Vec<Recording>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            let found = audio_files(path).map_err(|error| Failure::BadInput(error.to_string()))?;
            if found.is_empty() {
                let text = format!("the folder `{}` has no audio files: name them one by one", path.display());
                return Err(Failure::BadInput(text));
            }
            all.extend(found.into_iter().map(|file| {
                let name = file.strip_prefix(path).unwrap_or(&file).with_extension("");
                Recording { path: file, name }
            }));
        } else if path.exists() {
            let name = path.file_stem().map_or_else(|| path.clone(), PathBuf::from);
            all.push(Recording { path: path.clone(), name });
        } else if path == Path::new("-") {
            return Err(Failure::BadInput(
                "`-` is standard input, which is transcribed alone: leave out the files, or it".into(),
            ));
        } else {
            return Err(Failure::BadInput(format!("there is no audio file `{}`", path.display())));
        }
    }
    let mut by_name: BTreeMap<&Path, &Path> = BTreeMap::new();
    for recording in all.iter().filter(|_| unique) {
        if let Some(other) = by_name.insert(&recording.name, &recording.path) {
            return Err(Failure::BadInput(format!(
                "`{}` and `{}` would have the same output, `{}`: transcribe them into different folders",
                other.display(),
                recording.path.display(),
                recording.name.display()
            )));
        }
    }
    Ok(all)
}

/// Returns the message about a recording that could be read for its first `seconds`, or not at all.
pub fn cut_off(error: &dyn Display, seconds: f64) -> String {
    if seconds > 0.0 { format!("{error} (transcribed up to {seconds:.1} s)") } else { error.to_string() }
}

/// Returns how the command ends, by the errors of those recordings that could not be transcribed. The error of one among several has
/// been reported before.
pub fn outcome(mut errors: Vec<String>, recordings: usize) -> Result<(), Failure> {
    match errors.len() {
        0 => Ok(()),
        1 if recordings == 1 => Err(Failure::BadInput(errors.remove(0))),
        failed => {
            Err(Failure::BadInput(format!("{failed} of {recordings} recordings were not transcribed: see above")))
        }
    }
}
