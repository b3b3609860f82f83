//! Devices and their contexts.

use crate::abi::{
    Handle, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, SUCCESS, Status, name_and_text, status,
};
use crate::driver::driver;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};

/// Context of the first device; those of others have the next numbers. Handles are opaque.
const CONTEXT: usize = 0xC0;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Returns the device whose context is current in this thread.
pub fn current_device() -> Option<u32> {
    CURRENT.get().checked_sub(CONTEXT).and_then(|device| device.try_into().ok())
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> Status {
    drop(driver());
    if flags == 0 { SUCCESS } else { INVALID_VALUE }
}

/// Writes a call's result to the caller's memory.
fn answer<T>(out: *mut T, value: T) -> Status {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller provides memory for a value of this type.
    unsafe { out.write(value) };
    SUCCESS
}

/// Writes a zero-terminated text, truncated to `room` bytes.
fn answer_text(out: *mut c_char, room: c_int, text: &str) -> Status {
    let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else { return INVALID_VALUE };
    let length = text.len().min(room - 1);
    // SAFETY: the caller provides memory for `room` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), length);
        out.add(length).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(out: *mut c_int) -> Status {
    answer(out, driver().report.driver)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(out: *mut c_int) -> Status {
    answer(out, driver().devices)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(out: *mut c_int, index: c_int) -> Status {
    if (0..driver().devices).contains(&index) { answer(out, index) } else { INVALID_DEVICE }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(out: *mut c_char, room: c_int, _device: c_int) -> Status {
    answer_text(out, room, driver().card.name)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(out: *mut c_char, room: c_int, device: c_int) -> Status {
    answer_text(out, room, &format!("0000:{:02X}:00.0", 0x17 + device))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], device: c_int) -> Status {
    answer(out, [device.to_le_bytes()[0] + 1; 16])
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, _device: c_int) -> Status {
    answer(out, driver().memory_bytes as usize)
}

/// Attributes by the numbers of `CUdevice_attribute`.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) -> Status {
    let card = driver().card;
    let since = |major: i32| c_int::from(card.capability.0 >= major);
    let value = match attribute {
        // Threads of a block, and its width and height.
        1..=3 => 1024,
        4 => 64,
        // The grid.
        5 => c_int::MAX,
        6 | 7 => 65_535,
        // Shared memory of a block that does not opt into more.
        8 => 48 << 10,
        // Constant memory, threads of a warp.
        9 => 64 << 10,
        10 => 32,
        // Registers of a block, and of a multiprocessor.
        12 | 82 => 65_536,
        14 => 512,
        16 => card.multiprocessors,
        // Concurrent kernels; copies concurrent with kernels; unified addresses.
        31 | 15 | 41 => 1,
        33 => 0x17 + device,
        38 => card.cache,
        39 => card.threads,
        40 => 3,
        75 => card.capability.0,
        76 => card.capability.1,
        81 => card.shared_memory,
        // Managed memory, stream priorities, cooperative launches, memory pools.
        78 | 83 | 95 | 115 => 1,
        97 => card.shared_memory_optin,
        106 => card.blocks,
        111 => 1024 * since(8),
        // Clusters, tensor maps.
        120 | 127 => since(9),
        _ => 0,
    };
    answer(out, value)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(out: *mut c_int, device: c_int, peer: c_int) -> Status {
    answer(out, c_int::from(device != peer))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int) -> Status {
    answer(out, (CONTEXT + device as usize) as Handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> Status {
    CURRENT.set(context as usize);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(out: *mut Handle) -> Status {
    answer(out, CURRENT.get() as Handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(out: *mut c_int) -> Status {
    current_device().map_or(INVALID_CONTEXT, |device| answer(out, device as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Status {
    let mut driver = driver();
    driver.report.waits.contexts += 1;
    status(driver.check(true).map(|()| driver.order.host_waited_for_all()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    answer(least, 0);
    answer(greatest, -5)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(status: Status, out: *mut *const c_char) -> Status {
    answer(out, name_and_text(status).0.as_ptr().cast())
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(status: Status, out: *mut *const c_char) -> Status {
    answer(out, name_and_text(status).1.as_ptr().cast())
}

/// Programs that load functions by name use the loader's `dlsym`, as cudarc does.
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    _name: *const c_char,
    _out: *mut Handle,
    _version: c_int,
    _flags: u64,
    _found: *mut c_int,
) -> Status {
    NOT_FOUND
}
