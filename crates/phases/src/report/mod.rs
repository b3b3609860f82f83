//! `report.html` of a training run: its curves, where its time went, what its examples became, and what it was made with.
//!
//! One file, which loads nothing. It is made from what the run's directory holds, so that it can be made again at any
//! time, for a run that is still going on too.

mod difference;
mod page;
mod pictures;
mod records;

pub(crate) use pictures::is_rate;
pub(crate) use records::series;

use crate::analysis::AnalysisError;
use crate::dynamo::render;
use crate::{ConfigError, Experiment};
use records::RunRecords;
use std::path::{Path, PathBuf};
use undertone_store::{StoreError, write_atomically};

/// The page's name in a run's directory.
pub(crate) const REPORT: &str = "report.html";

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Nothing was trained there.
    #[error("`{}` holds no run: give the directory of one, which has a `metrics.jsonl`, or whose stages have", .0.display())]
    NoRun(PathBuf),
    /// The run's configuration is none.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The metrics cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A picture could not be drawn.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// The page cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReportError {
    /// Whether the cause is something the user gave.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoRun(_) | Self::Config(_))
    }
}

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
/// too, from what the analysis found.
///
/// # Errors
/// As for [`write_report`], and when nothing of a run with tasks was trained yet. A configuration that this version cannot
/// read keeps the run's own report from being made, not those of its stages.
pub fn write_reports(run: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let stages = trained_below(run, DEEPEST);
    if stages.is_empty() {
        return Err(ReportError::NoRun(run.to_owned()));
    }
    // The stages lead to the run's own page if it is there, so it comes first.
    let whole = rendered(run);
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
fn rendered(run: &Path) -> Result<Option<PathBuf>, ReportError> {
    let read = |name: &str| std::fs::read(run.join(name)).unwrap_or_default();
    let (routing, table) = (read("analysis.json"), read("metrics.json"));
    let (Ok(routing), Ok(table)) = (serde_json::from_slice(&routing), serde_json::from_slice(&table)) else {
        return Ok(None);
    };
    let mut experiment = Experiment::load(Some(&run.join("config.yaml")), &[])?;
    experiment.at(run);
    render(&experiment, &routing, &table).map(Some)
}
