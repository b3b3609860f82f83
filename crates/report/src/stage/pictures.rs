//! The curves of a training run.

use super::records::RunRecords;
use crate::draw::areas::Areas;
use crate::draw::lines::{Curves, Scale};
use crate::error::AnalysisError;
use crate::series::{GUMBEL_TEMPERATURE, Series};
use undertone_train::{Hardware, LAST_LOSS, Performance};

/// Size of a picture: its text is still readable on a phone, where it is drawn at three quarters of its size.
const SIZE: (u32, u32) = (480, 320);

/// Values logged in training besides losses and learning rates.
const GAUGES: [&str; 4] = ["grad_norm", GUMBEL_TEMPERATURE, "loss_scale", "skipped_steps"];

/// Losses that are not terms of another loss.
const LOSSES: [&str; 2] = ["loss", LAST_LOSS];

/// A picture and its caption.
pub(crate) struct Figure {
    pub svg: String,
    pub caption: String,
}

/// Collects pictures that share an x axis, without those that have no values.
struct Album {
    steps: (f64, f64),
    figures: Vec<Figure>,
}

/// Draws losses, validation metrics, learning rate, gradient norm and gauges.
pub(crate) fn learning(records: &RunRecords) -> Result<Vec<Figure>, AnalysisError> {
    let mut album = Album { steps: records.steps(), figures: Vec::new() };
    let named = |name: &str| records.trained(name).map(unnamed).into_iter().collect::<Vec<_>>();
    let means = "Each logged value is faint, the running mean bold.";

    let caption = format!("Of the steps since the value before. {means}");
    album.curves(noisy("Training loss", "", &named("loss")), &caption)?;
    let rates = picked(records, is_rate);
    let terms = picked(records, |name| !LOSSES.contains(&name) && !is_rate(name) && !GAUGES.contains(&name));
    album.curves(noisy("Terms of the loss", "", &terms), &format!("What the loss is made of, unweighted. {means}"))?;

    let best = best(records);
    for (metric, series) in by_metric(records) {
        let ringed = best.as_ref().filter(|(name, _)| *name == metric).map(|(_, point)| *point);
        let title = format!("Validation: {metric}");
        let curves = Curves { best: ringed, scale: Some(Scale::Linear), ..Curves::new(&title, "", &series) };
        let caption = match ringed {
            Some((step, value)) => format!("The ring is the best model, of step {step}: {metric} {value:.4}."),
            None => "Evaluated before the first step and at every evaluation.".into(),
        };
        album.curves(curves, &caption)?;
    }

    let rates: Vec<Series> = if let [rate] = rates.as_slice() { vec![unnamed(rate)] } else { rates };
    let curves = Curves { scale: Some(Scale::Linear), ..Curves::new("Learning rate", "", &rates) };
    album.curves(curves, "As the schedule set it.")?;
    album.curves(
        noisy("Gradient norm", "", &named("grad_norm")),
        &format!("Over all parameters together, before clipping. {means}"),
    )?;
    for gauge in &GAUGES[1..] {
        let title = gauge.replace('_', " ");
        album.curves(Curves::new(&title, "", &named(gauge)), "As it was in the logged steps.")?;
    }
    Ok(album.figures)
}

/// Draws throughput, the time of a step, memory and utilisation; empty without `performance.jsonl`.
pub(crate) fn machine(records: &RunRecords) -> Result<Vec<Figure>, AnalysisError> {
    let mut album = Album { steps: records.steps(), figures: Vec::new() };
    let (time, parts) = (records.time(), records.time_parts());
    let areas = Areas {
        title: "Time of a training step",
        quantity: "Share of the time",
        parts: &parts,
        intervals: &time,
        steps: album.steps,
        size: SIZE,
    };
    let drawn = areas.draw()?;
    album.add(drawn, &format!("Where the time of the training steps went. On average: {}.", averages(records)));

    let of = |name: &str, value: &dyn Fn(&Performance) -> Option<f64>| Series {
        name: name.into(),
        points: records.performance.iter().filter_map(|line| Some((line.step, value(line)?))).collect(),
    };
    let rates: [(&str, &str, Series); 3] = [
        ("Throughput", "Samples a second", of("", &|line| Some(line.samples_per_second))),
        ("Audio", "Seconds of audio a second", of("", &|line| line.audio_seconds_per_second)),
        ("Tokens", "Tokens a second", of("", &|line| line.tokens_per_second)),
    ];
    for (title, quantity, series) in rates {
        let series = [series];
        let curves = Curves { scale: Some(Scale::Linear), from_zero: true, ..noisy(title, quantity, &series) };
        album.curves(curves, "Of training steps alone, without evaluations and checkpoints.")?;
    }
    let utilization = [of("", &|line| line.mfu)];
    let curves = Curves {
        scale: Some(Scale::Percent),
        from_zero: true,
        ..noisy("Model FLOPs utilisation", "MFU", &utilization)
    };
    album.curves(curves, "The model's arithmetic, by what the device could do at its peak.")?;

    let hardware =
        |value: &dyn Fn(&Hardware) -> Option<f64>, name: &str| of(name, &|line| line.hardware.as_ref().and_then(value));
    let cards = cards(records);
    let gib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / f64::from(1 << 30));
    let mut memory = vec![hardware(&|it| gib(it.memory_bytes), "process")];
    let mut busy = vec![hardware(&|it| it.cpu, "all processors"), hardware(&|it| it.process_cpu, "this process")];
    for (index, name) in cards.iter().enumerate() {
        memory.push(hardware(&|it| gib(it.gpus.get(index)?.memory_bytes), name));
        busy.push(hardware(&|it| it.gpus.get(index)?.utilization, name));
    }
    let curves = Curves { scale: Some(Scale::Linear), from_zero: true, ..Curves::new("Memory", "GiB", &memory) };
    album.curves(curves, "What the process holds, and what is in use on each graphics card.")?;
    let curves = Curves { scale: Some(Scale::Percent), from_zero: true, ..noisy("Utilisation", "Busy", &busy) };
    album
        .curves(curves, "Of the processors (the machine's as a whole, and this process's share) and graphics cards.")?;
    Ok(album.figures)
}

impl Album {
    fn curves(&mut self, curves: Curves, caption: &str) -> Result<(), AnalysisError> {
        let series: Vec<Series> = curves.series.iter().filter(|series| !series.points.is_empty()).cloned().collect();
        let drawn = Curves { series: &series, steps: Some(self.steps), size: SIZE, ..curves }.draw()?;
        self.add(drawn, caption);
        Ok(())
    }

    fn add(&mut self, drawn: Option<String>, caption: &str) {
        self.figures.extend(drawn.map(|svg| Figure { svg, caption: caption.to_owned() }));
    }
}

/// Returns curves of fluctuating values.
fn noisy<'a>(title: &'a str, quantity: &'a str, series: &'a [Series]) -> Curves<'a> {
    Curves { noisy: true, ..Curves::new(title, quantity, series) }
}

/// Returns the metric that selected the best model, with its step and value: the one with the summary's value at that
/// step.
pub(crate) fn best(records: &RunRecords) -> Option<(String, (u64, f64))> {
    let (score, at) = records.summary.as_ref()?.best?;
    // Logs keep seven digits of it.
    let is_score = |value: f64| (value - score).abs() <= 1e-6 * score.abs();
    let scored = |series: &&Series| series.points.iter().any(|(step, value)| *step == at && is_score(*value));
    // The mean error of a run with tasks may equal that of its only task.
    let mut candidates: Vec<&Series> = records.valid.iter().filter(scored).collect();
    candidates.sort_by_key(|series| series.name.contains('.'));
    Some((candidates.first()?.name.clone(), (at, score)))
}

/// Groups the metrics of tasks (`task.metric`) by metric, with a curve per task; other metrics are groups of their own. The weights'
/// moving average has curves beside those of the weights.
fn by_metric(records: &RunRecords) -> Vec<(String, Vec<Series>)> {
    let mut groups: Vec<(String, Vec<Series>)> = Vec::new();
    let named = |task: &str, of: &str| match (task, records.valid_ema.is_empty()) {
        (_, true) => task.to_owned(),
        ("", false) => of.to_owned(),
        _ => format!("{task}, {of}"),
    };
    let weights = records.valid.iter().map(|series| (series, "weights"));
    for (series, of) in weights.chain(records.valid_ema.iter().map(|series| (series, "moving average"))) {
        let (task, metric) = series.name.rsplit_once('.').unwrap_or(("", &series.name));
        let curve = Series { name: named(task, of), points: series.points.clone() };
        match groups.iter_mut().find(|(name, _)| name == metric) {
            Some((_, curves)) => curves.push(curve),
            None => groups.push((metric.into(), vec![curve])),
        }
    }
    groups
}

/// Whether a name is a learning rate: `lr`, or `lr.` or `lr_` with the name of a parameter group.
pub(crate) fn is_rate(name: &str) -> bool {
    name.strip_prefix("lr").is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
}

fn picked(records: &RunRecords, which: impl Fn(&str) -> bool) -> Vec<Series> {
    records.train.iter().filter(|series| which(&series.name)).cloned().collect()
}

/// Returns a series without a name, because the picture's title names it.
fn unnamed(series: &Series) -> Series {
    Series { name: String::new(), points: series.points.clone() }
}

/// Returns the names of the GPUs, numbered if there are several.
fn cards(records: &RunRecords) -> Vec<String> {
    let last = records.performance.iter().rev().find_map(|line| line.hardware.as_ref());
    let gpus = last.map(|hardware| hardware.gpus.as_slice()).unwrap_or_default();
    let name = |(index, name): (usize, &str)| match gpus.len() {
        1 => name.to_owned(),
        _ => format!("{index}: {name}"),
    };
    gpus.iter().map(|gpu| gpu.name.as_str()).enumerate().map(name).collect()
}

/// Returns each part's share of the total time, largest first.
fn averages(records: &RunRecords) -> String {
    let time = records.time();
    let total: f64 = time.iter().map(|it| it.weight).sum();
    let share =
        |part: usize| time.iter().map(|it| it.shares[part] * it.weight).sum::<f64>() / total.max(f64::MIN_POSITIVE);
    let parts = records.time_parts();
    let mut shares: Vec<(&str, f64)> = parts.iter().enumerate().map(|(part, (name, _))| (*name, share(part))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let said: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {:.1} %", 100.0 * share)).collect();
    said.join(", ")
}
