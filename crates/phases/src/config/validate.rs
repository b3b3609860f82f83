//! Validation of a configuration that needs neither data nor a model.

use super::splits::Splits;
use super::task_rules::{validate_phases, validate_tasks};
use super::{ConfigError, Experiment, Pad, PhasesConfig, SourceConfig, Split, Synth};
use undertone_cw::CwTask;
use undertone_model::router::{GateKind, RouterConfig};
use undertone_tasks::HeadConfig;

impl Experiment {
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
        let registered: Vec<&str> = HeadConfig::default().registered_metrics().iter().map(|m| m.name).collect();
        for metric in &self.train.evaluate.metrics {
            if !["cer", "wer", "loss"].contains(&metric.as_str()) && !registered.contains(&metric.as_str()) {
                let more: String = registered.iter().map(|name| format!(", and registered {name}")).collect();
                return value(format!(
                    "`train.evaluate.metrics` has `{metric}`: the metrics are cer, wer and loss{more}"
                ));
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

    /// Returns whether any training sample is recorded rather than synthesised, and whether any sample at all is.
    fn recorded(&self) -> (bool, bool) {
        let tasks = self.all_tasks();
        let splits: Vec<Splits> = tasks.iter().map(|task| task.data.splits()).collect();
        let written = || splits.iter().flat_map(Splits::written).filter(|(_, source)| source.is_recorded());
        (written().any(|(split, _)| split == Split::Train), written().next().is_some())
    }

    /// Checks that all training data has the timing that the alignment terms need.
    fn validate_alignment(&self) -> Result<(), ConfigError> {
        let value = |text: String| Err(ConfigError::Value(text));
        let tasks = self.all_tasks();
        for source in tasks.iter().flat_map(|task| &task.data.train.0) {
            if source.path.is_some() || source.hub.is_some() {
                return value(
                    "`loss.alignment` needs the timing of `synth` samples: set its weights to 0 for recordings".into(),
                );
            }
            if let Some(Synth::Registered(name)) = &source.synth {
                return value(format!(
                    "`loss.alignment` needs the timing of `synth: cw`, and `{name}` does not tell it: set its weights to 0"
                ));
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

    /// Checks the additional rules of a run with tasks.
    fn validate_tasks(&self) -> Result<(), ConfigError> {
        let value = |text: String| Err(ConfigError::Value(text));
        let (defaults, unsaid) = (Self::default(), SourceConfig { samples: 64, ..Default::default() });
        let unused = [
            ("data.train", self.data.train != defaults.data.train),
            // Configurations saved before `data.valid` became optional have these samples of a synthesiser.
            ("data.valid", self.data.valid.as_ref().is_some_and(|valid| *valid != unsaid)),
            ("data.test", self.data.test != defaults.data.test),
            ("data.source_temperature", self.data.source_temperature != defaults.data.source_temperature),
            ("model.trainable", self.model.trainable != defaults.model.trainable),
            ("model.lora", self.model.lora != defaults.model.lora),
            ("train.evaluate.metrics", self.train.evaluate.metrics != defaults.train.evaluate.metrics),
            ("train.checkpoint.metric", self.train.checkpoint.metric != defaults.train.checkpoint.metric),
        ];
        if let Some((key, _)) = unused.iter().find(|(_, given)| *given) {
            return value(format!("`{key}` is for runs without `tasks`: tasks have their own data and metrics"));
        }
        let is_text = self.model.backbone.is_text();
        if is_text {
            self.refuse_speech_keys()?;
        }
        for task in &self.tasks {
            let at = |split: Split, text: String| {
                ConfigError::Value(format!("task `{}`: `data.{}`: {text}", task.name, split.name()))
            };
            task.data.train.validate().map_err(|text| at(Split::Train, text))?;
            let several = task.data.train.0.len() > 1;
            if several && (is_text || task.data.train.weights().is_some()) {
                let text = "a task's sources of speech are taken as they are, one after the other, and of text there is one: \
                            leave out weights and further sources";
                return Err(at(Split::Train, text.into()));
            }
            for (split, source) in task.data.splits().written() {
                let at = |text: String| at(split, text);
                if is_text {
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
        let result = [self.phases.router.losses.confidence, self.phases.joint.losses.confidence];
        if self.router.confidence_threshold > 0.0 && result.contains(&0.0) {
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

    /// Refuses keys that have no effect on text.
    fn refuse_speech_keys(&self) -> Result<(), ConfigError> {
        let (value, defaults) = (|text: String| Err(ConfigError::Value(text)), Self::default());
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
        Ok(())
    }

    /// Refuses settings of router and phases that have no effect.
    fn validate_routing(&self) -> Result<(), ConfigError> {
        let (router, PhasesConfig { router: second, joint: third, .. }) = (&self.router, &self.phases);
        let (usual, usual_phases) = (RouterConfig::default(), PhasesConfig::default());
        // Without the tasks' losses phase 2 computes no gates.
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
}
