//! Automatic mixed precision: the float type that products are computed in while a model trains.

use crate::casts::{self, Scope};
use crate::device::Backing;
use crate::host::fused;
use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use undertone_kernels::matrix::{Precision, precision, set_precision};

/// Precision of the products in forward and backward pass: linear maps, convolutions, attention.
///
/// Parameters, the residual stream, norms, softmax and losses stay in f32, as under PyTorch's autocast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// The card's native type: bf16 on CUDA since Ampere, f16 on CUDA since Volta, f32 on all other devices.
    #[default]
    Auto,
    /// 32 bits in all products.
    F32,
    /// f32 numbers that are rounded to 11 bits of precision in products, as on NVIDIA's matrix units since Ampere,
    /// where it is several times as fast as f32. On other devices it is f32.
    Tf32,
    /// The range of f32 with 8 bits of precision. CPUs round the factors of products, and accumulate in f32: faster than
    /// f32 on AMD's with AVX512-BF16 (Zen 4 and later), about as fast in less memory on others with AVX2. Older CPUs emulate it slowly.
    Bf16,
    /// 11 bits of precision and numbers up to 65504: the loss has to be scaled, or small gradients become 0. CPUs
    /// emulate it.
    F16,
}

impl Compute {
    /// Returns the type that products use on `device`: this one, or the nearest one that the device supports. f16
    /// replaces bf16, and f32 replaces any type.
    pub fn on(self, device: &Device) -> Self {
        let device = device.clone().inner();
        let has = |compute: Self| device.supports_dtype(compute.dtype()) && has_units(&device, compute);
        let instead: &[Self] = match self {
            Self::Auto => automatic(&device),
            Self::Bf16 => &[Self::Bf16, Self::F16],
            Self::F32 | Self::Tf32 | Self::F16 => &[self],
        };
        instead.iter().copied().find(|compute| has(*compute)).unwrap_or(Self::F32)
    }

    fn dtype(self) -> DType {
        match self {
            // `Auto` is resolved once the device is known; until then nothing is lowered.
            Self::Auto | Self::F32 | Self::Tf32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// Preferred types for [`Compute::Auto`], the best first. LibTorch does not report its card.
fn automatic(device: &Device) -> &'static [Compute] {
    match Backing::of(device) {
        #[cfg(feature = "cuda")]
        Backing::Cuda => {
            by_architecture(device.identity().and_then(|identity| cuda_architecture(&identity.fingerprint)))
        }
        _ => &[Compute::F32],
    }
}

/// Preferred types by architecture: matrix units multiply f16 since Volta (sm_70) and bf16 since Ampere (sm_80).
#[cfg(any(feature = "cuda", test))]
fn by_architecture(architecture: Option<u32>) -> &'static [Compute] {
    match architecture {
        Some(80..) => &[Compute::Bf16],
        Some(70..80) => &[Compute::F16],
        _ => &[Compute::F32],
    }
}

/// Whether the device's processor multiplies this type natively. CubeCL assumes that every NVIDIA card supports bf16.
fn has_units(device: &Device, compute: Compute) -> bool {
    match Backing::of(device) {
        #[cfg(feature = "cuda")]
        Backing::Cuda if matches!(compute, Compute::Tf32 | Compute::Bf16) => {
            device.identity().and_then(|identity| cuda_architecture(&identity.fingerprint)).is_none_or(|sm| sm >= 80)
        }
        _ => compute != Compute::Tf32,
    }
}

/// Returns 80 for `ptx_sm80`, the first architecture of Ampere.
#[cfg(any(feature = "cuda", test))]
fn cuda_architecture(fingerprint: &str) -> Option<u32> {
    let digits = fingerprint.rsplit_once("sm")?.1;
    digits.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

thread_local! {
    static COMPUTE: Cell<Compute> = const { Cell::new(Compute::F32) };
}

/// Runs `run` with this thread's products in `compute`. The backward pass must run inside it as well.
///
/// On the CPU, bf16 products are a setting of the whole process, so two threads should not train in different types.
pub fn autocast<T>(compute: Compute, run: impl FnOnce() -> T) -> T {
    struct Before(Compute, Precision);

    impl Drop for Before {
        fn drop(&mut self) {
            COMPUTE.set(self.0);
            set_precision(self.1);
        }
    }

    let before = Before(COMPUTE.replace(compute), precision());
    // An inner call belongs to the outer one's time.
    let _casts = (before.0 != compute).then(Scope::begin);
    if compute == Compute::Bf16 {
        set_precision(Precision::Medium);
    } else if before.0 == Compute::Bf16 {
        // The outer call has lowered it.
        set_precision(Precision::Highest);
    }
    run()
}

/// Casts `x` to the type of products, unless that is f32: `x` then stays unchanged. The cast is a node of the graph if
/// `x` is tracked, so gradients arrive in the type of `x`.
pub(crate) fn lowered<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let dtype = product_type(&x.device());
    if dtype == DType::F32 || x.dtype() == dtype { x } else { x.cast(dtype) }
}

/// As [`lowered`], for an input without autodiff that several products in a row may read, like that of queries, keys and values.
pub(crate) fn lowered_input<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let dtype = product_type(&x.device());
    if dtype == DType::F32 || x.dtype() == dtype { x } else { casts::input_cast(x, dtype) }
}

/// As [`lowered`], for a weight without autodiff.
pub(crate) fn lowered_weight(weight: Tensor<2>, in_training: bool) -> Tensor<2> {
    let dtype = product_type(&weight.device());
    if dtype == DType::F32 || weight.dtype() == dtype { weight } else { casts::weight_cast(weight, dtype, in_training) }
}

/// Whether products of these numbers must not be rounded to TF32.
#[cfg(feature = "cube")]
pub(crate) fn needs_exact_product(dtype: DType) -> bool {
    COMPUTE.get() != Compute::Tf32 && dtype == DType::F32
}

/// Type of the factors of products on a device.
pub(crate) fn product_type(device: &Device) -> DType {
    let compute = COMPUTE.get();
    // Kernels round to bf16 as they read if the processor multiplies it: nothing has to be cast for them.
    let by_kernels = compute == Compute::Bf16 && precision() == Precision::Medium && fused(device);
    if by_kernels { DType::F32 } else { compute.dtype() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{device, pseudo_random, values};
    use crate::{AttentionOptions, CrossEntropyOptions, attention, conv1d, linear, linear_cross_entropy, lora_bank};
    use burn::tensor::Int;

    fn leaf<const D: usize>(shape: [usize; D], seed: u64, scale: f32) -> Tensor<D> {
        let values: Vec<f32> = pseudo_random(shape.iter().product(), seed).iter().map(|v| v * scale).collect();
        Tensor::<1>::from_floats(values.as_slice(), &device()).reshape(shape).autodiff().require_grad()
    }

    /// A network with all kinds of products, and a sum over its outputs.
    fn network(x: Tensor<3>, w: Tensor<2>, loss_scale: f64) -> (f32, Tensor<3>, Tensor<2>) {
        let [batch, time, d] = x.dims();
        let kernel = w.clone().reshape([d, d, 1]);
        let y = conv1d(x.clone(), kernel, Tensor::zeros([d], &x.device()), 1, 0);
        let y = y.clone() + attention(y.clone(), y.clone(), y, AttentionOptions::new(2));
        let y = linear(y.clone(), w.clone(), None)
            + lora_bank(y, w.clone(), w.clone(), Tensor::ones([batch, d], &x.device()));
        assert_eq!(y.dtype(), DType::F32, "outside of products everything is f32");
        let targets = Tensor::<1, Int>::zeros([batch * time], &x.device());
        let rows = y.reshape([batch * time, d]);
        let loss = linear_cross_entropy(rows, w.clone(), None, targets, CrossEntropyOptions::default()).sum;
        let value = loss.clone().inner().into_scalar::<f32>();
        let gradients = loss.mul_scalar(loss_scale).backward();
        (value, x.grad(&gradients).expect("dx"), w.grad(&gradients).expect("dw"))
    }

    /// Largest difference as a share of the largest value.
    fn distance(a: &[f32], b: &[f32]) -> f32 {
        let largest = b.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        a.iter().zip(b).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs())) / largest
    }

    #[test]
    fn a_type_that_a_device_lacks_is_replaced_by_the_nearest() {
        let cpu = Device::flex();
        for (compute, found) in
            [(Compute::Bf16, Compute::Bf16), (Compute::F16, Compute::F16), (Compute::Tf32, Compute::F32)]
        {
            assert_eq!(compute.on(&cpu), found);
            // Products must be possible in the resolved type.
            let here = compute.on(&device());
            assert_eq!((here.on(&device()), device().supports_dtype(here.dtype())), (here, true));
        }
        let architectures = ["ptx_sm75", "ptx_sm80", "ptx_sm90a", "spirv_65541_0"].map(cuda_architecture);
        assert_eq!(architectures, [Some(75), Some(80), Some(90), None]);
        let automatic = architectures.map(|architecture| by_architecture(architecture)[0]);
        assert_eq!(automatic, [Compute::F16, Compute::Bf16, Compute::Bf16, Compute::F32]);
        assert_eq!(Compute::Auto.on(&cpu), Compute::F32);
    }

    #[test]
    fn half_precision_is_near_f32_and_not_equal_to_it() {
        let run = |compute| autocast(compute, || network(leaf([2, 5, 8], 1, 1.0), leaf([8, 8], 2, 0.5), 1.0));
        let (loss, dx, dw) = run(Compute::F32);
        let (dx, dw) = (values(dx), values(dw));
        let there = |compute: &(Compute, f32)| compute.0.on(&device()) == compute.0;
        for (compute, tolerance) in [(Compute::Bf16, 0.05), (Compute::F16, 0.005)].into_iter().filter(there) {
            let (low, dx_low, dw_low) = run(compute);
            assert!(low != loss && (low - loss).abs() < tolerance * loss, "{compute:?}: {low} for {loss}");
            assert_eq!((dx_low.dtype(), dw_low.dtype()), (DType::F32, DType::F32));
            for (low, full) in [(values(dx_low), &dx), (values(dw_low), &dw)] {
                let distance = distance(&low, full);
                assert!(distance > 0.0 && distance < tolerance, "{compute:?}: {distance}");
            }
        }
    }

    #[test]
    fn small_gradients_vanish_in_f16_unless_the_loss_is_scaled() {
        let run = |scale| {
            let x = leaf([1, 4, 8], 1, 1.0);
            // Through a factor of 1e-7: below f16's smallest number, unless scaled up.
            let y = linear(x.clone(), leaf([8, 8], 2, 0.5), None).sum().mul_scalar(1e-9 * scale);
            values(x.grad(&y.backward()).expect("dx"))
        };
        assert!(autocast(Compute::F32, || run(1.0)).iter().all(|g| *g != 0.0));
        assert!(autocast(Compute::F16, || run(1.0)).iter().all(|g| *g == 0.0));
        assert!(autocast(Compute::F16, || run(65536.0)).iter().all(|g| *g != 0.0));
        assert!(autocast(Compute::F16, || run(1e15)).iter().any(|g| !g.is_finite()), "and overflow if it is too large");
    }

    #[test]
    fn it_ends_with_its_scope_also_when_that_panics() {
        let caught = std::panic::catch_unwind(|| autocast(Compute::F16, || panic!("out of it")));
        assert!(caught.is_err());
        assert_eq!(product_type(&device()), DType::F32);
        autocast(Compute::F16, || {
            autocast(Compute::F32, || assert_eq!(product_type(&device()), DType::F32));
            assert_eq!(product_type(&device()), DType::F16);
        });
        assert_eq!(precision(), Precision::Highest);
        autocast(Compute::Bf16, || {
            autocast(Compute::F32, || assert_eq!(precision(), Precision::Highest));
            assert_eq!(precision() == Precision::Medium, set_precision(Precision::Medium));
        });
        assert_eq!(precision(), Precision::Highest);
    }
}
