//! Tensors in host memory.

use crate::error::StoreError;
use burn::tensor::{Device, Tensor, TensorData};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use safetensors::Dtype as FileDtype;
use std::path::Path;

/// A float tensor in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Values in row-major order.
    pub data: Vec<f32>,
}

impl HostTensor {
    /// Returns a copy on a device.
    ///
    /// # Panics
    /// If it has another number of axes.
    pub fn on<const D: usize>(self, device: &Device) -> Tensor<D> {
        Tensor::from_data(TensorData::new(self.data, self.shape), device)
    }
}

impl<const D: usize> From<Tensor<D>> for HostTensor {
    fn from(tensor: Tensor<D>) -> Self {
        let shape = tensor.dims().to_vec();
        // Parameters are f32 by design; a cast covers modules that were cast as a whole.
        Self { shape, data: tensor.try_into_vec_as().expect("parameters are floats") }
    }
}

/// Tensors by name, each read when it is asked for.
pub trait TensorSource {
    /// File or folder that the tensors come from.
    fn origin(&self) -> &Path;

    /// Shape of a tensor by name, without reading it. `None` if there is no such tensor.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// Reads one tensor as f32.
    ///
    /// # Errors
    /// When it is missing, not a float tensor, or damaged.
    fn read(&self, name: &str) -> Result<HostTensor, StoreError>;

    /// Returns the error for a missing tensor.
    fn missing(&self, name: &str) -> StoreError {
        StoreError::Missing { name: name.to_owned(), origin: format!("`{}`", self.origin().display()) }
    }
}

/// Element type in a file. In memory, tensors are f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// 32 bits. Training state needs them.
    #[default]
    F32,
    /// 16 bits with an 11-bit significand.
    F16,
    /// 16 bits with an 8-bit significand and the range of f32.
    Bf16,
}

impl Dtype {
    pub(crate) fn in_file(self) -> FileDtype {
        match self {
            Self::F32 => FileDtype::F32,
            Self::F16 => FileDtype::F16,
            Self::Bf16 => FileDtype::BF16,
        }
    }

    pub(crate) fn encode(self, data: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::F16 => data.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
            Self::Bf16 => data.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
        }
    }
}

/// Widens numbers of half precision, of which `read` returns one. `half` has instructions for slices of them.
fn widened<T: Copy>(bytes: &[u8], read: fn([u8; 2]) -> T) -> Vec<f32>
where
    [T]: HalfFloatSliceExt,
{
    /// Numbers at a time.
    const PIECE: usize = 1 << 12;
    let numbers = bytes.as_chunks().0;
    let (mut wide, mut halves) = (Vec::with_capacity(numbers.len()), Vec::with_capacity(PIECE));
    for piece in numbers.chunks(PIECE) {
        halves.clear();
        halves.extend(piece.iter().map(|bytes| read(*bytes)));
        let start = wide.len();
        wide.resize(start + piece.len(), 0.0);
        halves.convert_to_f32_slice(&mut wide[start..]);
    }
    wide
}

/// Decodes little-endian `bytes` to f32. `None` for types other than f16, bf16, f32 and f64.
pub(crate) fn decode(dtype: FileDtype, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match dtype {
        FileDtype::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        FileDtype::F16 => widened(bytes, f16::from_le_bytes),
        FileDtype::BF16 => widened(bytes, bf16::from_le_bytes),
        FileDtype::F64 => bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect(),
        _ => return None,
    })
}
