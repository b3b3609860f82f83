//! A command-line program: parses arguments, runs one command, returns an exit status.

use crate::failure::Failure;
use crate::logging::{self, LogFormat};
use crate::{allocator, output, signals};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use undertone::phases::Experiment;
use undertone::train::{catch_backend_failure, silence_backend_failures};

/// A program with Undertone's commands, and optionally with others.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name that a user types to start it, such as `undertone`.
    pub name: &'static str,
    /// Folder that is searched for a configuration that is not in the working directory.
    pub configs: Option<&'static str>,
}

/// The running program.
static PROGRAM: OnceLock<Program> = OnceLock::new();

#[derive(Parser)]
#[command(about = "Undertone: fine-tuning Whisper and routed task adapters", version, arg_required_else_help = true)]
struct Arguments<C: Subcommand> {
    /// Format of the lines on standard error
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: C,
}

impl Program {
    /// Parses the arguments of the process and runs the command.
    pub fn run<C: Subcommand>(self, run: impl FnOnce(C, LogFormat) -> Result<(), Failure>) -> ExitCode {
        allocator::tune();
        signals::survive_large_files();
        silence_backend_failures();
        undertone::data::silence_reader_panics();
        PROGRAM.get_or_init(|| self);
        let mut command = Arguments::<C>::command().name(self.name);
        let found = command
            .try_get_matches_from_mut(std::env::args_os())
            .and_then(|found| Arguments::<C>::from_arg_matches(&found).map_err(|wrong| wrong.format(&mut command)));
        let Arguments { log_format, command } = match found {
            Ok(arguments) => arguments,
            Err(asked) => return answered(&asked),
        };
        let registered = undertone::register().map_err(Failure::bad_input);
        let run = || {
            catch_backend_failure(|| run(command, log_format))
                .unwrap_or_else(|failure| Err(Failure::of_backend(failure)))
        };
        let result = registered.and_then(|()| logging::start(log_format)).and_then(|()| run());
        ended(result, log_format)
    }

    /// Name that a user types to start the running program.
    pub fn running() -> &'static str {
        PROGRAM.get().map_or("undertone", |program| program.name)
    }
}

/// Returns the path of a configuration: in the working directory, or else in the program's own folder.
pub fn find_config(config: &Path) -> PathBuf {
    let shipped = PROGRAM.get().and_then(|program| program.configs).map(|folder| Path::new(folder).join(config));
    match shipped {
        Some(shipped) if !config.exists() && shipped.exists() => shipped,
        _ => config.to_owned(),
    }
}

/// Loads a configuration, from where [`find_config`] finds it.
pub fn load_config(config: &Path, settings: &[String]) -> Result<Experiment, Failure> {
    Experiment::load(Some(&find_config(config)), settings).map_err(Failure::bad_input)
}

/// Loads the configuration of the run in a directory.
pub fn load_run(run: &Path, settings: &[String]) -> Result<Experiment, Failure> {
    Experiment::of_run(run, settings).map_err(Failure::bad_input)
}

/// Prints the requested help, or the error in the arguments.
fn answered(asked: &clap::Error) -> ExitCode {
    match asked.print() {
        // For an error in the arguments the exit status is enough, even if the message cannot be written.
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
