//! `cargo xtask cuda …`: another command in a build with the feature `cuda`, for which NVIDIA's compiler is found or installed.

mod build;
mod fake;
mod toolkit;

use crate::process::{become_command, before, cargo};
pub use fake::FakeMachine;
use std::ffi::OsString;
use std::process::Command;
pub use toolkit::Toolkit;
use undertone_cli::{Failure, note};

#[derive(clap::Args)]
pub struct Args {
    /// A command and its options, like `train --config mine.yaml --device cuda:0`; without any, the compiler is only installed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let toolkit = Toolkit::bring()?;
    if args.command.is_empty() {
        note!("NVIDIA's compiler is in {}", toolkit.folder.display());
        return Ok(());
    }
    if !cfg!(target_os = "linux") {
        // Other linkers leave nothing open, so LLVM is linked there.
        let mut run = cargo();
        run.args(["run", "--bin", "xtask", "--features", "cuda", "--"]).args(&args.command);
        return become_command(run.envs(toolkit.variables()));
    }
    let program = build::Program::built()?;
    let mut command = Command::new(&program.file);
    command.args(&args.command).envs(program.variables()).envs(toolkit.variables());
    become_command(command.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", toolkit.libraries())))
}
