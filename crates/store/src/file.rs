//! Safetensors files: reading by name, atomic writes.

use crate::error::StoreError;
use crate::header::Header;
use crate::host::{Dtype, HostTensor, TensorSource, decode};
use crate::lock::DirectoryLock;
use crate::mapped::MappedFile;
use crate::temporary::{is_temporary, new_directory, new_file, old_directory};
use safetensors::tensor::TensorView;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// An open safetensors file, memory-mapped.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    map: MappedFile,
    header: Header,
}

impl TensorFile {
    /// Opens a file, and reads and checks its header.
    ///
    /// # Errors
    /// When the file is missing, cut short or of another format.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let format = |reason: String| StoreError::Format { path: path.to_owned(), reason };
        let map = MappedFile::open(path, format)?;
        let header = Header::read(&map).map_err(format)?;
        Ok(Self { path: path.to_owned(), map, header })
    }

    /// Tensor names in the order of the file.
    pub fn names(&self) -> Vec<String> {
        self.header.names()
    }

    /// Shape of a tensor by name, from the header alone. `None` if there is no such tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.find(name).map(|(info, _)| info.shape.as_slice())
    }

    /// Reads one tensor as f32.
    ///
    /// # Errors
    /// When it is missing or not a float tensor.
    pub fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        let (info, place) = self.header.find(name).ok_or_else(|| self.missing(name))?;
        let data = decode(info.dtype, &self.map[place]).ok_or_else(|| StoreError::Type {
            name: name.to_owned(),
            path: self.path.clone(),
            dtype: format!("{:?}", info.dtype),
        })?;
        Ok(HostTensor { shape: info.shape.clone(), data })
    }
}

impl TensorSource for TensorFile {
    fn origin(&self) -> &Path {
        &self.path
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Self::shape(self, name).map(<[usize]>::to_vec)
    }

    fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        Self::read(self, name)
    }
}

/// Writes named tensors as one safetensors file. The write is atomic.
///
/// # Errors
/// When the file cannot be written.
pub fn write_tensors(path: &Path, tensors: &BTreeMap<String, HostTensor>, dtype: Dtype) -> Result<(), StoreError> {
    let format = |reason: String| StoreError::Format { path: path.to_owned(), reason };
    let encoded: Vec<(&String, &HostTensor, Vec<u8>)> =
        tensors.iter().map(|(name, t)| (name, t, dtype.encode(&t.data))).collect();
    let mut views = Vec::with_capacity(encoded.len());
    for (name, tensor, bytes) in &encoded {
        let view = TensorView::new(dtype.in_file(), tensor.shape.clone(), bytes).map_err(|e| format(e.to_string()))?;
        views.push((name.as_str(), view));
    }
    // Transformers refuses files whose metadata does not name the framework whose layout they hold.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(|e| format(e.to_string()))?;
    write_atomically(path, &bytes)
}

/// Writes `bytes` to a file beside `path`, syncs it and renames it into place.
///
/// # Errors
/// When the file system refuses; then no temporary file is left behind.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_streamed(path, |file| file.write_all(bytes))
}

/// Writes a value as indented JSON, as [`write_atomically`] does.
///
/// # Errors
/// As for [`write_atomically`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    // Only maps whose keys are no texts and types of their own have no JSON.
    write_atomically(path, serde_json::to_string_pretty(value).unwrap_or_default().as_bytes())
}

/// Like [`write_atomically`], for a file that is too large to be held in memory: `write` writes it piece by piece.
///
/// # Errors
/// As for [`write_atomically`].
pub fn write_streamed(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { action: "write", path: path.to_owned(), source };
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = new_file(dir).map_err(io)?;
    let mut buffered = BufWriter::new(file);
    write(&mut buffered).map_err(io)?;
    let file = buffered.into_inner().map_err(|e| io(e.into_error()))?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|e| io(e.error))?;
    // The rename itself is durable only once the directory is.
    File::open(dir).and_then(|d| d.sync_all()).map_err(io)
}

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

/// Moves the entries that `from` has and `to` lacks, except those that are replaced.
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
            Ok(there) if there.is_dir() => move_missing(&entry.path(), &place, is_replaced)?,
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
    use proptest::prelude::*;

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

    fn tensor(data: &[f32]) -> HostTensor {
        HostTensor { shape: vec![data.len()], data: data.to_vec() }
    }

    proptest! {
        #[test]
        fn files_round_trip_in_every_type(data in proptest::collection::vec(-6e4_f32..6e4, 0..40)) {
            let dir = tempfile::tempdir().expect("a directory");
            for (dtype, step) in [(Dtype::F32, 0.0), (Dtype::F16, 1.0 / 1024.0), (Dtype::Bf16, 1.0 / 128.0)] {
                let path = dir.path().join("x.safetensors");
                write_tensors(&path, &BTreeMap::from([("a.b".to_owned(), tensor(&data))]), dtype).expect("written");
                let back = TensorFile::open(&path).expect("opened").read("a.b").expect("read");
                prop_assert_eq!(back.shape, vec![data.len()]);
                for (x, y) in data.iter().zip(&back.data) {
                    // Half a unit in the last place, plus what subnormal f16 numbers lose.
                    let denormal = if step > 0.0 { 3e-8 } else { 0.0 };
                    prop_assert!((x - y).abs() <= x.abs() * step / 2.0 + denormal, "{x} came back as {y}");
                }
            }
        }
    }

    #[test]
    fn a_cut_or_foreign_file_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("model.safetensors");
        write_tensors(&path, &BTreeMap::from([("w".to_owned(), tensor(&[1.0; 100]))]), Dtype::F32).expect("written");
        let whole = std::fs::read(&path).expect("read");
        for bytes in [&whole[..whole.len() - 1], &whole[..20], b"not a tensor file at all", b""] {
            std::fs::write(&path, bytes).expect("written");
            let error = TensorFile::open(&path).expect_err("refused").to_string();
            assert!(error.contains("model.safetensors"), "{error}");
        }
        let error = TensorFile::open(&dir.path().join("none.safetensors")).expect_err("refused").to_string();
        assert!(error.starts_with("cannot read"), "{error}");
    }

    /// Writes a file with this header and so many bytes after it.
    fn file_of(header: &str, bytes: usize, path: &Path) {
        let length = (header.len() as u64).to_le_bytes();
        std::fs::write(path, [&length[..], header.as_bytes(), &vec![0; bytes]].concat()).expect("written");
    }

    #[test]
    fn every_tensor_of_a_file_with_many_is_read_in_linear_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("many.safetensors");
        let count = 50_000;
        let tensors = (0..count).map(|at| (format!("t{at}"), tensor(&[at as f32]))).collect();
        write_tensors(&path, &tensors, Dtype::F32).expect("written");
        let begun = std::time::Instant::now();
        let file = TensorFile::open(&path).expect("opened");
        let names = file.names();
        assert_eq!(names.len(), count);
        for name in names {
            assert_eq!(file.shape(&name), Some([1].as_slice()));
            assert_eq!(file.read(&name).expect("read"), tensors[&name]);
        }
        // If the header were read again for every tensor, this would take most of an hour.
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_header_that_does_not_fit_its_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.safetensors");
        let entry = |name: &str, shape: &str, start: usize, end: usize| {
            format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}"#)
        };
        let whole = format!("{{{},{}}}", entry("a", "[1]", 0, 4), entry("b", "[1]", 4, 8));
        file_of(&whole, 8, &path);
        assert_eq!(TensorFile::open(&path).expect("opened").names(), ["a", "b"]);
        for (first, second, said) in [
            (entry("a", "[1]", 0, 4), entry("a", "[1]", 0, 4), "tensor `a` is there twice"),
            (entry("a", "[1]", 0, 4), entry("b", "[1]", 0, 4), "b"),
            (entry("a", "[1]", 0, 4), entry("b", "[1]", 5, 9), "b"),
            (entry("a", "[1]", 0, 4), entry("b", "[2]", 4, 8), ""),
            (entry("a", "[1]", 0, 4), entry("b", "[4294967296,4294967296,4294967296]", 4, 8), ""),
            (entry("a", "[1]", 0, 4), entry("b", "[1]", 8, 4), "b"),
            (entry("a", "[1]", 0, 4), entry("b", "[]", 4, 8).replace("F32", "F7"), "F7"),
            (entry("a", "[1]", 0, 4), entry("b", "[2]", 4, 12), "12 bytes of tensors, and 8"),
        ] {
            file_of(&format!("{{{first},{second}}}"), 8, &path);
            let error = TensorFile::open(&path).expect_err(&second).to_string();
            assert!(error.contains("x.safetensors") && error.contains(said), "{error}");
        }
        std::fs::write(&path, [&100_000_001_u64.to_le_bytes()[..], b"{}"].concat()).expect("written");
        let error = TensorFile::open(&path).expect_err("refused").to_string();
        assert!(error.contains("100000001 bytes"), "{error}");
        let error = TensorFile::open(dir.path()).expect_err("refused").to_string();
        assert!(error.contains("a folder, a pipe or a device"), "{error}");
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
        write_directory(&path, fill("two")).expect("replaced");
        let read = |name: &str| std::fs::read_to_string(path.join(name)).expect("read");
        assert_eq!([read("part/weights"), read("notes.txt"), read("part/notes.txt")], ["two", "mine", "mine, too"]);
        assert!(path.join("plots/of/mine").is_dir());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing is left beside it");
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
