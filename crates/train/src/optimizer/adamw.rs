//! AdamW.

use super::AdamWConfig;
use super::rule::{Rule, Step};
use burn::tensor::Tensor;
use undertone_ops::{AdamWRule, AdamWStep, Moments, StepControl, adamw};

/// AdamW (Loshchilov and Hutter, 2019): running means of each element's gradient and squared gradient.
pub(super) struct AdamW(AdamWConfig);

impl AdamW {
    pub const PARTS: [&str; 2] = ["m", "v"];

    pub fn new(config: &AdamWConfig) -> Self {
        Self(config.clone())
    }
}

impl Rule for AdamW {
    fn parts(&self) -> &'static [&'static str] {
        &Self::PARTS
    }

    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        vec![shape.iter().product(); 2]
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn steps(&self, steps: Vec<Step>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Vec<Tensor<1>>)> {
        let step = |step: Step| {
            let rule = AdamWRule {
                learning_rate: step.learning_rate,
                beta1: self.0.beta1,
                beta2: self.0.beta2,
                epsilon: self.0.epsilon,
                weight_decay: step.weight_decay,
                step: step.number,
                gradient_scale: step.gradient_scale,
            };
            let mut state = step.state.into_iter();
            let (mean, square) = state.next().zip(state.next()).expect("two parts");
            let moments = Moments { mean, square };
            AdamWStep { rule, parameter: step.parameter, gradient: step.gradient, moments }
        };
        let moved = adamw(steps.into_iter().map(step).collect(), control).into_iter();
        moved.map(|(parameter, Moments { mean, square })| (parameter, vec![mean, square])).collect()
    }
}
