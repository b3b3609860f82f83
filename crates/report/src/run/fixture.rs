//! A synthetic run, for the tests of the pictures and the page.

use crate::routing::{RoutedSample, RoutingAnalysis};
use crate::series::{LossCurves, Series};
use crate::table::{Metric, MetricsTable, TaskColumn};
use undertone_metrics::Direction;

const NAMES: [&str; 5] = ["clean-speech", "noisy-radio", "contest-pileup-3", "numbers", "call-signs"];
const ROUTERS: [&str; 7] =
    ["learned", "oracle", "uniform", "random", "shared adapter", "frozen head only", "full fine-tuning"];

/// Returns names of up to 16 characters.
pub(crate) fn names(tasks: usize) -> Vec<String> {
    let name = |task: usize| match task / NAMES.len() {
        0 => NAMES[task].to_string(),
        round => format!("{:.13}-{round}", NAMES[task % NAMES.len()]),
    };
    (0..tasks).map(name).collect()
}

/// Returns evenly scattered, deterministic numbers in 0..1.
fn scatter(index: usize, salt: usize) -> f64 {
    ((index as f64 + 1.0) * 0.618_033_988_75 + salt as f64 * 0.414_213_562_37).fract()
}

/// Returns the output of a router that is mostly right, and least certain for the later tasks.
pub(crate) fn samples(tasks: usize) -> Vec<RoutedSample> {
    let sample = |index: usize| {
        let task = index % tasks;
        let doubt = scatter(index, 1) * (0.6 + 0.8 * task as f64 / tasks as f64);
        let score = |adapter: usize| {
            let own = if adapter == task { 3.0 } else { 0.0 };
            let near = if adapter.abs_diff(task) == 1 { 1.5 * scatter(index, 2 + adapter) } else { 0.0 };
            ((own + near + scatter(index / tasks, 40 + adapter) * 4.0 * doubt) / (0.3 + doubt)).exp()
        };
        let sum: f64 = (0..tasks).map(score).sum();
        let gates: Vec<f32> = (0..tasks).map(|adapter| (score(adapter) / sum) as f32).collect();
        let confidence = gates.iter().copied().fold(0.0, f32::max);
        RoutedSample { task, gates, confidence }
    };
    (0..400 * tasks).filter(|index| index % tasks < 3 || !(index / tasks).is_multiple_of(3)).map(sample).collect()
}

pub(crate) fn analysis(tasks: usize) -> RoutingAnalysis {
    RoutingAnalysis::new(names(tasks), &samples(tasks)).unwrap()
}

/// Returns the character error rates of seven routers.
pub(crate) fn table(tasks: usize) -> MetricsTable {
    let metric = |name: &str| Metric { name: name.into(), direction: Direction::Lower };
    let columns = names(tasks).into_iter().map(|task| TaskColumn { task, primary: "cer".into() }).collect();
    let mut table = MetricsTable::new(vec![metric("cer"), metric("loss")], columns).unwrap();
    for (row, router) in ROUTERS.iter().enumerate() {
        for (column, task) in names(tasks).iter().enumerate() {
            let cer = 0.04 + 0.05 * scatter(column, 3) + 0.035 * [0, 0, 4, 7, 2, 9, 1][row] as f64;
            table.record(router, task, "cer", cer).unwrap();
            table.record(router, task, "loss", cer * 4.0).unwrap();
        }
    }
    table
}

/// Returns the losses of the adapters, and of a router with its temperature.
pub(crate) fn curves(tasks: usize) -> Vec<LossCurves> {
    let curve = |name: &str, salt: usize, from: f64, to: f64| Series {
        name: name.into(),
        points: (0..600)
            .map(|at| {
                let decay = (-(at as f64) / (60.0 + 10.0 * salt as f64)).exp();
                (at as u64 * 5, to + (from - to) * decay * (0.85 + 0.3 * scatter(at, salt)))
            })
            .collect(),
    };
    let adapters = names(tasks).iter().enumerate().map(|(task, name)| curve(name, task, 4.0, 0.02)).collect();
    let router = vec![curve("train", 1, 1.6, 0.3), curve("valid", 4, 1.6, 0.4), curve("load balance", 7, 0.5, 0.1)];
    let temperature = (0..100).map(|at| (at * 30, 0.5 + 1.5 * (-(at as f64) / 30.0).exp())).collect();
    vec![
        LossCurves { phase: "phase 1, adapters".into(), losses: adapters, temperature: vec![] },
        LossCurves { phase: "phase 2, router".into(), losses: router, temperature },
    ]
}
