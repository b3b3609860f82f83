//! A run's directory: who owns it, what may become of what lies in it, and the configuration that it was trained with.

use crate::changes::{changes, listed};
use crate::{Experiment, RunError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone_store::{DirectoryLock, StoreError, is_blank, write_atomically};
use undertone_train::{Checkpoints, Exported, Team};

/// The directory of a run that this process alone trains in.
pub(crate) struct RunDirectory {
    path: PathBuf,
    /// Of the first rank.
    lock: Option<Arc<DirectoryLock>>,
}

/// The configuration of a run, and of a stage within one.
pub(crate) const CONFIG: &str = "config.yaml";
pub(crate) const STAGE: &str = "stage.yaml";

impl RunDirectory {
    /// Owns the directory, before anything slow begins.
    ///
    /// # Errors
    /// When another process trains there, or the directory holds something that is no run.
    pub fn own(path: PathBuf, team: &Team) -> Result<Self, RunError> {
        let lock = team.leads().then(|| DirectoryLock::acquire(&path).map(Arc::new)).transpose();
        let lock = team.agree(lock.map_err(RunError::from))?;
        team.agree(is_shared(&path, team))?;
        if !path.join(CONFIG).exists() && !is_blank(&path) {
            return Err(RunError::NotARun(path));
        }
        Ok(Self { path, lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For a learner that trains here.
    pub fn lock(&self) -> Option<Arc<DirectoryLock>> {
        self.lock.clone()
    }

    /// Whether no run has begun here.
    pub fn is_blank(&self) -> bool {
        is_blank(&self.path)
    }

    /// Deletes what a stage left in its directory, which is this one or lies in it.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn clear(&self, stage: &Path) -> Result<(), StoreError> {
        if stage == self.path {
            return self.clear_run();
        }
        match std::fs::remove_dir_all(stage) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::Io { action: "delete", path: stage.to_owned(), source: error })
            }
            _ => Ok(()),
        }
    }

    /// Deletes what a run left, and the configuration last: killed in between, it is still known for a run.
    fn clear_run(&self) -> Result<(), StoreError> {
        let io = |source| StoreError::Io { action: "clear", path: self.path.clone(), source };
        let entries = std::fs::read_dir(&self.path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut entries = entries.map_err(io)?;
        entries.retain(|entry| entry.file_name() != DirectoryLock::FILE);
        entries.sort_by_key(|entry| entry.file_name() == CONFIG);
        for entry in entries {
            let is_dir = entry.file_type().map_err(io)?.is_dir();
            if is_dir { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) }
                .map_err(io)?;
        }
        Ok(())
    }
}

/// Whether a run or a stage has left anything in its directory.
pub(crate) fn is_occupied(directory: &Path) -> bool {
    directory.exists() && !is_blank(directory)
}

/// Whether a run or a stage has learned something that is worth keeping: it has a checkpoint, even a damaged one, came to
/// an end, or exported a model after its beginning.
pub(crate) fn has_learned(directory: &Path) -> bool {
    let best = directory.join("best");
    !Checkpoints::new(directory.join("checkpoints")).is_empty()
        || directory.join("summary.json").exists()
        || best.exists() && Exported::read(&best).is_none_or(|exported| exported.step > 0)
}

/// The configuration in a file that [`record`] has written; nothing where there is no such file.
///
/// # Errors
/// When it is damaged, or was written by a version with other keys.
pub(crate) fn recorded(path: &Path) -> Result<Option<Experiment>, RunError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { action: "read", path: path.to_owned(), source }.into()),
    };
    let recorded = serde_norway::from_str(&text);
    recorded.map(Some).map_err(|error| RunError::Recorded { path: path.to_owned(), reason: error.to_string() })
}

/// Writes the configuration that is trained with to a file. One that says something else is kept beside it, as
/// `config.1.yaml` and so on; returns where.
///
/// # Errors
/// When the file system refuses.
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

/// Refuses a configuration that means something else than the one in the file, as far as `concerns` is true of its keys.
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

/// Writes the configuration to the file, and says what is another than in the session before, which ended after `step`.
pub(crate) fn record_changes(experiment: &Experiment, path: &Path, step: u64) -> Result<(), RunError> {
    let before = recorded(path)?;
    let kept = record(experiment, path)?;
    let changes = before.map(|before| changes(&before, experiment)).unwrap_or_default();
    if let (Some(kept), false) = (kept, changes.is_empty()) {
        tracing::info!("from step {} on: {} (before: `{}`)", step + 1, listed(&changes), kept.display());
    }
    Ok(())
}

/// Refuses a directory in which another rank does not see the lock that the first one holds: each would keep its own run.
fn is_shared(path: &Path, team: &Team) -> Result<(), RunError> {
    let lock = path.join(DirectoryLock::FILE);
    let seen = || std::fs::read_to_string(&lock).unwrap_or_default();
    let said = team.hear(seen())?;
    let began = Instant::now();
    while seen() != said[0] {
        if began.elapsed() > VISIBLE {
            return Err(RunError::NotShared { rank: team.name(team.rank()), directory: path.to_owned() });
        }
        std::thread::sleep(VISIBLE / 50);
    }
    Ok(())
}

/// A network's file system shows a new file on other hosts within seconds.
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

    #[test]
    fn a_directory_is_cleared_of_everything_but_its_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("run/best")).expect("made");
        std::fs::write(dir.path().join("run").join(CONFIG), "seed: 1").expect("written");
        let run = RunDirectory::own(dir.path().join("run"), &Team::default()).expect("owned");
        run.clear(run.path()).expect("cleared");
        assert!(run.is_blank());
        assert!(
            matches!(RunDirectory::own(dir.path().join("run"), &Team::default()), Err(RunError::Owned { .. })),
            "still owned"
        );
        drop(run);
        std::fs::write(dir.path().join("run/thesis.tex"), "whole").expect("written");
        assert!(matches!(RunDirectory::own(dir.path().join("run"), &Team::default()), Err(RunError::NotARun(_))));
    }
}
