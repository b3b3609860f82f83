//! Directory of a run: its lock, the files that may be replaced, and the configuration of the run.

mod files;

use crate::changes::{changes, listed};
use crate::config::CONFIG;
use crate::{Experiment, RunError};
use files::Survey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone_store::{DirectoryLock, StoreError, is_blank, write_atomically};
use undertone_train::{Checkpoints, Exported, ProcessGroup};

/// Directory of a run, locked for training by this process.
pub(crate) struct RunDirectory {
    /// Path of the directory.
    pub path: PathBuf,
    /// Lock, held by the first rank, for a Learner that trains here.
    pub lock: Option<Arc<DirectoryLock>>,
}

/// Name of the configuration file of a stage within a run.
pub(crate) const STAGE: &str = "stage.yaml";

impl RunDirectory {
    /// Locks the directory, before anything slow starts. A directory with foreign content is refused and not changed.
    ///
    /// # Errors
    /// If another process trains there, or the directory has content that is not a run.
    pub fn own(path: PathBuf, process_group: &ProcessGroup) -> Result<Self, RunError> {
        let own = || {
            check_is_run(&path)?;
            let lock = DirectoryLock::acquire(&path)?;
            // Another process may have written here in the meantime.
            check_is_run(&path)?;
            Ok::<_, RunError>(Arc::new(lock))
        };
        let lock = process_group.all_ok(process_group.is_main_process().then(own).transpose())?;
        process_group.all_ok(is_shared(&path, process_group))?;
        Ok(Self { path, lock })
    }

    /// Whether no run has started here.
    pub fn is_blank(&self) -> bool {
        is_blank(&self.path)
    }

    /// Refuses to replace stages whose directories contain files of the user.
    ///
    /// # Errors
    /// Names these files.
    pub fn check_replaceable(&self, stages: &[PathBuf]) -> Result<(), RunError> {
        for stage in stages {
            let foreign = self.survey(stage)?.foreign;
            if !foreign.is_empty() {
                return Err(RunError::Foreign { directory: stage.clone(), files: named(&foreign, SHOWN) });
            }
        }
        Ok(())
    }

    /// Deletes the files that a stage wrote into its directory, which is this one or inside it, and nothing else. The
    /// configuration is deleted last, so that a killed deletion still leaves a recognisable run, and not at all beside
    /// files of the user: without it the directory would be no run any more, and refused.
    ///
    /// # Errors
    /// If a file cannot be deleted.
    pub fn clear(&self, stage: &Path) -> Result<(), StoreError> {
        let io = |source| StoreError::Io { action: "clear", path: stage.to_owned(), source };
        let Survey { mut written, directories, foreign } = self.survey(stage)?;
        written.sort_by_key(|file| file == Path::new(CONFIG));
        written.retain(|file| foreign.is_empty() || file != Path::new(CONFIG));
        written.iter().try_for_each(|file| std::fs::remove_file(stage.join(file))).map_err(io)?;
        for directory in directories {
            // A directory that is not empty remains.
            let _ = std::fs::remove_dir(stage.join(directory));
        }
        if stage != self.path {
            let _ = std::fs::remove_dir(stage);
        }
        Ok(())
    }

    fn survey(&self, stage: &Path) -> Result<Survey, StoreError> {
        let place = stage.strip_prefix(&self.path).unwrap_or(Path::new(""));
        Survey::of(stage, place).map_err(|source| StoreError::Io {
            action: "look through",
            path: stage.to_owned(),
            source,
        })
    }
}

/// Number of files that a message names.
const SHOWN: usize = 3;

/// Returns the first `most` paths for a message, and the number of the others.
pub(crate) fn named(paths: &[PathBuf], most: usize) -> String {
    let mut names = paths.iter().take(most).map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ");
    if paths.len() > most {
        names += &format!(" and {} more", paths.len() - most);
    }
    names
}

/// Refuses a directory that is not empty and not a run.
fn check_is_run(directory: &Path) -> Result<(), RunError> {
    let is_free = !directory.exists() || is_blank(directory);
    if is_free || is_run(directory) { Ok(()) } else { Err(RunError::NotARun(directory.to_owned())) }
}

/// Whether a directory contains a run: a configuration with all top-level keys, as only a run writes it, or a
/// checkpoint.
fn is_run(directory: &Path) -> bool {
    let text = std::fs::read_to_string(directory.join(CONFIG)).unwrap_or_default();
    let keys = serde_norway::from_str::<serde_json::Map<String, serde_json::Value>>(&text).unwrap_or_default();
    let is_whole = ["seed", "run", "device", "model", "data", "train", "tasks", "router", "phases"];
    is_whole.iter().all(|key| keys.contains_key(*key)) || !Checkpoints::new(directory.join("checkpoints")).is_empty()
}

/// Whether the directory of a run or a stage has content.
pub(crate) fn is_occupied(directory: &Path) -> bool {
    directory.exists() && !is_blank(directory)
}

/// Whether a run or a stage has something to go on with or to keep: a checkpoint, even a damaged one, a summary, or a model exported
/// after step 0 whose checkpoints somebody has deleted. A run that was killed before its first checkpoint has none of these.
pub(crate) fn has_learned(directory: &Path) -> bool {
    let (best, checkpoints) = (directory.join("best"), directory.join("checkpoints"));
    !Checkpoints::new(checkpoints.clone()).is_empty()
        || directory.join("summary.json").exists()
        || !checkpoints.exists() && best.exists() && Exported::read(&best).is_none_or(|exported| exported.step > 0)
}

/// Reads the configuration from a file written by [`record`]; `None` if there is no such file.
pub(crate) fn recorded(path: &Path) -> Result<Option<Experiment>, RunError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { action: "read", path: path.to_owned(), source }.into()),
    };
    // Keys of earlier versions are translated; the first error says more of a file that is damaged.
    let recorded = serde_norway::from_str(&text).or_else(|error| Experiment::of_earlier_version(&text).ok_or(error));
    recorded.map(Some).map_err(|error| RunError::Recorded { path: path.to_owned(), reason: error.to_string() })
}

/// Deletes the results of an analysis of models that are no longer there, in the directory of a run with tasks.
pub(crate) fn forget_analysis(root: &Path) -> Result<(), RunError> {
    for name in ["analysis.json", "metrics.json", "evaluation.json", "report.html"] {
        let path = root.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(RunError::of_file("delete", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes the configuration of the run to a file. A different earlier configuration is kept beside it, as
/// `config.1.yaml` and so on; returns its path.
pub(crate) fn record(experiment: &Experiment, path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let yaml = experiment.to_yaml();
    let earlier = std::fs::read(path).ok().filter(|earlier| earlier != yaml.as_bytes());
    let kept = earlier.as_ref().map(|_| {
        let free = (1..).map(|number| path.with_extension(format!("{number}.yaml"))).find(|path| !path.exists());
        free.expect("there is no end of numbers")
    });
    if let (Some(earlier), Some(kept)) = (earlier, &kept) {
        write_atomically(kept, &earlier)?;
    }
    write_atomically(path, yaml.as_bytes())?;
    Ok(kept)
}

/// Refuses a configuration that differs in effect from the one in the file, in any key for which `concerns` is true.
pub(crate) fn check_changes(
    experiment: &Experiment,
    path: &Path,
    concerns: impl Fn(&str) -> bool,
) -> Result<(), RunError> {
    let Some(begun) = recorded(path)? else { return Ok(()) };
    let mut changes = changes(&begun, experiment);
    changes.retain(|change| !change.is_harmless() && concerns(&change.key));
    if changes.is_empty() {
        return Ok(());
    }
    Err(RunError::Changed { path: path.to_owned(), changes: listed(&changes) })
}

/// Writes the configuration to the file, and logs its changes since the session before, which ended after `step`.
pub(crate) fn record_changes(experiment: &Experiment, path: &Path, step: u64) -> Result<(), RunError> {
    let before = recorded(path)?;
    let kept = record(experiment, path)?;
    let changes = before.map(|before| changes(&before, experiment)).unwrap_or_default();
    if let (Some(kept), false) = (kept, changes.is_empty()) {
        tracing::info!("from step {} on: {} (before: `{}`)", step + 1, listed(&changes), kept.display());
    }
    Ok(())
}

/// Refuses a directory in which another rank does not see the first rank's lock: each rank would write its own run.
fn is_shared(path: &Path, process_group: &ProcessGroup) -> Result<(), RunError> {
    let lock = path.join(DirectoryLock::FILE);
    let seen = || std::fs::read_to_string(&lock).unwrap_or_default();
    let said = process_group.all_gather(seen())?;
    let began = Instant::now();
    while seen() != said[0] {
        if began.elapsed() > VISIBLE {
            return Err(RunError::NotShared {
                rank: process_group.name(process_group.rank()),
                directory: path.to_owned(),
            });
        }
        std::thread::sleep(VISIBLE / 50);
    }
    Ok(())
}

/// Longest wait for a new file to become visible on other hosts: a network file system takes seconds.
const VISIBLE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_that_was_trained_with_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(CONFIG);
        let with = |seed| Experiment { seed, ..Default::default() };
        assert_eq!(recorded(&path).expect("nothing there"), None);
        for (seed, kept) in [(1, None), (1, None), (2, Some("config.1.yaml")), (1, Some("config.2.yaml"))] {
            let found = record(&with(seed), &path).expect("written");
            assert_eq!(found, kept.map(|name| dir.path().join(name)));
            assert_eq!(recorded(&path).expect("read"), Some(with(seed)));
        }
        assert_eq!(recorded(&dir.path().join("config.1.yaml")).expect("read"), Some(with(1)));
        std::fs::write(&path, "trian: {}").expect("written");
        let error = recorded(&path).expect_err("damaged").to_string();
        assert!(error.contains(CONFIG) && error.contains("trian"), "{error}");
    }

    /// Creates the directory of a run that has a stage.
    fn run(dir: &Path) -> PathBuf {
        let run = dir.join("run");
        for made in ["best", "checkpoints/step-00000001", "phase1/copy/best"] {
            std::fs::create_dir_all(run.join(made)).expect("made");
        }
        record(&Experiment::default(), &run.join(CONFIG)).expect("written");
        for file in
            ["metrics.jsonl", "best/config.json", "checkpoints/step-00000001/state.json", "phase1/copy/stage.yaml"]
        {
            std::fs::write(run.join(file), "x").expect("written");
        }
        run
    }

    #[test]
    fn a_run_is_cleared_of_everything_but_its_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = run(dir.path());
        let run = RunDirectory::own(path.clone(), &ProcessGroup::default()).expect("owned");
        run.clear(&path.join("phase1/copy")).expect("cleared");
        assert!(!path.join("phase1/copy").exists() && path.join("best/config.json").exists());
        run.clear(&path).expect("cleared");
        assert!(run.is_blank());
        let names: Vec<_> =
            std::fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, [DirectoryLock::FILE]);
        assert!(
            matches!(RunDirectory::own(path, &ProcessGroup::default()), Err(RunError::Owned { .. })),
            "still owned"
        );
    }

    #[test]
    fn what_no_run_wrote_is_named_and_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = run(dir.path());
        std::fs::create_dir(path.join("src")).expect("made");
        for file in ["src/thesis.txt", "best/notes.md", "phase1/copy/a.txt"] {
            std::fs::write(path.join(file), "mine").expect("written");
        }
        let run = RunDirectory::own(path.clone(), &ProcessGroup::default()).expect("owned");
        let said = |stage: PathBuf| run.check_replaceable(&[stage]).expect_err("refused").to_string();
        let whole = said(path.clone());
        assert!(["`best/notes.md`", "`phase1/copy/a.txt`", "`src`"].iter().all(|name| whole.contains(name)), "{whole}");
        assert!(said(path.join("phase1/copy")).contains("`a.txt`"));
        run.clear(&path).expect("cleared");
        for file in ["src/thesis.txt", "best/notes.md", "phase1/copy/a.txt"] {
            assert_eq!(std::fs::read_to_string(path.join(file)).expect("there"), "mine");
        }
        assert!(!path.join("best/config.json").exists());
        // A run that fails before its first step, on a full disk for example, can be started again.
        drop(run);
        RunDirectory::own(path, &ProcessGroup::default()).expect("still a run");
    }
}
