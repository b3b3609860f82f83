use std::path::Path;
use std::sync::Arc;

use super::fields::{Aliases, TaskFields};
use super::lines::lines;
use super::{Format, Origin, RecordsConfig, RecordsError};

/// A text without its answer: what a trained model is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRecord {
    /// The text, or the question; empty where the file has none.
    pub text: String,
    /// The context of a question, or the second text of a pair.
    pub context: Option<String>,
    /// Origin of the record.
    pub origin: Origin,
}

/// Names under which the records of the tasks have these texts.
const ALIASES: Aliases =
    &[("text", &["question", "source", "sentence", "words", "tokens"]), ("context", &["text_pair"])];

impl InputRecord {
    /// Reads the texts of a file: its lines if it is plain text (`.txt`), and of every other format the fields `text`, or
    /// `question`, `source`, `sentence`, `words` or `tokens`, and `context` or `text_pair` if there is one. Lists of words are joined by
    /// spaces. Empty texts are kept, so that answers can be matched with the file.
    ///
    /// # Errors
    /// The error names the file and, where there is one, the line or row: of a file that is missing, empty or not in its format, and of
    /// a record without such a field.
    pub fn read(config: &RecordsConfig) -> Result<Vec<Self>, RecordsError> {
        if let [path] = config.path.as_slice()
            && config.format == Format::Auto
            && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt"))
        {
            return plain(path.as_path().into());
        }
        let task = TaskFields { config, required: &["text"], optional: &["context"], aliases: ALIASES, shared: None };
        task.read(|row| {
            let text = if task.required(row, "text")?.is_null() { String::new() } else { task.text(row, "text")? };
            let context = task.optional_text(row, "context")?;
            Ok(Self { text, context, origin: row.origin.clone() })
        })
    }
}

fn plain(path: Arc<Path>) -> Result<Vec<InputRecord>, RecordsError> {
    let texts = lines(&path)?.map(|line| {
        let (number, text) = line?;
        Ok(InputRecord { text, context: None, origin: Origin::line(&path, number) })
    });
    let texts: Vec<_> = texts.collect::<Result<_, RecordsError>>()?;
    if texts.is_empty() {
        return Err(RecordsError::Empty { path: path.to_path_buf().into() });
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &str) -> Result<Vec<(String, Option<String>)>, RecordsError> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("written");
        let records = InputRecord::read(&RecordsConfig { path: path.into(), ..Default::default() })?;
        Ok(records.into_iter().map(|record| (record.text, record.context)).collect())
    }

    #[test]
    fn texts_are_read_from_lines_and_from_the_columns_of_any_task() {
        let alone = |texts: &[&str]| texts.iter().map(|text| ((*text).to_owned(), None)).collect::<Vec<_>>();
        assert_eq!(read("a.txt", "one, two\n\n\"three\r\n").expect("lines"), alone(&["one, two", "", "\"three"]));
        assert_eq!(read("a.csv", "id,sentence\n1,\"a, b\"\n2,\n3,c\n").expect("cells"), alone(&["a, b", "", "c"]));
        let tokens = "{\"tokens\": [\"in\", \"Rome\"]}\n{\"tokens\": null}\n";
        assert_eq!(read("a.jsonl", tokens).expect("lists"), alone(&["in Rome", ""]));
        let asked = read("a.tsv", "question\tcontext\nwho?\tRome fell.\n").expect("questions");
        assert_eq!(asked, [("who?".to_owned(), Some("Rome fell.".to_owned()))]);
    }

    #[test]
    fn what_holds_no_texts_is_refused() {
        let error = |name, content| read(name, content).expect_err("an error").to_string();
        assert!(error("a.txt", "").contains("a.txt"), "{}", error("a.txt", ""));
        let lacking = error("a.jsonl", "{\"body\": \"one\"}\n");
        assert!(lacking.contains("a.jsonl line 1") && lacking.contains("text"), "{lacking}");
        assert!(error("a.doc", "one\n").contains("a.doc"), "{}", error("a.doc", "one\n"));
    }
}
