//! Types of tensors.

use super::blocks::{self, BLOCK};
use half::{bf16, f16};

/// Type of the large matrices in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgmlType {
    /// 32 bits: the weights as they are.
    F32,
    /// 16 bits, the type of the models that whisper.cpp offers for download.
    F16,
    /// 8 bits, and a scale in f16 for every 32 values.
    Q8_0,
    /// 5 bits, and a scale in f16 for every 32 values.
    Q5_0,
}

/// Version of the layout of quantised blocks, as the file's type has it: the version times a thousand.
const BLOCK_VERSION: u32 = 2 * 1000;

impl GgmlType {
    /// Number of the type in the header of a tensor.
    pub(super) fn of_tensor(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q5_0 => 6,
            Self::Q8_0 => 8,
        }
    }

    /// Number of the type in the header of a file, which counts otherwise.
    pub(super) fn of_file(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => BLOCK_VERSION + 7,
            Self::Q5_0 => BLOCK_VERSION + 8,
        }
    }

    /// Whether values are stored in blocks with a common scale.
    pub(super) fn is_quantised(self) -> bool {
        matches!(self, Self::Q8_0 | Self::Q5_0)
    }

    /// Bytes of values.
    pub(super) fn encode(self, data: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => data.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => data.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect(),
            Self::Q8_0 => blocks::q8_0(data),
            Self::Q5_0 => blocks::q5_0(data),
        }
    }
}

/// Type of a tensor in a file that is read. Files of others have more types than those that are written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
}

impl Stored {
    /// Returns the type by its number in the header of a tensor.
    pub fn of_number(number: usize) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Bytes of a block, and its number of values.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (4, 1),
            Self::F16 | Self::Bf16 => (2, 1),
            // The scale, perhaps a minimum, perhaps the fifth bits, and half a byte for each value.
            Self::Q4_0 => (2 + BLOCK / 2, BLOCK),
            Self::Q4_1 => (4 + BLOCK / 2, BLOCK),
            Self::Q5_0 => (2 + 4 + BLOCK / 2, BLOCK),
            Self::Q5_1 => (4 + 4 + BLOCK / 2, BLOCK),
            Self::Q8_0 => (2 + BLOCK, BLOCK),
        }
    }

    pub fn is_quantised(self) -> bool {
        self.block().1 > 1
    }

    /// Values of whole blocks.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let blocks = bytes.chunks_exact(self.block().0);
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Self::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            Self::Bf16 => bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
            Self::Q4_0 => blocks.flat_map(|block| blocks::four_bits(block, false)).collect(),
            Self::Q4_1 => blocks.flat_map(|block| blocks::four_bits(block, true)).collect(),
            Self::Q5_0 => blocks.flat_map(|block| blocks::five_bits(block, false)).collect(),
            Self::Q5_1 => blocks.flat_map(|block| blocks::five_bits(block, true)).collect(),
            Self::Q8_0 => blocks.flat_map(blocks::eight_bits).collect(),
        }
    }
}
