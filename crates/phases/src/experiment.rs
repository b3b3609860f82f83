//! An experiment as a user writes it.

use crate::dynamo::{PhasesConfig, Run, Setup, Stage, TaskConfig, validate_phases, validate_tasks};
use crate::splits::Splits;
use crate::{AlignmentConfig, DataConfig, ModelConfig, Pad, RunError, SourceConfig, Split, preset};
use figment::providers::{Env, Format, Serialized, Yaml};
use figment::value::{Dict, Map};
use figment::{Figment, Metadata, Profile, Provider};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use undertone_cw::CwTask;
use undertone_fit::DevicePreset;
use undertone_model::router::{GateKind, RouterConfig};
use undertone_ops::{DeviceSpec, Kernels};
use undertone_train::TrainConfig;

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    /// Fixes everything random: weights, order, synthesis, dropout.
    pub seed: u64,
    /// Where the run's records go.
    pub run: RunConfig,
    /// `auto`, `cpu`, `cuda:N`, `wgpu:N`, `tch:cpu` or `tch:cuda:N`.
    pub device: DeviceSpec,
    /// Whose settings hold where this configuration has none: `none`, `auto` (those of the device), or a card's name.
    pub device_preset: DevicePreset,
    /// What operations are made of on the CPU: `fused` kernels, or `composed` of Burn's own operations, which gives the
    /// same to rounding and is several times slower.
    pub kernels: Kernels,
    /// What is trained.
    pub model: ModelConfig,
    /// What it is trained on.
    pub data: DataConfig,
    /// What is minimised.
    pub loss: LossConfig,
    /// How.
    pub train: TrainConfig,
    /// Tasks, each with an adapter and a head: with any, this is a DYNAMO run, and `data` says only how batches are made.
    pub tasks: Vec<TaskConfig>,
    /// The router over the tasks' adapters.
    pub router: RouterConfig,
    /// How the phases of a DYNAMO run differ from `train`.
    pub phases: PhasesConfig,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            seed: 42,
            run: RunConfig::default(),
            device: DeviceSpec::Auto,
            device_preset: DevicePreset::None,
            kernels: Kernels::Fused,
            model: ModelConfig::default(),
            data: DataConfig::default(),
            loss: LossConfig::default(),
            train: usual_training(),
            tasks: Vec::new(),
            router: RouterConfig::default(),
            phases: PhasesConfig::default(),
        }
    }
}

/// What training is where nothing is said: judged by what is written, as speech recognition is.
fn usual_training() -> TrainConfig {
    let mut train = TrainConfig::default();
    train.evaluate.metrics = vec!["cer".into(), "wer".into()];
    train.checkpoint.metric = "cer".into();
    train
}

/// The keys of [`usual_training`] that the Learner has other defaults for, as a layer below all others.
fn usual_keys() -> serde_json::Value {
    let TrainConfig { evaluate, checkpoint, .. } = usual_training();
    serde_json::json!({
        "train": {"evaluate": {"metrics": evaluate.metrics}, "checkpoint": {"metric": checkpoint.metric}}
    })
}

/// Where a run's records go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The run's name: its directory below `dir`.
    pub name: String,
    /// The directory of all runs.
    pub dir: PathBuf,
    /// Whether a run of that name may be deleted and begun anew.
    pub overwrite: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { name: "run".into(), dir: "runs".into(), overwrite: false }
    }
}

/// What is minimised besides the cross-entropy of the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Share of each target's mass spread over all tokens.
    pub label_smoothing: f64,
    /// Terms on the encoder from the known timing of synthesised samples.
    pub alignment: AlignmentConfig,
    /// Whether a training batch shorter than the window lies anywhere in it instead of at its beginning.
    pub random_position: bool,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { label_smoothing: 0.0, alignment: AlignmentConfig::default(), random_position: false }
    }
}

/// Why a configuration is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there.
    #[error("there is no configuration `{}`: give the path of a YAML file, as in configs/", .0.display())]
    NoFile(PathBuf),
    /// A key or value does not fit.
    #[error("{0}")]
    Value(String),
}

impl Experiment {
    /// Reads defaults < the device's preset < the YAML file < `UNDERTONE_*` variables (`UNDERTONE_TRAIN__MAX_STEPS`) < `key=value` settings,
    /// and checks the result. In a setting's key an element of a list is called by its `name` or its number from 0:
    /// `tasks.copy.train.max_steps=100`.
    ///
    /// # Errors
    /// Names the key and where it was set.
    pub fn load(file: Option<&Path>, settings: &[String]) -> Result<Self, ConfigError> {
        let mut figment = Figment::new();
        if let Some(file) = file {
            if !file.is_file() {
                return Err(ConfigError::NoFile(file.to_owned()));
            }
            check_depth(file)?;
            figment = figment.merge(YamlFile(file));
        }
        figment = figment.merge(Env::prefixed("UNDERTONE_").split("__"));
        for setting in settings {
            let malformed =
                || ConfigError::Value(format!("`--set {setting}` is no `key=value`, like `train.max_steps=100`"));
            let (key, text) = setting.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(malformed)?;
            let value: serde_json::Value = serde_yaml::from_str(text).map_err(|_| malformed())?;
            figment = set(figment, key, value)?;
        }
        if let Some(layer) = preset::layer(&figment) {
            tracing::info!("{}", layer.reason);
            figment = figment.join(Serialized::defaults(layer.keys));
        }
        let figment = figment.join(Serialized::defaults(usual_keys()));
        let experiment: Self = figment.extract().map_err(|e| ConfigError::Value(sentence(&e)))?;
        experiment.validate()?;
        Ok(experiment)
    }

    /// Checks every value that can be checked without reading data or a model.
    ///
    /// # Errors
    /// Names the key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let value = |text: String| Err(ConfigError::Value(text));
        let name = &self.run.name;
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
            return value(format!(
                "`run.name` is `{name}`: it names a directory, so it is not empty and has no slash or leading dot"
            ));
        }
        self.train.validate().map_err(|e| ConfigError::Value(e.to_string()))?;
        if self.train.evaluate.metrics.is_empty() {
            return value("`train.evaluate.metrics` is `empty`: name at least one metric".into());
        }
        self.model.validate()?;
        for metric in &self.train.evaluate.metrics {
            if !["cer", "wer", "loss"].contains(&metric.as_str()) {
                return value(format!("`train.evaluate.metrics` has `{metric}`: the metrics are cer, wer and loss"));
            }
        }
        if !(0.0..1.0).contains(&self.loss.label_smoothing) {
            return value(format!(
                "`loss.label_smoothing` is {}: it must be at least 0 and below 1",
                self.loss.label_smoothing
            ));
        }
        self.loss.alignment.validate()?;
        if self.loss.random_position && self.data.pad == Pad::Window {
            return value(
                "`loss.random_position` moves batches within the window, and `data.pad: window` fills it: choose one"
                    .into(),
            );
        }
        self.data.validate(self.seed)?;
        let (trained, any) = self.recorded();
        self.data.validate_for(trained, any)?;
        if self.loss.alignment.is_on() {
            self.validate_alignment()?;
        }
        if !self.tasks.is_empty() {
            return self.validate_tasks();
        }
        if self.model.backbone.is_text() {
            return value("`model.backbone` is for text, which is trained by `tasks`: there are none".into());
        }
        let unused =
            [("router", self.router != RouterConfig::default()), ("phases", self.phases != PhasesConfig::default())];
        match unused.iter().find(|(_, given)| *given) {
            Some((key, _)) => value(format!("`{key}` is for runs with `tasks`, and there are none")),
            None => Ok(()),
        }
    }

    /// What is trained: the tasks, or the one that a configuration without `tasks` stands for, which has no name.
    pub fn all_tasks(&self) -> Vec<TaskConfig> {
        match self.tasks.as_slice() {
            [] => vec![TaskConfig::of_whole(&self.data, &self.train)],
            tasks => tasks.to_vec(),
        }
    }

    /// Finds the device, loads the model, opens the data, and puts together what the first stage is trained with: all that is
    /// trained where there are no `tasks`, else phase 1 of the first task. Nothing is written.
    ///
    /// # Errors
    /// When device, model or data cannot be had.
    pub fn build(&self) -> Result<Run, RunError> {
        Setup::new(self)?.run(&Stage::first(self))
    }

    /// Whether any sample that is trained on is recorded rather than synthesised, and whether any sample at all is.
    fn recorded(&self) -> (bool, bool) {
        let tasks = self.all_tasks();
        let splits: Vec<Splits> = tasks.iter().map(|task| task.data.splits()).collect();
        let written = || splits.iter().flat_map(Splits::written).filter(|(_, source)| source.is_recorded());
        (written().any(|(split, _)| split == Split::Train), written().next().is_some())
    }

    /// The terms on the encoder follow the timing of what is sent.
    fn validate_alignment(&self) -> Result<(), ConfigError> {
        let value = |text: String| Err(ConfigError::Value(text));
        let tasks = self.all_tasks();
        for source in tasks.iter().flat_map(|task| &task.data.train.0) {
            if source.path.is_some() || source.hub.is_some() {
                return value(
                    "`loss.alignment` needs the timing of `synth` samples: set its weights to 0 for recordings".into(),
                );
            }
            let stages = (0..source.stages.len()).map(|i| source.stage(i)).collect::<Result<Vec<_>, _>>()?;
            if let Some(cw) = std::iter::once(&source.cw).chain(&stages).find(|cw| cw.task != CwTask::Copy) {
                return value(format!(
                    "`loss.alignment` follows what is sent, and the task `{}` writes something else: set its weights to 0",
                    cw.task
                ));
            }
        }
        Ok(())
    }

    /// What a run with tasks needs besides.
    fn validate_tasks(&self) -> Result<(), ConfigError> {
        let value = |text: String| Err(ConfigError::Value(text));
        let (defaults, unsaid) = (Self::default(), SourceConfig { samples: 64, ..Default::default() });
        let unused = [
            ("data.train", self.data.train != defaults.data.train),
            // Every configuration saved before validation could be left out has these samples of a synthesiser.
            ("data.valid", self.data.valid.as_ref().is_some_and(|valid| *valid != unsaid)),
            ("data.test", self.data.test != defaults.data.test),
            ("data.source_temperature", self.data.source_temperature != defaults.data.source_temperature),
            ("model.trainable", self.model.trainable != defaults.model.trainable),
            ("train.evaluate.metrics", self.train.evaluate.metrics != defaults.train.evaluate.metrics),
            ("train.checkpoint.metric", self.train.checkpoint.metric != defaults.train.checkpoint.metric),
        ];
        if let Some((key, _)) = unused.iter().find(|(_, given)| *given) {
            return value(format!("`{key}` is for runs without `tasks`: tasks have their own data and metrics"));
        }
        if self.model.backbone.is_text() {
            if self.loss != defaults.loss {
                return value("`loss` is for speech, and `model.backbone` reads text: leave it out".into());
            }
            let audio = [
                ("max_batch_seconds", self.data.max_batch_seconds.is_some()),
                ("normalizer", self.data.normalizer != defaults.data.normalizer),
                ("spellings", self.data.spellings.is_some()),
                ("pad", self.data.pad != defaults.data.pad),
                ("eval_pad", self.data.eval_pad != defaults.data.eval_pad),
                ("language", self.data.language != defaults.data.language),
                ("task", self.data.task != defaults.data.task),
                ("long_audio", self.data.long_audio != defaults.data.long_audio),
                ("pack", self.data.pack),
                ("timestamps", self.data.timestamps != 0.0),
                ("previous_text", self.data.previous_text != 0.0),
                ("augment", self.data.augment != defaults.data.augment),
                ("cache", self.data.cache != defaults.data.cache),
                ("on_bad_sample", self.data.on_bad_sample != defaults.data.on_bad_sample),
            ];
            if let Some((key, _)) = audio.iter().find(|(_, given)| *given) {
                return value(format!("`data.{key}` is for speech, and `model.backbone` reads text: leave it out"));
            }
        }
        for task in &self.tasks {
            let at = |split: Split, text: String| {
                ConfigError::Value(format!("task `{}`: `data.{}`: {text}", task.name, split.name()))
            };
            task.data.train.validate().map_err(|text| at(Split::Train, text))?;
            let several = task.data.train.0.len() > 1;
            if several && (self.model.backbone.is_text() || task.data.train.weights().is_some()) {
                let text = "a task's sources of speech are taken as they are, one after the other, and of text there is one: \
                            leave out weights and further sources";
                return Err(at(Split::Train, text.into()));
            }
            for (split, source) in task.data.splits().written() {
                let at = |text: String| at(split, text);
                if self.model.backbone.is_text() {
                    source.validate_text().map_err(at)?;
                    continue;
                }
                if source.synth.is_none() && !source.is_recorded() {
                    return Err(at("there is no data: give `synth: cw`, or recordings as `path` or `hub`".into()));
                }
                source.validate_speech(split == Split::Train).map_err(at)?;
            }
            task.data.splits().validate().map_err(|(split, text)| at(split, text))?;
        }
        self.router.validate().map_err(|e| ConfigError::Value(format!("`router`: {e}")))?;
        let judged = [self.phases.router.losses.confidence, self.phases.joint.losses.confidence];
        if self.router.confidence_threshold > 0.0 && judged.contains(&0.0) {
            return value(
                "`router.confidence_threshold` needs a confidence that was trained: `losses.confidence` is 0 in phase 2 or 3"
                    .into(),
            );
        }
        let by_length = self.data.group_by_length || self.data.max_batch_seconds.is_some();
        let curriculum = self.phases.joint.curriculum;
        if by_length && self.tasks.len() > 1 && (curriculum.from, curriculum.to) != (0.0, 0.0) {
            return value(
                "`phases.3.curriculum` makes batches of one task, and `data.group_by_length` and `data.max_batch_seconds` make \
                 them by length: leave those out, or set `phases.3.curriculum: {from: 0, to: 0}`"
                    .into(),
            );
        }
        validate_phases(&self.phases, &self.train)?;
        self.validate_routing()?;
        validate_tasks(&self.tasks, self.model.backbone, &self.phases.adapters, &self.train)
    }

    /// Refuses settings of router and phases that nothing reads.
    fn validate_routing(&self) -> Result<(), ConfigError> {
        let (router, PhasesConfig { router: second, joint: third, .. }) = (&self.router, &self.phases);
        let (usual, usual_phases) = (RouterConfig::default(), PhasesConfig::default());
        // Without the tasks' losses phase 2 makes no gates.
        let second_gates = Some(second.gates).filter(|_| second.losses.task > 0.0);
        let trained = |kind: GateKind| third.gates == kind || second_gates == Some(kind);
        let layered = !router.hidden.is_empty();
        let (hidden, temperature) = ("`router.hidden` has no layers", "`router.learn_temperature` is false");
        let settings = [
            (
                "router.top_k",
                router.top_k != usual.top_k,
                router.gates == GateKind::TopK || trained(GateKind::TopK),
                "no `gates` are `top_k`",
            ),
            ("router.activation", router.activation != usual.activation, layered, hidden),
            ("router.layer_norm", router.layer_norm != usual.layer_norm, layered, hidden),
            ("router.dropout", router.dropout != usual.dropout, layered, hidden),
            (
                "phases.2.gates",
                second.gates != usual_phases.router.gates,
                second_gates.is_some(),
                "`phases.2.losses.task` is 0, so that nothing goes through them",
            ),
            (
                "phases.3.gumbel",
                third.gumbel != usual_phases.joint.gumbel,
                trained(GateKind::Gumbel),
                "neither phase has `gates: gumbel`",
            ),
            (
                "phases.2.losses.temperature",
                second.losses.temperature != usual_phases.router.losses.temperature && second.losses.temperature > 0.0,
                router.learn_temperature,
                temperature,
            ),
            (
                "phases.3.losses.temperature",
                third.losses.temperature != usual_phases.joint.losses.temperature && third.losses.temperature > 0.0,
                router.learn_temperature,
                temperature,
            ),
        ];
        match settings.iter().find(|(_, set, read, _)| *set && !read) {
            Some((key, .., why)) => {
                Err(ConfigError::Value(format!("`{key}` has no effect, for {why}: change that, or leave it out")))
            }
            None => Ok(()),
        }
    }

    /// Makes `directory` the run's own, wherever it was moved to.
    pub fn at(&mut self, directory: &Path) {
        // `.` and `..` end in no name.
        let whole = directory.file_name().is_none().then(|| directory.canonicalize().ok()).flatten();
        let directory = whole.as_deref().unwrap_or(directory);
        self.run.dir = directory.parent().map(Path::to_owned).unwrap_or_default();
        self.run.name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    }

    /// The directory of the run.
    pub fn directory(&self) -> PathBuf {
        self.run.dir.join(&self.run.name)
    }

    /// Everything, defaults included, as YAML.
    pub fn to_yaml(&self) -> String {
        serde_yaml::to_string(self).unwrap_or_default()
    }
}

/// How many brackets may be open at once. The parser takes 128, but only once it has read all of them, which takes it the
/// square of their number.
const DEEPEST: usize = 1000;

/// Refuses a file in which so many brackets are open that reading it would take minutes. Brackets in texts and comments count
/// as well: no file has so many of those that are not closed.
fn check_depth(file: &Path) -> Result<(), ConfigError> {
    // A file that cannot be read is told about by who reads it.
    let Ok(text) = std::fs::read(file) else { return Ok(()) };
    let (mut open, mut line) = (0_usize, 1);
    for byte in text {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        if open > DEEPEST {
            let file = file.display();
            return Err(ConfigError::Value(format!("more than {DEEPEST} brackets are open in line {line} of {file}")));
        }
    }
    Ok(())
}

/// `figment` with one key set. Figment knows no keys within lists, so a list that the key leads into is changed as a whole.
fn set(figment: Figment, key: &str, value: serde_json::Value) -> Result<Figment, ConfigError> {
    let ends = key.match_indices('.').map(|(at, _)| at);
    for (prefix, rest) in ends.map(|at| (&key[..at], &key[at + 1..])) {
        let Ok(found @ figment::value::Value::Array(..)) = figment.find_value(prefix) else { continue };
        let mut list = serde_json::to_value(&found).unwrap_or_default();
        set_within(&mut list, rest, value)
            .map_err(|reason| ConfigError::Value(format!("`--set {key}`: `{prefix}` {reason}")))?;
        return Ok(figment.merge(Serialized::default(prefix, list)));
    }
    Ok(figment.merge(Serialized::default(key, value)))
}

fn set_within(at: &mut serde_json::Value, key: &str, value: serde_json::Value) -> Result<(), String> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let next = match at {
        serde_json::Value::Array(items) => {
            let named = items.iter().position(|item| item.get("name").is_some_and(|name| name == first));
            let index = named.or_else(|| first.parse().ok().filter(|index| *index < items.len()));
            let count = items.len();
            index.and_then(|index| items.get_mut(index)).ok_or_else(|| {
                format!(
                    "has {count} elements, and none of them is `{first}`: call one by its `name` or its number from 0"
                )
            })?
        }
        serde_json::Value::Object(fields) => fields.entry(first).or_insert(serde_json::Value::Null),
        other => {
            *other = serde_json::json!({ first: null });
            &mut other[first]
        }
    };
    match rest {
        Some(rest) => set_within(next, rest, value),
        None => {
            *next = value;
            Ok(())
        }
    }
}

/// A YAML file whose merge keys (`<<: *anchor`) are understood, which figment's own reader leaves as they are.
struct YamlFile<'a>(&'a Path);

impl Provider for YamlFile<'_> {
    fn metadata(&self) -> Metadata {
        Yaml::file_exact(self.0).metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let parsed = std::fs::read_to_string(self.0).ok().and_then(|text| serde_yaml::from_str(&text).ok());
        let merged = parsed.and_then(|mut value: serde_yaml::Value| {
            value.apply_merge().ok()?;
            // An empty file is one without keys.
            value.as_mapping()?;
            serde_yaml::to_string(&value).ok()
        });
        match merged {
            Some(text) => Yaml::string(&text).data(),
            // What is wrong with it is best said by the reader of the file itself.
            None => Yaml::file_exact(self.0).data(),
        }
    }
}

/// A figment error as one sentence that names key, problem and place.
pub(crate) fn sentence(error: &figment::Error) -> String {
    let mut key = error.path.join(".");
    let mut problem = error.kind.to_string();
    if let figment::error::Kind::UnknownField(field, known) = &error.kind {
        if !key.ends_with(field.as_str()) {
            key = if key.is_empty() { field.clone() } else { format!("{key}.{field}") };
        }
        problem = format!("there is no such key; the keys here are {}", known.join(", "));
    }
    let place = error.metadata.as_ref().map(|m| match &m.source {
        Some(figment::Source::File(path)) => format!(" (in {})", path.display()),
        // Values that come from code are those of `--set`.
        Some(_) => " (in --set)".to_owned(),
        None => format!(" (in {})", m.name),
    });
    let key = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
    format!("{key}{problem}{}", place.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::loader::Workers;

    fn load(yaml: &str, settings: &[&str]) -> Result<Experiment, ConfigError> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("test.yaml");
        std::fs::write(&file, yaml).expect("written");
        Experiment::load(Some(&file), &settings.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn layers_override_each_other_and_the_rest_is_default() {
        let yaml =
            "train: {max_steps: 5, optimizer: {lr: 1.0e-2, warmup_steps: 1}}\ndata: {train: {cw: {text: {cqww: 1.0}}}}";
        let experiment = load(yaml, &["train.max_steps=7", "data.workers=3", "model.path=some/dir"]).expect("loaded");
        assert_eq!(experiment.train.max_steps, Some(7));
        assert_eq!(experiment.train.optimizer.lr, 1e-2);
        assert_eq!(experiment.data.workers, Workers::Count(3));
        assert_eq!(experiment.model.path, Some("some/dir".into()));
        let text = &experiment.data.train.0[0].cw.text;
        assert_eq!((text.cqww, text.words), (1.0, 0.0), "naming one kind of text leaves the others out");
    }

    #[test]
    fn judged_by_what_is_written_unless_something_else_is_said() {
        let judged = |yaml: &str, settings: &[&str]| {
            let train = load(yaml, settings).expect(yaml).train;
            (train.evaluate.metrics, train.checkpoint.metric)
        };
        let (usual, words) = (vec!["cer".to_owned(), "wer".to_owned()], vec!["wer".to_owned()]);
        for yaml in ["", "train: {}", "train: {max_steps: 500, evaluate: {every: 5}, checkpoint: {every: 5}}"] {
            assert_eq!(judged(yaml, &[]), (usual.clone(), "cer".into()), "{yaml}");
        }
        assert_eq!(judged("train: {evaluate: {every: 5}}", &["train.checkpoint.metric=wer"]), (usual, "wer".into()));
        let of_words = (words, "wer".into());
        assert_eq!(judged("train: {evaluate: {metrics: [wer]}, checkpoint: {metric: wer}}", &[]), of_words);
        assert_eq!(judged("", &["train.evaluate.metrics=[wer]", "train.checkpoint.metric=wer"]), of_words);
        for (settings, culprit) in [
            (vec!["train.evaluate.metrics=[wer]"], "`train.checkpoint.metric` is `cer`"),
            (vec!["train.evaluate.metrics=[]"], "`train.evaluate.metrics` is `empty`: name at least one metric"),
            (vec!["train.evaluate.metrics=[]", "train.checkpoint.metric=loss"], "name at least one metric"),
        ] {
            let error = load("", &settings).expect_err(culprit).to_string();
            assert!(error.contains(culprit), "{error}");
        }
        // Parts of a run overlay what holds for the whole.
        let parts = "{1: {train: {evaluate: {every: 7}}}}";
        let tasks = load(&format!("{TASKS}phases: {parts}"), &[]).expect("loaded");
        assert_eq!(tasks.train, load("train: {optimizer: {warmup_steps: 1}}", &[]).expect("loaded").train);
        assert_eq!(load(&tasks.to_yaml(), &[]), Ok(tasks));
    }

    #[test]
    fn elements_of_lists_are_set_by_name_or_number() {
        let yaml = "train: {max_steps: 5, optimizer: {warmup_steps: 1}}\ntasks: [{name: a, data: &d {train: {synth: cw}, valid: {synth: cw}}}, {name: b, data: *d}]";
        let settings = ["tasks.b.train.max_steps=7", "tasks.0.data.train={path: x.csv}", "tasks.1.lora.r=3"];
        let experiment = load(yaml, &settings).expect("loaded");
        assert_eq!(experiment.tasks[1].train["max_steps"], 7);
        assert_eq!(
            (experiment.tasks[0].data.train.0[0].path.clone(), experiment.tasks[0].train.len()),
            (Some(PathBuf::from("x.csv").into()), 0)
        );
        assert_eq!((experiment.tasks[1].lora.r, experiment.tasks[0].name.as_str()), (3, "a"));
        for (setting, culprit) in [("tasks.c.weight=2", "`c`"), ("tasks.2.weight=2", "`2`"), ("tasks.a.wait=2", "wait")]
        {
            let error = load(yaml, &[setting]).expect_err(setting).to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }

    #[test]
    fn resolved_yaml_reads_back_the_same() {
        let experiment = load("train: {max_steps: 5, optimizer: {warmup_steps: 1}}\ndata: {train: {samples: 3, stages: [{epochs: 2, cw: {wpm: [20, 25]}}]}}", &[]).expect("loaded");
        assert_eq!(load(&experiment.to_yaml(), &[]), Ok(experiment));
    }

    #[test]
    fn what_validation_is_may_be_left_unsaid_or_be_a_part_of_the_training_data() {
        let said = |settings: &[&str]| load("data: {train: {path: x.csv}}", settings).map(|e| e.data.valid);
        let path = |name: &str| Some(SourceConfig { path: Some(PathBuf::from(name).into()), ..Default::default() });
        assert_eq!(said(&["data.valid.path=y.csv"]), Ok(path("y.csv")));
        let part = load("data: {train: {path: x.csv}, valid: {part_of_train: 0.05}}", &[]).expect("loaded");
        assert_eq!(part.data.splits().sources(Split::Valid).expect("some")[0].to_string(), "x.csv (5 % of it)");
        assert_eq!(load(&part.to_yaml(), &[]), Ok(part));
        let unsaid = load("data: {train: {cw: {wpm: [20, 25]}}}", &[]).expect("loaded");
        assert_eq!(unsaid.data.valid, None);
        assert_eq!(unsaid.data.splits().sources(Split::Valid).expect("some")[0].cw.wpm, [20.0, 25.0]);
        assert_eq!(load(&unsaid.to_yaml(), &[]), Ok(unsaid));
        let fewer = load("", &["data.valid.samples=8"]).expect("loaded");
        assert_eq!(fewer.data.valid, Some(SourceConfig { samples: 8, ..Default::default() }));
    }

    const TASKS: &str = "train: {optimizer: {warmup_steps: 1}}\ntasks: [{name: a, data: &d {train: {synth: cw}, valid: {synth: cw}}}, {name: b, data: *d}]\n";

    #[test]
    fn tasks_are_judged_as_other_runs_are() {
        let experiment = load(&TASKS.replace(", valid: {synth: cw}", ""), &[]).expect("other samples");
        assert_eq!(experiment.tasks[0].data.splits().sources(Split::Valid).expect("some")[0].samples, 64);
        for (valid, culprits) in [("", ["`data.valid`", "part_of_train"]), (", valid: {}", ["`data.valid`", "no data"])]
        {
            let yaml = TASKS.replace("{synth: cw}, valid: {synth: cw}", &format!("{{path: x.csv}}{valid}"));
            let error = load(&yaml, &[]).expect_err("refused").to_string();
            assert!(error.starts_with("task `a`") && culprits.iter().all(|it| error.contains(it)), "{error}");
        }
        let yaml = TASKS
            .replace("valid: {synth: cw}", "valid: {part_of_train: 0.1}")
            .replace("train: {synth: cw}", "train: {path: x.csv}");
        let part = load(&yaml, &[]).expect("loaded");
        assert_eq!(load(&part.to_yaml(), &[]), Ok(part.clone()));
        // What was saved by versions that had a default for the validation of runs without tasks.
        let earlier = Experiment {
            data: DataConfig { valid: Some(SourceConfig { samples: 64, ..Default::default() }), ..part.data.clone() },
            ..part
        };
        assert_eq!(earlier.validate(), Ok(()));
    }

    #[test]
    fn settings_that_nothing_reads_are_refused() {
        for (more, culprit) in [
            ("router: {top_k: 1}", "`router.top_k`"),
            ("router: {hidden: [], dropout: 0.2}", "`router.dropout`"),
            ("phases: {2: {gates: hard}}", "`phases.2.gates`"),
            ("phases: {3: {gates: soft, gumbel: {floor: 0.2}}}", "`phases.3.gumbel`"),
            ("phases: {2: {gates: gumbel}, 3: {gates: soft, gumbel: {floor: 0.2}}}", "`phases.2.gates`"),
            (
                "router: {learn_temperature: false}\nphases: {3: {losses: {temperature: 1}}}",
                "`phases.3.losses.temperature`",
            ),
            ("phases: {3: {train: {loss_scale: {initial: 2}}}}", "`train.loss_scale.initial`"),
        ] {
            let error = load(&format!("{TASKS}{more}"), &[]).expect_err(more).to_string();
            assert!(error.contains(culprit), "{error}");
        }
        for more in [
            "router: {top_k: 1, gates: top_k}",
            "router: {top_k: 1}\nphases: {3: {gates: top_k}}",
            "phases: {3: {gumbel: {floor: 0.2}}}",
            "phases: {2: {gates: gumbel, losses: {task: 1}}, 3: {gates: soft, gumbel: {floor: 0.2}}}",
            "phases: {2: {train: {compute: f32}}, 3: {train: {compute: f16, loss_scale: {initial: 2}}}}",
        ] {
            let experiment = load(&format!("{TASKS}{more}"), &[]).expect(more);
            assert_eq!(load(&experiment.to_yaml(), &[]), Ok(experiment));
        }
    }

    #[test]
    fn a_file_of_brackets_is_refused_at_once() {
        for open in ["[", "{a: ", "a: [b, {c: "] {
            let begun = std::time::Instant::now();
            let error = load(&format!("train:\n  {}", open.repeat(100_000)), &[]).expect_err(open).to_string();
            assert!(error.contains("line 2 of") && error.contains("test.yaml"), "{error}");
            assert!(begun.elapsed().as_secs() < 5);
        }
    }

    #[test]
    fn refusals_name_the_key_and_the_place() {
        for (yaml, settings, culprits) in [
            ("trian: {max_steps: 5}", vec![], vec!["trian", "test.yaml"]),
            ("train: {max_stepz: 5}", vec![], vec!["train.max_stepz", "test.yaml"]),
            ("train: {max_steps: many}", vec![], vec!["train.max_steps", "test.yaml"]),
            ("train: {compute: f12}", vec![], vec!["train.compute", "f12"]),
            ("train: [", vec![], vec!["test.yaml"]),
            ("device: gpu", vec![], vec!["device", "gpu"]),
            ("data: {train: {cw: {snr_db: [10]}}}", vec![], vec!["data.train.cw.snr_db"]),
            ("data: {train: {cw: {wpm: [30, 10]}}}", vec![], vec!["data.train", "wpm"]),
            (
                "data: {train: {stages: [{epochs: 1, cw: {wpn: [1, 2]}}]}}",
                vec![],
                vec!["data.train", "stages[0]", "wpn"],
            ),
            ("data: {augment: {noise: {p: 1}}}", vec![], vec!["data.augment", "recordings"]),
            ("data: {cache: {what: audio}}", vec![], vec!["data.cache", "recordings"]),
            ("data: {cache: {dir: kept}}", vec![], vec!["`data.cache.dir`", "`data.cache.what` is off"]),
            ("loss: {alignment: {elements_layer: 1}}", vec![], vec!["`loss.alignment.elements_layer`", "elements`"]),
            ("data: {train: {path: x.csv}}", vec![], vec!["`data.valid`", "`path`", "`part:`", "part_of_train: 0.05"]),
            ("data: {train: [{path: x.csv}, {synth: cw}]}", vec![], vec!["`data.valid`", "part_of_train: 0.05"]),
            ("data: {train: {path: x.csv}, valid: {samples: 8}}", vec![], vec!["`data.valid`", "synth: cw"]),
            ("data: {valid: {part_of_train: 0.1}}", vec![], vec!["`data.valid`", "part_of_train", "recordings"]),
            ("data: {pack: true}", vec![], vec!["data.pack"]),
            (
                "data: {pack: true, previous_text: 1, train: {path: x}, valid: {path: y}}",
                vec![],
                vec!["data.pack", "data.previous_text"],
            ),
            ("data: {group_by_length: true, valid: {path: x.csv}}", vec![], vec!["data.group_by_length"]),
            ("data: {max_bad_share: 0.1, train: {path: x.csv}}", vec![], vec!["data.max_bad_share", "on_bad_sample"]),
            ("data: {spellings: x.json}", vec![], vec!["data.spellings", "data.normalizer"]),
            ("data: {normalizer: english, spellings: x.json}", vec![], vec!["data.spellings", "`x.json`"]),
            ("run: {name: a/b}", vec![], vec!["run.name"]),
            ("data: {valid: {synth: cw, path: x.csv}}", vec![], vec!["data.valid", "synth"]),
            ("train: {evaluate: {metrics: [bleu]}, checkpoint: {metric: bleu}}", vec![], vec!["bleu"]),
            ("", vec!["train.max_steps"], vec!["--set train.max_steps"]),
            ("", vec!["train.no_such=1"], vec!["train.no_such", "--set"]),
        ] {
            let error = load(yaml, &settings).expect_err(yaml).to_string();
            for culprit in culprits {
                assert!(error.contains(culprit), "{error:?} does not name {culprit}");
            }
            assert!(!error.contains('\n'), "{error:?} is more than a sentence");
        }
        assert!(matches!(Experiment::load(Some(Path::new("no/such.yaml")), &[]), Err(ConfigError::NoFile(_))));
    }
}
