//! Interface of update rules.

use burn::tensor::Tensor;
use serde::de::DeserializeOwned;
use undertone_ops::StepControl;

/// Update rule of one parameter. A type that implements it, and one call of [`register`](super::registry::register), add
/// an optimizer that YAML can name. The Learner does the rest: accumulation, clipping, the schedule, groups, guards, and
/// saving and restoring state.
///
/// The type is read from the keys beside `name` in `train.optimizer` that not all optimizers have. Derive `Deserialize`
/// with `#[serde(default, deny_unknown_fields)]`, so that a key that it does not have is refused.
pub trait UpdateRule: DeserializeOwned + Send + Sync + Sized + 'static {
    /// Name in configurations.
    const NAME: &'static str;
    /// Names of the state tensors in checkpoints.
    const STATE: &'static [&'static str];
    /// Whether the update of an element depends on no other element. The state can then be sharded among ranks with
    /// `train.shard_optimizer`, and the rule receives parts of parameters as vectors.
    const IS_ELEMENTWISE: bool = false;

    /// Checks its keys.
    ///
    /// # Errors
    /// A sentence on the invalid value, which may begin with the key: "`beta1`: it must be below 1".
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Number of elements of each state tensor for a parameter of this shape. They begin at zero.
    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        vec![shape.iter().product(); Self::STATE.len()]
    }

    /// Returns the parameter after the step, `[elements]`, and its state.
    fn step(&self, update: Update) -> Stepped;

    /// Names of the state tensors with these settings; by default [`STATE`](Self::STATE).
    fn state(&self) -> &'static [&'static str] {
        Self::STATE
    }

    /// Returns every parameter after the step, and its state: by default a [`step`](Self::step) of each. A rule whose
    /// kernels step many parameters at once overrides it. Gradients are still to be multiplied by the factor of
    /// `control`, or by `gradient_scale` where there is no control. If the control prevents the update, parameters and
    /// state are unchanged.
    fn steps(&self, updates: Vec<Update>, gradient_scale: f64, control: Option<&StepControl>) -> Vec<Stepped> {
        let step = |mut update: Update| match control {
            Some(control) => under_control(control, update, |update| self.step(update)),
            None => {
                update.gradient = update.gradient.mul_scalar(gradient_scale);
                self.step(update)
            }
        };
        updates.into_iter().map(step).collect()
    }
}

/// Takes a step with the gradient multiplied by the control's factor. If the control prevents the update, parameter and
/// state are unchanged.
pub(super) fn under_control(
    control: &StepControl,
    mut update: Update,
    step: impl FnOnce(Update) -> Stepped,
) -> Stepped {
    update.gradient = update.gradient * control.factor();
    let (old, old_state) = (update.parameter.clone(), update.state.clone());
    let (new, new_state) = step(update);
    let state = old_state.into_iter().zip(new_state).map(|(old, new)| control.choose(old, new));
    (control.choose(old, new), state.collect())
}

/// Inputs of a parameter's step. Tensors are f32 and without autodiff.
#[derive(Clone, Debug)]
pub struct Update {
    /// Shape of the parameter.
    pub shape: Vec<usize>,
    /// Learning rate: the schedule's, times the factor of the parameter's group.
    pub learning_rate: f64,
    /// Weight decay of the group or the configuration; 0 for biases and norms.
    pub weight_decay: f64,
    /// Number of the step of this parameter, from 1.
    pub number: u64,
    /// Parameter, `[elements]`.
    pub parameter: Tensor<1>,
    /// Gradient, `[elements]`, accumulated and clipped.
    pub gradient: Tensor<1>,
    /// State tensors in the order of [`UpdateRule::STATE`].
    pub state: Vec<Tensor<1>>,
}

/// A parameter after a step, `[elements]`, and its state.
pub type Stepped = (Tensor<1>, Vec<Tensor<1>>);

/// A rule that was made from its keys, or the reason why it refuses them.
pub(super) type Made = Result<Box<dyn DynRule>, String>;

/// An [`UpdateRule`] of any type.
pub(super) trait DynRule: Send + Sync {
    fn state(&self) -> &'static [&'static str];
    fn lengths(&self, shape: &[usize]) -> Vec<usize>;
    fn is_elementwise(&self) -> bool;
    fn steps(&self, updates: Vec<Update>, gradient_scale: f64, control: Option<&StepControl>) -> Vec<Stepped>;
}

impl<R: UpdateRule> DynRule for R {
    fn state(&self) -> &'static [&'static str] {
        UpdateRule::state(self)
    }

    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        UpdateRule::lengths(self, shape)
    }

    fn is_elementwise(&self) -> bool {
        R::IS_ELEMENTWISE
    }

    fn steps(&self, updates: Vec<Update>, gradient_scale: f64, control: Option<&StepControl>) -> Vec<Stepped> {
        UpdateRule::steps(self, updates, gradient_scale, control)
    }
}
