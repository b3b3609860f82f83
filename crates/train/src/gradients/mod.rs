//! Gradients by parameter path.

mod buckets;
mod early;
mod overlap;

pub(crate) use buckets::{BUCKET, ReceivedEarly};
pub(crate) use early::EarlySums;
pub(crate) use overlap::{BackwardMode, OrderRecorder, Overlap, RecordedOrder};

use burn::module::{Module, Param};
use burn::tensor::{Gradients, Tensor};
use std::collections::BTreeMap;
use undertone_ops::{AnyFloat, add, flatten_all, read, sum_of_squares};
use undertone_store::{VisitParameter, visit};

/// Summed gradients of an optimizer step, flattened, by parameter path.
#[derive(Debug)]
pub struct GradientSum {
    by_name: BTreeMap<String, Tensor<1>>,
    /// This rank's part of larger gradients, if the optimizer state is sharded among ranks.
    parts: BTreeMap<String, Tensor<1>>,
    scale: f64,
}

impl Default for GradientSum {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), parts: BTreeMap::new(), scale: 1.0 }
    }
}

impl GradientSum {
    /// Makes an empty sum for gradients of a loss that was multiplied by `scale`, which [`scale`](Self::scale) undoes.
    pub fn of_scaled_loss(scale: f64) -> Self {
        Self { scale: scale.recip(), ..Self::default() }
    }

    /// Adds the gradients of one backward pass for the parameters of `model`.
    pub fn add<M: Module>(&mut self, model: &M, gradients: Gradients) {
        let mut collector = Collector { gradients, found: Vec::new() };
        visit(model, &mut collector);
        let (names, found): (Vec<_>, Vec<_>) = collector.found.into_iter().unzip();
        self.add_found(names.into_iter().zip(flatten_all(found)));
    }

    /// Adds the gradients of another sum, without regard to its scale.
    pub(crate) fn merge(&mut self, other: Self) {
        self.add_found(other.by_name);
    }

    fn add_found(&mut self, found: impl IntoIterator<Item = (String, Tensor<1>)>) {
        merge_by_name(&mut self.by_name, found, |gradient| gradient, add);
    }

    /// Number of elements of each gradient, by name.
    fn sizes(&self) -> BTreeMap<String, usize> {
        self.by_name.iter().map(|(name, gradient)| (name.clone(), gradient.dims()[0])).collect()
    }

    /// Names of the parameters that have a gradient.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().chain(self.parts.keys()).map(String::as_str)
    }

    /// Takes the summed gradient of one parameter, `[elements]`, before [`scale`](Self::scale).
    pub fn take(&mut self, name: &str) -> Option<Tensor<1>> {
        self.by_name.remove(name).or_else(|| self.parts.remove(name))
    }

    /// Factor still to be applied to every gradient. The optimizer applies it in its own pass over them.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Squared gradient norm over all gradients, `[1]`, before [`scale`](Self::scale); `None` without gradients.
    pub fn squared_norm(&self) -> Option<Tensor<1>> {
        sum_of_squares(self.by_name.values().cloned().collect())
    }

    /// Squared gradient norm over the parts that this rank alone has, before [`scale`](Self::scale).
    pub(crate) fn squared_norm_of_parts(&self) -> f64 {
        sum_of_squares(self.parts.values().cloned().collect()).map_or(0.0, |squares| f64::from(read(squares)[0]))
    }

    /// Returns the gradient norm over all gradients, and clips them to `clip_norm` if they exceed it and it is above 0.
    ///
    /// If the norm is not finite, the gradients stay as they are, and the caller decides what to do.
    pub fn clip(&mut self, clip_norm: f64) -> f64 {
        self.clip_beside(0.0, clip_norm)
    }

    /// Like [`clip`](Self::clip), if there are also parts; `squared_norm_of_parts` is their squared norm over all
    /// ranks.
    pub(crate) fn clip_beside(&mut self, squared_norm_of_parts: f64, clip_norm: f64) -> f64 {
        let whole = self.squared_norm().map_or(0.0, |squares| f64::from(read(squares)[0]));
        let norm = self.scale * (whole + squared_norm_of_parts).sqrt();
        if clip_norm > 0.0 && norm > clip_norm && norm.is_finite() {
            self.scale *= clip_norm / norm;
        }
        norm
    }
}

/// Merges vectors by name into `all`, which gets `fresh` of those with a new name. `combine` takes all other pairs at once, of
/// the vector that is there and the one that was found.
pub(crate) fn merge_by_name(
    all: &mut BTreeMap<String, Tensor<1>>,
    found: impl IntoIterator<Item = (String, Tensor<1>)>,
    fresh: impl Fn(Tensor<1>) -> Tensor<1>,
    combine: impl FnOnce(Vec<[Tensor<1>; 2]>) -> Vec<Tensor<1>>,
) {
    let (mut names, mut pairs) = (Vec::new(), Vec::new());
    for (name, value) in found {
        match all.remove(&name) {
            Some(known) => {
                names.push(name);
                pairs.push([known, value]);
            }
            None => drop(all.insert(name, fresh(value))),
        }
    }
    all.extend(names.into_iter().zip(combine(pairs)));
}

/// Returns the parameters of a model that are trained, with their names.
pub(crate) fn trained<M: Module>(model: &M) -> Vec<(String, AnyFloat)> {
    let mut parameters = Parameters(Vec::new());
    visit(model, &mut parameters);
    parameters.0
}

struct Parameters(Vec<(String, AnyFloat)>);

impl VisitParameter for Parameters {
    fn visit<const D: usize>(&mut self, path: &str, param: &Param<Tensor<D>>) {
        let parameter = param.val();
        if parameter.is_require_grad() {
            self.0.push((path.to_owned(), parameter.into()));
        }
    }
}

struct Collector {
    gradients: Gradients,
    found: Vec<(String, AnyFloat)>,
}

impl VisitParameter for Collector {
    fn visit<const D: usize>(&mut self, path: &str, param: &Param<Tensor<D>>) {
        let Some(gradient) = param.val().grad_remove(&mut self.gradients) else { return };
        self.found.push((path.to_owned(), gradient.into()));
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
