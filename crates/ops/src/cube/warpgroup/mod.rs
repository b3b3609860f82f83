//! Kernels in CUDA C++ for compute capability 9.0: CubeCL has neither `wgmma`, its instruction for matrix units, nor the layouts of shared
//! memory that it reads.
//!
//! A kernel's text is definitions of constants, [the instructions](INSTRUCTIONS), and its own part. NVRTC compiles it as it does CubeCL's own
//! kernels. It may declare 48 KB of shared memory, and gets no more. CubeCL's cache knows compiled kernels by their whole text, not by their
//! names, so a text has one kernel: where a file has several, a constant says which one is compiled.

use super::launch::element;
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

/// Instructions that the kernels are made of.
const INSTRUCTIONS: &str = include_str!("instructions.cu");
/// Units of a cube: a warpgroup.
const UNITS: u32 = 128;
/// Numbers in half precision of a row of the copy engine's boxes: 128 bytes.
pub(super) const ROW: usize = 64;

/// Whether the device has warpgroups.
pub(super) fn has_warpgroups(properties: &DeviceProperties) -> bool {
    let tma = properties.features.tma;
    // Cards from 10.0 on have the copy engine too, but another instruction for matrix units.
    tma.contains(Tma::Base) && !tma.contains(Tma::Im2colWide)
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kernel<const N: usize> {
    /// Name of the function.
    pub name: &'static str,
    /// Text with the function.
    pub text: Text,
    /// Constants that the text expects.
    pub constants: [(&'static str, u32); N],
    /// Type of the factors of products: f16 or bf16.
    pub low: DType,
}

/// CUDA C++ that follows the [instructions](INSTRUCTIONS), and a hash of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Text {
    text: &'static str,
    hash: u64,
}

impl Text {
    pub const fn new(text: &'static str) -> Self {
        Self { text, hash: hash(hash(0xCBF2_9CE4_8422_2325, INSTRUCTIONS), text) }
    }
}

/// Goes on with FNV-1a, which the compiler can compute: launches are too many to hash texts in each.
const fn hash(mut hash: u64, text: &str) -> u64 {
    let mut at = 0;
    while at < text.len() {
        hash = (hash ^ text.as_bytes()[at] as u64).wrapping_mul(0x0100_0000_01B3);
        at += 1;
    }
    hash
}

/// Parameter of a kernel.
pub(super) enum Parameter<'a> {
    /// A tensor that the copy engine reads.
    Boxes(Boxes<'a>),
    /// A tensor that threads read.
    Read(&'a CubeTensor),
    /// A tensor that threads write, all of it.
    Written(&'a CubeTensor),
    /// Any tensor, which is not touched.
    Unused(&'a CubeTensor),
}

/// Boxes of a tensor of half precision, which the copy engine brings to shared memory. Sizes and distances are in numbers.
pub(super) struct Boxes<'a> {
    pub tensor: &'a CubeTensor,
    /// Numbers of matrices, of their lines, and of what is contiguous in a line.
    pub shape: [usize; 3],
    /// Distances of matrices and of lines, multiples of 8.
    pub distances: [usize; 2],
    /// Lines of a box; each has [`ROW`] numbers.
    pub lines: usize,
}

impl<const N: usize> Kernel<N> {
    /// Launches the kernel with these parameters and `sizes`, the fields of the structure that is its last one.
    pub fn launch(self, cubes: [usize; 3], parameters: &[Parameter], sizes: Vec<u64>) {
        let client = parameters[0].tensor().client.clone();
        let [x, y, z] = cubes.map(|count| count as u32);
        let count = sizes.len();
        let arguments = KernelArguments {
            resources: parameters.iter().map(Parameter::resource).collect(),
            declared_io: parameters.iter().map(Parameter::io).collect(),
            // All of it is a parameter of the kernel, and none of it a buffer of its own.
            info: MetadataBindingInfo::new(sizes, count),
        };
        client.launch(Box::new(self), CubeCount::Static(x, y, z), arguments);
    }

    fn source(&self) -> String {
        let define = |(name, value): &(&str, u32)| format!("#define {name} {value}\n");
        let constants: String = self.constants.iter().map(define).collect();
        let low = if self.low == DType::BF16 { "bf16" } else { "f16" };
        [constants, INSTRUCTIONS.replace("LOW", low), self.text.text.to_owned()].concat()
    }
}

impl Parameter<'_> {
    fn tensor(&self) -> &CubeTensor {
        match self {
            Self::Boxes(boxes) => boxes.tensor,
            Self::Read(tensor) | Self::Written(tensor) | Self::Unused(tensor) => tensor,
        }
    }

    fn resource(&self) -> KernelResource {
        match self {
            Self::Boxes(boxes) => KernelResource::TensorMap(boxes.map()),
            _ => KernelResource::Buffer(self.tensor().handle.clone().binding()),
        }
    }

    fn io(&self) -> BufferIOAttr {
        match self {
            Self::Boxes(_) | Self::Read(_) => BufferIOAttr::ReadOnly,
            Self::Written(_) => BufferIOAttr::WriteOnly,
            Self::Unused(_) => BufferIOAttr::Dead,
        }
    }
}

impl Boxes<'_> {
    /// Describes the tensor to the copy engine, which permutes pieces of 16 bytes among eight rows as `wgmma` expects it.
    fn map(&self) -> TensorMapBinding {
        let Self { tensor, shape, distances: [of_matrices, of_lines], lines } = *self;
        let map = TensorMapMeta {
            format: TensorMapFormat::Tiled(TiledArgs { tile_size: [1, lines, ROW].into() }),
            // A distance of 0 is none to the copy engine.
            metadata: Metadata::new(shape, [of_matrices.max(8), of_lines, 1]),
            elem_stride: [1, 1, 1].into(),
            interleave: TensorMapInterleave::None,
            swizzle: TensorMapSwizzle::B128,
            prefetch: TensorMapPrefetch::B128,
            oob_fill: OobFill::Zero,
            elem_ty: element(tensor.dtype),
        };
        TensorMapBinding::new(tensor.handle.clone().binding(), map)
    }
}

impl<const N: usize> KernelMetadata for Kernel<N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn id(&self) -> KernelId {
        // Compiled kernels are kept by their ids, also on disk, so that the text belongs to it.
        let variant = (self.name, self.constants, self.low, self.text.hash);
        KernelId::new::<Self>().cube_dim(CubeDim::new_1d(UNITS).0).info(variant)
    }

    fn address_type(&self) -> ElemType {
        UIntKind::U64.into()
    }
}

impl<const N: usize> CubeKernel for Kernel<N> {
    fn define(&self) -> KernelDefinition {
        let settings = KernelSettings::new(CubeDim::new_1d(UNITS).0, ExecutionMode::Checked, AddressType::U64);
        KernelDefinition { body: Scope::root(settings.clone()), settings, info: Info::default() }
    }

    fn source(&self) -> Option<PrecompiledSource> {
        Some(PrecompiledSource { source: self.source(), entrypoint_name: self.name.into(), lang: "cuda" })
    }
}
