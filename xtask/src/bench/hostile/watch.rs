//! A process that runs cases, from outside.

use super::args::Args;
use crate::bench::names::name;
use crate::process::this_program;
use clap::ValueEnum;
use serde_json::Value;
use std::fmt::{Display, Formatter};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use undertone::train::says_out_of_memory;
use undertone_cli::Failure;

/// How long a process may take until its first case.
const START: Duration = Duration::from_secs(120);

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Ending {
    /// The input was accepted.
    #[value(name = "accepted")]
    Accepted,
    /// With an error.
    #[value(name = "refused")]
    Refused,
    /// With an error that a library which panicked was given instead.
    #[value(name = "caught panics")]
    Caught,
    #[value(name = "panics")]
    Panic,
    #[value(name = "aborts")]
    Abort,
    #[value(name = "hangs")]
    Hang,
    #[value(name = "over the cap")]
    TooMuchMemory,
}

impl Ending {
    /// Whether no input may end so.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Accepted | Self::Refused | Self::Caught)
    }
}

impl Display for Ending {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(&name(*self))
    }
}

/// A case that has ended.
pub struct Ended {
    pub number: u64,
    pub ending: Ending,
    /// What was said about it.
    pub said: String,
    pub time: Duration,
    /// The most that the process had until now, in bytes beyond what it had before its first case.
    pub memory: u64,
}

/// A process that runs cases of a kind.
pub struct Watch {
    child: Child,
    lines: Receiver<String>,
    errors: PathBuf,
    patience: Duration,
    /// The case it is at, and since when.
    begun: Option<(u64, Instant)>,
    over: bool,
}

impl Watch {
    pub fn start(args: &Args, kind: &str, seeds: &Path, numbers: Range<u64>, scratch: &Path) -> Result<Self, Failure> {
        let unstarted = |e: std::io::Error| Failure::Machine(format!("cannot start a process for cases: {e}"));
        let errors = scratch.join("errors");
        let mut command = this_program()?;
        command.arg("hostile-cases").arg("--kind").arg(kind).arg("--seeds").arg(seeds);
        command.arg("--scratch").arg(scratch.join("case"));
        for (name, number) in
            [("seed", args.seed), ("from", numbers.start), ("to", numbers.end), ("memory", args.memory << 20)]
        {
            command.arg(format!("--{name}")).arg(number.to_string());
        }
        // Nothing is fetched, and nothing read that is not of this case.
        command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", scratch.join("hub")).env("TMPDIR", scratch);
        let file = std::fs::File::create(&errors).map_err(unstarted)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn().map_err(unstarted)?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                // Once nobody listens any more the process is over, or ended.
                BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
        }
        let patience = Duration::from_secs(args.patience);
        Ok(Self { child, lines, errors, patience, begun: None, over: false })
    }

    /// The next case that has ended; none once the process has.
    pub fn case(&mut self) -> Result<Option<Ended>, Failure> {
        while !self.over {
            let left = self.begun.map_or(START, |(_, since)| self.patience.saturating_sub(since.elapsed()));
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(ended) = self.heard(&line) {
                        return Ok(Some(ended));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.end();
                    return match self.begun {
                        Some(_) => Ok(self.blame(Ending::Hang, String::new())),
                        None => Err(Failure::Machine("a process that runs cases does not begin".into())),
                    };
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.over = true;
                    return self.died();
                }
            }
        }
        Ok(None)
    }

    /// A line that the process wrote. What libraries write on standard output is none of ours.
    fn heard(&mut self, line: &str) -> Option<Ended> {
        let line: Value = serde_json::from_str(line).ok()?;
        if let Some(number) = line.get("begins").and_then(Value::as_u64) {
            self.begun = Some((number, Instant::now()));
            return None;
        }
        let ending = Ending::from_str(line.get("ending")?.as_str()?, false).ok()?;
        let memory = line.get("memory").and_then(Value::as_u64).unwrap_or(0);
        let said = line.get("said").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.blame(ending, said).map(|ended| Ended { memory, ..ended })
    }

    /// The case that the process is at has ended so.
    fn blame(&mut self, ending: Ending, said: String) -> Option<Ended> {
        let (number, since) = self.begun.take()?;
        Some(Ended { number, ending, said, time: since.elapsed(), memory: 0 })
    }

    fn end(&mut self) {
        self.over = true;
        // It may have ended just now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// It ended by itself: after its last case, or in one.
    fn died(&mut self) -> Result<Option<Ended>, Failure> {
        let status = self.child.wait().map_err(|e| Failure::Machine(format!("cannot wait for a process: {e}")))?;
        let errors = std::fs::read(&self.errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let said = format!("{status}, {last}");
        if self.begun.is_none() && !status.success() {
            return Err(Failure::Machine(format!("a process that runs cases failed: {last}")));
        }
        let ending = if says_out_of_memory(&errors) { Ending::TooMuchMemory } else { Ending::Abort };
        Ok(self.blame(ending, said))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}
