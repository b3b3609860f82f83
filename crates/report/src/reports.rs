use crate::error::ReportError;
use crate::html::REPORT;
use crate::run::overview::{RunOverview, write_overview};
use crate::stage::page;
use crate::stage::records::RunRecords;
use std::error::Error;
use std::path::{Path, PathBuf};
use undertone_store::write_atomically;

/// Writes `report.html` to the directory of a training run, or of one stage of a run with tasks, and gives its path.
///
/// What the directory does not hold is left out; only `metrics.jsonl` has to be there.
///
/// # Errors
/// When there is no run, or its files cannot be read or written.
pub fn write_report(directory: &Path) -> Result<PathBuf, ReportError> {
    let records = RunRecords::read(directory)?;
    let path = directory.join(REPORT);
    write_atomically(&path, page::html(directory, &records)?.as_bytes())?;
    Ok(path)
}

/// Writes the report of a run, or those of all stages of a run with tasks; for a run that was analysed, its own report
/// too, from what the analysis found. Only then `overview` is asked what the run's configuration says.
///
/// # Errors
/// As for [`write_report`], and when nothing of a run with tasks was trained yet. An overview that cannot be had keeps the
/// run's own report from being made, not those of its stages.
pub fn write_reports(
    run: &Path,
    overview: impl FnOnce() -> Result<RunOverview, Box<dyn Error + Send + Sync>>,
) -> Result<Vec<PathBuf>, ReportError> {
    let stages = trained_below(run, DEEPEST);
    if stages.is_empty() {
        return Err(ReportError::NoRun(run.to_owned()));
    }
    // The stages lead to the run's own page if it is there, so it comes first.
    let whole = whole(run, overview);
    let pages = stages.iter().map(|stage| write_report(stage)).collect::<Result<Vec<_>, _>>()?;
    Ok(whole?.into_iter().chain(pages).collect())
}

/// Folders from a run's to that of its deepest stage, `baselines/head/TASK`.
const DEEPEST: usize = 3;

/// The directory itself if something was trained in it, or else those below it, in the order of their names.
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

/// The page of a run with tasks from what was saved of its analysis, if there was any.
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
