//! The page.

use super::card::Card;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use undertone::ops::DeviceSpec;
use undertone::train::Environment;
use undertone_cli::{Failure, note};

/// Tables in the order in which they stand on the page, whatever was measured first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Parity,
    Quickstart,
    Steps,
    Kernels,
    Guides,
}

/// What has been measured so far.
pub struct Report {
    path: PathBuf,
    head: String,
    rows: Vec<(Part, Vec<String>)>,
    left_out: Vec<String>,
    took: Option<Duration>,
}

impl Part {
    const ALL: [Self; 5] = [Self::Parity, Self::Quickstart, Self::Steps, Self::Kernels, Self::Guides];

    /// Heading, what is to be known, and the names of the columns.
    fn text(self) -> [&'static str; 3] {
        match self {
            Self::Parity => [
                "Parity with the CPU",
                "The same steps of whisper-nano on the same clips, here and by the CPU's kernels in f32: the largest differences of \
                 the loss and of the gradient's length over the steps, as a share of what they are.",
                "trained | type | steps | loss | length of the gradient",
            ],
            Self::Quickstart => {
                ["Quickstart", "`cargo xtask train --config configs/cw-contest.yaml`, some of its steps.", RUNS]
            }
            Self::Steps => [
                "Training steps",
                "Random Whispers on random clips of 30 s with 32 tokens each, AdamW, products in bf16 (in f16 where the device has none); \
                 medians. LoRA has rank 32 on q, k, v, out_proj, \
                 fc1 and fc2. MFU is the arithmetic of three forward passes (two with LoRA, whose frozen weights want no gradient) \
                 by what the card's data sheet promises. Memory is what the allocator has reserved, beside what the memory model \
                 says, on which the presets of cards rest; PyTorch's is what it has allocated. Above 1, a ratio is in our favour.",
                "Whisper | trained | batch | s a step | clips/s | MFU | GiB | by the model, GiB | PyTorch, s | ratio | GiB | compiled, s | ratio",
            ],
            Self::Kernels => [
                "Where a step's time goes",
                "Kernels of one step, each waited for: shares of their sum.",
                "kernel | launches | ms | share",
            ],
            Self::Guides => [
                "Runs",
                "What people fine-tune, with fresh weights and synthesised data; after the first sixth of the steps. Utilisation and \
                 memory are the driver's.",
                RUNS,
            ],
        }
    }
}

const RUNS: &str = "run | steps | samples/s | MFU | data wait | transfer | utilisation | GiB";

impl Report {
    /// Of what is measured on this card from now on.
    pub fn new(folder: &Path, card: &Card, device: DeviceSpec) -> Result<Self, Failure> {
        let date = card.machine.started.split('T').next().unwrap_or_default();
        let named = |more: &str| folder.join(format!("{date}-gpu-{}{more}.md", card.slug()));
        // An earlier page of the day is kept.
        let others = (2..).map(|number| format!("-{number}"));
        let free = std::iter::once(String::new()).chain(others).map(|more| named(&more)).find(|path| !path.exists());
        let path = free.unwrap_or_else(|| named(""));
        std::fs::create_dir_all(folder).map_err(|e| {
            Failure::BadInput(format!("cannot make the folder `{}` of --output: {e}", folder.display()))
        })?;
        let report = Self { path, head: head(card, device, date), rows: Vec::new(), left_out: Vec::new(), took: None };
        report.write()?;
        Ok(report)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row, and keeps it.
    pub fn row(&mut self, part: Part, cells: Vec<String>) -> Result<(), Failure> {
        note!("{}", cells.join("  "));
        self.rows.push((part, cells));
        self.write()
    }

    /// The row whose first cells are these.
    pub fn row_mut(&mut self, part: Part, first: &[String]) -> Option<&mut Vec<String>> {
        self.rows.iter_mut().find(|(of, cells)| *of == part && cells.starts_with(first)).map(|(_, cells)| cells)
    }

    /// Notes what is not on the page, and why.
    pub fn leave_out(&mut self, what: Option<String>) {
        if let Some(what) = what {
            note!("{what}");
            self.left_out.push(what);
        }
    }

    /// The last of those notes.
    pub fn last_left_out(&self) -> &str {
        self.left_out.last().map_or("", String::as_str)
    }

    pub fn finish(&mut self, took: Duration) {
        self.took = Some(took);
    }

    pub fn write(&self) -> Result<(), Failure> {
        std::fs::write(&self.path, self.markdown())
            .map_err(|e| Failure::Machine(format!("cannot write `{}`: {e}", self.path.display())))
    }

    fn markdown(&self) -> String {
        let mut page = self.head.clone();
        match self.took {
            Some(took) => _ = writeln!(page, "\nAll of it took {} s.", took.as_secs()),
            None => page.push_str("\nIt was not finished: what follows was measured until then.\n"),
        }
        for part in Part::ALL {
            let rows: Vec<&Vec<String>> =
                self.rows.iter().filter(|(of, _)| *of == part).map(|(_, cells)| cells).collect();
            if rows.is_empty() {
                continue;
            }
            let [heading, text, columns] = part.text();
            let lines = "|---".repeat(columns.split(" | ").count());
            _ = writeln!(page, "\n## {heading}\n\n{text}\n\n| {columns} |\n{lines}|");
            rows.iter().for_each(|cells| _ = writeln!(page, "| {} |", cells.join(" | ")));
        }
        if !self.left_out.is_empty() {
            page.push_str("\n## What is not here\n\n");
            self.left_out.iter().for_each(|what| _ = writeln!(page, "- {what}"));
        }
        page
    }
}

fn head(card: &Card, device: DeviceSpec, date: &str) -> String {
    let machine = &card.machine;
    let gib = |bytes: u64| format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30));
    let known = [
        Some(card.name.clone()),
        card.memory.map(gib),
        card.driver.as_ref().map(|driver| format!("driver {driver}")),
        Some(format!("`{device}`")),
        machine.cpu.as_ref().map(|cpu| format!("{} cores of {cpu}", machine.cores)),
        machine.memory_bytes.map(gib),
        Some(format!("Undertone {}{}, Burn {}", machine.undertone, revision(machine), machine.burn)),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let host = if card.is_host {
        "\n\n**This is not a GPU but a driver that computes on the CPU**: the figures show that the measurement works, not how fast a \
         GPU is."
    } else {
        ""
    };
    // The program's path says nothing to others.
    let command = machine.command.iter().skip(1).cloned().collect::<Vec<_>>().join(" ");
    format!("# {}, {date}\n\n{}.{host}\n\n```\nxtask {command}\n```\n", card.name, known.join("; "))
}

/// The source's, where it is known.
fn revision(machine: &Environment) -> String {
    let short = |revision: &String| revision.chars().take(7).collect::<String>();
    let changed = if machine.modified == Some(true) { ", changed since" } else { "" };
    machine.revision.as_ref().map_or_else(String::new, |revision| format!(" ({}{changed})", short(revision)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_on_the_page_at_once_and_in_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = Environment { started: "2026-11-24T01:02:03Z".into(), cores: 4, ..Environment::default() };
        let card = Card { name: "A card".into(), memory: Some(80 << 30), driver: None, is_host: true, machine };
        let mut report = Report::new(folder.path(), &card, DeviceSpec::Wgpu(0)).ok().expect("a page");
        let page = |report: &Report| std::fs::read_to_string(report.path()).expect("written");
        assert!(report.path().ends_with("2026-11-24-gpu-a-card.md"));
        assert!(page(&report).contains("not a GPU but a driver") && page(&report).contains("not finished"));
        let cells = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        report.row(Part::Guides, cells("morse 60")).ok().expect("written");
        report.row(Part::Parity, cells("all f32")).ok().expect("written");
        report.leave_out(Some("the rest: no time".into()));
        report.row_mut(Part::Parity, &cells("all")).expect("a row")[1] = "bf16".into();
        report.finish(Duration::from_secs(7));
        report.write().ok().expect("written");
        let page = page(&report);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text} in {page}"));
        assert!(at("took 7 s") < at("| all | bf16 |") && at("| all | bf16 |") < at("| morse | 60 |"));
        assert!(at("- the rest: no time") > at("## What is not here"));
    }
}
