//! LibTorch's own kernels, forward and backward, where Burn's operations would make several passes over memory.
//!
//! Burn has no backend for LibTorch after 0.22. All code that uses more of it than its name is in this file.
//!
//! LibTorch has its own autograd graph. [`derived`] has LibTorch record one operation and keeps that record between the
//! passes, as one step of Burn's graph. In the backward pass it asks LibTorch for the gradients.

use crate::graph::{AnyFloat, differentiated, erased, primitive, recorded};
use burn::backend::libtorch::TchTensor;
use burn::backend::{BackendTensor, DispatchDevice, DispatchKindConversion, DispatchTensor, LibTorch, LibTorchDevice};
use burn::tensor::{Bool, Device, DeviceType, Int, Tensor};
use tch::{Kind, Tensor as Torch};
use undertone_kernels::adamw::AdamW;

/// Returns the CPU.
pub(crate) fn cpu() -> Device {
    Device::libtorch()
}

/// Returns a CUDA device, or the number of devices if there is none of that index.
pub(crate) fn cuda(index: usize) -> Result<Device, usize> {
    let found = cuda_devices();
    if index < found { Ok(Device::libtorch_cuda(index)) } else { Err(found) }
}

/// Number of CUDA devices that LibTorch finds.
pub(crate) fn cuda_devices() -> usize {
    Device::enumerate(DeviceType::LibTorch).into_vec().iter().filter(|device| **device != cpu()).count()
}

/// Index of a CUDA device of LibTorch.
pub(crate) fn cuda_index(device: &Device) -> Option<usize> {
    match device.as_dispatch() {
        DispatchDevice::LibTorch(LibTorchDevice::Cuda(index)) => Some(*index),
        _ => None,
    }
}

/// Returns `softmax(q kᵀ / √d_head) v` per head, `[batch, queries, heads · d_head]`, by the fastest kernel that
/// LibTorch has for these tensors. `padding`, `[batch, keys]`, is true for padded keys; `causal` is as in
/// [`AttentionOptions`](crate::AttentionOptions).
pub(crate) fn attention(
    qkv: [Tensor<3>; 3],
    heads: usize,
    causal: bool,
    padding: Option<Tensor<2, Bool>>,
) -> Tensor<3> {
    let ([_, queries, _], keys, heads) = (qkv[0].dims(), qkv[1].dims()[1], heads as i64);
    let causal = causal && queries > 1;
    let padding = padding.map(|padding| discrete(padding.inner().into_dispatch()));
    // LibTorch handles this case without a mask.
    let square = causal && queries == keys && padding.is_none();
    let mask = if square { None } else { seen([queries, keys], causal, padding, &qkv[0]) };
    let inputs = qkv.map(AnyFloat::from);
    let [query, key] = [0, 1].map(|i| split(&torch(inputs[i].clone()).tensor, heads));
    let broken = broken_scores(&query, &key);
    let mixed = derived(inputs, |qkv| {
        let [query, key, value] = qkv.each_ref().map(|x| split(x, heads));
        merged(&Torch::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, square, None, false))
    });
    match broken {
        None => mixed,
        Some(broken) if mixed.device().is_autodiff() => mixed + Tensor::from_inner(burns(broken)),
        Some(broken) => mixed + burns(broken),
    }
}

/// Attention mask, true where a query sees a key, in its smallest shape, which LibTorch broadcasts; `None` if each
/// query sees all keys.
fn seen([queries, keys]: [usize; 2], causal: bool, padding: Option<Torch>, x: &Tensor<3>) -> Option<Torch> {
    let earlier = causal.then(|| {
        let device = torch(x.clone().into()).tensor.device();
        Torch::ones([queries as i64, keys as i64], (Kind::Bool, device)).tril(keys as i64 - queries as i64)
    });
    let real = padding.map(|padding| padding.logical_not().unsqueeze(1).unsqueeze(1));
    match (earlier, real) {
        (Some(earlier), Some(real)) => Some(earlier.logical_and(&real)),
        (one, other) => one.or(other),
    }
}

/// Returns a tensor in the shape of [`merged`] queries: NaN where a query has no finite scores because it or a key is
/// not finite, else 0; `None` if all scores are finite. For such a query LibTorch's CPU kernel returns 0, as if it saw
/// no key, which would hide that a model has diverged.
fn broken_scores(query: &Torch, key: &Torch) -> Option<Torch> {
    if query.device() != tch::Device::Cpu {
        return None;
    }
    let sum = |x: &Torch, axes: &[i64]| x.sum_dim_intlist(axes, true, Kind::Float);
    let broken = (sum(query, &[3]) * 0.0).masked_fill(&sum(key, &[2, 3]).isnan(), f64::NAN);
    let any = bool::try_from(broken.isnan().any()).expect("one truth");
    any.then(|| merged(&broken.expand_as(query)).to_kind(query.kind()))
}

/// `[batch, heads, time, d_head]` of `[batch, time, heads · d_head]`.
fn split(x: &Torch, heads: i64) -> Torch {
    x.unflatten(2, [heads, -1]).transpose(1, 2)
}

/// `[batch, time, heads · d_head]` of `[batch, heads, time, d_head]`.
fn merged(x: &Torch) -> Torch {
    x.transpose(1, 2).flatten(2, 3)
}

/// Layer norm over the last axis of an f32 tensor, with scale and shift.
pub(crate) fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let width = weight.dims()[0] as i64;
    let inputs = [x.into(), weight.into(), bias.into()];
    derived(inputs, |[x, weight, bias]| x.layer_norm([width], Some(weight), Some(bias), epsilon, true))
}

/// The exact GELU.
pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    differentiated(x, |x| {
        let x = torch(x.into());
        let y = x.tensor.gelu("none");
        let backward = move |dy: Tensor<D>| {
            // A closure captures only the fields that it names; without `storage` Burn would overwrite this memory.
            let kept: TchTensor = x;
            burns(kept.tensor.gelu_backward(&torch(dy.into()).tensor, "none"))
        };
        (burns(y), backward)
    })
}

/// `x · weightᵀ + bias`, without autodiff.
pub(crate) fn affine(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    let [x, weight, bias] = [x.into(), weight.into(), bias.into()].map(torch);
    burns(x.tensor.linear(&weight.tensor, Some(bias.tensor)))
}

/// Cross-entropy of each row of f32 logits, `[rows]`, and gradient of the logits for the sum of all rows, `[rows,
/// classes]`; both are 0 where the target is `ignored`. Without autodiff.
pub(crate) fn row_losses(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    ignored: i64,
    smoothing: f64,
) -> (Tensor<1>, Tensor<2>) {
    let classes = logits.dims()[1] as f64;
    let targets = discrete(targets.into_dispatch());
    let ignored = targets.eq(ignored);
    let at = targets.masked_fill(&ignored, 0).unsqueeze(1);
    let mut log_p = torch(logits.into()).tensor.log_softmax(1, None);
    let mut losses = log_p.gather(1, &at, false).squeeze_dim(1) * (smoothing - 1.0);
    if smoothing > 0.0 {
        losses -= log_p.mean_dim(1, false, None) * smoothing;
    }
    let mut gradient = log_p.exp_();
    if smoothing > 0.0 {
        gradient -= smoothing / classes;
    }
    let of_target = at.ones_like().to_kind(gradient.kind()) * (smoothing - 1.0);
    let gradient = gradient.scatter_add_(1, &at, &of_target).masked_fill_(&ignored.unsqueeze(1), 0.0);
    (burns(losses.masked_fill_(&ignored, 0.0)), burns(gradient))
}

/// AdamW step, with the values that all updated parameters share.
///
/// tch 0.22 has no steps of many tensors at once (`_foreach`) and no fused one.
pub(crate) struct AdamWStep {
    pub rule: AdamW,
    /// Factor of the gradients, `[1]`, and whether the step is skipped; `None` if the step is always taken.
    control: Option<[Torch; 2]>,
    /// Shares of the gradient and of its square in their running means.
    of_mean: Torch,
    of_square: Torch,
    /// Share of the parameter that remains after weight decay.
    kept: Torch,
    /// Epsilon of the denominator, multiplied by [`below`].
    epsilon: Torch,
}

impl AdamWStep {
    /// With `control`, gradients are multiplied by its first tensor, `[1]`, instead of by the rule's scale, and nothing
    /// is updated if its second tensor, `[1]`, is false.
    pub fn new(rule: AdamW, device: &Device, control: Option<(Tensor<1>, Tensor<1, Bool>)>) -> Self {
        let control =
            control.map(|(factor, taken)| [torch(factor.into()).tensor, discrete(taken.into_dispatch()).logical_not()]);
        let options = (Kind::Float, torch(Tensor::<1>::zeros([1], device).into()).tensor.device());
        // Returns `number`, or `other` if the step is skipped.
        let unless = |number: f64, other: f64| match &control {
            None => Torch::full([1], number, options),
            Some([_, not_taken]) => Torch::full([1], number, options).masked_fill(not_taken, other),
        };
        let decayed = f64::from(rule.learning_rate) * f64::from(rule.weight_decay);
        Self {
            rule,
            of_mean: unless(1.0 - f64::from(rule.beta1), 0.0),
            of_square: unless(1.0 - f64::from(rule.beta2), 0.0),
            kept: unless(1.0 - decayed, 1.0),
            epsilon: unless(below(&rule) * f64::from(rule.epsilon), f64::INFINITY),
            control,
        }
    }

    /// Takes a parameter, the mean of its gradient, the mean of its squared gradient, and the gradient. Returns the
    /// first three after the step. All are `[elements]`, f32 and without autodiff, and are updated in place when
    /// nothing else holds them.
    pub fn apply(&self, tensors: [Tensor<1>; 4]) -> [Tensor<1>; 3] {
        let [mut parameter, mut gradient, mut mean, mut square] = tensors.map(|x| owned(torch(x.into())));
        let rule = &self.rule;
        if let Some([factor, not_taken]) = &self.control {
            gradient *= factor;
            gradient = gradient.masked_fill_(not_taken, 0.0);
        } else if rule.gradient_scale != 1.0 {
            gradient *= f64::from(rule.gradient_scale);
        }
        mean = mean.lerp_tensor_(&gradient, &self.of_mean);
        square = square.lerp_tensor_(&gradient.square_(), &self.of_square);
        if rule.learning_rate > 0.0 {
            if rule.weight_decay > 0.0 {
                parameter *= &self.kept;
            }
            let mut root = square.sqrt();
            root *= below(rule) / correction(rule.beta2, rule).sqrt();
            root += &self.epsilon;
            parameter = parameter.addcdiv_(&mean, &root);
        }
        [parameter, mean, square].map(burns)
    }
}

/// The update -rate · (mean / c₁) / (√(square / c₂) + ε) is written as a quotient of the mean. Returns the factor of
/// its denominator √(square / c₂) + ε.
fn below(rule: &AdamW) -> f64 {
    -correction(rule.beta1, rule) / f64::from(rule.learning_rate)
}

/// Bias correction of a mean that started at 0.
fn correction(beta: f32, rule: &AdamW) -> f64 {
    1.0 - f64::from(beta).powf(rule.step as f64)
}

/// Returns `forward` of LibTorch tensors as one step of Burn's graph. LibTorch records it and computes its gradients.
fn derived<const N: usize, const Y: usize>(
    inputs: [AnyFloat; N],
    forward: impl FnOnce(&[Torch; N]) -> Torch,
) -> Tensor<Y> {
    let wanted = inputs.each_ref().map(AnyFloat::is_tracked);
    let held = inputs.clone().map(torch);
    let leaf = |i: usize| held[i].tensor.detach().set_requires_grad(wanted[i]);
    let leaves: [Torch; N] = std::array::from_fn(leaf);
    let y = forward(&leaves);
    let out = TchTensor::new(y.detach());
    let kept = out.clone();
    let backward = move |dy| {
        // LibTorch starts a backward pass with ones: the gradient of `y · dy` with respect to `y` is `dy`.
        let root = y.flatten(0, -1).dot(&primitive::<LibTorch>(dy).tensor.flatten(0, -1));
        let leaves: Vec<&Torch> = leaves.iter().filter(|leaf| leaf.requires_grad()).collect();
        let mut found = Torch::run_backward(&[root], &leaves, false, false).into_iter();
        // Burn may overwrite memory that none of its own tensors holds.
        drop((held, kept));
        wanted.map(|wanted| if wanted { Some(erased::<LibTorch>(TchTensor::new(found.next()?))) } else { None }).into()
    };
    recorded(Tensor::from_dispatch(erased::<LibTorch>(out)), inputs, backward)
}

/// Returns a tensor without Burn's autodiff.
fn torch(x: AnyFloat) -> TchTensor {
    primitive::<LibTorch>(x.plain().0)
}

/// Returns a boolean or integer tensor.
fn discrete(x: DispatchTensor) -> Torch {
    match <DispatchTensor as DispatchKindConversion<LibTorch>>::try_into_backend(x) {
        Ok(BackendTensor::Bool(x) | BackendTensor::Int(x)) => x.tensor,
        _ => unreachable!("tensors of an operation are on one backend, and these have no fractions"),
    }
}

/// Returns a tensor whose memory nothing else holds, to be written to.
fn owned(x: TchTensor) -> Torch {
    if x.can_mut() { x.tensor } else { x.tensor.copy() }
}

/// Wraps memory that nothing else holds as a tensor of Burn.
fn burns<const D: usize>(x: Torch) -> Tensor<D> {
    Tensor::from_dispatch(erased::<LibTorch>(TchTensor::new(x)))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Inputs, compare};
    use crate::{AttentionOptions, attention, gelu, layer_norm};
    use burn::tensor::Tensor;

    /// Burn adds in place if it holds the only tensor of some memory. Memory that LibTorch's graph keeps must not be
    /// overwritten.
    #[test]
    #[ignore = "needs LibTorch: cargo xtask test --device tch"]
    fn what_the_backward_pass_reads_is_not_written_to_before_it() {
        let inputs = Inputs::default();
        let x = inputs.tensor([2, 5, 8]);
        let (weight, bias) = (Tensor::ones([8], &x.device()), Tensor::zeros([8], &x.device()));
        let operations: [&dyn Fn(Tensor<3>) -> Tensor<3>; 3] =
            [&gelu, &|x| layer_norm(x, weight.clone(), bias.clone(), 1e-5), &|x: Tensor<3>| {
                attention(x.clone(), x.clone(), x, AttentionOptions::new(2))
            }];
        for operation in operations {
            let kept_alone = |[x]: [Tensor<3>; 1]| {
                let inner = x.mul_scalar(2.0);
                let y = operation(inner.clone()).add_scalar(1.0);
                inner.add_scalar(100.0).add(y.mul_scalar(3.0))
            };
            // The same, with everything held until the end.
            let held = std::cell::RefCell::new(Vec::new());
            let hold = |x: Tensor<3>| {
                held.borrow_mut().push(x.clone());
                x
            };
            let kept_by_others = |[x]: [Tensor<3>; 1]| {
                let inner = hold(x.mul_scalar(2.0));
                let y = hold(hold(operation(inner.clone())).add_scalar(1.0));
                hold(inner.add_scalar(100.0)).add(hold(y.mul_scalar(3.0)))
            };
            compare([x.clone()], kept_alone, kept_by_others);
        }
    }
}
