//! Half precision that loses nothing.

use crate::device::Backing;
use crate::host::{HostOp, apply, floats};
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, Tensor};
use half::{bf16, f16};
use undertone_kernels::linear::widens_in_registers;
use undertone_kernels::numbers::halved_exactly;

/// Whether products on this processor are faster with frozen weights in half precision, or as fast.
pub fn prefers_half() -> bool {
    widens_in_registers()
}

/// Returns a tensor in f16, or else in bf16, if all of its numbers are ones of that type, bit by bit; otherwise as it is. So are
/// tensors that need gradients, that are not in f32, or that are not in the memory of the host.
pub fn exactly_halved<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match x.dtype() {
        DType::F32 if Backing::of(&x.device()) == Backing::Flex => apply(ExactHalf, [x.into()]),
        _ => x,
    }
}

#[derive(Clone, Debug)]
struct ExactHalf;

impl HostOp<1> for ExactHalf {
    type Saved = ();

    fn forward(&self, [x]: [FlexTensor; 1], [is_tracked]: [bool; 1]) -> (FlexTensor, ()) {
        let halved = if is_tracked { None } else { halved(&x) };
        (halved.unwrap_or(x), ())
    }

    fn backward(self, (): (), dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        [Some(dy)]
    }
}

fn halved(x: &FlexTensor) -> Option<FlexTensor> {
    let (numbers, layout) = (floats(x), Layout::contiguous(x.layout().shape().clone()));
    let tensor = |bytes, dtype| FlexTensor::new(bytes, layout, dtype);
    Some(match halved_exactly::<f16>(numbers) {
        Some(halves) => tensor(Bytes::from_elems(halves), DType::F16),
        None => tensor(Bytes::from_elems(halved_exactly::<bf16>(numbers)?), DType::BF16),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_type_is_one_that_has_all_numbers() {
        let device = Device::flex();
        let halved = |numbers: [f32; 2]| {
            let x = Tensor::<1>::from_floats(numbers, &device);
            let halved = exactly_halved(x.clone());
            assert_eq!(halved.clone().cast(DType::F32).into_data(), x.into_data());
            halved.dtype()
        };
        assert_eq!(halved([1.5, -0.0]), DType::F16);
        assert_eq!(halved([1.5, 2_f32.powi(100)]), DType::BF16);
        assert_eq!(halved([1.5, 0.1]), DType::F32);
        let brain = Tensor::<1>::from_floats([1.0], &device).cast(DType::BF16);
        assert_eq!(exactly_halved(brain).dtype(), DType::BF16);
        let tracked = Tensor::<1>::from_floats([1.0, 2.0], &device.autodiff()).require_grad();
        let same = exactly_halved(tracked.clone());
        assert_eq!(same.dtype(), DType::F32);
        let gradients = (same * 3.0).sum().backward();
        assert_eq!(
            tracked.grad(&gradients).expect("a gradient").into_data().try_to_vec::<f32>().expect("f32"),
            [3.0, 3.0]
        );
    }
}
