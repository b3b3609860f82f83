//! Operations on Burn's default device, which `BURN_DEVICE` names, against those on the CPU.

mod cases;
mod memory;
mod table;

use burn::tensor::{DType, Device};
use cases::{CASES, LARGE};
use undertone_ops::{Compute, Kernels, autocast, set_kernels};

/// The largest difference of values and gradients from those of the CPU's kernels in f32, as a share of the largest number
/// of each; on the CPU itself, that of the operations that the kernels replace.
fn difference(case: &cases::Case, device: &Device, compute: Compute) -> f32 {
    let expected = everything(case, &Device::flex(), Compute::F32);
    if *device == Device::flex() {
        set_kernels(Kernels::Composed);
    }
    let found = everything(case, device, compute);
    set_kernels(Kernels::Fused);
    assert_eq!(found.len(), expected.len(), "{}", case.name);
    found.iter().zip(&expected).map(|(found, expected)| distance(found, expected)).fold(0.0, f32::max)
}

fn everything(case: &cases::Case, device: &Device, compute: Compute) -> Vec<Vec<f32>> {
    autocast(compute, || {
        let mut run = (case.run)(device);
        let values = std::mem::take(&mut run.values);
        std::iter::once(values).chain(run.backward()).collect()
    })
}

fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    // `max` would pass over what is not a number.
    let far = |a: f32, b: f32| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() };
    found.iter().zip(expected).map(|(a, b)| far(*a, *b)).fold(0.0, f32::max) / largest
}

fn supports(device: &Device, compute: Compute) -> bool {
    match compute {
        Compute::Auto | Compute::F32 | Compute::Tf32 => true,
        Compute::Bf16 => device.supports_dtype(DType::BF16),
        Compute::F16 => device.supports_dtype(DType::F16),
    }
}

#[test]
fn every_operation_gives_what_it_gives_on_the_cpu() {
    let device = Device::default();
    let far: Vec<_> = CASES
        .iter()
        .chain(&LARGE)
        .map(|case| (case.name, difference(case, &device, Compute::F32)))
        .filter(|(_, difference)| *difference > 1e-4)
        .collect();
    assert!(far.is_empty(), "on {device:?}: {far:?}");
}

#[test]
fn lower_precisions_are_near_where_the_device_has_them() {
    let device = Device::default();
    let types = [(Compute::Tf32, 2e-3), (Compute::F16, 5e-3), (Compute::Bf16, 4e-2)];
    let mut far = Vec::new();
    for (compute, tolerance) in types.into_iter().filter(|(compute, _)| supports(&device, *compute)) {
        let found = CASES.iter().chain(&LARGE).map(|case| (case.name, difference(case, &device, compute)));
        far.extend(found.filter(|(_, difference)| *difference >= tolerance).map(|found| (compute, found)));
    }
    assert!(far.is_empty(), "on {device:?}: {far:?}");
}

#[test]
fn an_operation_has_the_same_bits_each_time() {
    let device = Device::default();
    for case in CASES {
        let bits = || everything(case, &device, Compute::F32);
        let first = bits();
        assert!((0..3).all(|_| bits() == first), "{}", case.name);
    }
}
