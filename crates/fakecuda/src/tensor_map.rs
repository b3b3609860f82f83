//! Tensor maps, which describe a tensor's memory layout to Hopper's copy engine in 128 opaque bytes. The checks are
//! those of `cuTensorMapEncodeTiled` in the driver API's reference.

use crate::abi::{INVALID_VALUE, SUCCESS, Status};
use crate::driver::driver;
use std::ffi::{c_int, c_uint, c_void};

/// Bytes of an element, by `CUtensorMapDataType`.
const ELEMENT_BYTES: [u32; 13] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4];
/// Maximum width of a box's row in bytes, by `CUtensorMapSwizzle`; unlimited without a swizzle.
const SWIZZLE_BYTES: [u32; 4] = [u32::MAX, 32, 64, 128];

/// Arguments of a tiled map.
pub struct Tiled<'a> {
    pub kind: usize,
    pub address: usize,
    pub sizes: &'a [u64],
    pub strides: &'a [u64],
    pub window: &'a [u32],
    pub steps: &'a [u32],
    pub is_interleaved: bool,
    pub swizzle: usize,
}

impl Tiled<'_> {
    /// Returns the first violated requirement.
    fn problem(&self) -> Option<&'static str> {
        let Some(element) = ELEMENT_BYTES.get(self.kind) else { return Some("a type that there is not") };
        if !self.address.is_multiple_of(if self.is_interleaved { 32 } else { 16 }) {
            return Some("an address that is not aligned");
        }
        if self.sizes.iter().any(|size| *size == 0 || *size > 1 << 32) {
            return Some("a dimension that is empty or above 2³²");
        }
        if self.strides.iter().any(|stride| !stride.is_multiple_of(16) || *stride >= 1 << 40) {
            return Some("a stride that is not a multiple of 16 bytes or too long");
        }
        if self.window.iter().any(|size| !(1..=256).contains(size)) {
            return Some("a box that is not between 1 and 256 long");
        }
        if self.steps.iter().any(|step| !(1..=8).contains(step)) {
            return Some("a step that is not between 1 and 8");
        }
        let row = self.window[0] * element;
        if !self.is_interleaved && !row.is_multiple_of(16) {
            return Some("a box whose rows are not a multiple of 16 bytes");
        }
        let is_wide = SWIZZLE_BYTES.get(self.swizzle).is_some_and(|most| row > *most);
        is_wide.then_some("a box whose rows are wider than its swizzle")
    }

    /// The map's bytes: `TiledMap` of `cpp/hopper.hpp`, which kernels computed on the CPU read.
    pub fn encoded(&self) -> [u8; 128] {
        let numbers = |values: &[u64], count| values.iter().copied().chain(std::iter::repeat(0)).take(count).collect();
        let wide: [Vec<u64>; 3] = [vec![self.address as u64], numbers(self.sizes, 5), numbers(self.strides, 4)];
        let mut bytes: Vec<u8> = wide.concat().iter().flat_map(|n| n.to_ne_bytes()).collect();
        let window = self.window.iter().copied().chain(std::iter::repeat(0)).take(5);
        bytes.extend(window.flat_map(u32::to_ne_bytes));
        bytes.extend([ELEMENT_BYTES[self.kind] as u8, self.swizzle as u8, self.sizes.len() as u8]);
        bytes.resize(128, 0);
        bytes.try_into().expect("128 bytes")
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u8; 128],
    kind: c_int,
    rank: c_uint,
    address: *mut c_void,
    sizes: *const u64,
    strides: *const u64,
    window: *const u32,
    steps: *const u32,
    interleave: c_int,
    swizzle: c_int,
    _promotion: c_int,
    _out_of_bounds: c_int,
) -> Status {
    let mut driver = driver();
    let count = rank as usize;
    // SAFETY: the caller gives as many numbers as the tensor has dimensions, and one stride fewer.
    let tiled = |count: usize| unsafe {
        Tiled {
            kind: usize::try_from(kind).unwrap_or(usize::MAX),
            address: address as usize,
            sizes: std::slice::from_raw_parts(sizes, count),
            strides: if count > 1 { std::slice::from_raw_parts(strides, count - 1) } else { &[] },
            window: std::slice::from_raw_parts(window, count),
            steps: std::slice::from_raw_parts(steps, count),
            is_interleaved: interleave != 0,
            swizzle: usize::try_from(swizzle).unwrap_or(usize::MAX),
        }
    };
    let problem = if driver.card.architecture() < 90 {
        Some("a card that has none")
    } else if !(1..=5).contains(&count) {
        Some("a rank that is not between 1 and 5")
    } else {
        tiled(count).problem()
    };
    if let Some(problem) = problem {
        driver.problem(format!("a tensor map is asked for with {problem}"));
        return INVALID_VALUE;
    }
    // SAFETY: the caller provides memory for a map.
    unsafe { map.write(tiled(count).encoded()) };
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_that_hardware_refuses_are_known() {
        let fine = || Tiled {
            kind: 9,
            address: 4096,
            sizes: &[64, 64],
            strides: &[128],
            window: &[32, 64],
            steps: &[1, 1],
            is_interleaved: false,
            swizzle: 2,
        };
        assert_eq!(fine().problem(), None);
        for odd in [
            Tiled { kind: 99, ..fine() },
            Tiled { address: 4104, ..fine() },
            Tiled { sizes: &[0, 64], ..fine() },
            Tiled { strides: &[100], ..fine() },
            Tiled { window: &[32, 257], ..fine() },
            Tiled { window: &[3, 64], ..fine() },
            Tiled { window: &[64, 64], ..fine() },
            Tiled { steps: &[9, 1], ..fine() },
        ] {
            assert!(odd.problem().is_some());
        }
    }
}
