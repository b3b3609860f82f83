//! Tells the crate which compiler it is built with, for a run's `environment.json`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Cargo says which compiler it uses, and runs this anew when that changes.
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output();
    let version = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    println!("cargo:rustc-env=UNDERTONE_RUSTC={}", version.trim());
}
