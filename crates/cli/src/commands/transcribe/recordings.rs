//! The recordings that the arguments name.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone::data::audio::EXTENSIONS;

/// A recording, and the name of its output without extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The audio file.
    pub path: PathBuf,
    /// Path of its output in the output directory, without extension: a file in a folder keeps its place in it.
    pub name: PathBuf,
}

/// Returns the recordings of files and folders, in order; a folder's are sorted by name.
///
/// # Errors
/// If a path does not exist, a folder has no recordings, or two recordings have the same name and `unique` is set.
pub fn recordings(paths: &[PathBuf], unique: bool) -> Result<Vec<Recording>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = all.len();
            in_folder(path, path, &mut all)?;
            if all.len() == before {
                let text = format!("the folder `{}` has no audio files: name them one by one", path.display());
                return Err(Failure::BadInput(text));
            }
        } else if path.exists() {
            let name = path.file_stem().map_or_else(|| path.clone(), PathBuf::from);
            all.push(Recording { path: path.clone(), name });
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

fn in_folder(top: &Path, folder: &Path, all: &mut Vec<Recording>) -> Result<(), Failure> {
    let unreadable =
        |e: std::io::Error| Failure::BadInput(format!("cannot read the folder `{}`: {e}", folder.display()));
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        // A link to a folder may lead in a circle.
        if path.is_dir() && !path.is_symlink() {
            in_folder(top, &path, all)?;
        } else if path.is_file() && is_recording(&path) {
            let name = path.strip_prefix(top).unwrap_or(&path).with_extension("");
            all.push(Recording { path, name });
        }
    }
    Ok(())
}

fn is_recording(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}
