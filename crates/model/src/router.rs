//! Router: selects the adapters for an input.
//!
//! It reads the mean-pooled states at a layer below the adapters (the tap), so that one pass through the backbone is
//! enough.

use crate::config_error::{ConfigError, invalid};
use crate::layers::{LayerNorm, Linear};
use crate::limits::{MOST_ROUTER_LAYERS, WIDEST_ROUTER};
use burn::module::{Module, Param};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::{Bool, Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use undertone_ops::{dropout, gelu};
use undertone_registry::choice;

/// Perceptron from pooled states to a logit for each adapter, and to one for its own confidence.
#[derive(Module, Debug)]
pub struct Router {
    /// Hidden layers.
    pub layers: Vec<RouterLayer>,
    /// Map from the last hidden layer to one logit per adapter.
    pub gate: Linear,
    /// Map from the last hidden layer to the logit that the choice is right.
    pub confidence: Linear,
    /// Logarithm of the gate's temperature above its floor, `[1]`.
    pub log_temperature: Param<Tensor<1>>,
    #[module(skip)]
    config: RouterConfig,
}

/// Hidden layer: linear map, norm, activation, dropout.
#[derive(Module, Debug)]
pub struct RouterLayer {
    /// Linear map.
    pub linear: Linear,
    /// Norm after the map, if the router has norms.
    pub norm: Option<LayerNorm>,
}

/// Configuration of the router, the `router` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouterConfig {
    /// Number of encoder blocks below the tap, where the router reads; adapters lie above. 0 is the output of the front
    /// end.
    pub tap: usize,
    /// Widths of the hidden layers; an empty list makes a linear router.
    pub hidden: Vec<usize>,
    /// Activation between the layers.
    pub activation: Activation,
    /// Whether each hidden layer is normalised.
    pub layer_norm: bool,
    /// Dropout on hidden units, in training.
    pub dropout: f64,
    /// Initial temperature, by which the logits are divided.
    pub temperature: f64,
    /// Whether the temperature is learned.
    pub learn_temperature: bool,
    /// Lower bound of the temperature.
    pub temperature_floor: f64,
    /// Gates at inference, computed from the probabilities.
    pub gates: GateKind,
    /// Confidence below which an input uses all adapters with equal gates; 0 trusts every choice.
    pub confidence_threshold: f64,
    /// Share of the tasks' own inputs that may be taken for inputs of none of the tasks, as `predict` then says; 0 takes every
    /// input for one of a task.
    pub reject: f64,
    /// Weight of how a text is written beside what the backbone makes of it: of naive Bayes over its words and their pieces, as the
    /// training texts of each task have them. It helps with texts of another style than those; 2 is a good value, 0 leaves it out.
    pub words: f64,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            tap: 1,
            hidden: vec![128],
            activation: Activation::Gelu,
            layer_norm: true,
            dropout: 0.1,
            temperature: 1.0,
            learn_temperature: true,
            temperature_floor: 0.1,
            gates: GateKind::Hard,
            confidence_threshold: 0.0,
            reject: 0.0,
            words: 0.0,
        }
    }
}

/// Activation between the router's layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x Φ(x).
    #[default]
    Gelu,
    /// Hyperbolic tangent.
    Tanh,
}

/// Computation of gates from probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
#[schemars(rename = "GateKind", deny_unknown_fields, transform = choice::by_name)]
pub enum GateKind {
    /// The probabilities themselves.
    Soft,
    /// 1 for the most probable adapter, 0 for the others.
    #[default]
    Hard,
    /// The probabilities of the `k` most probable adapters, scaled to sum to 1.
    TopK {
        /// Number of adapters that are kept.
        #[serde(default = "two")]
        k: usize,
    },
    /// A sample of the distribution, as 1 for one adapter, with the gradient of the relaxed sample (Jang et al., 2017).
    /// For training; without gradients it is `hard`.
    Gumbel,
}

choice!(GateKind, "type");

/// Default of `k` of [`GateKind::TopK`].
pub const fn two() -> usize {
    2
}

impl GateKind {
    /// Whether the kind keeps at least one adapter.
    pub fn is_valid(self) -> bool {
        self != Self::TopK { k: 0 }
    }
}

/// Output of the router for a batch.
#[derive(Clone, Debug)]
pub struct Routing {
    /// Logits over the adapters, divided by the temperature, `[batch, adapters]`.
    pub logits: Tensor<2>,
    /// Logit that the most probable adapter is the right one, `[batch]`.
    pub confidence: Tensor<1>,
}

impl RouterConfig {
    /// Creates a router for states of width `d_model` over `adapters` adapters.
    pub fn init(&self, d_model: usize, adapters: usize, device: &Device) -> Router {
        let mut width = d_model;
        let mut layers = Vec::with_capacity(self.hidden.len());
        for hidden in &self.hidden {
            layers.push(RouterLayer {
                linear: linear(width, *hidden, device),
                norm: self.layer_norm.then(|| LayerNorm::init(*hidden, device)),
            });
            width = *hidden;
        }
        let log_temperature = Tensor::from_floats([(self.temperature - self.temperature_floor).ln() as f32], device);
        Router {
            layers,
            gate: linear(width, adapters, device),
            confidence: linear(width, 1, device),
            log_temperature: Param::from_tensor(log_temperature).set_require_grad(self.learn_temperature),
            config: self.clone(),
        }
    }

    /// Checks every value that can be checked without a model.
    ///
    /// # Errors
    /// Names the key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let error = |key, value: &dyn std::fmt::Debug, rule: &str| {
            Err(invalid(key, format!("{value:?}"), &format!("it must be {rule}")))
        };
        if self.hidden.contains(&0) {
            return error("hidden", &self.hidden, "widths of at least 1");
        }
        if self.hidden.len() > MOST_ROUTER_LAYERS || self.hidden.iter().any(|width| *width > WIDEST_ROUTER) {
            let rule = format!("at most {MOST_ROUTER_LAYERS} widths of at most {WIDEST_ROUTER}");
            return error("hidden", &self.hidden, &rule);
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return error("dropout", &self.dropout, "at least 0 and below 1");
        }
        if !(self.temperature_floor > 0.0 && self.temperature_floor.is_finite()) {
            return error("temperature_floor", &self.temperature_floor, "above 0");
        }
        if !(self.temperature > self.temperature_floor && self.temperature.is_finite()) {
            return error("temperature", &self.temperature, "above `temperature_floor`");
        }
        if !self.gates.is_valid() {
            return error("gates.k", &0, "at least 1");
        }
        if !(0.0..=1.0).contains(&self.confidence_threshold) {
            return error("confidence_threshold", &self.confidence_threshold, "between 0 and 1");
        }
        if !(0.0..1.0).contains(&self.reject) {
            return error("reject", &self.reject, "at least 0 and below 1");
        }
        if !(self.words >= 0.0 && self.words.is_finite()) {
            return error("words", &self.words, "at least 0");
        }
        Ok(())
    }
}

impl Router {
    /// Routes pooled states, `[batch, d_model]`.
    pub fn forward(&self, pooled: Tensor<2>) -> Routing {
        let hidden = self.layers.iter().fold(pooled, |x, layer| {
            let x = layer.linear.forward(x);
            let x = match &layer.norm {
                Some(norm) => norm.forward(x),
                None => x,
            };
            let x = match self.config.activation {
                Activation::Relu => relu(x),
                Activation::Gelu => gelu(x),
                Activation::Tanh => x.tanh(),
            };
            dropout(x, self.config.dropout)
        });
        Routing {
            logits: self.gate.forward(hidden.clone()) / self.temperature().unsqueeze(),
            // Detached, so that training the confidence does not change the choice.
            confidence: self.confidence.forward(hidden.detach()).squeeze_dim(1),
        }
    }

    /// Temperature by which logits are divided, `[1]`.
    pub fn temperature(&self) -> Tensor<1> {
        // Not a clamp: below the floor it would have no gradient.
        self.log_temperature.val().exp().add_scalar(self.config.temperature_floor)
    }
}

impl Routing {
    /// Probabilities over the adapters, `[batch, adapters]`.
    pub fn probabilities(&self) -> Tensor<2> {
        softmax(self.logits.clone(), 1)
    }

    /// Returns the routing among some of the adapters: the others get a logit of -∞, and the confidence becomes the probability
    /// of the choice, for the learned one is of a choice among all.
    pub fn among(self, adapters: &[usize]) -> Self {
        let [_, count] = self.logits.dims();
        if (0..count).all(|adapter| adapters.contains(&adapter)) {
            return self;
        }
        let excluded: Vec<bool> = (0..count).map(|adapter| !adapters.contains(&adapter)).collect();
        let excluded = Tensor::<1, Bool>::from_bool(excluded.as_slice(), &self.logits.device());
        let excluded = excluded.unsqueeze_dim::<2>(0).expand(self.logits.dims());
        Self::by_probability(self.logits.mask_fill(excluded, f32::NEG_INFINITY))
    }

    /// Returns the routing with other evidence for each adapter, as logits, `[batch, adapters]`. The confidence becomes the
    /// probability of the choice: the learned one is of a choice without it.
    pub fn with_evidence(self, evidence: Tensor<2>) -> Self {
        Self::by_probability(self.logits + evidence)
    }

    /// Routing whose confidence is the probability of its choice.
    fn by_probability(logits: Tensor<2>) -> Self {
        // Away from 1, whose logit is infinite.
        let probability = softmax(logits.clone(), 1).max_dim(1).squeeze_dim(1).clamp(1e-6, 1.0 - 1e-6);
        let odds: Tensor<1> = probability.clone() / (1.0 - probability);
        Self { logits, confidence: odds.log() }
    }

    /// Index of the most probable adapter of each input.
    pub fn choices(&self) -> Vec<usize> {
        self.choice_ids().into_data().iter::<i64>().map(|id| id as usize).collect()
    }

    /// The same, left on the device, `[batch]`.
    pub fn choice_ids(&self) -> Tensor<1, Int> {
        self.logits.clone().argmax(1).squeeze_dim(1)
    }

    /// Confidence of the router in each choice, as a probability, `[batch]`.
    pub fn confidences(&self) -> Tensor<1> {
        burn::tensor::activation::sigmoid(self.confidence.clone())
    }

    /// Gates for training, `[batch, adapters]`; `temperature` is only that of the Gumbel-softmax.
    pub fn training_gates(&self, kind: GateKind, temperature: f64) -> Tensor<2> {
        if kind != GateKind::Gumbel {
            return self.gates(kind);
        }
        let uniform = undertone_ops::uniform(self.logits.dims(), 1e-7, 1.0 - 1e-7, &self.logits.device());
        let noise = uniform.log().neg().log().neg();
        let relaxed = softmax((self.logits.clone() + noise).div_scalar(temperature), 1);
        // Straight-through estimator: the value is one-hot, the gradient that of the relaxed sample.
        let hard = one_hot(relaxed.clone().detach());
        hard - relaxed.clone().detach() + relaxed
    }

    /// Gates without randomness, `[batch, adapters]`.
    pub fn gates(&self, kind: GateKind) -> Tensor<2> {
        let p = self.probabilities();
        match kind {
            GateKind::Soft => p,
            GateKind::Hard | GateKind::Gumbel => one_hot(p),
            GateKind::TopK { k } => {
                let k = k.min(p.dims()[1]);
                let least = p.clone().topk(k, 1).narrow(1, k - 1, 1);
                let kept = p.clone() * p.greater_equal(least).float();
                kept.clone() / kept.sum_dim(1)
            }
        }
    }

    /// Gates at inference as the configuration defines them, with equal gates for inputs below the confidence
    /// threshold, of those adapters that are [among](Self::among) the choices.
    pub fn inference_gates(&self, config: &RouterConfig) -> Tensor<2> {
        let gates = self.gates(config.gates);
        if config.confidence_threshold == 0.0 {
            return gates;
        }
        let adapters = gates.dims()[1];
        let doubted = self.confidences().lower_elem(config.confidence_threshold).unsqueeze_dim::<2>(1);
        let possible = self.logits.clone().greater_elem(f32::NEG_INFINITY).float();
        let even = possible.clone() / possible.sum_dim(1);
        gates.mask_where(doubted.repeat_dim(1, adapters), even)
    }
}

/// Returns 1 at the first maximum of each row, 0 elsewhere.
fn one_hot(x: Tensor<2>) -> Tensor<2> {
    let [_, columns] = x.dims();
    let best: Tensor<1, Int> = x.clone().argmax(1).squeeze_dim(1);
    let index = Tensor::<1, Int>::arange(0..columns as i64, &x.device()).unsqueeze_dim::<2>(0);
    let [rows, _] = x.dims();
    best.unsqueeze_dim::<2>(1).repeat_dim(1, columns).equal(index.repeat_dim(0, rows)).float()
}

fn linear(d_in: usize, d_out: usize, device: &Device) -> Linear {
    Linear::init(d_in, d_out, true, (d_in as f64).powf(-0.5), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::values;

    fn routing(logits: [[f32; 3]; 2], confidence: [f32; 2], device: &Device) -> Routing {
        Routing { logits: Tensor::from_floats(logits, device), confidence: Tensor::from_floats(confidence, device) }
    }

    const LOGITS: [[f32; 3]; 2] = [[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]];

    #[test]
    fn adapters_that_are_not_among_the_choices_get_no_gate() {
        let device = Device::default();
        let routing = routing(LOGITS, [-5.0, 5.0], &device).among(&[0, 1]);
        assert_eq!(routing.choices(), [1, 0]);
        for kind in [GateKind::Soft, GateKind::Hard, GateKind::TopK { k: 2 }, GateKind::TopK { k: 3 }] {
            for row in values(routing.gates(kind)).chunks(3) {
                assert!(row[2] == 0.0 && (row[0] + row[1] - 1.0).abs() < 1e-6, "{kind:?}: {row:?}");
            }
        }
        let config = RouterConfig { confidence_threshold: 0.5, ..Default::default() };
        let sure = RouterConfig { confidence_threshold: 0.999, ..config.clone() };
        let confidences = values(routing.confidences());
        for (row, confidence) in values(routing.gates(GateKind::Soft)).chunks(3).zip(confidences) {
            let highest = row[0].max(row[1]);
            assert!((confidence - highest).abs() < 1e-4, "{confidence} for {row:?}: it is of a choice among these");
        }
        assert_eq!(values(routing.inference_gates(&config)), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(values(routing.inference_gates(&sure)), [0.5, 0.5, 0.0, 0.5, 0.5, 0.0]);
        let all = self::routing(LOGITS, [-5.0, 5.0], &device).among(&[2, 0, 1]);
        assert_eq!(
            values(all.inference_gates(&config))[3..],
            values(all.gates(config.gates))[3..],
            "as it was learned"
        );
    }

    #[test]
    fn evidence_changes_choices_and_their_confidence() {
        let device = Device::default();
        let evidence = Tensor::from_floats([[0.0, 0.0, 4.0], [0.0; 3]], &device);
        let routing = routing(LOGITS, [9.0; 2], &device).with_evidence(evidence);
        assert_eq!(routing.choices(), [2, 2]);
        let confidences = values(routing.confidences());
        let expected = [(4.0_f32).exp(), (3.0_f32).exp()];
        let others = [1.0_f32.exp() + 2.0_f32.exp(), 1.0 + (-1.0_f32).exp()];
        for ((found, best), others) in confidences.iter().zip(expected).zip(others) {
            assert!((found - best / (best + others)).abs() < 1e-4, "{found}");
        }
        let certain = Tensor::from_floats([[1e4, 0.0, 0.0]], &device);
        let routing =
            Routing { logits: certain.clone(), confidence: Tensor::zeros([1], &device) }.with_evidence(certain);
        assert!(values(routing.confidences())[0] > 0.999);
    }

    #[test]
    fn gates_of_every_kind_sum_to_one() {
        let device = Device::default();
        let routing = routing(LOGITS, [0.0; 2], &device);
        for kind in [GateKind::Soft, GateKind::Hard, GateKind::TopK { k: 2 }, GateKind::Gumbel] {
            for row in values(routing.training_gates(kind, 0.5)).chunks(3) {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{kind:?}: {row:?}");
            }
        }
        assert_eq!(values(routing.gates(GateKind::Hard)), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        let top = values(routing.gates(GateKind::TopK { k: 2 }));
        assert!((top[0] / top[1] - (-1.0_f32).exp()).abs() < 1e-5 && top[2] == 0.0, "{top:?}");
        assert_eq!(routing.choices(), [1, 2]);
    }

    #[test]
    fn gumbel_samples_follow_the_probabilities_and_pass_gradients() {
        let device = Device::default().autodiff();
        undertone_ops::seed(7);
        let logits = Tensor::<2>::from_floats([[0.0, 1.0]], &device).require_grad();
        let many = logits.clone().repeat_dim(0, 4000);
        let routing = Routing { logits: many.clone(), confidence: many.narrow(1, 0, 1).squeeze_dim(1) };
        let gates = routing.training_gates(GateKind::Gumbel, 0.5);
        let share = values(gates.clone().inner().mean_dim(0));
        // σ(1) = 0.731; the standard error over 4000 is 0.007.
        assert!((share[1] - 0.731).abs() < 0.03, "{share:?}");
        assert!(values(gates.clone().inner()).iter().all(|g| g.abs() < 1e-6 || (g - 1.0).abs() < 1e-6));
        let gradients = gates.narrow(1, 1, 1).sum().backward();
        let gradient = values(logits.grad(&gradients).expect("a gradient"));
        assert!(gradient[1] > 1.0 && (gradient[0] + gradient[1]).abs() < 1e-2, "{gradient:?}");
    }

    #[test]
    fn doubtful_inputs_go_through_all_adapters() {
        let device = Device::default();
        let routing = routing(LOGITS, [3.0, -3.0], &device);
        let config = RouterConfig { confidence_threshold: 0.5, ..Default::default() };
        let gates = values(routing.inference_gates(&config));
        assert_eq!(gates[..3], [0.0, 1.0, 0.0]);
        assert!(gates[3..].iter().all(|g| (g - 1.0 / 3.0).abs() < 1e-6));
    }

    #[test]
    fn the_temperature_has_a_floor() {
        let device = Device::default();
        let mut router = RouterConfig { temperature_floor: 0.5, ..Default::default() }.init(4, 3, &device);
        assert!((values(router.temperature())[0] - 1.0).abs() < 1e-6);
        router.log_temperature = Param::from_tensor(Tensor::from_floats([-20.0], &device));
        assert!((values(router.temperature())[0] - 0.5).abs() < 1e-6);
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let cases: [(&str, RouterConfig); 4] = [
            ("hidden", RouterConfig { hidden: vec![0], ..Default::default() }),
            ("dropout", RouterConfig { dropout: 1.0, ..Default::default() }),
            ("temperature", RouterConfig { temperature: 0.01, ..Default::default() }),
            ("confidence_threshold", RouterConfig { confidence_threshold: 1.5, ..Default::default() }),
        ];
        for (key, config) in cases {
            let error = config.validate().expect_err(key).to_string();
            assert!(error.starts_with(&format!("`{key}` is ")), "{error}");
        }
    }
}
