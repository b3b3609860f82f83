//! WAV headers: lengths that are not known, and those of 64 bits.

use super::*;

#[test]
fn a_header_without_lengths_is_read_to_the_end_of_the_file() {
    let whole = std::fs::read(fixture("tone.wav")).unwrap();
    let data = whole.windows(4).position(|four| four == b"data").expect("a chunk");
    for (riff, length) in [(0_u32, 0_u32), (data as u32, 0), (u32::MAX, 0), (whole.len() as u32 - 8, u32::MAX)] {
        let mut bytes = whole.clone();
        bytes[4..8].copy_from_slice(&riff.to_le_bytes());
        bytes[data + 4..data + 8].copy_from_slice(&length.to_le_bytes());
        let found = Stored::memory("open.wav".into(), std::sync::Arc::new(bytes)).load(None, None).unwrap();
        assert_eq!(found, load(&fixture("tone.wav")).unwrap(), "{riff} {length}");
    }
}

#[test]
fn a_segment_of_floats_without_lengths_is_that_part_of_the_whole() {
    let dir = TempDir::new().unwrap();
    let path = float_wav(&dir, "a.wav", SAMPLE_RATE, 1, &sine(440.0, SAMPLE_RATE, 1.0));
    let (whole, bytes) = (load(&path).unwrap(), std::fs::read(&path).unwrap());
    let data = bytes.windows(4).position(|four| four == b"data").expect("a chunk");
    // As recorders leave it that do not come to their end: with a length of 0, and 0 samples.
    let header = [b"RIFF\0\0\0\0", &bytes[8..data], b"fact\x04\0\0\0\0\0\0\0data\0\0\0\0"].concat();
    let open = Stored::memory("open.wav".into(), std::sync::Arc::new([&header, &bytes[data + 8..]].concat()));
    assert!(open.load(None, None).unwrap() == whole);
    assert!(open.load(Some(0.25), Some(0.5)).unwrap() == whole[4_000..8_000]);
}

#[test]
fn wavpack_is_not_taken_for_the_wav_in_it() {
    let wavpack = [b"wvpk\x20\0\0\0", [7; 40].as_slice(), &std::fs::read(fixture("tone.wav")).unwrap()].concat();
    let refused = Stored::memory("a.wv".into(), std::sync::Arc::new(wavpack)).load(None, None).unwrap_err().to_string();
    assert!(refused.contains("it is WavPack"), "{refused}");
}

/// The tone as RF64 or BW64, with a chunk after its samples.
fn with_long_lengths(name: &[u8], told: bool) -> Vec<u8> {
    let wav = std::fs::read(fixture("tone.wav")).unwrap();
    let data = wav.windows(4).position(|four| four == b"data").expect("a chunk");
    let length = u32::from_le_bytes(wav[data + 4..data + 8].try_into().expect("four")) as usize;
    let (samples, more) = (&wav[data + 8..data + 8 + length], [b"LIST\x04\0\0\0", &b"noise"[..4]].concat());
    let numbers = [wav.len() + 36 + more.len(), length, length / 2].map(|number| if told { number as u64 } else { 0 });
    let lengths = numbers.map(u64::to_le_bytes).concat();
    let header = [name, b"\xff\xff\xff\xffWAVEds64\x1c\0\0\0", &lengths, &[0; 4]].concat();
    let tail = if told { more } else { Vec::new() };
    [&header, &wav[12..data], b"data\xff\xff\xff\xff", samples, &tail].concat()
}

#[test]
fn a_wav_with_lengths_of_64_bits_is_read() {
    let tone = load(&fixture("tone.wav")).unwrap();
    for (name, told) in [(b"RF64", true), (b"BW64", true), (b"RF64", false)] {
        let bytes = with_long_lengths(name, told);
        let cut = Stored::memory("cut.wav".into(), std::sync::Arc::new(bytes[..bytes.len() - 4_000].to_vec()));
        let whole = Stored::memory("long.wav".into(), std::sync::Arc::new(bytes));
        assert!(whole.load(None, None).unwrap() == tone, "{name:?} {told}");
        let segment = whole.load(Some(0.5), Some(0.75)).unwrap();
        assert!(segment == load_segment(&fixture("tone.wav"), Some(0.5), Some(0.75)).unwrap(), "{name:?} {told}");
        assert_eq!(whole.seconds().unwrap().is_some(), told);
        assert_eq!(
            cut.load(None, None).is_ok_and(|found| found.len() < tone.len()),
            !told,
            "the length is known or not"
        );
    }
}
