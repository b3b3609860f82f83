//! Evaluation of a model: of an experiment's initial one, of one that a stage trained, or of a run's tasks with a router.

use super::batch::TaskLoader;
use super::blend::mixed;
use super::choice::{Choice, root_of};
use super::evaluation_result::EvaluationResult;
use super::evaluator::RouterKind;
use super::merged::{is_stage, merged};
use super::model::TaskModel;
use super::newest::newest;
use super::setup::Setup;
use super::spec::StageSpec;
use super::stages::check_heads;
use crate::config::TaskConfig;
use crate::normalize::TextNormalizer;
use crate::{Experiment, LongAudio, ModelConfig, RunError, SourceConfig, SourceError, Split};
use std::path::Path;
use undertone_data::cache::{CacheConfig, CacheWhat};
use undertone_metrics::Direction;
use undertone_model::backbone::BoxedBackbone;
use undertone_train::{Exported, TrainError};

/// Model that is evaluated, with the configuration of its data.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Initial model of an experiment: without `tasks`, or as a [`rival`](Self::rival) without adapters.
    Initial(Box<Experiment>),
    /// Model of one stage for one task, without routing.
    Choice(Box<Choice>),
    /// Newest finished phase of a run with `tasks`.
    Tasks(Box<Experiment>, RouterKind),
}

/// Result of an evaluation, with its data.
pub struct Evaluated {
    /// Result.
    pub result: EvaluationResult,
    pub(super) data: TaskLoader,
    /// Optimizer step of the model, if it is that of one stage.
    pub(super) step: Option<u64>,
    /// Normalisation of its texts.
    pub(super) normalizer: TextNormalizer,
}

/// Evaluation of a model between a tuned one and the one that its training began with.
pub struct BlendResult {
    /// Share of the latter in the weights.
    pub share: f64,
    /// Result on the model's own data.
    pub task: EvaluationResult,
    /// Result on general data, if it was given.
    pub general: Option<EvaluationResult>,
}

/// Name of the model that a training began with, where another model is asked for.
const BASE: &str = "base";

impl Subject {
    /// Evaluates the model on a split of its data.
    ///
    /// # Errors
    /// When device, model or data are not available.
    pub fn evaluate(&self, split: Split) -> Result<Evaluated, RunError> {
        let setup = Setup::new(&self.backbone())?;
        let step = match self {
            Self::Choice(choice) => Exported::read(&choice.stage.best()).map(|exported| exported.step),
            Self::Initial(_) | Self::Tasks(..) => None,
        };
        let evaluated = self.evaluate_with(&setup, &self.model(&setup)?, self.tasks(), split, self.kind(), None)?;
        Ok(Evaluated { step, ..evaluated })
    }

    /// Finds another model to compare with, which can take as long as a download: `base`, the model that the training began with; or
    /// by its path a run or a stage; or a model as [`ModelConfig::named`] takes it.
    ///
    /// # Errors
    /// When there is no such model, or it cannot do the same.
    pub fn rival(&self, with: &Path) -> Result<Self, RunError> {
        let no_rival = |reason: &str| RunError::NoRival { with: with.display().to_string(), reason: reason.to_owned() };
        let own = self.experiment();
        if root_of(with).is_none() || !is_stage(with) {
            if own.model.backbone.is_text() {
                return Err(no_rival("a model of text answers with heads that were trained: name a run or a stage"));
            }
            let model = match (with == Path::new(BASE), self) {
                (true, Self::Initial(_)) => return Err(no_rival("it is that model: name another one")),
                (true, _) => own.model.clone(),
                (false, _) => ModelConfig::named(with),
            };
            if let Some(folder) = model.folder()?.filter(|folder| !folder.exists()) {
                return Err(SourceError::NoWhisper(folder).into());
            }
            return Ok(Self::Initial(Box::new(Experiment { model, ..own.clone() })));
        }
        match self {
            Self::Tasks(_, kind) => {
                let root = root_of(with).filter(|root| root == with);
                let root = root.ok_or_else(|| no_rival("it is a stage: name one with --run, too, or its run"))?;
                let other = Experiment::of_run(&root, &[])?;
                let names = |experiment: &Experiment| -> Vec<String> {
                    experiment.tasks.iter().map(|task| task.name.clone()).collect()
                };
                if names(&other) != names(own) {
                    return Err(no_rival("it has other tasks: name one of both with --task"));
                }
                check_labels(own.tasks.iter().zip(&other.tasks)).map_err(|reason| no_rival(&reason))?;
                Ok(Self::Tasks(Box::new(other), *kind))
            }
            Self::Choice(_) | Self::Initial(_) => {
                let label = self.tasks().into_iter().find_map(|task| task.label().map(str::to_owned));
                let has_tasks = super::merged::has_tasks(with);
                let choice = Choice::of(with, label.as_deref().filter(|_| has_tasks), &[])?;
                check_labels(self.tasks().iter().zip(&choice.tasks())).map_err(|reason| no_rival(&reason))?;
                Ok(Self::Choice(Box::new(choice)))
            }
        }
    }

    /// Evaluates another model on the data, metrics and normalisation of `first`, the evaluation of this one.
    ///
    /// # Errors
    /// As for [`evaluate`](Self::evaluate).
    pub fn evaluate_rival(&self, first: &Evaluated, rival: &Self, split: Split) -> Result<Evaluated, RunError> {
        let setup = Setup::new(&self.with_own_data(&rival.backbone()))?;
        let tasks = match rival {
            Self::Initial(_) => self.tasks(),
            Self::Choice(_) | Self::Tasks(..) => self.with_own_metrics(rival.tasks()),
        };
        self.evaluate_with(&setup, &rival.model(&setup)?, tasks, split, rival.kind(), Some(&first.normalizer))
    }

    /// Evaluates models between this one and the one that its training began with, of which they have `shares`, on a split of
    /// its data, and on `general` data, given as for [`test_on`](Self::test_on). `found` is called with each result.
    ///
    /// # Errors
    /// When it is no Whisper that a run without tasks has trained, or as for [`evaluate`](Self::evaluate).
    pub fn evaluate_blends(
        &self,
        shares: &[f64],
        split: Split,
        general: Option<&str>,
        mut found: impl FnMut(BlendResult),
    ) -> Result<(), RunError> {
        let Self::Choice(choice) = self else { return Err(RunError::NoBlend) };
        if !choice.experiment.tasks.is_empty() {
            return Err(RunError::NoBlend);
        }
        let setup = Setup::new(&choice.backbone())?;
        let tuned = merged(choice, &setup.device)?.model;
        let base = choice.experiment.model.load(&setup.device, choice.experiment.seed)?.model;
        let general = general.map(|data| {
            let mut subject = self.clone();
            subject.test_on(data).map(|()| subject)
        });
        let general = general.transpose()?;
        let general_setup = general.as_ref().map(|subject| Setup::new(&subject.with_own_data(&choice.backbone())));
        let general_setup = general_setup.transpose()?;
        for share in shares {
            let whisper = mixed(tuned.clone(), &base, *share)
                .map_err(|source| RunError::Blend { with: BASE.to_owned(), source })?;
            let model = TaskModel::plain(BoxedBackbone::new("Whisper", whisper));
            let evaluate = |subject: &Self, setup: &Setup, split| {
                subject.evaluate_with(setup, &model, subject.tasks(), split, RouterKind::Oracle, None)
            };
            let task = evaluate(self, &setup, split)?.result;
            let general = match (&general, &general_setup) {
                (Some(subject), Some(setup)) => Some(evaluate(subject, setup, Split::Test)?.result),
                _ => None,
            };
            found(BlendResult { share: *share, task, general });
        }
        Ok(())
    }

    /// Direction of a metric of its tasks; lower is better if it is unknown.
    pub fn direction(&self, metric: &str) -> Direction {
        match self {
            Self::Choice(choice) => choice.stage.direction(metric),
            Self::Initial(experiment) | Self::Tasks(experiment, _) => StageSpec::first(experiment).direction(metric),
        }
    }

    /// Replaces its test data by a source: the path of a manifest or a folder, or a source as in a configuration, such as
    /// `{path: general.csv, columns: {text: said}}`.
    ///
    /// # Errors
    /// When it is none, or when the model has several tasks, of which each has data of its own.
    pub fn test_on(&mut self, data: &str) -> Result<(), RunError> {
        let refused = |reason: String| RunError::EvaluationData { data: data.to_owned(), reason };
        if matches!(self, Self::Tasks(..)) {
            return Err(refused("every task has data of its own: name one with --task".into()));
        }
        if data.trim_start().starts_with('[') {
            return Err(refused("it is one source: read several files as `{path: [one.csv, other.csv]}`".into()));
        }
        let source = match data.trim_start().starts_with('{') {
            true => serde_norway::from_str(data).map_err(|error| refused(error.to_string()))?,
            false => SourceConfig::files(Path::new(data).to_path_buf()),
        };
        let is_text = self.experiment().model.backbone.is_text();
        let valid = if is_text { source.validate_text() } else { source.validate_speech(false) };
        valid.map_err(refused)?;
        let experiment = self.experiment_mut();
        let task_data = experiment.tasks.iter_mut().map(|task| &mut task.data.test);
        task_data.chain([&mut experiment.data.test]).for_each(|test| *test = Some(source.clone()));
        Ok(())
    }

    /// Lets its samples keep these columns of their lists, for [`EvaluationResult::groups`].
    pub fn keep(&mut self, columns: &[String]) {
        keep(self.experiment_mut(), columns);
    }

    /// Returns the configuration of its data.
    pub fn experiment(&self) -> &Experiment {
        match self {
            Self::Initial(experiment) | Self::Tasks(experiment, _) => experiment,
            Self::Choice(choice) => &choice.experiment,
        }
    }

    fn experiment_mut(&mut self) -> &mut Experiment {
        match self {
            Self::Initial(experiment) | Self::Tasks(experiment, _) => experiment,
            Self::Choice(choice) => &mut choice.experiment,
        }
    }

    /// Returns the configuration that its backbone is loaded by.
    fn backbone(&self) -> Experiment {
        match self {
            Self::Choice(choice) => choice.backbone(),
            Self::Initial(experiment) | Self::Tasks(experiment, _) => (**experiment).clone(),
        }
    }

    /// Returns the model on the backbone of `setup`.
    fn model(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        match self {
            Self::Initial(_) => Ok(TaskModel::plain(setup.pretrained.network())),
            Self::Choice(choice) => choice.model(setup),
            Self::Tasks(_, kind) => routed(setup, *kind),
        }
    }

    /// Returns the router that it is evaluated with. Where there is none, it makes no difference.
    fn kind(&self) -> RouterKind {
        match self {
            Self::Tasks(_, kind) => *kind,
            Self::Initial(_) | Self::Choice(_) => RouterKind::Oracle,
        }
    }

    /// Returns the tasks that it is evaluated on.
    fn tasks(&self) -> Vec<TaskConfig> {
        match self {
            Self::Choice(choice) => choice.tasks(),
            Self::Initial(_) | Self::Tasks(..) => self.experiment().all_tasks(),
        }
    }

    /// Returns another experiment with this one's data, device and seed.
    fn with_own_data(&self, other: &Experiment) -> Experiment {
        let Experiment { seed, device, kernels, mut data, .. } = self.experiment().clone();
        // What is kept belongs to the encoder of this model, and the other one may have trained its own.
        if data.cache.what() == CacheWhat::Encoder {
            data.cache = CacheConfig::default();
        }
        Experiment { seed, device, kernels, data, ..other.clone() }
    }

    /// Returns tasks of another experiment, in the order of this one's, with this one's metrics.
    fn with_own_metrics(&self, others: Vec<TaskConfig>) -> Vec<TaskConfig> {
        let own = self.tasks().into_iter().map(|task| task.metrics());
        others.into_iter().zip(own).map(|(task, metrics)| TaskConfig { metrics, ..task }).collect()
    }

    /// Evaluates a model on its data. `setup` has the backbone of the model, and `tasks` have its heads. Texts are normalised as the
    /// model's are, if `normalizer` is not given.
    fn evaluate_with(
        &self,
        setup: &Setup,
        model: &TaskModel,
        tasks: Vec<TaskConfig>,
        split: Split,
        kind: RouterKind,
        normalizer: Option<&TextNormalizer>,
    ) -> Result<Evaluated, RunError> {
        // Long recordings are aligned by the initial model, as in training, so that the evaluated model does not affect
        // the data that it is evaluated on.
        let (own, experiment) = (self.tasks(), self.experiment());
        check_heads(setup, &own)?;
        let is_aligned_by_another =
            experiment.data.long_audio == LongAudio::Align && setup.experiment.model != experiment.model;
        let data = match is_aligned_by_another {
            true => Setup::new(experiment)?.evaluation_batches(&own, split)?,
            false => setup.evaluation_batches(&own, split)?,
        };
        let mut evaluator = setup.evaluator(tasks)?;
        if let Some(normalizer) = normalizer {
            evaluator.normalizer = normalizer.clone();
        }
        evaluator.remark().inspect(|remark| tracing::info!("{remark}"));
        let mut result = evaluator.evaluate(model, &data, kind).map_err(TrainError::Data)?;
        result.describe(data.dataset());
        Ok(Evaluated { result, data, step: None, normalizer: evaluator.normalizer })
    }
}

/// Returns the newest model of a run with tasks, which has a router if this kind needs one.
pub(super) fn routed(setup: &Setup, kind: RouterKind) -> Result<TaskModel, RunError> {
    let (_, model) = newest(setup)?;
    if kind == RouterKind::Learned && model.router.is_none() {
        return Err(RunError::NoRouter(setup.experiment.directory()));
    }
    Ok(model)
}

/// Lets the samples of an experiment keep columns of their lists.
pub(super) fn keep(experiment: &mut Experiment, columns: &[String]) {
    let Experiment { data, tasks, .. } = experiment;
    let tasks = tasks.iter_mut().map(|task| (&mut task.data.train, &mut task.data.valid, &mut task.data.test));
    for (train, valid, test) in tasks.chain([(&mut data.train, &mut data.valid, &mut data.test)]) {
        let sources = train.0.iter_mut().chain(valid).chain(test);
        sources.filter_map(SourceConfig::selection_mut).for_each(|selection| selection.keep = columns.to_vec());
    }
}

/// Refuses a task of another model whose head has other labels: an answer is a place in its list.
fn check_labels<'a>(pairs: impl IntoIterator<Item = (&'a TaskConfig, &'a TaskConfig)>) -> Result<(), String> {
    let labels = |task: &TaskConfig| serde_json::to_value(&task.head).ok().and_then(|head| head.get("labels").cloned());
    match pairs.into_iter().find(|(own, other)| labels(own) != labels(other)) {
        Some((own, _)) => Err(format!("its labels for `{}` are others, or in another order", own.name)),
        None => Ok(()),
    }
}
