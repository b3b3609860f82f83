//! Launch of one kernel for one product.

use super::super::launch::element;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;

/// Rounding of the factors of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// f32 numbers are multiplied and added one by one.
    Exact,
    /// Matrix units may take f32 numbers as TF32.
    MatrixUnits,
}

/// Launches one kernel.
#[allow(clippy::result_large_err, reason = "the error is CubeK's")]
pub(super) fn launch(
    strategy: Strategy,
    lhs: &CubeTensor,
    rhs: &CubeTensor,
    y: &CubeTensor,
) -> Result<(), MatmulSetupError> {
    let [from, to] = [lhs.dtype, y.dtype].map(element);
    let [lhs, rhs] = [lhs, rhs].map(|x| InputBinding::new(x.clone().binding(), from));
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems { lhs: from, rhs: from, out: to });
    launch_ref(&strategy.into(), &y.client, lhs, rhs, y.clone().binding(), &mut types)
}
