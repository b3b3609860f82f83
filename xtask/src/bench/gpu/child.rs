//! A measurement in a process of its own.

use crate::process::ended;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use undertone::train::{says_out_of_memory, telling_line};
use undertone_cli::Failure;

/// Whether the user wants no more of it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Has Ctrl-C, or a signal to end, stop the child that runs; no other is started after it.
pub fn stop_on_interrupt() -> Result<(), Failure> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .map_err(|e| Failure::Machine(format!("cannot listen for interrupts: {e}")))
}

pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// What the child printed, if it ended well within `limit`; else why it did not, in a few words.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, String> {
    let files = || Ok::<_, std::io::Error>([tempfile::tempfile()?, tempfile::tempfile()?]);
    let [mut said, mut complained] = files().map_err(|e| format!("its output cannot be kept: {e}"))?;
    let handle = |file: &File| file.try_clone().map(Stdio::from).map_err(|e| format!("its output cannot be kept: {e}"));
    command.stdin(Stdio::null()).stdout(handle(&said)?).stderr(handle(&complained)?);
    let mut child = command.spawn().map_err(|e| format!("cannot start {}: {e}", command.get_program().display()))?;
    let started = Instant::now();
    let status = ended(&mut child, || started.elapsed() < limit && !is_interrupted());
    let status = status.map_err(|e| format!("it cannot be waited for: {e}"))?;
    let status = status.ok_or_else(|| format!("it was stopped after {} s", started.elapsed().as_secs()))?;
    if status.success() {
        return text(&mut said).map_err(|e| format!("its output cannot be read: {e}"));
    }
    let complaint = text(&mut complained).unwrap_or_default();
    // As backends say it, and as Undertone and PyTorch do.
    if says_out_of_memory(&complaint) || complaint.contains("memory ran out") || complaint.contains("out of memory") {
        return Err("the device has too little memory for it".to_owned());
    }
    Err(format!("it failed ({status}): {}", telling(&complaint)))
}

fn text(file: &mut File) -> std::io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The line of a complaint that says what went wrong.
fn telling(complaint: &str) -> String {
    let last = || complaint.trim_end().lines().last().unwrap_or("it said nothing").trim().to_owned();
    let mut line = telling_line(complaint);
    if line.is_empty() {
        line = last();
    }
    if let Some((end, _)) = line.char_indices().nth(300) {
        line.truncate(end);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, milliseconds: u64) -> Result<String, String> {
        output(Command::new("sh").args(["-c", script]), Duration::from_millis(milliseconds))
    }

    #[test]
    fn what_was_printed_is_had_and_what_went_wrong_is_said() {
        assert_eq!(shell("echo one; echo two", 5000), Ok("one\ntwo\n".to_owned()));
        let failed = shell("echo before >&2; echo the card is on fire >&2; exit 3", 5000).expect_err("it failed");
        assert!(failed.contains("exit status: 3") && failed.ends_with("the card is on fire"), "{failed}");
        let memory = shell("echo 'CUDA error: out of memory' >&2; exit 1", 5000);
        assert_eq!(memory, Err("the device has too little memory for it".to_owned()));
        assert!(output(&mut Command::new("/no/such/program"), Duration::from_secs(1)).is_err());
    }

    #[test]
    fn what_takes_too_long_is_stopped() {
        let started = Instant::now();
        assert!(shell("exec sleep 60", 200).is_err_and(|reason| reason.starts_with("it was stopped after")));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
