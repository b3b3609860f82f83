//! Format of an entry's file: a header of 64 bytes, then 16 bits per value.
//!
//! | bytes  |                                                                             |
//! |--------|-----------------------------------------------------------------------------|
//! | 0..4   | a magic number, which also shows the byte order                             |
//! | 4..8   | content: 1 audio, 2 features, 3 states                                      |
//! | 8..16  | values (audio), mel bins (features) or positions (states)                   |
//! | 16..24 | 1 (audio), frames (features) or the width of a state                        |
//! | 24..28 | audio: its exponent e, where a value is the integer stored × 2⁻ᵉ;           |
//! |        | states: the number of audio samples                                         |
//! | 28..60 | the key: a file under another key's name is no entry                        |
//! | 60..64 | CRC-32C of the values, then of the bytes before these                       |
//!
//! Numbers are in the machine's byte order. On a machine of the other order the magic number does not match, and the
//! entry is computed again.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::{CacheError, Key};
use crate::features::Mel;

/// Bytes before the values.
pub(super) const HEADER: usize = 64;
/// An arbitrary number that no other file starts with, and that differs when its bytes are reversed.
const MAGIC: u32 = 0x554e_6331;

/// Types that the cache can hold: audio (`Vec<f32>`), features ([`Mel`]) and [`States`]. No other type implements this.
pub trait Entry: Sized + sealed::Encode {}

impl Entry for Vec<f32> {}
impl Entry for Mel {}
impl Entry for States {}

/// Last states of an encoder for one recording.
#[derive(Debug, Clone, PartialEq)]
pub struct States {
    /// Length of the recording in samples at 16 kHz.
    pub samples: u32,
    /// Positions: rows of `data`.
    pub positions: usize,
    /// Width of a state: columns of `data`.
    pub d_model: usize,
    /// The values, `[positions, d_model]`, row after row.
    pub data: Vec<f32>,
}

/// An entry as it is on disk, apart from key and checksum.
#[derive(Debug, PartialEq)]
pub struct Record {
    kind: u32,
    shape: [u64; 2],
    exponent: i32,
    pub(super) values: Vec<u16>,
}

mod sealed {
    use crate::cache::CacheError;
    use crate::cache::entry::Record;

    /// Conversion to 16 bits per value and back. Only the output of `encode` is ever decoded.
    pub trait Encode {
        const KIND: u32;
        fn encode(&self) -> Result<Record, CacheError>;
        fn decode(record: &Record) -> Self;
    }
}

impl sealed::Encode for Mel {
    const KIND: u32 = 2;

    fn encode(&self) -> Result<Record, CacheError> {
        let values = halved("features", &self.data, [self.bins, self.frames])?;
        Ok(Record { kind: Self::KIND, shape: [self.bins as u64, self.frames as u64], exponent: 0, values })
    }

    fn decode(record: &Record) -> Self {
        Self { bins: record.shape[0] as usize, frames: record.shape[1] as usize, data: record.widened() }
    }
}

impl sealed::Encode for States {
    const KIND: u32 = 3;

    fn encode(&self) -> Result<Record, CacheError> {
        let values = halved("encoder's states", &self.data, [self.positions, self.d_model])?;
        let shape = [self.positions as u64, self.d_model as u64];
        Ok(Record { kind: Self::KIND, shape, exponent: self.samples as i32, values })
    }

    fn decode(record: &Record) -> Self {
        let [positions, d_model] = record.shape.map(|side| side as usize);
        Self { samples: record.exponent as u32, positions, d_model, data: record.widened() }
    }
}

/// Returns a matrix in f16.
fn halved(what: &'static str, data: &[f32], [rows, columns]: [usize; 2]) -> Result<Vec<u16>, CacheError> {
    if rows.checked_mul(columns) != Some(data.len()) {
        return Err(CacheError::Shape { given: data.len(), rows, columns });
    }
    let mut values = vec![0; data.len()];
    values.reinterpret_cast_mut::<f16>().convert_from_f32_slice(data);
    // 65 520 and above round to infinity. An exponent of all ones is infinity or NaN.
    let exponent = f16::INFINITY.to_bits();
    if values.iter().fold(false, |found, bits| found | (bits & exponent == exponent)) {
        let lost = |bits: &u16| bits & exponent == exponent;
        let at = values.iter().position(lost).unwrap_or_default();
        return Err(CacheError::Value { what, at, value: data[at] });
    }
    Ok(values)
}

/// 2¹²⁶ times full scale: beyond it, rounding to 16 bits could give infinity.
const LOUDEST: f32 = f32::from_bits(253 << 23);

impl sealed::Encode for Vec<f32> {
    const KIND: u32 = 1;

    fn encode(&self) -> Result<Record, CacheError> {
        if let Some(at) = self.iter().position(|value| !value.is_finite() || value.abs() > LOUDEST) {
            return Err(CacheError::Value { what: "audio", at, value: self[at] });
        }
        let exponent = exponent(self);
        let scale = power(exponent);
        // The cast saturates, which the largest positive value may need: see [`exponent`].
        let values = self.iter().map(|value| (value * scale).round_ties_even() as i16 as u16).collect();
        Ok(Record { kind: Self::KIND, shape: [self.len() as u64, 1], exponent, values })
    }

    fn decode(record: &Record) -> Self {
        let scale = power(-record.exponent);
        record.values.iter().map(|&value| f32::from(value as i16) * scale).collect()
    }
}

/// Returns the largest `e` for which all `values · 2ᵉ` are 16-bit integers once rounded.
///
/// Only powers of two are used, so that the samples of a 16-bit source, integers times 2⁻¹⁵, are unchanged. With the
/// peak in `[2ᵏ, 2ᵏ⁺¹)` the exponent is `14 - k`, where a positive peak within half a step of `2ᵏ⁺¹` becomes 32 767. It
/// is `15 - k` if no value is beyond `-2ᵏ`, because -32 768 is a 16-bit integer and 32 768 is not.
fn exponent(values: &[f32]) -> i32 {
    let (low, high) = values.iter().fold((0.0f32, 0.0f32), |(low, high), &value| (low.min(value), high.max(value)));
    // The exponent's bits; subnormal numbers, and silence, count as 2⁻¹²⁷.
    let k = (high.max(-low).to_bits() >> 23) as i32 - 127;
    let e = if low == -power(k) && high * power((15 - k).min(112)) <= 32767.0 { 15 - k } else { 14 - k };
    // Above 112 the scale would not be a normal number; the quietest sound is far above 2⁻¹¹².
    e.min(112)
}

/// Returns 2ᵏ for a normal number, -126 to 127; 0 for the k of -127 that stands for silence.
fn power(k: i32) -> f32 {
    f32::from_bits(((k + 127) as u32) << 23)
}

impl Record {
    /// Returns the whole file.
    pub(super) fn file(&self, key: &Key) -> Vec<u8> {
        let values: &[u8] = bytemuck::cast_slice(&self.values);
        let mut file = Vec::with_capacity(HEADER + values.len());
        file.extend_from_slice(&MAGIC.to_ne_bytes());
        file.extend_from_slice(&self.kind.to_ne_bytes());
        file.extend(self.shape.iter().flat_map(|side| side.to_ne_bytes()));
        file.extend_from_slice(&self.exponent.to_ne_bytes());
        file.extend_from_slice(key.bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(values), &file);
        file.extend_from_slice(&checksum.to_ne_bytes());
        file.extend_from_slice(values);
        file
    }

    /// Returns the content of a file; none unless it is complete, undamaged and stored under `key`.
    pub(super) fn read(key: &Key, header: &[u8; HEADER], values: Vec<u16>) -> Option<Self> {
        let (covered, checksum) = header.split_at(HEADER - 4);
        let sum = crc32c::crc32c_append(crc32c::crc32c(bytemuck::cast_slice(&values)), covered);
        let shape = [8, 16].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| header[at + i])));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
        let whole = sum.to_ne_bytes() == checksum
            && word(0) == MAGIC
            && header[28..60] == key.bytes()[..]
            && shape[0].checked_mul(shape[1]) == Some(values.len() as u64);
        whole.then(|| Self { kind: word(4), shape, exponent: word(24) as i32, values })
    }

    /// Returns the values of a matrix in f16.
    fn widened(&self) -> Vec<f32> {
        let mut data = vec![0.0; self.values.len()];
        self.values.reinterpret_cast::<f16>().convert_to_f32_slice(&mut data);
        data
    }

    /// Encodes a value.
    pub(super) fn of<T: Entry>(value: &T) -> Result<Self, CacheError> {
        value.encode()
    }

    /// Decodes the value, if it has the requested type.
    pub(super) fn value<T: Entry>(&self) -> Option<T> {
        (self.kind == T::KIND).then(|| T::decode(self))
    }

    /// Decodes the value as the type that it was encoded from.
    pub(super) fn decode<T: Entry>(&self) -> T {
        T::decode(self)
    }

    /// Returns the length of the file.
    pub(super) fn bytes(&self) -> u64 {
        (HEADER + self.values.len() * 2) as u64
    }
}
