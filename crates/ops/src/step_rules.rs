//! Conditions under which a training step is taken, and gradient clipping.

/// Loss scale, clipping and loss limit of a training step.
#[derive(Clone, Copy, Debug)]
pub struct StepRules {
    /// Factor applied to gradients first.
    pub gradient_scale: f64,
    /// Maximum gradient norm; 0 disables clipping.
    pub clip_norm: f64,
    /// Maximum loss: a step whose loss is above it is skipped.
    pub highest_loss: f64,
}
