//! Bank of adapters of one linear map.

use super::LoraConfig;
use crate::adapters::{Gates, changed};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use std::ops::Range;
use undertone_ops::{LoraGates, LoraUpdate, dropout, matmul};

/// Adapters of one linear map, side by side. Adapters that do not target the map have no rows in it.
#[derive(Module, Debug)]
pub struct LoraBank {
    /// `lora_A` of all adapters, stacked: `[ΣR, in]`.
    pub lora_a: Param<Tensor<2>>,
    /// `lora_B` of all adapters, side by side: `[out, ΣR]`.
    pub lora_b: Param<Tensor<2>>,
    /// Matrix that repeats an adapter's gate over its rank, times its scale: `[adapters, ΣR]`.
    spread: Tensor<2>,
    #[module(skip)]
    slots: Vec<Slot>,
}

/// Rows of an adapter in a bank, with its settings.
#[derive(Clone, Debug, PartialEq)]
struct Slot {
    adapter: usize,
    rows: Range<usize>,
    scale: f64,
    dropout: f64,
}

impl LoraBank {
    /// Creates a bank for a map of `[d_out, d_in]` with those of `adapters` that target it. Each starts as in PEFT:
    /// `lora_A` uniform in ±1/√in and `lora_B` zero, so that the map's output is unchanged.
    ///
    /// # Panics
    /// If no adapter targets the map: then it needs no bank.
    pub fn init(
        d_in: usize,
        d_out: usize,
        targeting: &[(usize, &LoraConfig)],
        adapters: usize,
        device: &Device,
    ) -> Self {
        assert!(!targeting.is_empty(), "a bank holds at least one adapter");
        let mut slots = Vec::with_capacity(targeting.len());
        let mut total = 0;
        for (adapter, config) in targeting {
            let rows = total..total + config.r;
            total = rows.end;
            slots.push(Slot { adapter: *adapter, rows, scale: config.scale(), dropout: config.lora_dropout });
        }
        let mut spread = vec![0.0_f32; adapters * total];
        for slot in &slots {
            spread[slot.adapter * total..][slot.rows.clone()].fill(slot.scale as f32);
        }
        let bound = (d_in as f64).powf(-0.5);
        Self {
            lora_a: Param::from_tensor(undertone_ops::uniform([total, d_in], -bound, bound, device)),
            lora_b: Param::from_tensor(Tensor::zeros([d_out, total], device)),
            spread: Tensor::from_data(TensorData::new(spread, [adapters, total]), device),
            slots,
        }
    }

    /// Returns the updates that the gates select for a map of `x`, `[batch, .., in]`; none if no selected adapter
    /// targets the map. Adapters with the same dropout share an update. Each update has its own dropout mask, as each
    /// adapter alone would.
    pub fn updates<const D: usize>(&self, x: &Tensor<D>, gates: &Gates) -> Vec<LoraUpdate<D>> {
        match gates {
            Gates::One(adapter) => {
                let slot = self.slots.iter().find(|slot| slot.adapter == *adapter);
                let update = |slot: &Slot| self.update(x, slot.rows.clone(), slot.dropout, LoraGates::Same(slot.scale));
                slot.map(update).into_iter().collect()
            }
            Gates::Each(gates) => {
                let gates = matmul(gates.clone(), self.spread.clone());
                let update = |slots: &[Slot]| {
                    let rows = slots[0].rows.start..slots[slots.len() - 1].rows.end;
                    let gates = if rows.len() == gates.dims()[1] {
                        gates.clone()
                    } else {
                        gates.clone().narrow(1, rows.start, rows.len())
                    };
                    self.update(x, rows, slots[0].dropout, LoraGates::Each(gates))
                };
                self.slots.chunk_by(|a, b| a.dropout == b.dropout).map(update).collect()
            }
        }
    }

    fn update<const D: usize>(&self, x: &Tensor<D>, rows: Range<usize>, p: f64, gates: LoraGates) -> LoraUpdate<D> {
        let (a, b) = self.matrices(rows);
        let dropped = (p > 0.0 && x.device().is_autodiff()).then(|| dropout(x.clone(), p));
        LoraUpdate { dropped, a, b, gates }
    }

    /// Returns `scale · lora_B · lora_A` of one adapter, `[out, in]`, which merging adds to the weight; `None` if the
    /// adapter does not target the map.
    pub fn delta(&self, adapter: usize) -> Option<Tensor<2>> {
        let slot = self.slots.iter().find(|slot| slot.adapter == adapter)?;
        let (a, b) = self.matrices(slot.rows.clone());
        Some(matmul(b, a).mul_scalar(slot.scale))
    }

    /// Returns `lora_A`, `[r, in]`, and `lora_B`, `[out, r]`, of one adapter; `None` if it does not target the map.
    pub fn adapter(&self, adapter: usize) -> Option<(Tensor<2>, Tensor<2>)> {
        let slot = self.slots.iter().find(|slot| slot.adapter == adapter)?;
        Some(self.matrices(slot.rows.clone()))
    }

    /// Replaces one adapter's matrices; the others stay. Does nothing if the adapter does not target the map.
    ///
    /// # Panics
    /// If the shapes are not those of [`adapter`](Self::adapter).
    pub fn set_adapter(&mut self, adapter: usize, lora_a: Tensor<2>, lora_b: Tensor<2>) {
        let Some(slot) = self.slots.iter().find(|slot| slot.adapter == adapter) else { return };
        let (rows, [d_out, d_in]) = (slot.rows.clone(), [self.lora_b.dims()[0], self.lora_a.dims()[1]]);
        self.lora_a = changed(&self.lora_a, |a| a.slice_assign([rows.clone(), 0..d_in], lora_a));
        self.lora_b = changed(&self.lora_b, |b| b.slice_assign([0..d_out, rows.clone()], lora_b));
    }

    /// Returns one adapter's rows of `lora_a` and columns of `lora_b`; `None` if it does not target the map.
    pub fn rows(&self, adapter: usize) -> Option<Range<usize>> {
        self.slots.iter().find(|slot| slot.adapter == adapter).map(|slot| slot.rows.clone())
    }

    fn matrices(&self, rows: Range<usize>) -> (Tensor<2>, Tensor<2>) {
        let (a, b) = (self.lora_a.val(), self.lora_b.val());
        if rows.len() == a.dims()[0] {
            return (a, b);
        }
        (a.narrow(0, rows.start, rows.len()), b.narrow(1, rows.start, rows.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::values;
    use undertone_ops::linear;

    fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        undertone_ops::normal(shape, 1.0, device)
    }

    /// Two adapters of different rank and scale, with non-zero matrices.
    fn bank(device: &Device) -> LoraBank {
        undertone_ops::seed(5);
        let (one, two) = (
            LoraConfig { r: 2, lora_alpha: 3.0, ..Default::default() },
            LoraConfig { r: 3, lora_alpha: 2.0, use_rslora: true, ..Default::default() },
        );
        let mut bank = LoraBank::init(4, 6, &[(0, &one), (2, &two)], 3, device);
        bank.lora_b = Param::from_tensor(random([6, 5], device));
        bank
    }

    /// Sum of the bank's updates.
    fn update<const D: usize>(bank: &LoraBank, x: &Tensor<D>, gates: &Gates) -> Option<Tensor<D>> {
        bank.updates(x, gates).into_iter().map(|update| update.of(x.clone())).reduce(|sum, update| sum + update)
    }

    fn close<const D: usize>(a: Tensor<D>, b: Tensor<D>) {
        assert_eq!(a.dims(), b.dims());
        for (a, b) in values(a).into_iter().zip(values(b)) {
            assert!((a - b).abs() < 1e-4, "{a} is not {b}");
        }
    }

    #[test]
    fn begins_without_effect() {
        let device = Device::default();
        let bank = LoraBank::init(4, 6, &[(0, &LoraConfig::default())], 1, &device);
        let found = update(&bank, &random([2, 3, 4], &device), &Gates::One(0)).expect("an update");
        assert_eq!(values(found), [0.0; 36]);
    }

    #[test]
    fn each_sample_gets_its_gated_sum_of_updates() {
        let device = Device::default();
        let bank = bank(&device);
        let x = random([2, 3, 4], &device);
        let gates = Tensor::<2>::from_floats([[1.0, 0.0, 0.0], [0.25, 0.5, 0.75]], &device);
        let found = update(&bank, &x, &Gates::Each(gates)).expect("an update");
        let [zero, two] = [0, 2].map(|k| bank.delta(k).expect("an adapter"));
        let through = |row: usize, delta: Tensor<2>| linear(x.clone().narrow(0, row, 1), delta, None);
        close(found.clone().narrow(0, 0, 1), through(0, zero.clone()));
        close(found.narrow(0, 1, 1), through(1, zero.mul_scalar(0.25) + two.mul_scalar(0.75)));
    }

    #[test]
    fn an_adapter_is_replaced_alone() {
        let device = Device::default();
        let mut bank = bank(&device);
        let (a, b) = (random([3, 4], &device), random([6, 3], &device));
        let other = bank.adapter(0).expect("an adapter");
        bank.set_adapter(2, a.clone(), b.clone());
        let found = bank.adapter(2).expect("an adapter");
        assert_eq!((values(found.0), values(found.1)), (values(a), values(b)));
        let kept = bank.adapter(0).expect("an adapter");
        assert_eq!((values(kept.0), values(kept.1)), (values(other.0), values(other.1)));
        let infos = undertone_store::parameter_infos(&bank.train());
        assert!(infos.iter().all(|p| p.trainable), "and is trained like one that was never replaced");
    }

    #[test]
    fn one_adapter_is_a_gate_of_one() {
        let device = Device::default();
        let bank = bank(&device);
        let x = random([2, 3, 4], &device);
        let gates = Tensor::<2>::from_floats([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], &device);
        let each = update(&bank, &x, &Gates::Each(gates)).expect("an update");
        close(update(&bank, &x, &Gates::One(2)).expect("an update"), each);
        assert!(update(&bank, &x, &Gates::One(1)).is_none(), "an adapter that does not target the map changes nothing");
    }

    #[test]
    fn adapters_of_unlike_dropout_keep_their_own() {
        let device = Device::default().autodiff();
        let configs =
            [0.0, 0.9].map(|lora_dropout| LoraConfig { r: 1, lora_alpha: 1.0, lora_dropout, ..Default::default() });
        let mut bank = LoraBank::init(64, 1, &[(0, &configs[0]), (1, &configs[1])], 2, &device);
        bank.lora_a = Param::from_tensor(Tensor::ones([2, 64], &device));
        bank.lora_b = Param::from_tensor(Tensor::ones([1, 2], &device));
        let x = Tensor::<3>::ones([1, 50, 64], &device);
        let through = |gates: [f32; 2]| {
            let gates = Tensor::<2>::from_floats([gates], &device);
            values(update(&bank, &x, &Gates::Each(gates)).expect("an update"))
        };
        assert!(through([1.0, 0.0]).iter().all(|y| *y == 64.0), "the first adapter drops nothing");
        let second = through([0.0, 1.0]);
        assert!(second.iter().any(|y| *y < 40.0) && second.iter().any(|y| *y > 80.0), "{second:?}");
    }
}
