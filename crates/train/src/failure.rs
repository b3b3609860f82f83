//! Failures of backends. A backend fails by a panic, because tensor operations return tensors, and an error on an
//! accelerator surfaces at the next read.

/// Kind of a backend's failure, with the line of its message that describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendFailure {
    /// Memory ran out.
    OutOfMemory(String),
    /// The device or its driver failed. What was on the device is lost.
    Device(String),
}

/// Messages of backends and the runtime when an allocation fails.
const OUT_OF_MEMORY: [&str; 9] = [
    // cubecl-runtime: `IoError::OutOfMemory`, `BufferTooBig`, `PageSizesExhausted` and `LaunchError::OutOfMemory`.
    "out of device memory allocating",
    "can't allocate buffer of size",
    "every page size the memory tracks still holds",
    "out-of-memory error",
    // The name in CUDA's driver.
    "CUDA_ERROR_OUT_OF_MEMORY",
    // LibTorch, on a GPU and on the CPU.
    "CUDA out of memory",
    "can't allocate memory",
    "not enough memory",
    // Rust's allocator, before it aborts; found in the output of a child process.
    "memory allocation of ",
];

/// Whether the message of a panic, an error or a process reports that memory ran out.
pub fn says_out_of_memory(text: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|said| text.contains(said))
}

/// Messages of backends when a device has failed.
const DEVICE_FAILED: [&str; 9] = [
    // wgpu, when its driver refuses something.
    "wgpu error: ",
    // CubeCL: a lost device, a failed kernel, and a thread of its own that panicked.
    "The device is poisoned", "An error happened during execution", "bytes: host access failed",
    "task panicked on device runner thread", "RecvError",
    // CUDA's driver, through CubeCL and through LibTorch.
    "CUDA_ERROR_", "CUDA error: ",
    // cudarc, when one of NVIDIA's libraries is missing.
    "Unable to dynamically load",
];

/// Whether the message of a panic reports that the device failed.
fn says_device_failed(text: &str) -> bool {
    DEVICE_FAILED.iter().any(|said| text.contains(said))
}

/// Runs `work`, and turns a panic by which a backend reports a failure into an error. Other panics are resumed.
///
/// # Errors
/// The backend's message.
pub fn catch_backend_failure<T>(work: impl FnOnce() -> T) -> Result<T, BackendFailure> {
    // The caller drops whatever `work` was computing: half of a step's gradients is of no use.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|panic| match panic_text(&*panic) {
        Some(text) if says_out_of_memory(text) => BackendFailure::OutOfMemory(telling_line(text)),
        Some(text) if says_device_failed(text) => BackendFailure::Device(telling_line(text)),
        _ => std::panic::resume_unwind(panic),
    })
}

/// Stops such panics from being printed as well, for a binary that reports the error. All others are printed as before.
pub fn silence_backend_failures() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !panic_text(info.payload()).is_some_and(|text| says_out_of_memory(text) || says_device_failed(text)) {
            print(info);
        }
    }));
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> Option<&str> {
    payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Returns the line of a message that names the failure, or a description of a CUDA driver status below it. The rest
/// are backtraces.
pub fn telling_line(text: &str) -> String {
    if let Some(line) = text.lines().find(|line| says_out_of_memory(line)) {
        return line.trim().to_owned();
    }
    if let Some(words) = text.lines().find_map(in_words) {
        return words;
    }
    text.lines().find(|line| says_device_failed(line)).unwrap_or_default().trim().to_owned()
}

/// Statuses of CUDA's driver: number, name and meaning.
const STATUSES: [(&str, &str, &str); 5] = [
    (
        "214",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "an error in the card's memory that it cannot correct, or the card is gone",
    ),
    (
        "222",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "NVIDIA's compiler is newer than the driver: update the driver, or let CUDA_PATH name a CUDA toolkit of the version that \
         `nvidia-smi` shows",
    ),
    ("700", "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed memory that is not the card's"),
    ("702", "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel did not end in time"),
    ("719", "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"),
];

/// Returns the meaning of a line with a driver status, such as `cuEventSynchronize failed with status 700`.
fn in_words(line: &str) -> Option<String> {
    let number = line.trim().rsplit_once(" failed with status ").map(|(_, number)| number);
    let found = STATUSES.iter().find(|(known, name, _)| number == Some(known) || line.contains(name));
    found.map(|(_, name, words)| format!("{words} ({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_allocations_become_errors_and_other_panics_stay() {
        let said = "Failed to read a tensor\nCaused by:\n  out of device memory allocating 4096 bytes\nbacktrace\n";
        assert_eq!(
            catch_backend_failure(|| -> u8 { panic!("{said}") }),
            Err(BackendFailure::OutOfMemory("out of device memory allocating 4096 bytes".to_owned()))
        );
        assert_eq!(catch_backend_failure(|| 7), Ok(7));
        let other = std::panic::catch_unwind(|| catch_backend_failure(|| -> u8 { panic!("index out of bounds") }));
        assert!(other.is_err(), "a mistake in the program is no lack of memory");
    }

    #[test]
    fn a_device_that_fails_is_told_from_a_mistake_in_the_program() {
        for (said, line) in [
            ("wgpu error: Validation Error\n\nCaused by:\n  In Queue::write_buffer\n", "wgpu error: Validation Error"),
            (
                "called `Result::unwrap()` on an `Err` value: RecvError",
                "called `Result::unwrap()` on an `Err` value: RecvError",
            ),
            (
                "Error while reading data: use `try_into_data` instead to catch the error at runtime: The device is poisoned\nCaused \
                 by:\n  cuEventSynchronize failed with status 700\nBacktrace:\n",
                "a kernel accessed memory that is not the card's (CUDA_ERROR_ILLEGAL_ADDRESS)",
            ),
        ] {
            let failure = catch_backend_failure(|| -> u8 { panic!("{said}") });
            assert_eq!(failure, Err(BackendFailure::Device(line.to_owned())));
        }
        let both = "An error happened during execution\nCaused by:\n  can't allocate buffer of size: 4294967296\n";
        let failure = catch_backend_failure(|| -> u8 { panic!("{both}") });
        assert!(matches!(failure, Err(BackendFailure::OutOfMemory(_))), "{failure:?}");
    }

    #[test]
    fn what_backends_say_is_recognised() {
        for said in [
            "called `Result::unwrap()` on an `Err` value: Torch(\"CUDA out of memory. Tried to allocate 2.00 GiB\")",
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
            "An out-of-memory error happened during launch",
            "memory allocation of 8589934592 bytes failed",
        ] {
            assert!(says_out_of_memory(said), "{said}");
        }
        assert!(!says_out_of_memory("the memory of the device is poisoned by an illegal address"));
    }
}
