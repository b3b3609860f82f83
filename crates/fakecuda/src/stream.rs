//! Streams and events. Every operation is done when its call returns. A stream has only a clock that each launch
//! advances, and a position in the happens-before order.

use crate::abi::{DevicePointer, Handle, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status, status};
use crate::driver::{Driver, driver};
use crate::order::{Done, Seen};
use std::ffi::{c_int, c_uint, c_void};

/// A stream.
pub struct Stream {
    /// Number in the happens-before order.
    pub number: usize,
    /// Emulated clock.
    pub milliseconds: f64,
}

/// An event.
#[derive(Default)]
pub struct Event {
    /// Time and clock of the recording; `None` before it.
    recorded: Option<(f64, Seen)>,
}

impl Driver {
    /// Returns the stream of a handle; 1 and 2 are aliases of the default stream.
    pub fn stream(&self, handle: Handle) -> Result<&Stream, Status> {
        self.streams.get(&stream_key(handle)).ok_or(INVALID_HANDLE)
    }

    /// Returns the next operation of a stream.
    pub fn next(&mut self, handle: Handle) -> Result<Done, Status> {
        let number = self.stream(handle)?.number;
        Ok(self.order.next(number))
    }

    /// Advances a stream's clock by one launch.
    pub fn advance(&mut self, handle: Handle) {
        let milliseconds = self.launch_milliseconds;
        if let Some(stream) = self.streams.get_mut(&stream_key(handle)) {
            stream.milliseconds += milliseconds;
        }
    }

    /// Records that a kernel or a copy uses the memory at an address.
    pub fn note_use(&mut self, address: DevicePointer, done: Done, what: impl FnOnce() -> String) {
        if !self.order.use_of(address, done) {
            self.problem(format!("{} uses memory before the copy to it on another stream is known to be done", what()));
        }
    }

    /// Returns the recording of an event; reports a problem if it was not recorded.
    fn recorded(&mut self, event: Handle, what: &str) -> Result<(f64, Seen), Status> {
        let found = self.events.get(&(event as usize)).ok_or(INVALID_HANDLE)?.recorded.clone();
        if found.is_none() {
            self.problem(format!("{what} is given an event before it was recorded"));
        }
        found.ok_or(INVALID_HANDLE)
    }
}

fn stream_key(handle: Handle) -> usize {
    if (handle as usize) < 16 { 0 } else { handle as usize }
}

fn create_stream(out: *mut Handle) -> Status {
    let mut driver = driver();
    let (handle, number) = (driver.new_handle(), driver.order.add_stream());
    driver.streams.insert(handle, Stream { number, milliseconds: 0.0 });
    // SAFETY: the caller provides memory for a handle.
    unsafe { *out = handle as Handle };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(out: *mut Handle, _flags: c_uint) -> Status {
    create_stream(out)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(out: *mut Handle, _flags: c_uint, _priority: c_int) -> Status {
    create_stream(out)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    driver().streams.remove(&(stream as usize)).map_or(INVALID_HANDLE, |_| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> Status {
    let mut driver = driver();
    driver.report.waits.streams += 1;
    status(driver.check(true).and_then(|()| {
        let number = driver.stream(stream)?.number;
        driver.order.host_waited_for(number);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(_stream: Handle) -> Status {
    status(driver().check(true))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Status {
    let mut driver = driver();
    driver.report.waits.between_streams += 1;
    status(driver.check(false).and_then(|()| {
        let (milliseconds, seen) = driver.recorded(event, "cuStreamWaitEvent")?;
        let number = driver.stream(stream)?.number;
        driver.order.wait(number, &seen);
        let stream = driver.streams.get_mut(&stream_key(stream)).ok_or(INVALID_HANDLE)?;
        stream.milliseconds = stream.milliseconds.max(milliseconds);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(_stream: Handle, function: extern "C" fn(*mut c_void), data: *mut c_void) -> Status {
    function(data);
    SUCCESS
}

/// Graph capture is not supported: a program continues as on a driver without it.
#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(_stream: Handle, _mode: c_uint) -> Status {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(_stream: Handle, out: *mut c_int) -> Status {
    // SAFETY: the caller provides memory for a number.
    unsafe { *out = 0 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(out: *mut Handle, _flags: c_uint) -> Status {
    let mut driver = driver();
    let handle = driver.new_handle();
    driver.events.insert(handle, Event::default());
    // SAFETY: the caller provides memory for a handle.
    unsafe { *out = handle as Handle };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    driver().events.remove(&(event as usize)).map_or(INVALID_HANDLE, |_| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Status {
    let mut driver = driver();
    status(driver.check(false).and_then(|()| {
        let stream = driver.stream(stream)?;
        let recorded = Some((stream.milliseconds, driver.order.record(stream.number)));
        driver.events.get_mut(&(event as usize)).ok_or(INVALID_HANDLE)?.recorded = recorded;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: c_uint) -> Status {
    cuEventRecord(event, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    let mut driver = driver();
    driver.report.waits.events += 1;
    status(driver.check(true).and_then(|()| {
        let (_, seen) = driver.recorded(event, "cuEventSynchronize")?;
        driver.order.host_waited(&seen);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> Status {
    let mut driver = driver();
    status(driver.check(true).and_then(|()| {
        let (_, seen) = driver.recorded(event, "cuEventQuery")?;
        driver.order.host_waited(&seen);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(out: *mut f32, start: Handle, end: Handle) -> Status {
    let mut driver = driver();
    status(driver.check(true).and_then(|()| {
        let (from, _) = driver.recorded(start, "cuEventElapsedTime")?;
        let (to, _) = driver.recorded(end, "cuEventElapsedTime")?;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller provides memory for a number. A real clock advances between two events.
        unsafe { *out = (to - from + 0.001) as f32 };
        Ok(())
    }))
}

/// Name of the function in programs built for CUDA 12.8 and later.
#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(out: *mut f32, start: Handle, end: Handle) -> Status {
    cuEventElapsedTime(out, start, end)
}
