//! Files whose headers declare too little, too much or nothing.

use super::*;
use crate::audio::decode::decode;
use proptest::prelude::*;

/// Returns a mono FLAC of silence in blocks of 65,535 samples, 14 bytes each, whose header declares `promised` samples.
/// 0 stands for unknown, as `flac` writes to a pipe.
fn silent_flac(rate: u32, promised: u64, blocks: u32) -> Vec<u8> {
    let mut flac = b"fLaC\x80\x00\x00\x22\xff\xff\xff\xff\0\0\0\0\0\0".to_vec();
    // Rate in 20 bits, channels less one in 3, bits a sample less one in 5, and the number of samples in 36.
    flac.extend((u64::from(rate) << 44 | 15 << 36 | promised).to_be_bytes());
    flac.extend([0; 16]);
    for block in 0..blocks {
        let mut frame = vec![0xff, 0xf8, 0x70, 0x00];
        // Written as UTF-8 writes a character, and from 0xD800 on some are none.
        frame.extend(char::from_u32(block).expect("a frame number that UTF-8 can write").to_string().bytes());
        frame.extend([0xff, 0xfe]);
        frame.push(crc(&frame, 8, 0x07) as u8);
        frame.extend([0, 0, 0]);
        frame.extend(crc(&frame, 16, 0x8005).to_be_bytes());
        flac.extend(frame);
    }
    flac
}

fn crc(bytes: &[u8], bits: u32, polynomial: u16) -> u16 {
    let top = 1 << (bits - 1);
    let step = |crc: u16| if crc & top != 0 { (crc << 1) ^ polynomial } else { crc << 1 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << (bits - 8), |crc, _| step(crc)))
}

fn held(bytes: Vec<u8>) -> Stored {
    Stored::memory("held".into(), std::sync::Arc::new(bytes))
}

/// Returns `long.flac` as written by a program that cannot return to the header.
fn streamed_flac() -> Vec<u8> {
    let mut flac = std::fs::read(packed("long.flac")).unwrap();
    flac[21] &= 0xf0;
    flac[22..26].fill(0);
    flac
}

#[test]
fn a_file_that_holds_far_more_than_it_promises_is_an_error_after_little_more_than_that() {
    // 400 kB that would be 7 GB of samples.
    let bomb = held(silent_flac(16_000, 16_000, 28_000));
    assert_eq!(bomb.seconds().unwrap(), Some(1.0));
    let error = bomb.load(None, None).unwrap_err();
    assert!(matches!(error, AudioError::MoreThanPromised { promised: 1.0, .. }), "{error}");
    // The declared samples can be read, as from any other file.
    assert_eq!(bomb.load(None, Some(1.0)).unwrap().len(), 16_000);
    // If a header is only slightly wrong, the audio decides.
    assert_eq!(held(silent_flac(16_000, 16_000, 2)).load(None, None).unwrap().len(), 131_070);
}

#[test]
fn an_mp3_that_goes_on_after_the_length_in_its_tag_is_an_error() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tone.mp3");
    let tone = std::fs::read(path).unwrap();
    let whole = held(tone.clone()).load(None, None).unwrap().len();
    // As `cat a.mp3 b.mp3` makes it.
    let joined = held([&tone[..], &tone].concat());
    let error = joined.load(None, None).map(|samples| samples.len()).unwrap_err();
    let AudioError::MoreThanPromised { promised, .. } = error else { panic!("{error}") };
    assert!((promised - whole as f64 / 16_000.0).abs() < 0.01, "{promised}");
    // Block by block, the first of the two comes before the error.
    let blocks: Vec<Result<Vec<f32>, AudioError>> = joined.stream().unwrap().collect();
    let samples: usize = blocks.iter().flatten().map(Vec::len).sum();
    assert!(samples.abs_diff(whole) < 600 && blocks.iter().filter(|block| block.is_err()).count() == 1, "{samples}");
}

#[test]
fn what_promises_nothing_is_read_to_a_limit() {
    let endless = held(silent_flac(48_000, 0, 3000));
    assert_eq!(endless.seconds().unwrap(), None);
    assert_eq!(endless.counted_seconds().unwrap(), 3000.0 * 65_535.0 / 48_000.0);
    let error = decode(&endless, 0.0, None, 60.0).unwrap_err();
    assert!(matches!(error, AudioError::TooLong { .. }), "{error}");
    assert!(matches!(decode(&endless, 0.0, Some(3000.0), 60.0), Err(AudioError::TooLong { .. })));
    // A part of it is read at any position.
    assert_eq!(decode(&endless, 3000.0, Some(3001.0), 60.0).unwrap().samples.len(), 16_000);
    // A file whose header declares too much is refused before decoding.
    let long = held(silent_flac(16_000, 1 << 35, 1));
    assert!(matches!(long.load(None, None), Err(AudioError::TooLong { hours: 8.0, .. })));
}

#[test]
fn lengths_that_no_header_tells_are_counted() {
    let dir = TempDir::new().unwrap();
    let mut piped = std::fs::read(&long(&dir)[0]).unwrap();
    for at in [4, 40] {
        piped[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    let ogg = std::fs::read(packed("long.ogg")).unwrap();
    for (name, bytes) in [
        ("MP3 without a tag", std::fs::read(fixture("loud-then-quiet.mp3")).unwrap()),
        ("AAC without a container", std::fs::read(fixture("quiet-then-loud.aac")).unwrap()),
        ("FLAC from a pipe", streamed_flac()),
        ("WAV to a pipe", piped),
        ("Ogg", ogg),
    ] {
        let stored = held(bytes);
        assert!(name == "Ogg" || stored.seconds().unwrap().is_none(), "{name}");
        let samples = stored.load(None, None).unwrap().len();
        let counted = stored.counted_seconds().unwrap();
        assert!((counted * 16_000.0 - samples as f64).abs() <= 1.0, "{name}: {counted} s, {samples} samples");
    }
    let cut = |bytes: Vec<u8>| held(bytes[..bytes.len() / 2].to_vec()).counted_seconds();
    assert!(matches!(cut(std::fs::read(packed("long.flac")).unwrap()), Err(AudioError::Truncated { .. })));
}

#[test]
fn a_wav_of_any_size_that_stands_for_none_is_read_to_its_end() {
    let whole = std::fs::read(fixture("tone.wav")).unwrap();
    // SoX to a pipe, arecord when it is killed, and ffmpeg to a pipe.
    for (riff, data) in [(0x7fff_f024, 0x7fff_f000_u32), (0x8000_0024, 0x8000_0000), (u32::MAX, u32::MAX)] {
        let mut bytes = whole.clone();
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(riff));
        bytes[40..44].copy_from_slice(&data.to_le_bytes());
        let stored = held(bytes);
        assert_eq!(stored.seconds().unwrap(), None);
        assert_eq!(stored.load(None, None).unwrap(), load(&fixture("tone.wav")).unwrap());
    }
}

#[test]
fn an_mp3_without_a_tag_that_becomes_quiet_is_read_to_its_end() {
    // Estimated from its first frames it would end after 4.4 s.
    let stored = Stored::file(&fixture("loud-then-quiet.mp3"));
    let audio = stored.load(None, None).unwrap();
    assert!((audio.len() as f64 / 16_000.0 - 12.0).abs() < 0.2, "{} samples", audio.len());
    assert_eq!(stored.counted_seconds().unwrap(), audio.len() as f64 / 16_000.0);
    assert!(audio[audio.len() - 16_000..].iter().any(|sample| sample.abs() > 0.05));
}

#[test]
fn rates_and_channels_that_no_recording_has_are_errors() {
    let dir = TempDir::new().unwrap();
    let wav = std::fs::read(float_wav(&dir, "a.wav", 16_000, 1, &[0.0; 1_600])).unwrap();
    let fmt = wav.windows(4).position(|four| four == b"fmt ").unwrap() + 8;
    for rate in [0_u32, 1, 999, 768_001, 4_000_000_000] {
        let mut bytes = wav.clone();
        bytes[fmt + 4..fmt + 8].copy_from_slice(&rate.to_le_bytes());
        assert!(matches!(held(bytes).load(None, None), Err(AudioError::Unsupported { .. })), "{rate} Hz");
    }
    for channels in [0_u16, 27, 255, u16::MAX] {
        let mut bytes = wav.clone();
        bytes[fmt + 2..fmt + 4].copy_from_slice(&channels.to_le_bytes());
        assert!(held(bytes).load(None, None).is_err(), "{channels} channels");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn resampling_in_pieces_is_resampling_at_once(
        rate in prop::sample::select(vec![8_000_u32, 11_025, 16_000, 22_050, 44_100, 48_000]),
        samples in 0_usize..20_000,
        cuts in prop::collection::vec(0_usize..20_000, 0..6),
    ) {
        let audio: Vec<f32> = (0..samples).map(|n| (n * n % 1999) as f32 / 1999.0 - 0.5).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(samples)).chain([0, samples]).collect();
        cuts.sort_unstable();
        let mut resampling = crate::audio::resample::Resampling::begin(rate).unwrap();
        cuts.windows(2).for_each(|cut| resampling.push(&audio[cut[0]..cut[1]]).unwrap());
        let pieces = resampling.finish().unwrap();
        prop_assert_eq!(pieces.len(), (samples * 16_000).div_ceil(rate as usize));
        prop_assert_eq!(pieces, crate::audio::to_16k(audio, rate).unwrap());
    }
}
