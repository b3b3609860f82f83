//! Configuration of the phases of a run with tasks.

use super::AdapterTeacher;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use undertone_model::router::GateKind;
use undertone_registry::choice;
use undertone_train::{GroupConfig, Pattern};

/// Configuration of the phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PhasesConfig {
    /// Phase 1: adapters and heads.
    #[serde(rename = "1")]
    pub adapters: AdapterPhase,
    /// Phase 2: the router.
    #[serde(rename = "2")]
    pub router: RouterPhase,
    /// Phase 3: router, adapters and heads.
    #[serde(rename = "3")]
    pub joint: JointPhase,
    /// Baselines that the phases are compared with.
    pub baselines: BaselinesConfig,
}

/// Training of the baselines: as in phase 1, except for these keys of `train` for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BaselinesConfig {
    /// Keys for a head alone on the frozen backbone.
    pub head: Map<String, Value>,
    /// Keys for one adapter for all tasks.
    pub shared: Map<String, Value>,
    /// Keys for one adapter for all tasks that the run's own adapters teach.
    pub distilled: Map<String, Value>,
    /// Keys for the whole backbone, which needs a smaller learning rate than adapters do.
    pub full: Map<String, Value>,
    /// Adapters that teach the baseline `distilled`.
    pub teacher: AdapterTeacher,
}

impl BaselinesConfig {
    /// Returns the name of each baseline with its keys of `train`.
    pub(crate) fn all(&self) -> [(&'static str, &Map<String, Value>); 4] {
        [("head", &self.head), ("shared", &self.shared), ("distilled", &self.distilled), ("full", &self.full)]
    }
}

/// Phase 1: an adapter and a head for each task, with the backbone frozen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterPhase {
    /// Whether all are trained at once in mixed batches, instead of one after another.
    pub mixed: bool,
    /// Work that the processes of a group share.
    pub parallel: Parallel,
    /// Keys of `train` that differ.
    pub train: Map<String, Value>,
}

/// Work that the processes of a group share in phase 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parallel {
    /// All processes share every step of every task.
    #[default]
    Steps,
    /// Each process trains its own tasks by itself, with the steps that a single process takes. If there are more
    /// processes than tasks, several train one task.
    Tasks,
}

/// Phase 2: the router alone, on batches of all tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouterPhase {
    /// Gates in the tasks' losses.
    pub gates: TrainingGates,
    /// Weights of the loss terms. With a weight of 0 for the tasks' losses, nothing above the tap is computed.
    pub losses: RoutingWeights,
    /// Temperature for mixing tasks: each is drawn in proportion to this root of its number of samples. 1 uses each
    /// sample once per epoch, a large temperature draws tasks uniformly.
    pub task_temperature: f64,
    /// Keys of `train` that differ.
    pub train: Map<String, Value>,
}

impl Default for RouterPhase {
    fn default() -> Self {
        let losses = RoutingWeights { task: 0.0, ..Default::default() };
        Self { gates: TrainingGates::Soft, losses, task_temperature: 1.0, train: Map::new() }
    }
}

/// Phase 3: router, adapters and heads together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JointPhase {
    /// Gates in training.
    pub gates: TrainingGates,
    /// Curriculum from batches of one task to batches of all tasks.
    pub curriculum: CurriculumConfig,
    /// Temperature for mixing tasks, as in phase 2.
    pub task_temperature: f64,
    /// Weights of the loss terms.
    pub losses: RoutingWeights,
    /// Learning rates of its parts. Default: that of `train.optimizer`.
    pub lr: PartRates,
    /// Keys of `train` that differ.
    pub train: Map<String, Value>,
}

impl Default for JointPhase {
    fn default() -> Self {
        Self {
            gates: TrainingGates::default(),
            curriculum: CurriculumConfig::default(),
            task_temperature: 1.0,
            losses: RoutingWeights::default(),
            lr: PartRates::default(),
            train: Map::new(),
        }
    }
}

/// Computation of gates from probabilities, in training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
#[schemars(rename = "TrainingGates", deny_unknown_fields, transform = choice::by_name)]
pub enum TrainingGates {
    /// The probabilities themselves.
    Soft,
    /// 1 for the most probable adapter, 0 for the others.
    Hard,
    /// The probabilities of the `k` most probable adapters, scaled to sum to 1.
    TopK {
        /// Number of adapters that are kept.
        #[serde(default = "undertone_model::router::two")]
        k: usize,
    },
    /// A sample of the distribution, as 1 for one adapter, with the gradient of the relaxed sample (Jang et al., 2017).
    /// The keys are those of its temperature.
    Gumbel(GumbelConfig),
}

choice!(TrainingGates, "type");

impl Default for TrainingGates {
    fn default() -> Self {
        Self::Gumbel(GumbelConfig::default())
    }
}

impl TrainingGates {
    /// Returns the kind of gates.
    pub fn kind(self) -> GateKind {
        match self {
            Self::Soft => GateKind::Soft,
            Self::Hard => GateKind::Hard,
            Self::TopK { k } => GateKind::TopK { k },
            Self::Gumbel(_) => GateKind::Gumbel,
        }
    }

    /// Returns the temperature of the Gumbel-softmax at an optimizer step, counted from 0; 1 for other gates, which have
    /// none.
    pub fn temperature(self, step: u64) -> f64 {
        match self {
            Self::Gumbel(gumbel) => gumbel.at(step),
            Self::Soft | Self::Hard | Self::TopK { .. } => 1.0,
        }
    }

    pub(super) fn validate(self) -> Result<(), &'static str> {
        if !self.kind().is_valid() {
            return Err("`k` must be at least 1");
        }
        let Self::Gumbel(GumbelConfig { temperature, decay, every, floor }) = self else { return Ok(()) };
        if !(floor > 0.0 && temperature >= floor && temperature.is_finite()) {
            return Err("`floor` must be above 0 and `temperature` at least `floor`");
        }
        if !(decay > 0.0 && decay <= 1.0) || every == 0 {
            return Err("`decay` must be above 0 and at most 1, `every` at least 1");
        }
        Ok(())
    }
}

/// Peak learning rates of the parts that phase 3 trains: shorthand for parameter groups. They are appended to
/// `train.optimizer.groups`, so those take precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PartRates {
    /// Learning rate of the router.
    pub router: Option<f64>,
    /// Learning rate of the adapters.
    pub adapters: Option<f64>,
    /// Learning rate of the heads.
    pub heads: Option<f64>,
}

impl PartRates {
    /// Returns the name of each part, its learning rate, and the pattern of its parameters' paths.
    pub(super) fn all(&self) -> [(&'static str, Option<f64>, &'static str); 3] {
        [
            ("router", self.router, r"^router\."),
            // Of a backbone's parameters, phase 3 trains the adapters alone.
            ("adapters", self.adapters, r"^backbone\."),
            ("heads", self.heads, r"^heads\."),
        ]
    }

    /// The rates that are given.
    pub(crate) fn rates_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        [&mut self.router, &mut self.adapters, &mut self.heads].into_iter().flatten()
    }

    /// Returns the rates as parameter groups.
    pub(crate) fn groups(&self) -> Vec<GroupConfig> {
        let rates = self.all().into_iter().filter(|(_, lr, _)| lr.is_some());
        let pattern = |path: &str| Pattern::try_from(path.to_owned()).expect("a regular expression");
        rates.map(|(_, lr, path)| GroupConfig { pattern: pattern(path), lr, weight_decay: None }).collect()
    }
}

/// Schedule of the Gumbel-softmax temperature: exponential decay down to a minimum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GumbelConfig {
    /// Temperature at the first step.
    pub temperature: f64,
    /// Factor of each decay.
    pub decay: f64,
    /// Number of optimizer steps between two decays.
    pub every: u64,
    /// Minimum temperature.
    pub floor: f64,
}

impl Default for GumbelConfig {
    fn default() -> Self {
        Self { temperature: 1.0, decay: 0.95, every: 10, floor: 0.1 }
    }
}

impl GumbelConfig {
    /// Returns the temperature at an optimizer step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        (self.temperature * self.decay.powf((step / self.every) as f64)).max(self.floor)
    }
}

/// Share of batches that hold a single task. It changes linearly over the optimizer steps of the phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CurriculumConfig {
    /// Share at the first step.
    pub from: f64,
    /// Share at the last step.
    pub to: f64,
}

impl Default for CurriculumConfig {
    fn default() -> Self {
        Self { from: 0.8, to: 0.2 }
    }
}

impl CurriculumConfig {
    /// Returns the share at optimizer step `step`, counted from 0, of `steps`.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        let done = step as f64 / steps.saturating_sub(1).max(1) as f64;
        self.from + (self.to - self.from) * done.min(1.0)
    }
}

/// Weights of the loss terms; 0 leaves a term out. `p` are the router's probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingWeights {
    /// Weight of the tasks' own losses; in phase 2 it is 0, unless it is given.
    pub task: f64,
    /// Weight of the cross-entropy of the router's choice.
    pub routing: f64,
    /// Weight of load imbalance: the variance of the mean `p` about the tasks' shares, over the squared ideal share,
    /// within each batch.
    pub load_balance: f64,
    /// Weight of the penalty on gates that are not sparse: `1 - Σ p²`.
    pub efficiency: f64,
    /// Weight of the penalty on different gates for similar inputs: squared distance of `p` between pairs, weighted by
    /// the cosine of the router's inputs, less the batch's mean, where it is above 0. Batches of fewer than three samples have none.
    pub consistency: f64,
    /// Weight of the entropy of `p`, in nats.
    pub entropy: f64,
    /// Weight of the squared difference of the router's temperature from 1.
    pub temperature: f64,
    /// Weight of the confidence loss: binary cross-entropy of its confidence against whether its choice is right.
    pub confidence: f64,
}

impl Default for RoutingWeights {
    fn default() -> Self {
        Self {
            task: 1.0,
            routing: 1.0,
            load_balance: 0.1,
            efficiency: 0.01,
            consistency: 0.05,
            entropy: 0.01,
            temperature: 0.01,
            confidence: 0.1,
        }
    }
}

impl RoutingWeights {
    /// Returns the name and weight of each term.
    pub(crate) fn all(&self) -> [(&'static str, f64); 8] {
        [
            ("task", self.task),
            ("routing", self.routing),
            ("load_balance", self.load_balance),
            ("efficiency", self.efficiency),
            ("consistency", self.consistency),
            ("entropy", self.entropy),
            ("temperature", self.temperature),
            ("confidence", self.confidence),
        ]
    }
}
