//! What MP4 and MOV say beside the audio itself: the encoder's delay, and whether the audio is in fragments.

use std::io::{Read, Seek, SeekFrom};

/// Timing of the first audio track of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Timing {
    /// Seconds of audio before the recording, which the encoder needed.
    pub delay: f64,
    /// Whether the audio is in fragments, of which the header does not know the length.
    pub is_fragmented: bool,
}

/// Largest description that is read, in bytes. It has a few bytes for each packet.
const LARGEST: u64 = 64 << 20;
/// Most boxes before the description.
const MOST_BOXES: usize = 10_000;
/// Longest delay, in seconds: encoders need some thousand samples at most. What is longer is a cut.
const LONGEST_DELAY: f64 = 0.5;

/// Reads the timing (ISO/IEC 14496-12); the default if there is none.
pub(super) fn timing(file: &mut (impl Read + Seek + ?Sized)) -> Timing {
    let Some(movie) = movie(file) else { return Timing::default() };
    let track =
        children(&movie).filter(|(kind, _)| kind == b"trak").map(|(_, track)| track).find(|track| is_audio(track));
    Timing {
        delay: track.and_then(delay).filter(|delay| (0.0..=LONGEST_DELAY).contains(delay)).unwrap_or_default(),
        is_fragmented: find(&movie, &[b"mvex"]).is_some(),
    }
}

/// Returns the content of the box `moov`.
fn movie(file: &mut (impl Read + Seek + ?Sized)) -> Option<Vec<u8>> {
    for _ in 0..MOST_BOXES {
        let mut head = [0; 8];
        file.read_exact(&mut head).ok()?;
        let (short, kind) = (u64::from(number(&head, 0)?), &head[4..]);
        let length = match short {
            0 => None,
            1 => {
                let mut long = [0; 8];
                file.read_exact(&mut long).ok()?;
                Some(u64::from_be_bytes(long).checked_sub(16)?)
            }
            _ => Some(short.checked_sub(8)?),
        };
        if kind == b"moov" {
            let mut content = Vec::new();
            file.take(length.unwrap_or(LARGEST).min(LARGEST)).read_to_end(&mut content).ok()?;
            return Some(content);
        }
        file.seek(SeekFrom::Current(i64::try_from(length?).ok()?)).ok()?;
    }
    None
}

fn is_audio(track: &[u8]) -> bool {
    find(track, &[b"mdia", b"hdlr"]).is_some_and(|handler| handler.get(8..12) == Some(b"soun"))
}

/// Returns the start of the first edit, in seconds.
fn delay(track: &[u8]) -> Option<f64> {
    let media = find(track, &[b"mdia", b"mdhd"])?;
    let ticks = number(media, if *media.first()? == 1 { 20 } else { 12 })?;
    let edits = find(track, &[b"edts", b"elst"])?;
    // Duration, start and rate, of which the first two have eight bytes in version 1.
    let (size, place) = if *edits.first()? == 1 { (20, 8) } else { (12, 4) };
    let start = |edit: &[u8]| match place {
        8 => Some(i64::from_be_bytes(edit.get(8..16)?.try_into().ok()?)),
        _ => Some(i64::from(number(edit, 4)? as i32)),
    };
    // An edit that starts at -1 is silence before the track, which is no part of it.
    let first = edits.get(8..)?.chunks_exact(size).filter_map(start).find(|start| *start >= 0)?;
    (ticks > 0).then(|| first as f64 / f64::from(ticks))
}

/// Returns the content of a box in boxes.
fn find<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    path.iter()
        .try_fold(bytes, |bytes, name| children(bytes).find(|(kind, _)| kind == *name).map(|(_, content)| content))
}

/// Returns the boxes in the content of one, with their names.
fn children(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0)? as usize;
        let kind = bytes.get(4..8)?.try_into().ok()?;
        let content = bytes.get(8..length)?;
        bytes = &bytes[length..];
        Some((kind, content))
    })
}

/// Returns the number of four bytes at a place.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32 + 8).to_be_bytes()[..], kind, content].concat()
    }

    fn numbers(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    /// A file with a track of a kind, at 8 kHz, whose edits are given, and with more in its description.
    fn file(kind: &[u8; 4], edits: &[u32], more: &[u8]) -> Vec<u8> {
        let handler = boxed(b"hdlr", &[&[0; 8][..], kind, &[0; 12]].concat());
        let media = boxed(b"mdia", &[boxed(b"mdhd", &numbers(&[0, 0, 0, 8000, 1, 0])), handler].concat());
        let edits = boxed(b"edts", &boxed(b"elst", &numbers(edits)));
        let movie = [&boxed(b"trak", &[edits, media].concat())[..], more].concat();
        [boxed(b"ftyp", b"M4A "), boxed(b"free", &[0; 99]), boxed(b"moov", &movie)].concat()
    }

    #[test]
    fn delays_and_fragments_are_read() {
        let of = |bytes: Vec<u8>| timing(&mut Cursor::new(bytes));
        let delayed = Timing { delay: 0.128, is_fragmented: false };
        assert_eq!(of(file(b"soun", &[0, 1, 500, 1024, 1 << 16], &[])), delayed);
        assert_eq!(of(file(b"soun", &[0, 2, 70, u32::MAX, 1 << 16, 500, 1024, 1 << 16], &[])), delayed);
        assert_eq!(of(file(b"soun", &[1 << 24, 1, 0, 500, 0, 1024, 1 << 16], &[])), delayed);
        assert_eq!(of(file(b"vide", &[0, 1, 500, 1024, 1 << 16], &[])), Timing::default());
        assert_eq!(of(file(b"soun", &[0, 1, 500, 80_000, 1 << 16], &[])), Timing::default(), "a cut");
        assert!(of(file(b"soun", &[0, 0], &boxed(b"mvex", &[]))).is_fragmented);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_timing(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..200, value in any::<u8>()) {
            let _ = timing(&mut Cursor::new(bytes));
            let mut whole = file(b"soun", &[0, 1, 500, 1024, 1 << 16], &[]);
            let at = at % whole.len();
            whole[at] = value;
            prop_assert!(timing(&mut Cursor::new(whole)).delay <= LONGEST_DELAY);
        }
    }
}
