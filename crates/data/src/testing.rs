//! Helpers of this crate's tests.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::records::{Paths, RecordsConfig};

/// A temporary folder of a test, and configurations of files in it.
pub struct Folder(pub TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and its folder if there is none.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> RecordsConfig {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        at(path)
    }
}

/// The configuration of records at a path.
pub fn at(path: impl Into<Paths>) -> RecordsConfig {
    RecordsConfig { path: path.into(), ..Default::default() }
}

/// Path of a fixture.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A WAV file of interleaved whole numbers, of this many bits each.
pub fn wav<S: hound::Sample + Copy>(channels: u16, rate: u32, bits: u16, samples: &[S]) -> Vec<u8> {
    wav_of(channels, rate, bits, hound::SampleFormat::Int, samples)
}

/// A WAV file of interleaved floats.
pub fn float_wav(channels: u16, rate: u32, samples: &[f32]) -> Vec<u8> {
    wav_of(channels, rate, 32, hound::SampleFormat::Float, samples)
}

fn wav_of<S: hound::Sample + Copy>(
    channels: u16,
    sample_rate: u32,
    bits_per_sample: u16,
    sample_format: hound::SampleFormat,
    samples: &[S],
) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let spec = hound::WavSpec { channels, sample_rate, bits_per_sample, sample_format };
    let mut writer = hound::WavWriter::new(&mut bytes, spec).unwrap();
    samples.iter().for_each(|sample| writer.write_sample(*sample).unwrap());
    writer.finalize().unwrap();
    bytes.into_inner()
}

/// Largest difference of two signals of the same length.
pub fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
