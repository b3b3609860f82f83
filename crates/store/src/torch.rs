//! Files of torch (`pytorch_model.bin`): tensors by name, memory-mapped. Code in them is never run.

mod pickle;
mod zip;

use crate::error::StoreError;
use crate::host::{HostTensor, TensorSource, decode};
use crate::mapped::MappedFile;
use pickle::{Content, Stored};
use safetensors::Dtype as FileDtype;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An open file of torch, memory-mapped. A tensor in a dictionary in the file's dictionary has both keys as its name, with a
/// dot between them.
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    map: MappedFile,
    content: Content,
    /// Place of each storage by its key.
    storages: HashMap<String, Range<usize>>,
}

impl TorchFile {
    /// Opens a file, and reads the description of its tensors.
    ///
    /// # Errors
    /// When the file is missing, cut short, of another format, or describes anything but tensors.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let format = |reason: String| StoreError::Torch { path: path.to_owned(), reason };
        let map = MappedFile::open(path, format)?;
        let entries = zip::entries(&map).map_err(format)?;
        let described = entries.iter().find_map(|(name, place)| Some((name.strip_suffix("data.pkl")?, place)));
        let (folder, place) = described.ok_or_else(|| format("it has no data.pkl".into()))?;
        let content = pickle::read(&map[place.clone()]).map_err(format)?;
        let folder = format!("{folder}data/");
        let key =
            |(name, place): (&String, &Range<usize>)| Some((name.strip_prefix(&folder)?.to_owned(), place.clone()));
        let storages = entries.iter().filter_map(key).collect();
        Ok(Self { path: path.to_owned(), map, content, storages })
    }

    /// Returns the names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.content.tensors.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// A whole number in the file, by its name.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.content.numbers.get(name).copied()
    }
}

impl TensorSource for TorchFile {
    fn origin(&self) -> &Path {
        &self.path
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.content.tensors.get(name).map(|stored| stored.shape.clone())
    }

    fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        let stored = self.content.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let format =
            |what: &str| StoreError::Torch { path: self.path.clone(), reason: format!("tensor `{name}` {what}") };
        let (dtype, width) = match stored.kind.as_str() {
            "FloatStorage" => (FileDtype::F32, 4),
            "HalfStorage" => (FileDtype::F16, 2),
            "BFloat16Storage" => (FileDtype::BF16, 2),
            "DoubleStorage" => (FileDtype::F64, 8),
            other => {
                let (name, path) = (name.to_owned(), self.path.clone());
                return Err(StoreError::Type { name, path, dtype: other.to_owned() });
            }
        };
        let place = self.storages.get(&stored.key).ok_or_else(|| format("has no storage"))?;
        let reach = reach(stored).ok_or_else(|| format("is too large"))?;
        let beyond = || format("is beyond its storage");
        let start = stored.offset.checked_mul(width).ok_or_else(beyond)?;
        let end = reach.checked_mul(width).and_then(|length| start.checked_add(length)).ok_or_else(beyond)?;
        let bytes = self.map[place.clone()].get(start..end).ok_or_else(beyond)?;
        let data = decode(dtype, bytes).ok_or_else(|| format("holds no floats"))?;
        let data = if is_contiguous(stored) { data } else { in_order(stored, &data) };
        Ok(HostTensor { shape: stored.shape.clone(), data })
    }
}

/// Number of elements from the first to the last one of a tensor. `None` if it has more elements than that, as an
/// expanded tensor does, which a short file could make as large as it likes.
fn reach(stored: &Stored) -> Option<usize> {
    let Stored { shape, strides, .. } = stored;
    let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
    if elements == 0 {
        return Some(0);
    }
    let mut axes = shape.iter().zip(strides);
    let last = axes.try_fold(0usize, |last, (size, stride)| last.checked_add((size - 1).checked_mul(*stride)?))?;
    last.checked_add(1).filter(|reach| elements <= *reach && shape.len() == strides.len())
}

/// Returns the elements of a view, such as a transposed matrix, in row-major order.
fn in_order(stored: &Stored, data: &[f32]) -> Vec<f32> {
    let axes = stored.shape.iter().zip(&stored.strides);
    let places = axes.fold(vec![0], |places: Vec<usize>, (size, stride)| {
        places.into_iter().flat_map(|place| (0..*size).map(move |index| place + index * stride)).collect()
    });
    places.into_iter().map(|place| data[place]).collect()
}

/// Whether the elements lie in row-major order.
fn is_contiguous(stored: &Stored) -> bool {
    let mut expected = 1usize;
    stored.shape.len() == stored.strides.len()
        && stored.shape.iter().zip(&stored.strides).rev().all(|(size, stride)| {
            let fits = *size == 1 || *stride == expected;
            expected = expected.saturating_mul(*size);
            fits
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Made by `torch/fixtures/make.py`.
    const SMALL: &[u8] = include_bytes!("torch/fixtures/small.bin");
    const NESTED: &[u8] = include_bytes!("torch/fixtures/nested.bin");
    const RUN: &[u8] = include_bytes!("torch/fixtures/run.bin");

    fn opened(bytes: &[u8]) -> Result<TorchFile, StoreError> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("pytorch_model.bin");
        std::fs::write(&path, bytes).expect("written");
        TorchFile::open(&path)
    }

    #[test]
    fn tensors_of_every_float_type_are_read() {
        let file = opened(SMALL).expect("a file");
        let read = |name: &str| file.read(name).expect(name);
        let rows: Vec<f32> = (0..12).map(|n| n as f32).collect();
        assert_eq!(read("matrix"), HostTensor { shape: vec![3, 4], data: rows });
        assert_eq!(read("row").data, [4.0, 5.0, 6.0, 7.0], "a view into the same storage");
        let turned = [0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0];
        assert_eq!(read("turned"), HostTensor { shape: vec![4, 3], data: turned.to_vec() });
        assert_eq!((read("half").data, read("brain").data), (vec![0.5, -2.0], vec![1.0, 3.0]));
        assert_eq!((read("double").data, read("parameter").data), (vec![0.25], vec![1.5]));
        assert_eq!(file.shape("matrix"), Some(vec![3, 4]));
        assert!(matches!(file.read("whole"), Err(StoreError::Type { .. })));
        assert!(matches!(file.read("other"), Err(StoreError::Missing { .. })));
    }

    #[test]
    fn dictionaries_in_the_dictionary_are_read_from_a_large_archive() {
        assert!(NESTED.windows(4).any(|bytes| bytes == b"PK\x06\x06"), "numbers of 64 bits");
        let file = opened(NESTED).expect("a file");
        assert_eq!(file.read("weights.row").expect("read").data, [0.0, 1.0]);
        assert_eq!((file.number("dims.n_mels"), file.number("step"), file.number("dims")), (Some(80), Some(7), None));
    }

    #[test]
    fn code_in_a_file_is_refused_by_name() {
        let error = opened(RUN).expect_err("refused").to_string();
        assert!(error.contains("`posix.system`") && error.contains("safetensors"), "{error}");
    }

    #[test]
    fn a_file_that_is_cut_short_is_refused() {
        for length in [0, 1, 100, SMALL.len() / 2, SMALL.len() - 1] {
            assert!(
                matches!(opened(&SMALL[..length]), Err(StoreError::Torch { .. } | StoreError::Io { .. })),
                "{length}"
            );
        }
        let legacy = opened(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.").expect_err("refused").to_string();
        assert!(legacy.contains("torch before 1.6"), "{legacy}");
    }

    proptest! {
        #[test]
        fn damage_is_read_or_refused(
            places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            nested in any::<bool>(),
        ) {
            let mut bytes = if nested { NESTED } else { SMALL }.to_vec();
            for (place, byte) in places {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Ok(file) = opened(&bytes) {
                for name in ["matrix", "row", "turned", "half", "brain", "double", "parameter", "weights.row"] {
                    let elements = file.read(name).map_or(0, |tensor| tensor.data.len());
                    prop_assert!(elements <= bytes.len());
                }
            }
        }
    }
}
