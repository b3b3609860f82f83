//! Products by `wgmma`, the instruction of compute capability 9.0 for matrix units, three times as fast there as the instruction for
//! [fragments](super::kernel).
//!
//! CubeCL does not have it, so the kernel is CUDA C++. Tensor maps describe the factors to the card's copy engine, which brings their tiles to
//! shared memory.

use super::launch::Launch;
use super::matrices::Matrices;
use super::tile::{Tile, WIDTH};
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::attributes::BufferIOAttr;
use cubecl::ir::features::Tma;
use cubecl::ir::metadata::Info;
use cubecl::ir::{DeviceProperties, UIntKind};
use cubecl::prelude::*;
use cubecl::server::{KernelArguments, KernelResource, MetadataBindingInfo, TensorMapBinding, TensorMapMeta};
use cubecl::zspace::metadata::Metadata;
use cubecl::{CubeKernel, PrecompiledSource};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::LazyLock;

/// The kernel, in CUDA C++.
const TEXT: &str = include_str!("warpgroup.cu");

/// Sums of a cube.
pub(super) const TILE: Tile = Tile { rows: 128, columns: 128, part: [64, 128] };
/// Numbers of a sum in a slice of the factors.
pub(super) const DEPTH: usize = 64;
/// Cubes that a multiprocessor runs at a time, by their registers.
pub(super) const RESIDENT: usize = 3;
/// Units of a cube: a warpgroup.
const UNITS: u32 = 128;
/// Sums of a box of a factor whose neighbours in memory belong to different sums: 128 bytes.
const ACROSS: usize = 64;

/// The kernel for factors of one type and layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Warpgroup {
    low: DType,
    /// Whether neighbours in a factor's memory belong to the same sum.
    along_sums: [bool; 2],
}

impl Warpgroup {
    /// `None` if the device does not have the instruction, or a tile would be mostly empty.
    pub fn of(properties: &DeviceProperties, [left, right]: [&Matrices; 2], [low, out]: [DType; 2]) -> Option<Self> {
        // Cards from 10.0 on have the copy engine too, but another instruction.
        let tma = properties.features.tma;
        let has_it = tma.contains(Tma::Base) && !tma.contains(Tma::Im2colWide);
        let fills_tiles = left.rows > TILE.rows / 2 && right.columns > TILE.columns / 2;
        // The copy engine does not read a matrix twice, as a broadcast one would be.
        let apart = [left, right].iter().all(|matrices| matrices.batch == 1 || matrices.distance > 0);
        // Its coordinates are signed numbers of 32 bits.
        let sizes = [left.rows, left.columns, right.columns, left.batch];
        let in_range = sizes.iter().all(|size| i32::try_from(*size).is_ok());
        let is_known = out == DType::F32 || out == low;
        let along_sums = [left.by_rows, !right.by_rows];
        (has_it && fills_tiles && apart && in_range && is_known).then_some(Self { low, along_sums })
    }

    /// Launches the kernel.
    pub fn launch(self, launch: &Launch) {
        let Launch { left, right, .. } = launch;
        let wide = launch.y.dtype == DType::F32;
        let kernel = WarpgroupProduct { kind: self, adds: launch.adds, pairs: launch.pairs, wide };
        let sizes =
            [left.rows, right.columns, left.columns, launch.share, launch.y_pitch, launch.y_batch, launch.base_pitch];
        let sizes: Vec<u64> = sizes.iter().map(|size| *size as u64).collect();
        let buffer = |x: &CubeTensor| KernelResource::Buffer(x.handle.clone().binding());
        let arguments = KernelArguments {
            resources: vec![
                KernelResource::TensorMap(tensor_map(launch.lhs, left, self.along_sums[0])),
                KernelResource::TensorMap(tensor_map(launch.rhs, right, self.along_sums[1])),
                buffer(launch.bias),
                buffer(launch.base),
                buffer(launch.y),
            ],
            declared_io: vec![
                BufferIOAttr::ReadOnly,
                BufferIOAttr::ReadOnly,
                if launch.adds[0] { BufferIOAttr::ReadOnly } else { BufferIOAttr::Dead },
                if launch.adds[1] { BufferIOAttr::ReadOnly } else { BufferIOAttr::Dead },
                BufferIOAttr::WriteOnly,
            ],
            // All of it is a parameter of the kernel, and none of it a buffer of its own.
            info: MetadataBindingInfo::new(sizes.clone(), sizes.len()),
        };
        launch.lhs.client.launch(Box::new(kernel), launch.cube_count(), arguments);
    }
}

/// Describes a factor to the copy engine, which permutes pieces of 16 bytes among eight rows of 128 bytes as the instruction expects it.
fn tensor_map(x: &CubeTensor, matrices: &Matrices, along_sums: bool) -> TensorMapBinding {
    let Matrices { batch, rows, columns, by_rows, pitch, distance } = *matrices;
    let [lines, along] = if by_rows { [rows, columns] } else { [columns, rows] };
    let tile = if along_sums { [1, TILE.rows, DEPTH] } else { [1, DEPTH, ACROSS] };
    let map = TensorMapMeta {
        format: TensorMapFormat::Tiled(TiledArgs { tile_size: tile.into() }),
        metadata: Metadata::new([batch, lines, along], [distance.max(WIDTH), pitch, 1]),
        elem_stride: [1, 1, 1].into(),
        interleave: TensorMapInterleave::None,
        swizzle: TensorMapSwizzle::B128,
        prefetch: TensorMapPrefetch::B128,
        oob_fill: OobFill::Zero,
        elem_ty: super::element(x.dtype),
    };
    TensorMapBinding::new(x.handle.clone().binding(), map)
}

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WarpgroupProduct {
    kind: Warpgroup,
    /// Whether it adds a bias and a base.
    adds: [bool; 2],
    /// Whether it writes pairs.
    pairs: bool,
    /// Whether it writes f32, as shares of sums always are.
    wide: bool,
}

impl WarpgroupProduct {
    fn text(&self) -> String {
        let Warpgroup { low, along_sums } = self.kind;
        let flags = [
            ("LEFT_ALONG_SUMS", along_sums[0]),
            ("RIGHT_ALONG_SUMS", along_sums[1]),
            ("ADDS_BIAS", self.adds[0]),
            ("ADDS_BASE", self.adds[1]),
            ("PAIRS", self.pairs),
            ("WIDE", self.wide),
        ];
        let mut text: String =
            flags.iter().map(|(name, flag)| format!("#define {name} {}\n", u8::from(*flag))).collect();
        text.push_str(&TEXT.replace("LOW", if low == DType::BF16 { "bf16" } else { "f16" }));
        text
    }
}

impl KernelMetadata for WarpgroupProduct {
    fn id(&self) -> KernelId {
        // Compiled kernels are kept by their ids, also on disk.
        static VERSION: LazyLock<u64> = LazyLock::new(|| BuildHasherDefault::<DefaultHasher>::default().hash_one(TEXT));
        KernelId::new::<Self>().cube_dim(CubeDim::new_1d(UNITS).0).info((*self, *VERSION))
    }

    fn address_type(&self) -> ElemType {
        UIntKind::U64.into()
    }
}

impl CubeKernel for WarpgroupProduct {
    fn define(&self) -> KernelDefinition {
        let settings = KernelSettings::new(CubeDim::new_1d(UNITS).0, ExecutionMode::Checked, AddressType::U64);
        KernelDefinition { body: Scope::root(settings.clone()), settings, info: Info::default() }
    }

    fn source(&self) -> Option<PrecompiledSource> {
        Some(PrecompiledSource { source: self.text(), entrypoint_name: "warpgroup_product".into(), lang: "cuda" })
    }
}
