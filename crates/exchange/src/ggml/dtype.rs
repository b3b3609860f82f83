//! Types of tensors.

use super::blocks;

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
