//! Kernel launches: checked as by hardware, counted, and executed.

use crate::abi::{DevicePointer, Handle, INVALID_VALUE, NOT_SUPPORTED, Status, status};
use crate::driver::{Driver, driver};
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Shared memory of a block that did not opt into more.
const SHARED_WITHOUT_OPTIN: u64 = 48 << 10;

/// CubeCL's kernels that measure a card's speed; they have no result.
const PROBES: [&str; 2] = ["throughput", "launch_overhead"];
/// One of them, and its intended duration on the host's clock. If it takes less, CubeCL runs it with more iterations
/// the next time, until their number overflows an integer.
const PROBE: &str = PROBES[0];
const PROBE_TIME: Duration = Duration::from_millis(20);

/// Launch parameters except the kernel's own.
struct Launch {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_memory: u64,
    stream: Handle,
}

impl Driver {
    /// Launches a kernel; returns whether it measures the card.
    ///
    /// # Safety
    /// `values` has an address of a value for each parameter of the kernel.
    unsafe fn launch(&mut self, function: Handle, launch: &Launch, values: *mut *mut c_void) -> Result<bool, Status> {
        self.check(false)?;
        let bytes_of_parameters = self.bytes_of_parameters();
        let function = self.function(function)?;
        let (place, name, is_launched) = (function.place, function.entry.name.clone(), launch.fits(function));
        let source = function.source.clone();
        let pointers: Vec<usize> =
            (0..function.entry.parameters.len()).filter(|n| function.entry.parameters[*n].is_pointer).collect();
        let parameters = function.entry.parameter_bytes();
        let reason = match parameters > bytes_of_parameters {
            true => Some(format!("{parameters} bytes of parameters, and {bytes_of_parameters} are allowed")),
            false => is_launched,
        };
        if let Some(reason) = reason {
            self.problem(format!("`{name}` is launched with {reason}"));
            return Err(INVALID_VALUE);
        }
        let done = self.next(launch.stream)?;
        self.report.launches += 1;
        self.report.kernels[place].launches += 1;
        self.report.kernels[place].dynamic_shared_memory = launch.shared_memory;
        self.advance(launch.stream);
        for number in pointers {
            // SAFETY: there is a value for each parameter, and this one is an address.
            let address = unsafe { *(*values.add(number)).cast::<DevicePointer>() };
            if address != 0 && self.blocks.end_of(address).is_none() {
                self.problem(format!("argument {number} of `{name}` is not memory of the device"));
            }
            self.note_use(address, done, || format!("`{name}`"));
        }
        if !PROBES.iter().any(|probe| name.contains(probe)) {
            // SAFETY: the caller gives a value for each parameter.
            unsafe { self.compute(place, &name, source, launch, values) };
        }
        Ok(name.contains(PROBE))
    }

    /// Computes the kernel's result, if kernels are computed.
    ///
    /// # Safety
    /// `values` has an address of a value for each parameter of the kernel.
    unsafe fn compute(
        &mut self,
        place: usize,
        name: &str,
        source: Option<Arc<str>>,
        launch: &Launch,
        values: *mut *mut c_void,
    ) {
        let Some(computer) = &mut self.computer else { return };
        let sizes = [launch.grid, launch.block];
        // SAFETY: the caller gives a value for each parameter, and memory of the sizes that the kernel was generated
        // for.
        if let Err(reason) = unsafe { computer.run(place, name, source, sizes, launch.shared_memory, values) } {
            self.problem(format!("`{name}` is not computed: {reason}"));
        }
    }

    /// Maximum bytes of a kernel's parameters (CUDA 12.1, release notes).
    fn bytes_of_parameters(&self) -> u64 {
        if self.report.driver >= 12_010 && self.card.architecture() >= 70 { 32_764 } else { 4096 }
    }
}

impl Launch {
    /// Returns the reason why the kernel cannot be launched with these parameters.
    fn fits(&self, function: &crate::driver::Function) -> Option<String> {
        let [x, y, z] = self.grid;
        if [x, y, z].contains(&0) || x > 0x7FFF_FFFF || y > 65_535 || z > 65_535 {
            return Some(format!("a grid of {x} × {y} × {z}"));
        }
        let [x, y, z] = self.block;
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        if threads == 0 || threads > 1024 || z > 64 {
            return Some(format!("blocks of {x} × {y} × {z}"));
        }
        if let Some(most) = function.entry.max_threads
            && threads > most
        {
            return Some(format!("{threads} threads a block, and it was compiled for {most}"));
        }
        let room = function.opted_in.max(SHARED_WITHOUT_OPTIN.saturating_sub(function.entry.shared_memory));
        let wanted = self.shared_memory;
        (wanted > room).then(|| format!("{wanted} bytes of shared memory, and it has {room}"))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
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
) -> Status {
    if !extra.is_null() {
        return NOT_SUPPORTED;
    }
    let launch = Launch {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_memory: shared_memory.into(),
        stream,
    };
    // SAFETY: the caller gives a value for each parameter of the kernel.
    let launched = unsafe { driver().launch(function, &launch, values) };
    if launched == Ok(true) {
        std::thread::sleep(PROBE_TIME);
    }
    status(launched.map(drop))
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_memory: c_uint,
    stream: Handle,
    attributes: *mut c_void,
    attribute_count: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: Handle,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's description outlives the call.
    let config = unsafe { &*config };
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (config.grid, config.block);
    let (shared_memory, stream) = (config.shared_memory, config.stream);
    cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_memory, stream, values, extra)
}
