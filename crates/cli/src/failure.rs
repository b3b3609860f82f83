//! Failures that end a command early, and their exit statuses.

use std::fmt::Display;
use undertone::phases::RunError;
use undertone::report::ReportError;
use undertone::train::BackendFailure;

/// Reason why a command ended early.
pub enum Failure {
    /// An error in what the user provided: arguments, configuration or data.
    BadInput(String),
    /// Any other error, such as one of the device or the file system.
    Machine(String),
    /// The user interrupted the command.
    Interrupted,
    /// The reader of standard output has closed it: nothing is left to do, and no message is shown.
    Unread,
    /// Another process of the process group has already reported the error; with the exit status.
    SaidByAnother(u8),
}

impl Failure {
    /// Error message.
    #[cfg(feature = "mpi")]
    pub fn text(&self) -> &str {
        match self {
            Self::BadInput(text) | Self::Machine(text) => text,
            Self::Interrupted => "interrupted",
            Self::Unread => "nobody reads the results",
            Self::SaidByAnother(_) => "another process failed",
        }
    }

    /// Exit status of the program.
    pub fn status(&self) -> u8 {
        match self {
            Self::Machine(_) => 1,
            Self::BadInput(_) => 2,
            Self::Interrupted => 130,
            Self::Unread => 0,
            Self::SaidByAnother(status) => *status,
        }
    }

    /// Returns [`Self::BadInput`] with the message of `error`.
    pub fn bad_input(error: impl Display) -> Self {
        Self::BadInput(error.to_string())
    }

    /// Returns the failure for a device error or a lack of memory, with advice.
    pub fn of_backend(failure: BackendFailure) -> Self {
        Self::Machine(match failure {
            BackendFailure::OutOfMemory(reason) => {
                format!("memory ran out: {reason}; give it less at once, or use a device with more")
            }
            BackendFailure::Device(reason) => {
                format!("the device failed: {reason}; check its driver, or use `--device cpu`")
            }
        })
    }

    /// Returns the failure for the error of a report.
    pub fn of_report(error: ReportError) -> Self {
        if error.is_bad_input() { Self::bad_input(error) } else { Self::Machine(error.to_string()) }
    }

    /// Returns the failure for the error of a run. An interruption is only logged, because it is not an error.
    pub fn of_run(error: RunError) -> Self {
        if error.is_interruption() {
            tracing::warn!("{error}");
            return Self::Interrupted;
        }
        if error.is_bad_input() { Self::bad_input(error) } else { Self::Machine(error.to_string()) }
    }
}
