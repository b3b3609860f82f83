//! One product.

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::host;
#[cfg(feature = "cube")]
use crate::precision::needs_exact_product;
#[cfg(feature = "cube")]
use burn::tensor::Device;
use burn::tensor::{DType, Tensor};

/// Returns `lhs · rhs` over the last two axes, in the type of its factors. The leading axes must be equal in both.
///
/// f32 products are exact by default, also where a GPU could round them to TF32. Within [`autocast`](crate::autocast)
/// to [`Compute::Tf32`](crate::Compute::Tf32) that rounding is allowed.
///
/// # Shapes
/// - `lhs`: `[.., m, k]`; `rhs`: `[.., k, n]`
/// - output: `[.., m, n]`
pub fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if Backing::of(&lhs.device()) == Backing::Cuda {
        let rounding = cube_rounding(lhs.dtype());
        return kernel::product(lhs, rhs, rounding);
    }
    lhs.matmul(rhs)
}

/// The same with an f32 result, for factors of any float type: the products are accumulated in f32 and not rounded to
/// the factors' type. It has no gradient.
pub(crate) fn matmul_to_f32<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if writes_sums(&lhs) {
        return kernel::plain(lhs, rhs, DType::F32, cube::Rounding::MatrixUnits);
    }
    matmul(host::f32(lhs), host::f32(rhs))
}

/// The same in `dtype`, computed in the type of its factors. CubeCL's kernels write an f32 result as they have accumulated it;
/// elsewhere it is rounded to the factors' type before. It has no gradient.
pub(crate) fn matmul_as<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, dtype: DType) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if dtype == DType::F32 && writes_sums(&lhs) {
        return kernel::plain(lhs, rhs, dtype, cube::Rounding::MatrixUnits);
    }
    host::restored(matmul(lhs, rhs), dtype)
}

/// Rounding of the factors of a product of this type on a device, if its kernel is selected here and not by Burn.
#[cfg(feature = "cube")]
pub(super) fn rounding(device: &Device, dtype: DType) -> Option<cube::Rounding> {
    let backing = Backing::of(device);
    let is_ours = backing == Backing::Cuda || backing.is_cube() && dtype != DType::F32;
    is_ours.then(|| cube_rounding(dtype))
}

#[cfg(feature = "cube")]
fn cube_rounding(dtype: DType) -> cube::Rounding {
    if needs_exact_product(dtype) { cube::Rounding::Exact } else { cube::Rounding::MatrixUnits }
}

/// Whether kernels write products of these numbers in half precision as f32, without a cast of their own.
#[cfg(feature = "cube")]
fn writes_sums<const D: usize>(factor: &Tensor<D>) -> bool {
    factor.dtype() != DType::F32 && Backing::of(&factor.device()).is_cube()
}

/// Matrix products on CubeCL, by kernels launched from here.
#[cfg(feature = "cube")]
mod kernel {
    use crate::cube::{self, Rounding};
    use crate::graph::{AnyFloat, recorded};
    use burn::tensor::{DType, Tensor};

    /// Returns a product in the type of its factors.
    pub(crate) fn product<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, rounding: Rounding) -> Tensor<D> {
        let dtype = lhs.dtype();
        if !lhs.device().is_autodiff() && !rhs.device().is_autodiff() {
            return plain(lhs, rhs, dtype, rounding);
        }
        let inputs = [lhs.clone(), rhs.clone()].map(AnyFloat::from);
        let [wants_lhs, wants_rhs] = inputs.each_ref().map(AnyFloat::is_tracked);
        let (lhs, rhs) = (lhs.inner(), rhs.inner());
        let y = plain(lhs.clone(), rhs.clone(), dtype, rounding);
        let (for_rhs, for_lhs) = (wants_rhs.then_some(lhs), wants_lhs.then_some(rhs));
        let backward = move |dy| {
            let dy = Tensor::<D>::from_dispatch(dy);
            let product = |lhs, rhs| plain(lhs, rhs, dtype, rounding).into_dispatch();
            let d_lhs = for_lhs.map(|rhs: Tensor<D>| product(dy.clone(), rhs.swap_dims(D - 2, D - 1)));
            let d_rhs = for_rhs.map(|lhs: Tensor<D>| product(lhs.swap_dims(D - 2, D - 1), dy));
            vec![d_lhs, d_rhs]
        };
        recorded(y, inputs, backward)
    }

    /// Returns a product in `dtype`, without gradients.
    pub(crate) fn plain<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, dtype: DType, rounding: Rounding) -> Tensor<D> {
        let shape = cube::product_shape(&lhs.shape(), &rhs.shape());
        let factors = [lhs.into_dispatch(), rhs.into_dispatch()];
        let launch = move |[lhs, rhs]: [_; 2]| [cube::matmul(&lhs, &rhs, dtype, rounding)];
        let [y] = cube::launched_as("matmul", factors, [(shape, dtype)], launch);
        Tensor::from_dispatch(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close};
    use proptest::prelude::*;

    type Product = fn(Tensor<3>, Tensor<3>) -> Tensor<3>;

    /// Compares a product and its gradients, for an upstream gradient of ones, with sums on the host.
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
            check(|lhs, rhs| kernel::product(lhs, rhs, cube::Rounding::Exact), [batch, m, k, n]);
        }
    }

    #[cfg(feature = "cube")]
    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn exact_products_take_strided_empty_and_untracked_factors() {
        let device = crate::testing::device;
        let exact = |lhs, rhs| kernel::product(lhs, rhs, cube::Rounding::Exact);
        let a = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device());
        assert_close(exact(a.clone().transpose(), a.clone()), &[35.0, 44.0, 44.0, 56.0], 0.0);
        let empty = Tensor::<2>::zeros([0, 3], &device());
        assert_eq!(exact(empty, a.clone()).dims(), [0, 2]);
        let tracked = a.clone().autodiff().require_grad();
        let gradients = exact(a.clone().transpose().autodiff(), tracked.clone()).sum().backward();
        assert_close(tracked.grad(&gradients).expect("a gradient"), &[3.0, 3.0, 7.0, 7.0, 11.0, 11.0], 0.0);
        let tracked = a.clone().autodiff().require_grad();
        let gradients = exact(a.transpose(), tracked.clone()).sum().backward();
        assert_close(tracked.grad(&gradients).expect("a gradient"), &[3.0, 3.0, 7.0, 7.0, 11.0, 11.0], 0.0);
    }
}
