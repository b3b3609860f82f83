//! `cargo xtask ci`: everything that must hold before a change lands, cheapest first.

use crate::Failure;
use std::path::Path;
use std::process::Command;

/// A cargo command that must succeed, and a variable it needs.
struct Check {
    name: &'static str,
    args: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
}

const CHECKS: [Check; 6] = [
    Check { name: "format", args: &["fmt", "--all", "--check"], variable: None },
    Check { name: "clippy", args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], variable: None },
    Check { name: "docs", args: &["doc", "--workspace", "--no-deps"], variable: Some(("RUSTDOCFLAGS", "-D warnings")) },
    Check { name: "tests", args: &["nextest", "run", "--workspace"], variable: None },
    Check { name: "doc tests", args: &["test", "--workspace", "--doc"], variable: None },
    // CubeCL's build script downloads LLVM; for documentation builds it does not, and type-checking needs no LLVM.
    Check {
        name: "cuda type-checks",
        args: &["check", "--workspace", "--features", "cuda"],
        variable: Some(("DOCS_RS", "1")),
    },
];

pub fn run() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for Check { name, args, variable } in CHECKS {
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
