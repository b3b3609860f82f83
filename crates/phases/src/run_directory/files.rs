//! Names of the files that a run writes. All other files in its directory belong to the user.

use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use undertone_model::is_model_file;
use undertone_store::{DirectoryLock, is_temporary};

/// Files that a run or one of its stages writes into its directory, without the model files in [`BEST`]. `*` stands for
/// any letters, `#` for digits.
const WRITTEN: [&str; 36] = [
    "config.yaml",
    "config.#.yaml",
    "stage.yaml",
    "stage.#.yaml",
    "environment.json",
    "metrics.jsonl",
    "metrics.csv",
    "performance.jsonl",
    "bad_samples.json",
    "summary.json",
    "inputs.safetensors",
    "words.safetensors",
    "events.out.tfevents.#.undertone",
    "metrics.json",
    "analysis.json",
    "evaluation.json",
    "report.html",
    "blend.html",
    "pictures/metrics-#.svg",
    "pictures/loss-#.svg",
    "pictures/temperature-#.svg",
    "pictures/confusion.svg",
    "pictures/usage.svg",
    "pictures/entropy.svg",
    "pictures/confidence.svg",
    "pictures/calibration.svg",
    "checkpoints/step-#/model.safetensors",
    "checkpoints/step-#/optimizer.safetensors",
    "checkpoints/step-#/ema.safetensors",
    "checkpoints/step-#/state.json",
    "checkpoints/step-#/checksums",
    "checkpoints/step-#/doubtful",
    "best/adapters/*/adapter_config.json",
    "best/adapters/*/adapter_model.safetensors",
    "best_ema/adapters/*/adapter_config.json",
    "best_ema/adapters/*/adapter_model.safetensors",
];

/// Folders of models, and the files in them besides those of a model.
const BEST: [&str; 2] = ["best", "best_ema"];
const BESIDE_MODELS: [&str; 5] =
    ["score.json", "dynamo.json", "heads.safetensors", "router.safetensors", "backbone.safetensors"];

/// Contents of a directory, as relative paths in order.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Files that a run writes.
    pub written: Vec<PathBuf>,
    /// Directories that contain such files.
    pub directories: Vec<PathBuf>,
    /// Everything else: other files, links, and directories without a file of a run.
    pub foreign: Vec<PathBuf>,
}

impl Survey {
    /// Lists the contents of `directory`, which is a run's directory or inside it. `stage` is its path relative to the
    /// run's directory. A directory that does not exist is empty.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn of(directory: &Path, stage: &Path) -> Result<Self> {
        let mut survey = Self::default();
        survey.look(directory, Path::new(""), stage)?;
        Ok(survey)
    }

    fn look(&mut self, directory: &Path, below: &Path, stage: &Path) -> Result<()> {
        let entries = match std::fs::read_dir(directory.join(below)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (path, place) = (below.join(entry.file_name()), stage.join(below).join(entry.file_name()));
            // A run writes no links, so a link is foreign and is not followed.
            let is_directory = entry.file_type()?.is_dir();
            match (kind(&place, is_directory), is_directory) {
                (Kind::Lock, _) => {}
                (Kind::Foreign, _) => self.foreign.push(path),
                (Kind::Own, false) => self.written.push(path),
                (Kind::Own, true) => {
                    self.look(directory, &path, stage)?;
                    self.directories.push(path);
                }
                (Kind::Leftover, false) => self.written.push(path),
                (Kind::Leftover, true) => self.look_through_leftover(directory, path)?,
            }
        }
        self.foreign.sort();
        Ok(())
    }

    /// Lists all files that a killed process left unfinished.
    fn look_through_leftover(&mut self, directory: &Path, below: PathBuf) -> Result<()> {
        for entry in std::fs::read_dir(directory.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.look_through_leftover(directory, path)?;
            } else {
                self.written.push(path);
            }
        }
        self.directories.push(below);
        Ok(())
    }
}

enum Kind {
    Own,
    Leftover,
    Lock,
    Foreign,
}

/// Returns the kind of a path, relative to the run's directory.
fn kind(path: &Path, is_directory: bool) -> Kind {
    let Some(parts) = path.iter().map(|part| part.to_str()).collect::<Option<Vec<_>>>() else { return Kind::Foreign };
    match parts[..] {
        [name] if name == DirectoryLock::FILE => Kind::Lock,
        [.., name] if is_temporary(name.as_ref()) => Kind::Leftover,
        _ if is_own(in_stage(&parts), is_directory) => Kind::Own,
        _ => Kind::Foreign,
    }
}

/// Returns a path relative to its stage; empty for the directories that contain stages.
fn in_stage<'a>(parts: &'a [&'a str]) -> &'a [&'a str] {
    match parts {
        ["phase1" | "baselines"] | ["baselines", "head"] => &[],
        ["phase1", _, rest @ ..] | ["baselines", "head", _, rest @ ..] => rest,
        ["phase2" | "phase3", rest @ ..] | ["baselines", _, rest @ ..] => rest,
        rest => rest,
    }
}

/// Whether a stage writes this file, or creates this directory for its files.
fn is_own(parts: &[&str], is_directory: bool) -> bool {
    match parts {
        [] => is_directory,
        [folder, name] if !is_directory && BEST.contains(folder) => is_model_file(name) || BESIDE_MODELS.contains(name),
        [folder] if BEST.contains(folder) => is_directory,
        _ => WRITTEN.iter().any(|pattern| {
            let pattern: Vec<&str> = pattern.split('/').collect();
            let fits = if is_directory { pattern.len() > parts.len() } else { pattern.len() == parts.len() };
            fits && pattern.iter().zip(parts).all(|(pattern, part)| matches(pattern, part))
        }),
    }
}

/// Whether a name matches the pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(wild) = pattern.find(['*', '#']) else { return pattern == name };
    let (before, after) = (&pattern[..wild], &pattern[wild + 1..]);
    let Some(rest) = name.strip_prefix(before) else { return false };
    let stands =
        |part: &str| pattern.as_bytes()[wild] == b'*' || !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (0..=rest.len()).any(|end| rest.is_char_boundary(end) && stands(&rest[..end]) && matches(after, &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ours(path: &str) -> bool {
        matches!(kind(Path::new(path), false), Kind::Own)
    }

    #[test]
    fn what_runs_write_is_told_from_what_they_do_not() {
        for stage in
            ["", "phase1/copy/", "phase1/all/", "phase2/", "phase3/", "baselines/head/copy/", "baselines/full/"]
        {
            for file in [
                "config.yaml",
                "config.12.yaml",
                "metrics.jsonl",
                "events.out.tfevents.1764000000.undertone",
                "checkpoints/step-00000010/state.json",
                "best/model.safetensors",
                "best/generation_config.json",
                "best/special_tokens_map.json",
                "best/added_tokens.json",
                "best_ema/score.json",
                "best/adapters/copy/adapter_config.json",
            ] {
                assert!(is_ours(&format!("{stage}{file}")), "{stage}{file}");
            }
            for file in [
                "config.old.yaml", "notes.txt", "src/thesis.txt", "best/notes.md", "best/transcripts.json",
                "best/photos.safetensors", "bestiary/model.safetensors", "pictures/cat.svg",
                "checkpoints/step-00000010/notes", "checkpoints/old/state.json",
                "events.out.tfevents.1764000000.host.42", "phase4/config.yaml", "adapters/copy/adapter_config.json",
            ] {
                assert!(!is_ours(&format!("{stage}{file}")), "{stage}{file}");
            }
        }
        assert!(!is_ours("deep/phase2/metrics.jsonl") && !is_ours("phase1/metrics.jsonl"));
    }

    #[test]
    fn a_survey_finds_everything_and_follows_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("run");
        for made in ["checkpoints/step-00000001", "phase2/best", ".tmp-a1B2c3/x", "notes", "empty/deep"] {
            std::fs::create_dir_all(root.join(made)).expect("made");
        }
        for file in [
            ".lock", "config.yaml", "checkpoints/step-00000001/state.json", "phase2/best/dynamo.json",
            ".tmp-a1B2c3/x/y", "notes/a.txt", "phase2/b.txt",
        ] {
            std::fs::write(root.join(file), "x").expect("written");
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(dir.path(), root.join("best")).expect("linked");
        let Survey { mut written, directories, foreign } = Survey::of(&root, Path::new("")).expect("looked");
        written.sort();
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let own = [".tmp-a1B2c3/x/y", "checkpoints/step-00000001/state.json", "config.yaml", "phase2/best/dynamo.json"];
        assert_eq!(written, paths(&own));
        let not = if cfg!(unix) {
            &["best", "empty", "notes", "phase2/b.txt"][..]
        } else {
            &["empty", "notes", "phase2/b.txt"]
        };
        assert_eq!(foreign, paths(not));
        let place = |name: &str| directories.iter().position(|directory| directory == Path::new(name)).expect(name);
        assert!(place("phase2/best") < place("phase2"), "what lies in another comes before it");
        let of_stage = Survey::of(&root.join("phase2"), Path::new("phase2")).expect("looked");
        assert_eq!((of_stage.written, of_stage.foreign), (paths(&["best/dynamo.json"]), paths(&["b.txt"])));
    }
}
