//! Line numbers of the records in a table. The CSV reader counts a line end of two bytes only once it has passed it,
//! and counts blank lines as part of the next record.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Result};
use std::rc::Rc;

/// Starts of the non-blank lines in the bytes that have been read and not queried yet.
pub(super) struct Starts(Rc<RefCell<Lines>>);

/// Reader that passes bytes on unchanged and records the starts of lines.
pub(super) struct Noted<R> {
    bytes: R,
    lines: Rc<RefCell<Lines>>,
}

#[derive(Default)]
struct Lines {
    /// Offset of the first byte of a line, and the line's number from 1.
    begun: VecDeque<(u64, u64)>,
    /// Number of bytes so far.
    read: u64,
    /// Number of line ends so far.
    ended: u64,
    /// Whether the current line has a byte.
    within: bool,
    /// Whether the last byte was a carriage return, which a following line feed belongs to.
    returned: bool,
}

impl Starts {
    /// Wraps a reader; returns it with the starts of its lines.
    pub fn of<R: Read>(bytes: R) -> (Noted<R>, Self) {
        let lines = Rc::default();
        (Noted { bytes, lines: Rc::clone(&lines) }, Self(lines))
    }

    /// Returns the line, from 1, of the first byte from `byte` on that is no line end. Queries must come in ascending
    /// order.
    pub fn line(&mut self, byte: u64) -> u64 {
        let mut lines = self.0.borrow_mut();
        while lines.begun.front().is_some_and(|(start, _)| *start < byte) {
            lines.begun.pop_front();
        }
        lines.begun.front().map_or(lines.ended + 1, |(_, line)| *line)
    }
}

impl Lines {
    fn note(&mut self, byte: u8) {
        match byte {
            b'\n' if self.returned => {}
            b'\n' | b'\r' => {
                self.ended += 1;
                self.within = false;
            }
            _ if !self.within => {
                self.begun.push_back((self.read, self.ended + 1));
                self.within = true;
            }
            _ => {}
        }
        self.returned = byte == b'\r';
        self.read += 1;
    }
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.bytes.read(buffer)?;
        let mut lines = self.lines.borrow_mut();
        buffer[..read].iter().for_each(|byte| lines.note(*byte));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["a", "", "b", "c"].join(end);
            let (mut bytes, mut starts) = Starts::of(text.as_bytes());
            std::io::copy(&mut bytes, &mut std::io::sink()).expect("read");
            // A reader of tables gives the position after the first byte of the line end, or after all of it.
            let found = [0, 2, text.find('c').expect("there") as u64].map(|byte| starts.line(byte));
            assert_eq!(found, [1, 3, 4], "{end:?}");
        }
    }
}
