//! Results of trainings, in a file that an interrupted comparison goes on from.

use crate::process::cannot_use;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone_cli::{Failure, say};

/// Seconds and scores of one training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Not a number if that is not known, for which JSON has `null`.
    #[serde(deserialize_with = "or_nan")]
    pub seconds: f64,
    /// Values by metric.
    pub scores: BTreeMap<String, f64>,
}

fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Results by comparison, side and seed.
pub struct Results {
    path: PathBuf,
    all: BTreeMap<(String, String, u64), Training>,
}

/// Line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    comparison: String,
    side: String,
    seed: u64,
    #[serde(flatten)]
    training: Training,
}

impl Results {
    /// Those of a file, if there is one.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(cannot_use(path, &error)),
        };
        let mut all = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let Line { comparison, side, seed, training } = serde_json::from_str(line).map_err(|_| {
                let place = format!("`{}`, line {}", path.display(), number + 1);
                Failure::BadInput(format!("{place}, is not a result: delete the line, and it is measured again"))
            })?;
            all.insert((comparison, side, seed), training);
        }
        Ok(Self { path: path.to_owned(), all })
    }

    pub fn has(&self, comparison: &str, side: &str, seed: u64) -> bool {
        self.all.contains_key(&(comparison.to_owned(), side.to_owned(), seed))
    }

    /// Notes a result, in the file as well.
    pub fn add(&mut self, comparison: &str, side: &str, seed: u64, training: Training) -> Result<(), Failure> {
        let line = Line { comparison: comparison.to_owned(), side: side.to_owned(), seed, training };
        let text = serde_json::to_string(&line).map_err(|error| cannot_use(&self.path, &error.into()))?;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| writeln!(file, "{text}")).map_err(|error| cannot_use(&self.path, &error))?;
        self.all.insert((line.comparison, line.side, seed), line.training);
        say!("{text}")
    }

    /// Those of a side, in the order of the seeds from 1 to the last.
    pub fn of(&self, comparison: &str, side: &str, seeds: u64) -> Vec<&Training> {
        let key = |seed| (comparison.to_owned(), side.to_owned(), seed);
        (1..=seeds).filter_map(|seed| self.all.get(&key(seed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_known_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let training = Training { seconds: 2.0, scores: BTreeMap::from([("wer".into(), 0.25)]) };
        let mut results = Results::open(&path).ok().expect("none yet");
        results.add("digits", "peer", 2, training.clone()).ok().expect("written");
        let results = Results::open(&path).ok().expect("read");
        assert!(results.has("digits", "peer", 2) && !results.has("digits", "peer", 1));
        assert_eq!(results.of("digits", "peer", 3), [&training]);
        std::fs::write(&path, "{\"comparison\": 1}\n").expect("written");
        assert!(Results::open(&path).is_err());
    }
}
