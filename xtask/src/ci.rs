//! `cargo xtask ci`: everything that must hold before a change lands, cheapest first.

use crate::Failure;
use std::path::Path;
use std::process::Command;

/// Each check as a command line, with a variable it needs.
const CHECKS: [(&str, &[&str], Option<(&str, &str)>); 6] = [
    ("format", &["fmt", "--all", "--check"], None),
    ("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
    ("tests", &["nextest", "run", "--workspace"], None),
    ("doc tests", &["test", "--workspace", "--doc"], None),
    ("docs", &["doc", "--workspace", "--no-deps"], Some(("RUSTDOCFLAGS", "-D warnings"))),
    // CubeCL's build script downloads LLVM; for documentation builds it does not, and type-checking needs no LLVM.
    ("cuda type-checks", &["check", "--workspace", "--features", "cuda"], Some(("DOCS_RS", "1"))),
];

pub fn run() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, args, variable) in CHECKS {
        eprintln!("── {name}: cargo {}", args.join(" "));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args).current_dir(&root).envs(variable);
        let status = command.status().map_err(|e| Failure::Machine(format!("cannot start cargo: {e}")))?;
        if !status.success() {
            return Err(Failure::Machine(format!("{name} failed")));
        }
    }
    Ok(())
}
