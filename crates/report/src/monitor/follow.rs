//! Reads JSON-lines files while they grow.

use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Reads what was appended to a file since the last call.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    /// Number of bytes read, in complete lines.
    read: u64,
}

/// Lines that were appended to a file.
#[derive(Debug, PartialEq)]
pub(super) struct Added<T> {
    /// Whether the file was truncated; all lines read before are then invalid.
    pub restarted: bool,
    /// Lines since the last call, without those that cannot be parsed.
    pub lines: Vec<T>,
}

impl Follower {
    /// Creates a follower of a file that need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// Reads the complete lines since the last call. A resumed run truncates its files at the step where it continues,
    /// so a file that became shorter is read from its beginning.
    pub fn look<T: DeserializeOwned>(&mut self) -> Added<T> {
        let mut added = Added { restarted: false, lines: Vec::new() };
        let length = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        if length < self.read {
            self.read = 0;
            added.restarted = true;
        }
        let mut bytes = Vec::new();
        let from = SeekFrom::Start(self.read);
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(from)?;
            file.read_to_end(&mut bytes)
        });
        // An incomplete last line is read by the next call.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if read.is_ok() {
            self.read += whole as u64;
            let lines = bytes[..whole].split(|byte| *byte == b'\n');
            added.lines = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_line_is_read_once_and_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics.jsonl");
        let mut follower = Follower::new(path.clone());
        let added = |restarted, lines: &[u64]| Added { restarted, lines: lines.to_vec() };
        assert_eq!(follower.look(), added(false, &[]), "there is no file yet");
        let mut file = File::create(&path).expect("created");
        for (text, lines) in
            [("1\n2\n", vec![1, 2]), ("", vec![]), ("3", vec![]), ("4\n", vec![34]), ("x\n5\n", vec![5])]
        {
            file.write_all(text.as_bytes()).expect("written");
            assert_eq!(follower.look(), added(false, &lines), "after {text:?}");
        }
    }

    #[test]
    fn a_file_that_a_resumed_run_cut_is_read_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "1\n2\n3\n").expect("written");
        let mut follower = Follower::new(path.clone());
        assert_eq!(follower.look::<u64>().lines, [1, 2, 3]);
        std::fs::write(&path, "1\n7\n").expect("written");
        assert_eq!(follower.look::<u64>(), Added { restarted: true, lines: vec![1, 7] });
    }
}
