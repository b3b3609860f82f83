//! Processes that `mpirun` starts, each with a card of its own.

use super::{Machine, OVER};
use serde_json::Value;
use std::process::Command;
use undertone_tests::toys::logged;
use undertone_tests::{Outcome, sets};

/// What each process starts with: its own folder for what the driver did.
const SCRIPT: &str = "export FAKECUDA_OUT=\"$OUT/$OMPI_COMM_WORLD_RANK\"; exec env \"$@\"";

impl Machine {
    /// Two cards, in a place without what an earlier run left.
    fn with_two_cards() -> Option<Self> {
        Some(Self::with("l4")?.computing().set("FAKECUDA_DEVICES", "2"))
    }

    fn with_nccl(self) -> Self {
        let path = format!("{}:{}", self.nccl, self.variables["LD_LIBRARY_PATH"]);
        self.set("LD_LIBRARY_PATH", &path)
    }

    /// Trains the tiny experiment on two ranks.
    fn train_on_two(&self, device: &str, settings: &[&str]) -> Outcome {
        let place = &self.place;
        let mut command = Command::new("mpirun");
        command.args(["--oversubscribe", "--bind-to", "none", "-n", "2", "sh", "-c", SCRIPT, "sh"]);
        // For the program alone: `mpirun` would load the driver, too.
        command.args(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(format!("XDG_CACHE_HOME={}", place.path("cache").display())).arg(&self.program);
        command.args(["train", "--config", "tiny.yaml", "--device", device, "--set", "train.compute=f32"]);
        command.args(["--set", "train.max_steps=4", "--set", "train.log_every=1"]).args(OVER);
        command.args(sets(settings));
        command.current_dir(place.path("")).env("OUT", place.path("out")).env("RAYON_NUM_THREADS", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        Outcome::of(&mut command).succeeded()
    }

    /// What the driver of a rank did.
    fn report_of(&self, rank: usize) -> Value {
        self.place.json(&format!("out/{rank}/report.json"))
    }

    /// The bytes that each rank's card gave to sums, without anything that a card would have done wrong.
    fn bytes_between_cards(&self) -> [u64; 2] {
        [0, 1].map(|rank| {
            let report = self.report_of(rank);
            assert_eq!(report["problems"], serde_json::json!({}), "rank {rank}");
            report["between_devices"]["bytes"].as_u64().expect("a number")
        })
    }

    /// The losses of a run's steps.
    fn losses_so_far(&self) -> Vec<f64> {
        logged(&self.place.path("runs/tiny"), "train", "loss")
    }

    /// Those of one process that takes as many samples a step, on the CPU.
    fn losses_of_one(&self) -> Vec<f64> {
        let args = ["train", "--config", "tiny.yaml", "--device", "cpu", "--set", "train.accumulation=2"];
        let short = ["--set", "train.max_steps=4", "--set", "train.log_every=1", "--set", "train.compute=f32"];
        Outcome::of(&mut self.command(&[&args[..], &short, &OVER].concat())).succeeded();
        self.losses_so_far()
    }
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert!(found.len() == expected.len() && expected.first() != expected.last(), "{found:?} {expected:?}");
    let far = found.iter().zip(expected).filter(|(a, b)| (*a - *b).abs() > 1e-4 * b.abs());
    assert_eq!(far.count(), 0, "{found:?} and {expected:?}");
}

#[test]
fn gradients_go_from_card_to_card() {
    let Some(machine) = Machine::with_two_cards().map(Machine::with_nccl) else { return };
    let expected = machine.losses_of_one();
    let mut sent = Vec::new();
    for sharded in ["train.shard_optimizer=false", "train.shard_optimizer=true"] {
        let outcome = machine.train_on_two("auto", &[sharded]);
        assert!(outcome.stderr.contains("gradients go from card to card, by NCCL"), "{outcome:?}");
        assert_near(&machine.losses_so_far(), &expected);
        sent.push(machine.bytes_between_cards());
    }
    // All gradients of four steps, f32: as many bytes whether sums are divided or not, but for what rounds parts up.
    let [whole, divided] = [sent[0], sent[1]];
    assert!(whole[0] > 100_000 && whole[0] == whole[1] && divided[0] >= whole[0], "{sent:?}");
    assert!(divided[0] - whole[0] < whole[0] / 100, "{sent:?}");
}

#[test]
fn gradients_go_through_the_host_where_cards_cannot_add_them() {
    let Some(machine) = Machine::with_two_cards() else { return };
    let expected = machine.losses_of_one();
    let through_the_host = |machine: &Machine, device: &str, reason: &str| {
        let outcome = machine.train_on_two(device, &[]);
        let said: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("through the host")).collect();
        assert!(said.len() == 1 && said[0].contains(reason), "{outcome:?}");
        assert_near(&machine.losses_so_far(), &expected);
        assert_eq!(machine.bytes_between_cards(), [0, 0]);
    };
    through_the_host(&machine, "auto", "install NCCL");
    // Two ranks with one card.
    through_the_host(&machine.with_nccl(), "cuda:0", "invalid usage");
}
