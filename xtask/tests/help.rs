//! The binary starts and lists its commands. Being here, this file also makes `cargo test` build the binary that the
//! whole-process tests of the workspace run.

use std::process::Command;

#[test]
fn help_lists_every_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("--help").output().expect("xtask runs");
    let text = String::from_utf8_lossy(&output.stdout);
    for command in
        ["train", "eval", "analyze", "predict", "transcribe", "export", "data", "monitor", "bench", "test", "ci"]
    {
        assert!(text.lines().any(|l| l.trim_start().starts_with(command)), "{command} is not in:\n{text}");
    }
}
