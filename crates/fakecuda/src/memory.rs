//! Device memory, which is host memory, and copies.

use crate::abi::{DevicePointer, Handle, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Status, status};
use crate::driver::{Driver, driver};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::RangeInclusive;
use std::ptr::null_mut;
use std::str::FromStr;

/// Live allocations.
#[derive(Default)]
pub struct Blocks {
    /// Size of each allocation on a device in bytes, by address.
    device: BTreeMap<DevicePointer, u64>,
    /// Size of each allocation of pinned memory in bytes, by address.
    pinned: HashMap<usize, usize>,
}

/// Bytes of the numbers of a training step (whether it is taken, gradient norm, loss, and one or two terms): five or six f32.
const STEP_NUMBERS: RangeInclusive<usize> = 20..=24;

/// Values that reads return if kernels are not computed.
#[derive(Clone, Copy, Default)]
pub enum Reads {
    #[default]
    Zeros,
    /// Each f32 is 1 in reads as long as [`STEP_NUMBERS`], so that steps count as taken. Others are zeros, because tables
    /// of indices are read, too.
    Ones,
    /// The bytes that were copied there.
    Real,
}

impl Reads {
    /// Writes what a read of `bytes` bytes at `from` returns.
    ///
    /// # Safety
    /// Both ranges are the caller's.
    unsafe fn write(self, to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: as the caller ensures.
        unsafe {
            match self {
                Self::Real => std::ptr::copy(from, to, bytes),
                Self::Ones if STEP_NUMBERS.contains(&bytes) => {
                    let one = 1.0_f32.to_ne_bytes();
                    (0..bytes).for_each(|at| *to.add(at) = one[at % one.len()]);
                }
                Self::Zeros | Self::Ones => std::ptr::write_bytes(to, 0, bytes),
            }
        }
    }
}

impl FromStr for Reads {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "zeros" => Ok(Self::Zeros),
            "ones" => Ok(Self::Ones),
            "real" => Ok(Self::Real),
            _ => Err(()),
        }
    }
}

impl Blocks {
    /// End of the allocation that contains `address`; `None` if there is none.
    pub fn end_of(&self, address: DevicePointer) -> Option<DevicePointer> {
        let (start, bytes) = self.device.range(..=address).next_back()?;
        (address < start + bytes).then_some(start + bytes)
    }
}

/// Maps zeroed pages that are allocated only when they are accessed, so that a card's whole memory can be handed out.
fn map(bytes: u64) -> Option<*mut c_void> {
    let bytes = usize::try_from(bytes).ok()?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new pages, at an address of the system's choice.
    let address = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address)
}

/// Sets memory to zeros, whole pages by returning them to the system: an optimizer's state may exceed the memory of a
/// host.
fn clear(memory: &mut [u8]) {
    // SAFETY: any bytes are a valid page, and their reader gives them no other meaning.
    let (head, pages, tail) = unsafe { memory.align_to_mut::<Page>() };
    head.fill(0);
    tail.fill(0);
    // SAFETY: these are whole pages of an anonymous private mapping, which read as zeros after it.
    let failed = unsafe { libc::madvise(pages.as_mut_ptr().cast(), size_of_val(pages), libc::MADV_DONTNEED) };
    if failed != 0 {
        pages.fill(Page { _bytes: [0; 4096] });
    }
}

#[derive(Clone)]
#[repr(align(4096))]
struct Page {
    _bytes: [u8; 4096],
}

impl Driver {
    fn allocate(&mut self, bytes: u64) -> Result<DevicePointer, Status> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        self.check(false)?;
        self.report.memory.allocations += 1;
        let is_refused = self.fault.is_some_and(|fault| fault.refuses_allocation(self.report.memory.allocations));
        let fits = bytes <= self.free_bytes() && !is_refused;
        let Some(address) = fits.then(|| map(bytes)).flatten() else {
            self.report.memory.refused += 1;
            return Err(OUT_OF_MEMORY);
        };
        let address = address as DevicePointer;
        self.blocks.device.insert(address, bytes);
        self.report.memory.now += bytes;
        self.report.memory.peak = self.report.memory.peak.max(self.report.memory.now);
        Ok(address)
    }

    fn release(&mut self, address: DevicePointer) -> Result<(), Status> {
        if address == 0 {
            return Ok(());
        }
        let Some(bytes) = self.blocks.device.remove(&address) else {
            self.problem("memory is freed that is not allocated".into());
            return Err(INVALID_VALUE);
        };
        self.report.memory.now -= bytes;
        self.order.forget(address..address + bytes);
        // SAFETY: these pages were mapped by `map` with this length, and nothing else uses them.
        unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
        Ok(())
    }

    /// Whether `bytes` from `address` lie in one allocation.
    fn holds(&mut self, address: DevicePointer, bytes: u64, what: &str) -> Result<(), Status> {
        let fits = self.blocks.end_of(address).is_some_and(|end| bytes <= end - address);
        if fits || bytes == 0 {
            return Ok(());
        }
        self.problem(format!("{what} leaves its allocation"));
        Err(INVALID_VALUE)
    }

    fn copy_to_device(
        &mut self,
        to: DevicePointer,
        from: *const u8,
        bytes: usize,
        stream: Handle,
    ) -> Result<(), Status> {
        self.check(false)?;
        self.holds(to, bytes as u64, "a copy to the device")?;
        self.note_write(to, bytes as u64, stream)?;
        // SAFETY: the range was just found to be allocated, and the caller owns `bytes` at `from`.
        unsafe { std::ptr::copy(from, to as *mut u8, bytes) };
        self.report.to_device.add(bytes as u64);
        Ok(())
    }

    fn note_write(&mut self, to: DevicePointer, bytes: u64, stream: Handle) -> Result<(), Status> {
        let done = self.next(stream)?;
        if !self.order.write(to..to + bytes, done) {
            self.problem(
                "a copy to the device overwrites memory before its use on another stream is known to be done".into(),
            );
        }
        Ok(())
    }

    fn copy_to_host(&mut self, to: *mut u8, from: DevicePointer, bytes: usize, stream: Handle) -> Result<(), Status> {
        self.check(false)?;
        self.holds(from, bytes as u64, "a copy to the host")?;
        let done = self.next(stream)?;
        self.note_use(from, done, || "a copy to the host".into());
        self.read(to, from, bytes);
        self.report.to_host.add(bytes as u64);
        Ok(())
    }

    /// Reads what [`Reads`] says unless kernels are computed: otherwise the values that a kernel would have written do
    /// not exist.
    fn read(&self, to: *mut u8, from: DevicePointer, bytes: usize) {
        let reads = if self.computer.is_some() { Reads::Real } else { self.reads };
        // SAFETY: the caller checked the range, and the program owns `bytes` at `to`.
        unsafe { reads.write(to, from as *const u8, bytes) }
    }

    fn copy_on_device(
        &mut self,
        to: DevicePointer,
        from: DevicePointer,
        bytes: usize,
        stream: Handle,
    ) -> Result<(), Status> {
        self.check(false)?;
        self.holds(from, bytes as u64, "a copy on the device")?;
        self.holds(to, bytes as u64, "a copy on the device")?;
        let done = self.next(stream)?;
        self.note_use(from, done, || "a copy on the device".into());
        self.note_write(to, bytes as u64, stream)?;
        // SAFETY: both ranges were just found to be allocated.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        self.report.on_device.add(bytes as u64);
        Ok(())
    }

    /// Reads the numbers that a device contributes to a collective operation.
    pub fn collective_input(&mut self, from: DevicePointer, count: usize, stream: Handle) -> Result<Vec<f32>, Status> {
        let bytes = 4 * count;
        self.check(false)?;
        self.holds(from, bytes as u64, "a sum over devices")?;
        let done = self.next(stream)?;
        self.note_use(from, done, || "a sum over devices".into());
        let mut values = vec![0.0; count];
        // SAFETY: the range was just found to be allocated, and the vector has the same length.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, values.as_mut_ptr().cast(), bytes) };
        self.report.between_devices.add(bytes as u64);
        Ok(values)
    }

    /// Writes the result of a collective operation.
    pub fn collective_output(&mut self, to: DevicePointer, sum: &[f32], stream: Handle) -> Result<(), Status> {
        let bytes = size_of_val(sum);
        self.holds(to, bytes as u64, "a sum over devices")?;
        self.note_write(to, bytes as u64, stream)?;
        // SAFETY: the range was just found to be allocated.
        unsafe { std::ptr::copy_nonoverlapping(sum.as_ptr().cast(), to as *mut u8, bytes) };
        Ok(())
    }

    fn set(&mut self, to: DevicePointer, value: &[u8], count: usize, stream: Handle) -> Result<(), Status> {
        let bytes = value.len() * count;
        self.check(false)?;
        self.holds(to, bytes as u64, "setting memory")?;
        self.note_write(to, bytes as u64, stream)?;
        // SAFETY: the range was just found to be allocated.
        let memory = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) };
        match value.iter().all(|byte| *byte == 0) {
            true => clear(memory),
            false => memory.chunks_exact_mut(value.len()).for_each(|chunk| chunk.copy_from_slice(value)),
        }
        self.report.set.add(bytes as u64);
        Ok(())
    }
}

/// Writes the address of an allocation to the caller's pointer.
fn answer(out: *mut DevicePointer, found: Result<DevicePointer, Status>) -> Status {
    // SAFETY: the caller provides memory for an address.
    status(found.map(|address| unsafe { *out = address }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(out: *mut DevicePointer, bytes: usize) -> Status {
    answer(out, driver().allocate(bytes as u64))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(out: *mut DevicePointer, bytes: usize, _stream: Handle) -> Status {
    answer(out, driver().allocate(bytes as u64))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: DevicePointer) -> Status {
    status(driver().release(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: DevicePointer, _stream: Handle) -> Status {
    status(driver().release(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    let mut driver = driver();
    driver.report.memory.asked += 1;
    // SAFETY: the caller provides memory for two numbers.
    unsafe {
        *free = driver.free_bytes() as usize;
        *total = driver.memory_bytes as usize;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    let Some(address) = map(bytes.max(1) as u64) else { return OUT_OF_MEMORY };
    let mut driver = driver();
    driver.blocks.pinned.insert(address as usize, bytes);
    driver.report.memory.pinned += bytes as u64;
    // SAFETY: the caller provides memory for an address.
    unsafe { *out = address };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> Status {
    cuMemHostAlloc(out, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: *mut c_void) -> Status {
    let mut driver = driver();
    let Some(bytes) = driver.blocks.pinned.remove(&(address as usize)) else {
        driver.problem("pinned memory is freed that is not allocated".into());
        return INVALID_VALUE;
    };
    driver.report.memory.pinned -= bytes as u64;
    // SAFETY: these pages were mapped by `map` with this length, and the caller frees them.
    unsafe { libc::munmap(address, bytes.max(1)) };
    SUCCESS
}

/// Waits as for a slow bus, without holding the driver's lock.
fn delay() {
    let delay = driver().fault.and_then(|fault| fault.copy_delay());
    delay.into_iter().for_each(std::thread::sleep);
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: DevicePointer, from: *const c_void, bytes: usize, stream: Handle) -> Status {
    delay();
    status(driver().copy_to_device(to, from.cast(), bytes, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: DevicePointer, from: *const c_void, bytes: usize) -> Status {
    cuMemcpyHtoDAsync_v2(to, from, bytes, null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: DevicePointer, bytes: usize, stream: Handle) -> Status {
    status(driver().copy_to_host(to.cast(), from, bytes, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: DevicePointer, bytes: usize) -> Status {
    cuMemcpyDtoHAsync_v2(to, from, bytes, null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: DevicePointer, from: DevicePointer, bytes: usize, stream: Handle) -> Status {
    status(driver().copy_on_device(to, from, bytes, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: DevicePointer, from: DevicePointer, bytes: usize) -> Status {
    cuMemcpyDtoDAsync_v2(to, from, bytes, null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: DevicePointer, value: u8, count: usize, stream: Handle) -> Status {
    status(driver().set(to, &[value], count, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: DevicePointer, value: u32, count: usize, stream: Handle) -> Status {
    status(driver().set(to, &value.to_ne_bytes(), count, stream))
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Copy2d {
    from_x: usize,
    from_y: usize,
    from_kind: c_int,
    from_host: *const u8,
    from_device: DevicePointer,
    from_array: Handle,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: c_int,
    to_host: *mut u8,
    to_device: DevicePointer,
    to_array: Handle,
    to_pitch: usize,
    width: usize,
    height: usize,
}

const HOST: c_int = 1;
const DEVICE: c_int = 2;

impl Driver {
    /// Copies row by row.
    fn copy_2d(&mut self, copy: &Copy2d, stream: Handle) -> Result<(), Status> {
        if copy.width > copy.from_pitch || copy.width > copy.to_pitch {
            self.problem("a copy of rows is wider than they are".into());
            return Err(INVALID_VALUE);
        }
        let counted = (self.report.to_device, self.report.to_host, self.report.on_device);
        for row in 0..copy.height {
            let from = copy.from_x + (copy.from_y + row) * copy.from_pitch;
            let to = copy.to_x + (copy.to_y + row) * copy.to_pitch;
            match (copy.from_kind, copy.to_kind) {
                (HOST, DEVICE) => {
                    let source = copy.from_host.wrapping_add(from);
                    self.copy_to_device(copy.to_device + to as u64, source, copy.width, stream)?;
                }
                (DEVICE, HOST) => {
                    let target = copy.to_host.wrapping_add(to);
                    self.copy_to_host(target, copy.from_device + from as u64, copy.width, stream)?;
                }
                (DEVICE, DEVICE) => {
                    let (target, source) = (copy.to_device + to as u64, copy.from_device + from as u64);
                    self.copy_on_device(target, source, copy.width, stream)?;
                }
                _ => return Err(INVALID_VALUE),
            }
        }
        // Rows were counted one by one, and are one copy.
        (self.report.to_device, self.report.to_host, self.report.on_device) = counted;
        let bytes = (copy.width * copy.height) as u64;
        match (copy.from_kind, copy.to_kind) {
            (HOST, _) => self.report.to_device.add(bytes),
            (_, HOST) => self.report.to_host.add(bytes),
            _ => self.report.on_device.add(bytes),
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: Handle) -> Status {
    delay();
    // SAFETY: the caller's description outlives the call.
    let copy = unsafe { &*copy };
    status(driver().copy_2d(copy, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a read of that many bytes, all of them 7, returns.
    fn read(reads: &str, bytes: usize) -> Vec<u8> {
        let (from, mut to) = (vec![7; bytes], vec![9; bytes]);
        let reads: Reads = reads.parse().expect("a name");
        // SAFETY: both vectors have as many bytes.
        unsafe { reads.write(to.as_mut_ptr(), from.as_ptr(), bytes) };
        to
    }

    #[test]
    fn only_numbers_of_a_step_are_read_as_ones() {
        let ones = |numbers: usize| 1.0_f32.to_ne_bytes().repeat(numbers);
        assert_eq!([read("ones", 20), read("ones", 24)], [ones(5), ones(6)]);
        for bytes in [4, 16, 28, 4096] {
            assert_eq!(read("ones", bytes), vec![0; bytes], "{bytes} bytes");
        }
        assert_eq!([read("zeros", 20), read("real", 20)], [vec![0; 20], vec![7; 20]]);
        assert!("one".parse::<Reads>().is_err());
    }
}
