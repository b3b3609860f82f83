//! Texts of an interrupted labelling, kept beside its list until that is whole.

use crate::RunError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Texts of a model by recording, in a file of JSON lines that grows with each of them.
pub struct LabelRecord {
    texts: HashMap<String, String>,
    path: PathBuf,
    file: File,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Everything that the text depends on: the model with its settings, the recording, language and task.
    key: String,
    text: String,
}

impl LabelRecord {
    /// Opens the file, and creates it if there is none. A line that was cut short is left out.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let mut content = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            content => content.map_err(RunError::of_file("read", path))?,
        };
        // A kill in the middle of a line leaves its beginning.
        let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        content.truncate(whole);
        let lines = content.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let texts = lines.map(|line| (line.key, line.text)).collect();
        let open = || {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            file.set_len(whole as u64)?;
            Ok(file)
        };
        let file = open().map_err(RunError::of_file("write", path))?;
        Ok(Self { texts, path: path.to_owned(), file })
    }

    /// Number of recordings whose text is known.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether no text is known.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the text of a recording, if it is known.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }

    /// Adds the text of a recording.
    pub(crate) fn add(&mut self, key: String, text: &str) -> Result<(), RunError> {
        let line = serde_json::to_string(&Line { key, text: text.to_owned() }).unwrap_or_default();
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(RunError::of_file("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_is_left_out_and_the_next_one_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("list.partial");
        let mut record = LabelRecord::open(&path).expect("a file");
        assert!(record.is_empty());
        record.add("a".into(), "one\ntwo").expect("written");
        record.add("b".into(), "three").expect("written");
        drop(record);
        let content = std::fs::read(&path).expect("read");
        std::fs::write(&path, &content[..content.len() - 3]).expect("written");
        let mut record = LabelRecord::open(&path).expect("a file");
        assert_eq!((record.len(), record.text("a"), record.text("b")), (1, Some("one\ntwo"), None));
        record.add("b".into(), "four").expect("written");
        drop(record);
        assert_eq!(LabelRecord::open(&path).expect("a file").text("b"), Some("four"));
    }
}
