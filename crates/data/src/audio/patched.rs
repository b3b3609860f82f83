//! Files of which a few bytes are read otherwise than they are stored.

use std::io::{Read, Result, Seek, SeekFrom};

use symphonia::core::io::MediaSource;

/// A file with other bytes at some places; usually there are none.
pub(super) struct Patched {
    pub file: Box<dyn MediaSource>,
    pub position: u64,
    /// Places in the file, and the four bytes that are read there.
    pub patches: Vec<(u64, [u8; 4])>,
}

impl Read for Patched {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.file.read(buffer)?;
        for (place, bytes) in &self.patches {
            for (at, byte) in (*place..).zip(bytes) {
                if let Some(at) = at.checked_sub(self.position).filter(|at| *at < read as u64) {
                    buffer[at as usize] = *byte;
                }
            }
        }
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Patched {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

impl MediaSource for Patched {
    fn is_seekable(&self) -> bool {
        self.file.is_seekable()
    }

    fn byte_len(&self) -> Option<u64> {
        self.file.byte_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn patches_are_read_in_any_parts() {
        let file: Vec<u8> = (0..20).collect();
        let mut expected = file.clone();
        expected[4..8].fill(0xff);
        expected[15..19].fill(0xff);
        for size in 1..20 {
            let patches = vec![(4, [0xff; 4]), (15, [0xff; 4])];
            let mut patched = Patched { file: Box::new(Cursor::new(file.clone())), position: 0, patches };
            let mut found = vec![0; 20];
            found.chunks_mut(size).for_each(|part| patched.read_exact(part).expect("read"));
            assert_eq!(found, expected, "{size}");
            patched.seek(SeekFrom::Start(6)).expect("found");
            patched.read_exact(&mut found[..2]).expect("read");
            assert_eq!(found[..2], [0xff; 2]);
        }
    }
}
