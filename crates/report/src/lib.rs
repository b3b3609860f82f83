//! Reads the directory of a run: its HTML report, the analysis of its routing, and the monitor.
//!
//! [`write_report`] and [`write_reports`] write `report.html` from the logs of a run or a stage. [`RoutingAnalysis`]
//! counts how a router distributed a test set over the adapters, [`MetricsTable`] compares routers, and [`pictures`]
//! draws both. [`RatePage`] shows a search for a learning rate, [`BlendPage`] models between two others.
//! [`EvaluationRecord`] is what an evaluation found, down to the worst samples. [`monitor`] follows a run while it trains and gives recommendations from its measurements.
//!
//! This crate deliberately does not depend on the experiment configuration: it reads `metrics.jsonl`,
//! `performance.jsonl`, `summary.json` and the saved analysis. You pass what only the configuration contains as plain
//! values, [`RunOverview`] and [`StagePlan`](monitor::StagePlan). It computes no metric and trains nothing.
//!
//! ```
//! let run = tempfile::tempdir()?;
//! let line = r#"{"step":10,"split":"train","loss":2.5}"#;
//! std::fs::write(run.path().join("metrics.jsonl"), format!("{line}\n"))?;
//! let page = undertone_report::write_report(run.path())?;
//! assert!(std::fs::read_to_string(page)?.contains("Training loss"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blends;
mod difference;
mod draw;
mod error;
mod evaluation;
mod html;
pub mod monitor;
mod rates;
mod reports;
mod routing;
mod run;
mod series;
mod stage;
mod table;

pub use blends::{BlendPage, BlendPoint};
pub use draw::panels::{Panel, panels};
pub use error::{AnalysisError, ReportError};
pub use evaluation::record::{
    Compared, Comparison, ErrorCounts, EvaluationRecord, Group, Grouping, MetricScore, Significance, WorstSample,
};
pub use rates::{RateCurve, RatePage};
pub use reports::{write_report, write_reports};
pub use routing::{Calibration, CalibrationBin, Confidence, GateEntropy, Histogram, RoutedSample, RoutingAnalysis};
pub use run::overview::{LoggedStage, PhaseOverview, RunOverview};
pub use run::page::report_html;
pub use run::pictures::{Picture, PictureSection, pictures};
pub use series::{GUMBEL_TEMPERATURE, LossCurves, Series};
pub use stage::records::logged_series;
pub use table::{Metric, MetricsTable, TaskColumn};
