//! Kernels for CUDA computed on the CPU, thread by thread, against what the CPU's own kernels give.

use super::{Machine, OVER, Ran};
use std::path::Path;
use std::process::Command;
use undertone_tests::Outcome;
use undertone_tests::toys::logged;

/// Kernels of Burn's in which threads write one and the same value to one place: in CubeK's reductions over a warp each lane writes the
/// sum that all of them have, and fused operations write an output that is smaller than others once for each element of those.
const HARMLESS: &str = "race:reduce_kernel\nrace:elemwise_fuse\n";

/// Computes every kernel, in a folder that later runs take compiled ones from.
const COMPUTE: &str = "FAKECUDA_COMPUTE";

impl Machine {
    pub fn computing(self) -> Self {
        let folder = self.computed.clone();
        self.set(COMPUTE, &folder)
    }

    /// Runs a test of the operations on the card.
    fn operations(&self, test: &str) -> Ran {
        // ThreadSanitizer wants addresses that the system does not draw; and it is for the test alone.
        let preload = format!("LD_PRELOAD={}", self.variables["LD_PRELOAD"]);
        let mut command = Command::new("setarch");
        command.args(["-R", "env", &preload, &self.operations, test, "--exact", "--nocapture"]);
        command.current_dir(self.place.path("")).env("BURN_DEVICE", "cuda");
        self.prepare(&mut command);
        command.env_remove("LD_PRELOAD");
        self.ended(&mut command)
    }

    /// The losses of four steps in `compute`.
    fn losses(&self, device: &str, compute: &str) -> Vec<f64> {
        let precision = format!("train.compute={compute}");
        let first = ["train", "--config", "tiny.yaml", "--device", device, "--set", &precision];
        let more = ["--set", "train.max_steps=4", "--set", "train.log_every=1"];
        self.run(&[&first[..], &more, &OVER].concat()).assert_sound_on(device);
        let run = self.place.path("runs/tiny");
        ["train", "valid"].map(|split| logged(&run, split, "loss")).concat()
    }
}

impl Ran {
    fn assert_sound_on(&self, device: &str) {
        if device == "cpu" {
            assert_eq!(self.outcome.status, Some(0), "{:?}", self.outcome);
        } else {
            self.assert_sound();
        }
    }
}

/// By kernels without matrix units, by `mma.sync` and `ldmatrix`, by `wmma`, and by `wgmma`; values and gradients.
#[test]
fn operations_give_what_they_give_on_the_cpu() {
    let exact = "every_operation_gives_what_it_gives_on_the_cpu";
    let lower = "lower_precisions_are_near_where_the_device_has_them";
    for (card, test) in [("l4", exact), ("a100", lower), ("t4", lower), ("h100", lower)] {
        let Some(machine) = Machine::with(card) else { return };
        machine.computing().operations(test).assert_sound();
    }
}

/// Between barriers no thread touches what another one writes, in its block or in another, and none leaves its array.
#[test]
fn kernels_have_no_race_and_stay_in_their_memory() {
    for (sanitizer, library, options) in [
        // Only what was compiled with it is looked at: the program is not.
        (
            "thread",
            "libtsan.so",
            ["TSAN_OPTIONS", "ignore_noninstrumented_modules=1:halt_on_error=1:suppressions=harmless"],
        ),
        ("address", "libasan.so", ["ASAN_OPTIONS", "detect_leaks=0"]),
    ] {
        let Some(machine) = Machine::with("l4") else { return };
        machine.place.write("harmless", HARMLESS);
        let [name, value] = options;
        let library = compilers(library);
        // NVRTC's own libraries are no longer found beside it: the sanitizer stands between it and the loader.
        let nvrtc = Path::new(&machine.variables["FAKECUDA_NVRTC"]).parent().expect("a folder").display().to_string();
        let path = format!("{}:{nvrtc}", machine.variables["LD_LIBRARY_PATH"]);
        let preload = format!("{library}:{}", machine.variables["LD_PRELOAD"]);
        let machine = machine.computing().set("FAKECUDA_SANITIZE", sanitizer).set(name, value);
        let machine = machine.set("LD_LIBRARY_PATH", &path).set("LD_PRELOAD", &preload);
        machine.operations("every_operation_gives_what_it_gives_on_the_cpu").assert_sound();
    }
}

/// A file that comes with the C++ compiler.
fn compilers(file: &str) -> String {
    let found = Outcome::of(Command::new("c++").arg(format!("-print-file-name={file}")));
    found.stdout.trim().to_owned()
}

#[test]
fn training_goes_as_on_the_cpu() {
    for (card, compute, tolerance) in [("l4", "f32", 1e-4), ("a100", "bf16", 2e-2), ("t4", "f16", 2e-3)] {
        let Some(machine) = Machine::with(card) else { return };
        let machine = machine.computing();
        let (found, expected) = (machine.losses("cuda:0", compute), machine.losses("cpu", compute));
        assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
        let far = found.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > tolerance * b.abs());
        assert_eq!(far.count(), 0, "{card}, {compute}: {found:?} and {expected:?}");
        assert!(expected.first() != expected.last(), "it learns: {expected:?}");
    }
}
