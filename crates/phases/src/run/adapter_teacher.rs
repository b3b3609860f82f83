//! Adapters of a run as the teacher of a single one.

use super::modality::EncodedBatch;
use super::model::{Tapped, TaskModel};
use super::teacher::{Lesson, Teacher, plain};
use crate::backbone::SpeechBackbone;
use crate::config::{AdapterTeacher, TaskConfig};
use burn::module::Module;
use undertone_ops::Taught;
use undertone_train::BoxError;

/// Trained adapters and heads of a run with tasks. Each teaches the samples of its own task, from the states at the tap, which
/// are the student's as well.
pub(super) struct TrainedAdapters {
    model: TaskModel,
    speech: SpeechBackbone,
    tasks: Vec<TaskConfig>,
    config: AdapterTeacher,
}

impl TrainedAdapters {
    /// Returns the teacher with the adapters and heads of `model`, one of each for each of `tasks`.
    pub fn new(model: TaskModel, speech: SpeechBackbone, tasks: Vec<TaskConfig>, config: AdapterTeacher) -> Self {
        Self { model: model.no_grad(), speech, tasks, config }
    }
}

impl Teacher for TrainedAdapters {
    fn weight(&self) -> f64 {
        self.config.weight
    }

    fn reads_input(&self) -> bool {
        false
    }

    fn flops(&self, frames: usize, tokens: usize) -> f64 {
        self.model.backbone.forward_flops(frames, tokens)
    }

    fn taught(&self, Lesson { batch, tapped, .. }: Lesson) -> Result<Taught, BoxError> {
        let tapped = Tapped { states: plain(tapped.states.clone()), padding: tapped.padding.clone().inner() };
        let gates = self.model.oracle(&batch.tasks, &tapped.states.device());
        let states = self.model.encode(&tapped, gates.as_ref()).states;
        let (model, tasks, padding) = (&self.model, self.tasks.as_slice(), &tapped.padding);
        let [states, weight] = self.speech.predictions(EncodedBatch { model, tasks, batch, states, padding, gates })?;
        let AdapterTeacher { temperature, weight: weight_of_divergence, .. } = self.config;
        Ok(Taught { states, weight, temperature, weight_of_divergence })
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase::{Baseline, Phase};
    use super::super::setup::Setup;
    use super::super::spec::{StageSpec, stages};
    use super::super::stages::{train_baseline, train_phases};
    use super::super::toys::recordings;
    use super::*;
    use crate::{Experiment, RunError, Session};
    use std::path::Path;
    use undertone_train::{Batches, Objective};

    /// Experiment with two tasks on three recordings, which differ in what is to be written.
    fn experiment(dir: &Path) -> Experiment {
        recordings(dir, "a", &["E", "ET", "EEE"]);
        recordings(dir, "b", &["5", "55", "0"]);
        let dir = dir.display();
        let task = |name: &str| {
            format!(
                "{{name: {name}, lora: {{r: 2, target_modules: [q_proj]}}, metrics: [loss], \
                 data: {{train: {{path: {dir}/{name}.csv}}, valid: {{path: {dir}/{name}.csv}}}}}}"
            )
        };
        let yaml = format!(
            "run: {{name: two, dir: {dir}}}\ndevice: cpu\ndata: {{batch_size: 6, workers: 1}}\n\
             tasks: [{}, {}]\nrouter: {{tap: 1}}\n\
             train: {{max_steps: 8, optimizer: {{lr: 0.03, warmup_steps: 1}}, evaluate: {{every: 4}}}}\n\
             phases: {{baselines: {{teacher: {{phase: 1, weight: 0.5}}}}}}\n",
            task("a"),
            task("b")
        );
        serde_norway::from_str(&yaml).expect("an experiment")
    }

    /// Returns the names of the loss terms of the stage's first batch, with their weights and the sums of `model`.
    fn losses(stage: &StageSpec, setup: &Setup, model: TaskModel) -> Vec<(String, f64, f32)> {
        let (config, _) = stage.planned(setup).expect("planned");
        let objective = stage.objective(setup).expect("an objective");
        let (_, mut batch) =
            stage.batches(setup, &config).expect("batches").epoch(0, 0).next().expect("a batch").expect("read");
        let device = setup.device.clone().autodiff();
        let input = objective.upload(&mut batch, &device).expect("uploaded");
        let sums = objective.losses(&model.train(), &batch, input, &device).expect("losses");
        let terms = objective.loss_terms(&batch).into_iter().map(|term| {
            let (_, sum) = sums.iter().find(|(name, _)| *name == term.name).expect("its sum");
            (term.name.into_owned(), term.weight, sum.clone().into_scalar())
        });
        terms.collect()
    }

    #[test]
    fn each_sample_is_taught_by_the_adapter_and_the_head_of_its_task() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = experiment(dir.path());
        let early = train_baseline(&experiment, Baseline::Distilled, &Session::default());
        assert!(matches!(early, Err(RunError::NoTeacher { phase: 1, .. })), "{early:?}");
        train_phases(&experiment, &[Phase::Adapters], &Session::default()).expect("phase 1");
        let setup = Setup::new(&experiment).expect("a setup");
        let stage = stages(&experiment, Baseline::Distilled).remove(0);
        let untaught = losses(&stage, &setup, stage.model(&setup).expect("a model"));
        let named: Vec<(&str, f64)> = untaught.iter().map(|(name, weight, _)| (name.as_str(), *weight)).collect();
        assert_eq!(named, [("a", 1.0), ("b", 1.0), ("a.distillation", 0.5), ("b.distillation", 0.5)]);
        let of_teacher = stages(&experiment, Phase::Router).remove(0).model(&setup).expect("a model");
        let own = losses(&stage, &setup, of_teacher);
        for ((name, _, untaught), (_, _, own)) in untaught.iter().zip(&own).skip(2) {
            assert!(own.abs() < 1e-3 && *untaught > 0.1, "{name}: {untaught}, and the teacher's own {own}");
        }
        let trained = train_baseline(&experiment, Baseline::Distilled, &Session::default()).expect("trained");
        assert!(trained[0].directory.join("best/adapters/shared").is_dir());
    }
}
