//! The commands, one file each.

mod analyze;
mod choices;
mod config;
mod data;
mod eval;
mod export;
mod monitor;
mod places;
mod predict;
mod reference;
mod report;
mod serve;
mod train;
mod transcribe;
mod tune;
mod verify;

use crate::failure::Failure;
use crate::logging::LogFormat;

/// A command of Undertone. Another program adds its own with `#[command(flatten)]`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Train a configuration
    Train(train::Args),
    /// Evaluate a run's best model, or a configuration's model, and print one JSON line
    Eval(eval::Args),
    /// Evaluate everything a run with tasks has trained, and draw it
    Analyze(analyze::Args),
    /// Rewrite the report.html of a run and of its stages
    Report(report::Args),
    /// Answer an input with a run's tasks, and name the adapters that were used
    Predict(predict::Args),
    /// Print the text of audio files
    Transcribe(Box<transcribe::Args>),
    /// Serve models and runs on a local page, and to clients of OpenAI's transcription
    Serve(serve::Args),
    /// Write a run's best model in another layout or type
    Export(export::Args),
    /// Print what a configuration can contain
    Config {
        /// The subcommand.
        #[command(subcommand)]
        command: config::Command,
    },
    /// Create or check data
    Data {
        /// Subcommand
        #[command(subcommand)]
        command: data::Command,
    },
    /// Show a run while it trains, with recommendations from its own measurements
    Monitor(monitor::Args),
    /// Find the largest batch that fits, and write a configuration with it
    Tune(tune::Args),
    /// Try one batch and print one JSON line
    #[command(hide = true)]
    TuneProbe(tune::ProbeArgs),
}

impl Command {
    /// Runs the command.
    pub fn run(self, log_format: LogFormat) -> Result<(), Failure> {
        match self {
            Self::Train(args) => train::run(&args, log_format),
            Self::Eval(args) => eval::run(&args),
            Self::Analyze(args) => analyze::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Predict(args) => predict::run(&args),
            Self::Serve(args) => serve::run(args),
            Self::Transcribe(args) => transcribe::run(&args),
            Self::Export(args) => export::run(&args),
            Self::Config { command } => config::run(&command),
            Self::Data { command } => data::run(&command),
            Self::Monitor(args) => monitor::run(&args),
            Self::Tune(args) => tune::run(&args),
            Self::TuneProbe(args) => tune::probe(&args),
        }
    }
}
