//! `undertone eval --blend`: models between a tuned one and the one that its training began with.

use crate::failure::Failure;
use crate::say;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use undertone::phases::Split;
use undertone::phases::run::{BlendResult, Subject};
use undertone::report::{BlendPage, BlendPoint};

/// Share of a model, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or_else(|| "a share is a number from 0 to 1: write several like 0,0.1,0.3,1".to_owned())
    }
}

/// Evaluates the models on a split and on `general` data, prints a line of JSON, and writes the page to the directory `page`.
pub fn run(
    shares: &[Share],
    general_data: Option<&str>,
    subject: &Subject,
    split: Split,
    page: Option<&Path>,
) -> Result<(), Failure> {
    let mut shares: Vec<f64> = shares.iter().map(|share| share.0).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let (mut points, mut lines) = (Vec::new(), Vec::new());
    let metric = subject.experiment().train.evaluate.metrics.first().cloned().unwrap_or_else(|| "loss".to_owned());
    let found = |BlendResult { share, task, general }: BlendResult| {
        let task = task.into_evaluation().metrics;
        let general = general.map(|general| general.into_evaluation().metrics);
        let value = |metrics: &BTreeMap<String, f64>| metrics.get(&metric).copied();
        let (own, other) = (value(&task).unwrap_or(f64::NAN), general.as_ref().and_then(value));
        let beside = other.map_or_else(String::new, |other| format!(", of general data {other:.4}"));
        tracing::info!("share {share}: {metric} {own:.4}{beside}");
        points.push(BlendPoint { share, task: own, general: other });
        lines.push(json!({"share": share, "task": task, "general": general}));
    };
    subject.evaluate_blends(&shares, split, general_data, found).map_err(Failure::of_run)?;
    if let Some(directory) = page {
        let page = BlendPage {
            name: subject.experiment().run.name.clone(),
            direction: subject.direction(&metric),
            metric,
            general: general_data.map(str::to_owned),
            points,
        };
        let path = page.write(directory).map_err(Failure::of_report)?;
        tracing::info!("curve: {}", path.display());
    }
    say!("{}", Value::Array(lines))
}
