//! `cargo xtask ci`: everything that must hold before a change lands, cheapest first.

use crate::failure::Failure;
use crate::test::{self, Accelerator, Skips};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Args {
    /// Also run a longer set of tests on this backend, built as for a GPU
    #[arg(long, value_name = "BACKEND")]
    features: Option<Accelerator>,
}

/// A cargo command that must succeed, and variables it needs.
pub struct Check {
    pub name: &'static str,
    pub args: &'static [&'static str],
    pub variables: &'static [(&'static str, &'static str)],
}

/// Where the sanitizer's runtime comes with the toolchain.
const SANITIZED: &str = "x86_64-unknown-linux-gnu";

const BEFORE_TESTS: [Check; 4] = [
    Check { name: "format", args: &["fmt", "--all", "--check"], variables: &[] },
    Check { name: "structure", args: &["xtask", "structure"], variables: &[] },
    Check { name: "clippy", args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], variables: &[] },
    Check { name: "docs", args: &["doc", "--workspace", "--no-deps"], variables: &[("RUSTDOCFLAGS", "-D warnings")] },
];

/// What tests are built with. The CPU's run in this build too, so that Burn is built once.
const FEATURES: [&str; 2] = ["--features", "undertone-tests/wgpu"];

const AFTER_TESTS: [Check; 2] = [
    // All of `unsafe` in Undertone's arithmetic, with every access checked. It needs a flag that stable compilers know but
    // hide, and a folder of its own: flags are part of what is built.
    Check {
        name: "kernels under AddressSanitizer",
        args: &["test", "-p", "undertone-kernels", "--lib", "--target", SANITIZED, "--target-dir", "target/sanitized"],
        // Kernels have no state, and AddressSanitizer takes its time.
        variables: &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address"), ("RUST_TEST_THREADS", "4")],
    },
    // CubeCL's build script for CUDA downloads LLVM; for documentation builds it does not, and type-checking needs no LLVM.
    Check {
        name: "clippy with other features",
        args: &["clippy", "--workspace", "--all-targets", "--features", "tui,wgpu,cuda-nvrtc", "--", "-D", "warnings"],
        variables: &[("DOCS_RS", "1")],
    },
];

pub fn run(args: &Args) -> Result<(), Failure> {
    let skips = Skips::new()?;
    let result = checks(&skips).and_then(|()| args.features.map_or(Ok(()), |device| test::long(device, &skips)));
    skips.print();
    result
}

fn checks(skips: &Skips) -> Result<(), Failure> {
    BEFORE_TESTS.iter().try_for_each(|check| check.run(skips, &[]))?;
    test::all(skips, &FEATURES.map(OsString::from))?;
    test::on(Accelerator::Wgpu, skips, &[])?;
    AFTER_TESTS.iter().try_for_each(|check| check.run(skips, &[]))
}

impl Check {
    /// Runs it with `more` arguments, where its platform is this one.
    pub fn run(&self, skips: &Skips, more: &[OsString]) -> Result<(), Failure> {
        let Self { name, args, .. } = self;
        if args.contains(&SANITIZED) && !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
            return skips.note(name, "not on this platform");
        }
        let more_said: String = more.iter().map(|argument| format!(" {}", argument.display())).collect();
        eprintln!("── {name}: cargo {}{more_said}", args.join(" "));
        let (variable, file) = skips.variable();
        let start = Instant::now();
        let status = self.command().args(more).env(variable, file).status();
        let status = status.map_err(|e| Failure::Machine(format!("cannot start cargo: {e}")))?;
        eprintln!("── {name}: {} s", start.elapsed().as_secs());
        if status.success() { Ok(()) } else { Err(Failure::Machine(format!("{name} failed"))) }
    }

    /// The command, in the repository's root.
    pub fn command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        command.args(self.args).current_dir(root).envs(self.variables.iter().copied());
        command
    }
}
