//! The command line for CUDA on a driver without a GPU: kernels are generated, compiled by NVIDIA's NVRTC for the card that is
//! pretended and launched, and nothing is computed, apart from the tests in `computed`. `cargo xtask test --device fakecuda` builds
//! what these tests need and runs them.

mod computed;
#[cfg(feature = "mpi")]
mod ranks;

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use undertone_testing::skipped;
use undertone_tests::runs::two_tasks;
use undertone_tests::{CLIPS, Outcome, Place, wav};

/// The variable with the program for CUDA and what it is started with.
const MACHINE: &str = "FAKECUDA_MACHINE";

/// Trains anew.
const OVER: [&str; 2] = ["--set", "run.overwrite=true"];

/// A machine with a pretended card.
struct Machine {
    place: Place,
    program: String,
    /// The program of the operations' tests.
    operations: String,
    /// A folder for kernels that are compiled for the CPU.
    computed: String,
    /// A folder with NCCL.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    nccl: String,
    variables: BTreeMap<String, String>,
}

/// What a program did on the card, and how it ended.
#[derive(Debug)]
struct Ran {
    outcome: Outcome,
    report: Value,
}

impl Machine {
    /// One with this card; nothing where the tests were not started for it.
    fn with(card: &str) -> Option<Self> {
        let Ok(json) = std::env::var(MACHINE) else {
            skipped("it needs the driver without a GPU: cargo xtask test --device fakecuda");
            return None;
        };
        let machine: Value = serde_json::from_str(&json).expect("JSON");
        let paths = ["program", "operations", "computed", "nccl"];
        let [program, operations, computed, nccl] = paths.map(|key| machine[key].as_str().expect("a path").to_owned());
        let variables = serde_json::from_value(machine["variables"].clone()).expect("variables");
        let machine = Self { place: Place::default(), program, operations, computed, nccl, variables };
        machine.place.write_experiment(&format!("samples: 12, {CLIPS}"));
        Some(machine.set("FAKECUDA_CARD", card))
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.program(self.program.as_ref(), args);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.envs(&self.variables).env("FAKECUDA_OUT", self.place.path("out"));
        // Kernels that are kept between runs are those of this test alone.
        command.env("XDG_CACHE_HOME", self.place.path("cache"));
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.ended(&mut self.command(args))
    }

    fn ended(&self, command: &mut Command) -> Ran {
        let outcome = Outcome::of(command);
        let report = std::fs::read(self.place.path("out/report.json")).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
        Ran { outcome, report: serde_json::from_slice(&report).expect("JSON") }
    }

    /// Trains the tiny experiment.
    fn train(&self, more: &[&str]) -> Ran {
        let first = ["train", "--config", "tiny.yaml", "--device", "cuda:0"];
        let short = ["--set", "train.max_steps=4", "--set", "train.checkpoint.every=2"];
        self.run(&[&first[..], &short, more].concat())
    }
}

impl Ran {
    /// It ended well, and did nothing that a card would have refused or done wrong.
    fn assert_sound(&self) -> &Self {
        assert_eq!(self.outcome.status, Some(0), "{:?}", self.outcome);
        assert_eq!(self.report["problems"], serde_json::json!({}), "{:?}", self.outcome);
        assert!(!self.outcome.stderr.contains("panicked"), "{:?}", self.outcome);
        assert!(self.number("launches") > 0.0, "{}", self.report);
        self
    }

    /// A number of the report by its path, like `nvrtc.programs`.
    fn number(&self, path: &str) -> f64 {
        let found = path.split('.').fold(&self.report, |value, key| &value[key]);
        found.as_f64().unwrap_or_else(|| panic!("{path} is not a number: {found}"))
    }
}

/// Kernels with instructions of matrix units.
fn with_matrix_units(place: &Place) -> usize {
    let files = std::fs::read_dir(place.path("out")).expect("listed").flatten().map(|entry| entry.path());
    let ptx = files.filter(|file| file.extension().is_some_and(|extension| extension == "ptx"));
    let texts = ptx.map(|file| std::fs::read_to_string(file).expect("PTX"));
    texts.filter(|text| text.contains("mma.sync") || text.contains("wmma.mma")).count()
}

#[test]
fn every_generation_of_cards_trains_in_what_suits_it() {
    for (card, compute) in [("t4", "f16"), ("a100", "bf16"), ("l4", "bf16"), ("h200", "bf16"), ("rtx5060", "bf16")] {
        let Some(machine) = Machine::with(card) else { return };
        let ran = machine.train(&[]);
        let said = format!("products are made in {compute}");
        assert!(ran.assert_sound().outcome.stderr.contains(&said), "{card}: {:?}", ran.outcome);
        assert!(with_matrix_units(&machine.place) > 0, "{card}");
    }
}

#[test]
fn f32_that_was_asked_for_is_multiplied_without_matrix_units() {
    let Some(machine) = Machine::with("h200") else { return };
    let ran = machine.train(&["--set", "train.compute=f32"]);
    assert!(!ran.assert_sound().outcome.stderr.contains("products are made in"), "{:?}", ran.outcome);
    assert_eq!(with_matrix_units(&machine.place), 0);
}

#[test]
fn a_second_run_compiles_nothing_and_another_card_finds_nothing() {
    let Some(machine) = Machine::with("a100") else { return };
    let first = machine.train(&[]);
    assert!(first.assert_sound().number("nvrtc.programs") > 10.0);
    let second = machine.train(&OVER);
    assert_eq!(second.assert_sound().number("nvrtc.programs"), 0.0, "{:?}", second.outcome);
    let kept = machine.place.path("cache/cubecl/nvidia-a100-sxm4-80gb.db");
    assert!(kept.is_file(), "{:?}", machine.place.tree());
    // A cache that is damaged costs its time again, and no more.
    std::fs::write(&kept, "no database").expect("written");
    assert!(machine.train(&OVER).assert_sound().number("nvrtc.programs") > 10.0);
    let other = machine.set("FAKECUDA_CARD", "t4").train(&OVER);
    assert!(other.assert_sound().number("nvrtc.programs") > 10.0);
}

#[test]
fn two_runs_fill_a_cache_side_by_side() {
    let Some(machine) = Machine::with("a100") else { return };
    let start = |name: &str| {
        let name = format!("run.name={name}");
        let args =
            ["train", "--config", "tiny.yaml", "--device", "cuda:0", "--set", "train.max_steps=4", "--set", &name];
        machine.command(&args).spawn().expect("a process")
    };
    for process in [start("one"), start("two")] {
        Outcome::at_the_end(process).succeeded();
    }
}

#[test]
fn adapters_and_a_router_are_trained_and_judged() {
    let Some(machine) = Machine::with("a100") else { return };
    machine.place.write("two.yaml", two_tasks());
    machine.run(&["train", "--config", "two.yaml", "--set", "device=cuda:0", "--phase", "all"]).assert_sound();
    machine.run(&["eval", "--run", "runs/two", "--task", "low"]).assert_sound();
    let clip: Vec<f32> = (0..24_000).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
    machine.place.write("clip.wav", wav(&clip));
    machine.run(&["predict", "--run", "runs/two", "--audio", "clip.wav"]).assert_sound();
}

#[test]
fn a_card_that_fails_ends_the_run_with_a_checkpoint_and_a_sentence() {
    let Some(machine) = Machine::with("a100") else { return };
    machine.train(&[]);
    // Everything is compiled now, so that a run launches what it launches.
    let launches = machine.train(&OVER).assert_sound().number("launches");
    let late = (launches * 0.7) as u64;
    let mut machine = machine;
    for (fault, words) in [
        ("illegal-address", "a kernel accessed memory that is not the card's"),
        ("launch-failed", "a kernel failed"),
        ("lost", "the card is gone"),
    ] {
        machine = machine.set("FAKECUDA_FAULT", &format!("{fault}@{late}"));
        let failed = machine.train(&OVER).outcome;
        assert_eq!(failed.status, Some(1), "{failed:?}");
        let last = failed.stderr.lines().last().unwrap_or_default();
        for part in ["error: the device failed in step ", words, "go on with --resume"] {
            assert!(last.contains(part), "{part:?} is not in {last:?}");
        }
        machine.variables.remove("FAKECUDA_FAULT");
        machine.train(&["--resume"]).assert_sound();
    }
}

#[test]
fn what_is_missing_or_too_old_is_said() {
    let Some(machine) = Machine::with("a100") else { return };
    // NVRTC writes for its own version of CUDA.
    let machine = machine.set("FAKECUDA_DRIVER", "12000");
    let old = machine.train(&[]).outcome;
    assert_eq!(old.status, Some(1), "{old:?}");
    let last = old.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("NVIDIA's compiler is newer than the driver"), "{old:?}");
    let machine = machine.set("CUDA_PATH", "/no/such/folder");
    for device in ["cuda:0", "auto"] {
        let refused = Outcome::of(&mut machine.command(&["train", "--config", "tiny.yaml", "--device", device]));
        refused.assert_refusal(&["`cuda:0` was found", "/no/such/folder", "cargo xtask cuda"]);
    }
    let machine = machine.set("LD_LIBRARY_PATH", "");
    let refused = Outcome::of(&mut machine.command(&["train", "--config", "tiny.yaml", "--device", "cuda:0"]));
    refused.assert_refusal(&["`cuda:0` was not found", "nvidia-smi"]);
}

#[test]
fn tuning_finds_the_batch_that_fits_a_small_card() {
    let Some(machine) = Machine::with("rtx4060") else { return };
    // What the context takes, and 24 MiB.
    let machine = machine.set("FAKECUDA_MEMORY", &((512_u64 + 24) << 20).to_string());
    let args =
        ["tune", "--config", "tiny.yaml", "--device", "cuda:0", "--set", "data.batch_size=64", "--out", "tuned.yaml"];
    let tuned = Outcome::of(&mut machine.command(&args));
    assert_eq!(tuned.status, Some(0), "{tuned:?}");
    let said = tuned.stdout.clone() + &tuned.stderr;
    assert!(said.contains("does not fit: out of device memory") && said.contains("fits"), "{tuned:?}");
    let written = std::fs::read_to_string(machine.place.path("tuned.yaml")).expect("a configuration");
    assert!(written.contains("accumulation:"), "{written}");
    // Training that does not fit says what helps.
    let machine = machine.set("FAKECUDA_MEMORY", &((512_u64 + 6) << 20).to_string());
    let failed = Outcome::of(&mut machine.command(&["train", "--config", "tiny.yaml", "--device", "cuda:0"]));
    assert_eq!(failed.status, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("cargo xtask tune"), "{failed:?}");
}
