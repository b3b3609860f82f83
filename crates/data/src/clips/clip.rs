use serde_json::Value;

use crate::cut::TimedText;
use crate::records::fields::{Aliases, TaskFields};
use crate::records::row::{Content, Row};
use crate::records::{Column, Origin, RecordsConfig, RecordsError};
use crate::text::append;

use super::source::Source;

/// A piece of audio and its transcript. Times are in seconds from the beginning of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// Readable name: its file, and its start there.
    pub name: String,
    /// Transcript; may be empty.
    pub text: String,
    /// Language, if given.
    pub language: Option<String>,
    /// Task that it belongs to, if given.
    pub task: Option<String>,
    /// Start, at least 0; the file's beginning if absent.
    pub start: Option<f64>,
    /// End, after `start`; the file's end if absent.
    pub end: Option<f64>,
    /// Channel of the file, from 0; the mean of all of them if there is none.
    pub channel: Option<usize>,
    /// Segments of the transcript, in order and without overlap, also in seconds of the file; empty if not known.
    pub segments: Vec<TimedText>,
    /// Origin of the clip in its list, with the columns that are kept.
    pub origin: Origin,
    /// Location of its audio.
    pub(super) source: Source,
}

/// Optional fields of a clip.
const OPTIONAL: [&str; 8] = ["language", "task", "start", "end", "offset", "duration", "channel", "segments"];

/// Names of fields in published speech data: NeMo, Common Voice, AudioFolder of Hugging Face, VoxPopuli.
const ALIASES: Aliases = &[
    ("audio", &["audio_filepath", "file_name", "file", "path"]),
    ("text", &["sentence", "transcription", "transcript"]),
    ("language", &["locale", "source_lang"]),
];

/// Whether a column of a list has recordings, by its name.
pub fn is_audio_column(name: &str) -> bool {
    ALIASES.iter().any(|(field, others)| *field == "audio" && (name == *field || others.contains(&name)))
}

/// Maximum overlap of a segment with the one before it, in seconds: the effect of rounding to hundredths.
const ROUNDING: f64 = 0.011;

/// Time that a segment may last beyond the end of its recording, in seconds: Whisper's times are places in a window of 30 s, which it
/// fills up with silence.
pub(super) const BEYOND: f64 = 30.0;

impl Clip {
    /// Returns the segments of a clip of known duration, in seconds; those that Whisper ended in the silence after the recording end
    /// with it.
    pub fn segments_within(&self, seconds: f64) -> Vec<TimedText> {
        let last = self.start.unwrap_or(0.0) + seconds;
        let of = |segment: &TimedText| {
            let is_beyond = self.end.is_none() && segment.end > last + ROUNDING && segment.end <= last + BEYOND;
            let end = if is_beyond && segment.start < last { last } else { segment.end };
            TimedText { end, ..segment.clone() }
        };
        self.segments.iter().map(of).collect()
    }
}

/// Returns the fields of clips in the files of a configuration.
pub(super) fn task(config: &RecordsConfig) -> TaskFields<'_> {
    TaskFields { config, required: &["audio", "text"], optional: &OPTIONAL, aliases: ALIASES, shared: None }
}

/// Reads a clip from a row, except for its audio.
pub(super) fn read(task: &TaskFields, row: &Row, name: String, source: Source) -> Result<Clip, RecordsError> {
    check_keys(task, row)?;
    let (start, end) = bounds(task, row)?;
    let segments = segments(task, row, start, end)?;
    let text = match row.get(&task.column(row, "text")) {
        None if !segments.is_empty() => segments.iter().fold(String::new(), |mut text, part| {
            append(&mut text, part.text.trim());
            text
        }),
        None | Some(Value::Null) if task.config.without_texts => String::new(),
        _ => task.text(row, "text")?,
    };
    let channel = channel(task, row)?;
    let of_channel = channel.map(|channel| format!(" channel {channel}")).unwrap_or_default();
    let from = start.map(|start| format!(" from {start} s")).unwrap_or_default();
    let name = format!("{name}{of_channel}{from}");
    let (language, task) = (filled(task, row, "language")?, filled(task, row, "task")?);
    Ok(Clip { name, text, language, task, start, end, channel, segments, origin: row.origin.clone(), source })
}

/// Returns the path in a row, for audio in a file of its own.
pub(super) fn audio_path(task: &TaskFields, row: &Row) -> Result<String, RecordsError> {
    if !task.config.columns.contains_key("audio") && matches!(row.content, Content::Fields(_)) {
        let mut given = task.spellings("audio").filter_map(|name| row.key(name)).filter(|key| !is_null(row, key));
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            let reason =
                format!("has both `{first}` and `{second}`; say under `columns` which is the audio (`audio: {first}`)");
            return Err(malformed(row, reason));
        }
    }
    let value = task.required(row, "audio")?;
    // The form in which Hugging Face writes audio that is not in the file itself.
    let value = value.get("path").unwrap_or(value);
    match value.as_str().map(str::trim) {
        None => Err(task.mistyped(row, "audio", value, "the path of an audio file")),
        Some("") => Err(malformed(row, "has an empty path where the audio file should be named")),
        Some(path) => Ok(path.to_owned()),
    }
}

fn is_null(row: &Row, key: &str) -> bool {
    row.get(&Column::from(key)).is_none_or(Value::is_null)
}

/// Returns the start and end of a clip: `start` with `end` or with `duration`, or NeMo's `offset` with `duration`. A `duration`
/// alone is the length of the whole file, and is ignored. Tables of annotations call the start `onset` and the end `offset`.
fn bounds(task: &TaskFields, row: &Row) -> Result<(Option<f64>, Option<f64>), RecordsError> {
    let (start, end) = (seconds(task, row, "start")?, seconds(task, row, "end")?);
    let is_mapped = |column: &Column| task.config.columns.values().any(|mapped| mapped == column);
    let offset = match task.config.columns.contains_key("offset") || !is_mapped(&Column::from("offset")) {
        true => seconds(task, row, "offset")?,
        false => None,
    };
    let duration = seconds(task, row, "duration")?;
    let end_from = |start: f64| duration.map(|duration| start + duration);
    match offset {
        Some(_) if start.is_some() || end.is_some() => {
            Err(malformed(row, "has both `offset` and `start` or `end`; give `start` and `end` alone"))
        }
        Some(_) if duration.is_none() && !task.config.columns.contains_key("offset") => Err(malformed(
            row,
            "has `offset` and no `duration`; write under `columns` what it is: `offset: offset` for a start, or `end: offset`",
        )),
        Some(offset) => sane(row, Some(offset), end_from(offset)),
        None => sane(row, start, end.or_else(|| end_from(start?))),
    }
}

fn sane(row: &Row, start: Option<f64>, end: Option<f64>) -> Result<(Option<f64>, Option<f64>), RecordsError> {
    let (from, to) = (start.unwrap_or(0.0), end.unwrap_or(f64::INFINITY));
    // Written so that NaN fails, too.
    if from >= 0.0 && to > from {
        return Ok((start, end));
    }
    Err(malformed(
        row,
        format!("has a segment from {from} s to {to} s, which is negative or empty; make 0 <= start < end"),
    ))
}

/// Returns a number of seconds; an empty cell counts as absent.
fn seconds(task: &TaskFields, row: &Row, field: &'static str) -> Result<Option<f64>, RecordsError> {
    let Some(value) = task.optional(row, field)? else { return Ok(None) };
    match value {
        Value::String(cell) if cell.trim().is_empty() => Ok(None),
        Value::String(cell) => cell.trim().parse().map(Some).map_err(|_| {
            malformed(row, format!("has {cell:?} as its {field}, which is not a number of seconds, such as 12.5"))
        }),
        value => value.as_f64().map(Some).ok_or_else(|| task.mistyped(row, field, value, "a number of seconds")),
    }
}

/// Returns the number of a channel; an empty cell counts as absent, and so does a name, such as that of a microphone, in a column that
/// is not mapped.
fn channel(task: &TaskFields, row: &Row) -> Result<Option<usize>, RecordsError> {
    let Some(value) = task.optional(row, "channel")? else { return Ok(None) };
    let number = match value {
        Value::String(cell) if cell.trim().is_empty() => return Ok(None),
        Value::String(cell) => cell.trim().parse().ok(),
        value => value.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    match number {
        None if task.config.columns.contains_key("channel") => {
            Err(task.mistyped(row, "channel", value, "the number of a channel, from 0"))
        }
        number => Ok(number),
    }
}

/// Returns an optional text; an empty cell counts as absent.
fn filled(task: &TaskFields, row: &Row, field: &'static str) -> Result<Option<String>, RecordsError> {
    let text = task.optional_text(row, field)?;
    Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Reads a list of objects as Whisper writes it, an object of lists as datasets on the Hub store it, or the JSON text
/// of either.
fn segments(
    task: &TaskFields,
    row: &Row,
    start: Option<f64>,
    end: Option<f64>,
) -> Result<Vec<TimedText>, RecordsError> {
    let needs = "a list of {start, end, text}, or equally long lists of each";
    let Some(value) = task.optional(row, "segments")? else { return Ok(Vec::new()) };
    let parsed = match value {
        Value::String(text) if text.trim().is_empty() => return Ok(Vec::new()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    let value = parsed.as_ref().unwrap_or(value);
    let items = match value {
        Value::Array(items) => Some(items.iter().map(segment).collect()),
        columns => segments_of(columns),
    };
    let items = items.ok_or_else(|| task.mistyped(row, "segments", value, needs))?;
    let mut segments: Vec<TimedText> = Vec::with_capacity(items.len());
    for (number, item) in (1..).zip(items) {
        let segment = item.ok_or_else(|| malformed(row, format!("has no {{start, end, text}} in segment {number}")))?;
        let TimedText { start: from, end: to, .. } = segment;
        // Whisper writes segments of no length, without a text, where it has nothing to write.
        if from == to && segment.text.trim().is_empty() {
            continue;
        }
        let earliest = segments.last().map_or(start.unwrap_or(0.0), |before| before.end);
        let latest = end.unwrap_or(f64::INFINITY);
        if !(from < to && from + ROUNDING >= earliest && to <= latest + ROUNDING) {
            let reason = format!(
                "has segment {number} from {from} s to {to} s, which is empty, begins before {earliest} s where it may, \
                 or ends after the clip; put segments in order, in seconds of the file"
            );
            return Err(malformed(row, reason));
        }
        segments.push(segment);
    }
    Ok(segments)
}

fn segment(item: &Value) -> Option<TimedText> {
    timed(item.get("start")?, item.get("end")?, item.get("text")?)
}

/// Returns segments given by column; none if a column is missing or they differ in length.
fn segments_of(columns: &Value) -> Option<Vec<Option<TimedText>>> {
    let column = |key: &str| columns.get(key)?.as_array();
    let (starts, ends, texts) = (column("start")?, column("end")?, column("text")?);
    let equal = starts.len() == ends.len() && ends.len() == texts.len();
    equal.then(|| starts.iter().zip(ends).zip(texts).map(|((start, end), text)| timed(start, end, text)).collect())
}

fn timed(start: &Value, end: &Value, text: &Value) -> Option<TimedText> {
    Some(TimedText { start: start.as_f64()?, end: end.as_f64()?, text: text.as_str()?.to_owned() })
}

/// Refuses a name that is almost that of an optional field: with `strat`, training would silently use whole files.
/// Other names are ignored, and with `columns` the mapping is explicit.
fn check_keys(task: &TaskFields, row: &Row) -> Result<(), RecordsError> {
    if !task.config.columns.is_empty() {
        return Ok(());
    }
    let known = |key: &str| {
        let spelled = ["audio", "text", "language"].into_iter().flat_map(|field| task.spellings(field));
        spelled.chain(OPTIONAL).any(|name| key.eq_ignore_ascii_case(name))
    };
    // Common Voice has a column `segment`, a word or nothing, beside what is read here.
    let is_list = |key: &str| {
        let value = row.get(&Column::from(key)).unwrap_or(&Value::Null);
        value.is_array()
            || value.is_object()
            || value.as_str().is_some_and(|text| text.trim_start().starts_with(['[', '{']))
    };
    // Manifests have the number of channels.
    let known = |key: &str| {
        known(key) || key.eq_ignore_ascii_case("channels") || key.eq_ignore_ascii_case("segment") && !is_list(key)
    };
    for key in row.keys().filter(|key| !known(key)) {
        if let Some(field) = OPTIONAL.into_iter().find(|field| is_nearly(&key.to_ascii_lowercase(), field)) {
            let reason = format!(
                "has `{key}`, which may mean `{field}`; write `{field}: {key}` under `columns` if it does, and `{field}: null` if not"
            );
            return Err(malformed(row, reason));
        }
    }
    Ok(())
}

/// Returns whether a word differs from another by one letter that is wrong, missing or extra, or by two swapped
/// letters, or is the name of the field in other tools.
fn is_nearly(word: &str, field: &str) -> bool {
    const SYNONYMS: [(&str, &str); 11] = [
        ("lang", "language"),
        ("begin", "start"),
        ("from", "start"),
        ("stop", "end"),
        ("to", "end"),
        ("start_time", "start"),
        ("end_time", "end"),
        ("start_s", "start"),
        ("end_s", "end"),
        ("dur", "duration"),
        ("taskname", "task"),
    ];
    if SYNONYMS.contains(&(word, field)) {
        return true;
    }
    let (a, b) = (word.as_bytes(), field.as_bytes());
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[head..], &b[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - tail], &b[..b.len() - tail]) {
        ([], []) => false,
        (a, b) if a.len().max(b.len()) == 1 => true,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    }
}

fn malformed(row: &Row, reason: impl Into<String>) -> RecordsError {
    RecordsError::Malformed { origin: row.origin.clone(), reason: reason.into() }
}
