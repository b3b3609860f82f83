//! A stage made ready: its model, its training configuration, its batches and its objective.

use super::adapter_teacher::TrainedAdapters;
use super::batch::TaskDataset;
use super::evaluator::Evaluator;
use super::folder::{AdapterDescription, Description, load_backbone, load_parts, load_router};
use super::model::TaskModel;
use super::objective::{StageBatches, TaskObjective};
use super::order::TaskOrder;
use super::phase::Phase;
use super::setup::Setup;
use super::spec::{Layout, SampleOrder, StageSpec, stages};
use super::teacher::Teacher;
use super::words;
use crate::backbone::SpeechBackbone;
use crate::config::AdapterTeacher;
use crate::skipped::SkipRecord;
use crate::{ConfigError, LossConfig, RunError, Split};
use burn::module::Module;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use undertone_data::loader::Order;
use undertone_metrics::{Direction, direction_of};
use undertone_model::adapters::AdapterConfig;
use undertone_store::parameter_infos;
use undertone_tasks::HeadConfig;
use undertone_train::{Checkpoints, LrScalingConfig, OptimizerConfig, Summary, TrainConfig};

const NOT_TAUGHT: &str =
    "the baseline `distilled` is for Whisper, whose decoder predicts token by token: train `--baseline shared`";

impl StageSpec {
    /// Returns its training configuration.
    pub(super) fn config(&self, setup: &Setup) -> Result<TrainConfig, RunError> {
        let steps = match self.steps_of_adapters {
            true => Some(steps_of_adapters(setup)?),
            false => None,
        };
        Ok(self.train_config(&setup.experiment.train, steps)?)
    }

    /// Direction of a metric of its tasks; lower is better if it is unknown.
    pub fn direction(&self, metric: &str) -> Direction {
        // Names of metrics may begin with that of a task.
        let name = metric.rsplit_once('.').map_or(metric, |(_, name)| name);
        let of_task = self.tasks.iter().find_map(|task| task.head.direction(name));
        of_task.or_else(|| direction_of(name)).unwrap_or(Direction::Lower)
    }

    /// Returns its training configuration and the number of its steps.
    pub(crate) fn planned(&self, setup: &Setup) -> Result<(TrainConfig, u64), RunError> {
        let config = self.config(setup)?;
        let steps = self.steps(setup, &config)?;
        Ok((config, steps))
    }

    /// Returns the number of steps of its training configuration `config`.
    fn steps(&self, setup: &Setup, config: &TrainConfig) -> Result<u64, RunError> {
        let samples = setup.dataset(&self.tasks, Split::Train)?.lengths();
        let batches = TaskOrder::new(samples, &setup.training_loader()).batches();
        Ok(config.steps_of_windows(self.window(setup, config), |_| batches))
    }

    /// Number of batches of an optimizer step over all ranks. A run that is resumed keeps the number that it began with.
    pub(super) fn window(&self, setup: &Setup, config: &TrainConfig) -> usize {
        let begun = Checkpoints::new(self.directory.join("checkpoints"));
        let begun = if setup.resumes { begun.ranks() } else { None };
        config.accumulation * begun.unwrap_or(setup.process_group.count())
    }

    /// Whether it has taken all steps of the current configuration, or stopped early.
    pub(super) fn is_finished(&self, setup: &Setup) -> Result<bool, RunError> {
        let Some(summary) = Summary::read(&self.directory) else { return Ok(false) };
        let config = self.config(setup)?;
        Ok(summary.is_finished(&config, self.steps(setup, &config)?))
    }

    /// Whether its `summary.json` says that it is complete.
    pub(super) fn is_complete(&self) -> bool {
        let summary = std::fs::read_to_string(self.directory.join("summary.json")).ok();
        let summary = summary.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        summary.and_then(|summary| summary.get("completed")?.as_bool()).unwrap_or(false)
    }

    /// Returns the folder of its best model, or of the best average of its weights.
    pub(super) fn best(&self) -> PathBuf {
        let folder = if self.is_average { "best_ema" } else { "best" };
        self.replaced_by.as_ref().map_or_else(|| self.directory.join(folder), |replaced| replaced.path().to_owned())
    }

    /// Checks that its parameter groups match parameters of its model.
    pub(super) fn check_optimizer(&self, setup: &Setup) -> Result<(), RunError> {
        // The factor of the learning rate is known only once there are batches.
        let optimizer = OptimizerConfig { lr_scaling: LrScalingConfig::None, ..self.optimizer(&self.config(setup)?) };
        if optimizer.groups.is_empty() && optimizer.lora_plus_ratio.is_none() {
            return Ok(());
        }
        let model = self.untrained(setup)?.train();
        optimizer.check(&parameter_infos(&model)).map_err(|error| {
            ConfigError::Value(format!("{}: {error}; a phase has its own in `phases.N.train.optimizer`", self.title))
                .into()
        })
    }

    /// Returns its initial model, with trained parameters marked.
    pub(super) fn model(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        let mut model = self.fresh(setup)?;
        let before = self.starts_from.map_or(Vec::new(), |phase| stages(&setup.experiment, phase));
        for (slot, task) in self.tasks.iter().enumerate() {
            if let Some(origin) = before.iter().find(|stage| stage.tasks.contains(task)) {
                load_parts(&mut model, &self.description.only(slot), slot, &origin.best(), || {
                    setup.backbone_checksum()
                })?;
            }
        }
        if let Some(origin) = before.iter().find(|stage| stage.is_routed()) {
            load_router(&mut model, &self.description, &origin.best())?;
        }
        Ok(self.marked(model))
    }

    /// Returns a model with the structure of its initial one, without any trained parts.
    pub(super) fn untrained(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        Ok(self.marked(self.fresh(setup)?))
    }

    /// Loads its best model. In the layout of a whole model, that is what `setup` has loaded.
    pub(super) fn best_model(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        if self.layout == Layout::Model {
            return Ok(TaskModel::plain(setup.pretrained.network()));
        }
        let (mut model, best) = (self.fresh(setup)?, self.best());
        load_parts(&mut model, &self.description, 0, &best, || setup.backbone_checksum())?;
        if self.description.trained_backbone {
            load_backbone(&mut model, &best)?;
        }
        load_router(&mut model, &self.description, &best)?;
        let weight = setup.experiment.router.words;
        if weight > 0.0 && self.is_routed() {
            model = model.with_words(words::read(&self.directory, self.tasks.len())?, weight);
        }
        Ok(model)
    }

    /// Returns its model before any trained parts are loaded into it.
    fn fresh(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        let (alignment, device) = (&self.loss.alignment, &setup.device);
        let classes = if alignment.elements > 0.0 { setup.experiment.element_classes()? } else { 0 };
        let blank = blank(&self.loss, setup)?;
        let with_heads = |model: TaskModel| {
            let model = model.with_alignment(alignment, classes, device);
            match blank {
                Some(blank) => model.with_ctc(blank, device),
                None => model,
            }
        };
        if self.layout == Layout::Model {
            return Ok(with_heads(TaskModel::plain(setup.pretrained.network())));
        }
        let adapters: Vec<AdapterConfig> = self.description.adapters.iter().map(AdapterDescription::adapter).collect();
        let heads: Vec<&HeadConfig> = self.description.heads.iter().map(|head| &head.head).collect();
        let router = &self.description.router;
        let model = TaskModel::new(setup.pretrained.network(), &adapters, &heads, router.tap, device)
            .map_err(|source| RunError::Adapt { task: self.title.clone(), source })?;
        let model = if self.is_routed() { model.with_router(router, device) } else { model };
        // Neither a router nor alignment reads the states at the tap.
        let model = if heads.is_empty() && !alignment.is_on() { model.with_tap_below_adapters() } else { model };
        Ok(with_heads(model))
    }

    /// Returns `model` with its trained parameters marked.
    fn marked(&self, model: TaskModel) -> TaskModel {
        match self.layout {
            // It was marked when it was loaded.
            Layout::Model => model,
            Layout::Adapters => model.with_trained(self.trained),
        }
    }

    /// Returns its objective, with evaluation on the validation data of its tasks.
    pub(super) fn objective(&self, setup: &Setup) -> Result<TaskObjective, RunError> {
        Ok(TaskObjective {
            policy: self.policy,
            loss: self.loss.clone(),
            teacher: self.teacher(setup)?,
            valid: setup.evaluation_batches(&self.tasks, Split::Valid)?,
            evaluator: Evaluator { in_training: true, ..setup.evaluator(self.tasks.clone())? },
            description: (self.layout == Layout::Adapters).then(|| self.description_on(setup)),
        })
    }

    /// Returns the model that its own learns from, if there is one: trained adapters of the run, or that of `loss.distillation`.
    fn teacher(&self, setup: &Setup) -> Result<Option<Arc<dyn Teacher>>, RunError> {
        let Some(config) = self.teacher else {
            return Ok(setup.teacher()?.map(|teacher| teacher as Arc<dyn Teacher>));
        };
        let is_whisper = |speech: &&SpeechBackbone| speech.whisper().is_some();
        let speech = setup.pretrained.speech().filter(is_whisper).cloned();
        let speech = speech.ok_or_else(|| RunError::Setting(NOT_TAUGHT.into()))?;
        let taught_by = self.taught_by(setup, config)?;
        Ok(Some(Arc::new(TrainedAdapters::new(taught_by, speech, self.tasks.clone(), config))))
    }

    /// Loads the model with the run's own adapters and heads that teach this stage.
    fn taught_by(&self, setup: &Setup, AdapterTeacher { phase, .. }: AdapterTeacher) -> Result<TaskModel, RunError> {
        let experiment = &setup.experiment;
        let origin = if phase == 1 { Phase::Adapters } else { Phase::Joint };
        if let Some(unfinished) = stages(experiment, origin).into_iter().find(|stage| !stage.is_complete()) {
            return Err(RunError::NoTeacher { phase, directory: unfinished.directory });
        }
        match origin {
            // The second phase begins with the adapters of the first.
            Phase::Adapters => stages(experiment, Phase::Router).remove(0).model(setup),
            _ => stages(experiment, origin).remove(0).best_model(setup),
        }
    }

    /// Returns the description of its folder, with the checksum of the backbone that stays frozen.
    fn description_on(&self, setup: &Setup) -> Description {
        let is_frozen = !self.description.trained_backbone;
        let backbone_checksum = is_frozen.then(|| setup.backbone_checksum());
        Description { backbone_checksum, ..self.description.clone() }
    }

    /// Returns its training batches.
    pub(crate) fn batches(&self, setup: &Setup, config: &TrainConfig) -> Result<StageBatches, RunError> {
        let dataset = setup.dataset(&self.tasks, Split::Train)?;
        let order = self.sample_order(setup, &dataset, config)?;
        let loader = setup.training_batches(dataset, order)?;
        Ok(StageBatches::new(loader, config.accumulation, SkipRecord::new(&self.directory)))
    }

    /// Returns the order of its training samples; `None` for that of the loader.
    fn sample_order(
        &self,
        setup: &Setup,
        dataset: &TaskDataset,
        config: &TrainConfig,
    ) -> Result<Option<Box<dyn Order>>, RunError> {
        let SampleOrder::Tasks { temperature, curriculum } = self.order else {
            // The order of mixed sources, or of recordings in shards.
            let Some(samples) = dataset.tasks().first() else { return Ok(None) };
            return Ok(samples.order(&setup.experiment.data, setup.experiment.seed)?);
        };
        let mut order =
            TaskOrder::new(dataset.lengths(), &setup.training_loader()).with_accumulation(self.window(setup, config));
        if let Some(temperature) = temperature {
            order = order.with_temperature(temperature)?;
        }
        if let Some(curriculum) = curriculum {
            let batches = order.batches();
            order = order.with_curriculum(curriculum, config.steps_of_windows(self.window(setup, config), |_| batches));
        }
        Ok(Some(Box::new(order)))
    }
}

/// Returns the blank of a CTC loss on the encoder: the end token, which follows those of text. `None` without such a loss.
fn blank(loss: &LossConfig, setup: &Setup) -> Result<Option<usize>, RunError> {
    let speech = setup.pretrained.speech().filter(|_| loss.ctc > 0.0);
    let Some((speech, end)) = speech.and_then(|speech| Some((speech, speech.tokenizer.end()?))) else {
        return Ok(None);
    };
    if speech.whisper().is_some_and(|whisper| whisper.tokenizer.text_end() > end) {
        let reason = "`loss.ctc` takes the end token for its blank, and in this vocabulary tokens of text come after it: add special \
                      tokens after the training of a tokenizer, not before, or let `model.tokenizer` train one";
        return Err(RunError::Setting(reason.into()));
    }
    Ok(Some(end as usize))
}

/// Returns the number of steps that all stages of phase 1 take together.
fn steps_of_adapters(setup: &Setup) -> Result<u64, RunError> {
    let stages = stages(&setup.experiment, Phase::Adapters);
    stages.iter().try_fold(0, |steps, stage| Ok(steps + stage.steps(setup, &stage.config(setup)?)?))
}
