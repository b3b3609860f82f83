//! Files of torch (`pytorch_model.bin`): tensors by name, memory-mapped. Code in them is never run.

mod pickle;
mod zip;

use crate::error::StoreError;
use crate::host::{HostTensor, decode};
use memmap2::Mmap;
use pickle::Stored;
use safetensors::Dtype as FileDtype;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An open file of torch, memory-mapped.
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    map: Mmap,
    tensors: HashMap<String, Stored>,
    /// Place of each storage by its key.
    storages: HashMap<String, Range<usize>>,
}

impl TorchFile {
    /// Opens a file, and reads the description of its tensors.
    ///
    /// # Errors
    /// When the file is missing, cut short, of another format, or describes anything but tensors.
    #[allow(unsafe_code)]
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
        let format = |reason: String| StoreError::Torch { path: path.to_owned(), reason };
        // Opening a pipe would block until another process writes into it.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(format("it is no file but a folder, a pipe or a device".into()));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: as in `TensorFile::open`.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let entries = zip::entries(&map).map_err(format)?;
        let described = entries.iter().find_map(|(name, place)| Some((name.strip_suffix("data.pkl")?, place)));
        let (folder, place) = described.ok_or_else(|| format("it has no data.pkl".into()))?;
        let tensors = pickle::tensors(&map[place.clone()]).map_err(format)?.into_iter().collect();
        let folder = format!("{folder}data/");
        let key =
            |(name, place): (&String, &Range<usize>)| Some((name.strip_prefix(&folder)?.to_owned(), place.clone()));
        let storages = entries.iter().filter_map(key).collect();
        Ok(Self { path: path.to_owned(), map, tensors, storages })
    }

    /// Shape of a tensor by name. `None` if there is no such tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|stored| stored.shape.as_slice())
    }

    /// Reads one tensor as f32.
    ///
    /// # Errors
    /// When it is missing, not a float tensor, not contiguous, or beyond its storage.
    pub fn read(&self, name: &str) -> Result<HostTensor, StoreError> {
        let missing = || StoreError::Missing { name: name.to_owned(), origin: format!("`{}`", self.path.display()) };
        let stored = self.tensors.get(name).ok_or_else(missing)?;
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
        if !is_contiguous(stored) {
            return Err(format("is not contiguous"));
        }
        let place = self.storages.get(&stored.key).ok_or_else(|| format("has no storage"))?;
        let length = stored.shape.iter().try_fold(width, |n: usize, size| n.checked_mul(*size));
        let start = stored.offset.checked_mul(width).ok_or_else(|| format("is beyond its storage"))?;
        let end = length.and_then(|length| start.checked_add(length)).ok_or_else(|| format("is too large"))?;
        let bytes = self.map[place.clone()].get(start..end).ok_or_else(|| format("is beyond its storage"))?;
        let data = decode(dtype, bytes).ok_or_else(|| format("holds no floats"))?;
        Ok(HostTensor { shape: stored.shape.clone(), data })
    }
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
