//! What every optimizer does with one parameter.

use burn::tensor::Tensor;
use undertone_ops::StepControl;

/// How one parameter moves. It keeps nothing itself.
pub(super) trait Rule: Send + Sync {
    /// What the tensors of a parameter's state are called.
    fn parts(&self) -> &'static [&'static str];

    /// How many elements each of them has for a parameter of this shape; they begin at zero.
    fn lengths(&self, shape: &[usize]) -> Vec<usize>;

    /// Whether it does with every number the same, whatever its neighbours are.
    fn is_elementwise(&self) -> bool;

    /// Each parameter, `[elements]`, and its state after its step; as they were where `control` says so.
    fn steps(&self, steps: Vec<Step>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Vec<Tensor<1>>)>;
}

/// One parameter in one step.
pub(super) struct Step {
    pub shape: Vec<usize>,
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// What the gradient is still to be multiplied by, where no control says it.
    pub gradient_scale: f64,
    /// From 1.
    pub number: u64,
    /// `[elements]`.
    pub parameter: Tensor<1>,
    pub gradient: Tensor<1>,
    pub state: Vec<Tensor<1>>,
}
