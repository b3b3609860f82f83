//! Pending sums over devices.

use super::error::NcclError;
use burn::tensor::Tensor;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// A pending sum over all processes.
#[derive(Debug)]
pub struct DeviceSum {
    pub(super) values: Box<Tensor<1>>,
    pub(super) done: Receiver<Result<Duration, String>>,
}

impl DeviceSum {
    /// Waits for the sum and returns it, or this process's part of it, with the time that NCCL took.
    ///
    /// # Errors
    /// When NCCL or the device failed, or `patience` has elapsed.
    pub fn wait(self, patience: Duration) -> Result<(Tensor<1>, Duration), NcclError> {
        match self.done.recv_timeout(patience) {
            Ok(Ok(took)) => Ok((*self.values, took)),
            Ok(Err(reason)) => Err(NcclError::Failed(reason)),
            Err(RecvTimeoutError::Timeout) => Err(NcclError::Late(patience)),
            Err(RecvTimeoutError::Disconnected) => Err(NcclError::Failed("its thread has ended".into())),
        }
    }
}
