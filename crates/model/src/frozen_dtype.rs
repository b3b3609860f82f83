//! Number types of frozen weights.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt::{Display, Formatter};
use undertone_store::{MapParameter, map};

/// Number type in which frozen matrices are held in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrozenDtype {
    /// 32 bits, as they are loaded.
    #[default]
    F32,
    /// 16 bits with 8 bits of precision and the range of f32.
    Bf16,
    /// 16 bits with 11 bits of precision and numbers up to 65504.
    F16,
}

impl FrozenDtype {
    /// Number of bytes of an element.
    pub fn bytes(self) -> u64 {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// Whether a device has this type.
    pub fn is_on(self, device: &Device) -> bool {
        device.clone().inner().supports_dtype(self.dtype())
    }

    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

impl Display for FrozenDtype {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

thread_local! {
    static LOADED: Cell<FrozenDtype> = const { Cell::new(FrozenDtype::F32) };
}

/// Runs `load`, in which linear maps are created with their weights in `dtype`, so that parameters which are loaded into
/// them are rounded one by one: a model whose linear maps are all frozen is never in f32 as a whole. A call inside of it
/// replaces the type.
pub fn loaded_in<T>(dtype: FrozenDtype, load: impl FnOnce() -> T) -> T {
    struct Before(FrozenDtype);

    impl Drop for Before {
        fn drop(&mut self) {
            LOADED.set(self.0);
        }
    }

    let _before = Before(LOADED.replace(dtype));
    load()
}

/// Returns a new weight of a linear map in the type that [`loaded_in`] says.
pub(crate) fn as_loaded(weight: Tensor<2>) -> Tensor<2> {
    let dtype = LOADED.get().dtype();
    if weight.dtype() == dtype { weight } else { weight.cast(dtype) }
}

/// Returns a module with all of its parameters in f32.
pub fn in_f32<M: Module>(module: M) -> M {
    map(module, &mut Widener)
}

/// Returns a tensor in f32.
pub(crate) fn widened<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if x.dtype() == DType::F32 { x } else { x.cast(DType::F32) }
}

struct Widener;

impl MapParameter for Widener {
    fn map<const D: usize>(&mut self, _: &str, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        parameter.map(widened)
    }
}
