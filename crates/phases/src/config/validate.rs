//! Validation of a configuration that needs neither data nor a model.

use super::error::ensure;
use super::splits::Splits;
use super::task_rules::{validate_phases, validate_tasks};
use super::{AlignmentConfig, ConfigError, Experiment, LossConfig, Pad, PhasesConfig, SourceConfig, Split, Trainable};
use crate::backbone::Architecture;
use undertone_data::cache::CacheWhat;
use undertone_model::frozen::FrozenDtype;
use undertone_tasks::HeadConfig;

/// Keys of runs without `tasks`, beside `data.valid`.
const OF_WHOLE: [&str; 8] = [
    "data.train", "data.test", "data.source_temperature", "data.previous_text", "model.trainable", "model.lora",
    "train.evaluate.metrics", "train.checkpoint.metric",
];

/// Keys for speech.
const OF_SPEECH: [&str; 14] = [
    "loss", "data.max_batch_seconds", "data.normalizer", "data.spellings", "data.pad", "data.eval_pad",
    "data.language", "data.task", "data.long_audio", "data.pack", "data.timestamps", "data.previous_text",
    "data.augment", "data.cache",
];

impl Experiment {
    /// Checks every value that can be checked without reading data or a model.
    ///
    /// # Errors
    /// Names the key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let name = &self.run.name;
        ensure(!name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']), || {
            format!("`run.name` is `{name}`: it names a directory, so it is not empty and has no slash or leading dot")
        })?;
        if !self.tasks.is_empty() {
            self.validate_without_whole()?;
        }
        self.train.validate().map_err(|e| e.to_string())?;
        let metrics = &self.train.evaluate.metrics;
        ensure(
            !metrics.is_empty() || !self.tasks.is_empty(),
            || "`train.evaluate.metrics` is `empty`: name at least one metric",
        )?;
        self.model.validate()?;
        let registered: Vec<&str> = HeadConfig::default().registered_metrics().iter().map(|m| m.name).collect();
        let is_known = |metric: &str| ["cer", "wer", "loss"].contains(&metric) || registered.contains(&metric);
        if let Some(metric) = metrics.iter().find(|metric| !is_known(metric)) {
            let more: String = registered.iter().map(|name| format!(", and registered {name}")).collect();
            let known = format!("the metrics are cer, wer and loss{more}");
            return Err(format!("`train.evaluate.metrics` has `{metric}`: {known}").into());
        }
        let smoothing = self.loss.label_smoothing;
        ensure((0.0..1.0).contains(&smoothing), || {
            format!("`loss.label_smoothing` is {smoothing}: it must be at least 0 and below 1")
        })?;
        self.loss.alignment.validate()?;
        self.validate_ctc()?;
        self.validate_term_names()?;
        self.validate_distillation()?;
        ensure(
            !self.loss.random_position || self.data.pad != Pad::Window,
            || "`loss.random_position` moves batches within the window, and `data.pad: window` fills it: choose one",
        )?;
        ensure(
            !self.loss.random_position || !self.model.source.is_rotary(),
            || "`loss.random_position` has no effect on the relative positions of `position_embeddings_type: rotary`: leave it out",
        )?;
        self.data.validate(self.seed)?;
        self.validate_state_cache()?;
        let (trained, any) = self.recorded();
        self.data.validate_for(trained, any)?;
        if self.loss.alignment.is_on() {
            // All training data must have the timing that the alignment terms need.
            self.element_classes()?;
        }
        if !self.tasks.is_empty() {
            return self.validate_tasks();
        }
        let is_text = self.model.backbone.is_text();
        ensure(!is_text, || "`model.backbone` is for text, which is trained by `tasks`: there are none")?;
        let frozen = self.model.frozen_dtype;
        ensure(frozen == FrozenDtype::F32 || self.model.trainable != Trainable::All, || {
            format!(
                "`model.frozen_dtype` is {frozen}, and with `model.trainable: all` nothing is frozen: leave it out, or train \
                 a part of the model, such as `model.trainable: lora`"
            )
        })?;
        match self.first_given(&["router", "phases"]) {
            Some(key) => Err(format!("`{key}` is for runs with `tasks`, and there are none").into()),
            None => Ok(()),
        }
    }

    /// Refuses a task with the name of a loss term that is on: both would be one curve.
    fn validate_term_names(&self) -> Result<(), ConfigError> {
        let LossConfig { ctc, alignment: AlignmentConfig { characters, elements, .. }, .. } = self.loss;
        let terms = [("ctc", ctc), ("characters", characters), ("elements", elements)];
        let is_taken = |name: &str| self.tasks.iter().any(|task| task.name == name);
        match terms.iter().find(|(name, weight)| *weight > 0.0 && is_taken(name)) {
            Some((name, _)) => {
                Err(format!("task `{name}` has the name of a loss term that is on: give it another name").into())
            }
            None => Ok(()),
        }
    }

    /// Refuses a CTC loss where nothing learns from it.
    fn validate_ctc(&self) -> Result<(), ConfigError> {
        let weight = self.loss.ctc;
        ensure(weight.is_finite() && weight >= 0.0, || format!("`loss.ctc` is {weight}: it must be at least 0"))?;
        ensure(
            weight == 0.0 || self.model.trainable != Trainable::Decoder || !self.tasks.is_empty(),
            || "`loss.ctc` trains the encoder, and `model.trainable: decoder` freezes it: leave one of them out",
        )?;
        ensure(
            weight == 0.0 || !self.model.backbone.is_text(),
            || "`loss.ctc` is for speech, and `model.backbone` is for text: leave it out",
        )?;
        Ok(())
    }

    /// Refuses a teacher, or a model with fewer blocks, where it has no effect or would not be found again.
    fn validate_distillation(&self) -> Result<(), ConfigError> {
        if let Some(distillation) = &self.loss.distillation {
            distillation.validate()?;
            ensure(
                self.tasks.is_empty(),
                || "`loss.distillation` is for a run without `tasks`, which trains a whole model or one adapter: leave one of them out",
            )?;
            ensure(
                self.model.backbone == Architecture::WHISPER,
                || "`loss.distillation` is for `model.backbone: whisper`, whose decoder predicts token by token: leave it out",
            )?;
        }
        let layers = [("encoder_layers", self.model.encoder_layers), ("decoder_layers", self.model.decoder_layers)];
        let Some((key, _)) = layers.into_iter().find(|(_, layers)| layers.is_some()) else { return Ok(()) };
        let is_adapted = !self.tasks.is_empty() || self.model.trainable == Trainable::Lora;
        ensure(!is_adapted, || {
            format!(
                "`model.{key}` takes blocks out of a model, and an adapter belongs to the whole model that it was trained on: train the smaller model by itself first, and set `model.path` to it"
            )
        })?;
        ensure(self.model.backbone == Architecture::WHISPER && self.model.source.config.is_none(), || {
            format!("`model.{key}` takes blocks out of a pretrained Whisper: leave it out, or give `model.path` of one")
        })?;
        Ok(())
    }

    /// Refuses a cache of the encoder's states where it changes, or where more than its last states is read.
    fn validate_state_cache(&self) -> Result<(), String> {
        if self.data.cache.what() != CacheWhat::Encoder {
            return Ok(());
        }
        ensure(
            self.tasks.is_empty(),
            || "`data.cache.what: encoder` is for a run without `tasks`, whose adapters are in the encoder: keep `audio` or `features`",
        )?;
        let term = if self.loss.ctc > 0.0 { "ctc" } else { "alignment" };
        ensure(self.loss.ctc == 0.0 && !self.loss.alignment.is_on(), || {
            format!(
                "`loss.{term}` trains the encoder, and `data.cache.what: encoder` keeps what a frozen one makes of recordings: \
                 leave one of them out"
            )
        })
    }

    /// Returns whether any training sample is recorded rather than synthesised, and whether any sample at all is.
    fn recorded(&self) -> (bool, bool) {
        let tasks = self.all_tasks();
        let splits: Vec<Splits> = tasks.iter().map(|task| task.data.splits()).collect();
        let written = || splits.iter().flat_map(Splits::written).filter(|(_, source)| source.is_recorded());
        (written().any(|(split, _)| split == Split::Train), written().next().is_some())
    }

    /// Returns the number of classes of the elements in the timing of the training data.
    pub(crate) fn element_classes(&self) -> Result<usize, ConfigError> {
        let mut most = 0;
        for source in self.all_tasks().iter().flat_map(|task| &task.data.train.0) {
            let Some(synthesised) = source.synthesised() else {
                let reason = "needs the timing of `synth` samples: set its weights to 0 for recordings";
                return Err(format!("`loss.alignment` {reason}").into());
            };
            let (kind, (stages, rest)) = (synthesised.kind()?, synthesised.curriculum()?);
            for options in stages.iter().map(|(_, options)| options).chain([&rest]) {
                let classes = kind.element_classes(options).map_err(|reason| {
                    format!("`loss.alignment` needs the timing of samples, and {reason}: set its weights to 0")
                })?;
                most = classes.max(most);
            }
        }
        Ok(most)
    }

    /// Refuses keys of runs without tasks in a run with tasks.
    fn validate_without_whole(&self) -> Result<(), ConfigError> {
        let unsaid = SourceConfig::default().others();
        // Configurations saved before `data.valid` became optional have these samples of a synthesiser.
        let valid = self.data.valid.as_ref().is_some_and(|valid| *valid != unsaid).then_some("data.valid");
        // In code the training may be that of the Learner, which has no metrics unless they are given.
        let is_of_learner = |key: &&str| key.starts_with("train.") && self.train.evaluate.metrics.is_empty();
        if let Some(key) = self.first_given(&OF_WHOLE).filter(|key| !is_of_learner(key)).or(valid) {
            return Err(format!("`{key}` is for runs without `tasks`: tasks have their own data and metrics").into());
        }
        Ok(())
    }

    /// Checks the additional rules of a run with tasks.
    fn validate_tasks(&self) -> Result<(), ConfigError> {
        let is_text = self.model.backbone.is_text();
        if is_text && let Some(key) = self.first_given(&OF_SPEECH) {
            return Err(format!("`{key}` is for speech, and `model.backbone` reads text: leave it out").into());
        }
        for task in &self.tasks {
            let at = |split: Split, text: String| format!("task `{}`: `data.{}`: {text}", task.name, split.name());
            task.data.train.validate().map_err(|text| at(Split::Train, text))?;
            let several = task.data.train.0.len() > 1;
            ensure(!several || !(is_text || task.data.train.weights().is_some()), || {
                let text = "a task's sources of speech are taken as they are, one after the other, and of text there is one: \
                            leave out weights and further sources";
                at(Split::Train, text.into())
            })?;
            for (split, source) in task.data.splits().written() {
                let at = |text: String| at(split, text);
                if is_text {
                    source.validate_text().map_err(at)?;
                    continue;
                }
                let is_unnamed = source.synthesised().is_some_and(|synthesised| synthesised.synth.is_none());
                let unnamed = "there is no data: give a `synth`, or recordings as `path` or `hub`";
                ensure(!is_unnamed, || at(unnamed.into()))?;
                source.validate_speech(split == Split::Train).map_err(at)?;
            }
            task.data.splits().validate().map_err(|(split, text)| at(split, text))?;
        }
        self.router.validate().map_err(|e| format!("`router`: {e}"))?;
        let result = [self.phases.router.losses.confidence, self.phases.joint.losses.confidence];
        ensure(
            !(self.router.confidence_threshold > 0.0 && result.contains(&0.0)),
            || "`router.confidence_threshold` needs a confidence that was trained: `losses.confidence` is 0 in phase 2 or 3",
        )?;
        let by_length = self.data.group_by_length || self.data.max_batch_seconds.is_some();
        let curriculum = self.phases.joint.curriculum;
        let of_one_task = self.tasks.len() > 1 && (curriculum.from, curriculum.to) != (0.0, 0.0);
        ensure(!(by_length && of_one_task), || {
            "`phases.3.curriculum` makes batches of one task, and `data.group_by_length` and `data.max_batch_seconds` make \
             them by length: leave those out, or set `phases.3.curriculum: {from: 0, to: 0}`"
        })?;
        validate_phases(&self.phases, &self.train)?;
        self.validate_routing()?;
        validate_tasks(&self.tasks, self.model.backbone, &self.phases.adapters, &self.train)
    }

    /// Refuses settings of router and phases that have no effect.
    fn validate_routing(&self) -> Result<(), ConfigError> {
        let (router, PhasesConfig { router: second, joint: third, .. }) = (&self.router, &self.phases);
        let refused = |key: &str, why: &str| {
            Err(format!("`{key}` has no effect, for {why}: change that, or leave it out").into())
        };
        let of_layers = ["router.activation", "router.layer_norm", "router.dropout"];
        if let Some(key) = self.first_given(&of_layers).filter(|_| router.hidden.is_empty()) {
            return refused(key, "`router.hidden` has no layers");
        }
        if !self.model.backbone.is_text() && router.words > 0.0 {
            return refused("router.words", "the model reads speech");
        }
        // Without the tasks' losses phase 2 computes no gates.
        if let Some(key) = self.first_given(&["phases.2.gates"]).filter(|_| second.losses.task == 0.0) {
            return refused(key, "`phases.2.losses.task` is 0, so that nothing goes through them");
        }
        let weights = [("phases.2.losses.temperature", &second.losses), ("phases.3.losses.temperature", &third.losses)];
        let weights = weights.into_iter().filter(|(_, losses)| losses.temperature > 0.0 && !router.learn_temperature);
        match weights.map(|(key, _)| key).find(|key| self.first_given(&[key]).is_some()) {
            Some(key) => refused(key, "`router.learn_temperature` is false"),
            None => Ok(()),
        }
    }

    /// Returns the first of some keys whose value is not the default.
    fn first_given<'a>(&self, keys: &[&'a str]) -> Option<&'a str> {
        let [given, usual] = [self, &Self::default()].map(|all| serde_json::to_value(all).unwrap_or_default());
        let pointer = |key: &str| format!("/{}", key.replace('.', "/"));
        keys.iter().copied().find(|key| given.pointer(&pointer(key)) != usual.pointer(&pointer(key)))
    }
}
