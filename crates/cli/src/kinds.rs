//! Registration of your own kinds, before a command reads a configuration.

use serde::de::DeserializeOwned;
use std::fmt::Display;
use undertone::data::augment::{self, Effect};
use undertone::data::reader::{self, Reader};
use undertone::data::source::{self, SpeechSource};
use undertone::metrics::registry::{self as metrics, TextMetric};
use undertone::model::adapters::{self, AdapterKind};
use undertone::phases::backbone::{self, LoadSpeech, LoadText};
use undertone::tasks::{self, TaskKind};
use undertone::train::optimizer::registry::{self as optimizers, UpdateRule};

/// Kinds that a program registers in addition to the built-in ones; [`main`](crate::main) passes it to you.
#[derive(Debug, Default)]
pub struct Kinds {
    refused: Option<String>,
}

impl Kinds {
    /// Adds a kind of task: `head: {type: name, …}`.
    pub fn task<K: TaskKind + DeserializeOwned + Default>(self) -> Self {
        self.noted(tasks::register::<K>())
    }

    /// Adds a type of adapter: `adapter: {type: name, …}`.
    pub fn adapter<K: AdapterKind + DeserializeOwned + Default>(self) -> Self {
        self.noted(adapters::register::<K>())
    }

    /// Adds a text metric: `evaluate: {metrics: [name]}`.
    pub fn metric<M: TextMetric>(self) -> Self {
        self.noted(metrics::register::<M>())
    }

    /// Adds an optimizer: `train: {optimizer: {name: …}}`.
    pub fn optimizer<R: UpdateRule>(self) -> Self {
        self.noted(optimizers::register::<R>())
    }

    /// Adds a source of speech: `data: {train: {synth: name, options: {…}}}`.
    pub fn source(self, source: impl SpeechSource + 'static) -> Self {
        self.noted(source::register(source))
    }

    /// Adds an augmentation of recordings: `data: {augment: {name: {…}}}`.
    pub fn augmentation(self, effect: impl Effect + 'static) -> Self {
        self.noted(augment::register(effect))
    }

    /// Adds a reader: `"reader": "name"` in a model's `generation_config.json`.
    pub fn reader(self, reader: impl Reader + 'static) -> Self {
        self.noted(reader::register(reader))
    }

    /// Adds a text encoder architecture: `model: {backbone: name, path: folder}`.
    pub fn text_backbone(self, name: &'static str, load: LoadText) -> Self {
        self.noted(backbone::register(name, load))
    }

    /// Adds a speech encoder architecture: `model: {backbone: name, path: folder}`.
    pub fn speech_backbone(self, name: &'static str, load: LoadSpeech) -> Self {
        self.noted(backbone::register_speech(name, load))
    }

    /// Keeps the first error.
    fn noted<E: Display>(mut self, registered: Result<(), E>) -> Self {
        if let (Err(error), None) = (registered, &self.refused) {
            self.refused = Some(error.to_string());
        }
        self
    }

    /// Returns the error of the first kind that could not be registered.
    pub(crate) fn registered(self) -> Result<(), String> {
        self.refused.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone::metrics::Direction;

    /// A metric with the name of a built-in one.
    #[derive(Clone, Debug, Default)]
    struct Other;

    impl TextMetric for Other {
        const NAME: &str = "cer";
        const DIRECTION: Direction = Direction::Lower;

        fn add(&mut self, _: &str, _: &str) {}

        fn value(&self) -> Option<f64> {
            None
        }
    }

    #[test]
    fn a_taken_name_is_reported_whatever_comes_after_it() {
        let refused = Kinds::default().metric::<Other>().text_backbone("pigeon", |_, _| Err("no weights".into()));
        let expected = "a metric named `cer` is already registered: choose another name";
        assert_eq!(refused.registered(), Err(expected.to_owned()));
    }
}
