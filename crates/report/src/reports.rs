use crate::error::ReportError;
use crate::html::REPORT;
use crate::run::overview::{RunOverview, write_overview};
use crate::stage::page;
use crate::stage::records::RunRecords;
use std::error::Error;
use std::path::{Path, PathBuf};
use undertone_store::write_atomically;

/// Writes `report.html` to the directory of a training run, or of one stage of a run with tasks, and returns its path.
///
/// Sections whose files are missing are left out; only `metrics.jsonl` is required.
///
/// # Errors
/// If there is no run, or its files cannot be read or written.
pub fn write_report(directory: &Path) -> Result<PathBuf, ReportError> {
    let records = RunRecords::read(directory)?;
    let path = directory.join(REPORT);
    write_atomically(&path, page::html(directory, &records)?.as_bytes())?;
    Ok(path)
}

/// Writes the report of a run, or those of all stages of a run with tasks. If the run was analysed, its own report is
/// written too, from the results of the analysis; `overview`, which reads the run's configuration, is called only then.
///
/// # Errors
/// As for [`write_report`], and if no stage of a run with tasks has been trained yet. If `overview` fails, the run's
/// own report is not written, but those of its stages are.
pub fn write_reports(
    run: &Path,
    overview: impl FnOnce() -> Result<RunOverview, Box<dyn Error + Send + Sync>>,
) -> Result<Vec<PathBuf>, ReportError> {
    let stages = trained_below(run, DEEPEST);
    if stages.is_empty() {
        return Err(ReportError::NoRun(run.to_owned()));
    }
    // The pages of the stages link to the run's own page if it exists, so it is written first.
    let whole = whole(run, overview);
    let pages = stages.iter().map(|stage| write_report(stage)).collect::<Result<Vec<_>, _>>()?;
    Ok(whole?.into_iter().chain(pages).collect())
}

/// Number of folders from a run's directory to its deepest stage, `baselines/head/TASK`.
const DEEPEST: usize = 3;

/// Returns the directory itself if it has a training log, or else those below it that have one, ordered by name.
fn trained_below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    if directory.join("metrics.jsonl").exists() {
        return vec![directory.to_owned()];
    }
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    below.sort();
    below.iter().flat_map(|directory| trained_below(directory, depth)).collect()
}

/// Writes the page of a run with tasks from its saved analysis, if there is one.
fn whole(
    run: &Path,
    overview: impl FnOnce() -> Result<RunOverview, Box<dyn Error + Send + Sync>>,
) -> Result<Option<PathBuf>, ReportError> {
    let read = |name: &str| std::fs::read(run.join(name)).unwrap_or_default();
    let (routing, table) = (read("analysis.json"), read("metrics.json"));
    let (Ok(routing), Ok(table)) = (serde_json::from_slice(&routing), serde_json::from_slice(&table)) else {
        return Ok(None);
    };
    let overview = overview().map_err(ReportError::Config)?;
    write_overview(run, &overview, &routing, &table).map(Some)
}
