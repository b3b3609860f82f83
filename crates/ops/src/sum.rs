//! Sums over whole tensors.

use crate::device::Backing;
use crate::graph::differentiated;
#[cfg(feature = "cube")]
use crate::{cube, host};
use burn::tensor::Tensor;

/// Returns the sum of all elements, `[1]`, with the same bits each time on the same device.
///
/// On accelerators Burn's `Tensor::sum` is fast because atomic operations add in any order.
pub fn sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    if Backing::of(&x.device()) == Backing::Flex {
        return x.sum();
    }
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        let (shape, dtype) = (x.dims(), x.dtype());
        return differentiated(x, |x| {
            let [sum] = cube::launched("sum", [host::f32(x).into_dispatch()], [[1].into()], |[x]| [cube::sum(x)]);
            let sum = host::restored(Tensor::from_dispatch(sum), dtype);
            (sum, move |dy: Tensor<1>| dy.reshape([1; D]).expand(shape))
        });
    }
    let (shape, elements) = (x.dims(), x.shape().num_elements());
    // Rows to be summed in parallel; for an odd length there is one long row.
    let rows = 1 << elements.trailing_zeros().min(10);
    differentiated(x, |x| {
        let sum = x.reshape([rows, elements / rows]).sum_dim(1).sum_dim(0).reshape([1]);
        (sum, move |dy: Tensor<1>| dy.reshape([1; D]).expand(shape))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device, pseudo_random};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn equals_the_sum_on_the_host(rows in 1_usize..70, columns in 1_usize..300) {
            let values = pseudo_random(rows * columns, 3);
            let expected: f64 = values.iter().map(|v| f64::from(*v)).sum();
            let x = Tensor::<1>::from_floats(values.as_slice(), &device()).reshape([rows, columns]);
            assert_close(sum(x.clone()), &[expected as f32], 2e-4);
            let x = x.autodiff().require_grad();
            let gradient = x.grad(&sum(x.clone().mul_scalar(2.0)).backward()).expect("a gradient");
            assert_close(gradient, &vec![2.0; rows * columns], 0.0);
        }
    }

    #[test]
    fn has_the_same_bits_each_time() {
        let values = pseudo_random(100_003, 5);
        let x = Tensor::<1>::from_floats(values.as_slice(), &device());
        let bits = || sum(x.clone().square()).into_scalar::<f32>().to_bits();
        let first = bits();
        assert!((0..10).all(|_| bits() == first));
    }
}
