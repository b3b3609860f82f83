//! How measurements are run, and what they share.

use super::args::Args;
use super::card::Card;
use super::child;
use super::clock::Clock;
use super::report::Report;
use crate::process::{json_line, this_program};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use undertone::ops::DeviceSpec;
use undertone_cli::{Failure, note, say};

/// What is measured, and with what.
pub struct Bench<'a> {
    pub args: &'a Args,
    pub device: DeviceSpec,
    pub card: Card,
    pub clock: Clock,
    pub report: Report,
    /// Configurations, models and runs of the measurements.
    pub work: TempDir,
}

impl Bench<'_> {
    /// Runs this very program with a command of its own for at most `most`; what it printed. Where it fails, or there is no
    /// time for it, that is noted as `what`.
    pub fn our(
        &mut self,
        what: &str,
        arguments: &[String],
        [least, most]: [Duration; 2],
    ) -> Result<Option<String>, Failure> {
        let mut command = this_program()?;
        command.args(arguments);
        self.child(what, command, [least, most])
    }

    /// The same with any program.
    pub fn child(
        &mut self,
        what: &str,
        mut command: Command,
        [least, most]: [Duration; 2],
    ) -> Result<Option<String>, Failure> {
        if child::is_interrupted() {
            return Ok(None);
        }
        let left = self.clock.left();
        if left < least {
            let (left, least) = (left.as_secs(), least.as_secs());
            self.report.leave_out(Some(format!("{what}: {left} s were left, and it takes {least} s or more")));
            self.report.write()?;
            return Ok(None);
        }
        note!("── {what} ({} s left)", left.as_secs());
        // Where tuning keeps what it chose is said by a file there.
        command.current_dir(self.work.path());
        // Where it is slow, others are to be measured as well.
        let most = if self.card.is_host { most } else { most.min(least.max(left / 3)) };
        match child::output(&mut command, most.min(left)) {
            Ok(text) => Ok(Some(text)),
            Err(reason) => {
                self.report.leave_out(Some(format!("{what}: {reason}")));
                self.report.write()?;
                Ok(None)
            }
        }
    }

    /// The last line of a child's output that is JSON.
    pub fn line(text: &str) -> Option<Value> {
        json_line(text).ok()
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        if !child::is_interrupted() {
            self.report.finish(self.clock.elapsed());
        }
        self.report.write()?;
        say!("{}", self.report.path().display())?;
        match self.report.is_empty() {
            _ if child::is_interrupted() => Err(Failure::Interrupted),
            true => Err(Failure::Machine("nothing could be measured: the page says why".into())),
            false => Ok(()),
        }
    }
}

/// Seconds.
pub const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
