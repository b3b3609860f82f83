//! Reads from a device, and a counter of waits.
//!
//! An accelerator works asynchronously. A read blocks until all earlier work is done, and then the accelerator idles
//! until the program gives it more.

use crate::device::Backing;
use burn::tensor::{Device, Tensor, TensorData};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// Returns the number of times this process has waited, through functions of this crate, for an accelerator to finish
/// its queue.
pub fn waits() -> u64 {
    WAITS.load(Ordering::Relaxed)
}

/// Waits until `device` has finished its queue. A failure of the device is reported by the next read.
pub fn wait(device: &Device) {
    if Backing::of(device) != Backing::Flex {
        WAITS.fetch_add(1, Ordering::Relaxed);
        let _ = device.sync();
    }
}

/// Returns the values of `x` in order. Waits for all earlier work of the device.
pub fn read<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    if Backing::of(&x.device()) != Backing::Flex {
        WAITS.fetch_add(1, Ordering::Relaxed);
    }
    numbers(x.into_data())
}

/// Begins to read `x` and returns at once: a separate thread waits for the values.
pub fn read_behind(x: Tensor<1>) -> Reading {
    let read: Read = match Backing::of(&x.device()) {
        Backing::Flex => return Reading { numbers: Numbers::Here(numbers(x.into_data())) },
        // LibTorch blocks in the calling thread.
        Backing::LibTorch | Backing::Unlisted => Box::new(move || numbers(x.into_data())),
        // CubeCL begins the copy when the data is first polled. Polling it here flushes the operations that fusion
        // still holds, always at the same place.
        Backing::Cuda | Backing::Cube => {
            let data = x.clone().into_data();
            Box::new(move || {
                let numbers = numbers(data);
                // Held until then, so that its memory is not reused.
                drop(x);
                numbers
            })
        }
    };
    let (answer, found) = channel();
    let sent = READER.lock().unwrap_or_else(PoisonError::into_inner).send((read, answer));
    sent.expect("the thread that reads lives as long as the process");
    Reading { numbers: Numbers::Coming(found) }
}

/// Numbers on their way from a device.
#[derive(Debug)]
pub struct Reading {
    numbers: Numbers,
}

#[derive(Debug)]
enum Numbers {
    Here(Vec<f32>),
    Coming(Receiver<Result<Vec<f32>, Box<dyn Any + Send>>>),
}

impl Reading {
    /// Returns the numbers. Call it after giving the device further work, so that the device does not idle.
    ///
    /// # Panics
    /// As reading the tensor would, if the device has failed.
    pub fn finish(self) -> Vec<f32> {
        match self.numbers {
            Numbers::Here(numbers) => numbers,
            Numbers::Coming(found) => {
                found.recv().expect("the thread that reads answers").unwrap_or_else(|cause| resume_unwind(cause))
            }
        }
    }

    /// As [`finish`](Self::finish), but without further work for the device. Counts in [`waits`].
    pub fn finish_now(self) -> Vec<f32> {
        if let Numbers::Coming(_) = self.numbers {
            WAITS.fetch_add(1, Ordering::Relaxed);
        }
        self.finish()
    }
}

static WAITS: AtomicU64 = AtomicU64::new(0);

type Read = Box<dyn FnOnce() -> Vec<f32> + Send>;
type Answer = Sender<Result<Vec<f32>, Box<dyn Any + Send>>>;

/// One thread for all reads of the process: CubeCL gives each thread a stream with its own memory.
static READER: LazyLock<Mutex<Sender<(Read, Answer)>>> = LazyLock::new(|| {
    let (sender, reads) = channel::<(Read, Answer)>();
    let run = move || {
        for (read, answer) in reads {
            // The receiver may be gone.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(read)));
        }
    };
    thread::Builder::new().name("read".into()).spawn(run).expect("a thread can be started");
    Mutex::new(sender)
});

fn numbers(data: TensorData) -> Vec<f32> {
    data.try_into_vec_as::<f32>().expect("numbers can be f32")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    #[test]
    fn what_is_read_behind_is_what_is_read() {
        let x = Tensor::<1>::from_floats([1.0, f32::NAN, -3.5], &device());
        let behind = read_behind(x.clone().mul_scalar(2.0));
        let later = read_behind(x.clone());
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(later.finish()), bits(read(x.clone())));
        assert_eq!(bits(behind.finish()), bits(read(x.mul_scalar(2.0))));
    }

    #[test]
    fn waits_are_counted_where_something_is_waited_for() {
        let x = Tensor::<1>::from_floats([1.0], &device());
        let before = waits();
        read_behind(x.clone()).finish();
        assert_eq!(waits(), before);
        read(x.clone());
        read_behind(x).finish_now();
        wait(&device());
        let expected = if Backing::of(&device()) == Backing::Flex { 0 } else { 3 };
        assert_eq!(waits() - before, expected);
    }
}
