//! Gradients by parameter path.

use crate::TrainError;
use burn::module::{Module, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_ops::{add, read, sum_of_squares};
use undertone_ranks::Ranks;
use undertone_store::{VisitParameter, visit};

/// How many numbers ranks add up at a time: 25 MB.
const BUCKET: usize = 25_000_000 / 4;

/// Summed gradients of an optimizer step, flattened, by parameter path.
#[derive(Debug)]
pub struct GradientSum {
    by_name: BTreeMap<String, Tensor<1>>,
    scale: f64,
}

impl Default for GradientSum {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), scale: 1.0 }
    }
}

impl GradientSum {
    /// Sums of gradients of a loss that was multiplied by `scale`, which is taken out of them again.
    pub fn of_scaled_loss(scale: f64) -> Self {
        Self { scale: scale.recip(), ..Self::default() }
    }

    /// Adds what one backward pass left for the parameters of `model`.
    pub fn add<M: Module>(&mut self, model: &M, gradients: Gradients) {
        let mut collector = Collector { gradients, found: Vec::new() };
        visit(model, &mut collector);
        self.add_found(collector.found);
    }

    /// Adds the gradients of another sum, whatever its scale.
    pub(crate) fn merge(&mut self, other: Self) {
        self.add_found(other.by_name);
    }

    fn add_found(&mut self, found: impl IntoIterator<Item = (String, Tensor<1>)>) {
        let (mut names, mut pairs) = (Vec::new(), Vec::new());
        for (name, gradient) in found {
            match self.by_name.remove(&name) {
                Some(sum) => {
                    names.push(name);
                    pairs.push([sum, gradient]);
                }
                None => drop(self.by_name.insert(name, gradient)),
            }
        }
        self.by_name.extend(names.into_iter().zip(add(pairs)));
    }

    /// How many numbers each gradient has, by name.
    pub(crate) fn sizes(&self) -> BTreeMap<String, usize> {
        self.by_name.iter().map(|(name, gradient)| (name.clone(), gradient.dims()[0])).collect()
    }

    /// Adds up the gradients of all ranks, which together have those of these sizes: a rank without one has zeros. While
    /// a bucket of them is on its way, the next one is filled.
    pub(crate) fn sum_over(
        &mut self,
        ranks: &Ranks,
        sizes: BTreeMap<String, usize>,
        device: &Device,
    ) -> Result<(), TrainError> {
        let mut sums = Vec::new();
        let mut values: Vec<f32> = Vec::new();
        for (name, size) in &sizes {
            match self.by_name.remove(name) {
                Some(gradient) => values.extend(read(gradient)),
                None => values.resize(values.len() + size, 0.0),
            }
            if values.len() >= BUCKET {
                sums.push(ranks.sum(std::mem::take(&mut values))?);
            }
        }
        sums.push(ranks.sum(values)?);
        let mut buckets = sums.into_iter();
        let mut rest = Vec::new().into_iter();
        for (name, size) in sizes {
            if rest.len() == 0 {
                rest = buckets.next().map(|sum| sum.wait()).transpose()?.unwrap_or_default().into_iter();
            }
            let own: Vec<f32> = rest.by_ref().take(size).collect();
            self.by_name.insert(name, Tensor::from_data(TensorData::new(own, [size]), device));
        }
        Ok(())
    }

    /// The names that have a gradient.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Takes the summed gradient of one parameter, `[elements]`, before [`scale`](Self::scale).
    pub fn take(&mut self, name: &str) -> Option<Tensor<1>> {
        self.by_name.remove(name)
    }

    /// What every gradient is still to be multiplied by: the optimizer does it in its own pass over them.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The sum of the squares of all gradients, `[1]`, before [`scale`](Self::scale); nothing where there are none.
    pub fn squares(&self) -> Option<Tensor<1>> {
        sum_of_squares(self.by_name.values().cloned().collect())
    }

    /// The length of all gradients together, and shortens them to `clip_norm` if they are longer and it is above 0.
    ///
    /// A length that is not finite leaves them as they are: the caller decides what that means.
    pub fn clip(&mut self, clip_norm: f64) -> f64 {
        let Some(squares) = self.squares() else { return 0.0 };
        let norm = self.scale * f64::from(read(squares.sqrt())[0]);
        if clip_norm > 0.0 && norm > clip_norm && norm.is_finite() {
            self.scale *= clip_norm / norm;
        }
        norm
    }
}

struct Collector {
    gradients: Gradients,
    found: Vec<(String, Tensor<1>)>,
}

impl VisitParameter for Collector {
    fn visit<const D: usize>(&mut self, path: &str, param: &Param<Tensor<D>>) {
        let Some(gradient) = param.val().grad_remove(&mut self.gradients) else { return };
        let flat = gradient.shape().num_elements();
        self.found.push((path.to_owned(), gradient.reshape([flat])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    fn sum() -> GradientSum {
        let device = Device::default().autodiff();
        let model: Linear = LinearConfig::new(2, 1).init(&device);
        let mut sum = GradientSum::default();
        for scale in [1.0, 2.0] {
            // The gradient of each weight is its input, that of the bias is 1; both scaled.
            let loss = model.forward(Tensor::<2>::from_floats([[2.0, 4.0]], &device)).sum().mul_scalar(scale);
            sum.add(&model, loss.backward());
        }
        sum
    }

    fn values(sum: &mut GradientSum, name: &str) -> Vec<f32> {
        sum.take(name).expect(name).try_into_vec_as().expect("floats")
    }

    #[test]
    fn adds_over_backward_passes() {
        let mut sum = sum();
        assert_eq!(sum.names().collect::<Vec<_>>(), ["bias", "weight"]);
        assert_eq!(values(&mut sum, "weight"), [6.0, 12.0]);
        assert_eq!(values(&mut sum, "bias"), [3.0]);
    }

    #[test]
    fn clips_by_the_norm_of_all() {
        let mut sum = sum();
        let norm = (6.0_f64 * 6.0 + 12.0 * 12.0 + 3.0 * 3.0).sqrt();
        assert!((sum.clip(0.0) - norm).abs() < 1e-4);
        assert!((sum.clip(1.0) - norm).abs() < 1e-4);
        assert!((sum.clip(1.0) - 1.0).abs() < 1e-5);
        let bias = f64::from(values(&mut sum, "bias")[0]) * sum.scale();
        assert!((bias - 3.0 / norm).abs() < 1e-6);
    }
}
