//! Directories that are written whole, or not at all.

use crate::error::StoreError;
use crate::lock::DirectoryLock;
use crate::temporary::{is_temporary, new_directory, old_directory};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Fills a directory beside `path` through `write`, syncs it and renames it into place. An existing directory is
/// replaced: its files that the new one has too are deleted, and all others are moved over.
///
/// # Errors
/// The first error of `write`, or when the file system refuses; then what was at `path` is still there, or beside it where the error says.
pub fn write_directory<E: From<StoreError>>(path: &Path, write: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    replace_directory(path, |_| false, write)
}

/// Like [`write_directory`], but also deletes the entries of an existing directory for whose name `is_replaced` returns
/// true, whether the new one has them or not.
///
/// # Errors
/// As for [`write_directory`].
pub fn replace_directory<E: From<StoreError>>(
    path: &Path,
    is_replaced: impl Fn(&str) -> bool,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let io = |source| StoreError::Io { action: "write", path: path.to_owned(), source };
    // Without a slash at its end, with which a directory cannot be put in its place.
    let path = &path.components().collect::<PathBuf>();
    // The directory behind a link is replaced, and not the link.
    let behind_link = path.is_symlink().then(|| std::fs::canonicalize(path)).transpose().map_err(io)?;
    let path = behind_link.as_deref().unwrap_or(path);
    if path.exists() && !path.is_dir() {
        return Err(io(std::io::ErrorKind::NotADirectory.into()).into());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(io)?;
    let new = new_directory(parent).map_err(io)?;
    write(new.path())?;
    sync_entries(new.path()).map_err(io)?;
    swap(new, path, &is_replaced).map_err(io)?;
    Ok(File::open(parent).and_then(|d| d.sync_all()).map_err(io)?)
}

/// Puts `new` in the place of `path`. Entries of the old directory that `new` has too are deleted.
fn swap(new: tempfile::TempDir, path: &Path, is_replaced: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    if !path.exists() {
        return std::fs::rename(new.keep(), path);
    }
    // Both are whole at every moment then, and a kill after the exchange loses nothing. What cannot be linked is moved afterwards.
    let _ = link_missing(path, new.path(), is_replaced);
    // A directory cannot be renamed over a full one. Linux exchanges two in one step, after which the temporary name
    // holds the old one. Elsewhere the old one is renamed first, and a kill in between leaves it in `.old-…`.
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        if renameat_with(CWD, new.path(), CWD, path, RenameFlags::EXCHANGE).is_ok() {
            let moved = move_missing(new.path(), path, is_replaced);
            return moved.map_err(|error| kept(new.path(), path, error));
        }
    }
    let parent = new.path().parent().unwrap_or(Path::new(".")).to_owned();
    let old = old_directory(&parent)?;
    let replaced = old.path().join("replaced");
    std::fs::rename(path, &replaced)?;
    if let Err(error) = std::fs::rename(new.path(), path) {
        return Err(std::fs::rename(&replaced, path).err().map_or(error, |error| kept(&replaced, path, error)));
    }
    let moved = move_missing(&replaced, path, is_replaced);
    moved.map_err(|error| kept(&replaced, path, error))
}

/// Keeps `old`, the directory that was at `path`, beside it: some of its entries may be the user's, and could not be moved. Returns the
/// error that says so.
fn kept(old: &Path, path: &Path, error: std::io::Error) -> std::io::Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = |number: usize| path.with_file_name(format!("{name}-before-{number}"));
    let place = (1..).map(place).find(|place| place.symlink_metadata().is_err());
    match place.map(|place| std::fs::rename(old, &place).map(|()| place)) {
        Some(Ok(place)) => {
            let text = format!("{error}; the entries that could not be moved are in `{}`", place.display());
            std::io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

/// Writes everything below `dir` to the disk.
fn sync_entries(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_entries(&entry.path())?;
        }
        File::open(entry.path())?.sync_all()?;
    }
    Ok(())
}

/// Moves the entries that `from` has and `to` lacks, except those of `from` itself that are replaced.
fn move_missing(from: &Path, to: &Path, is_replaced: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    // A link to a directory is an entry of its own, and not followed.
    if !from.symlink_metadata()?.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_name().to_str().is_some_and(is_replaced) {
            continue;
        }
        match place.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::fs::rename(entry.path(), place)?,
            Err(error) => return Err(error),
            Ok(there) if there.is_dir() => move_missing(&entry.path(), &place, &|_| false)?,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Links the entries that `from` has and `to` lacks into `to`, except those of `from` itself that are replaced.
fn link_missing(from: &Path, to: &Path, is_replaced: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_name().to_str().is_some_and(is_replaced) {
            continue;
        }
        let (is_dir, there) = (entry.file_type()?.is_dir(), place.symlink_metadata());
        match there {
            Err(_) if is_dir => {
                std::fs::create_dir(&place)?;
                let linked = link_missing(&entry.path(), &place, &|_| false);
                std::fs::set_permissions(&place, entry.metadata()?.permissions())?;
                linked?;
            }
            Err(_) => std::fs::hard_link(entry.path(), &place)?,
            Ok(there) if is_dir && there.is_dir() => link_missing(&entry.path(), &place, &|_| false)?,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Whether `dir` is empty but for its lock file and for temporary files that this module left when a process was
/// killed.
pub fn is_blank(dir: &Path) -> bool {
    let leftover = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        is_temporary(&name) || name == DirectoryLock::FILE
    };
    std::fs::read_dir(dir).is_ok_and(|entries| entries.flatten().all(leftover))
}

/// Deletes temporary files that this module left in `dir` when a process was killed. No other process may be writing
/// there.
///
/// # Errors
/// When the file system refuses.
pub fn remove_leftovers(dir: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { action: "clear", path: dir.to_owned(), source };
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        if !is_temporary(&entry.file_name()) {
            continue;
        }
        let is_dir = entry.file_type().map_err(io)?.is_dir();
        if is_dir { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) }.map_err(io)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{write_atomically, write_streamed};
    use std::io::Write;

    #[test]
    fn a_directory_with_leftovers_alone_is_blank() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(is_blank(dir.path()) && !is_blank(&dir.path().join("none")));
        for name in [".tmp-a1B2c3", DirectoryLock::FILE] {
            std::fs::write(dir.path().join(name), "half").expect("written");
        }
        assert!(is_blank(dir.path()));
        std::fs::write(dir.path().join("thesis.tex"), "whole").expect("written");
        assert!(!is_blank(dir.path()));
    }

    #[test]
    fn what_cannot_be_moved_out_of_a_replaced_directory_is_kept_beside_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, path) = (dir.path().join(".tmp-a1B2c3"), dir.path().join("best"));
        std::fs::create_dir_all(old.join("mine")).expect("made");
        std::fs::create_dir_all(dir.path().join("best-before-1")).expect("made");
        let refused = std::io::Error::other("permission denied");
        let error = kept(&old, &path, refused).to_string();
        let place = dir.path().join("best-before-2");
        assert!(place.join("mine").is_dir() && !old.exists(), "{error}");
        assert!(error.contains("permission denied") && error.contains(&*place.to_string_lossy()), "{error}");
    }

    #[test]
    fn a_directory_is_replaced_whole_or_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("best");
        let fill = |text: &'static str| move |at: &Path| write_atomically(&at.join("file"), text.as_bytes());
        write_directory(&path, fill("one")).expect("written");
        write_directory(&path, fill("two")).expect("replaced");
        let refused = write_directory(&path, |at| {
            fill("three")(at)?;
            Err(StoreError::Missing { name: "x".into(), origin: "y".into() })
        });
        assert!(refused.is_err());
        assert_eq!(std::fs::read(path.join("file")).expect("read"), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing is left beside it");
    }

    #[test]
    fn leftovers_of_a_killed_writer_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in [".tmp-abcdef", ".old-abcdef", ".old-notes of mine", ".tmp-", "best", ".keep"] {
            std::fs::create_dir(dir.path().join(name)).expect("made");
        }
        std::fs::write(dir.path().join(".tmp-file01"), b"half").expect("written");
        remove_leftovers(dir.path()).expect("cleared");
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("listed").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, [".keep", ".old-notes of mine", ".tmp-", "best"]);
    }

    #[test]
    fn what_somebody_has_put_into_a_directory_outlives_its_replacement() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("best");
        let fill = |text: &'static str| {
            move |at: &Path| {
                std::fs::create_dir(at.join("part")).expect("made");
                write_atomically(&at.join("part/weights"), text.as_bytes())
            }
        };
        write_directory(&path, fill("one")).expect("written");
        for (name, text) in [("notes.txt", "mine"), ("part/notes.txt", "mine, too")] {
            std::fs::write(path.join(name), text).expect("written");
        }
        std::fs::create_dir_all(path.join("plots/of/mine")).expect("made");
        // Of the directory itself, and not of what is below it.
        for name in ["step-7", "plots/step-7", "plots/of/step-7"] {
            std::fs::write(path.join(name), "seven").expect("written");
        }
        replace_directory(&path, |name| name.starts_with("step-"), fill("two")).expect("replaced");
        assert!(!path.join("step-7").exists());
        assert!(path.join("plots/step-7").exists() && path.join("plots/of/step-7").exists());
        let read = |name: &str| std::fs::read_to_string(path.join(name)).expect("read");
        assert_eq!([read("part/weights"), read("notes.txt"), read("part/notes.txt")], ["two", "mine", "mine, too"]);
        assert!(path.join("plots/of/mine").is_dir());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing is left beside it");
    }

    /// A kill between the exchange and the end leaves both directories, of which the old one is deleted.
    #[test]
    fn the_directory_in_place_has_everything_before_the_old_one_is_emptied() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        for at in [&old, &new] {
            std::fs::create_dir_all(at.join("part")).expect("made");
            std::fs::write(at.join("part/weights"), at.to_string_lossy().as_bytes()).expect("written");
        }
        std::fs::create_dir_all(old.join("plots/of")).expect("made");
        for name in ["notes.txt", "part/notes.txt", "plots/of/mine.svg", "step-7"] {
            std::fs::write(old.join(name), name).expect("written");
        }
        link_missing(&old, &new, &|name| name.starts_with("step-")).expect("linked");
        for name in ["notes.txt", "part/notes.txt", "plots/of/mine.svg"] {
            let read = |at: &Path| std::fs::read_to_string(at.join(name)).expect("there");
            assert_eq!([read(&old), read(&new)], [name, name]);
        }
        assert!(!new.join("step-7").exists());
        let own = std::fs::read_to_string(new.join("part/weights")).expect("there");
        assert_eq!(own, new.to_string_lossy(), "its own files are not replaced");
    }

    /// The umask belongs to a process, so another umask needs another process.
    #[cfg(target_os = "linux")]
    #[test]
    fn others_may_do_with_files_what_the_umask_says() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let usual = dir.path().join("usual");
        std::fs::write(&usual, "as any program writes it").expect("written");
        let written = dir.path().join("written");
        write_atomically(&written, b"ours").expect("written");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&written), mode(&usual));
        let (made, ours) = (dir.path().join("made"), dir.path().join("ours"));
        std::fs::create_dir(&made).expect("made");
        write_directory(&ours, |at| write_atomically(&at.join("file"), b"x")).expect("written");
        assert_eq!((mode(&ours), mode(&ours.join("file"))), (mode(&made), mode(&usual)));
        let lock = DirectoryLock::acquire(&made).expect("owned");
        assert_eq!(mode(&made.join(DirectoryLock::FILE)), mode(&usual));
        drop(lock);
        // Once more, for a group that shares a directory.
        if std::env::var_os("UNDERTONE_TEST_UMASK").is_none() {
            let test = std::env::current_exe().expect("a path");
            let name = "others_may_do_with_files_what_the_umask_says";
            let command = format!("umask 007 && exec '{}' {name}", test.display());
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &command]).env("UNDERTONE_TEST_UMASK", "1").stdout(std::process::Stdio::null());
            assert!(shell.status().expect("a shell").success());
        }
    }

    #[test]
    fn a_refused_write_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let blocked = dir.path().join("place");
        std::fs::create_dir(&blocked).expect("a directory in its place");
        assert!(write_atomically(&blocked, b"x").is_err());
        let full = |file: &mut dyn Write| {
            file.write_all(b"half")?;
            Err(std::io::ErrorKind::StorageFull.into())
        };
        let error = write_streamed(&dir.path().join("file"), full).expect_err("refused").to_string();
        assert!(error.starts_with("cannot write") && error.contains("file"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
