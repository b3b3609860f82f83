mod limits;
mod wav;

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::testing::{self, fixture, worst};

fn sine(hz: f64, rate: u32, seconds: f64) -> Vec<f32> {
    let n = (seconds * f64::from(rate)).round() as usize;
    (0..n).map(|i| (0.5 * (TAU * hz * i as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// A float WAV with the given interleaved samples.
fn float_wav(dir: &TempDir, name: &str, rate: u32, channels: u16, samples: &[f32]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, testing::float_wav(channels, rate, samples)).unwrap();
    path
}

#[test]
fn resampling_keeps_length_frequency_amplitude_and_time() {
    let dir = TempDir::new().unwrap();
    for rate in [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000] {
        for hz in [100.0, 1_000.0, 3_000.0] {
            let audio = load(&float_wav(&dir, "a.wav", rate, 1, &sine(hz, rate, 1.0))).unwrap();
            // The ends ring, as the sine starts and stops there; in between it is the sine itself, phase included.
            let expected = sine(hz, SAMPLE_RATE, 1.0);
            let error = worst(&audio[800..15_200], &expected[800..15_200]);
            assert_eq!(audio.len(), 16_000, "{rate} Hz");
            assert!(error < 1e-3, "{hz} Hz at {rate} Hz: {error}");
        }
    }
}

#[test]
fn resampling_does_not_alias() {
    let dir = TempDir::new().unwrap();
    let audio = load(&float_wav(&dir, "a.wav", 48_000, 1, &sine(9_000.0, 48_000, 1.0))).unwrap();
    assert!(audio[800..15_200].iter().all(|v| v.abs() < 1e-3));
}

#[test]
fn what_was_resampled_before_leaves_no_trace() {
    let samples = |rate: u32, n: u32| (0..n).map(|i| ((i * i % rate) as f32 / rate as f32) - 0.5).collect::<Vec<f32>>();
    // A thread of its own has resampled nothing yet.
    let fresh = |rate, n| std::thread::spawn(move || super::to_16k(samples(rate, n), rate).unwrap()).join().unwrap();
    for (rate, n) in
        [(8_000, 9_000), (44_100, 50_000), (22_050, 700), (48_000, 1), (11_025, 5_000), (8_000, 3), (44_100, 60_000)]
    {
        assert_eq!(super::to_16k(samples(rate, n), rate).unwrap(), fresh(rate, n), "{n} at {rate} Hz");
    }
}

#[test]
fn resampled_length_rounds_up() {
    let dir = TempDir::new().unwrap();
    for n in [1, 2, 100, 44_099, 44_101] {
        let audio = load(&float_wav(&dir, "a.wav", 44_100, 1, &vec![0.1; n])).unwrap();
        assert_eq!(audio.len(), (n * 16_000).div_ceil(44_100));
    }
}

/// A WAV of 16 blocks of IMA ADPCM at 16 kHz, a sound of its own in each.
fn adpcm_wav(dir: &TempDir) -> PathBuf {
    const BLOCK: u16 = 256;
    let mut bytes = b"RIFF\0\0\0\0WAVEfmt \x14\0\0\0".to_vec();
    let samples = 2 * (BLOCK - 4) + 1;
    for half in [0x11, 1, 16_000, 0, 8_110, 0, BLOCK, 4, 2, samples] {
        bytes.extend(u16::to_le_bytes(half));
    }
    bytes.extend(b"data");
    bytes.extend((16 * u32::from(BLOCK)).to_le_bytes());
    for block in 0..16_u8 {
        bytes.extend([0, block, 20, 0]);
        bytes.extend((4..BLOCK).map(|i| (i as u8).wrapping_mul(block | 1)));
    }
    let length = bytes.len() as u32 - 8;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    let path = dir.path().join("adpcm.wav");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_segment_of_adpcm_is_that_part_of_the_whole() {
    let dir = TempDir::new().unwrap();
    let path = adpcm_wav(&dir);
    let whole = load(&path).unwrap();
    assert_eq!(whole.len(), 16 * 505);
    for (from, to) in [(0, 800), (400, 1200), (1600, 8000), (7200, 8080)] {
        let segment = load_segment(&path, Some(from as f64 / 16_000.0), Some(to as f64 / 16_000.0)).unwrap();
        assert!(segment == whole[from..to], "{from} to {to}");
    }
}

#[test]
fn channels_are_averaged() {
    let dir = TempDir::new().unwrap();
    let path = float_wav(&dir, "a.wav", SAMPLE_RATE, 2, &[0.5, 0.25].repeat(100));
    assert_eq!(load(&path).unwrap(), vec![0.375; 100]);
    let path = float_wav(&dir, "a.wav", SAMPLE_RATE, 3, &[0.5, 0.0, -0.5].repeat(100));
    assert_eq!(load(&path).unwrap(), vec![0.0; 100]);
}

#[test]
fn integer_depths_agree() {
    let dir = TempDir::new().unwrap();
    let audio = sine(440.0, SAMPLE_RATE, 0.1);
    for bits in [8, 16, 24, 32] {
        let path = dir.path().join("a.wav");
        let scale = 2f64.powi(i32::from(bits) - 1);
        let whole: Vec<i32> = audio.iter().map(|sample| (f64::from(*sample) * scale).round() as i32).collect();
        std::fs::write(&path, testing::wav(1, SAMPLE_RATE, bits, &whole)).unwrap();
        let step = (1.0 / scale) as f32;
        assert!(worst(&load(&path).unwrap(), &audio) <= 0.51 * step + 1e-6, "{bits} bits");
    }
}

#[test]
fn clipping_is_counted_before_the_rate_is_changed() {
    let dir = TempDir::new().unwrap();
    for rate in [SAMPLE_RATE, 44_100] {
        for (amplitude, clipped) in [(1.0, 0.0..1e-3), (2.0, 0.5..0.8)] {
            let audio: Vec<f32> =
                sine(300.0, rate, 0.5).iter().map(|x| (2.0 * amplitude * x).clamp(-1.0, 1.0)).collect();
            let decoded = Stored::file(&float_wav(&dir, "a.wav", rate, 1, &audio)).decode(None, None).unwrap();
            assert!(clipped.contains(&decoded.clipped), "{amplitude} at {rate} Hz: {}", decoded.clipped);
        }
    }
}

#[test]
fn compressed_formats_decode() {
    let wav = load(&fixture("tone.wav")).unwrap();
    assert_eq!(wav.len(), 12_000);
    assert_eq!(worst(&load(&fixture("tone.flac")).unwrap(), &wav), 0.0);
    for name in ["tone.mp3", "tone.ogg"] {
        let audio = load(&fixture(name)).unwrap();
        // Lossy: the sine is still there, at the same time, to about 5 % of its amplitude of 0.5.
        assert!(audio.len().abs_diff(wav.len()) <= 600, "{name}: {} samples", audio.len());
        assert!(worst(&audio[1_000..10_000], &wav[1_000..10_000]) < 0.03, "{name}");
    }
}

#[test]
fn the_name_does_not_matter() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("tone.wav");
    std::fs::copy(fixture("tone.flac"), &path).unwrap();
    assert_eq!(load(&path).unwrap().len(), 12_000);
}

#[test]
fn segments_are_cut_where_asked() {
    for name in ["tone.wav", "tone.flac", "tone.mp3", "tone.ogg"] {
        let path = fixture(name);
        let whole = load(&path).unwrap();
        // Multiples of 147 samples at 22.05 kHz are whole samples at 16 kHz, too.
        for (start, end) in [(0.0, 0.2), (0.1, 0.4), (0.62, 0.74)] {
            let part = load_segment(&path, Some(start), Some(end)).unwrap();
            let at = (start * 16_000.0).round() as usize;
            // A bound is a whole sample at 22.05 kHz first, so one at 16 kHz is what rounding may cost.
            assert!(part.len().abs_diff(((end - start) * 16_000.0).round() as usize) <= 1, "{name} {start}");
            let inner = 400..part.len() - 400;
            let expected = &whole[at..][..part.len()];
            let error = worst(&part[inner.clone()], &expected[inner]);
            assert!(error < 0.02, "{name} from {start}: {error}");
        }
        let tail = load_segment(&path, Some(0.5), None).unwrap();
        assert_eq!(tail.len(), whole.len() - 8_000, "{name}");
    }
}

fn packed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clips/fixtures").join(name)
}

/// A tone that rises for six seconds, in every format.
fn long(dir: &TempDir) -> [PathBuf; 4] {
    let tone: Vec<f32> = (0..6 * 16_000)
        .map(|i| f64::from(i) / 16_000.0)
        .map(|t| (0.5 * (TAU * (200.0 * t + 50.0 * t * t)).sin()) as f32)
        .collect();
    let wav = float_wav(dir, "long.wav", SAMPLE_RATE, 1, &tone);
    [wav, packed("long.flac"), packed("long.mp3"), packed("long.ogg")]
}

#[test]
fn what_is_jumped_to_is_what_would_be_decoded() {
    let dir = TempDir::new().unwrap();
    for path in long(&dir) {
        let whole = load(&path).unwrap();
        for at in 0..40 {
            let start = f64::from(at) * 0.149;
            let part = load_segment(&path, Some(start), None).unwrap();
            let expected = &whole[(start * 16_000.0).round() as usize..];
            assert_eq!(part.len(), expected.len(), "{path:?} from {start}");
            // The lossless formats give the same bits; the others sum in another order, at most.
            let tolerance = if path.extension().is_some_and(|e| e == "wav" || e == "flac") { 0.0 } else { 1e-6 };
            let error = worst(&part, expected);
            assert!(error <= tolerance, "{path:?} from {start}: {error}");
        }
    }
}

#[test]
fn headers_tell_lengths() {
    let dir = TempDir::new().unwrap();
    for path in long(&dir) {
        let samples = load(&path).unwrap().len() as f64;
        let seconds = Stored::file(&path).seconds().unwrap();
        assert!(seconds.is_none_or(|seconds| (seconds - samples / 16_000.0).abs() < 1e-3), "{path:?}: {seconds:?}");
        assert!(seconds.is_some() || path.extension().unwrap() == "mp3");
    }
}

#[test]
fn audio_in_memory_and_in_a_part_of_a_file_is_read_as_in_a_file() {
    let dir = TempDir::new().unwrap();
    for name in ["tone.wav", "tone.flac", "tone.mp3", "tone.ogg"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let packed = dir.path().join("packed");
        std::fs::write(&packed, [&b"before"[..], &bytes, b"after"].concat()).unwrap();
        let (start, end) = (Some(0.3), Some(0.6));
        let expected = load_segment(&fixture(name), start, end).unwrap();
        let part = Stored::part("part".into(), &packed, 6, bytes.len() as u64);
        assert_eq!(part.load(start, end).unwrap(), expected, "{name}");
        assert_eq!(part.load(None, None).unwrap(), load(&fixture(name)).unwrap(), "{name}");
        assert_eq!(
            Stored::memory("m".into(), std::sync::Arc::new(bytes)).load(start, end).unwrap(),
            expected,
            "{name}"
        );
    }
    let error = Stored::part("x.tar/a.wav".into(), &dir.path().join("packed"), 0, 0).load(None, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "x.tar/a.wav: holds no audio (zero samples); remove it from the data or record it again"
    );
}

#[test]
fn segments_outside_are_errors() {
    let path = fixture("tone.wav");
    for (start, end) in [(0.8, None), (0.5, Some(1.3)), (9.0, Some(10.0))] {
        let error = load_segment(&path, Some(start), end).unwrap_err();
        assert!(matches!(error, AudioError::OutsideFile { .. }), "{error}");
        assert!(error.to_string().contains("lasts 0.75 s"), "{error}");
    }
    for (start, end) in [(-0.1, None), (0.5, Some(0.5)), (0.5, Some(0.1)), (f64::NAN, None), (0.0, Some(1e-9))] {
        let error = load_segment(&path, Some(start), end).unwrap_err();
        assert!(matches!(error, AudioError::BadSegment { .. }), "{error}");
    }
    let to_the_end = load_segment(&path, Some(0.5), None).unwrap();
    assert_eq!(load_segment(&path, Some(0.5), Some(1.2)).unwrap(), to_the_end, "as in Kaldi");
}

#[test]
fn writing_and_loading_is_the_identity_to_16_bits() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.wav");
    let mut audio = sine(440.0, SAMPLE_RATE, 0.1);
    write_wav(&path, &audio).unwrap();
    let whole: Vec<i16> = audio.iter().map(|sample| quantised(*sample)).collect();
    let expected = testing::wav(1, SAMPLE_RATE, 16, &whole);
    assert!(std::fs::read(&path).unwrap() == expected && wav_bytes(&audio) == expected, "as another library writes it");
    assert!(worst(&load(&path).unwrap(), &audio) < 1.0 / 30_000.0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    audio[5] = f32::NAN;
    assert!(matches!(write_wav(&path, &audio), Err(AudioError::NotFinite { .. })));
    let error = write_wav(&dir.path().join("no/such/folder.wav"), &[0.0]).unwrap_err();
    assert!(matches!(error, AudioError::Write { .. }), "{error}");
}

#[test]
fn a_file_cut_short_is_an_error() {
    let dir = TempDir::new().unwrap();
    for name in ["tone.wav", "tone.flac", "tone.mp3"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        for share in [0.3, 0.6, 0.8] {
            let path = dir.path().join(name);
            std::fs::write(&path, &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
            let error = load(&path).unwrap_err();
            assert!(matches!(error, AudioError::Truncated { .. } | AudioError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    let path = dir.path().join("half.wav");
    std::fs::write(&path, &std::fs::read(fixture("tone.wav")).unwrap()[..44 + 22_050]).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("is cut short, it ends at 0.50 s of the 0.75 s"), "{error}");
}

#[test]
fn no_prefix_and_no_flipped_byte_panics() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a");
    for name in ["tone.wav", "tone.flac", "tone.mp3", "tone.ogg"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        for i in (0..200).chain((200..bytes.len()).step_by(997)) {
            std::fs::write(&path, &bytes[..i]).unwrap();
            let _ = load(&path);
            let mut flipped = bytes.clone();
            flipped[i] ^= 0xff;
            std::fs::write(&path, &flipped).unwrap();
            let _ = load(&path);
        }
    }
}

#[test]
fn bad_files_are_errors_that_name_the_file() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let fails = |path: &Path, part: &str| {
        let error = load(path).unwrap_err().to_string();
        assert!(error.contains(part) && error.starts_with(path.to_str().unwrap()), "{error}");
    };
    fails(&dir.path().join("none.wav"), "no such audio file");
    fails(dir.path(), "cannot be read");
    fails(&file("empty.wav", b""), "zero samples");
    fails(&file("text.wav", &b"hello, this is text and no audio at all. ".repeat(40)), "not audio");
    fails(&float_wav(&dir, "zero.wav", 8_000, 1, &[]), "zero samples");
    fails(&float_wav(&dir, "rate.wav", 10, 1, &[0.0; 100]), "sampling rate of 10 Hz");
    let mut audio = vec![0.0; 1_600];
    audio[800] = f32::NAN;
    fails(&float_wav(&dir, "nan.wav", 16_000, 1, &audio), "0.050 s is not a finite number");
    audio[800] = f32::INFINITY;
    fails(&float_wav(&dir, "inf.wav", 16_000, 1, &audio), "0.050 s is not a finite number");
}

#[test]
fn videos_and_what_phones_record_are_read() {
    let tone = load(&fixture("tone.wav")).unwrap();
    for (name, lossy) in [
        ("tone_alac.m4a", false),
        ("tone.mov", false),
        ("tone.mkv", false),
        ("tone.aiff", false),
        ("tone.caf", false),
        ("tone.m4a", true),
        ("tone.mp4", true),
        ("tone.opus", true),
        ("tone_speech.opus", true),
        ("tone_stereo.opus", true),
        ("tone.webm", true),
        ("tone_16k.webm", true),
        ("tone_fragments.mp4", true),
    ] {
        let stored = Stored::file(&fixture(name));
        let found = stored.load(None, None).unwrap_or_else(|error| panic!("{error}"));
        // An encoder of AAC adds up to three packets of silence.
        let slack = if lossy { 3 * 1_100 } else { 20 };
        assert!(found.len().abs_diff(tone.len()) <= slack, "{name}: {} of {}", found.len(), tone.len());
        let power = |audio: &[f32]| audio.iter().map(|sample| sample * sample).sum::<f32>();
        let change = power(&found) / power(&tone);
        assert!((0.8..1.2).contains(&change), "{name}: its power changed by a factor of {change}");
        let part = stored.load(Some(0.2), Some(0.6)).unwrap();
        // At its ends a part that is resampled rings.
        let error = worst(&part[800..5_600], &found[4_000..8_800]);
        assert!(error < 1e-3, "{name}: a part of it is another part: {error}");
        let counted = stored.counted_seconds().unwrap();
        assert!((counted - found.len() as f64 / 16_000.0).abs() < 0.15, "{name}: {counted}");
    }
    let error = load(&fixture("silent.mp4")).unwrap_err().to_string();
    assert!(error.contains("silent.mp4") && error.contains("no audio track"), "{error}");
}

#[test]
fn what_an_encoder_puts_before_the_recording_is_dropped() {
    let tone = load(&fixture("tone.wav")).unwrap();
    // In fragments there is no list of edits, which has the delay.
    let of_aac = ["tone.m4a", "tone.mp4"];
    let of_opus = ["tone.opus", "tone_speech.opus", "tone.webm", "tone_16k.webm", "tone_opus.mp4"];
    for name in of_aac.into_iter().chain(of_opus) {
        let stored = Stored::file(&fixture(name));
        let found = stored.load(None, None).unwrap();
        let likeness = |shift: usize| tone.iter().zip(&found[shift..]).map(|(a, b)| a * b).sum::<f32>();
        // A period of the tone is 36 samples; an encoder of Opus puts 104 before it, of AAC 372 or more.
        let best = (0..18).max_by(|a, b| likeness(*a).total_cmp(&likeness(*b)));
        assert!(best.is_some_and(|shift| shift <= 2), "{name} begins {best:?} samples late");
        if name.ends_with(".opus") {
            assert!(found.len().abs_diff(tone.len()) <= 2, "{name}: {} of {}", found.len(), tone.len());
        }
        // The last packet of the others is read whole, and not counted so.
        let slack = match name {
            _ if name.ends_with(".opus") => 2.0,
            _ if of_aac.contains(&name) => 1_100.0,
            _ => 60.0,
        };
        let counted = stored.counted_seconds().unwrap() * 16_000.0;
        assert!((counted - found.len() as f64).abs() <= slack, "{name}: {counted} of {}", found.len());
    }
}

/// Returns an Ogg file with another serial number. The checksums of its pages are not checked here.
fn one_with_serial(file: &[u8], serial: u32) -> Vec<u8> {
    let mut changed = file.to_vec();
    let pages: Vec<usize> = (0..file.len() - 4).filter(|at| &file[*at..*at + 4] == b"OggS").collect();
    pages.iter().for_each(|at| changed[at + 14..at + 18].copy_from_slice(&serial.to_le_bytes()));
    changed
}

#[test]
fn recordings_that_were_put_together_are_read_to_the_end() {
    for name in ["tone.ogg", "tone.opus"] {
        let one = std::fs::read(fixture(name)).unwrap();
        let two = Stored::memory("two.ogg".into(), std::sync::Arc::new([one.clone(), one].concat()));
        let (found, tone) = (two.load(None, None).unwrap(), load(&fixture(name)).unwrap());
        assert!(found.len().abs_diff(2 * tone.len()) <= 10, "{name}: {} of twice {}", found.len(), tone.len());
        assert!(worst(&found[100..10_000], &tone[100..10_000]) < 1e-4, "{name}");
        let mut other = one_with_serial(&std::fs::read(fixture(name)).unwrap(), 7);
        other.splice(0..0, std::fs::read(fixture(name)).unwrap());
        let chained = Stored::memory("chain.ogg".into(), std::sync::Arc::new(other));
        assert_eq!(chained.seconds().unwrap(), None, "{name}: the header knows the first part");
        // The second part begins between two samples where the rate is another one.
        let power = |audio: &[f32]| audio.iter().map(|sample| sample * sample).sum::<f32>();
        let likeness = |start: usize| {
            let second = &found[start + 1_000..start + 10_000];
            let product = second.iter().zip(&tone[1_000..10_000]).map(|(a, b)| a * b).sum::<f32>();
            product / (power(second) * power(&tone[1_000..10_000])).sqrt()
        };
        let best = (tone.len() - 40..tone.len() + 40).map(likeness).fold(0.0, f32::max);
        assert!(best > 0.98, "{name}: the second part is like the first by {best}");
    }
}

#[test]
fn a_stream_gives_the_samples_of_the_whole_file() {
    let dir = TempDir::new().unwrap();
    for path in long(&dir).into_iter().chain([fixture("tone.mp4"), fixture("tone.ogg")]) {
        let stored = Stored::file(&path);
        let blocks: Vec<Vec<f32>> = stored.stream().unwrap().collect::<Result<_, _>>().unwrap();
        assert!(blocks.iter().rev().skip(1).all(|block| (16_000..64_000).contains(&block.len())), "{path:?}");
        assert_eq!(blocks.concat(), load(&path).unwrap(), "{path:?}");
    }
    assert!(matches!(Stored::file(Path::new("none.wav")).stream().err(), Some(AudioError::Missing { .. })));
    let whole = std::fs::read(fixture("tone.flac")).unwrap();
    let cut = Stored::memory("cut.flac".into(), std::sync::Arc::new(whole[..whole.len() / 2].to_vec()));
    let last = cut.stream().unwrap().last().expect("an item");
    assert!(matches!(last, Err(AudioError::Truncated { .. } | AudioError::Damaged { .. })), "{last:?}");
}
