//! Kinds by the names that configurations call them: tasks, metrics, optimizers, sources of speech, backbones.
//!
//! Each of these has one [`Registry`] in the crate that it belongs to, with the built-in kinds, to which a program adds its own before it
//! reads a configuration. A kind stays for as long as the process runs.
//!
//! It makes nothing: a kind is whatever its crate opens by it.
//!
//! ```
//! use undertone_registry::{Kind, Registry};
//!
//! #[derive(Clone, PartialEq)]
//! struct Shape {
//!     name: &'static str,
//!     corners: usize,
//! }
//!
//! impl Kind for Shape {
//!     fn name(&self) -> &str {
//!         self.name
//!     }
//! }
//!
//! static SHAPES: Registry<Shape> = Registry::new("shape", || vec![Shape { name: "square", corners: 4 }]);
//!
//! SHAPES.register(Shape { name: "triangle", corners: 3 })?;
//! assert_eq!(SHAPES.get("triangle")?.corners, 3);
//! let taken = SHAPES.register(Shape { name: "square", corners: 5 }).expect_err("taken");
//! assert_eq!(taken.to_string(), "a shape named `square` is already registered: choose another name");
//! let unknown = SHAPES.get("circle").err().expect("unknown");
//! assert_eq!(unknown.to_string(), "unknown variant `circle`, expected `square` or `triangle`");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod choice;
pub mod options;
pub mod typed;

use std::sync::{OnceLock, PoisonError, RwLock};

/// What a registry keeps. Two that are equal are one kind, registered twice.
pub trait Kind: Clone + PartialEq {
    /// What configurations call it.
    fn name(&self) -> &str;
}

/// Kinds by name: the built-in ones, then others in the order in which they were registered.
#[derive(Debug)]
pub struct Registry<K> {
    what: &'static str,
    built_in: fn() -> Vec<K>,
    kinds: OnceLock<RwLock<Vec<K>>>,
}

/// Why a kind is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {what} named `{name}` is already registered: choose another name")]
pub struct NameTaken {
    /// What it would have been, like `metric`.
    pub what: &'static str,
    /// The name.
    pub name: String,
}

/// No kind has the name; as serde words it, for that is how a user meets it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant `{name}`, expected {}", list(known))]
pub struct Unknown {
    /// The name.
    pub name: String,
    /// Those there are.
    pub known: Vec<String>,
}

impl<K: Kind> Registry<K> {
    /// A registry of what errors call `what`, with its built-in kinds.
    pub const fn new(what: &'static str, built_in: fn() -> Vec<K>) -> Self {
        Self { what, built_in, kinds: OnceLock::new() }
    }

    /// Adds a kind. To register the same kind again changes nothing.
    ///
    /// # Errors
    /// When another kind has the name.
    pub fn register(&self, kind: K) -> Result<(), NameTaken> {
        let mut kinds = self.kinds().write().unwrap_or_else(PoisonError::into_inner);
        match kinds.iter().find(|known| known.name() == kind.name()) {
            Some(known) if *known == kind => {}
            Some(_) => return Err(NameTaken { what: self.what, name: kind.name().to_owned() }),
            None => kinds.push(kind),
        }
        Ok(())
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, name: &str) -> Result<K, Unknown> {
        let kinds = self.kinds().read().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().find(|kind| kind.name() == name).cloned().ok_or_else(|| Unknown {
            name: name.to_owned(),
            known: kinds.iter().map(|kind| kind.name().to_owned()).collect(),
        })
    }

    /// All kinds.
    pub fn all(&self) -> Vec<K> {
        self.kinds().read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn kinds(&self) -> &RwLock<Vec<K>> {
        self.kinds.get_or_init(|| RwLock::new((self.built_in)()))
    }
}

fn list(known: &[String]) -> String {
    match known {
        [] => "none: there are none here".to_owned(),
        [only] => format!("`{only}`"),
        [one, other] => format!("`{one}` or `{other}`"),
        many => format!("one of `{}`", many.join("`, `")),
    }
}
