//! Samples that two splits have in common, and duplicates within a split.

use super::found::{EXAMPLES, Found};
use super::report::{Leak, LeakKind, ProblemKind, Severity};
use std::collections::HashMap;
use std::hash::Hash;
use undertone_data::cache::Key;

/// Properties that identify a sample.
#[derive(Clone, Debug)]
pub(super) struct Print {
    /// Name in messages.
    pub name: String,
    /// Recording that it is a part of, with start and end; `None` for text.
    pub recording: Option<(String, [Option<u64>; 2])>,
    /// Checksum of the decoded audio, if it was decoded.
    pub audio: Option<Key>,
    /// Duration, if known.
    pub seconds: Option<f64>,
    /// Text, normalised for comparison.
    pub text: String,
    /// Parts of the input text, such as the passage of a question, normalised for comparison.
    pub passages: Vec<String>,
    /// Whether the sample consists of text only.
    pub written: bool,
}

/// Minimum length in characters of a text that does not occur twice with the same duration by chance.
const LONG_TEXT: usize = 20;

/// Samples of a split, indexed by the properties that other samples may share.
#[derive(Default)]
struct Index<'a> {
    audio: HashMap<Key, &'a str>,
    recordings: HashMap<&'a str, &'a str>,
    texts: HashMap<&'a str, Vec<&'a Print>>,
    passages: HashMap<&'a str, &'a str>,
}

impl<'a> Index<'a> {
    fn new(prints: &'a [Print]) -> Self {
        let mut index = Self::default();
        for print in prints {
            if let Some(audio) = print.audio {
                index.audio.entry(audio).or_insert(&print.name);
            }
            if let Some((recording, _)) = &print.recording {
                index.recordings.entry(recording).or_insert(&print.name);
            }
            index.texts.entry(&print.text).or_default().push(print);
            for passage in long(&print.passages) {
                index.passages.entry(passage).or_insert(&print.name);
            }
        }
        index
    }

    /// Returns what a sample of another split has in common with a sample of this one, and the name of the latter.
    fn find(&self, print: &Print) -> Option<(LeakKind, &'a str)> {
        let same_text = || self.texts.get(print.text.as_str()).filter(|_| !print.text.is_empty());
        if print.written {
            let passage = || long(&print.passages).find_map(|passage| self.passages.get(passage));
            let same = same_text().map(|same| (LeakKind::Input, same[0].name.as_str()));
            return same.or_else(|| passage().map(|name| (LeakKind::Passage, *name)));
        }
        if let Some(name) = print.audio.and_then(|audio| self.audio.get(&audio)) {
            return Some((LeakKind::Audio, name));
        }
        if let Some(name) = print.recording.as_ref().and_then(|(recording, _)| self.recordings.get(recording.as_str()))
        {
            return Some((LeakKind::Recording, name));
        }
        let long = print.text.chars().count() >= LONG_TEXT;
        // Headers round durations to 10 ms.
        let as_long = |other: &&&Print| other.seconds.zip(print.seconds).is_some_and(|(a, b)| (a - b).abs() <= 0.01);
        let same = same_text().filter(|_| long)?.iter().find(as_long)?;
        Some((LeakKind::TextAndLength, &same.name))
    }
}

/// Returns the passages that are too long to occur in two records by chance.
fn long(passages: &[String]) -> impl Iterator<Item = &str> {
    passages.iter().map(String::as_str).filter(|passage| passage.chars().count() >= LONG_TEXT)
}

/// Compares each split with those before it.
pub(super) fn leaks(task: Option<&str>, splits: &[(&str, Vec<Print>)]) -> Vec<Leak> {
    let indexes: Vec<Index> = splits.iter().map(|(_, prints)| Index::new(prints)).collect();
    let mut leaks = Vec::new();
    for (second, (second_name, prints)) in splits.iter().enumerate() {
        for (first, index) in indexes[..second].iter().enumerate() {
            let mut by_kind: Vec<(LeakKind, usize, Vec<String>)> = Vec::new();
            let mut note = |kind: LeakKind, print: &Print, other: &str| {
                let place = by_kind.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
                    by_kind.push((kind, 0, Vec::new()));
                    by_kind.len() - 1
                });
                let (_, count, examples) = &mut by_kind[place];
                *count += 1;
                if examples.len() < EXAMPLES {
                    let example = match print.name == other {
                        true => format!("`{other}`"),
                        false => format!("`{}` and `{other}`", print.name),
                    };
                    examples.push(example);
                }
            };
            for print in prints {
                if let Some((kind, other)) = index.find(print) {
                    note(kind, print, other);
                } else if let Some(same) = index.texts.get(print.text.as_str()).filter(|_| !print.text.is_empty()) {
                    note(LeakKind::Text, print, &same[0].name);
                }
            }
            leaks.extend(by_kind.into_iter().map(|(kind, count, examples)| Leak {
                severity: if kind == LeakKind::Text { Severity::Note } else { Severity::Warning },
                kind,
                task: task.map(str::to_owned),
                splits: [splits[first].0.to_owned(), (*second_name).to_owned()],
                count,
                of: prints.len(),
                examples,
            }));
        }
    }
    leaks.sort_by_key(|leak| leak.severity);
    leaks
}

/// Adds a problem for samples that occur twice in a split.
pub(super) fn repeats(place: &str, prints: &[Print], found: &mut Found) {
    let mut audio = HashMap::new();
    let mut parts = HashMap::new();
    let mut texts = HashMap::new();
    let repeated = prints.iter().filter_map(|print| {
        let name = print.name.as_str();
        let mut other = None;
        if print.written {
            other = before(&mut texts, &print.text, name);
        } else {
            // Both keys are looked up, so that both are recorded for the samples that follow.
            for before in [
                print.audio.and_then(|key| before(&mut audio, key, name)),
                print.recording.as_ref().and_then(|part| before(&mut parts, part, name)),
            ] {
                other = other.or(before);
            }
        }
        other.map(|other| match other == name {
            true => format!("`{name}`"),
            false => format!("`{name}` and `{other}`"),
        })
    });
    let severity = if prints.iter().any(|print| print.written) { Severity::Note } else { Severity::Warning };
    found.add(severity, ProblemKind::Duplicate, place, prints.len(), repeated);
}

/// Returns the name of the first sample with the same key; if there is none, records `name`.
fn before<'a, K: Eq + Hash>(known: &mut HashMap<K, &'a str>, key: K, name: &'a str) -> Option<&'a str> {
    match known.get(&key) {
        Some(before) => Some(before),
        None => {
            known.insert(key, name);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(name: &str, recording: &str, audio: &str, seconds: f64, text: &str) -> Print {
        Print {
            name: name.into(),
            recording: Some((recording.into(), [None, None])),
            audio: (!audio.is_empty()).then(|| Key::new(&[audio.as_bytes()])),
            seconds: Some(seconds),
            text: text.into(),
            passages: Vec::new(),
            written: false,
        }
    }

    #[test]
    fn a_passage_that_two_splits_share_is_a_leak() {
        let question = |name: &str, question: &str, passage: &str| Print {
            recording: None,
            passages: vec![passage.into()],
            written: true,
            ..print(name, "", "", 0.0, &format!("{question} {passage}"))
        };
        let (rhine, rhone) = ("the rhine rises in the alps", "the rhône rises there too");
        let train = vec![question("a", "where", rhine), question("b", "which", "short")];
        let valid = vec![
            question("same", "where", rhine),
            question("other", "what", rhine),
            question("new", "what", rhone),
            question("brief", "what", "short"),
        ];
        let leaks = leaks(None, &[("train", train), ("valid", valid)]);
        let told: Vec<String> = leaks.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "valid: 1 of 4 samples have the same input as samples of train: `same` and `a`",
                "valid: 1 of 4 samples share a passage, or one text of a pair, with samples of train: `other` and `a`",
            ]
        );
        assert!(leaks.iter().all(|leak| leak.severity == Severity::Warning));
    }

    #[test]
    fn a_leak_is_of_the_strongest_kind_that_holds() {
        let long = "a text of more than twenty characters";
        let train = vec![print("a", "1", "x", 1.0, "one"), print("b", "2", "y", 2.0, long)];
        let valid = vec![
            print("same", "9", "x", 1.0, "one"),
            print("part", "2", "z", 1.0, "two"),
            print("again", "8", "w", 2.005, long),
            print("said", "7", "v", 5.0, "one"),
            print("new", "6", "u", 1.0, "three"),
        ];
        let leaks = leaks(None, &[("train", train), ("valid", valid)]);
        let told: Vec<_> = leaks.iter().map(|leak| (leak.kind, leak.severity, leak.count, leak.of)).collect();
        assert_eq!(
            told,
            [
                (LeakKind::Audio, Severity::Warning, 1, 5),
                (LeakKind::Recording, Severity::Warning, 1, 5),
                (LeakKind::TextAndLength, Severity::Warning, 1, 5),
                (LeakKind::Text, Severity::Note, 1, 5),
            ]
        );
        assert_eq!(
            leaks[0].to_string(),
            "valid: 1 of 5 samples have the same audio as samples of train: `same` and `a`"
        );
    }

    #[test]
    fn repeats_are_counted_once_each() {
        let mut found = Found::default();
        let prints =
            [print("a", "1", "x", 1.0, "one"), print("b", "2", "x", 1.0, "one"), print("b", "2", "x", 1.0, "one")];
        repeats("train", &prints, &mut found);
        let problems = found.into_problems();
        assert_eq!((problems.len(), problems[0].count, problems[0].kind), (1, 2, ProblemKind::Duplicate));
        assert_eq!(problems[0].examples, ["`b` and `a`", "`b` and `a`"]);
    }
}
