//! Banks of adapters, of any type.

use crate::boxed::{Boxed, DynModule, Erase, Family};
use burn::module::{Module, ModuleDisplay, Param};
use burn::tensor::{DType, Int, Tensor};
use undertone_store::{HostTensor, StoreError};

/// Adapters of one type at one linear map: a `#[derive(Module)]` struct that implements this trait. All its parameters
/// are trained together; tensors that are not trained are fields without a [`Param`](burn::module::Param).
///
/// An adapter has the index of its task. A bank holds those adapters that target its map and treats any other as one
/// that changes nothing.
pub trait AdapterBank: DynModule<AdapterBanks> + Sync {
    /// Applies the map with the adapters that `gates` selects. `weight` may be held in half precision, as
    /// [`undertone_ops::linear`] takes it.
    ///
    /// # Shapes
    /// - `x`: `[batch, rows, in]`; `weight`: `[out, in]`; `bias`: `[out]`
    /// - output: `[batch, rows, out]`
    fn forward(&self, x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, gates: &Gates) -> Tensor<3>;

    /// As [`forward`](Self::forward), with an input that may be in half precision, and a result that may be if it is `lowered`, which is to say
    /// that only products, attention and GELU read it (as [`undertone_ops::linear_lowered`]'s). By default both are in f32.
    fn forward_mixed(
        &self,
        x: Tensor<3>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        gates: &Gates,
        _lowered: bool,
    ) -> Tensor<3> {
        let x = if x.dtype() == DType::F32 { x } else { x.cast(DType::F32) };
        self.forward(x, weight, bias, gates)
    }

    /// Returns weight and bias, in f32 as they are given, with which the map alone computes what it computes with this
    /// adapter at gate 1; `None` if the adapter does not target the map. A map without a bias stays without one.
    fn merged(&self, adapter: usize, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Option<MapWeights>;

    /// Returns an adapter's tensors by their names in a file, such as `lora_A.weight`; none if it does not target the
    /// map.
    fn tensors(&self, adapter: usize) -> Vec<(&'static str, HostTensor)>;

    /// Replaces an adapter's tensors, each by what `read` returns for its name and shape; other adapters stay as they
    /// are. Nothing is read if the adapter does not target the map.
    ///
    /// # Errors
    /// The first error of `read`. The adapter is unchanged then.
    fn load(&mut self, adapter: usize, read: &mut ReadTensor) -> Result<(), StoreError>;
}

/// Weight, `[out, in]`, and bias, `[out]`, of a linear map.
pub type MapWeights = (Tensor<2>, Option<Tensor<1>>);

/// Function that returns the tensor of a name, which has the given shape.
pub type ReadTensor<'a> = dyn FnMut(&str, &[usize]) -> Result<HostTensor, StoreError> + 'a;

/// A bank of adapters of any type, as linear maps hold it. Its parameters' paths begin with the name of the type.
pub type BoxedAdapterBank = Boxed<AdapterBanks>;

/// Family of the modules that are held as banks of adapters.
#[derive(Debug)]
pub struct AdapterBanks;

impl Family for AdapterBanks {
    type Object = dyn AdapterBank;
}

impl<B: AdapterBank + Module + ModuleDisplay> Erase<B> for AdapterBanks {
    fn erase(module: Box<B>) -> Box<dyn AdapterBank> {
        module
    }
}

/// Gates of the adapters.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a batch has one, and it is passed by reference")]
pub enum Gates {
    /// One adapter with gate 1 for the whole batch.
    One(usize),
    /// Gates of each sample, `[batch, adapters]`.
    Each(Tensor<2>),
}

impl Gates {
    /// Returns the gates of the given rows, for sequences that leave a batch or branch into beams.
    pub fn select(self, rows: Tensor<1, Int>) -> Self {
        match self {
            Self::One(adapter) => Self::One(adapter),
            Self::Each(gates) => Self::Each(gates.select(0, rows)),
        }
    }
}

/// Returns a parameter with a changed value, trainable or frozen as before. `change` is given the value detached.
pub fn changed<const D: usize>(
    param: &Param<Tensor<D>>,
    change: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    param.clone().map(|value| {
        let tracked = value.is_require_grad();
        change(value.detach()).set_require_grad(tracked)
    })
}
