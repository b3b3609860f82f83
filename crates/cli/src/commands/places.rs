//! Places that a command writes to: what is there may be the user's own.

use crate::failure::Failure;
use std::path::Path;

/// Refuses an output directory that is not empty, because its files may be the user's own, or a file or device in its place.
pub fn refuse_to_replace(dir: &Path) -> Result<(), Failure> {
    if dir.symlink_metadata().is_ok() && !dir.is_dir() {
        return Err(Failure::BadInput(format!("`{}` is not a directory: choose another one", dir.display())));
    }
    match std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        true => Err(Failure::BadInput(format!("`{}` is not empty: choose another directory", dir.display()))),
        false => Ok(()),
    }
}

/// Refuses an output file that exists, because it may be the user's own, or whose directory does not.
pub fn refuse_no_place(file: &Path) -> Result<(), Failure> {
    let name = file.display();
    if file.symlink_metadata().is_ok() {
        return Err(Failure::BadInput(format!("`{name}` already exists: choose another file")));
    }
    match file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => {
            let parent = parent.display();
            Err(Failure::BadInput(format!("`{name}` has no place, `{parent}` is not a directory: create it first")))
        }
        _ => Ok(()),
    }
}
