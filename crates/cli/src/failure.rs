//! What ends a command early, and with which exit status.

use std::fmt::Display;
use undertone::phases::RunError;
use undertone::train::BackendFailure;

/// What ends a command early.
pub enum Failure {
    /// Something the user gave.
    BadInput(String),
    /// Something else.
    Machine(String),
    /// The user's wish.
    Interrupted,
    /// Nobody reads the results any more: there is no more to do, and nothing to say.
    Unread,
    /// What one of the processes that train together has said, with the exit status.
    SaidByAnother(u8),
}

impl Failure {
    /// What is said of it.
    #[cfg(feature = "mpi")]
    pub fn text(&self) -> &str {
        match self {
            Self::BadInput(text) | Self::Machine(text) => text,
            Self::Interrupted => "interrupted",
            Self::Unread => "nobody reads the results",
            Self::SaidByAnother(_) => "another process failed",
        }
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Machine(_) => 1,
            Self::BadInput(_) => 2,
            Self::Interrupted => 130,
            Self::Unread => 0,
            Self::SaidByAnother(status) => *status,
        }
    }

    /// Bad input, in the words of an error.
    pub fn bad_input(error: impl Display) -> Self {
        Self::BadInput(error.to_string())
    }

    /// A failure of the device, or of memory, and what helps.
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

    /// The failure that a run's error is; an interruption is logged, for it is none.
    pub fn of_run(error: RunError) -> Self {
        if error.is_interruption() {
            tracing::warn!("{error}");
            return Self::Interrupted;
        }
        if error.is_bad_input() { Self::bad_input(error) } else { Self::Machine(error.to_string()) }
    }
}
