//! Readers of the models that an experiment trains.

use crate::{Experiment, Split};

impl Experiment {
    /// Returns the name of the reader for a model that is trained on nothing but sources with this reader.
    pub(crate) fn reader(&self) -> Option<String> {
        let tasks = self.all_tasks();
        let sources = tasks.iter().flat_map(|task| task.data.splits().sources(Split::Train).unwrap_or_default());
        let readers = sources.map(|source| Some(source.synthesised()?.kind().ok()?.reader()?.to_owned()));
        let readers: Vec<String> = readers.collect::<Option<_>>()?;
        let first = readers.first()?.clone();
        readers.iter().all(|reader| *reader == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_marked_that_are_trained_on_what_has_a_reader_alone() {
        let load = |settings: &[&str]| Experiment::of_yaml("", settings).expect("an experiment");
        assert_eq!(load(&[]).reader().as_deref(), Some("cw"));
        let mixed = "data.train=[{synth: cw}, {path: x.csv}]";
        assert_eq!(load(&[mixed, "data.valid={path: y.csv}"]).reader(), None);
    }
}
