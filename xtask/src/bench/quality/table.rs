//! Means and spreads of several seeds, as Markdown.

use super::comparison::Comparison;
use super::results::{Results, Training};
use crate::bench::numbers::median;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A mean with the standard deviation about it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    mean: f64,
    deviation: f64,
    count: usize,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, deviation: (squares / count.saturating_sub(1).max(1) as f64).sqrt(), count }
    }

    fn squared_error(&self) -> f64 {
        self.deviation.powi(2) / self.count as f64
    }

    fn percent(&self) -> String {
        format!("{:.1} ± {:.1}", 100.0 * self.mean, 100.0 * self.deviation)
    }
}

/// Ours and the peer's, side by side: what decides is the difference of the means by its standard error.
pub fn of_peers(comparisons: &[&Comparison], results: &Results, seeds: u64) -> String {
    let mut table =
        "| | metric | undertone | transformers, PEFT | better by | standard error | seconds | peer's seconds |\n\
                     |---|---|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    for comparison in comparisons {
        let [ours, peers] = ["undertone", "peer"].map(|side| results.of(comparison.name, side, seeds));
        let [a, b] = [&ours, &peers].map(|side| Spread::of(&scores(side, comparison.metric)));
        let better = if comparison.higher { a.mean - b.mean } else { b.mean - a.mean };
        let error = (a.squared_error() + b.squared_error()).sqrt();
        let [fast, slow] = [&ours, &peers].map(|side| median(&side.iter().map(|r| r.seconds).collect::<Vec<_>>()));
        let arrow = if comparison.higher { '↑' } else { '↓' };
        let _ = writeln!(
            table,
            "| {} | {} {arrow} | {} | {} | {:+.1} | {:.1} | {fast:.0} | {slow:.0} |",
            comparison.title,
            comparison.metric,
            a.percent(),
            b.percent(),
            100.0 * better,
            100.0 * error,
        );
    }
    table + &format!("\nIn percent: mean ± standard deviation of {seeds} seeds; medians of seconds of training.\n")
}

/// Each task by the routers that were tried, and by one adapter for all.
pub fn of_phases(experiment: &str, results: &Results, seeds: u64) -> String {
    const COLUMNS: [&str; 4] = ["learned", "oracle", "oracle, phase 1", "shared adapter"];
    let all = results.of(experiment, "undertone", seeds);
    let mut table = format!("| {experiment} | {} |\n|---|---:|---:|---:|---:|\n", COLUMNS.join(" | "));
    for task in tasks(&all) {
        let cell = |router: &&str| Spread::of(&scores(&all, &format!("{task}/{router}"))).percent();
        let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        let _ = writeln!(table, "| {task} | {} |", cells.join(" | "));
    }
    let accuracy = Spread::of(&scores(&all, "routing accuracy")).percent();
    table + &format!("\nIn percent: mean ± standard deviation of {seeds} seeds. Routing accuracy {accuracy}.\n")
}

fn scores(results: &[&Training], metric: &str) -> Vec<f64> {
    results.iter().filter_map(|result| result.scores.get(metric).copied()).collect()
}

fn tasks(results: &[&Training]) -> Vec<String> {
    let names = results.iter().flat_map(|result| result.scores.keys());
    let tasks: BTreeMap<String, ()> = names.filter_map(|name| Some((name.split_once('/')?.0.to_owned(), ()))).collect();
    tasks.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_a_sample() {
        let spread = Spread::of(&[0.1, 0.2, 0.3]);
        assert!((spread.mean - 0.2).abs() < 1e-12 && (spread.deviation - 0.1).abs() < 1e-12);
        assert_eq!(spread.percent(), "20.0 ± 10.0");
        assert_eq!(Spread::of(&[0.5]).deviation, 0.0);
    }

    #[test]
    fn better_is_less_where_errors_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = Results::open(&folder.path().join("results.jsonl")).ok().expect("none yet");
        let comparison = super::super::comparison::COMPARISONS.iter().find(|c| c.metric == "wer").expect("one");
        for (seed, ours, peers) in [(1, 0.10, 0.15), (2, 0.12, 0.17)] {
            for (side, value) in [("undertone", ours), ("peer", peers)] {
                let scores = BTreeMap::from([("wer".to_owned(), value)]);
                results.add(comparison.name, side, seed, Training { seconds: 1.0, scores }).ok().expect("written");
            }
        }
        let table = of_peers(&[comparison], &results, 2);
        assert!(table.contains("| wer ↓ | 11.0 ± 1.4 | 16.0 ± 1.4 | +5.0 | 1.4 |"), "{table}");
    }
}
