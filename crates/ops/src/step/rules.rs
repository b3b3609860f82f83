//! When a training step is taken, and how far.

/// What decides in a step.
#[derive(Clone, Copy, Debug)]
pub struct StepRules {
    /// What gradients are multiplied by first.
    pub gradient_scale: f64,
    /// The length that longer gradients are shortened to; 0 for none.
    pub clip_norm: f64,
    /// No step is taken whose loss is above this.
    pub highest_loss: f64,
}
