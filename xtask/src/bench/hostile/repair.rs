//! Checksums made anew, so that what stands behind them is read: most of what a checksum covers would otherwise be
//! refused before anybody looks at it.

use super::hub::body;
use std::ops::Range;
use std::path::Path;

/// The headers of a tar's members: the sum of all bytes, with its own as blanks, in octal.
pub fn tar(bytes: &mut [u8]) {
    for header in bytes.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// The pages of an Ogg file (RFC 3533, section 6).
pub fn ogg(bytes: &mut [u8]) {
    let pages: Vec<usize> =
        (0..bytes.len().saturating_sub(27)).filter(|at| bytes[*at..].starts_with(b"OggS")).collect();
    for (page, at) in pages.iter().enumerate() {
        let end = pages.get(page + 1).copied().unwrap_or(bytes.len());
        let page = &mut bytes[*at..end];
        page[22..26].fill(0);
        let sum = remainder(page, 32, 0x04c1_1db7);
        page[22..26].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A frame of a FLAC file: where it stands, and the length of its header without the checksum.
pub struct Frame {
    pub place: Range<usize>,
    header: usize,
}

/// The frames of a whole FLAC file (RFC 9639, section 9).
pub fn frames(bytes: &[u8]) -> Vec<Frame> {
    let header = |at: usize| {
        let bytes = &bytes[at..];
        let [0xff, 0xf8 | 0xf9, sizes, _, number, ..] = *bytes else { return None };
        let more =
            |code: u8, one: &[u8], two: &[u8]| usize::from(one.contains(&code)) + 2 * usize::from(two.contains(&code));
        let extra = more(sizes >> 4, &[6], &[7]) + more(sizes & 15, &[12], &[13, 14]);
        let header = 4 + (number.leading_ones() as usize).max(1) + extra;
        (u32::from(*bytes.get(header)?) == remainder(&bytes[..header], 8, 0x07)).then_some((at, header))
    };
    let starts: Vec<(usize, usize)> = (0..bytes.len()).filter_map(header).collect();
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([bytes.len()]);
    starts.iter().zip(ends).map(|(&(at, header), end)| Frame { place: at..end, header }).collect()
}

/// The two checksums of a frame.
pub fn flac(bytes: &mut [u8], frame: &Frame) {
    let bytes = &mut bytes[frame.place.clone()];
    bytes[frame.header] = remainder(&bytes[..frame.header], 8, 0x07) as u8;
    let (content, sum) = bytes.split_at_mut(bytes.len() - 2);
    sum.copy_from_slice(&(remainder(content, 16, 0x8005) as u16).to_be_bytes());
}

/// A cyclic redundancy check of so many bits, the first bit first.
fn remainder(bytes: &[u8], bits: u32, polynomial: u32) -> u32 {
    let step = |sum: u32| if sum >> 31 == 1 { (sum << 1) ^ (polynomial << (32 - bits)) } else { sum << 1 };
    let sum = bytes.iter().fold(0, |sum, byte| (0..8).fold(sum ^ (u32::from(*byte) << 24), |sum, _| step(sum)));
    sum >> (32 - bits)
}

/// The length that the head of an answer of HTTP says, if it says one.
pub fn answer(bytes: &mut Vec<u8>) {
    let Some(length) = body(bytes).map(<[u8]>::len) else { return };
    let head = String::from_utf8_lossy(&bytes[..bytes.len() - length]).into_owned();
    let line = |line: &str| match line.split_once(": ") {
        Some(("Content-Length", _)) => format!("Content-Length: {length}\r\n"),
        _ => line.to_owned(),
    };
    let head: String = head.split_inclusive("\r\n").map(line).collect();
    bytes.splice(..bytes.len() - length, head.into_bytes());
}

/// The `checksums` beside a file of a checkpoint; nothing where there is none.
pub fn checkpoint(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (Some(sums), Some(name)) = (file.parent().map(|dir| dir.join("checksums")), file.file_name()) else {
        return Ok(());
    };
    let Ok(text) = std::fs::read_to_string(&sums) else { return Ok(()) };
    let name = name.to_string_lossy();
    let line = |line: &str| match line.ends_with(&format!("  {name}")) {
        true => format!("{:08x}  {name}\n", crc32fast::hash(bytes)),
        false => format!("{line}\n"),
    };
    std::fs::write(sums, text.lines().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_its_length() {
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX: y\r\n\r\n{}".to_vec();
        answer(&mut bytes);
        assert_eq!(String::from_utf8_lossy(&bytes), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\n{}");
    }

    #[test]
    fn whole_files_have_the_checksums_that_are_made_anew() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let whole = std::fs::read(root.join("crates/data/tests/fixtures/tone.ogg")).expect("a fixture");
        let mut again = whole.clone();
        ogg(&mut again);
        assert_eq!(again, whole);

        let whole = std::fs::read(root.join("crates/data/tests/fixtures/tone.flac")).expect("a fixture");
        let mut again = whole.clone();
        let found = frames(&whole);
        assert!(found.len() > 1 && found.iter().all(|frame| frame.place.len() > 20), "{} frames", found.len());
        found.iter().for_each(|frame| flac(&mut again, frame));
        assert_eq!(again, whole);

        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(3);
        header.set_cksum();
        archive.append_data(&mut header, "a.txt", &b"abc"[..]).expect("appended");
        let whole = archive.into_inner().expect("an archive");
        let mut again = whole.clone();
        again[148..156].fill(b'0');
        tar(&mut again);
        let number =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[148..156]).trim_matches(['\0', ' ']).parse::<u32>().ok();
        assert!(number(&again).is_some() && number(&again) == number(&whole));
    }
}
