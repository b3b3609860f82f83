//! Selection of the fastest kernel for a matrix product, by trying several once for each kind of shape.
//!
//! It tries fewer kernels than Burn does: NVRTC compiled some of Burn's for one to three minutes each for Hopper. It
//! compiled the remaining ones in at most 0.6 s, measured on the driver without a GPU.

use super::super::launch::element;
use super::launch::{Rounding, launch};
use burn_cubecl::CubeTuneId;
use burn_cubecl::cubecl::tune::{LocalTuner, Tunable, TunableSet, TuneGroup};
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::MatmulKind;
use cubek::matmul::multi_level::Strategy;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::routines::TileSizeSelection;
use cubek::matmul::multi_level::routines::batch::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::multi_level::routines::batch::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::routine::BlueprintStrategy::Inferred;
use cubek::matmul::tune_key::MatmulAutotuneKey;

/// Both factors, and the product.
type Factors = (CubeTensor, CubeTensor, CubeTensor);
type Candidates = TunableSet<MatmulAutotuneKey, Factors, ()>;

/// Priority of kernels that are tried first; those of lower priority are for shapes that these do not accept.
const FIRST: i8 = 2;
const SECOND: i8 = 1;
const LAST: i8 = 0;
/// Not tried for such a shape.
const NEVER: i8 = -1;

/// Writes the product to `y` with the fastest kernel.
pub(super) fn launch_fastest(lhs: CubeTensor, rhs: CubeTensor, y: CubeTensor, rounding: Rounding) {
    static EXACT: LocalTuner<MatmulAutotuneKey, CubeTuneId> = LocalTuner::new("undertone-product-exact");
    static MATRIX_UNITS: LocalTuner<MatmulAutotuneKey, CubeTuneId> = LocalTuner::new("undertone-product-matrix-units");
    let (id, client) = (CubeTuneId::new(&lhs.client, &lhs.device), lhs.client.clone());
    let factors = (lhs, rhs, y);
    match rounding {
        Rounding::Exact => EXACT.execute(&id, &client, EXACT.init(&id, exact), factors),
        Rounding::MatrixUnits => MATRIX_UNITS.execute(&id, &client, MATRIX_UNITS.init(&id, with_matrix_units), factors),
    }
}

/// Kernels that multiply and add f32 numbers one by one.
fn exact() -> Candidates {
    let group = TuneGroup::new("exact", |_| FIRST);
    units().into_iter().fold(basic(&group), |set, strategy| set.with(tunable(strategy).group(&group, for_matrices)))
}

/// Kernels for matrix units, and kernels for shapes that those do not accept.
fn with_matrix_units() -> Candidates {
    let group = TuneGroup::new("matrix-units", |_| FIRST);
    let mut set = basic(&group);
    for strategy in matrix_units() {
        set = set.with(tunable(strategy).group(&group, for_matrices));
    }
    for strategy in units() {
        set = set.with(tunable(strategy).group(&group, |key| if is_of_matrices(key) { SECOND } else { NEVER }));
    }
    set
}

/// Kernels that accept any shape, and kernels for vectors.
fn basic(group: &TuneGroup<MatmulAutotuneKey>) -> Candidates {
    let copied = |_: &MatmulAutotuneKey, (lhs, rhs, y): &Factors| (lhs.clone(), rhs.clone(), y.copy());
    let mut set = TunableSet::new(key, copied).with(tunable(Strategy::Naive).group(group, |_| LAST));
    for strategy in [
        Strategy::SimpleVecMat(Inferred(().into())),
        Strategy::GemvUnitPerpendicular(Inferred(Default::default())),
        Strategy::Gemm(Inferred(Default::default())),
    ] {
        set = set.with(tunable(strategy).group(group, |key| if is_of_matrices(key) { NEVER } else { FIRST }));
    }
    set
}

fn units() -> Vec<Strategy> {
    [TileSizeSelection::MaxTileSize, TileSizeSelection::MinTileSize]
        .into_iter()
        .flat_map(|tile_size| {
            [
                Strategy::SimpleUnit(Inferred(SimpleUnitSelectionArgs { tile_size })),
                Strategy::DoubleUnit(Inferred(DoubleUnitSelectionArgs { tile_size })),
            ]
        })
        .collect()
}

fn matrix_units() -> Vec<Strategy> {
    let simple = |multi_rows, tile_matmul| SimpleArgs { multi_rows, tile_matmul };
    let ordered = |rows, tile_matmul| OrderedSelectionArgs {
        partition_k: Some(2),
        row_count: Some(rows),
        rows_per_plane: Some(2),
        tile_matmul,
    };
    vec![
        Strategy::SimpleCyclicMma(Inferred(simple(false, TileMatmulKind::Mma))),
        Strategy::SimpleCyclicCmma(Inferred(simple(true, TileMatmulKind::Cmma))),
        Strategy::OrderedDoubleMma(Inferred(ordered(4, TileMatmulKind::Mma))),
        Strategy::OrderedDoubleMma(Inferred(ordered(8, TileMatmulKind::Mma))),
        Strategy::SimpleTmaMma(Inferred(simple(true, TileMatmulKind::Mma))),
    ]
}

fn tunable(strategy: Strategy) -> Tunable<MatmulAutotuneKey, Factors, ()> {
    Tunable::new(&strategy.to_string(), move |(lhs, rhs, y): Factors| {
        launch(strategy.clone(), &lhs, &rhs, &y).map_err(|error| format!("{error:?}"))
    })
}

fn for_matrices(key: &MatmulAutotuneKey) -> i8 {
    if is_of_matrices(key) { FIRST } else { SECOND }
}

fn is_of_matrices(key: &MatmulAutotuneKey) -> bool {
    matches!(key.analysis.kind, MatmulKind::General)
}

fn key((lhs, rhs, y): &Factors) -> MatmulAutotuneKey {
    MatmulAutotuneKey::from_parts(
        lhs.meta.shape(),
        rhs.meta.shape(),
        lhs.meta.strides(),
        rhs.meta.strides(),
        lhs.meta.tiling,
        rhs.meta.tiling,
        element(lhs.dtype),
        element(rhs.dtype),
        element(y.dtype),
        None,
        None,
    )
}
