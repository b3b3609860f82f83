use serde_json::Value;

use super::fields::TaskFields;
use super::row::Row;
use super::{Origin, RecordsConfig, RecordsError};

/// A question, a context, and the spans of the context that answer it.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanRecord {
    /// Identifier from the file; without an `id` the record's number among the records of all files, from 1.
    pub id: String,
    /// The question.
    pub question: String,
    /// The text that may hold the answer.
    pub context: String,
    /// Accepted answers, the one to train on first; empty if the context has no answer.
    pub answers: Vec<Answer>,
    /// Origin of the record.
    pub origin: Origin,
}

/// A span of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its text, never empty.
    pub text: String,
    /// Start in the context, in characters (Unicode scalar values, as Python counts them).
    pub start: usize,
}

impl SpanRecord {
    /// Reads questions with their contexts and answers: `{"text": [..], "answer_start": [..]}` as in SQuAD on Hugging
    /// Face, or `[{"text": .., "answer_start": ..}, ..]` as in SQuAD itself; null or empty for no answer.
    ///
    /// # Errors
    /// The error names the file and, where there is one, the line or row. It is returned for a file that is missing,
    /// empty or not in its format, a field that is missing or of another type, and an answer that is not at its place
    /// in the context.
    pub fn read(config: &RecordsConfig) -> Result<Vec<Self>, RecordsError> {
        let task = TaskFields {
            config,
            required: &["question", "context", "answers"],
            optional: &["id"],
            aliases: &[],
            shared: Some("context"),
        };
        task.read(|row| {
            let value = task.required(row, "answers")?;
            // A table has them as text.
            let parsed = value.as_str().and_then(|text| serde_json::from_str(text).ok());
            let value = parsed.as_ref().unwrap_or(value);
            let answers = answers(value).ok_or_else(|| {
                let needs = "an object with equally many `text` and `answer_start`, or a list of such";
                task.mistyped(row, "answers", value, needs)
            })?;
            let record = Self {
                id: id(&task, row)?,
                question: task.text(row, "question")?,
                context: task.text(row, "context")?,
                answers,
                origin: row.origin.clone(),
            };
            record.check()?;
            Ok(record)
        })
    }

    fn check(&self) -> Result<(), RecordsError> {
        for Answer { text, start } in &self.answers {
            if text.is_empty() {
                let reason = "has an empty answer; where the context has none, leave the list of answers empty".into();
                return Err(RecordsError::Malformed { origin: self.origin.clone(), reason });
            }
            let there = self.context.char_indices().nth(*start).map_or("", |(byte, _)| &self.context[byte..]);
            if !there.starts_with(text.as_str()) {
                let found = there.chars().take(text.chars().count()).collect();
                let (origin, answer) = (self.origin.clone(), text.clone());
                return Err(RecordsError::Span { origin, answer, start: *start, found });
            }
        }
        Ok(())
    }
}

fn id(task: &TaskFields, row: &Row) -> Result<String, RecordsError> {
    match task.optional(row, "id")? {
        None => Ok(row.number.to_string()),
        Some(Value::String(id)) => Ok(id.clone()),
        Some(Value::Number(id)) => Ok(id.to_string()),
        Some(other) => Err(task.mistyped(row, "id", other, "text or a number")),
    }
}

/// Parses answers in either form; none if the value has neither.
fn answers(value: &Value) -> Option<Vec<Answer>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.iter().map(|item| answer(item.get("text")?, item.get("answer_start")?)).collect(),
        Value::Object(fields) => match (fields.get("text")?, fields.get("answer_start")?) {
            (Value::Array(texts), Value::Array(starts)) if texts.len() == starts.len() => {
                texts.iter().zip(starts).map(|(text, start)| answer(text, start)).collect()
            }
            (text, start) => Some(vec![answer(text, start)?]),
        },
        _ => None,
    }
}

fn answer(text: &Value, start: &Value) -> Option<Answer> {
    Some(Answer { text: text.as_str()?.to_owned(), start: usize::try_from(start.as_u64()?).ok()? })
}
