//! Undertone's command line: parse, load the configuration, call a library, print.
//!
//! Exit status: 0 done (or nobody reads any more what comes of it), 1 the machine failed us, 2 bad input or configuration, 130 interrupted with a checkpoint.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocator;
mod analyze;
mod bench;
mod check;
mod ci;
mod cuda;
mod data;
mod eval;
mod export;
mod failure;
mod libtorch;
mod logging;
mod monitor;
mod output;
mod predict;
mod process;
mod progress;
mod report;
mod skips;
mod structure;
mod test;
mod train;
mod transcribe;
mod tune;

use clap::{Parser, Subcommand};
use failure::Failure;
use logging::LogFormat;
use std::process::ExitCode;
use undertone::train::{catch_backend_failure, silence_backend_failures};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Undertone: fine-tuning Whisper and routed task adapters",
    arg_required_else_help = true
)]
struct Cli {
    /// How lines on standard error are written
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train what a configuration says
    Train(train::Args),
    /// Judge a run's best model, or a configuration's model, and print one JSON line
    Eval(eval::Args),
    /// Judge everything a run with tasks has trained, and draw it
    Analyze(analyze::Args),
    /// Write a run's report.html, and those of its stages, anew
    Report(report::Args),
    /// Answer an input with a run's tasks, and say which adapters did it
    Predict(predict::Args),
    /// Print the text of audio files
    Transcribe(transcribe::Args),
    /// Write a run's best model in another layout or type
    Export(export::Args),
    /// Make or look at data
    Data {
        #[command(subcommand)]
        command: data::Command,
    },
    /// Show a run while it trains, and what its own numbers say should be changed
    Monitor(monitor::Args),
    /// Measure how fast training is
    Bench {
        #[command(subcommand)]
        command: bench::Command,
    },
    /// Find the largest batch that fits, and write a configuration with it
    Tune(tune::Args),
    /// Try one batch; one JSON line
    #[command(hide = true)]
    TuneProbe(tune::ProbeArgs),
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
    allocator::tune();
    silence_backend_failures();
    undertone::data::silence_reader_panics();
    let Cli { log_format, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) => return answered(&asked),
    };
    let run = || {
        catch_backend_failure(|| run(command, log_format)).unwrap_or_else(|failure| Err(Failure::of_backend(failure)))
    };
    let result = logging::start(log_format).and_then(|()| run());
    ended(result, log_format)
}

/// Help that was asked for, or what is wrong with the arguments.
fn answered(asked: &clap::Error) -> ExitCode {
    match asked.print() {
        // What is wrong says the exit status too.
        Err(error) if !asked.use_stderr() => {
            ended(Err(output::unwritten(&error, "standard output")), LogFormat::default())
        }
        _ => ExitCode::from(u8::try_from(asked.exit_code()).unwrap_or(2)),
    }
}

fn ended(result: Result<(), Failure>, log_format: LogFormat) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if let Failure::BadInput(text) | Failure::Machine(text) = &failure {
        logging::complain(log_format, text);
    }
    ExitCode::from(failure.status())
}

fn run(command: Command, log_format: LogFormat) -> Result<(), Failure> {
    match command {
        Command::Train(args) => train::run(&args, log_format),
        Command::Eval(args) => eval::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Transcribe(args) => transcribe::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Data { command } => data::run(&command),
        Command::Monitor(args) => monitor::run(&args),
        Command::Bench { command } => bench::run(&command),
        Command::Tune(args) => tune::run(&args),
        Command::TuneProbe(args) => tune::probe(&args),
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
