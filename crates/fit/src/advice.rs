//! Remedies for a lack of memory, in the order of their savings.

use crate::execution::Execution;
use crate::footprint::Footprint;
use crate::workload::{Workload, noted_workload};
use burn::module::Module;
use burn::tensor::Device;
use std::fmt::Write;
use undertone_model::frozen::FrozenDtype;
use undertone_ops::{Capacity, Compute, Implementation, Kernels, runs_on_host};
use undertone_store::parameter_infos;
use undertone_train::{Amount, available_memory_bytes};

/// Settings of a run that determine the memory of training, or that can be changed to reduce it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSettings {
    /// Samples per batch in training.
    pub batch_size: usize,
    /// Limit of the audio in a batch, in seconds.
    pub max_batch_seconds: Option<f64>,
    /// Samples per batch in evaluation.
    pub eval_batch_size: usize,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// Configured kernels.
    pub kernels: Kernels,
    /// Whether activation checkpointing is on.
    pub checkpointed: bool,
    /// Whether the whole model is trained, so that a part of it could be frozen.
    pub trains_all: bool,
    /// Whether the model reads text rather than speech.
    pub reads_text: bool,
    /// Whether batches are padded to the model's window.
    pub pads_to_window: bool,
    /// Whether the optimizer is AdamW, which keeps two moments of each trained parameter.
    pub adamw: bool,
}

impl RunSettings {
    /// Returns the settings with as many samples per batch as it has of the longest ones.
    fn of_longest(self, footprint: &Footprint) -> Self {
        // Short ones become as long as the window.
        if self.pads_to_window {
            return self;
        }
        let fitting = |most: f64| (most / (footprint.positions() as f64 * POSITION)).max(1.0) as usize;
        Self { batch_size: self.batch_size.min(self.max_batch_seconds.map_or(usize::MAX, fitting)), ..self }
    }
}

/// Seconds of audio in a position of an encoder of speech.
const POSITION: f64 = 0.02;

/// Messages and remedies if the memory of a run does not suffice or is estimated not to.
#[derive(Clone, Copy, Debug)]
pub struct MemoryAdvice {
    /// Settings of the run.
    pub settings: RunSettings,
    /// Memory estimate of the model.
    pub footprint: Footprint,
    /// Execution of the passes.
    pub execution: Execution,
}

impl MemoryAdvice {
    /// Creates the advice for training `model`, whose dimensions determine `footprint`, with products in `compute` on a device.
    pub fn new(
        settings: RunSettings,
        footprint: Footprint,
        model: &impl Module,
        device: &Device,
        compute: Compute,
    ) -> Self {
        let trained = parameter_infos(model).into_iter().filter(|info| info.trainable);
        let (mut count, mut encoder) = (0, false);
        for info in trained {
            count += info.shape.iter().product::<usize>() as u64;
            encoder |= info.name.contains("encoder.");
        }
        let execution = Execution { checkpointed: settings.checkpointed, ..Execution::on(device, compute) };
        Self { settings: settings.of_longest(&footprint), footprint: footprint.training(count, encoder), execution }
    }

    /// Returns the message for a failed allocation at the last noted workload. `reason` is the backend's error.
    pub fn out_of_memory(&self, reason: &str) -> String {
        self.message(reason, noted_workload())
    }

    /// Returns the message for a failed allocation at a given workload of training. `reason` is the backend's error.
    pub fn message(&self, reason: &str, workload: Option<Workload>) -> String {
        let (doing, shape) = match workload {
            Some(Workload::TrainingStep(shape)) => ("in a training step", Some(shape)),
            Some(Workload::Evaluation(shape)) => ("while the model was evaluated", Some(shape)),
            None => ("before the first batch", None),
        };
        let mut text = format!("memory ran out {doing}: {reason}");
        if let Some(shape) = shape {
            let _ = write!(text, "; the batch had {shape}");
        }
        text + &self.list(workload)
    }

    /// Returns a warning if the run is estimated to need more memory than there is, as far as that is known.
    pub fn warning(&self, device: &Device) -> Option<String> {
        let Capacity { total, tensor } = Capacity::of(device);
        let available = if runs_on_host(device) { available_memory_bytes() } else { total };
        let short = available.and_then(|available| self.shortage(available));
        short.or_else(|| tensor.and_then(|most| self.too_large(most)))
    }

    /// Returns a warning if a tensor would be larger than `most` bytes, the device's limit. Of the remedies for a lack
    /// of memory, only smaller batches help here.
    pub fn too_large(&self, most: u64) -> Option<String> {
        let settings = &self.settings;
        let fits = (most / self.footprint.largest_tensor(1).max(1)) as usize;
        let keys = [("data.batch_size", settings.batch_size), ("data.eval_batch_size", settings.eval_batch_size)];
        let over: Vec<(&str, usize)> = keys.into_iter().filter(|(_, batch)| *batch > fits).collect();
        let wanted = self.footprint.largest_tensor(over.iter().map(|(_, batch)| *batch).max()?);
        let way_out = match fits {
            0 => "not even one such sample fits: use a smaller model or another device".to_owned(),
            _ => {
                let lower: Vec<String> =
                    over.iter().map(|(key, batch)| format!("{key} from {batch} to {fits}")).collect();
                format!("lower {} (train.accumulation makes up for it in training)", lower.join(" and "))
            }
        };
        Some(format!(
            "warning: on its longest samples a batch has a tensor of about {}, and this device takes no more than {} in one \
             piece: it will fail there; {way_out}",
            Amount(wanted),
            Amount(most)
        ))
    }

    /// Returns a warning if `available` bytes are not enough.
    pub fn shortage(&self, available: u64) -> Option<String> {
        let (batch, accumulation) = (self.settings.batch_size, self.settings.accumulation);
        let wanted = self.footprint.bytes(batch, accumulation, &self.execution);
        let text = || {
            format!(
                "warning: on its longest samples training will hold about {}, and {} are available: it may fail",
                Amount(wanted),
                Amount(available)
            ) + &self.list(None)
        };
        (wanted > available).then(text)
    }

    fn list(&self, workload: Option<Workload>) -> String {
        let mut text = String::from("\nwhat helps, most first:");
        for Change { change, saves } in self.changes(workload) {
            let _ = match saves {
                0 => write!(text, "\n  {change}"),
                _ => write!(text, "\n  {change}: about {} less", Amount(saves)),
            };
        }
        if self.settings.max_batch_seconds.is_none() {
            text.push_str("\n  `cargo xtask tune` finds the largest batch that fits, and writes the configuration");
        }
        text
    }

    /// Returns the remedies in the order of their savings.
    fn changes(&self, workload: Option<Workload>) -> Vec<Change> {
        let settings = &self.settings;
        if let Some(Workload::Evaluation(_)) = workload {
            let halved = (settings.eval_batch_size > 1).then(|| Change {
                change: format!("data.eval_batch_size {} → {}", settings.eval_batch_size, settings.eval_batch_size / 2),
                saves: 0,
            });
            return halved.into_iter().collect();
        }
        // Footprint of the actual batch, or else of the largest possible one.
        let now = match workload {
            Some(Workload::TrainingStep(shape)) => self.footprint.on(shape.positions(), shape.labels),
            _ => self.footprint,
        };
        let (batch, accumulation, execution) = (settings.batch_size, settings.accumulation, self.execution);
        let wanted = now.bytes(batch, accumulation, &execution);
        let saved = |less: u64| wanted.saturating_sub(less);
        let mut changes = Vec::new();
        if let Some(most) = settings.max_batch_seconds.filter(|_| batch > 1) {
            changes.push(Change {
                change: format!("data.max_batch_seconds {most} → {}, which makes more steps of an epoch", most / 2.0),
                saves: saved(now.bytes(batch / 2, accumulation, &execution)),
            });
        } else if batch > 1 {
            let (half, twice) = (batch / 2, accumulation * batch.div_ceil(batch / 2));
            let same = if half * twice == batch * accumulation { ", which learns the same" } else { "" };
            changes.push(Change {
                change: format!(
                    "data.batch_size {batch} → {half} with train.accumulation {accumulation} → {twice}{same}"
                ),
                saves: saved(now.bytes(half, twice, &execution)),
            });
        }
        if settings.trains_all {
            let decoder = now.training(now.trainable.saturating_sub(now.encoder_parameters()), false);
            changes.push(Change {
                change: "model.trainable: decoder, which leaves the encoder as it is".into(),
                saves: saved(decoder.bytes(batch, accumulation, &execution)),
            });
        }
        if !settings.trains_all && now.frozen() == FrozenDtype::F32 {
            let held = now.holding(FrozenDtype::Bf16);
            changes.push(Change {
                change: "model.frozen_dtype: bf16, which rounds what is not trained".into(),
                saves: saved(held.bytes(batch, accumulation, &execution)),
            });
        }
        if settings.kernels == Kernels::Composed && execution.implementation == Implementation::Composed {
            let fused = Execution { implementation: Implementation::Host, ..execution };
            changes.push(Change {
                change: "kernels: fused, on a CPU".into(),
                saves: saved(now.bytes(batch, accumulation, &fused)),
            });
        }
        if settings.reads_text {
            let shorter = now.on(now.positions() / 2, now.labels() / 2);
            changes.push(Change {
                change: "half of `max_length` or `max_source` in the head of the task with the longest texts".into(),
                saves: saved(shorter.bytes(batch, accumulation, &execution)),
            });
        }
        if !execution.checkpointed {
            let checkpointed = Execution { checkpointed: true, ..execution };
            changes.push(Change {
                change: "train.gradient_checkpointing: true, which learns the same in up to a third more time".into(),
                saves: saved(now.bytes(batch, accumulation, &checkpointed)),
            });
        }
        if settings.adamw {
            // AdamW's two moments are nearly all of it; Adafactor keeps a row and a column of each matrix.
            let saves = saved(now.with_optimizer_state(0).bytes(batch, accumulation, &execution));
            changes.push(Change { change: "train.optimizer.name: adafactor, which learns otherwise".into(), saves });
        }
        changes.retain(|change| change.saves > 0);
        if settings.pads_to_window && !settings.reads_text {
            let change = "data.pad: longest, as much as samples are shorter than the window".into();
            changes.push(Change { change, saves: 0 });
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.saves));
        changes
    }
}

/// A change and its estimated savings in bytes; 0 if they are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    change: String,
    saves: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{BatchSize, note_workload};
    use undertone_model::text::TextEncoderConfig;
    use undertone_model::whisper::WhisperConfig;

    const SHAPE: BatchSize = BatchSize { samples: 16, length: 3000, speech: true, labels: 120 };

    /// Default settings.
    const USUAL: RunSettings = RunSettings {
        batch_size: 16,
        max_batch_seconds: None,
        eval_batch_size: 16,
        accumulation: 1,
        kernels: Kernels::Fused,
        checkpointed: false,
        trains_all: true,
        reads_text: false,
        pads_to_window: false,
        adamw: true,
    };

    /// Returns the advice for Whisper tiny on a GPU.
    fn advice(settings: RunSettings) -> MemoryAdvice {
        let footprint = Footprint::whisper(&WhisperConfig::default());
        MemoryAdvice { settings, footprint, execution: Execution::GPU }
    }

    #[test]
    fn the_message_says_what_ran_out_where_and_what_helps_most_first() {
        let settings = RunSettings { pads_to_window: true, ..USUAL };
        let said =
            advice(settings).message("out of device memory allocating 4096 bytes", Some(Workload::TrainingStep(SHAPE)));
        println!("{said}");
        let lines: Vec<&str> = said.lines().collect();
        for part in ["in a training step", "allocating 4096 bytes", "16 samples", "3000 frames (30.0 s)", "120 tokens"]
        {
            assert!(lines[0].contains(part), "{part} is missing in {}", lines[0]);
        }
        let at = |part: &str| lines.iter().position(|line| line.contains(part)).expect(part);
        let batch = at("data.batch_size 16 → 8 with train.accumulation 1 → 2, which learns the same");
        assert!(at("model.trainable: decoder") > 1 && batch > 1);
        assert!(at("data.pad: longest") > batch && at("cargo xtask tune") == lines.len() - 1);
    }

    #[test]
    fn advice_is_in_order_of_gain_for_this_configuration() {
        for (batch, first) in [(16, "train.gradient_checkpointing"), (1, "train.optimizer.name")] {
            let advice =
                advice(RunSettings { batch_size: batch, ..USUAL }).changes(Some(Workload::TrainingStep(SHAPE)));
            assert!(advice[0].change.contains(first), "{advice:?}");
            assert!(advice.windows(2).all(|pair| pair[0].saves >= pair[1].saves), "{advice:?}");
            assert_eq!(advice.iter().any(|a| a.change.contains("batch_size")), batch > 1);
        }
        let advice = advice(RunSettings { trains_all: false, batch_size: 7, ..USUAL }).changes(None);
        let batch = advice.iter().find(|a| a.change.starts_with("data.batch_size 7 → 3")).expect("a smaller batch");
        assert!(!batch.change.contains("same"), "3 × 3 are not 7: {advice:?}");
        let of_frozen = |advice: &[Change]| advice.iter().any(|a| a.change.starts_with("model.frozen_dtype: bf16"));
        let adapted = |frozen| {
            let footprint = Footprint::whisper(&WhisperConfig::default()).training(500_000, true).holding(frozen);
            MemoryAdvice { footprint, ..self::advice(RunSettings { trains_all: false, ..USUAL }) }.changes(None)
        };
        assert!(of_frozen(&adapted(FrozenDtype::F32)) && !of_frozen(&adapted(FrozenDtype::Bf16)));
        assert!(!of_frozen(&self::advice(USUAL).changes(None)), "nothing is frozen");
    }

    #[test]
    fn batches_by_seconds_have_as_many_of_the_longest_samples_as_fit() {
        let footprint = Footprint::whisper(&WhisperConfig::default());
        let settings = RunSettings { max_batch_seconds: Some(240.0), ..USUAL }.of_longest(&footprint);
        assert_eq!((settings.batch_size, USUAL.of_longest(&footprint).batch_size), (8, 16));
        let advice = advice(settings).changes(None);
        assert!(advice.iter().any(|a| a.change.starts_with("data.max_batch_seconds 240 → 120")), "{advice:?}");
        assert!(!advice.iter().any(|a| a.change.contains("data.batch_size")), "{advice:?}");
    }

    #[test]
    fn judging_and_text_have_their_own_keys() {
        let evaluated = advice(USUAL).message("CUDA out of memory", Some(Workload::Evaluation(SHAPE)));
        assert!(
            evaluated.contains("data.eval_batch_size 16 → 8") && !evaluated.contains("accumulation"),
            "{evaluated}"
        );
        let footprint = Footprint::text(&TextEncoderConfig::default(), 512);
        let text = MemoryAdvice { footprint, ..advice(RunSettings { reads_text: true, ..USUAL }) };
        let shape = BatchSize { samples: 16, length: 128, speech: false, labels: 0 };
        let said = text.message("CUDA out of memory", Some(Workload::TrainingStep(shape)));
        assert!(said.contains("max_length") && said.contains("up to 128 tokens"), "{said}");
    }

    #[test]
    fn a_shortage_is_foreseen_with_the_same_advice() {
        let advice = advice(USUAL);
        assert_eq!(advice.shortage(500_000_000_000), None);
        let warning = advice.shortage(4_000_000_000).expect("too little");
        assert!(warning.contains("4.00 GB") && warning.contains("data.batch_size 16 → 8"), "{warning}");
    }

    #[test]
    fn a_tensor_that_no_piece_of_memory_holds_is_foreseen() {
        let advice = advice(USUAL);
        // 16 samples of 1500 positions, 1536 wide, in f32.
        let wanted = 16 * 1500 * 1536 * 4;
        assert_eq!(advice.too_large(wanted), None);
        let warning = advice.too_large(1 << 27).expect("too large");
        let parts = ["147 MB", "134 MB", "data.batch_size from 16 to 14 and data.eval_batch_size from 16 to 14"];
        assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
        let small = RunSettings { batch_size: 4, ..USUAL };
        let warning = super::tests::advice(small).too_large(1 << 27).expect("too large to judge");
        assert!(warning.contains("eval_batch_size from 16") && !warning.contains("data.batch_size"), "{warning}");
        let warning = advice.too_large(1 << 20).expect("too large");
        assert!(warning.contains("not even one"), "{warning}");
    }

    #[test]
    fn noted_workloads_are_the_last_of_their_thread() {
        note_workload(Workload::Evaluation(SHAPE));
        note_workload(Workload::TrainingStep(SHAPE));
        std::thread::spawn(|| note_workload(Workload::Evaluation(SHAPE))).join().expect("joined");
        assert!(advice(USUAL).out_of_memory("x").contains("in a training step"));
    }
}
