//! Interface of update rules.

use burn::tensor::Tensor;
use undertone_ops::StepControl;

/// Update rule of one parameter. It has no state of its own.
pub(super) trait Rule: Send + Sync {
    /// Names of the state tensors of a parameter.
    fn parts(&self) -> &'static [&'static str];

    /// Number of elements of each state tensor for a parameter of this shape. They begin at zero.
    fn lengths(&self, shape: &[usize]) -> Vec<usize>;

    /// Whether the update of an element depends on no other element.
    fn is_elementwise(&self) -> bool;

    /// Returns each parameter, `[elements]`, and its state after the step. Both are unchanged if `control` prevents the
    /// update.
    fn steps(&self, steps: Vec<Step>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Vec<Tensor<1>>)>;
}

/// Inputs of one parameter's step.
pub(super) struct Step {
    pub shape: Vec<usize>,
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// Factor still to be applied to the gradient, where there is no control.
    pub gradient_scale: f64,
    /// Number of the step, from 1.
    pub number: u64,
    /// `[elements]`.
    pub parameter: Tensor<1>,
    pub gradient: Tensor<1>,
    pub state: Vec<Tensor<1>>,
}
