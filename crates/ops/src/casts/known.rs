//! Tensors on CubeCL whose cast is known.

use crate::cube::{self, identity};
use crate::graph::AnyFloat;
use crate::host;
use crate::settled::long_lived;
use burn::backend::TensorMetadata;
use burn::backend::fusion::custom::TensorId;
use burn::tensor::{Bool, DType, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};

/// What tensors without autodiff became, by their threads and identities.
#[derive(Default)]
pub(super) struct Casts(HashMap<(ThreadId, TensorId), Cast>);

struct Cast {
    output: AnyFloat,
    dtype: DType,
    /// Whether it was used since [`begin`].
    used: bool,
}

/// Not the threads' own: a tensor must not be dropped while a thread ends.
pub(super) static INPUTS: LazyLock<Mutex<Casts>> = LazyLock::new(Mutex::default);
pub(super) static WEIGHTS: LazyLock<Mutex<Casts>> = LazyLock::new(Mutex::default);
pub(super) static MASKS: LazyLock<Mutex<Casts>> = LazyLock::new(Mutex::default);

fn locked(casts: &Mutex<Casts>) -> MutexGuard<'_, Casts> {
    casts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(x: AnyFloat) -> (ThreadId, TensorId) {
    (current().id(), identity(x.0))
}

impl Casts {
    /// Forgets those of this thread.
    pub fn clear_own(&mut self) {
        self.retain_own(|_| false);
    }

    fn retain_own(&mut self, keep: impl Fn(&Cast) -> bool) {
        let thread = current().id();
        self.0.retain(|(owner, _), cast| *owner != thread || keep(cast));
    }
}

/// Returns the cast of an input: the known one, or a new one in place of the last input's.
pub(super) fn input<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    cast(&INPUTS, x, dtype, |casts, x| {
        casts.clear_own();
        x.cast(dtype)
    })
}

/// Returns the cast of a weight: the known one, or a new one that is kept.
pub(super) fn weight<const D: usize>(weight: Tensor<D>, dtype: DType) -> Tensor<D> {
    cast(&WEIGHTS, weight, dtype, |_, weight| long_lived(weight, move |weight| weight.cast(dtype)))
}

fn cast<const D: usize>(
    known: &Mutex<Casts>,
    x: Tensor<D>,
    dtype: DType,
    new: impl FnOnce(&mut Casts, Tensor<D>) -> Tensor<D>,
) -> Tensor<D> {
    let key = key(x.clone().into());
    let mut casts = locked(known);
    if let Some(cast) = casts.0.get_mut(&key).filter(|cast| cast.dtype == dtype) {
        cast.used = true;
        return cast.output.clone().tensor();
    }
    let output = new(&mut casts, x);
    casts.0.insert(key, Cast { output: output.clone().into(), dtype, used: true });
    output
}

/// Returns a mask as f32 numbers, `[.., rows, columns]`, 1 where it is true: the known ones, or new ones in place of the last mask's.
pub(super) fn mask<const D: usize>(mask: Tensor<2, Bool>) -> Tensor<D> {
    let key = (current().id(), identity(mask.clone().into_dispatch()));
    let mut casts = locked(&MASKS);
    if let Some(cast) = casts.0.get(&key).filter(|cast| cast.output.0.shape().num_dims() == D) {
        return cast.output.clone().tensor();
    }
    let numbers = host::f32(mask.float().unsqueeze());
    casts.clear_own();
    casts.0.insert(key, Cast { output: numbers.clone().into(), dtype: DType::F32, used: true });
    numbers
}

/// Forgets the cast of a weight, and returns its type.
pub(super) fn forget<const D: usize>(weight: Tensor<D>) -> Option<DType> {
    let key = key(weight.into());
    locked(&WEIGHTS).0.remove(&key).map(|cast| cast.dtype)
}

/// Casts weights for later products.
pub(super) fn cast_all(weights: Vec<(DType, AnyFloat)>) {
    let mut by_type: BTreeMap<String, (DType, Vec<AnyFloat>)> = BTreeMap::new();
    for (dtype, weight) in weights {
        by_type.entry(dtype.name().to_owned()).or_insert_with(|| (dtype, Vec::new())).1.push(weight);
    }
    for (dtype, weights) in by_type.into_values() {
        let device = weights[0].clone().tensor::<1>().device();
        let made = device.memory_persistent_allocations(weights.clone(), move |weights| {
            let outputs = weights.iter().map(|weight| (weight.0.shape(), dtype)).collect();
            let inputs = weights.into_iter().map(|weight| weight.0).collect();
            cube::queue("cast_weights", inputs, outputs, move |weights| cube::cast_all(weights, dtype))
        });
        let mut casts = locked(&WEIGHTS);
        for (weight, output) in weights.into_iter().zip(made) {
            casts.0.insert(key(weight), Cast { output: AnyFloat(output), dtype, used: true });
        }
    }
}

pub(super) fn begin() {
    let thread = current().id();
    let mut weights = locked(&WEIGHTS);
    weights.0.iter_mut().filter(|((owner, _), _)| *owner == thread).for_each(|(_, cast)| cast.used = false);
}

pub(super) fn end() {
    locked(&INPUTS).clear_own();
    locked(&MASKS).clear_own();
    locked(&WEIGHTS).retain_own(|cast| cast.used);
}

#[cfg(test)]
mod tests {
    use super::super::{cast_weights, forget_cast, input_cast, mask_numbers, weight_cast};
    use super::*;
    use crate::testing::{device, values};

    fn id<const D: usize>(x: Tensor<D>) -> TensorId {
        identity(x.into_dispatch())
    }

    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn a_weight_is_cast_once_until_it_is_replaced() {
        let weight = Tensor::<2>::full([6, 8], 1.5, &device());
        let cast = |weight: &Tensor<2>| weight_cast(weight.clone(), DType::F16, true);
        let first = id(cast(&weight));
        assert_eq!(id(cast(&weight)), first);
        assert_ne!(id(weight_cast(weight.clone(), DType::F16, false)), first, "not in training");
        let kind = forget_cast(&weight).expect("it was cast");
        assert_eq!(forget_cast(&weight), None);
        // More than one group of tensors, one of which is not a multiple of 16 bytes long.
        let replaced: Vec<Tensor<2>> =
            (0..70).map(|n| Tensor::full([1, if n == 3 { 5 } else { 8 }], n as f32, &device())).collect();
        cast_weights(replaced.iter().map(|new| (kind, new.clone().into())).collect());
        for (n, new) in replaced.iter().enumerate() {
            let known = cast(new);
            assert_eq!((id(known.clone()), known.dtype()), (id(cast(new)), DType::F16));
            assert_eq!(values(known), vec![n as f32; new.dims()[1]]);
        }
    }

    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn a_mask_becomes_numbers_once() {
        let masks = [[[true, false], [false, false]], [[true, true], [true, false]]];
        let masks = masks.map(|mask| Tensor::<2, Bool>::from_data(mask, &device()));
        for mask in masks {
            let numbers: Tensor<4> = mask_numbers(mask.clone());
            assert_eq!(id::<4>(mask_numbers(mask.clone())), id(numbers.clone()));
            assert_eq!(values(numbers), values(mask.clone().float()));
            assert_eq!(mask_numbers::<3>(mask).dims(), [1, 2, 2]);
        }
    }

    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn weights_that_nothing_used_are_forgotten() {
        let [used, unused] = [(); 2].map(|()| Tensor::<2>::ones([4, 8], &device()));
        let cast = |weight: &Tensor<2>| id(weight_cast(weight.clone(), DType::F16, true));
        let first = [cast(&used), cast(&unused)];
        begin();
        assert_eq!(cast(&used), first[0]);
        end();
        assert_eq!(cast(&used), first[0]);
        assert_ne!(cast(&unused), first[1]);
    }

    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn only_the_last_input_is_kept() {
        let [a, b] = [(); 2].map(|()| Tensor::<3>::ones([2, 3, 8], &device()));
        let cast = |x: &Tensor<3>| id(input_cast(x.clone(), DType::F16));
        let first = cast(&a);
        assert_eq!(cast(&a), first);
        cast(&b);
        let second = cast(&a);
        assert_ne!(second, first);
        end();
        assert_ne!(cast(&a), second);
    }
}
