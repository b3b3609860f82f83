//! `undertone report`.

use crate::failure::Failure;
use crate::say;
use std::path::PathBuf;
use undertone::phases::write_reports;

#[derive(clap::Args)]
pub struct Args {
    /// Directory of a run or of one of its stages
    run: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let pages = write_reports(&args.run).map_err(Failure::of_report)?;
    pages.iter().try_for_each(|page| say!("{}", page.display()))
}
