//! Numbers that come back from a device, and what is waited for.
//!
//! An accelerator works through what it is asked for while the program asks for more. Who reads a number of it waits until
//! everything before has been done, and the accelerator then waits for the program.

use crate::device::Backing;
use burn::tensor::{Device, Tensor, TensorData};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// How often this process has waited for an accelerator to do all it was asked for, by the functions of this crate.
pub fn waits() -> u64 {
    WAITS.load(Ordering::Relaxed)
}

/// Returns when `device` has done all it was asked for. A device that has failed says so at the next read, where it is an
/// error.
pub fn wait(device: &Device) {
    if Backing::of(device) != Backing::Flex {
        WAITS.fetch_add(1, Ordering::Relaxed);
        let _ = device.sync();
    }
}

/// The numbers of `x` in their order, as soon as the device has found them: waits for all that it was asked for before.
pub fn read<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    if Backing::of(&x.device()) != Backing::Flex {
        WAITS.fetch_add(1, Ordering::Relaxed);
    }
    numbers(x.into_data())
}

/// Begins to read `x` and returns at once: a thread of its own waits for the numbers.
pub fn read_behind(x: Tensor<1>) -> Reading {
    let read: Read = match Backing::of(&x.device()) {
        Backing::Flex => return Reading { numbers: Numbers::Here(numbers(x.into_data())) },
        // LibTorch waits where it is asked.
        Backing::LibTorch | Backing::Unlisted => Box::new(move || numbers(x.into_data())),
        // CubeCL begins the copy when the data is first looked at. Asking for it here puts what fusion still holds in the
        // device's queue, always at the same place.
        Backing::Cuda | Backing::Cube => {
            let data = x.clone().into_data();
            Box::new(move || {
                let numbers = numbers(data);
                // Held until then, so that nothing is written over it.
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
    /// The numbers, for who has given the device other work since, which it does meanwhile.
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

    /// As [`finish`](Self::finish), with nothing else for the device to do, which counts in [`waits`].
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

/// One thread for all reads of the process: to CubeCL each thread is a stream with memory of its own.
static READER: LazyLock<Mutex<Sender<(Read, Answer)>>> = LazyLock::new(|| {
    let (sender, reads) = channel::<(Read, Answer)>();
    let run = move || {
        for (read, answer) in reads {
            // Who no longer wants to know has left.
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
