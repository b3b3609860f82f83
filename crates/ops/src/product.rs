//! Products of matrices.

use burn::tensor::Tensor;
#[cfg(feature = "cube")]
pub(crate) use exact::exact;

/// `lhs · rhs` over the last two axes, in the type of its factors; the axes before them are the same in both.
///
/// f32 numbers are multiplied as they are, also where a GPU could round them to TF32; within [`autocast`](crate::autocast)
/// to [`Compute::Tf32`](crate::Compute::Tf32) it may.
///
/// # Shapes
/// - `lhs`: `[.., m, k]`; `rhs`: `[.., k, n]`
/// - output: `[.., m, n]`
pub fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if crate::precision::needs_exact_kernel(&lhs) {
        return exact(lhs, rhs);
    }
    lhs.matmul(rhs)
}

/// Burn has no switch against TF32: with f32 factors, its kernels for CUDA round to 11 bits wherever matrix units do that. So
/// exact products are launched from here, by a kernel that multiplies and adds f32 numbers one by one.
#[cfg(feature = "cube")]
mod exact {
    use crate::cube;
    use crate::graph::{AnyFloat, with_gradients};
    use burn::backend::{AutodiffBackend, Dispatch};
    use burn::tensor::Tensor;

    /// The product of f32 tensors in exact f32, on a backend of CubeCL.
    pub(crate) fn exact<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
        if !lhs.device().is_autodiff() {
            return plain(lhs, rhs);
        }
        let inputs = [lhs.clone(), rhs.clone()].map(AnyFloat::from);
        let [wants_lhs, wants_rhs] = inputs.each_ref().map(AnyFloat::is_tracked);
        let (lhs, rhs) = (lhs.inner(), rhs.inner());
        let y = Dispatch::from_inner(plain(lhs.clone(), rhs.clone()).into_dispatch());
        let (for_rhs, for_lhs) = (wants_rhs.then_some(lhs), wants_lhs.then_some(rhs));
        let backward = |dy| {
            let dy = Tensor::<D>::from_dispatch(dy);
            let d_lhs = for_lhs.map(|rhs| plain(dy.clone(), rhs.swap_dims(D - 2, D - 1)).into_dispatch());
            let d_rhs = for_rhs.map(|lhs| plain(lhs.swap_dims(D - 2, D - 1), dy).into_dispatch());
            vec![d_lhs, d_rhs]
        };
        Tensor::from_dispatch(with_gradients(y, inputs.into(), backward))
    }

    fn plain<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
        let shape = cube::product_shape(&lhs.shape(), &rhs.shape());
        let factors = [lhs.into_dispatch(), rhs.into_dispatch()];
        let [y] = cube::launched("matmul_f32", factors, [shape], |[lhs, rhs]| [cube::matmul(&lhs, &rhs)]);
        Tensor::from_dispatch(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close};
    use proptest::prelude::*;

    type Product = fn(Tensor<3>, Tensor<3>) -> Tensor<3>;

    /// Holds a product and its gradients, for an upstream gradient of ones, against sums on the host.
    fn check(product: Product, [batch, m, k, n]: [usize; 4]) {
        let inputs = Inputs::default();
        let (lhs, rhs) = (inputs.tensor([batch, m, k]), inputs.tensor([batch, k, n]));
        let values = |x: &Tensor<3>| x.clone().inner().try_into_vec_as::<f32>().expect("floats");
        let (a, b) = (values(&lhs), values(&rhs));
        let [mut y, mut da, mut db] = [batch * m * n, a.len(), b.len()].map(|length| vec![0.0; length]);
        for at in 0..batch * m * n * k {
            let (i, j, c, row) = (at / k % n, at % k, at / k / n / m, at / k / n);
            let (left, right) = (row * k + j, (c * k + j) * n + i);
            y[at / k] += a[left] * b[right];
            da[left] += b[right];
            db[right] += a[left];
        }
        let product = product(lhs.clone(), rhs.clone());
        let gradients = product.clone().sum().backward();
        assert_close(product.inner(), &y, 1e-4);
        assert_close(lhs.grad(&gradients).expect("a gradient"), &da, 1e-4);
        assert_close(rhs.grad(&gradients).expect("a gradient"), &db, 1e-4);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_product_is_what_it_is_by_definition(batch in 1_usize..4, m in 1_usize..20, k in 1_usize..40, n in 1_usize..20) {
            check(matmul, [batch, m, k, n]);
        }

        #[cfg(feature = "cube")]
        #[test]
        #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
        fn an_exact_product_is_what_it_is_by_definition(
            batch in 1_usize..4, m in 1_usize..20, k in 1_usize..40, n in 1_usize..20,
        ) {
            check(exact, [batch, m, k, n]);
        }
    }

    #[cfg(feature = "cube")]
    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn exact_products_take_strided_empty_and_untracked_factors() {
        let device = crate::testing::device;
        let a = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device());
        assert_close(exact(a.clone().transpose(), a.clone()), &[35.0, 44.0, 44.0, 56.0], 0.0);
        let empty = Tensor::<2>::zeros([0, 3], &device());
        assert_eq!(exact(empty, a.clone()).dims(), [0, 2]);
        let tracked = a.clone().autodiff().require_grad();
        let gradients = exact(a.clone().transpose().autodiff(), tracked.clone()).sum().backward();
        assert_close(tracked.grad(&gradients).expect("a gradient"), &[3.0, 3.0, 7.0, 7.0, 11.0, 11.0], 0.0);
    }
}
