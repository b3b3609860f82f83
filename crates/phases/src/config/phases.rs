//! How each phase of a run with tasks trains.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use undertone_model::router::GateKind;
use undertone_train::{GroupConfig, Pattern};

/// How each phase trains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PhasesConfig {
    /// Adapters and heads.
    #[serde(rename = "1")]
    pub adapters: AdapterPhase,
    /// The router.
    #[serde(rename = "2")]
    pub router: RouterPhase,
    /// Router and adapters.
    #[serde(rename = "3")]
    pub joint: JointPhase,
    /// What the phases are compared with.
    pub baselines: BaselinesConfig,
}

/// How what a run is compared with is trained: as phase 1 is, but for these keys of `train`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BaselinesConfig {
    /// For a head alone on the frozen backbone.
    pub head: Map<String, Value>,
    /// For one adapter for all tasks.
    pub shared: Map<String, Value>,
    /// For the whole backbone, which wants a smaller step than adapters do.
    pub full: Map<String, Value>,
}

/// Phase 1: an adapter and a head for each task, the backbone frozen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterPhase {
    /// Whether all are trained at once in mixed batches, instead of one after another.
    pub mixed: bool,
    /// What processes that train together share.
    pub parallel: Parallel,
    /// The keys of `train` that differ.
    pub train: Map<String, Value>,
}

/// What processes that train together share in phase 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parallel {
    /// Every step of every task.
    #[default]
    Steps,
    /// The tasks: each process trains its own by itself, with the steps that a single process takes; where there are more
    /// processes than tasks, several train one.
    Tasks,
}

/// Phase 2: the router alone, on batches of all tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterPhase {
    /// How gates are made for the losses that see them.
    pub gates: GateKind,
    /// What is minimised. Without task losses nothing above the tap is computed.
    pub losses: RoutingWeights,
    /// Tasks are drawn in proportion to the root of this degree of their numbers of samples: 1 takes each sample once an
    /// epoch, a large one draws tasks evenly.
    pub task_temperature: f64,
    /// The keys of `train` that differ.
    pub train: Map<String, Value>,
}

impl Default for RouterPhase {
    fn default() -> Self {
        let losses = RoutingWeights { task: 0.0, ..Default::default() };
        Self { gates: GateKind::Soft, losses, task_temperature: 1.0, train: Map::new() }
    }
}

/// Phase 3: router, adapters and heads together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JointPhase {
    /// How gates are made in training.
    pub gates: GateKind,
    /// The Gumbel-softmax's own temperature.
    pub gumbel: GumbelConfig,
    /// From batches of one task to batches of all.
    pub curriculum: CurriculumConfig,
    /// As for phase 2.
    pub task_temperature: f64,
    /// What is minimised.
    pub losses: RoutingWeights,
    /// Learning rates of its parts, where they are not that of `train.optimizer`.
    pub lr: PartRates,
    /// The keys of `train` that differ.
    pub train: Map<String, Value>,
}

impl Default for JointPhase {
    fn default() -> Self {
        Self {
            gates: GateKind::Gumbel,
            gumbel: GumbelConfig::default(),
            curriculum: CurriculumConfig::default(),
            task_temperature: 1.0,
            losses: RoutingWeights::default(),
            lr: PartRates::default(),
            train: Map::new(),
        }
    }
}

/// Peak learning rates of what a joint phase trains: short for parameter groups, which these come after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartRates {
    /// Of the router.
    pub router: Option<f64>,
    /// Of the adapters' matrices.
    pub adapters: Option<f64>,
    /// Of the heads.
    pub heads: Option<f64>,
}

impl PartRates {
    /// Each part with its rate and the paths of its parameters.
    pub(super) fn all(&self) -> [(&'static str, Option<f64>, &'static str); 3] {
        [
            ("router", self.router, r"^router\."),
            ("adapters", self.adapters, r"\.lora\.lora_[ab]$"),
            ("heads", self.heads, r"^heads\."),
        ]
    }

    /// As groups.
    pub(crate) fn groups(&self) -> Vec<GroupConfig> {
        let rates = self.all().into_iter().filter(|(_, lr, _)| lr.is_some());
        let pattern = |path: &str| Pattern::try_from(path.to_owned()).expect("a regular expression");
        rates.map(|(_, lr, path)| GroupConfig { pattern: pattern(path), lr, weight_decay: None }).collect()
    }
}

/// How the temperature of the Gumbel-softmax falls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GumbelConfig {
    /// At the first step.
    pub temperature: f64,
    /// What it is multiplied by.
    pub decay: f64,
    /// Optimizer steps between two such multiplications.
    pub every: u64,
    /// What it never falls below.
    pub floor: f64,
}

impl Default for GumbelConfig {
    fn default() -> Self {
        Self { temperature: 1.0, decay: 0.95, every: 10, floor: 0.1 }
    }
}

impl GumbelConfig {
    /// The temperature at an optimizer step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        (self.temperature * self.decay.powf((step / self.every) as f64)).max(self.floor)
    }
}

/// The share of batches that hold a single task; it changes evenly over the phase's optimizer steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CurriculumConfig {
    /// At the first step.
    pub from: f64,
    /// At the last.
    pub to: f64,
}

impl Default for CurriculumConfig {
    fn default() -> Self {
        Self { from: 0.8, to: 0.2 }
    }
}

impl CurriculumConfig {
    /// The share at an optimizer step of so many.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        let done = step as f64 / steps.saturating_sub(1).max(1) as f64;
        self.from + (self.to - self.from) * done.min(1.0)
    }
}

/// How much each term of the loss counts; 0 leaves it out. `p` are the router's probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingWeights {
    /// The tasks' own losses.
    pub task: f64,
    /// Cross-entropy of the router's choice.
    pub routing: f64,
    /// Uneven use of adapters: the variance of the mean `p` about the tasks' shares, over the squared ideal share.
    pub load_balance: f64,
    /// Gates that are not sparse: `1 - Σ p²`.
    pub efficiency: f64,
    /// Like inputs that go different ways: squared distance of `p` between pairs, weighted by the cosine of what the router
    /// reads, less the batch's mean, where it is above 0.
    pub consistency: f64,
    /// Undecided gates: the entropy of `p` in nats.
    pub entropy: f64,
    /// A temperature that left 1: the square of the difference.
    pub temperature: f64,
    /// The router's judgement of itself: binary cross-entropy against whether its choice is right.
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
    pub(super) fn all(&self) -> [(&'static str, f64); 8] {
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
