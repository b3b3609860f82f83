//! Products of matrices.

#[cfg(feature = "cube")]
use crate::capacity::properties;
#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::host;
#[cfg(feature = "cube")]
use crate::precision::needs_exact_product;
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
        let rounding = if needs_exact_product(&lhs) { cube::Rounding::Exact } else { cube::Rounding::MatrixUnits };
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

/// Returns `lhs · rhs + bias` in `dtype` and reshaped, computed in the type of the factors. It has no gradient.
pub(crate) fn matmul_with_bias<const D: usize>(
    [lhs, rhs]: [Tensor<2>; 2],
    bias: Option<Tensor<1>>,
    dtype: DType,
    shape: [usize; D],
) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if dtype == DType::F32 && bias.is_some() && adds_up(&lhs) {
        return kernel::plus(lhs, rhs, None, bias).reshape(shape);
    }
    // The bias is added in the shape of the neighbouring operations, so that it is fused with those.
    let y = matmul_as(lhs, rhs, dtype).reshape(shape);
    match bias {
        Some(bias) => y + host::restored(bias, dtype).unsqueeze(),
        None => y,
    }
}

/// Returns `lhs · rhs + base + bias` in f32, for factors of a type whose kernels for products [add](adds_up) them. It has no gradient.
#[cfg(feature = "cube")]
pub(crate) fn matmul_plus(lhs: Tensor<2>, rhs: Tensor<2>, base: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    kernel::plus(lhs, rhs, Some(base), bias)
}

/// Whether kernels for products of such factors add other numbers to them.
#[cfg(feature = "cube")]
pub(crate) fn adds_up(factor: &Tensor<2>) -> bool {
    let device = factor.device();
    Backing::of(&device) == Backing::Cuda
        && properties(&device).is_some_and(|found| cube::has_fragments(&found, factor.dtype()))
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
    use crate::graph::{AnyFloat, with_gradients};
    use crate::host;
    use burn::backend::{AutodiffBackend, Dispatch};
    use burn::tensor::{DType, Tensor};
    use burn_cubecl::tensor::CubeTensor;

    /// Returns a product in the type of its factors.
    pub(crate) fn product<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, rounding: Rounding) -> Tensor<D> {
        let dtype = lhs.dtype();
        if !lhs.device().is_autodiff() {
            return plain(lhs, rhs, dtype, rounding);
        }
        let inputs = [lhs.clone(), rhs.clone()].map(AnyFloat::from);
        let [wants_lhs, wants_rhs] = inputs.each_ref().map(AnyFloat::is_tracked);
        let (lhs, rhs) = (lhs.inner(), rhs.inner());
        let y = Dispatch::from_inner(plain(lhs.clone(), rhs.clone(), dtype, rounding).into_dispatch());
        let (for_rhs, for_lhs) = (wants_rhs.then_some(lhs), wants_lhs.then_some(rhs));
        let backward = move |dy| {
            let dy = Tensor::<D>::from_dispatch(dy);
            let product = |lhs, rhs| plain(lhs, rhs, dtype, rounding).into_dispatch();
            let d_lhs = for_lhs.map(|rhs: Tensor<D>| product(dy.clone(), rhs.swap_dims(D - 2, D - 1)));
            let d_rhs = for_rhs.map(|lhs: Tensor<D>| product(lhs.swap_dims(D - 2, D - 1), dy));
            vec![d_lhs, d_rhs]
        };
        Tensor::from_dispatch(with_gradients(y, inputs.into(), backward))
    }

    /// Returns a product in f32 plus base and bias, without gradients.
    pub(crate) fn plus(lhs: Tensor<2>, rhs: Tensor<2>, base: Option<Tensor<2>>, bias: Option<Tensor<1>>) -> Tensor<2> {
        let shape = cube::product_shape(&lhs.shape(), &rhs.shape());
        let has_base = base.is_some();
        let mut inputs = vec![lhs.into_dispatch(), rhs.into_dispatch()];
        inputs.extend(base.map(|base| host::f32(base).into_dispatch()));
        inputs.extend(bias.map(|bias| host::f32(bias).into_dispatch()));
        let launch = move |inputs: Vec<CubeTensor>| {
            let mut added = inputs[2..].iter();
            let base = if has_base { added.next() } else { None };
            vec![cube::matmul_plus(&inputs[0], &inputs[1], base, added.next())]
        };
        Tensor::from_dispatch(cube::queue("matmul", inputs, vec![(shape, DType::F32)], launch).remove(0))
    }

    /// Returns a product in `dtype`, without gradients.
    pub(crate) fn plain<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, dtype: DType, rounding: Rounding) -> Tensor<D> {
        let shape = cube::product_shape(&lhs.shape(), &rhs.shape());
        let factors = [lhs.into_dispatch(), rhs.into_dispatch()];
        let launch = move |[lhs, rhs]: [_; 2]| cube::matmul(&lhs, &rhs, dtype, rounding);
        Tensor::from_dispatch(cube::launched_as("matmul", factors, shape, dtype, launch))
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
    }
}
