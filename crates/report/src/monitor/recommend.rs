//! Recommendations from a run's own measurements.

use serde::Serialize;
use serde_json::Value;
use undertone_ops::Compute;
use undertone_train::{Gpu, Performance, peak_flops};

/// Recommendation for one finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// Measurement, as in `data wait 38 %`.
    pub finding: String,
    /// Keys to change; empty if no change of a key helps.
    pub changes: Vec<Change>,
    /// The whole recommendation in one sentence.
    pub text: String,
}

/// Present and proposed value of a configuration key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The key, as `--set` takes it.
    pub key: String,
    /// Present value.
    pub present: Value,
    /// Proposed value.
    pub proposed: Value,
}

/// Settings of a run that recommendations can change, and the machine it runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of cores available to the process.
    pub cores: usize,
    /// Whether the run computes on a GPU; `None` if the device is `auto`.
    pub on_gpu: Option<bool>,
    /// Number of data loader workers.
    pub workers: usize,
    /// Number of batches prefetched.
    pub prefetch_batches: usize,
    /// Samples per batch.
    pub batch_size: usize,
    /// Limit of the audio in a batch, in seconds.
    pub max_batch_seconds: Option<f64>,
    /// Whether batches are padded to the model's window even if their clips are shorter.
    pub pads_to_window: bool,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// Element type of the forward and backward pass.
    pub compute: Compute,
    /// Optimizer steps between two log lines.
    pub log_every: u64,
    /// Whether activation checkpointing is on.
    pub checkpointing: bool,
}

/// Minimum number of measured steps. The first ones are not representative: they start threads and compile kernels.
pub const MEASURED_STEPS: u64 = 10;

/// Returns the recommendations for a run with this `performance` in its latest steps, the most urgent first. Empty if
/// nothing needs a change, or if fewer than [`MEASURED_STEPS`] were measured. Keys are named only if `settings` are
/// given.
pub fn recommend(performance: &Performance, settings: Option<&Settings>) -> Vec<Recommendation> {
    let Some(settings) = settings.filter(|_| performance.steps >= MEASURED_STEPS) else { return Vec::new() };
    let facts = Facts::new(performance, settings);
    let rules: [fn(&Facts) -> Option<Recommendation>; 8] =
        [memory, crowded, data_wait, compute, batch, transfer, optimizer, other];
    let mut all: Vec<Recommendation> = Vec::new();
    for advice in rules.iter().filter_map(|rule| rule(&facts)) {
        // Recommendations must not propose two values for one key.
        let taken = |change: &Change| all.iter().any(|earlier| earlier.changes.iter().any(|c| c.key == change.key));
        if !advice.changes.iter().any(taken) {
            all.push(advice);
        }
    }
    all
}

/// Returns the measurements behind "all is well".
pub fn all_is_well(performance: &Performance, settings: Option<&Settings>) -> String {
    let time = &performance.time;
    let mut numbers = vec![
        format!("data wait {}", percent(time.data_wait)),
        format!("transfer {}", percent(time.transfer)),
        format!("optimizer {}", percent(time.optimizer)),
    ];
    let facts = settings.map(|settings| Facts::new(performance, settings));
    if let Some(gpu) = facts.as_ref().and_then(|facts| facts.gpu?.utilization) {
        numbers.push(format!("GPU {} busy", percent(gpu)));
    }
    numbers.extend(facts.and_then(|facts| facts.memory).map(|memory| format!("memory {}", percent(memory))));
    format!("nothing to change: {}", numbers.join(", "))
}

/// Input of the rules.
struct Facts<'a> {
    performance: &'a Performance,
    settings: &'a Settings,
    /// GPU that the run computes on, if any.
    gpu: Option<&'a Gpu>,
    /// Utilisation of the machine's processors.
    cpu: Option<f64>,
    process_cpu: Option<f64>,
    /// Share of memory in use: of the GPU's memory if the run is on a GPU, else of the machine's.
    memory: Option<f64>,
    /// Share of the machine's memory used by this process.
    own_memory: Option<f64>,
}

/// Minimum utilisation at which a GPU counts as the run's, if the device is `auto`.
const GPU_IN_USE: f64 = 0.05;
/// Minimum data wait that is worth a change.
const WAIT: f64 = 0.1;

impl<'a> Facts<'a> {
    fn new(performance: &'a Performance, settings: &'a Settings) -> Self {
        let hardware = performance.hardware.as_ref();
        let busy = |gpu: &&Gpu| gpu.utilization.unwrap_or(0.0);
        let busiest = hardware.and_then(|h| h.gpus.iter().max_by(|a, b| busy(a).total_cmp(&busy(b))));
        let gpu = busiest.filter(|gpu| settings.on_gpu.unwrap_or(busy(gpu) >= GPU_IN_USE));
        let share = |part: Option<u64>, of: Option<u64>| match (part, of) {
            (Some(part), Some(of)) if of > 0 => Some(part as f64 / of as f64),
            _ => None,
        };
        let total = hardware.and_then(|h| h.memory_total_bytes);
        let memory = match gpu {
            Some(gpu) => share(gpu.memory_bytes, gpu.memory_total_bytes),
            None => share(hardware.and_then(|h| h.memory_available_bytes), total).map(|left| 1.0 - left),
        };
        Self {
            performance,
            settings,
            gpu,
            cpu: hardware.and_then(|h| h.cpu),
            process_cpu: hardware.and_then(|h| h.process_cpu),
            memory,
            own_memory: share(hardware.and_then(|h| h.memory_bytes), total),
        }
    }

    fn waits(&self) -> bool {
        self.performance.time.data_wait >= WAIT
    }

    /// Returns the run's share of the processor time on a machine that is fully used by others too.
    fn crowded(&self) -> Option<f64> {
        let share = self.process_cpu? / self.cpu.filter(|cpu| *cpu >= 0.9)?;
        (share < 0.6 && self.alone()).then_some(share)
    }

    /// Whether the run is a single process. With several ranks their use of this machine is not known.
    fn alone(&self) -> bool {
        self.performance.ranks.is_none()
    }

    /// Returns the largest power of two, up to 8, by which a batch can grow within 85 % of the memory. Memory in use is
    /// `a + b·batch`, so a batch `k` times as large takes at most `k` times the memory.
    fn room(&self) -> Option<usize> {
        let memory = self.memory.filter(|memory| *memory > 0.0)?;
        [8, 4, 2].into_iter().find(|k| memory * *k as f64 <= 0.85)
    }
}

/// Recommends less memory if memory is nearly full.
fn memory(facts: &Facts) -> Option<Recommendation> {
    let (memory, settings) = (facts.memory?, facts.settings);
    if memory < if facts.gpu.is_some() { 0.95 } else { 0.92 } {
        return None;
    }
    let finding = format!("memory {}", percent(memory));
    if facts.gpu.is_none() && facts.alone() && facts.own_memory.is_some_and(|own| own < memory / 2.0) {
        let own = percent(facts.own_memory?);
        return Some(stated(finding, format!("this run has {own} of it, something else is holding the rest")));
    }
    if !settings.checkpointing {
        let reason = "activations are computed again instead of kept";
        return Some(advised(finding, vec![change("train.gradient_checkpointing", false, true)], reason));
    }
    let (batch, accumulation) = (settings.batch_size, settings.accumulation);
    if let Some(seconds) = settings.max_batch_seconds {
        let halved = change("data.max_batch_seconds", seconds, seconds / 2.0);
        return Some(advised(finding, vec![halved], "half the activations, and more steps in an epoch"));
    }
    // The halves of an odd batch would not make the same optimizer step.
    (batch.is_multiple_of(2)).then(|| {
        let changes = vec![
            change("data.batch_size", batch, batch / 2),
            change("train.accumulation", accumulation, accumulation.saturating_mul(2)),
        ];
        advised(finding, changes, "the same steps with half the activations")
    })
}

/// Reports that other processes take the processor.
fn crowded(facts: &Facts) -> Option<Recommendation> {
    let share = facts.crowded().filter(|_| facts.gpu.is_none() || facts.waits())?;
    let finding = format!("CPU {} used", percent(facts.cpu?));
    Some(stated(finding, format!("this run has {} of that, something else is running", percent(share))))
}

/// Recommends more loading capacity if the data loader is slower than the model.
fn data_wait(facts: &Facts) -> Option<Recommendation> {
    let Settings { cores, workers, prefetch_batches: prefetch, .. } = *facts.settings;
    if !facts.waits() {
        return None;
    }
    let wait = facts.performance.time.data_wait;
    let finding = format!("data wait {}", percent(wait));
    if prefetch < workers {
        let reason = "no more workers than that are ever busy";
        return Some(advised(
            finding,
            vec![change("data.prefetch_batches", prefetch, workers.saturating_mul(2))],
            reason,
        ));
    }
    // While the model waits, the workers are always busy and make one batch per step. Without the wait a step takes
    // 1 − wait of its time, so workers / (1 − wait) are enough; half as many again for batches that take longer.
    let wanted = (1.5 * workers as f64 / (1.0 - wait).max(0.1)).ceil() as usize;
    // If processors are idle, workers wait for a disk, and more workers than cores are useful.
    let most = if facts.cpu.is_some_and(|cpu| cpu < 0.7) { 2 * cores } else { cores };
    let wanted = wanted.min(most);
    let saturated = facts.cpu.is_some_and(|cpu| cpu >= 0.9);
    if wanted > workers && !saturated {
        let mut changes = vec![change("data.workers", workers, wanted)];
        if prefetch < wanted {
            changes.push(change("data.prefetch_batches", prefetch, wanted.saturating_mul(2)));
        }
        return Some(advised(finding, changes, ""));
    }
    let cpu = facts.cpu.filter(|_| facts.crowded().is_none())?;
    let used = format!("{workers} workers on {cores} cores and the CPU {} used", percent(cpu));
    Some(stated(finding, format!("{used}: use samples that are cheaper to make, or a machine with more cores")))
}

/// Recommends the GPU's faster arithmetic if the run does not use it.
fn compute(facts: &Facts) -> Option<Recommendation> {
    let (gpu, time) = (facts.gpu?, &facts.performance.time);
    let bound = time.forward + time.backward >= 0.5 && gpu.utilization.is_none_or(|busy| busy >= 0.7);
    let now = facts.settings.compute;
    if !matches!(now, Compute::F32 | Compute::Tf32) || !bound {
        return None;
    }
    let (proposed, fast) = [Compute::Bf16, Compute::F16]
        .into_iter()
        .find_map(|compute| Some((compute, peak_flops(&gpu.name, compute)?)))?;
    let slow = peak_flops(&gpu.name, now)?;
    let finding = format!("forward and backward {}", percent(time.forward + time.backward));
    let reason = format!("{} TFLOP/s instead of {} on this card", tera(fast), tera(slow));
    Some(advised(finding, vec![change("train.compute", now.to_string(), proposed.to_string())], &reason))
}

/// Recommends a larger batch if the GPU is not fully used.
fn batch(facts: &Facts) -> Option<Recommendation> {
    let (gpu, settings) = (facts.gpu?, facts.settings);
    let idle = gpu.utilization.is_some_and(|busy| busy < 0.9);
    let slow = facts.performance.mfu.is_some_and(|mfu| mfu < 0.3);
    if facts.waits() || !(idle || slow) {
        return None;
    }
    let mut finding = vec![format!("memory {}", percent(facts.memory?))];
    finding.extend(gpu.utilization.map(|busy| format!("GPU {} busy", percent(busy))));
    finding.extend(facts.performance.mfu.map(|mfu| format!("MFU {}", percent(mfu))));
    let finding = finding.join(", ");
    let (batch, accumulation, room) = (settings.batch_size, settings.accumulation, facts.room()?);
    if let Some(seconds) = settings.max_batch_seconds {
        let reason = "at least that fits; an epoch has fewer steps then, and the learning rate may have to follow";
        let larger = change("data.max_batch_seconds", seconds, seconds * room as f64);
        return Some(advised(finding, vec![larger], reason));
    }
    // If accumulation shrinks by the same factor, only the speed changes.
    match [8, 4, 2].into_iter().find(|k| *k <= room && accumulation.is_multiple_of(*k)) {
        Some(k) => {
            let changes = vec![
                change("data.batch_size", batch, batch.saturating_mul(k)),
                change("train.accumulation", accumulation, accumulation / k),
            ];
            Some(advised(finding, changes, "the same steps in fewer, larger batches"))
        }
        None => {
            let reason =
                "at least that fits, and `cargo xtask tune` finds the most; the learning rate may have to follow";
            Some(advised(finding, vec![change("data.batch_size", batch, batch.saturating_mul(room))], reason))
        }
    }
}

/// Recommends less padding if transfers of batches take long.
fn transfer(facts: &Facts) -> Option<Recommendation> {
    let (transfer, settings) = (facts.performance.time.transfer, facts.settings);
    (transfer >= 0.1 && settings.pads_to_window).then(|| {
        let finding = format!("transfer {}", percent(transfer));
        advised(finding, vec![change("data.pad", "window", "longest")], "silence need not be moved")
    })
}

/// Recommends fewer optimizer steps if the optimizer takes a large share of the time.
fn optimizer(facts: &Facts) -> Option<Recommendation> {
    let (share, accumulation) = (facts.performance.time.optimizer, facts.settings.accumulation);
    (share >= 0.2).then(|| {
        // The rest takes twice as long, the optimizer as long as before.
        let then = share / (2.0 * (1.0 - share) + share);
        let reason = format!(
            "its share becomes {}; a step sees twice the samples, so the learning rate may have to follow",
            percent(then)
        );
        let finding = format!("optimizer {}", percent(share));
        advised(finding, vec![change("train.accumulation", accumulation, accumulation.saturating_mul(2))], &reason)
    })
}

/// Recommends less logging if a large share of the time is neither loading nor learning.
fn other(facts: &Facts) -> Option<Recommendation> {
    let (share, every) = (facts.performance.time.other, facts.settings.log_every);
    (share >= 0.15 && every < 10)
        .then(|| advised(format!("other {}", percent(share)), vec![change("train.log_every", every, 10)], ""))
}

fn change(key: &str, present: impl Into<Value>, proposed: impl Into<Value>) -> Change {
    Change { key: key.to_owned(), present: present.into(), proposed: proposed.into() }
}

fn advised(finding: String, changes: Vec<Change>, reason: &str) -> Recommendation {
    let mut text = format!("{finding}: {}", changes.iter().map(Change::sentence).collect::<Vec<_>>().join(" and "));
    if !reason.is_empty() {
        text += &format!(" ({reason})");
    }
    Recommendation { finding, changes, text }
}

fn stated(finding: String, what: String) -> Recommendation {
    Recommendation { text: format!("{finding}: {what}"), finding, changes: Vec::new() }
}

impl Change {
    fn sentence(&self) -> String {
        let verb = match (self.present.as_f64(), self.proposed.as_f64()) {
            (Some(present), Some(proposed)) if proposed > present => "raise",
            (Some(_), Some(_)) => "lower",
            _ => "set",
        };
        let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{verb} {} from {} to {}", self.key, bare(&self.present), bare(&self.proposed))
    }
}

/// Formats a share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn tera(flops: f64) -> String {
    format!("{:.0}", flops / 1e12)
}

#[cfg(test)]
#[path = "recommend_tests.rs"]
mod tests;
