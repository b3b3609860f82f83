//! `undertone config …`.

use super::reference;
use crate::failure::Failure;
use crate::{note, output, say};
use std::path::{Path, PathBuf};
use undertone::phases::{Experiment, Migrated, migrated};
use undertone::store::{StoreError, write_atomically};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the JSON Schema of a configuration: editors complete and check YAML with it
    Schema,
    /// Print all keys with their values and defaults, as Markdown
    Reference,
    /// Write the keys of a configuration as this version spells them
    Migrate {
        /// YAML file, which is changed
        file: PathBuf,
        /// Change nothing, and fail if the file has keys of an earlier version
        #[arg(long)]
        check: bool,
    },
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Schema => say!("{:#}", Experiment::schema()),
        Command::Reference => output::text(reference::page(&Experiment::schema())),
        Command::Migrate { file, check } => migrate(file, *check),
    }
}

fn migrate(file: &Path, check: bool) -> Result<(), Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| Failure::bad_input(format!("{name} cannot be read: {e}")))?;
    let refused = |error| Failure::bad_input(format!("{name}: {error}"));
    let Migrated { text, keys, keeps_comments } = migrated(text.trim_start_matches('\u{feff}')).map_err(refused)?;
    if keys.is_empty() {
        return say!("{name} has no keys of an earlier version");
    }
    let keys = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    if check {
        return Err(Failure::Machine(format!(
            "{name} has keys of an earlier version: {keys}; `undertone config migrate {name}` writes the new ones"
        )));
    }
    if !keeps_comments {
        note!(
            "{name} stays as it is: {keys} cannot be replaced where they stand; what follows means the same, in other lines and \
             without comments"
        );
        return output::text(text);
    }
    replace(file, &text).map_err(|error| Failure::Machine(error.to_string()))?;
    say!("{name} has new keys in place of {keys}")
}

/// Writes a file anew, with its permissions; of a link, the file that it leads to.
fn replace(file: &Path, text: &str) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { action: "write", path: file.to_owned(), source };
    let place = std::fs::canonicalize(file).map_err(io)?;
    let permissions = place.metadata().map_err(io)?.permissions();
    write_atomically(&place, text.as_bytes())?;
    std::fs::set_permissions(&place, permissions).map_err(io)
}
