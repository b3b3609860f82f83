//! `cargo xtask test`: the tests, and what they need.

use crate::check::Check;
use crate::cuda::FakeMachine;
use crate::libtorch::LibTorch;
use crate::skips::Skips;
use std::ffi::OsString;
use undertone_cli::{Failure, note};

#[derive(clap::Args)]
pub struct Args {
    /// Run what is tested on accelerators, on this backend; for wgpu a Vulkan driver that computes on the CPU will do
    /// (Debian's mesa-vulkan-drivers)
    #[arg(long, value_name = "BACKEND")]
    device: Option<Accelerator>,
    /// Arguments of `cargo nextest run --workspace`, like -E 'test(resume)'; with any, documentation is not tested
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    more: Vec<OsString>,
}

/// A backend that tests can be run on.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Accelerator {
    Wgpu,
    Cuda,
    /// CUDA on a driver that has no GPU behind it: kernels are compiled for cards, launched, and computed on the CPU
    Fakecuda,
    Tch,
}

/// What runs tests, each in a process of its own.
const RUNNER: Check = Check { name: "test runner", args: &["nextest", "--version"], variables: &[] };
const INSTALL: Check = Check { name: "test runner", args: &["install", "cargo-nextest", "--locked"], variables: &[] };
const TESTS: Check = Check { name: "tests", args: &["nextest", "run", "--workspace"], variables: &[] };
const DOC_TESTS: Check = Check { name: "doc tests", args: &["test", "--workspace", "--doc"], variables: &[] };

/// Operations against the CPU's, answers and gradients of reference implementations, guards of runs on devices that
/// report losses late, and runs of the command line. Not the search with beams, which takes minutes: the device computes what it
/// does for greedy decoding.
const SHORT: &str = "package(undertone-ops) | (package(undertone-model) & test(/^(adapters|router|heads)::/)) | \
                     (package(undertone-tests) & test(/^(on_device|parity|parity_lora|parity_text|guarding)::/) & \
                     !test(parity::beams))";
/// Everything that takes Burn's default device.
const LONG: &str = "package(undertone-ops) | package(undertone-model) | package(undertone-train) | \
                    (package(undertone-tests) & test(/^(on_device|parity|parity_lora|parity_text|learner|guarding)::/))";
/// The command line for CUDA as processes on the driver without a GPU, and that driver.
const FAKE: &str = "package(undertone-fakecuda) | (package(undertone-tests) & test(/^fakecuda::/))";
const ON_FAKE: Check =
    Check { name: "tests on a CUDA driver without a GPU", args: &["nextest", "run", "--workspace"], variables: &[] };
/// What those tests find the program and its variables in: a line of JSON.
const FAKE_MACHINE: &str = "FAKECUDA_MACHINE";
const ON_DEVICE: [&str; 5] = ["nextest", "run", "--workspace", "--run-ignored", "all"];

impl Accelerator {
    /// Tests on it. Few cases of each property on backends that compile a kernel for each shape.
    fn tests(self) -> Check {
        let (name, variables): (_, &[_]) = match self {
            Self::Wgpu => ("tests on wgpu", &[("BURN_DEVICE", "wgpu"), ("PROPTEST_CASES", "2")]),
            Self::Cuda => ("tests on CUDA", &[("BURN_DEVICE", "cuda"), ("PROPTEST_CASES", "4")]),
            Self::Fakecuda => return ON_FAKE,
            // Tests run side by side, and threads of OpenMP that wait for their turn do so at full speed.
            Self::Tch => {
                ("tests on LibTorch", &[("BURN_DEVICE", "tch"), ("PROPTEST_CASES", "16"), ("OMP_NUM_THREADS", "1")])
            }
        };
        Check { name, args: &ON_DEVICE, variables }
    }

    /// The feature that brings it.
    fn feature(self) -> &'static str {
        match self {
            Self::Wgpu => "wgpu",
            Self::Cuda | Self::Fakecuda => "cuda",
            Self::Tch => "tch",
        }
    }

    /// What is tested on it where nothing else is asked for.
    fn short(self) -> &'static str {
        if let Self::Fakecuda = self { FAKE } else { SHORT }
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let skips = Skips::new()?;
    let result = match args.device {
        Some(device) => on(device, &skips, &args.more),
        None if args.more.is_empty() => all(&skips, &[], &[]),
        None => some(&skips, &args.more),
    };
    skips.print();
    result
}

/// Every test there is for the CPU. `nextest` and `cargo` are the arguments of each that say how tests are built.
pub fn all(skips: &Skips, nextest: &[OsString], cargo: &[OsString]) -> Result<(), Failure> {
    some(skips, nextest)?;
    DOC_TESTS.run(skips, cargo)
}

/// What is tested on accelerators, or the tests that `more` asks for.
pub fn on(device: Accelerator, skips: &Skips, more: &[OsString]) -> Result<(), Failure> {
    // The feature of the tests brings the backend without tuning, which no test has the time for.
    let features = format!("undertone-tests/{}", device.feature());
    let chosen = if more.is_empty() { ["-E", device.short()].map(OsString::from).to_vec() } else { more.to_vec() };
    if let Accelerator::Fakecuda = device { on_fake(skips, &chosen) } else { run_on(device, skips, &features, chosen) }
}

/// What is tested on accelerators, built as these arguments of nextest say.
pub fn on_build(device: Accelerator, skips: &Skips, build: &[OsString]) -> Result<(), Failure> {
    bring_runner()?;
    device.tests().run(skips, &[build, &["-E", SHORT].map(OsString::from)].concat())
}

/// Everything that can be tested on it, in the build that its users have.
pub fn long(device: Accelerator, skips: &Skips) -> Result<(), Failure> {
    if let Accelerator::Fakecuda = device {
        on_fake(skips, &["-E", FAKE].map(OsString::from))?;
        note!("── kernels for every generation of NVIDIA's cards");
        return crate::bench::kernels::check();
    }
    run_on(device, skips, device.feature(), ["-E", LONG].map(OsString::from).to_vec())
}

fn run_on(device: Accelerator, skips: &Skips, features: &str, tests: Vec<OsString>) -> Result<(), Failure> {
    bring_runner()?;
    let features = ["--features", features].map(OsString::from).into_iter();
    let variables = match device {
        Accelerator::Tch => LibTorch::bring()?.variables(),
        Accelerator::Wgpu | Accelerator::Cuda | Accelerator::Fakecuda => Vec::new(),
    };
    device.tests().run_with(skips, &features.chain(tests).collect::<Vec<_>>(), variables)
}

/// The tests' own build is the usual one: what runs on the driver is a program of its own.
fn on_fake(skips: &Skips, tests: &[OsString]) -> Result<(), Failure> {
    bring_runner()?;
    let machine = FakeMachine::brought()?;
    ON_FAKE.run_with(skips, tests, vec![(FAKE_MACHINE, machine.as_json()?.into())])
}

fn some(skips: &Skips, more: &[OsString]) -> Result<(), Failure> {
    bring_runner()?;
    TESTS.run(skips, more)
}

/// Installs the test runner where there is none.
fn bring_runner() -> Result<(), Failure> {
    let there = RUNNER.command().output().is_ok_and(|output| output.status.success());
    if there {
        return Ok(());
    }
    note!(
        "── {}: cargo-nextest is not here; installing it once with `cargo {}`, which needs the network and some minutes",
        INSTALL.name,
        INSTALL.args.join(" ")
    );
    let installed = INSTALL.command().status().is_ok_and(|status| status.success());
    let reason = "cargo-nextest could not be installed, see above: is there a network? `cargo test --workspace` runs the \
                  same tests without it";
    if installed { Ok(()) } else { Err(Failure::Machine(reason.into())) }
}
