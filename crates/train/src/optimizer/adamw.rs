//! AdamW.

use super::{OptimizerConfig, Rule, Step};
use burn::tensor::Tensor;
use undertone_ops::{AdamWRule, Moments};

/// AdamW (Loshchilov and Hutter, 2019): of every element the running means of its gradient and of the square.
pub(super) struct AdamW {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
}

impl AdamW {
    pub const PARTS: [&str; 2] = ["m", "v"];

    pub fn new(config: &OptimizerConfig) -> Self {
        Self { beta1: config.beta1, beta2: config.beta2, epsilon: config.epsilon }
    }
}

impl Rule for AdamW {
    fn parts(&self) -> &'static [&'static str] {
        &Self::PARTS
    }

    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        vec![shape.iter().product(); 2]
    }

    fn step(
        &self,
        step: &Step<'_>,
        parameter: Tensor<1>,
        gradient: Tensor<1>,
        state: Vec<Tensor<1>>,
    ) -> (Tensor<1>, Vec<Tensor<1>>) {
        let rule = AdamWRule {
            learning_rate: step.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: step.weight_decay,
            step: step.number,
            gradient_scale: step.gradient_scale,
        };
        let mut state = state.into_iter();
        let (mean, square) = state.next().zip(state.next()).expect("two parts");
        let (parameter, Moments { mean, square }) = rule.apply(parameter, gradient, Moments { mean, square });
        (parameter, vec![mean, square])
    }
}
