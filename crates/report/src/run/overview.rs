use super::page::report_html;
use super::pictures::pictures;
use crate::error::ReportError;
use crate::evaluation::record::EvaluationRecord;
use crate::html::REPORT;
use crate::routing::RoutingAnalysis;
use crate::series::{GUMBEL_TEMPERATURE, LossCurves, Series};
use crate::stage::pictures::is_rate;
use crate::stage::records::logged_series;
use crate::table::MetricsTable;
use std::path::{Path, PathBuf};
use undertone_store::{StoreError, write_atomically};
use undertone_train::LAST_LOSS;

/// Content of the page of a run with tasks that only its configuration provides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOverview {
    /// Title of the page.
    pub title: String,
    /// Main settings: keys in words, and values.
    pub settings: Vec<(String, String)>,
    /// Phases whose losses are drawn.
    pub phases: Vec<PhaseOverview>,
    /// Every trained stage: its title, and its directory below the run's. The page links to theirs.
    pub stages: Vec<(String, PathBuf)>,
}

/// A phase and the stages that log its losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseOverview {
    /// Name of the phase.
    pub name: String,
    /// Stages of the phase, in order.
    pub stages: Vec<LoggedStage>,
}

/// A stage that logs losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedStage {
    /// Directory of the stage below the run's.
    pub directory: PathBuf,
    /// Task, if the stage trains a single one: its loss is drawn under the task's name and without its terms, which are
    /// on the stage's own page.
    pub task: Option<String>,
}

/// Draws the results of an analysis: the pictures, and the page of the run as a whole.
pub(crate) fn write_overview(
    run: &Path,
    overview: &RunOverview,
    routing: &RoutingAnalysis,
    table: &MetricsTable,
) -> Result<PathBuf, ReportError> {
    let pictures = pictures(routing, table, &curves(run, &overview.phases))?;
    let folder = run.join("pictures");
    std::fs::create_dir_all(&folder).map_err(|source| StoreError::Io {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    for picture in &pictures {
        write_atomically(&folder.join(&picture.file_name), picture.svg.as_bytes())?;
    }
    let links: Vec<(String, String)> =
        overview.stages.iter().map(|(title, directory)| (title.clone(), address(directory))).collect();
    let page = run.join(REPORT);
    let evaluation = EvaluationRecord::read(run);
    let html = report_html(&overview.title, routing, table, &pictures, &overview.settings, &links, evaluation.as_ref());
    write_atomically(&page, html.as_bytes())?;
    Ok(page)
}

/// Returns the address of a stage's page, relative to the run's.
fn address(stage: &Path) -> String {
    let parts = stage.components().map(|part| encoded(&part.as_os_str().to_string_lossy()));
    parts.map(|part| part + "/").collect::<String>() + REPORT
}

/// Returns a folder's name percent-encoded, because a task may have any name.
fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// Returns the training losses of every phase that logged any.
fn curves(run: &Path, phases: &[PhaseOverview]) -> Vec<LossCurves> {
    let named = phases.iter().map(|phase| {
        let (mut losses, mut temperature) = (Vec::new(), Vec::new());
        for stage in &phase.stages {
            for logged in logged_series(&run.join(&stage.directory), "train") {
                match (&stage.task, logged.name.as_str()) {
                    (_, name) if is_rate(name) || ["grad_norm", LAST_LOSS].contains(&name) => {}
                    (_, GUMBEL_TEMPERATURE) => temperature.extend(logged.points),
                    (Some(task), "loss") => losses.push(Series { name: task.clone(), ..logged }),
                    (Some(_), _) => {}
                    (None, _) => losses.push(logged),
                }
            }
        }
        LossCurves { phase: phase.name.clone(), losses, temperature }
    });
    named.filter(|curves| !curves.losses.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_found_whatever_its_task_is_called() {
        assert_eq!(address(Path::new("phase1/copy")), "phase1/copy/report.html");
        assert_eq!(address(Path::new("phase1/a b#?")), "phase1/a%20b%23%3F/report.html");
    }
}
