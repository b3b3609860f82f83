//! On which line a record of a table begins: the reader of tables counts a line end of two bytes only once it is passed, and
//! blank lines as part of the record behind them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Result};
use std::rc::Rc;

/// Where lines begin that are not blank, of what has been read and not asked for yet.
pub(super) struct Starts(Rc<RefCell<Lines>>);

/// Bytes as they are, of which the beginnings of lines are noted.
pub(super) struct Noted<R> {
    bytes: R,
    lines: Rc<RefCell<Lines>>,
}

#[derive(Default)]
struct Lines {
    /// First bytes, and the lines that they are on, from 1.
    begun: VecDeque<(u64, u64)>,
    /// Bytes so far.
    read: u64,
    /// Line ends so far.
    ended: u64,
    /// Whether the line has a byte.
    within: bool,
    /// Whether the last byte was a carriage return, which a line feed behind it belongs to.
    returned: bool,
}

impl Starts {
    /// Of these bytes, as they are read.
    pub fn of<R: Read>(bytes: R) -> (Noted<R>, Self) {
        let lines = Rc::default();
        (Noted { bytes, lines: Rc::clone(&lines) }, Self(lines))
    }

    /// The line, from 1, of the first byte from `byte` on that is no line end. Bytes are asked for in their order.
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
            // A reader of tables gives the place behind the first byte of the line end, or behind all of it.
            let found = [0, 2, text.find('c').expect("there") as u64].map(|byte| starts.line(byte));
            assert_eq!(found, [1, 3, 4], "{end:?}");
        }
    }
}
