//! What has been measured, in a file that an interrupted comparison goes on from.

use crate::process::cannot_use;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone_cli::Failure;
use undertone_cli::say;

/// One training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Result {
    pub seconds: f64,
    /// By metric.
    pub scores: BTreeMap<String, f64>,
}

/// Everything that was measured, by comparison, side and seed.
pub struct Results {
    path: PathBuf,
    all: BTreeMap<(String, String, u64), Result>,
}

impl Results {
    /// Those of a file, if there is one.
    pub fn open(path: &Path) -> std::result::Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(cannot_use(path, &error)),
        };
        let mut all = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let (key, result) = parse(line).ok_or_else(|| {
                let place = format!("`{}`, line {}", path.display(), number + 1);
                Failure::BadInput(format!("{place}, is no result: delete the line, and it is measured again"))
            })?;
            all.insert(key, result);
        }
        Ok(Self { path: path.to_owned(), all })
    }

    pub fn has(&self, comparison: &str, side: &str, seed: u64) -> bool {
        self.all.contains_key(&(comparison.to_owned(), side.to_owned(), seed))
    }

    /// Notes a result, in the file as well.
    pub fn add(&mut self, comparison: &str, side: &str, seed: u64, result: Result) -> std::result::Result<(), Failure> {
        let line = json!({
            "comparison": comparison, "side": side, "seed": seed, "seconds": result.seconds, "scores": result.scores,
        });
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(|error| cannot_use(&self.path, &error))?;
        self.all.insert((comparison.to_owned(), side.to_owned(), seed), result);
        say!("{line}")
    }

    /// Those of a side, in the order of the seeds from 1 to the last.
    pub fn of(&self, comparison: &str, side: &str, seeds: u64) -> Vec<&Result> {
        let key = |seed| (comparison.to_owned(), side.to_owned(), seed);
        (1..=seeds).filter_map(|seed| self.all.get(&key(seed))).collect()
    }
}

fn parse(line: &str) -> Option<((String, String, u64), Result)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| line[key].as_str().map(str::to_owned);
    let scores = line["scores"].as_object()?.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
    let result = Result { seconds: line["seconds"].as_f64().unwrap_or(f64::NAN), scores: scores.collect() };
    Some(((text("comparison")?, text("side")?, line["seed"].as_u64()?), result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_known_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let result = Result { seconds: 2.0, scores: BTreeMap::from([("wer".into(), 0.25)]) };
        let mut results = Results::open(&path).ok().expect("none yet");
        results.add("digits", "peer", 2, result.clone()).ok().expect("written");
        let results = Results::open(&path).ok().expect("read");
        assert!(results.has("digits", "peer", 2) && !results.has("digits", "peer", 1));
        assert_eq!(results.of("digits", "peer", 3), [&result]);
        std::fs::write(&path, "{\"comparison\": 1}\n").expect("written");
        assert!(Results::open(&path).is_err());
    }
}
