//! Detection of a file's format from its first bytes.

/// A format with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// Common name of the format.
    pub name: &'static str,
    /// Whether this crate reads the format.
    pub is_read: bool,
    /// Whether the signature is unique. That of an MP3 without a tag is eleven bits, which raw samples may begin with
    /// too.
    pub is_certain: bool,
}

/// Number of bytes needed to detect the format.
pub(super) const TELLING: usize = 64;

/// Signatures of formats: offset, bytes, and the format's name.
const READ: [(usize, &[u8], &str); 8] = [
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (8, b"AIFF", "AIFF"),
    (8, b"AIFC", "AIFF-C"),
    (0, b"caff", "CAF"),
    (4, b"ftyp", "MP4 or M4A"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
];
const NOT_READ: [(usize, &[u8], &str); 6] = [
    (0, b"wvpk", "WavPack"),
    (0, b"riff\x2e\x91\xcf\x11", "Wave64"),
    (0, b".snd", "AU"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
    (0, b"NIST_1A", "NIST SPHERE"),
];

impl Container {
    pub const WAV: Self = Self { name: "WAV", is_read: true, is_certain: true };

    /// Returns the format that begins with these bytes, [`TELLING`] of them if there are so many.
    pub fn of(first: &[u8]) -> Option<Self> {
        let is = |(at, magic, _): &&(usize, &[u8], &str)| first.get(*at..).is_some_and(|rest| rest.starts_with(magic));
        let named =
            |is_read| move |(_, _, name): &(usize, &[u8], &'static str)| Self { name, is_read, is_certain: true };
        // The latter two are WAV for more than 4 GiB.
        if [b"RIFF", b"RF64", b"BW64"].iter().any(|name| first.starts_with(*name)) {
            return Some(Self::WAV);
        }
        let read = READ.iter().find(is).map(named(true));
        let mp3 = || is_mp3_frame(first).then_some(Self { name: "MP3", is_read: true, is_certain: false });
        read.or_else(|| NOT_READ.iter().find(is).map(named(false))).or_else(mp3)
    }
}

/// Returns whether bytes are text: samples contain zeros and other control characters.
pub(super) fn is_text(first: &[u8]) -> bool {
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        // The last character may be incomplete.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&first[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|character| !character.is_control() || "\t\r\n".contains(character))
}

/// Returns whether an MP3 frame begins here: its eleven bits, and no value that is invalid in a header.
fn is_mp3_frame(first: &[u8]) -> bool {
    let &[0xff, version_and_layer, rates, ..] = first else { return false };
    let [version, layer] = [version_and_layer >> 3 & 3, version_and_layer >> 1 & 3];
    version_and_layer >= 0xe0 && version != 1 && layer == 1 && rates >> 4 != 15 && rates >> 2 & 3 != 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_how_they_begin() {
        let name = |bytes: &[u8]| Container::of(bytes).map(|container| (container.name, container.is_read));
        assert_eq!(name(b"RIFF\0\0\0\0WAVE"), Some(("WAV", true)));
        assert_eq!(name(b"RF64\xff\xff\xff\xffWAVE"), Some(("WAV", true)));
        assert_eq!(name(b"fLaC\0"), Some(("FLAC", true)));
        assert_eq!(name(b"ID3\x04"), Some(("MP3", true)));
        assert_eq!(name(&[0xff, 0xfb, 0x90, 0x64]), Some(("MP3", true)));
        assert_eq!(name(b"FORM\0\0\0\0AIFF"), Some(("AIFF", true)));
        assert_eq!(name(b"\0\0\0\x20ftypM4A "), Some(("MP4 or M4A", true)));
        assert_eq!(name(b"#!AMR\n"), Some(("AMR", false)));
        // A byte order mark, AAC, and silence.
        for other in [&[0xff, 0xfe, 0x61, 0][..], &[0xff, 0xf1, 0x50, 0x80], &[0; 64], b"", b"\xff"] {
            assert_eq!(name(other), None, "{other:?}");
        }
    }

    #[test]
    fn text_is_told_from_samples() {
        for text in ["root:x:0:0:root\n", "Zwölf Boxkämpfer\r\n", "{\"a\": 1}"] {
            assert!(is_text(text.as_bytes()), "{text}");
        }
        assert!(is_text(&"aö".as_bytes()[..2]), "cut through a character");
        for samples in [&[0_u8; 8][..], &[0x10, 0x27, 0xf0, 0xd8], b""] {
            assert!(!is_text(samples), "{samples:?}");
        }
    }
}
