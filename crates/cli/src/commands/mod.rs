//! What a user can ask for, a file for each command.

mod analyze;
mod data;
mod eval;
mod export;
mod monitor;
mod predict;
mod report;
mod train;
mod transcribe;
mod tune;

use crate::failure::Failure;
use crate::logging::LogFormat;

/// A command of Undertone's; another program adds its own by `#[command(flatten)]`.
#[derive(clap::Subcommand)]
pub enum Command {
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
        /// What to do with it
        #[command(subcommand)]
        command: data::Command,
    },
    /// Show a run while it trains, and what its own numbers say should be changed
    Monitor(monitor::Args),
    /// Find the largest batch that fits, and write a configuration with it
    Tune(tune::Args),
    /// Try one batch; one JSON line
    #[command(hide = true)]
    TuneProbe(tune::ProbeArgs),
}

impl Command {
    /// Does what was asked for.
    ///
    /// # Errors
    /// What ended it early, with the exit status.
    pub fn run(self, log_format: LogFormat) -> Result<(), Failure> {
        match self {
            Self::Train(args) => train::run(&args, log_format),
            Self::Eval(args) => eval::run(&args),
            Self::Analyze(args) => analyze::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Predict(args) => predict::run(&args),
            Self::Transcribe(args) => transcribe::run(&args),
            Self::Export(args) => export::run(&args),
            Self::Data { command } => data::run(&command),
            Self::Monitor(args) => monitor::run(&args),
            Self::Tune(args) => tune::run(&args),
            Self::TuneProbe(args) => tune::probe(&args),
        }
    }
}
