//! Types and constants of CUDA's interface.

use std::ffi::c_void;

/// Result of a function of the driver.
pub type Status = i32;
/// Address in a device's memory.
pub type DevicePointer = u64;
/// Context, stream, event, module or function: an opaque address.
pub type Handle = *mut c_void;

pub const SUCCESS: Status = 0;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const INVALID_DEVICE: Status = 101;
pub const INVALID_IMAGE: Status = 200;
pub const INVALID_CONTEXT: Status = 201;
pub const NO_BINARY_FOR_GPU: Status = 209;
pub const ECC_UNCORRECTABLE: Status = 214;
pub const INVALID_PTX: Status = 218;
pub const UNSUPPORTED_PTX_VERSION: Status = 222;
pub const INVALID_HANDLE: Status = 400;
pub const NOT_FOUND: Status = 500;
pub const ILLEGAL_ADDRESS: Status = 700;
pub const LAUNCH_FAILED: Status = 719;
pub const NOT_SUPPORTED: Status = 801;

/// Names and texts of NVIDIA's header, zero-terminated.
const STATUSES: [(Status, &str, &str); 15] = [
    (SUCCESS, "CUDA_SUCCESS\0", "no error\0"),
    (INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE\0", "invalid argument\0"),
    (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY\0", "out of memory\0"),
    (INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE\0", "invalid device ordinal\0"),
    (INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE\0", "device kernel image is invalid\0"),
    (INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT\0", "invalid device context\0"),
    (NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU\0", "no kernel image is available for execution on the device\0"),
    (ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE\0", "uncorrectable ECC error encountered\0"),
    (INVALID_PTX, "CUDA_ERROR_INVALID_PTX\0", "a PTX JIT compilation failed\0"),
    (
        UNSUPPORTED_PTX_VERSION,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION\0",
        "the provided PTX was compiled with an unsupported toolchain.\0",
    ),
    (INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE\0", "invalid resource handle\0"),
    (NOT_FOUND, "CUDA_ERROR_NOT_FOUND\0", "named symbol not found\0"),
    (ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS\0", "an illegal memory access was encountered\0"),
    (LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED\0", "unspecified launch failure\0"),
    (NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED\0", "operation not supported\0"),
];

/// The name and the text of a status, ended by a zero.
pub fn name_and_text(status: Status) -> (&'static str, &'static str) {
    let found = STATUSES.iter().find(|(known, ..)| *known == status);
    found.map_or(("CUDA_ERROR_UNKNOWN\0", "unknown error\0"), |(_, name, text)| (name, text))
}

/// Returns the status of a function that may end early by an error.
pub fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}
