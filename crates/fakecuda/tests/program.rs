//! The driver as a program finds it: functions of CUDA's interface by their names.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called with pointers")]

use fakecuda::Report;
use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

type Handle = *mut c_void;

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) -> c_int;
    fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> c_int;
    fn cuMemFree_v2(address: u64) -> c_int;
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) -> c_int;
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> c_int;
    fn cuStreamCreate(out: *mut Handle, flags: c_uint) -> c_int;
    fn cuStreamSynchronize(stream: Handle) -> c_int;
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> c_int;
    fn cuEventCreate(out: *mut Handle, flags: c_uint) -> c_int;
    fn cuEventRecord(event: Handle, stream: Handle) -> c_int;
    fn cuEventElapsedTime(out: *mut f32, start: Handle, end: Handle) -> c_int;
    fn cuModuleLoadData(out: *mut Handle, image: *const c_void) -> c_int;
    fn cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const i8) -> c_int;
    fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) -> c_int;
    #[allow(clippy::too_many_arguments)]
    fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_memory: c_uint,
        stream: Handle,
        values: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
}

const PTX: &std::ffi::CStr = c".version 8.7
.target sm_90a
.visible .entry twice(
\t.param .u64 .ptr .align 1 twice_param_0,
\t.param .u32 twice_param_1
)
.maxntid 64, 1, 1
{
\tret;
}
";

#[test]
fn a_program_finds_a_card_that_checks_and_counts() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fakecuda");
    // SAFETY: no other thread runs, and every pointer is to something that lives as long as the call.
    unsafe {
        std::env::set_var("FAKECUDA_OUT", &out);
        assert_eq!(cuInit(0), 0);
        let mut major = 0;
        assert_eq!((cuDeviceGetAttribute(&raw mut major, 75, 0), major), (0, 9));
        let mut memory = 0;
        assert_eq!(cuMemAlloc_v2(&raw mut memory, 4096), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut memory, 1 << 40), 2, "more than the card has");
        let [mut copies, mut kernels] = [null_mut(); 2];
        assert_eq!((cuStreamCreate(&raw mut copies, 1), cuStreamCreate(&raw mut kernels, 1)), (0, 0));
        let numbers = [7_u8; 4096];
        assert_eq!(cuMemcpyHtoDAsync_v2(memory, numbers.as_ptr().cast(), 4096, copies), 0);
        assert_eq!(
            cuMemcpyHtoDAsync_v2(memory + 1, numbers.as_ptr().cast(), 4096, copies),
            1,
            "it leaves the allocation"
        );

        let [mut module, mut function] = [null_mut(); 2];
        assert_eq!(cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()), 0);
        assert_eq!(cuModuleGetFunction(&raw mut function, module, c"none".as_ptr()), 500);
        assert_eq!(cuModuleGetFunction(&raw mut function, module, c"twice".as_ptr()), 0);
        let launch = |threads, shared, mut address: u64| {
            let mut number = 3_u32;
            let mut values = [(&raw mut address).cast::<c_void>(), (&raw mut number).cast()];
            cuLaunchKernel(function, 8, 1, 1, threads, 1, 1, shared, kernels, values.as_mut_ptr(), null_mut())
        };
        assert_eq!(launch(64, 0, memory), 0, "hardware does not see that nobody waited for the copy");
        let [mut before, mut event] = [null_mut(); 2];
        assert_eq!((cuEventCreate(&raw mut before, 0), cuEventCreate(&raw mut event, 0)), (0, 0));
        let mut milliseconds = 0.0;
        assert_eq!(cuEventElapsedTime(&raw mut milliseconds, before, event), 400, "nobody has recorded them");
        assert_eq!((cuEventRecord(event, copies), cuStreamWaitEvent(kernels, event, 0)), (0, 0));
        assert_eq!(launch(64, 0, memory), 0);
        assert_eq!(launch(65, 0, memory), 1, "it was compiled for 64 threads");
        assert_eq!(launch(64, 50_000, memory), 1, "it did not opt into so much");
        assert_eq!((cuFuncSetAttribute(function, 8, 50_000), launch(64, 50_000, memory)), (0, 0));
        assert_eq!(launch(64, 0, 12_345), 0, "hardware would find out later");
        assert_eq!((cuEventRecord(before, kernels), cuEventElapsedTime(&raw mut milliseconds, event, before)), (0, 0));
        assert!(milliseconds > 0.015, "four launches take 20 µs: {milliseconds}");

        let mut read = [9_u8; 4096];
        assert_eq!(cuMemcpyDtoHAsync_v2(read.as_mut_ptr().cast(), memory, 4096, kernels), 0);
        assert_eq!((cuStreamSynchronize(kernels), read), (0, [0; 4096]), "nothing was computed");
        assert_eq!((cuMemFree_v2(memory), cuMemFree_v2(memory)), (0, 1));
    }
    let report: Report = fakecuda::report();
    assert_eq!((report.card.as_str(), report.architecture, report.launches), ("NVIDIA H200", 90, 4));
    assert_eq!((report.kernels[0].name.as_str(), report.kernels[0].launches), ("twice", 4));
    assert_eq!((report.memory.now, report.memory.peak, report.memory.refused), (0, 4096, 1));
    assert_eq!((report.to_device.count, report.to_device.bytes, report.waits.streams), (1, 4096, 1));
    let problems: Vec<&str> = report.problems.keys().map(String::as_str).collect();
    assert_eq!(
        problems,
        [
            "`twice` is launched with 50000 bytes of shared memory, and it has 49152",
            "`twice` is launched with 65 threads a block, and it was compiled for 64",
            "`twice` uses memory before the copy to it on another stream is known to be done",
            "a copy to the device leaves its allocation",
            "argument 0 of `twice` is not memory of the device",
            "cuEventElapsedTime is given an event before it was recorded",
            "memory is freed that is not allocated",
        ]
    );
    assert!(out.join("0000-twice.ptx").is_file());
}
