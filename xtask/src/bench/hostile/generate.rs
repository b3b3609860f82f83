//! Inputs that mutations would not find: made by their grammar, to be as large as they may say they are.

use super::hub::{ELSEWHERE, ENDLESS};
use super::repair;
use crate::bench::random::Random;
use serde_json::{Map, Value, json};

/// Gives a `tokenizer.json` steps that make much out of little. What is none stays as it is.
pub fn tokenizer(bytes: &mut Vec<u8>, random: &mut Random) {
    let Ok(mut json) = serde_json::from_slice::<Value>(bytes) else { return };
    if !json.is_object() {
        return;
    }
    match random.below(8) {
        0..=3 => json["normalizer"] = list(random, "normalizers", normalizer),
        4 => json["pre_tokenizer"] = list(random, "pretokenizers", pre_tokenizer),
        5 => json["decoder"] = list(random, "decoders", decoder),
        6 => json["post_processor"] = list(random, "processors", template),
        _ => json["padding"] = padding(random),
    }
    *bytes = json.to_string().into_bytes();
}

/// One step, or several in a list.
fn list(random: &mut Random, name: &str, step: fn(&mut Random) -> Value) -> Value {
    match random.below(6) {
        0 => step(random),
        count => json!({"type": "Sequence", name: (0..count).map(|_| step(random)).collect::<Vec<_>>()}),
    }
}

/// A text of which something is made, or that is made of it.
fn text(random: &mut Random) -> String {
    let letter = *random.pick(&["o", "a", "t", " ", "▁", "ﷺ", "İ"]);
    letter.repeat(*random.pick(&[0, 1, 1, 2, 8, 16, 100, 10_000, 1_000_000]))
}

fn replace(random: &mut Random) -> Value {
    let pattern = match random.below(3) {
        0 => json!({"Regex": expression(random)}),
        _ => json!({"String": random.pick(&["o", "", " ", "oo", "a"])}),
    };
    json!({"type": "Replace", "pattern": pattern, "content": text(random)})
}

fn expression(random: &mut Random) -> String {
    let part = *random.pick(&[r"\w", ".", "", "o|", "(?=o)", r"\p{L}", "(a*)*", "(?<=t)"]);
    let count = *random.pick(&[1, 2, 9, 99, 999, 99_999]);
    match random.below(3) {
        0 => part.to_owned(),
        1 => format!("({part}){{{count}}}"),
        _ => part.repeat(count),
    }
}

fn normalizer(random: &mut Random) -> Value {
    match random.below(8) {
        0..=3 => replace(random),
        4 => json!({"type": "Prepend", "prepend": text(random)}),
        5 => json!({"type": "Precompiled", "precompiled_charsmap": table(random)}),
        _ => {
            json!({"type": random.pick(&["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"])})
        }
    }
}

/// A table of characters with any numbers in it.
fn table(random: &mut Random) -> String {
    const DIGITS: &[u8] = b"AAAABCZabz0189+/";
    let length = random.below(3000) / 4 * 4;
    // So many bytes of a tree: often fewer than follow.
    let begin = *random.pick(&["AAQAAA", "EAAAAA", "AAAAAA", "////fw", "//8AAA"]);
    begin.chars().chain((0..length + 2).map(|_| char::from(*random.pick(DIGITS)))).collect()
}

fn pre_tokenizer(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false}),
        1 => {
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": random.below(2) == 0})
        }
        2 => json!({"type": "FixedLength", "length": random.pick(&[0, 1, 5])}),
        _ => {
            json!({"type": "Split", "pattern": {"Regex": expression(random)}, "behavior": "Isolated", "invert": false})
        }
    }
}

fn decoder(random: &mut Random) -> Value {
    match random.below(4) {
        0 | 1 => replace(random),
        2 => {
            json!({"type": "Strip", "content": "o", "start": random.pick(&[0, 1, 1000]), "stop": random.pick(&[0, 1, 1000])})
        }
        _ => json!({"type": random.pick(&["Fuse", "ByteFallback", "BPEDecoder"]), "suffix": ""}),
    }
}

fn template(random: &mut Random) -> Value {
    let pieces = |random: &mut Random| -> Vec<Value> {
        let piece = match random.below(3) {
            0 => json!({"Sequence": {"id": random.pick(&["A", "B"]), "type_id": 0}}),
            _ => json!({"SpecialToken": {"id": random.pick(&["a", "b"]), "type_id": 0}}),
        };
        vec![piece; *random.pick(&[0, 1, 2, 1000, 100_000])]
    };
    let count = *random.pick(&[0, 1, 2, 100_000]);
    let tokens =
        json!({"a": {"id": "a", "ids": vec![0; count], "tokens": vec!["a"; count - random.below(2).min(count)]}});
    json!({"type": "TemplateProcessing", "single": pieces(random), "pair": pieces(random), "special_tokens": tokens})
}

fn padding(random: &mut Random) -> Value {
    let length = *random.pick(&[0_u64, 1, 1_000_000_000, 1_000_000_000_000]);
    json!({"strategy": {"Fixed": length}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0,
           "pad_token": "x"})
}

/// Gives a safetensors file another header: many tensors, or ones that overlap, or of any size.
pub fn header(bytes: &mut Vec<u8>, random: &mut Random) {
    let Some(length) = bytes.first_chunk().map(|length| u64::from_le_bytes(*length) as usize) else { return };
    let Some(header) = length.checked_add(8).and_then(|end| bytes.get(8..end)) else { return };
    let Ok(mut json) = serde_json::from_slice::<Map<String, Value>>(header) else { return };
    let (data, end) = (bytes[8 + length..].to_vec(), bytes.len() - 8 - length);
    match random.below(5) {
        // All of them say nothing: a header is valid with any number of these.
        0 | 1 => {
            for number in 0..*random.pick(&[1, 100, 20_000, 200_000]) {
                json.insert(format!("t{number}"), json!({"dtype": "F32", "shape": [0], "data_offsets": [end, end]}));
            }
        }
        2 => {
            let shape =
                vec![*random.pick(&[0_u64, 1, 65_536, 4_294_967_296, u64::MAX]); *random.pick(&[0, 1, 2, 4, 100_000])];
            json.insert("t".into(), json!({"dtype": random.pick(&["F32", "F4", "I64", "BOOL"]), "shape": shape, "data_offsets": [end, end]}));
        }
        3 => {
            let offsets = [random.below(end + 2), random.below(end + 2)];
            json.insert("t".into(), json!({"dtype": "F32", "shape": [1], "data_offsets": offsets}));
        }
        _ => {
            let names: Vec<String> = json.keys().cloned().collect();
            let (one, other) = (random.pick(&names).clone(), random.pick(&names).clone());
            let offsets = json[&other]["data_offsets"].clone();
            json[&one]["data_offsets"] = offsets;
        }
    }
    let mut header = Value::Object(json).to_string();
    // A name that is there twice, which no object in memory has.
    if random.below(8) == 0 {
        header = format!("{{{},{}", &header[1..header.len() - 1], &header[1..]);
    }
    *bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
}

/// What names become that lead elsewhere.
const PATHS: [&str; 14] = [
    "..", "../../../../x", "../../../../../../../x", "/", ELSEWHERE, "a/../../../b", "..\\\\x", "%2e%2e/x", "a//b",
    ".", "", "a\\u0000b", "refs/heads/main", "config.json/x",
];

/// Gives an answer of a hub another name, or has it never end.
pub fn answer(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let quoted: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    if random.below(4) == 0 {
        text = text.replacen("\r\n", &format!("\r\n{ENDLESS}"), 1).replace("Content-Length", "X-Length");
    } else if quoted.len() > 1 {
        let at = random.below(quoted.len() - 1);
        let path = if random.below(20) == 0 { "a".repeat(100_000) } else { (*random.pick(&PATHS)).to_owned() };
        text.replace_range(quoted[at] + 1..quoted[at + 1], &path);
    }
    *bytes = text.into_bytes();
    if random.below(8) > 0 {
        repair::answer(bytes);
    }
}
