//! Locates the logs of a run.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Reason why there is nothing to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitorError {
    /// The requested run does not exist.
    #[error("there is no run `{}`: name a directory with a `metrics.jsonl` or a `config.yaml` in or below it", .0.display())]
    NoRun(PathBuf),
    /// There is no run at all.
    #[error("there is no run below `{}`: name one, or train one first", .0.display())]
    NoRuns(PathBuf),
}

/// Log files of a stage.
pub(super) const LOGS: [&str; 2] = ["metrics.jsonl", "performance.jsonl"];
const CONFIG: &str = "config.yaml";
/// Maximum depth of a stage's directory: `runs/NAME/baselines/head/TASK`.
const DEPTH: usize = 4;

/// Returns the directory of the run `run`, given by path or by name below `runs`; without `run`, the most recently
/// written run below `runs`.
pub(super) fn find_run(run: Option<&Path>, runs: &Path) -> Result<PathBuf, MonitorError> {
    match run {
        Some(run) => {
            let is_run = |dir: &PathBuf| newest_stage(dir).is_some() || dir.join(CONFIG).is_file();
            let found = [run.to_owned(), runs.join(run)].into_iter().find(is_run);
            found.ok_or_else(|| MonitorError::NoRun(run.to_owned()))
        }
        None => {
            let stage = newest_stage(runs).ok_or_else(|| MonitorError::NoRuns(runs.to_owned()))?;
            Ok(root(&stage).filter(|root| root.starts_with(runs)).unwrap_or(stage))
        }
    }
}

/// Returns the directory at or below `dir` with the most recently written logs.
pub(super) fn newest_stage(dir: &Path) -> Option<PathBuf> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let mut open = vec![(dir.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        if let Some(at) = written(&dir).filter(|at| newest.as_ref().is_none_or(|(newest, _)| at > newest)) {
            newest = Some((at, dir.clone()));
        }
        if depth < DEPTH {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            // These hold weights and states, in folders of their own, and no logs.
            let below = entries.filter(|entry| entry.file_name() != "checkpoints" && entry.file_name() != "best");
            open.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()).map(|path| (path, depth + 1)));
        }
    }
    newest.map(|(_, stage)| stage)
}

/// Returns the time of the last write to a stage's logs.
pub(super) fn written(stage: &Path) -> Option<SystemTime> {
    LOGS.iter().filter_map(|name| std::fs::metadata(stage.join(name)).ok()?.modified().ok()).max()
}

/// Returns the run's directory, if `dir` is a run or one of its stages: the nearest one that has a configuration.
pub(super) fn root(dir: &Path) -> Option<PathBuf> {
    let holds = |root: &&Path| root.join(CONFIG).is_file() && dir.strip_prefix(root).is_ok_and(is_stage);
    dir.ancestors().take(DEPTH).find(holds).map(Path::to_owned)
}

/// Whether `below`, relative to a run's directory, is a stage or the run itself.
fn is_stage(below: &Path) -> bool {
    let stages = ["phase1", "phase2", "phase3", "baselines"];
    below.iter().next().is_none_or(|first| stages.iter().any(|stage| first == *stage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir_all};
    use std::time::Duration;

    /// Creates a file with a modification time of `at` seconds after 1970.
    fn touch(path: &Path, at: u64) {
        create_dir_all(path.parent().expect("a directory")).expect("made");
        let file = File::create(path).expect("created");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).expect("set");
    }

    #[test]
    fn the_run_that_was_written_to_last_is_found_with_its_newest_stage() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path().join("runs");
        assert!(matches!(find_run(None, &runs), Err(MonitorError::NoRuns(_))));
        for (path, at) in [
            ("plain/config.yaml", 1),
            ("plain/metrics.jsonl", 50),
            ("plain/checkpoints/step-1/metrics.jsonl", 99),
            ("dynamo/config.yaml", 1),
            ("dynamo/phase1/copy/metrics.jsonl", 40),
            ("dynamo/baselines/head/copy/metrics.jsonl", 30),
            ("dynamo/baselines/head/copy/performance.jsonl", 60),
        ] {
            touch(&runs.join(path), at);
        }
        let dynamo = runs.join("dynamo");
        assert_eq!(find_run(None, &runs).expect("a run"), dynamo);
        assert_eq!(newest_stage(&dynamo), Some(dynamo.join("baselines/head/copy")));
        touch(&runs.join("plain/performance.jsonl"), 61);
        assert_eq!(find_run(None, &runs).expect("a run"), runs.join("plain"));
    }

    #[test]
    fn a_run_goes_by_its_path_or_its_name_and_may_have_logged_nothing_yet() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path().join("runs");
        touch(&runs.join("new/config.yaml"), 1);
        touch(&runs.join("dynamo/config.yaml"), 1);
        touch(&runs.join("dynamo/phase1/copy/metrics.jsonl"), 1);
        for run in [runs.join("new"), PathBuf::from("new")] {
            assert_eq!(find_run(Some(&run), &runs).expect("a run"), runs.join("new"));
        }
        let stage = runs.join("dynamo/phase1/copy");
        assert_eq!(find_run(Some(&stage), &runs).expect("a stage"), stage);
        assert_eq!(root(&stage), Some(runs.join("dynamo")));
        touch(&runs.join("config.yaml"), 1);
        touch(&runs.join("bare/metrics.jsonl"), 1);
        assert_eq!(root(&runs.join("bare")), None, "that configuration is of something else");
        let error = find_run(Some(Path::new("none")), &runs).expect_err("there is none").to_string();
        assert!(error.contains("`none`") && !error.contains('\n'), "{error}");
        create_dir_all(dir.path().join("empty")).expect("made");
        assert!(find_run(Some(&dir.path().join("empty")), &runs).is_err());
    }
}
