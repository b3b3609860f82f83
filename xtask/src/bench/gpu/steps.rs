//! Training steps of Whispers, here and in PyTorch.

use super::bench::{Bench, s};
use super::report::Part;
use crate::bench::names::name;
use crate::bench::step::Size;
use crate::process::{cannot_use, from_here};
use serde_json::Value;
use std::process::Command;
use undertone::fit::{Execution, Footprint};
use undertone::ops::{Compute, DeviceSpec};
use undertone::train::gpu;
use undertone_cli::Failure;

/// Rank of the adapters.
const RANK: usize = 32;
/// Tokens per clip, as in `bench step`.
const TOKENS: usize = 32;

/// The table's columns that are filled later.
const COLUMNS: usize = 13;
const EAGER: usize = 8;
const COMPILED: usize = 11;
const SECONDS: usize = 3;

impl Bench<'_> {
    /// Measures full and LoRA steps of these sizes, and the same in PyTorch with its defaults.
    pub fn steps(&mut self, sizes: &[Size]) -> Result<(), Failure> {
        for size in sizes {
            for lora in [0, RANK] {
                self.step(*size, lora)?;
            }
        }
        Ok(())
    }

    /// Batch size for a model size, as is usual on cards of 80 GB and more.
    pub fn batch(&self, size: Size) -> usize {
        let usual = match size {
            Size::Nano | Size::Tiny => 64,
            Size::Base | Size::Small => 32,
            Size::Medium => 16,
            Size::LargeV3 => 8,
        };
        self.args.batch.unwrap_or(usual)
    }

    fn step(&mut self, size: Size, lora: usize) -> Result<(), Failure> {
        let mut batch = self.batch(size);
        let line = loop {
            let device = self.device.to_string();
            let mut arguments = vec!["bench".to_owned(), "step".to_owned()];
            arguments.extend(self.options(size, lora, batch, &device));
            let what = title(size, lora, batch);
            let text = self.our(&what, &arguments, [s(10), s(1800)])?;
            match text.as_deref().and_then(Self::line) {
                Some(line) => break line,
                // Half of it may fit.
                None if batch > 1 && self.report.last_left_out().contains("too little memory") => batch /= 2,
                None => return Ok(()),
            }
        };
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let seconds = number("seconds_per_step");
        let passes = if lora > 0 { 2.0 } else { 3.0 };
        let mfu = self.card.peak(Compute::Bf16).map(|peak| passes * number("forward_flops") / seconds / peak);
        let mut cells = vec![
            name(size),
            if lora > 0 { format!("LoRA {lora}") } else { "everything".to_owned() },
            batch.to_string(),
            format!("{seconds:.4}"),
            format!("{:.1}", number("samples_per_second")),
            mfu.map_or("?".to_owned(), |mfu| format!("{:.1} %", 100.0 * mfu)),
            gib(&line),
            reckoned(size, batch, number("trainable") as u64),
        ];
        cells.resize(COLUMNS, String::new());
        let first = cells[..3].to_vec();
        self.report.row(Part::Steps, cells)?;
        self.peer(size, lora, batch, &first, false)
    }

    /// Compiled PyTorch for every step of these sizes that was timed.
    pub fn compiled(&mut self, sizes: &[Size]) -> Result<(), Failure> {
        for size in sizes.iter().copied() {
            for lora in [0, RANK] {
                let trained = if lora > 0 { format!("LoRA {lora}") } else { "everything".to_owned() };
                let start = [name(size), trained];
                let Some(batch) = self.report.row_mut(Part::Steps, &start).and_then(|row| row[2].parse().ok()) else {
                    continue;
                };
                let [size_name, trained] = start;
                self.peer(size, lora, batch, &[size_name, trained], true)?;
            }
        }
        Ok(())
    }

    /// PyTorch's time in the row that begins so.
    fn peer(&mut self, size: Size, lora: usize, batch: usize, first: &[String], compiled: bool) -> Result<(), Failure> {
        let Some((python, script)) = self.args.peer_python.as_ref().zip(self.args.peer.as_ref()) else { return Ok(()) };
        let script = std::path::absolute(script).map_err(|error| cannot_use(script, &error))?;
        let mut command = Command::new(from_here(python)?);
        // A library that stands for LLVM's functions may be loaded before ours; PyTorch brings LLVM along.
        command.env_remove("LD_PRELOAD");
        command.arg(script).args(self.options(size, lora, batch, &self.peer_device()));
        if compiled {
            command.arg("--compile");
        }
        let how = if compiled { "compiled" } else { "eager" };
        let what = format!("PyTorch, {how}: {}", title(size, lora, batch));
        // Compiling takes a minute.
        let least = if compiled { s(60) } else { s(15) };
        let text = self.child(&what, command, [least, s(1800)])?;
        let Some(line) = text.as_deref().and_then(Self::line) else { return Ok(()) };
        let seconds = line["seconds_per_step"].as_f64().unwrap_or(f64::NAN);
        if let Some(row) = self.report.row_mut(Part::Steps, first) {
            let ours: f64 = row[SECONDS].parse().unwrap_or(f64::NAN);
            let column = if compiled { COMPILED } else { EAGER };
            row[column] = format!("{seconds:.4}");
            row[column + 1] = format!("{:.2}", seconds / ours);
            if !compiled {
                row[column + 2] = gib(&line);
            }
        }
        self.report.write()
    }

    fn options(&self, size: Size, lora: usize, batch: usize, device: &str) -> Vec<String> {
        let steps = self.args.steps.to_string();
        let given = [
            ("--size", name(size)),
            ("--batch", batch.to_string()),
            ("--steps", steps),
            ("--dtype", "bf16".to_owned()),
            ("--device", device.to_owned()),
            ("--lora", lora.to_string()),
        ];
        given.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }

    /// What PyTorch calls the card.
    fn peer_device(&self) -> String {
        match self.device {
            DeviceSpec::Cuda(index) | DeviceSpec::TchCuda(index) => format!("cuda:{index}"),
            DeviceSpec::Wgpu(_) if !self.card.is_host && gpu(0).is_some() => "cuda:0".to_owned(),
            _ => "cpu".to_owned(),
        }
    }
}

fn title(size: Size, lora: usize, batch: usize) -> String {
    let trained = if lora > 0 { format!("LoRA {lora}") } else { "everything".to_owned() };
    format!("a step of {}, {trained}, batch {batch}", name(size))
}

/// What the memory model says of such a step, on which the presets of cards rest, without the copy of the parameters that a run keeps.
fn reckoned(size: Size, batch: usize, trainable: u64) -> String {
    let config = size.config();
    let footprint = Footprint::whisper(&config).on(config.max_source_positions, TOKENS).training(trainable, true);
    let bytes = footprint.bytes(batch, 1, &Execution::GPU.in_half()) - footprint.loaded_bytes();
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

fn gib(line: &Value) -> String {
    line["peak_mib"].as_f64().map_or("?".to_owned(), |mib| format!("{:.1}", mib / 1024.0))
}
