//! What a DYNAMO experiment says: its tasks, and how each phase trains them.

use crate::splits::Splits;
use crate::{Backbone, ConfigError, DataConfig, SourceConfig, Sources};
use figment::Figment;
use figment::providers::Serialized;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use undertone_model::limits::MOST_BEAMS;
use undertone_model::lora::LoraConfig;
use undertone_model::router::GateKind;
use undertone_ops::seeds;
use undertone_report::GUMBEL_TEMPERATURE;
use undertone_tasks::{GenerationSettings, HeadConfig};
use undertone_train::{GroupConfig, LAST_LOSS, Pattern, TrainConfig};

/// One task: what it is called, what it is trained on, and what is trained for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Its name in logs, folders and tables.
    pub name: String,
    /// What its answers are made by.
    pub head: HeadConfig,
    /// Its samples.
    pub data: TaskData,
    /// Its adapter.
    pub lora: LoraConfig,
    /// What it is judged by, of what its head has metrics for; the first decides. The head's first two, if none is named.
    pub metrics: Vec<String>,
    /// How much its loss counts beside those of other tasks.
    pub weight: f64,
    /// The keys of `phases.1.train` that differ while its adapter is trained alone.
    pub train: Map<String, Value>,
    /// How its answers are decoded.
    pub generation: GenerationSettings,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            head: HeadConfig::default(),
            data: TaskData::default(),
            lora: LoraConfig::default(),
            metrics: Vec::new(),
            weight: 1.0,
            train: Map::new(),
            generation: GenerationSettings::default(),
        }
    }
}

impl TaskConfig {
    /// The one task of a run without `tasks`, which the configuration describes as a whole. It has no name.
    pub(crate) fn of_whole(data: &DataConfig, train: &TrainConfig) -> Self {
        let DataConfig { train: sources, valid, test, .. } = data;
        let data = TaskData { train: sources.clone(), valid: valid.clone(), test: test.clone() };
        Self { data, metrics: train.evaluate.metrics.clone(), ..Self::default() }
    }

    /// Whether it is the one task of a run without `tasks`: no other is without a name.
    pub fn is_whole(&self) -> bool {
        self.name.is_empty()
    }

    /// What its samples are drawn from, where the experiment's seed is `seed`.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        if self.is_whole() { seed } else { seeds::of_name(seed, &self.name) }
    }

    /// What it is judged by.
    pub fn metrics(&self) -> Vec<String> {
        if !self.metrics.is_empty() {
            return self.metrics.clone();
        }
        self.head.metrics().iter().take(2).map(|metric| metric.name.to_owned()).collect()
    }
}

/// A task's samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskData {
    /// What it is trained on: a source, or a list of sources to be mixed.
    pub train: Sources,
    /// What it is judged by in training: a source of its own, or `{part_of_train: 0.05}`, which keeps that share of the
    /// records from training. If nothing is said: 64 other samples of the synthesiser; for records it must be said.
    pub valid: Option<SourceConfig>,
    /// What it is judged by afterwards; like `valid`, but with other samples where they are synthesised, if not given.
    pub test: Option<SourceConfig>,
}

impl TaskData {
    /// What is trained on and judged by.
    pub(crate) fn splits(&self) -> Splits<'_> {
        Splits { train: &self.train.0, valid: self.valid.as_ref(), test: self.test.as_ref() }
    }
}

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
    /// The keys of `train` that differ.
    pub train: Map<String, Value>,
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
    fn all(&self) -> [(&'static str, Option<f64>, &'static str); 3] {
        [
            ("router", self.router, r"^router\."),
            ("adapters", self.adapters, r"\.lora\.lora_[ab]$"),
            ("heads", self.heads, r"^heads\."),
        ]
    }

    /// As groups.
    pub(super) fn groups(&self) -> Vec<GroupConfig> {
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
    fn all(&self) -> [(&'static str, f64); 8] {
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

/// Names that lines of `metrics.jsonl` and folders have a use for.
const RESERVED: [&str; 18] = [
    GUMBEL_TEMPERATURE,
    "step",
    "split",
    "loss",
    LAST_LOSS,
    "lr",
    "grad_norm",
    "loss_scale",
    "skipped_steps",
    "all",
    ERROR,
    "routing",
    "load_balance",
    "efficiency",
    "consistency",
    "entropy",
    "temperature",
    "confidence",
];

/// The metric that every task has: the mean cross-entropy of what it should have answered.
pub(super) const LOSS: &str = "loss";

/// What decides in every phase: the mean over the tasks of the first metric's error.
pub(super) const ERROR: &str = "error";

/// # Errors
/// Names the key that makes no sense.
pub(crate) fn validate_phases(phases: &PhasesConfig, base: &TrainConfig) -> Result<(), ConfigError> {
    let value = |text: String| Err(ConfigError::Value(text));
    let PhasesConfig { adapters, router, joint, baselines } = phases;
    for (phase, train) in [(1, &adapters.train), (2, &router.train), (3, &joint.train)] {
        phase_train(base, train).map_err(|e| ConfigError::Value(format!("`phases.{phase}.train`: {e}")))?;
    }
    for (name, train) in [("head", &baselines.head), ("shared", &baselines.shared), ("full", &baselines.full)] {
        let within = |e| ConfigError::Value(format!("`phases.baselines.{name}`: {e}"));
        phase_train(&phase_train(base, &adapters.train).map_err(within)?, train).map_err(within)?;
    }
    for (part, lr, _) in joint.lr.all() {
        if let Some(lr) = lr.filter(|lr| !(lr.is_finite() && *lr > 0.0)) {
            return value(format!("`phases.3.lr.{part}` is {lr}: it must be above 0"));
        }
    }
    if router
        .train
        .get("optimizer")
        .and_then(|optimizer| optimizer.get("lora_plus_ratio"))
        .is_some_and(|r| !r.is_null())
    {
        return value("`phases.2.train.optimizer.lora_plus_ratio`: phase 2 trains the router, and no adapter".into());
    }
    for (phase, losses) in [(2, &router.losses), (3, &joint.losses)] {
        for (name, weight) in losses.all() {
            if !(weight.is_finite() && weight >= 0.0) {
                return value(format!("`phases.{phase}.losses.{name}` is {weight}: it must be at least 0"));
            }
        }
        if losses.all().iter().all(|(_, weight)| *weight == 0.0) {
            return value(format!("`phases.{phase}.losses` are all 0: nothing would be trained"));
        }
    }
    for (phase, temperature) in [(2, router.task_temperature), (3, joint.task_temperature)] {
        if !(temperature.is_finite() && temperature >= 1.0) {
            return value(format!("`phases.{phase}.task_temperature` is {temperature}: it must be at least 1"));
        }
    }
    if joint.losses.task == 0.0 {
        return value(
            "`phases.3.losses.task` is 0: adapters would not be trained; phase 2 trains a router alone".into(),
        );
    }
    let GumbelConfig { temperature, decay, every, floor } = joint.gumbel;
    if !(floor > 0.0 && temperature >= floor && temperature.is_finite()) {
        return value("`phases.3.gumbel`: `floor` must be above 0 and `temperature` at least `floor`".into());
    }
    if !(decay > 0.0 && decay <= 1.0) || every == 0 {
        return value("`phases.3.gumbel`: `decay` must be above 0 and at most 1, `every` at least 1".into());
    }
    let CurriculumConfig { from, to } = joint.curriculum;
    if !((0.0..=1.0).contains(&from) && (0.0..=1.0).contains(&to)) {
        return value("`phases.3.curriculum`: `from` and `to` are shares between 0 and 1".into());
    }
    Ok(())
}

/// `train` with a phase's changes, judged by the tasks' error.
pub(crate) fn phase_train(base: &TrainConfig, changes: &Map<String, Value>) -> Result<TrainConfig, ConfigError> {
    for (section, key) in [("evaluate", "metrics"), ("checkpoint", "metric")] {
        if changes.get(section).is_some_and(|section| section.get(key).is_some()) {
            return Err(ConfigError::Value(format!(
                "`{section}.{key}` is for runs without `tasks`: tasks have their own"
            )));
        }
    }
    let mut train = changed(base, changes)?;
    train.evaluate.metrics = vec![ERROR.into()];
    train.checkpoint.metric = ERROR.into();
    train.validate_beside(base).map_err(|e| ConfigError::Value(e.to_string()))?;
    Ok(train)
}

/// As [`phase_train`] for a task's own stage of phase 1.
pub(crate) fn task_train(
    base: &TrainConfig,
    phase: &AdapterPhase,
    task: &TaskConfig,
) -> Result<TrainConfig, ConfigError> {
    phase_train(&changed(base, &phase.train)?, &task.train)
}

fn changed(base: &TrainConfig, changes: &Map<String, Value>) -> Result<TrainConfig, ConfigError> {
    let mut base = base.clone();
    // Whoever says how long it lasts replaces what the base says, in either unit.
    if changes.contains_key("max_steps") || changes.contains_key("epochs") {
        (base.max_steps, base.epochs) = (None, None);
    }
    let merged = Figment::from(Serialized::defaults(&base)).merge(Serialized::defaults(changes));
    merged.extract().map_err(|e| ConfigError::Value(crate::experiment::sentence(&e)))
}

/// # Errors
/// Names the task and the key that makes no sense.
pub(crate) fn validate_tasks(
    tasks: &[TaskConfig],
    backbone: Backbone,
    phase: &AdapterPhase,
    base: &TrainConfig,
) -> Result<(), ConfigError> {
    let value = |text: String| Err(ConfigError::Value(text));
    for (index, task) in tasks.iter().enumerate() {
        let name = &task.name;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
            return value(format!(
                "`tasks[{index}].name` is `{name}`: it names folders, so it has letters, figures, `-` and `_` only"
            ));
        }
        if RESERVED.contains(&name.as_str()) {
            return value(format!(
                "`tasks[{index}].name` is `{name}`, which records use for something else: choose another"
            ));
        }
        if tasks[..index].iter().any(|other| other.name == *name) {
            return value(format!("two tasks are called `{name}`: names tell them apart"));
        }
        task.lora.validate().map_err(|e| ConfigError::Value(format!("task `{name}`: `lora`: {e}")))?;
        task.head.validate(backbone.is_text()).map_err(|e| ConfigError::Value(format!("task `{name}`: {e}")))?;
        let known: Vec<&str> = task.head.metrics().iter().map(|own| own.name).chain([LOSS]).collect();
        if let Some(metric) = task.metrics.iter().find(|metric| !known.contains(&metric.as_str())) {
            let known = known.join(", ");
            return value(format!("task `{name}`: there is no metric `{metric}` for its head: there are {known}"));
        }
        let generation = &task.generation;
        if task.head.max_target().is_none() && *generation != GenerationSettings::default() {
            return value(format!("task `{name}`: `generation` is for heads that write text, of type `seq2seq`"));
        }
        if generation.max_new_tokens == Some(0) || generation.num_beams == 0 {
            return value(format!("task `{name}`: `generation`: `max_new_tokens` and `num_beams` are at least 1"));
        }
        if generation.num_beams > MOST_BEAMS {
            let beams = generation.num_beams;
            return value(format!("task `{name}`: `generation.num_beams` is {beams}: it must be at most {MOST_BEAMS}"));
        }
        if let (Some(max_target), Some(tokens), true) =
            (task.head.max_target(), generation.max_new_tokens, backbone.is_text())
            && tokens >= max_target
        {
            let most = max_target - 1;
            return value(format!(
                "task `{name}`: `generation.max_new_tokens` is {tokens}: `head.max_target` leaves room for {most}"
            ));
        }
        let penalty = generation.length_penalty;
        if !penalty.is_finite() || (generation.num_beams == 1 && penalty != 1.0) {
            return value(format!(
                "task `{name}`: `generation.length_penalty` is {penalty}: it needs `num_beams` above 1"
            ));
        }
        if phase.mixed && !task.train.is_empty() {
            return value(format!("task `{name}`: `train` is for its own stage, and `phases.1.mixed` has none"));
        }
        task_train(base, phase, task).map_err(|e| ConfigError::Value(format!("task `{name}`: `train`: {e}")))?;
        if !(task.weight.is_finite() && task.weight > 0.0) {
            return value(format!("task `{name}`: `weight` is {}: it must be above 0", task.weight));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curriculum_and_the_temperature_follow_optimizer_steps() {
        let curriculum = CurriculumConfig::default();
        for (step, share) in [(0, 0.8), (50, 0.5), (100, 0.2), (200, 0.2)] {
            assert!((curriculum.at(step, 101) - share).abs() < 1e-9);
        }
        let gumbel = GumbelConfig { every: 2, ..Default::default() };
        assert_eq!([gumbel.at(0), gumbel.at(1), gumbel.at(2)], [1.0, 1.0, 0.95]);
        assert_eq!(gumbel.at(10_000), 0.1);
    }

    #[test]
    fn a_phase_changes_what_it_names() {
        let base = TrainConfig { max_steps: Some(500), ..Default::default() };
        let changes = serde_json::json!({"epochs": 2, "optimizer": {"lr": 0.5}});
        let train = phase_train(&base, changes.as_object().expect("an object")).expect("valid");
        assert_eq!((train.max_steps, train.epochs, train.optimizer.lr), (None, Some(2), 0.5));
        assert_eq!(train.optimizer.weight_decay, base.optimizer.weight_decay);
        let unknown = serde_json::json!({"learning_rate": 1});
        assert!(phase_train(&base, unknown.as_object().expect("an object")).is_err());
    }

    #[test]
    fn rates_of_parts_are_groups() {
        let rates = PartRates { router: Some(1e-2), heads: Some(1e-4), ..Default::default() };
        let groups = rates.groups();
        assert_eq!(groups.iter().map(|group| group.lr).collect::<Vec<_>>(), [Some(1e-2), Some(1e-4)]);
        assert!(groups[0].pattern.is_found_in("router.mlp.weight") && !groups[0].pattern.is_found_in("heads.0.router"));
        let base = TrainConfig { max_steps: Some(500), ..Default::default() };
        let joint = |lr| PhasesConfig { joint: JointPhase { lr, ..Default::default() }, ..Default::default() };
        assert_eq!(validate_phases(&joint(rates), &base), Ok(()));
        let none = PartRates { adapters: Some(0.0), ..rates };
        let error = validate_phases(&joint(none), &base).expect_err("refused").to_string();
        assert!(error.contains("`phases.3.lr.adapters`"), "{error}");
        let mut plus = PhasesConfig::default();
        plus.router.train.insert("optimizer".into(), serde_json::json!({"lora_plus_ratio": 16}));
        let error = validate_phases(&plus, &base).expect_err("refused").to_string();
        assert!(error.contains("`phases.2.train.optimizer.lora_plus_ratio`"), "{error}");
    }

    #[test]
    fn tasks_need_names_of_their_own() {
        let task = |name: &str| TaskConfig { name: name.into(), ..Default::default() };
        let check = |tasks: &[TaskConfig]| {
            let base = TrainConfig { max_steps: Some(500), ..Default::default() };
            validate_tasks(tasks, Backbone::Whisper, &AdapterPhase::default(), &base)
        };
        assert_eq!(check(&[task("a"), task("b")]), Ok(()));
        assert!(check(&[task("a"), task("a")]).is_err());
        assert!(check(&[task("a/b")]).is_err());
        let odd = TaskConfig { metrics: vec!["accuracy".into()], ..task("a") };
        assert!(check(&[odd]).expect_err("refused").to_string().contains("`accuracy`"));
    }
}
