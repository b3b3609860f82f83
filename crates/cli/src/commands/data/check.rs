//! `undertone data check`.

use crate::commands::train;
use crate::failure::Failure;
use crate::program::load_config;
use crate::progress::Bar;
use crate::{note, output};
use std::path::{Path, PathBuf};
use undertone::phases::check::{CheckOptions, DataCheck, Severity, check};
use undertone::store::write_atomically;

#[derive(clap::Args)]
pub struct Args {
    /// The experiment's YAML file
    #[arg(long, default_value = train::DEFAULT_CONFIG)]
    config: PathBuf,
    /// Override one key of the configuration, like data.train.path=train.csv
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Write the report as JSON to this file; - is standard output, and the table then goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write data_check.json and the picture data_check.svg into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not decode recordings: faster, but silent, clipped, damaged and duplicate audio is not found
    #[arg(long)]
    no_audio: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let experiment = load_config(&args.config, &args.settings)?;
    let options = CheckOptions { audio: !args.no_audio, progress: &Bar::default() };
    let found = check(&experiment, &options).map_err(Failure::bad_input)?;
    let json = serde_json::to_string_pretty(&found.to_json()).map_err(|e| Failure::Machine(e.to_string()))? + "\n";
    let on_stdout = args.json.as_deref() == Some(Path::new("-"));
    // Before the files, which may not be writable.
    let told = match on_stdout {
        true => {
            note!("{}", found.to_string().trim_end());
            output::text(&json)
        }
        false => output::text(&found),
    };
    if let Some(file) = args.json.as_deref().filter(|_| !on_stdout) {
        write(file, &json)?;
    }
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|e| unwritable(out, &e))?;
        write(&out.join("data_check.json"), &json)?;
        let picture = found.picture().map_err(|e| Failure::Machine(e.to_string()))?;
        write(&out.join("data_check.svg"), &picture)?;
    }
    verdict(&found).and(told)
}

/// Returns the first reason for which training would fail, and the number of others.
fn verdict(found: &DataCheck) -> Result<(), Failure> {
    let mut failures = found.of(Severity::Failure);
    let Some(first) = failures.next() else { return Ok(()) };
    let more = match failures.count() {
        0 => String::new(),
        more => format!(" (and {more} more, see above)"),
    };
    Err(Failure::BadInput(format!("training would fail: {first}{more}")))
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    write_atomically(file, text.as_bytes()).map_err(|e| Failure::Machine(e.to_string()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Machine(format!("cannot write `{}`: {error}", path.display()))
}
