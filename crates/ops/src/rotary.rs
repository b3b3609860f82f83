//! Rotary positions (Su et al., 2021).

use crate::graph::differentiated;
use crate::host;
use burn::tensor::{Device, Tensor, TensorData};

/// Angles of rotary positions. Queries and keys that are turned by them meet in products that depend on the distance of
/// their positions alone, so the attention itself is the usual one.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// `[1, time, 1, 1, d_head / 2]`.
    cos: Tensor<5>,
    sin: Tensor<5>,
}

impl Rotary {
    /// Returns the angles of positions `0..time` for heads of width `d_head`: pair `i` turns by `10000^(-2 i / d_head)`
    /// from one position to the next.
    ///
    /// # Panics
    /// If `d_head` is odd.
    pub fn init(time: usize, d_head: usize, device: &Device) -> Self {
        assert!(d_head.is_multiple_of(2), "a head of width {d_head} has no pairs");
        let (half, device) = (d_head / 2, device.clone().inner());
        let angle = |i: usize| (i / half) as f64 * 10_000_f64.powf(-2.0 * (i % half) as f64 / d_head as f64);
        let table = |of: fn(f64) -> f64| {
            let values: Vec<f32> = (0..time * half).map(|i| of(angle(i)) as f32).collect();
            Tensor::from_data(TensorData::new(values, [1, time, 1, 1, half]), &device)
        };
        Self { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// Turns queries or keys: `[batch, time, heads · d_head]` → the same shape. Element `i` of a head's first half and
    /// element `i` of its second are a pair, as in Hugging Face's models. Nothing is kept for the backward pass, which
    /// turns the gradient back.
    pub fn turn(&self, x: Tensor<3>) -> Tensor<3> {
        let (dtype, back) = (x.dtype(), Self { cos: self.cos.clone(), sin: self.sin.clone().neg() });
        let y = differentiated(host::f32(x), |x| (self.turned(x), move |dy| back.turned(dy)));
        host::restored(y, dtype)
    }

    fn turned(&self, x: Tensor<3>) -> Tensor<3> {
        let ([batch, time, width], half) = (x.dims(), self.cos.dims()[4]);
        let pairs = x.reshape([batch, time, width / (2 * half), 2, half]);
        let [first, second] = [0, 1].map(|part| pairs.clone().narrow(3, part, 1));
        let (cos, sin) = (self.cos.clone(), self.sin.clone());
        let turned = [first.clone() * cos.clone() - second.clone() * sin.clone(), second * cos + first * sin];
        Tensor::cat(turned.into(), 3).reshape([batch, time, width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, device, values};

    #[test]
    fn pairs_turn_by_their_position() {
        let x = Tensor::<3>::from_floats([[[1.0, 0.0, 0.0, 1.0]; 3]], &device());
        let turned = values(Rotary::init(3, 4, &device()).turn(x.clone()));
        let (one, hundredth) = (2.0_f32, 0.02_f32);
        assert_eq!(turned[..4], [1.0, 0.0, 0.0, 1.0]);
        let expected = [one.cos(), -hundredth.sin(), one.sin(), hundredth.cos()];
        assert!(turned[8..].iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{turned:?}");
    }

    #[test]
    fn products_depend_on_distances_alone() {
        let [query, key] = [(); 2].map(|()| Inputs::default());
        let row = |inputs: &Inputs| inputs.tensor::<3>([1, 1, 8]).inner().expand([1, 20, 8]);
        let rotary = Rotary::init(20, 8, &device());
        let scores = rotary.turn(row(&query)).matmul(rotary.turn(row(&key)).swap_dims(1, 2));
        let moved = scores.clone().slice([0..1, 7..20, 7..20]);
        assert_close(scores.slice([0..1, 0..13, 0..13]), &values(moved), 1e-5);
    }

    #[test]
    fn gradients_are_those_that_burn_derives() {
        let rotary = Rotary::init(9, 6, &device());
        let tracked = Rotary { cos: rotary.cos.clone().autodiff(), sin: rotary.sin.clone().autodiff() };
        for half in [false, true] {
            let x = Inputs::default().half(half).tensor([2, 9, 12]);
            let derived = |[x]: [Tensor<3>; 1]| {
                let (dtype, of) = (x.dtype(), if x.device().is_autodiff() { &tracked } else { &rotary });
                host::restored(of.turned(host::f32(x)), dtype)
            };
            compare([x], |[x]| rotary.turn(x), derived);
        }
    }
}
