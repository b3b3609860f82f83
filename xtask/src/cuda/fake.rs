//! A machine with a CUDA driver that has no GPU behind it: the program for CUDA, NVIDIA's compiler, and Undertone's own driver.

use super::build::Program;
use super::toolkit::{Toolkit, link_file};
use crate::process::{ROOT, before, cargo, succeeds};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fs, io};
use undertone_cli::Failure;

/// Where the driver is laid out.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/cuda/fake");
/// Where it is built.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/cuda/driver");
/// Where kernels are compiled for the CPU.
const COMPUTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/cuda/computed");
/// Names that programs load it by.
const NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "libnvrtc.so"];
/// And the name of NCCL, in a folder of its own: not every machine has it.
const NCCL: &str = "nccl/libnccl.so.2";

/// What a program is started with to find the driver.
pub struct FakeMachine {
    /// The command line, built for CUDA.
    pub program: Program,
    /// NVIDIA's compiler.
    pub toolkit: Toolkit,
}

impl FakeMachine {
    /// Builds and lays out what is not there yet.
    pub fn brought() -> Result<Self, Failure> {
        let toolkit = Toolkit::bring()?;
        let mut build = cargo();
        build.args(["build", "--package", "undertone-fakecuda", "--target-dir", TARGET]);
        if !succeeds(build.current_dir(ROOT)) {
            return Err(Failure::Machine("the driver without a GPU could not be built, see above".into()));
        }
        lay_out(&Path::new(TARGET).join("debug/libfakecuda.so"), Path::new(FOLDER))
            .map_err(|e| Failure::Machine(format!("cannot lay out the driver in `{FOLDER}`: {e}")))?;
        Ok(Self { program: Program::built()?, toolkit })
    }

    /// What the program is started with; which card is pretended, and what goes wrong, are variables of the driver's own.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let nvrtc = self.toolkit.nvrtc().unwrap_or_else(|| PathBuf::from("libnvrtc.so.12"));
        let mut variables = vec![
            ("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", PathBuf::from(FOLDER))),
            ("FAKECUDA_NVRTC", nvrtc.into()),
        ];
        variables.extend(self.program.variables());
        variables.extend(self.toolkit.variables());
        variables
    }

    /// Runs a command of the program on `card`, in the folder `work`, where its caches are, too.
    pub fn run(&self, card: &str, work: &Path, args: &[&str]) -> Result<Finished, Failure> {
        let failed = |e: io::Error| Failure::Machine(format!("cannot run `{}` on `{card}`: {e}", args.join(" ")));
        let out = work.join("out");
        let mut command = Command::new(&self.program.file);
        command.args(args).current_dir(work).stdin(Stdio::null()).envs(self.variables());
        command.env("FAKECUDA_CARD", card).env("FAKECUDA_OUT", &out).env("XDG_CACHE_HOME", work.join("cache"));
        // A loss that is read back as 1 lets a training step count as taken, so that later steps find its moments.
        command.env("FAKECUDA_READS", "ones");
        let started = Instant::now();
        let output = command.output().map_err(failed)?;
        let seconds = started.elapsed().as_secs_f64();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let lines: Vec<&str> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(6)..].join("\n");
            return Err(Failure::Machine(format!("`{}` failed on `{card}`:\n{last}", args.join(" "))));
        }
        let report = fs::read(out.join("report.json")).map_err(failed)?;
        let report = serde_json::from_slice(&report).map_err(|e| failed(e.into()))?;
        Ok(Finished { stdout: String::from_utf8_lossy(&output.stdout).into_owned(), report, seconds, out })
    }

    /// The program, that of the operations' tests, folders for kernels that are computed and with NCCL, and the variables they are
    /// started with, as tests read them.
    pub fn as_json(&self) -> Result<String, Failure> {
        let operations = Program::tests_of_operations()?;
        let text = |path: &OsString| path.to_string_lossy().into_owned();
        let variables: BTreeMap<&str, String> =
            self.variables().iter().map(|(name, value)| (*name, text(value))).collect();
        let machine = serde_json::json!({
            "program": self.program.file,
            "operations": operations,
            "computed": COMPUTED,
            "nccl": Path::new(FOLDER).join(NCCL).parent(),
            "variables": variables,
        });
        Ok(machine.to_string())
    }
}

/// What a command did on a pretended card.
pub struct Finished {
    /// What it printed.
    pub stdout: String,
    /// The driver's report.
    pub report: serde_json::Value,
    /// Of the whole process.
    pub seconds: f64,
    /// The folder with every module's PTX.
    pub out: PathBuf,
}

/// Copies the library, and links to it by every other name: it is one driver, whatever it is loaded as. Whoever still runs with an
/// older one keeps that.
fn lay_out(library: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join(NCCL).parent().unwrap_or(folder))?;
    for name in NAMES.into_iter().chain([NCCL]) {
        match fs::remove_file(folder.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    let [own, others @ ..] = NAMES;
    fs::copy(library, folder.join(own))?;
    others.iter().try_for_each(|name| link_file(Path::new(own), &folder.join(name)))?;
    link_file(&Path::new("..").join(own), &folder.join(NCCL))
}
