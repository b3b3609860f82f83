//! `undertone monitor`.

use crate::failure::Failure;
use crate::signals::on_end;
use crate::{output, say};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use undertone::phases::stage_plan;
use undertone::report::monitor::Monitor;

/// Default directory of runs.
const RUNS: &str = "runs";

#[derive(clap::Args)]
pub struct Args {
    /// Directory of the run, or its name below runs/; the most recently written run there if not given
    run: Option<PathBuf>,
    /// Print the current state once, instead of updating until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Print one JSON line on standard output
    #[arg(long, requires = "once")]
    json: bool,
    /// Seconds between updates
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut monitor = Monitor::open(args.run.as_deref(), Path::new(RUNS), stage_plan).map_err(Failure::bad_input)?;
    if !args.once {
        return watch(&mut monitor, Duration::from_secs(args.every));
    }
    let snapshot = monitor.look();
    if args.json { say!("{}", serde_json::json!(snapshot)) } else { output::text_on_stderr(snapshot.text()) }
}

/// Shows the run until the user ends it: in place on a terminal, elsewhere as a block of lines at every change.
fn watch(monitor: &mut Monitor, every: Duration) -> Result<(), Failure> {
    let (ended, end) = channel();
    on_end(move || {
        // The receiver is gone after the first signal.
        let _ = ended.send(());
    })?;
    let in_place = std::io::stderr().is_terminal();
    let (mut shown, mut step) = (0, None);
    loop {
        let snapshot = monitor.look();
        let text = snapshot.text();
        if in_place {
            output::text_on_stderr(over(shown, &text))?;
            shown = text.lines().count();
        } else {
            let now = (snapshot.stage, snapshot.step, snapshot.state);
            if step.as_ref() != Some(&now) {
                output::text_on_stderr(format_args!("{text}\n"))?;
                step = Some(now);
            }
        }
        if end.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

/// Returns ANSI control sequences that write `text` over the `shown` lines above the cursor. Line wrapping is off
/// meanwhile, because a wrapped line would take two rows and one of them would stay behind.
fn over(shown: usize, text: &str) -> String {
    let up = if shown > 0 { format!("\x1b[{shown}A") } else { String::new() };
    let lines: String = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[?7l{up}\r{lines}\x1b[J\x1b[?7h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_written_over_the_one_before() {
        assert_eq!(over(0, "a\nb\n"), "\x1b[?7l\ra\x1b[K\nb\x1b[K\n\x1b[J\x1b[?7h");
        assert_eq!(over(2, "c\n"), "\x1b[?7l\x1b[2A\rc\x1b[K\n\x1b[J\x1b[?7h");
    }
}
