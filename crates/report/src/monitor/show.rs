//! Text form of a snapshot.

use super::recommend::{MEASURED_STEPS, percent};
use super::snapshot::{STALE_SECONDS, Snapshot, State};
use crate::series::clock;
use serde_json::{Map, Value};
use undertone_train::{Gpu, Hardware, Performance, RankPerformance};

/// Width of a full bar, in characters.
const BAR: usize = 24;
/// Maximum width of a row of values, in characters.
const ROW: usize = 90;

impl Snapshot {
    /// Returns the snapshot as lines of plain text without colours, separated by line feeds.
    pub fn text(&self) -> String {
        let mut lines = vec![self.title()];
        lines.extend(self.position());
        lines.extend(self.train.as_ref().map(|line| format!("train   {}", values(line))));
        lines.extend(self.valid.as_ref().map(|line| {
            let step =
                line.get("step").and_then(Value::as_u64).map_or_else(String::new, |step| format!("  (step {step})"));
            format!("valid   {}{step}", values(line))
        }));
        if let Some(performance) = &self.performance {
            lines.push(format!("speed   {}", speed(performance)));
            lines.extend(split(performance));
            lines.extend(performance.ranks.as_ref().map(ranks));
            lines.extend(performance.hardware.iter().flat_map(machine));
        }
        lines.extend(self.advice());
        lines.join("\n") + "\n"
    }

    fn title(&self) -> String {
        let state = match self.state {
            State::Running => "running",
            State::Stopped => "stopped without a summary: with --resume it goes on from its last checkpoint",
            State::Finished => "finished",
            State::Interrupted => "interrupted, to be resumed",
        };
        let stage = self.stage.as_ref().map_or_else(String::new, |stage| format!("  {stage}"));
        let has_no_end = matches!(self.state, State::Running | State::Stopped);
        let stale = self.seconds_since_update.filter(|seconds| has_no_end && *seconds > STALE_SECONDS);
        let stale = stale.map_or_else(String::new, |s| format!(", last line {} ago", clock(s)));
        format!("{}{stage}  {state}{stale}", self.run)
    }

    fn position(&self) -> Option<String> {
        let step = self.step?;
        let Some(steps) = self.steps.filter(|steps| *steps > 0) else { return Some(format!("step    {step}")) };
        let share = step as f64 / steps as f64;
        let eta = self.eta_seconds.map_or_else(String::new, |eta| format!("  ETA {}", clock(eta)));
        Some(format!("step    {step}/{steps}  {}  {}{eta}", full_bar(share), percent(share)))
    }

    fn advice(&self) -> Vec<String> {
        match (&self.performance, &self.all_is_well) {
            (None, _) if self.step.is_none() => vec!["nothing is logged yet".into()],
            (None, _) => vec!["there is no performance.jsonl: how fast it is and why is not known".into()],
            (Some(_), Some(text)) => vec![text.clone()],
            (Some(performance), None) if performance.steps < MEASURED_STEPS => {
                vec![format!("too early for advice: {} steps of {MEASURED_STEPS} measured", performance.steps)]
            }
            _ => self.recommendations.iter().map(|advice| format!("→ {}", advice.text)).collect(),
        }
    }
}

/// Formats every value of a line of `metrics.jsonl` but its step, as in `loss 0.432  lr 0.0003`, wrapped into rows.
fn values(line: &Map<String, Value>) -> String {
    let mut rows = vec![String::new()];
    for (name, value) in line.iter().filter(|(name, _)| *name != "step") {
        let shown = format!("{name} {}", value.as_f64().map_or_else(|| "–".to_owned(), short));
        match rows.last_mut() {
            Some(row) if row.is_empty() => *row = shown,
            Some(row) if row.len() + shown.len() < ROW => *row += &format!("  {shown}"),
            _ => rows.push(shown),
        }
    }
    rows.join(&format!("\n{:8}", ""))
}

/// Formats a number with four significant digits; very small numbers as powers of ten.
fn short(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    if number.abs() < 1e-3 {
        return format!("{number:.3e}");
    }
    let digits = (3 - number.abs().log10().floor() as i32).clamp(0, 6);
    format!("{number:.*}", digits as usize)
}

fn speed(performance: &Performance) -> String {
    let mut rates = vec![format!("{} samples/s", short(performance.samples_per_second))];
    rates.extend(performance.audio_seconds_per_second.map(|rate| format!("{} s of audio/s", short(rate))));
    rates.extend(performance.tokens_per_second.map(|rate| format!("{} tokens/s", short(rate))));
    rates.extend(performance.flops_per_second.map(|rate| format!("{} GFLOP/s", short(rate / 1e9))));
    rates.extend(performance.mfu.map(|mfu| format!("MFU {}", percent(mfu))));
    rates.join("  ")
}

fn split(performance: &Performance) -> Vec<String> {
    let parts = performance.time.parts().into_iter();
    // The time for communication between ranks is shown only if there are several.
    let parts = parts.filter(|(name, _)| *name != "ranks" || performance.ranks.is_some()).enumerate();
    let line = |(index, (name, share)): (usize, (&str, f64))| {
        let head = if index == 0 { "time" } else { "" };
        format!("{head:7} {name:9} {:5.1} %  {}", 100.0 * share, bar(share)).trim_end().to_owned()
    };
    parts.map(line).collect()
}

/// Formats the measurements of several ranks.
fn ranks(ranks: &RankPerformance) -> String {
    let RankPerformance { count, overlap, slowest, imbalance } = ranks;
    format!(
        "ranks   {count}  slowest {slowest}, {} longer than the mean  {} of sums behind other work",
        percent(*imbalance),
        percent(*overlap)
    )
}

fn machine(hardware: &Hardware) -> Vec<String> {
    let mut cpu = Vec::new();
    cpu.extend(hardware.cpu.map(|share| format!("CPU {}", percent(share))));
    cpu.extend(hardware.process_cpu.map(|share| format!("this run {}", percent(share))));
    let of = |part: Option<u64>, whole: Option<u64>| match (part, whole) {
        (Some(part), Some(whole)) => Some(format!("{} of {} GB", gigabytes(part), gigabytes(whole))),
        (part, _) => part.map(|part| format!("{} GB", gigabytes(part))),
    };
    cpu.extend(of(hardware.memory_bytes, hardware.memory_total_bytes).map(|text| format!("memory {text}")));
    cpu.extend(hardware.memory_available_bytes.map(|bytes| format!("{} GB left", gigabytes(bytes))));
    let gpu = |gpu: &Gpu| {
        let mut parts = vec![gpu.name.clone()];
        parts.extend(gpu.utilization.map(percent));
        parts.extend(of(gpu.memory_bytes, gpu.memory_total_bytes));
        parts.extend(gpu.power_watts.map(|watts| format!("{watts:.0} W")));
        parts.extend(gpu.temperature_celsius.map(|celsius| format!("{celsius:.0} °C")));
        format!("GPU     {}", parts.join("  "))
    };
    let machine = (!cpu.is_empty()).then(|| format!("machine {}", cpu.join("  ")));
    machine.into_iter().chain(hardware.gpus.iter().map(gpu)).collect()
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e9)
}

/// Returns a bar as long as the share, in eighths of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (8 * BAR) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Returns a bar of full width, with the rest dotted.
fn full_bar(share: f64) -> String {
    let done = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "━".repeat(done) + &"┄".repeat(BAR - done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_shares() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(0.5), "█".repeat(12));
        assert_eq!(bar(1.0), "█".repeat(24));
        assert_eq!(bar(1.0 / 48.0), "▌");
        assert_eq!(full_bar(0.25), format!("{}{}", "━".repeat(6), "┄".repeat(18)));
        assert_eq!(full_bar(7.0).chars().count(), BAR);
    }

    #[test]
    fn ranks_are_shown_where_there_are_several() {
        let line = |ranks: &str, time: &str| -> Performance {
            let text = format!(
                "{{\"step\":9,\"steps\":9,\"seconds\":1,\"samples_per_second\":1,\"time\":{{\"data_wait\":0,\
                 \"transfer\":0,\"forward\":0.5,\"backward\":0.25,\"optimizer\":0,\"other\":0.25{time}}}{ranks}}}"
            );
            serde_json::from_str(&text).expect("a line")
        };
        assert!(split(&line("", "")).iter().all(|line| !line.contains("ranks")));
        let several =
            line(",\"ranks\":{\"count\":4,\"overlap\":0.5,\"slowest\":3,\"imbalance\":0.25}", ",\"ranks\":0.1");
        assert!(split(&several).iter().any(|line| line.contains("ranks      10.0 %")), "{:?}", split(&several));
        let said = several.ranks.as_ref().map(ranks);
        let wanted = "ranks   4  slowest 3, 25 % longer than the mean  50 % of sums behind other work";
        assert_eq!(said.as_deref(), Some(wanted));
    }

    #[test]
    fn many_values_take_several_rows() {
        let line =
            |count: usize| -> Map<String, Value> { (0..count).map(|i| (format!("value{i:02}"), 0.5.into())).collect() };
        assert_eq!(values(&line(2)), "value00 0.5000  value01 0.5000");
        let many = values(&line(20));
        let rows: Vec<&str> = many.lines().collect();
        assert!(rows.len() == 4 && rows.iter().all(|row| row.len() <= ROW + 8), "{many}");
        assert!(rows[1].starts_with("        value0"), "{many}");
        assert_eq!(values(&[("cer".to_owned(), Value::Null)].into_iter().collect()), "cer –");
    }

    #[test]
    fn numbers_keep_four_digits() {
        let cases = [(0.0, "0"), (0.43218, "0.4322"), (12.347, "12.35"), (1234.6, "1235"), (0.0012, "0.001200")];
        for (number, text) in cases.into_iter().chain([(2.94e-4, "2.940e-4"), (-3.0, "-3.000")]) {
            assert_eq!(short(number), text);
        }
        assert_eq!([59.6, 751.0, 3661.0].map(clock), ["1:00", "12:31", "1:01:01"]);
    }
}
