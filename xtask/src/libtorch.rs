//! `cargo xtask libtorch …`: another command in a build with the feature `tch`, for which LibTorch is found or installed.

use crate::process::{become_command, before, cargo, python, succeeds};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use undertone_cli::{Failure, note};

#[derive(clap::Args)]
pub struct Args {
    /// A command and its options, like `train --config mine.yaml --device tch:cpu`; without any, LibTorch is only installed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The version of PyTorch whose LibTorch burn-tch is written for.
const VERSION: &str = "2.9.0";

/// Where PyTorch is installed when the Python in use does not have it.
const ENVIRONMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/libtorch");

/// The version of torch and its folder, a line each.
const ASK: &str = "import torch, os; print(torch.__version__); print(os.path.dirname(torch.__file__))";

pub fn run(args: &Args) -> Result<(), Failure> {
    let libtorch = LibTorch::bring()?;
    if args.command.is_empty() {
        note!("LibTorch {VERSION} is in {}", libtorch.folder.display());
        return Ok(());
    }
    let mut cargo = cargo();
    cargo.args(["run", "--bin", "xtask", "--features", "tch", "--"]).args(&args.command);
    become_command(cargo.envs(libtorch.variables()))
}

/// An installation that Undertone can be built with.
pub struct LibTorch {
    /// With `lib` and `include` in it.
    folder: PathBuf,
    /// The folder of the Python that has it; nothing for one that `LIBTORCH` names.
    python: Option<PathBuf>,
}

impl LibTorch {
    /// The one that `LIBTORCH` names, or that of the Python in use, or that of an environment of Undertone's own, in which
    /// PyTorch is installed where it is not yet.
    pub fn bring() -> Result<Self, Failure> {
        if let Some(folder) = std::env::var_os("LIBTORCH") {
            return Self::named(PathBuf::from(folder));
        }
        let name = python();
        if let Some(found) = [PathBuf::from(name), own_python()].iter().find_map(|python| Self::of(python)) {
            return Ok(found);
        }
        install(name)?;
        Self::of(&own_python()).ok_or_else(|| {
            Failure::Machine(format!(
                "PyTorch {VERSION} was installed in `{ENVIRONMENT}` and cannot be imported there: remove that folder and try \
                 again"
            ))
        })
    }

    fn named(folder: PathBuf) -> Result<Self, Failure> {
        let said = folder.display();
        if !folder.join("lib/libtorch_cpu.so").is_file() && !folder.join("lib/libtorch_cpu.dylib").is_file() {
            return Err(Failure::BadInput(format!(
                "LIBTORCH names `{said}`, which has no lib/libtorch_cpu: unpack LibTorch {VERSION} there, or unset LIBTORCH"
            )));
        }
        match std::fs::read_to_string(folder.join("build-version")) {
            Ok(version) if !is_wanted(&version) => Err(Failure::BadInput(format!(
                "LIBTORCH names `{said}`, which is LibTorch {}, and burn-tch is written for {VERSION}: unpack that, or unset \
                 LIBTORCH to have it installed",
                version.trim()
            ))),
            _ => Ok(Self { folder, python: None }),
        }
    }

    /// That of this Python, if it has the version that is wanted.
    fn of(python: &Path) -> Option<Self> {
        let output = Command::new(python).args(["-c", ASK]).output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut lines = text.lines();
        let (version, folder) = (lines.next()?, PathBuf::from(lines.next()?));
        let bin = python.parent().map(Path::to_owned).unwrap_or_default();
        is_wanted(version).then_some(Self { folder, python: Some(bin) })
    }

    /// What cargo, and what it builds, need to find it.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let library_path = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
        let mut variables = vec![(library_path, before(library_path, self.folder.join("lib")))];
        let Some(python) = &self.python else { return variables };
        variables.push(("LIBTORCH_USE_PYTORCH", "1".into()));
        if !python.as_os_str().is_empty() {
            variables.push(("PATH", before("PATH", python.clone())));
        }
        variables
    }
}

/// As a line of Python's or of a file says it: 2.9.0, 2.9.0+cpu, 2.9.0+cu128.
fn is_wanted(version: &str) -> bool {
    version.trim().split('+').next() == Some(VERSION)
}

fn own_python() -> PathBuf {
    Path::new(ENVIRONMENT).join("bin/python3")
}

fn install(python: &str) -> Result<(), Failure> {
    note!(
        "── LibTorch: no Python here has PyTorch {VERSION}; installing it once in target/libtorch, which fetches about 3 GB and \
         takes 7 GB of disk with CUDA's libraries"
    );
    if !succeeds(Command::new(python).args(["-m", "venv", ENVIRONMENT])) {
        return Err(Failure::Machine(format!(
            "`{python} -m venv` failed, see above: install Python 3.10 to 3.13 with it (Debian: python3-venv), or set LIBTORCH \
             to a folder with LibTorch {VERSION}"
        )));
    }
    if !succeeds(Command::new(own_python()).args(["-m", "pip", "install", &format!("torch=={VERSION}")])) {
        return Err(Failure::Machine(format!(
            "pip could not install PyTorch {VERSION}, see above: is there a network, and does this version exist for {python}? \
             Python 3.10 to 3.13 have it; LIBTORCH may name a folder with LibTorch {VERSION} instead"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_libtorch_of_another_version_is_refused_by_its_number() {
        let dir = tempfile::tempdir().expect("a folder");
        let refused = |folder: &Path| match LibTorch::named(folder.to_owned()) {
            Err(Failure::BadInput(text)) => text,
            _ => panic!("it was taken"),
        };
        assert!(refused(dir.path()).contains("has no lib/libtorch_cpu"));
        fs::create_dir(dir.path().join("lib")).expect("made");
        fs::write(dir.path().join("lib/libtorch_cpu.so"), "").expect("written");
        fs::write(dir.path().join("build-version"), "2.10.1+cpu\n").expect("written");
        assert!(refused(dir.path()).contains("is LibTorch 2.10.1+cpu, and burn-tch is written for 2.9.0"));
        fs::write(dir.path().join("build-version"), "2.9.0+cpu\n").expect("written");
        let variables = LibTorch::named(dir.path().to_owned()).ok().expect("taken").variables();
        assert!(variables[0].1.to_string_lossy().starts_with(&*dir.path().join("lib").to_string_lossy()));
    }

    #[test]
    #[cfg(unix)]
    fn a_python_without_torch_or_with_another_is_passed_over() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let python = dir.path().join("python3");
        let says = |script: &str| {
            fs::write(&python, format!("#!/bin/sh\n{script}\n")).expect("written");
            fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("executable");
            LibTorch::of(&python)
        };
        assert!(says("echo ModuleNotFoundError >&2; exit 1").is_none());
        assert!(says("echo 2.10.0; echo /there/torch").is_none());
        assert!(LibTorch::of(Path::new("/no/such/python")).is_none());
        let found = says("echo 2.9.0+cu128; echo /there/torch").expect("taken");
        let variables = found.variables();
        let value = |name: &str| variables.iter().find(|(found, _)| *found == name).expect(name).1.to_string_lossy();
        assert!(value("LD_LIBRARY_PATH").starts_with("/there/torch/lib"));
        assert!(value("PATH").starts_with(&*dir.path().to_string_lossy()));
        assert_eq!(value("LIBTORCH_USE_PYTORCH"), "1");
    }
}
