//! `cargo xtask ci`: everything that must hold before a change lands, cheapest first.

use crate::Failure;
use std::path::Path;
use std::process::Command;

/// A cargo command that must succeed, and variables it needs.
struct Check {
    name: &'static str,
    args: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
}

/// Where the sanitizer's runtime comes with the toolchain.
const SANITIZED: &str = "x86_64-unknown-linux-gnu";

const CHECKS: [Check; 8] = [
    Check { name: "format", args: &["fmt", "--all", "--check"], variables: &[] },
    Check { name: "clippy", args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], variables: &[] },
    Check { name: "docs", args: &["doc", "--workspace", "--no-deps"], variables: &[("RUSTDOCFLAGS", "-D warnings")] },
    Check { name: "tests", args: &["nextest", "run", "--workspace"], variables: &[] },
    Check { name: "doc tests", args: &["test", "--workspace", "--doc"], variables: &[] },
    // All of `unsafe` in Undertone's arithmetic, with every access checked. It needs a flag that stable compilers know but
    // hide, and a folder of its own: flags are part of what is built.
    Check {
        name: "kernels under AddressSanitizer",
        args: &["test", "-p", "undertone-kernels", "--lib", "--target", SANITIZED, "--target-dir", "target/sanitized"],
        variables: &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address")],
    },
    Check {
        name: "clippy with the dashboard",
        args: &["clippy", "--workspace", "--all-targets", "--features", "tui", "--", "-D", "warnings"],
        variables: &[],
    },
    // CubeCL's build script downloads LLVM; for documentation builds it does not, and type-checking needs no LLVM.
    Check {
        name: "cuda type-checks",
        args: &["check", "--workspace", "--features", "cuda"],
        variables: &[("DOCS_RS", "1")],
    },
];

pub fn run() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for Check { name, args, variables } in CHECKS {
        if args.contains(&SANITIZED) && !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
            eprintln!("── {name}: not on this platform");
            continue;
        }
        eprintln!("── {name}: cargo {}", args.join(" "));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args).current_dir(&root).envs(variables.iter().copied());
        let status = command.status().map_err(|e| Failure::Machine(format!("cannot start cargo: {e}")))?;
        if !status.success() {
            return Err(Failure::Machine(format!("{name} failed")));
        }
    }
    Ok(())
}
