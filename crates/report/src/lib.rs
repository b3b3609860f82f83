//! What is read from a run's directory: its page, the analysis of its routing, and the monitor.
//!
//! [`write_report`] and [`write_reports`] make `report.html` of what a run or a stage logged. [`RoutingAnalysis`] counts
//! how a router spread a test set over the adapters, and [`MetricsTable`] sets routers side by side; [`pictures`] draws
//! both. [`monitor`] follows a run while it goes on and says what its numbers advise.
//!
//! It deliberately knows no experiment: it reads `metrics.jsonl`, `performance.jsonl`, `summary.json` and what an analysis
//! saved. What only the configuration tells is given to it as plain values, [`RunOverview`] and
//! [`StagePlan`](monitor::StagePlan). It computes no metric and trains nothing.
//!
//! ```
//! let run = tempfile::tempdir()?;
//! let line = r#"{"step":10,"split":"train","loss":2.5}"#;
//! std::fs::write(run.path().join("metrics.jsonl"), format!("{line}\n"))?;
//! let page = undertone_report::write_report(run.path())?;
//! assert!(std::fs::read_to_string(page)?.contains("Training loss"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draw;
mod error;
mod html;
pub mod monitor;
mod reports;
mod routing;
mod run;
mod series;
mod stage;
mod table;

pub use draw::panels::{Panel, panels};
pub use error::{AnalysisError, ReportError};
pub use reports::{write_report, write_reports};
pub use routing::{Confidence, GateEntropy, Histogram, RoutedSample, RoutingAnalysis};
pub use run::overview::{LoggedStage, PhaseOverview, RunOverview};
pub use run::page::report_html;
pub use run::pictures::{Picture, PictureSection, pictures};
pub use series::{GUMBEL_TEMPERATURE, LossCurves, Series};
pub use table::{Metric, MetricsTable, TaskColumn};
