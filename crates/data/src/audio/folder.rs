//! Audio files in folders.

use super::AudioError;
use std::path::{Path, PathBuf};

/// Extensions of the files that are read. The content decides, not the name: these tell audio from other files in a folder.
pub const EXTENSIONS: [&str; 18] = [
    "wav", "flac", "mp3", "ogg", "oga", "opus", "m4a", "m4b", "mp4", "m4v", "mov", "aac", "aif", "aiff", "caf", "mka",
    "mkv", "webm",
];

/// Returns a file itself, whatever its name, or the audio files in a folder and its subfolders, in the order of their paths.
/// Hidden files and folders are skipped.
///
/// # Errors
/// When the path does not exist, or a folder cannot be read.
pub fn audio_files(path: &Path) -> Result<Vec<PathBuf>, AudioError> {
    files_below(path, has_audio_extension)
}

/// Returns the `wanted` files as [`audio_files`] does.
pub(crate) fn files_below(path: &Path, wanted: fn(&Path) -> bool) -> Result<Vec<PathBuf>, AudioError> {
    let mut found = Vec::new();
    find(path, wanted, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Whether the name of a file is that of audio.
pub(crate) fn has_audio_extension(path: &Path) -> bool {
    path.extension().is_some_and(|own| EXTENSIONS.iter().any(|known| own.eq_ignore_ascii_case(known)))
}

/// Adds the `wanted` files below `path`. `above` are the folders that it is in, without links.
fn find(
    path: &Path,
    wanted: fn(&Path) -> bool,
    above: &mut Vec<PathBuf>,
    found: &mut Vec<PathBuf>,
) -> Result<(), AudioError> {
    let fail = |source| AudioError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(fail)?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let own = path.canonicalize().map_err(fail)?;
    // A link may lead back to a folder that it is in.
    if above.contains(&own) {
        return Ok(());
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(fail)?;
    let mut inside: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    inside.sort();
    above.push(own);
    for path in inside.iter().filter(|path| !is_hidden(path)) {
        if path.is_dir() || path.is_file() && wanted(path) {
            find(path, wanted, above, found)?;
        }
    }
    above.pop();
    Ok(())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_searched_in_order_without_what_is_hidden() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path();
        for file in ["b.FLAC", "a/2.wav", "a/1.mp3", "a/.hidden.wav", ".cache/x.wav", "notes.txt", "c.wav/deep.ogg"] {
            let path = top.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            std::fs::write(path, "").expect("written");
        }
        let names = |path: &Path| -> Vec<String> {
            let found = audio_files(path).expect("found");
            found.iter().map(|file| file.strip_prefix(path).expect("below").display().to_string()).collect()
        };
        assert_eq!(names(top), ["a/1.mp3", "a/2.wav", "b.FLAC", "c.wav/deep.ogg"]);
        // A file that is named is one, whatever its name.
        assert_eq!(audio_files(&top.join("notes.txt")).expect("found"), [top.join("notes.txt")]);
        let missing = audio_files(&top.join("gone")).expect_err("missing").to_string();
        assert!(missing.contains("gone: cannot be read"), "{missing}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_but_not_in_circles() {
        let dir = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).expect("created");
            std::fs::write(folder.join("x.wav"), "").expect("written");
        }
        std::os::unix::fs::symlink(&outside, inside.join("more")).expect("linked");
        std::os::unix::fs::symlink(&inside, inside.join("self")).expect("linked");
        let found = audio_files(&inside).expect("found");
        assert_eq!(found, [inside.join("more/x.wav"), inside.join("x.wav")]);
    }
}
