//! Kinds of source that are registered in this process.

use std::sync::Arc;
use undertone_data::source::{self, SourceError, SpeechSource};

/// Way out of messages about a kind that is missing because a program has registered none.
pub(crate) const REGISTER: &str =
    "call `undertone::register()` before a configuration or a model is loaded, or register a kind of your own";

/// Returns the kind of source with this name.
pub(crate) fn named(name: &str) -> Result<Arc<dyn SpeechSource>, SourceError> {
    prepare();
    source::get(name)
}

/// Returns the kind of source that configurations without a name use, if there is one.
pub(crate) fn default() -> Option<Arc<dyn SpeechSource>> {
    prepare();
    source::default()
}

/// Returns all kinds of source.
pub(crate) fn all() -> Vec<Arc<dyn SpeechSource>> {
    prepare();
    source::all()
}

/// Registers the kinds that tests use.
fn prepare() {
    #[cfg(test)]
    undertone_cw::register().expect("registered");
}
