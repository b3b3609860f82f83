//! Runs a probe's process and reads its result.

use super::error::TuneError;
use super::probe::Outcome;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use undertone_train::{says_out_of_memory, telling_line};

/// Runs a probe's process to its end, and kills it after `patience`: the process has a time limit of its own, but may
/// hang and not observe it.
///
/// # Errors
/// If the process cannot be started, or if it refused the configuration.
pub fn probe_in_child(command: &mut Command, patience: Duration) -> Result<Outcome, TuneError> {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let Some(status) = ended(&mut child, started, patience)? else {
        return Ok(Outcome::TooSlow { seconds: started.elapsed().as_secs_f64() });
    };
    let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    interpret(&End::of(status), &text(stdout), &text(stderr))
}

/// Reads a pipe to its end in a thread, because the process would block once the pipe is full.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After a read error, the bytes read so far are used.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the exit status, or `None` if the process had to be killed.
fn ended(child: &mut Child, started: Instant, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// End of a process: exit code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// Exit code.
    code: Option<i32>,
    /// Signal that ended the process.
    signal: Option<i32>,
}

impl End {
    #[cfg(unix)]
    fn of(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: std::os::unix::process::ExitStatusExt::signal(&status) }
    }

    #[cfg(not(unix))]
    fn of(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: None }
    }
}

/// Exit status of bad input.
const REFUSED: i32 = 2;
const SIGKILL: i32 = 9;

/// Returns the result of a probe from its exit status and output.
fn interpret(end: &End, stdout: &str, stderr: &str) -> Result<Outcome, TuneError> {
    if let Some(outcome) = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok()) {
        return Ok(outcome);
    }
    let said = || stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned();
    Ok(match end {
        End { code: Some(REFUSED), .. } => {
            let said = said();
            return Err(TuneError::Refused(said.strip_prefix("error: ").unwrap_or(&said).to_owned()));
        }
        _ if says_out_of_memory(stderr) => Outcome::OutOfMemory { reason: telling_line(stderr) },
        End { signal: Some(SIGKILL), .. } => {
            Outcome::OutOfMemory { reason: "the system killed it, as Linux does where memory runs out".into() }
        }
        End { signal: Some(signal), .. } => Outcome::Crashed { reason: format!("signal {signal}; {}", said()) },
        End { code, .. } => Outcome::Crashed { reason: format!("exit status {}; {}", code.unwrap_or(-1), said()) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: Option<i32>, signal: Option<i32>, stdout: &str, stderr: &str) -> Outcome {
        interpret(&End { code, signal }, stdout, stderr).expect("an outcome")
    }

    #[test]
    fn a_line_of_json_counts_whatever_came_after_it() {
        let line = "noise\n{\"outcome\":\"fits\",\"peak_bytes\":7,\"samples_per_second\":2.5}\n";
        let fits = Outcome::Fits { peak_bytes: Some(7), samples_per_second: 2.5 };
        assert_eq!(found(Some(0), None, line, ""), fits);
        assert_eq!(found(None, Some(11), line, "a crash at exit"), fits);
    }

    #[test]
    fn lack_of_memory_has_many_faces() {
        let abort = "memory allocation of 8589934592 bytes failed\n";
        let panicked = "thread 'main' panicked at lib.rs:\nout of device memory allocating 64 bytes\nnote: backtrace\n";
        for (code, signal, stderr, culprit) in [
            (None, Some(9), "", "killed"),
            (None, Some(6), abort, "8589934592"),
            (Some(101), None, panicked, "64 bytes"),
        ] {
            match found(code, signal, "", stderr) {
                Outcome::OutOfMemory { reason } => assert!(reason.contains(culprit), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn other_crashes_keep_their_words() {
        let crashed = found(None, Some(11), "", "first\nlast words\n\n");
        assert_eq!(crashed, Outcome::Crashed { reason: "signal 11; last words".into() });
        assert!(matches!(found(Some(1), None, "", ""), Outcome::Crashed { .. }));
    }

    #[test]
    fn bad_input_ends_the_search() {
        let refused = interpret(&End { code: Some(2), signal: None }, "", "error: there is no model `x`\n");
        assert!(matches!(refused, Err(TuneError::Refused(text)) if text == "there is no model `x`"));
    }

    #[test]
    #[cfg_attr(not(unix), ignore = "signals are sent as Unix sends them")]
    fn real_processes_are_read_and_ended() {
        let shell = |script: &str, patience| {
            let mut command = Command::new("sh");
            probe_in_child(command.args(["-c", script]), Duration::from_millis(patience)).expect("an outcome")
        };
        assert!(matches!(shell("kill -9 $$", 10_000), Outcome::OutOfMemory { .. }));
        assert!(
            matches!(shell("echo why >&2; kill -11 $$", 10_000), Outcome::Crashed { reason } if reason.contains("why"))
        );
        assert!(matches!(shell("exec sleep 30", 100), Outcome::TooSlow { seconds } if seconds < 10.0));
        let mut missing = Command::new("no-such-program-anywhere");
        assert!(matches!(probe_in_child(&mut missing, Duration::from_secs(1)), Err(TuneError::Process(_))));
    }
}
