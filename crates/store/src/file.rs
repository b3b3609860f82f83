//! Safetensors files: reading by name, atomic writes.

use crate::error::StoreError;
use crate::header::{self, Header};
use crate::host::{Dtype, HostTensor, TensorSource, decode};
use crate::mapped::MappedFile;
use crate::temporary::new_file;
use serde::Serialize;
use std::collections::BTreeMap;
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
    let header =
        header::written(tensors, dtype).map_err(|reason| StoreError::Format { path: path.to_owned(), reason })?;
    // In pieces: encoded at once, the state of an optimizer would be in memory twice.
    write_streamed(path, |file| {
        file.write_all(&header)?;
        let mut pieces = tensors.values().flat_map(|tensor| tensor.data.chunks(PIECE));
        pieces.try_for_each(|piece| file.write_all(&dtype.encode(piece)))
    })
}

/// Numbers that are encoded at a time.
const PIECE: usize = 1 << 18;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn the_bytes_are_those_of_the_library() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.safetensors");
        let ones = HostTensor { shape: vec![3, PIECE], data: (0..3 * PIECE).map(|x| x as f32).collect() };
        let tensors = BTreeMap::from([("b".to_owned(), tensor(&[])), ("a".to_owned(), ones)]);
        for dtype in [Dtype::F32, Dtype::Bf16] {
            write_tensors(&path, &tensors, dtype).expect("written");
            let encoded = tensors.iter().map(|(name, tensor)| (name, &tensor.shape, dtype.encode(&tensor.data)));
            let encoded: Vec<_> = encoded.collect();
            let views = encoded.iter().map(|(name, shape, bytes)| {
                (name, safetensors::tensor::TensorView::new(dtype.in_file(), (*shape).clone(), bytes).expect("a view"))
            });
            let format = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
            let expected = safetensors::serialize(views, Some(format)).expect("serialised");
            assert!(std::fs::read(&path).expect("read") == expected, "{dtype:?}");
        }
        let odd = BTreeMap::from([("a".to_owned(), HostTensor { shape: vec![2], data: vec![0.0] })]);
        let error = write_tensors(&path, &odd, Dtype::F32).expect_err("refused").to_string();
        assert!(error.contains("x.safetensors"), "{error}");
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
}
