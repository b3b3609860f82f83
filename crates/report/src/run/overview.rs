use super::page::report_html;
use super::pictures::pictures;
use crate::error::ReportError;
use crate::html::REPORT;
use crate::routing::RoutingAnalysis;
use crate::series::{GUMBEL_TEMPERATURE, LossCurves, Series};
use crate::stage::pictures::is_rate;
use crate::stage::records::series;
use crate::table::MetricsTable;
use std::path::{Path, PathBuf};
use undertone_store::{StoreError, write_atomically};
use undertone_train::LAST_LOSS;

/// What the page of a run with tasks shows that only its configuration tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOverview {
    /// What stands above.
    pub title: String,
    /// What a reader wants to know of the configuration: keys in words, and values.
    pub settings: Vec<(String, String)>,
    /// The phases whose losses are drawn.
    pub phases: Vec<PhaseOverview>,
    /// Every trained stage: what it is called, and its directory below the run's. The page leads to theirs.
    pub stages: Vec<(String, PathBuf)>,
}

/// A phase and the stages that log its losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseOverview {
    /// What it is called.
    pub name: String,
    /// Its stages, in their order.
    pub stages: Vec<LoggedStage>,
}

/// A stage that logs losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedStage {
    /// Its directory below the run's.
    pub directory: PathBuf,
    /// The task, where the stage trains one alone: its loss is drawn under the task's name and without its terms, which
    /// are on the stage's own page.
    pub task: Option<String>,
}

/// Draws what an analysis found: the pictures, and the page of the run as a whole.
///
/// # Errors
/// When a picture cannot be drawn or a file not be written.
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
    let html = report_html(&overview.title, routing, table, &pictures, &overview.settings, &links);
    write_atomically(&page, html.as_bytes())?;
    Ok(page)
}

/// Where the page of a stage is, seen from the run's.
fn address(stage: &Path) -> String {
    let parts = stage.components().map(|part| encoded(&part.as_os_str().to_string_lossy()));
    parts.map(|part| part + "/").collect::<String>() + REPORT
}

/// A folder's name in an address: a task may be called anything.
fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// The training losses of every phase that left any.
fn curves(run: &Path, phases: &[PhaseOverview]) -> Vec<LossCurves> {
    let named = phases.iter().map(|phase| {
        let (mut losses, mut temperature) = (Vec::new(), Vec::new());
        for stage in &phase.stages {
            let log = run.join(&stage.directory).join("metrics.jsonl");
            let metrics = std::fs::read_to_string(log).unwrap_or_default();
            for logged in series(&metrics, "train") {
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
