//! `cargo xtask ci`: everything that must hold before a change lands, cheapest first.

use crate::check::{Check, SANITIZED};
use crate::skips::Skips;
use crate::structure;
use crate::test::{self, Accelerator};
use std::ffi::OsString;
use std::process::Command;
use undertone_cli::{Failure, note};

#[derive(clap::Args)]
pub struct Args {
    /// Also run a longer set of tests on this backend, built as for a GPU
    #[arg(long, value_name = "BACKEND")]
    features: Option<Accelerator>,
}

const FORMAT: Check = Check { name: "format", args: &["fmt", "--all", "--check"], variables: &[] };

/// Cargo's profile of all checks, in which they build everything once (see `Cargo.toml`).
const PROFILE: [&str; 2] = ["--profile", "ci"];
/// The same for nextest, whose `--profile` is another thing.
const NEXTEST_PROFILE: [&str; 2] = ["--cargo-profile", "ci"];

/// Features that clippy and the documentation are checked with: both need the same metadata of all dependencies, which
/// takes minutes. CubeCL's build script for CUDA downloads LLVM; for documentation builds it does not, and type-checking
/// needs no LLVM.
const CHECKED: &str = "tui,wgpu,cuda";
const CLIPPY: Check = Check {
    name: "clippy",
    args: &["clippy", "--workspace", "--all-targets", "--features", CHECKED],
    variables: &[("DOCS_RS", "1")],
};
const DOCS: Check = Check {
    name: "docs",
    args: &["doc", "--workspace", "--no-deps", "--features", CHECKED],
    variables: &[("DOCS_RS", "1"), ("RUSTDOCFLAGS", "-D warnings")],
};

/// Builds what the tests have built already, so that cargo shows its warnings again: those of code that is there only
/// without `tui` or `cuda`.
const WARNINGS: Check = Check { name: "warnings", args: &["test", "--workspace", "--no-run"], variables: &[] };

/// What tests are built with. The CPU's run in this build too, so that Burn is built once.
const FEATURES: [&str; 2] = ["--features", "undertone-tests/wgpu"];

/// What those of several processes are built with besides.
const MPI: [&str; 2] = ["--features", "undertone-tests/mpi,xtask/mpi"];

/// Where the facade's examples are: programs that end in an assertion.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/undertone/examples");

/// All of `unsafe` in Undertone's arithmetic, with every access checked. It needs a flag that stable compilers know but
/// hide, and a folder of its own: flags are part of what is built.
const SANITIZER: Check = Check {
    name: "kernels under AddressSanitizer",
    args: &["test", "-p", "undertone-kernels", "--lib", "--target", SANITIZED, "--target-dir", "target/sanitized"],
    // Kernels have no state, and AddressSanitizer takes its time.
    variables: &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address"), ("RUST_TEST_THREADS", "4")],
};

pub fn run(args: &Args) -> Result<(), Failure> {
    let skips = Skips::new()?;
    let result = checks(&skips).and_then(|()| args.features.map_or(Ok(()), |device| test::long(device, &skips)));
    skips.print();
    result
}

fn checks(skips: &Skips) -> Result<(), Failure> {
    // In this process: a command of its own would build Burn once more, with other features.
    note!("── structure");
    structure::run(&structure::Args::default())?;
    FORMAT.run(skips, &[])?;
    let mpi = mpi(skips)?;
    let checked: &[&str] = if mpi.is_empty() { &[] } else { &["--features", "mpi"] };
    let strings = |args: &[&[&str]]| args.concat().into_iter().map(OsString::from).collect::<Vec<_>>();
    CLIPPY.run(skips, &strings(&[&PROFILE, checked, &["--", "-D", "warnings"]]))?;
    DOCS.run(skips, &strings(&[&PROFILE, checked]))?;
    let nextest = strings(&[&NEXTEST_PROFILE, &FEATURES, mpi]);
    let cargo = strings(&[&PROFILE, &FEATURES, mpi]);
    test::all(skips, &nextest, &cargo)?;
    WARNINGS.run_without_warnings(&cargo)?;
    test::on_build(Accelerator::Wgpu, skips, &nextest)?;
    examples(skips, &cargo)?;
    SANITIZER.run(skips, &strings(&[&PROFILE]))
}

/// The features for tests of several processes, where MPI is there to build and to start them.
fn mpi(skips: &Skips) -> Result<&'static [&'static str], Failure> {
    let is_there =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|found| found.status.success());
    if is_there("mpicc") && is_there("mpirun") {
        return Ok(&MPI);
    }
    skips.note(
        "tests of several processes",
        "there is no OpenMPI: install libopenmpi-dev, libclang-dev and openmpi-bin",
    )?;
    Ok(&[])
}

/// Runs every example, in the build of the tests: naming its package would choose other features of Burn.
fn examples(skips: &Skips, build: &[OsString]) -> Result<(), Failure> {
    let unreadable = |e| Failure::Machine(format!("cannot list the examples in `{EXAMPLES}`: {e}"));
    let files = std::fs::read_dir(EXAMPLES).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    let mut names: Vec<OsString> = files.iter().filter_map(|f| Some(f.path().file_stem()?.to_owned())).collect();
    names.sort();
    let run = Check { name: "example", args: &["run", "--example"], variables: &[] };
    names
        .into_iter()
        .try_for_each(|name| run.run(skips, &std::iter::once(name).chain(build.iter().cloned()).collect::<Vec<_>>()))
}
