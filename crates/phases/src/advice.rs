//! What to change when memory does not suffice, in order of what it saves.

use crate::footprint::{Footprint, Treatment};
use crate::{Experiment, Pad, Trainable};
use burn::module::Module;
use burn::tensor::Device;
use std::cell::Cell;
use std::fmt::Write;
use undertone_ops::{Capacity, Kernels, runs_ahead, runs_on_host};
use undertone_store::parameter_infos;
use undertone_train::{Amount, OptimizerName, available_memory_bytes};

/// How large a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Samples.
    pub samples: usize,
    /// Of the longest: frames of 10 ms of speech, tokens of text.
    pub length: usize,
    /// Whether that is speech.
    pub speech: bool,
    /// Tokens of the longest answer; 0 where none is written.
    pub labels: usize,
}

/// What was being computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Gradients of a batch.
    Training(BatchShape),
    /// Answers to a batch.
    Judging(BatchShape),
}

thread_local! {
    static MOMENT: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// Notes what this thread begins to compute: a backend that runs out of memory knows no batches.
pub(crate) fn begins(moment: Moment) {
    MOMENT.set(Some(moment));
}

/// A run, as far as memory is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// What was asked for.
    pub experiment: &'a Experiment,
    /// The model.
    pub footprint: Footprint,
    /// How it is trained.
    pub treatment: Treatment,
}

impl<'a> Situation<'a> {
    /// A run of `model`, whose dimensions give `footprint`.
    pub(crate) fn new(experiment: &'a Experiment, footprint: Footprint, model: &impl Module, device: &Device) -> Self {
        let trained = parameter_infos(model).into_iter().filter(|info| info.trainable);
        let (mut count, mut encoder) = (0, false);
        for info in trained {
            count += info.shape.iter().product::<usize>() as u64;
            encoder |= info.name.contains("encoder.");
        }
        let fused = !runs_ahead(device) && experiment.kernels == Kernels::Fused;
        let treatment = if fused { Treatment::CPU } else { Treatment::ACCELERATOR };
        let checkpointed = experiment.train.gradient_checkpointing.every().is_some();
        let treatment = Treatment { checkpointed, ..treatment };
        Self { experiment, footprint: footprint.training(count, encoder), treatment }
    }

    /// What to say when an allocation failed, for the reason that the backend gave, at the last noted moment.
    pub(crate) fn out_of_memory(&self, reason: &str) -> String {
        self.message(reason, MOMENT.get())
    }

    /// What to say when an allocation failed at a given moment of training, for the reason that the backend gave.
    pub fn message(&self, reason: &str, moment: Option<Moment>) -> String {
        let (doing, shape) = match moment {
            Some(Moment::Training(shape)) => ("in a training step", Some(shape)),
            Some(Moment::Judging(shape)) => ("while the model was judged", Some(shape)),
            None => ("before the first batch", None),
        };
        let mut text = format!("memory ran out {doing}: {reason}");
        if let Some(shape) = shape {
            let _ = write!(text, "; the batch had {shape}");
        }
        text + &self.list(moment)
    }

    /// A warning if by arithmetic the run will want more than there is, as far as that is known.
    pub(crate) fn warning(&self, device: &Device) -> Option<String> {
        let Capacity { total, tensor } = Capacity::of(device);
        let available = if runs_on_host(device) { available_memory_bytes() } else { total };
        let short = available.and_then(|available| self.shortage(available));
        short.or_else(|| tensor.and_then(|most| self.too_large(most)))
    }

    /// The warning where a tensor may have no more than so many bytes. Of what helps against a lack of memory, only smaller
    /// batches help here.
    pub fn too_large(&self, most: u64) -> Option<String> {
        let data = &self.experiment.data;
        let fits = (most / self.footprint.largest_tensor(1).max(1)) as usize;
        let keys = [("data.batch_size", data.batch_size), ("data.eval_batch_size", data.eval_batch_size)];
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

    /// The warning where so many bytes are available.
    pub fn shortage(&self, available: u64) -> Option<String> {
        let (batch, accumulation) = (self.experiment.data.batch_size, self.experiment.train.accumulation);
        let wanted = self.footprint.bytes(batch, accumulation, &self.treatment);
        let text = || {
            format!(
                "warning: on its longest samples training will hold about {}, and {} are available: it may fail",
                Amount(wanted),
                Amount(available)
            ) + &self.list(None)
        };
        (wanted > available).then(text)
    }

    fn list(&self, moment: Option<Moment>) -> String {
        let mut text = String::from("\nwhat helps, most first:");
        for Advice { change, saves } in self.advice(moment) {
            let _ = match saves {
                0 => write!(text, "\n  {change}"),
                _ => write!(text, "\n  {change}: about {} less", Amount(saves)),
            };
        }
        text + "\n  `cargo xtask tune` finds the largest batch that fits, and writes the configuration"
    }

    /// What helps, by what it saves.
    fn advice(&self, moment: Option<Moment>) -> Vec<Advice> {
        let data = &self.experiment.data;
        if let Some(Moment::Judging(_)) = moment {
            let halved = (data.eval_batch_size > 1).then(|| Advice {
                change: format!("data.eval_batch_size {} → {}", data.eval_batch_size, data.eval_batch_size / 2),
                saves: 0,
            });
            return halved.into_iter().collect();
        }
        // The footprint of the batch that it was, or of the largest that there can be.
        let now = match moment {
            Some(Moment::Training(shape)) => self.footprint.on(shape.positions(), shape.labels),
            _ => self.footprint,
        };
        let (batch, accumulation, treatment) = (data.batch_size, self.experiment.train.accumulation, self.treatment);
        let wanted = now.bytes(batch, accumulation, &treatment);
        let saved = |less: u64| wanted.saturating_sub(less);
        let mut advice = Vec::new();
        if batch > 1 {
            let (half, twice) = (batch / 2, accumulation * batch.div_ceil(batch / 2));
            let same = if half * twice == batch * accumulation { ", which learns the same" } else { "" };
            advice.push(Advice {
                change: format!(
                    "data.batch_size {batch} → {half} with train.accumulation {accumulation} → {twice}{same}"
                ),
                saves: saved(now.bytes(half, twice, &treatment)),
            });
        }
        if self.experiment.tasks.is_empty() && self.experiment.model.trainable == Trainable::All {
            let decoder = now.training(now.trainable.saturating_sub(now.encoder_parameters()), false);
            advice.push(Advice {
                change: "model.trainable: decoder, which leaves the encoder as it is".into(),
                saves: saved(decoder.bytes(batch, accumulation, &treatment)),
            });
        }
        if self.experiment.kernels == Kernels::Composed {
            let fused = Treatment { kernels: Kernels::Fused, ..treatment };
            advice.push(Advice {
                change: "kernels: fused, on a CPU".into(),
                saves: saved(now.bytes(batch, accumulation, &fused)),
            });
        }
        if self.experiment.model.backbone.is_text() {
            let shorter = now.on(now.positions() / 2, now.labels() / 2);
            advice.push(Advice {
                change: "half of `max_length` or `max_source` in the head of the task with the longest texts".into(),
                saves: saved(shorter.bytes(batch, accumulation, &treatment)),
            });
        }
        if !treatment.checkpointed {
            let checkpointed = Treatment { checkpointed: true, ..treatment };
            advice.push(Advice {
                change: "train.gradient_checkpointing: true, which learns the same in up to a third more time".into(),
                saves: saved(now.bytes(batch, accumulation, &checkpointed)),
            });
        }
        if self.experiment.train.optimizer.name == OptimizerName::Adamw {
            // AdamW's two moments are nearly all of it; Adafactor keeps a row and a column of each matrix.
            let saves = 8 * now.trainable;
            advice.push(Advice { change: "train.optimizer.name: adafactor, which learns otherwise".into(), saves });
        }
        advice.retain(|advice| advice.saves > 0);
        if self.experiment.data.pad == Pad::Window && !self.experiment.model.backbone.is_text() {
            let change = "data.pad: longest, as much as samples are shorter than the window".into();
            advice.push(Advice { change, saves: 0 });
        }
        advice.sort_by_key(|advice| std::cmp::Reverse(advice.saves));
        advice
    }
}

/// A change, and the bytes it saves by arithmetic; 0 where that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Advice {
    change: String,
    saves: u64,
}

impl BatchShape {
    /// Positions of the encoder.
    fn positions(self) -> usize {
        if self.speech { self.length.div_ceil(2) } else { self.length }
    }
}

impl std::fmt::Display for BatchShape {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let (samples, length) = (self.samples, self.length);
        match self.speech {
            true => write!(f, "{samples} samples of up to {length} frames ({:.1} s)", length as f64 / 100.0)?,
            false => write!(f, "{samples} samples of up to {length} tokens")?,
        }
        if self.labels > 0 { write!(f, " and {} tokens to write", self.labels) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_model::text::TextEncoderConfig;
    use undertone_model::whisper::WhisperConfig;

    const SHAPE: BatchShape = BatchShape { samples: 16, length: 3000, speech: true, labels: 120 };

    /// Whisper tiny on a GPU.
    fn situation(experiment: &Experiment) -> Situation<'_> {
        let footprint = Footprint::whisper(&WhisperConfig::default());
        Situation { experiment, footprint, treatment: Treatment::ACCELERATOR }
    }

    #[test]
    fn the_message_says_what_ran_out_where_and_what_helps_most_first() {
        let mut experiment = Experiment::default();
        experiment.data.pad = Pad::Window;
        let said =
            situation(&experiment).message("out of device memory allocating 4096 bytes", Some(Moment::Training(SHAPE)));
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
        let mut experiment = Experiment::default();
        for (batch, first) in [(16, "train.gradient_checkpointing"), (1, "train.optimizer.name")] {
            experiment.data.batch_size = batch;
            let advice = situation(&experiment).advice(Some(Moment::Training(SHAPE)));
            assert!(advice[0].change.contains(first), "{advice:?}");
            assert!(advice.windows(2).all(|pair| pair[0].saves >= pair[1].saves), "{advice:?}");
            assert_eq!(advice.iter().any(|a| a.change.contains("batch_size")), batch > 1);
        }
        experiment.model.trainable = Trainable::Decoder;
        experiment.data.batch_size = 7;
        let advice = situation(&experiment).advice(None);
        assert!(advice[0].change.starts_with("data.batch_size 7 → 3"), "{advice:?}");
        assert!(!advice[0].change.contains("same"), "3 × 3 are not 7");
    }

    #[test]
    fn judging_and_text_have_their_own_keys() {
        let mut experiment = Experiment::default();
        let judged = situation(&experiment).message("CUDA out of memory", Some(Moment::Judging(SHAPE)));
        assert!(judged.contains("data.eval_batch_size 16 → 8") && !judged.contains("accumulation"), "{judged}");
        experiment.model.backbone = crate::Backbone::Bert;
        let footprint = Footprint::text(&TextEncoderConfig::default(), 512);
        let text = Situation { footprint, ..situation(&experiment) };
        let shape = BatchShape { samples: 16, length: 128, speech: false, labels: 0 };
        let said = text.message("CUDA out of memory", Some(Moment::Training(shape)));
        assert!(said.contains("max_length") && said.contains("up to 128 tokens"), "{said}");
    }

    #[test]
    fn a_shortage_is_foreseen_with_the_same_advice() {
        let experiment = Experiment::default();
        let situation = situation(&experiment);
        assert_eq!(situation.shortage(500_000_000_000), None);
        let warning = situation.shortage(4_000_000_000).expect("too little");
        assert!(warning.contains("4.00 GB") && warning.contains("data.batch_size 16 → 8"), "{warning}");
    }

    #[test]
    fn a_tensor_that_no_piece_of_memory_holds_is_foreseen() {
        let experiment = Experiment::default();
        let situation = situation(&experiment);
        // 16 samples of 1500 positions, 1536 wide, in f32.
        let wanted = 16 * 1500 * 1536 * 4;
        assert_eq!(situation.too_large(wanted), None);
        let warning = situation.too_large(1 << 27).expect("too large");
        let parts = ["147 MB", "134 MB", "data.batch_size from 16 to 14 and data.eval_batch_size from 16 to 14"];
        assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
        let mut small = Experiment::default();
        small.data.batch_size = 4;
        let warning = super::tests::situation(&small).too_large(1 << 27).expect("too large to judge");
        assert!(warning.contains("eval_batch_size from 16") && !warning.contains("data.batch_size"), "{warning}");
        let warning = situation.too_large(1 << 20).expect("too large");
        assert!(warning.contains("not even one"), "{warning}");
    }

    #[test]
    fn noted_moments_are_the_last_of_their_thread() {
        begins(Moment::Judging(SHAPE));
        begins(Moment::Training(SHAPE));
        std::thread::spawn(|| begins(Moment::Judging(SHAPE))).join().expect("joined");
        let experiment = Experiment::default();
        assert!(situation(&experiment).out_of_memory("x").contains("in a training step"));
    }
}
