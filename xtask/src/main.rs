//! `cargo xtask`: Undertone's own commands, and those that developers of this repository need besides.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod check;
mod ci;
mod cuda;
mod libtorch;
mod process;
mod skips;
mod structure;
mod test;

use clap::Subcommand;
use process::ROOT;
use std::process::ExitCode;
use undertone_cli::{Failure, LogFormat, Program};

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Undertone(undertone_cli::Command),
    /// Measure how fast training is
    Bench {
        #[command(subcommand)]
        command: bench::Command,
    },
    /// Run cases of `bench hostile`; lines of JSON
    #[command(hide = true)]
    HostileCases(bench::hostile::ChildArgs),
    /// One of the processes of `bench ranks`; a line of JSON
    #[command(hide = true)]
    RanksChild(bench::ranks::ChildArgs),
    /// One of the measurements of `bench gpu`; a line of JSON
    #[command(hide = true)]
    GpuChild(bench::gpu::ChildArgs),
    /// Check that crates and modules depend on each other as ARCHITECTURE.md says
    Structure(structure::Args),
    /// Run a command in a build for CUDA; NVIDIA's compiler is installed first where there is none
    Cuda(cuda::Args),
    /// Run a command in a build for LibTorch, which is installed first where it is not there
    Libtorch(libtorch::Args),
    /// Run the tests; what they need is installed first
    Test(test::Args),
    /// Run every check of the repository
    Ci(ci::Args),
}

fn main() -> ExitCode {
    Program { name: "cargo xtask", configs: Some(ROOT) }.run(run)
}

fn run(command: Command, log_format: LogFormat) -> Result<(), Failure> {
    match command {
        Command::Undertone(command) => command.run(log_format),
        Command::Bench { command } => bench::run(&command),
        Command::HostileCases(args) => bench::hostile::run_child(&args),
        Command::RanksChild(args) => bench::ranks::run_child(&args),
        Command::GpuChild(args) => bench::gpu::run_child(&args),
        Command::Structure(args) => structure::run(&args),
        Command::Cuda(args) => cuda::run(&args),
        Command::Libtorch(args) => libtorch::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Ci(args) => ci::run(&args),
    }
}
