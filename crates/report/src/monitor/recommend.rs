//! What a run's own numbers say should be changed about it.

use serde::Serialize;
use serde_json::Value;
use undertone_ops::Compute;
use undertone_train::{Gpu, Performance, peak_flops};

/// Advice on one finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// What was measured, as in `data wait 38 %`.
    pub finding: String,
    /// Which keys to change; none where none helps.
    pub changes: Vec<Change>,
    /// All of it in one sentence.
    pub text: String,
}

/// A key of the configuration and its values now and then.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The key, as `--set` takes it.
    pub key: String,
    /// The value that the run has.
    pub present: Value,
    /// The value it should have.
    pub proposed: Value,
}

/// What a run was told that advice can change, and where it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Cores that the process may use.
    pub cores: usize,
    /// Whether it computes on a GPU; not known where the device is `auto`.
    pub on_gpu: Option<bool>,
    /// Threads that make samples.
    pub workers: usize,
    /// Batches made ahead.
    pub prefetch_batches: usize,
    /// Samples per batch.
    pub batch_size: usize,
    /// Whether batches are padded to the model's window although their clips are shorter.
    pub pads_to_window: bool,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// The type that forward and backward pass compute in.
    pub compute: Compute,
    /// Optimizer steps between two lines of the log.
    pub log_every: u64,
    /// The key of activation checkpointing and whether it is on, where the configuration has it.
    pub checkpointing: Option<(String, bool)>,
}

/// Fewer steps than this say little: the first ones start threads and compile kernels.
pub const MEASURED_STEPS: u64 = 10;

/// What should be changed about a run whose latest steps went as `performance` says, the most urgent first; nothing if all
/// is well, or fewer than [`MEASURED_STEPS`] were measured. Keys are named only if `settings` are known.
pub fn recommend(performance: &Performance, settings: Option<&Settings>) -> Vec<Recommendation> {
    let Some(settings) = settings.filter(|_| performance.steps >= MEASURED_STEPS) else { return Vec::new() };
    let facts = Facts::new(performance, settings);
    let rules: [fn(&Facts) -> Option<Recommendation>; 8] =
        [memory, crowded, data_wait, compute, batch, transfer, optimizer, other];
    let mut all: Vec<Recommendation> = Vec::new();
    for advice in rules.iter().filter_map(|rule| rule(&facts)) {
        // Two values for one key are no advice.
        let taken = |change: &Change| all.iter().any(|earlier| earlier.changes.iter().any(|c| c.key == change.key));
        if !advice.changes.iter().any(taken) {
            all.push(advice);
        }
    }
    all
}

/// The numbers behind "all is well".
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

/// What the rules look at.
struct Facts<'a> {
    performance: &'a Performance,
    settings: &'a Settings,
    /// The GPU it computes on, if it does.
    gpu: Option<&'a Gpu>,
    /// The machine's processors.
    cpu: Option<f64>,
    process_cpu: Option<f64>,
    /// The share of the GPU's memory that is taken, or of the machine's.
    memory: Option<f64>,
    /// The share of the machine's memory that the process has.
    own_memory: Option<f64>,
}

/// Where the device is `auto`, a GPU with less to do than this is not the run's.
const GPU_IN_USE: f64 = 0.05;
/// Waiting this long for data is worth a change.
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

    /// The run's share of a machine that has nothing left to give.
    fn crowded(&self) -> Option<f64> {
        let share = self.process_cpu? / self.cpu.filter(|cpu| *cpu >= 0.9)?;
        (share < 0.6 && self.alone()).then_some(share)
    }

    /// Whether the run is this process only: what others of it take on this machine is not known.
    fn alone(&self) -> bool {
        self.performance.ranks.is_none()
    }

    /// The largest power of two by which a batch can grow within 85 % of the memory. Taken memory is `a + b·batch`, so a
    /// batch `k` times as large takes at most `k` times the memory.
    fn room(&self) -> Option<usize> {
        let memory = self.memory.filter(|memory| *memory > 0.0)?;
        [8, 4, 2].into_iter().find(|k| memory * *k as f64 <= 0.85)
    }
}

/// Memory runs out.
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
    if let Some((key, false)) = &settings.checkpointing {
        let reason = "activations are computed again instead of kept";
        return Some(advised(finding, vec![change(key, false, true)], reason));
    }
    let (batch, accumulation) = (settings.batch_size, settings.accumulation);
    // Halves of an odd batch would not make the same step.
    (batch.is_multiple_of(2)).then(|| {
        let changes = vec![
            change("data.batch_size", batch, batch / 2),
            change("train.accumulation", accumulation, accumulation.saturating_mul(2)),
        ];
        advised(finding, changes, "the same steps with half the activations")
    })
}

/// Something else takes the processor.
fn crowded(facts: &Facts) -> Option<Recommendation> {
    let share = facts.crowded().filter(|_| facts.gpu.is_none() || facts.waits())?;
    let finding = format!("CPU {} used", percent(facts.cpu?));
    Some(stated(finding, format!("this run has {} of that, something else is running", percent(share))))
}

/// The loader is slower than the model.
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
    // While the model waits, the workers are busy all the time and make a batch per step. A step without the wait takes
    // 1 − wait of that, so as many workers divided by it keep up; half as many again for batches that take longer.
    let wanted = (1.5 * workers as f64 / (1.0 - wait).max(0.1)).ceil() as usize;
    // Workers that leave processors idle wait for a disk, and more of them than cores are of use.
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

/// The GPU has faster arithmetic than it is used with.
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

/// The GPU could do more at once.
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
    // As much of it as accumulation gives back changes nothing but the speed.
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

/// Moving batches takes long.
fn transfer(facts: &Facts) -> Option<Recommendation> {
    let (transfer, settings) = (facts.performance.time.transfer, facts.settings);
    (transfer >= 0.1 && settings.pads_to_window).then(|| {
        let finding = format!("transfer {}", percent(transfer));
        advised(finding, vec![change("data.pad", "window", "longest")], "silence need not be moved")
    })
}

/// The optimizer works more often than it needs to.
fn optimizer(facts: &Facts) -> Option<Recommendation> {
    let (share, accumulation) = (facts.performance.time.optimizer, facts.settings.accumulation);
    (share >= 0.2).then(|| {
        // Twice the rest, the optimizer once.
        let then = share / (2.0 * (1.0 - share) + share);
        let reason = format!(
            "its share becomes {}; a step sees twice the samples, so the learning rate may have to follow",
            percent(then)
        );
        let finding = format!("optimizer {}", percent(share));
        advised(finding, vec![change("train.accumulation", accumulation, accumulation.saturating_mul(2))], &reason)
    })
}

/// What is neither loading nor learning takes long.
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

/// A share as people write it.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn tera(flops: f64) -> String {
    format!("{:.0}", flops / 1e12)
}

#[cfg(test)]
#[path = "recommend_tests.rs"]
mod tests;
