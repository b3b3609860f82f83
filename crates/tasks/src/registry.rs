//! The kinds of tasks that YAML can name.

use crate::content::{Content, ContentError};
use crate::kinds::{classify::ClassifyConfig, seq2seq::Seq2seqConfig, span::SpanConfig, tag::TagConfig};
use crate::{HeadConfig, TaskKind};
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::sync::{LazyLock, PoisonError, RwLock};

/// Why a kind is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is a kind of task called `{name}` already: give yours another name")]
pub struct NameTaken {
    /// The name.
    pub name: &'static str,
}

/// Makes a kind known to YAML under its name: from then on, `head: {type: name, …}` is one of these. To register a kind
/// again changes nothing.
///
/// # Errors
/// When another kind has the name.
pub fn register<K: TaskKind + DeserializeOwned + Default>() -> Result<(), NameTaken> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner).add::<K>()
}

/// The names of all kinds there are: the built-in ones, then others in the order in which they were registered.
pub fn names() -> &'static [&'static str] {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner).names
}

/// A head of the kind with this name.
pub(crate) fn read(name: &str, keys: Content) -> Result<HeadConfig, ContentError> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    let known = registry.kinds.iter().find(|kind| kind.name == name);
    let read = known.ok_or_else(|| ContentError::UnknownVariant(name.to_owned(), registry.names))?.read;
    drop(registry);
    read(keys)
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(|| {
    let mut registry = Registry { kinds: Vec::new(), names: &[] };
    let all = [
        registry.add::<Seq2seqConfig>(),
        registry.add::<ClassifyConfig>(),
        registry.add::<SpanConfig>(),
        registry.add::<TagConfig>(),
    ];
    debug_assert!(all.iter().all(Result::is_ok), "built-in kinds have names of their own");
    RwLock::new(registry)
});

struct Registry {
    kinds: Vec<Kind>,
    /// For serde's errors, which name what there is for as long as the program runs.
    names: &'static [&'static str],
}

struct Kind {
    name: &'static str,
    of: TypeId,
    read: fn(Content) -> Result<HeadConfig, ContentError>,
}

impl Registry {
    fn add<K: TaskKind + DeserializeOwned + Default>(&mut self) -> Result<(), NameTaken> {
        let (name, of) = (K::default().name(), TypeId::of::<K>());
        match self.kinds.iter().find(|kind| kind.name == name) {
            Some(kind) if kind.of == of => return Ok(()),
            Some(_) => return Err(NameTaken { name }),
            None => {}
        }
        self.kinds.push(Kind { name, of, read: |keys| K::deserialize(keys).map(HeadConfig::new) });
        // A few words for each kind, once.
        self.names = Box::leak(self.kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().into_boxed_slice());
        Ok(())
    }
}
