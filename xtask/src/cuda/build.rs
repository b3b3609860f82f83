//! The command line with CUDA, built without LLVM. CubeCL has two compilers for CUDA and links LLVM for the one that Undertone does
//! not use; building that one takes a download of hundreds of megabytes, and nothing of it is ever called. So LLVM's functions are
//! left open, and a library of functions that abort answers for them when the program starts.

use crate::process::{ROOT, cargo, no_cargo, succeeds};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use undertone_cli::{Failure, note};

/// Where it is built: other flags than everything else's would have all of that built again each time.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/cuda/build");
/// For the linker: symbols may be missing.
const FLAGS: &str = "-C link-arg=-Wl,--unresolved-symbols=ignore-all";

/// The program.
pub struct Program {
    /// Path of the executable.
    pub file: PathBuf,
    /// The functions that abort.
    absent: PathBuf,
}

impl Program {
    /// Builds it where it is not up to date.
    pub fn built() -> Result<Self, Failure> {
        note!("── building the command line for CUDA; the first time takes some minutes");
        let started = Instant::now();
        // With what this one has besides.
        let features = if cfg!(feature = "mpi") { "cuda,mpi" } else { "cuda" };
        let mut build = build_for_cuda(&["build", "--bin", "xtask", "--features", features]);
        if !succeeds(&mut build) {
            return Err(Failure::Machine("the command line could not be built for CUDA, see above".into()));
        }
        note!("── built in {} s", started.elapsed().as_secs());
        let folder = Path::new(TARGET).join("debug");
        let program = Self { file: folder.join("xtask"), absent: folder.join("libabsent.so") };
        program.write_absent()?;
        Ok(program)
    }

    /// Builds the program of the operations' tests on a device, beside the command line, so that Burn is built once.
    pub fn tests_of_operations() -> Result<PathBuf, Failure> {
        note!("── building the tests of operations for CUDA");
        let packages = ["-p", "xtask", "-p", "undertone-ops", "--features", "xtask/cuda"];
        let asked = ["--test", "devices", "--message-format", "json-render-diagnostics"];
        let mut build = build_for_cuda(&[&["test", "--no-run"], &packages[..], &asked].concat());
        let output = build.stderr(Stdio::inherit()).output();
        let output = output.map_err(|e| no_cargo(&e))?;
        executable(&String::from_utf8_lossy(&output.stdout), "devices")
            .ok_or_else(|| Failure::Machine("the tests of operations could not be built for CUDA, see above".into()))
    }

    /// What it needs to start.
    pub fn variables(&self) -> [(&'static str, OsString); 1] {
        [("LD_PRELOAD", self.absent.clone().into())]
    }

    /// Writes the library of functions that the program lacks.
    fn write_absent(&self) -> Result<(), Failure> {
        let failed = |what: &str, e: std::io::Error| Failure::Machine(format!("{what}: {e}"));
        let modified = |file: &Path| fs::metadata(file).and_then(|found| found.modified()).ok();
        if modified(&self.absent) > modified(&self.file) {
            return Ok(());
        }
        let output =
            Command::new("ldd").arg("-r").arg(&self.file).output().map_err(|e| failed("cannot start ldd", e))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let names = absent(&said);
        if let Some(other) = names.iter().find(|name| !name.starts_with("LLVM") && !name.starts_with("cubecl_")) {
            return Err(Failure::Machine(format!(
                "`{other}` is missing in the program, and is none of LLVM's functions"
            )));
        }
        let functions: String = names.iter().map(|name| format!("void {name}(void) {{ abort(); }}\n")).collect();
        let source = self.absent.with_extension("c");
        fs::write(&source, format!("#include <stdlib.h>\n{functions}"))
            .map_err(|e| failed(&format!("cannot write `{}`", source.display()), e))?;
        let mut compile = Command::new("cc");
        if !succeeds(compile.args(["-shared", "-fPIC", "-o"]).arg(&self.absent).arg(&source)) {
            return Err(Failure::Machine("cc could not compile, see above: install a C compiler (Debian: gcc)".into()));
        }
        Ok(())
    }
}

/// Cargo with what leaves LLVM out.
fn build_for_cuda(args: &[&str]) -> Command {
    let flags = std::env::var("RUSTFLAGS").map_or(FLAGS.to_owned(), |own| format!("{own} {FLAGS}"));
    let mut build = cargo();
    build.args(args).args(["--target-dir", TARGET]).current_dir(ROOT);
    // CubeCL's build script leaves LLVM out where documentation is built.
    build.envs([("DOCS_RS", "1"), ("RUSTFLAGS", &flags)]);
    build
}

/// The executable of the target `name`, by what cargo says of what it made.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let made = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut ours = made.filter(|message| message["target"]["name"] == name);
    ours.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The symbols that `ldd -r` does not find.
fn absent(text: &str) -> BTreeSet<&str> {
    let missing = text.lines().filter_map(|line| line.trim().strip_prefix("undefined symbol: "));
    missing.filter_map(|line| line.split_whitespace().next()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_cargo_made_is_found() {
        let text = "not JSON\n{\"target\":{\"name\":\"other\"},\"executable\":\"/a\"}\n{\"target\":{\"name\":\"devices\"},\"executable\":\"/b\"}";
        assert_eq!(super::executable(text, "devices"), Some("/b".into()));
        assert_eq!(super::executable(text, "none"), None);
    }

    #[test]
    fn missing_symbols_are_read_from_what_ldd_says() {
        let text = "\tlibc.so.6 => /lib/libc.so.6 (0x1)\nundefined symbol: LLVMAddFunction\t(./xtask)\nundefined symbol: cubecl_a (./xtask)\n";
        assert_eq!(super::absent(text).into_iter().collect::<Vec<_>>(), ["LLVMAddFunction", "cubecl_a"]);
    }
}
