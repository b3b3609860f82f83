//! `undertone config …`.

use crate::failure::Failure;
use crate::say;
use undertone::phases::Experiment;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the JSON Schema of a configuration: editors complete and check YAML with it
    Schema,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Schema => say!("{:#}", Experiment::schema()),
    }
}
