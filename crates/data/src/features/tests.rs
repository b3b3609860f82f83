use super::*;
use crate::testing::{fixture, worst};

/// The values of a two-dimensional little-endian f32 `.npy`: ten bytes, a header of the length they end with, data.
fn npy(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(fixture(name)).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as i32 as f32 / i32::MAX as f32
    })
    .take(n)
    .collect()
}

#[test]
fn agrees_with_hugging_face() {
    let audio = crate::audio::load(&fixture("mel.wav")).unwrap();
    for bins in [80, 128] {
        let log_mel = LogMel::new(bins).unwrap();
        let bare = log_mel.features(&audio);
        assert_eq!((bare.bins, bare.frames), (bins, 100));
        assert!(worst(&bare.data, &npy(&format!("mel_{bins}.npy"))) < 1e-4);

        let padded = log_mel.features_padded(&audio, 24_000);
        assert_eq!(padded.frames, 150);
        assert!(worst(&padded.data, &npy(&format!("mel_{bins}_padded.npy"))) < 1e-4);
    }
}

#[test]
fn skipping_the_padding_changes_nothing() {
    let log_mel = LogMel::new(80).unwrap();
    let window = 16_000;
    for len in [0, 1, 159, 160, 200, 3_000, 7_777, 15_700, 15_801, 15_999, 16_000] {
        let mut audio = noise(len, 3);
        let skipped = log_mel.features_padded(&audio, window);
        audio.resize(window, 0.0);
        assert_eq!(skipped, log_mel.features(&audio), "{len} samples");
    }
}

#[test]
fn audio_beyond_the_window_is_cut() {
    let log_mel = LogMel::new(80).unwrap();
    let audio = noise(20_000, 5);
    assert_eq!(log_mel.features_padded(&audio, 16_000), log_mel.features(&audio[..16_000]));
}

#[test]
fn a_quiet_frame_beside_a_loud_one_stays_quiet() {
    let mut audio = vec![0.0; 16_000];
    audio[..7_000].copy_from_slice(&noise(7_000, 1));
    let mel = LogMel::new(80).unwrap().features(&audio);
    let floor = mel.data.iter().copied().fold(f32::INFINITY, f32::min);
    for row in mel.data.chunks(mel.frames) {
        assert!(row[46..].iter().all(|&v| v == floor));
    }
}

#[test]
fn silence_is_constant() {
    let mel = LogMel::new(128).unwrap().features_padded(&[], 48_000);
    assert_eq!((mel.bins, mel.frames), (128, 300));
    assert!(mel.data.iter().all(|&v| (v + 1.5).abs() < 1e-6));
}

#[test]
fn short_audio_gives_few_frames_and_no_panic() {
    let log_mel = LogMel::new(80).unwrap();
    for len in [0, 1, 2, 159] {
        assert_eq!(log_mel.features(&noise(len, 2)).frames, 0);
    }
    for len in [160, 199, 200, 201, 319, 320] {
        let mel = log_mel.features(&noise(len, 2));
        assert_eq!(mel.frames, len / 160);
        assert!(mel.data.iter().all(|v| v.is_finite()));
    }
}

#[test]
fn a_batch_is_its_clips() {
    let log_mel = LogMel::new(80).unwrap();
    let clips: Vec<_> = (0..5).map(|i| noise(4_000 * (i + 1), i as u32 + 1)).collect();
    let batch = log_mel.batch_padded(&clips, 16_000);
    let single: Vec<f32> = clips.iter().flat_map(|c| log_mel.features_padded(c, 16_000).data).collect();
    assert_eq!(batch, single);
    assert!(log_mel.batch_padded(&clips, 100).is_empty());
    assert!(log_mel.batch_padded::<Vec<f32>>(&[], 16_000).is_empty());
}

#[test]
fn bad_input_is_an_error() {
    let error = LogMel::new(100).err().unwrap();
    assert_eq!(
        error.to_string(),
        "100 mel bins are not supported: use 80 (Whisper up to large-v2) or 128 (large-v3 and turbo)"
    );
    let log_mel = LogMelConfig::default().init().unwrap();
    let error = log_mel.features_padded_into(&[], 1_600, &mut [0.0; 3]).unwrap_err();
    assert_eq!(error, FeatureError::Buffer { given: 3, needed: 800 });
    assert!(serde_json::from_str::<LogMelConfig>(r#"{"bin": 80}"#).is_err());
}

#[test]
fn features_and_silence_fill_any_longer_window() {
    let log_mel = LogMel::new(80).unwrap();
    for length in [0, 1, 159, 160, 8_000, 8_001, 8_159, 15_000] {
        let audio = noise(length, 5);
        let mel = log_mel.features_and_silence(&audio);
        assert!((length..length + 160).contains(&mel.samples()) || length < 160, "{length}: {}", mel.samples());
        for window in [16_000, 16_320, 32_000] {
            let mut padded = vec![f32::NAN; 80 * LogMel::frames(window)];
            mel.pad_into(LogMel::frames(window), &mut padded);
            assert_eq!(padded, log_mel.features_padded(&audio, window).data, "{length} in {window}");
        }
    }
    let mut cut = vec![0.0; 80 * 10];
    log_mel.features_and_silence(&noise(8_000, 5)).pad_into(10, &mut cut);
    assert!(cut.iter().all(|value| value.is_finite() && *value != 0.0));
}
