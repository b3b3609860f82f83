use std::collections::HashMap;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::audio::EXTENSIONS;
use crate::records::json::{self, Noted};
use crate::records::lines::{open, read_error};
use crate::records::row::{Content, Row};
use crate::records::{Origin, RecordsError};

/// Extensions of audio that cannot be decoded.
const UNDECODED: [&str; 2] = ["wma", "amr"];

/// Location of a sample's audio in its shard.
#[derive(Clone)]
pub(super) struct Member {
    pub name: Arc<str>,
    pub offset: u64,
    pub length: u64,
}

/// Size of the blocks of a tar file, in bytes.
const BLOCK: u64 = 512;
/// Maximum size of a text.
const MAX_TEXT: u64 = 16 << 20;

#[derive(Default)]
struct Sample {
    key: String,
    fields: Map<String, Value>,
    repeated: Vec<String>,
    text: Option<String>,
    audio: Option<Member>,
}

/// Returns the samples of a WebDataset shard, in one pass over its headers: members with the same name up to the first
/// dot belong together. Only the location of the audio is recorded.
pub(super) fn samples(path: &Arc<Path>) -> Result<Vec<(Row, Member)>, RecordsError> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut numbers = HashMap::new();
    let fail = |reason: String| RecordsError::Read { path: path.to_path_buf(), reason };
    let mut file = open(path)?;
    let size = file.seek(std::io::SeekFrom::End(0)).map_err(|error| read_error(path, error))?;
    file.rewind().map_err(|error| read_error(path, error))?;
    let mut archive = tar::Archive::new(file);
    let mut end = 0;
    let damaged = |error: std::io::Error| fail(format!("{error}; is it a whole .tar file that is not compressed?"));
    for entry in archive.entries_with_seek().map_err(damaged)? {
        let entry = entry.map_err(damaged)?;
        end = entry.raw_file_position().saturating_add(entry.size()).div_ceil(BLOCK).saturating_mul(BLOCK);
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some((key, extension)) = split(&name) else { continue };
        let (offset, length) = (entry.raw_file_position(), entry.size());
        if offset.saturating_add(length) > size {
            return Err(fail(format!("is cut short within its member {name}; copy it again")));
        }
        let number = *numbers.entry(key.to_owned()).or_insert_with(|| {
            samples.push(Sample { key: key.to_owned(), ..Sample::default() });
            samples.len() - 1
        });
        let sample = &mut samples[number];
        match extension.as_str() {
            "txt" | "text" | "transcript" | "json" => {
                let is_second = if extension == "json" { !sample.fields.is_empty() } else { sample.text.is_some() };
                if is_second {
                    let kind = if extension == "json" { "JSON" } else { "text" };
                    return Err(fail(format!(
                        "its sample {} has two members of {kind}, the second is {name}; keep one",
                        sample.key
                    )));
                }
                let mut text = String::new();
                entry
                    .take(MAX_TEXT)
                    .read_to_string(&mut text)
                    .map_err(|error| fail(format!("its member {name}: {error}")))?;
                if extension != "json" {
                    sample.text = Some(text.trim_end_matches(['\r', '\n']).trim_start_matches('\u{feff}').to_owned());
                } else {
                    let said = json::parse(&text).map_err(|error| error.to_string());
                    let fields = said.and_then(|Noted { value, repeated }| match value {
                        Value::Object(fields) => Ok((fields, repeated)),
                        _ => Err("it is another value".into()),
                    });
                    (sample.fields, sample.repeated) =
                        fields.map_err(|error| fail(format!("its member {name} is not a JSON object: {error}")))?;
                }
            }
            other if EXTENSIONS.contains(&other) => {
                if let Some(before) = &sample.audio {
                    let (a, b) = (before.name.clone(), name);
                    return Err(fail(format!(
                        "its sample {} has two audio members, {a} and {b}; keep one",
                        sample.key
                    )));
                }
                sample.audio = Some(Member { name: name.into(), offset, length });
            }
            other if UNDECODED.contains(&other) => {
                return Err(fail(format!(
                    "its member {name} is audio that cannot be decoded here; convert it to FLAC, Ogg Vorbis or WAV"
                )));
            }
            // Numbers, pictures and other members.
            _ => {}
        }
    }
    // Empty blocks mark the end. Without them the file may have been truncated between two members.
    if size < end.saturating_add(BLOCK) {
        return Err(fail("ends without the mark at an archive's end: it was cut off; copy it again".into()));
    }
    (1..).zip(samples).map(|(number, sample)| row(path, number, sample)).collect()
}

fn row(path: &Arc<Path>, number: u64, sample: Sample) -> Result<(Row, Member), RecordsError> {
    let Sample { key, mut fields, repeated, text, audio } = sample;
    let origin = Origin::row(path, number);
    let Some(member) = audio else {
        let reason = format!("has the sample {key} without audio; it needs a member {key}.wav, .flac, .mp3 or .ogg");
        return Err(RecordsError::Malformed { origin, reason });
    };
    if let Some(text) = text {
        fields.entry("text").or_insert(text.into());
    }
    fields.insert("audio".into(), (*member.name).into());
    fields.entry("__key__").or_insert(key.into());
    Ok((Row { repeated, ..Row::new(origin, Content::Fields(fields)) }, member))
}

/// Returns a member's name up to the first dot of its last part, and its extension in lower case. None for hidden files
/// and those without an extension.
fn split(name: &str) -> Option<(&str, String)> {
    let base = name.rfind('/').map_or(0, |at| at + 1);
    let dot = base + name[base..].find('.')?;
    let extension = name.rsplit('.').next()?.to_ascii_lowercase();
    (dot > base).then(|| (&name[..dot], extension))
}
