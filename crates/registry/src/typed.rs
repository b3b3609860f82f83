//! Kinds that are Rust types, and configurations that choose such a type by their key `type`.

use crate::options::{self, Options, OptionsError};
use crate::{Kind, Registry};
use schemars::{Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::TypeId;

/// A Rust type by its name, with what its crate makes of it. Two of the same type are one kind.
#[derive(Clone, Copy, Debug)]
pub struct Typed<T> {
    /// Name in configurations.
    pub name: &'static str,
    /// What the crate makes of the type.
    pub with: T,
    of: TypeId,
}

impl<T> Typed<T> {
    /// Creates the kind of the type `K`.
    pub fn new<K: 'static>(name: &'static str, with: T) -> Self {
        Self { name, with, of: TypeId::of::<K>() }
    }
}

impl<T: Clone> Kind for Typed<T> {
    fn name(&self) -> &str {
        self.name
    }
}

impl<T> PartialEq for Typed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}

/// A type of configuration that `type` can name: how it is read as a `C`, which holds any of them.
pub type ConfigType<C> = Typed<ConfigKeys<C>>;

/// Keys of a type of configuration.
#[derive(Clone, Debug)]
pub struct ConfigKeys<C> {
    read: fn(&Options) -> Result<C, OptionsError>,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl<C: 'static> ConfigType<C> {
    /// Creates the type of the configuration `K`, whose schema is that of its keys without `type`.
    pub fn of<K>(name: &'static str, schema: fn(&mut SchemaGenerator) -> Schema) -> Self
    where
        K: DeserializeOwned + Into<C> + 'static,
    {
        let read = |keys: &Options| options::read::<K>(keys).map(Into::into);
        Self::new::<K>(name, ConfigKeys { read, schema })
    }
}

impl<C: Clone> Registry<ConfigType<C>> {
    /// Reads a configuration: its `type`, wherever it stands, and the keys of that type. `name` reads the value of
    /// `type`. Keys are JSON values until their type is known; a number that is not finite is null there.
    ///
    /// # Errors
    /// Names the key that is missing, unknown or has an invalid value.
    pub fn read<'de, D: Deserializer<'de>>(
        &self,
        deserializer: D,
        name: impl Fn(Value) -> Result<String, String>,
    ) -> Result<C, D::Error> {
        let mut keys = Options::deserialize(deserializer)?;
        let given = keys.shift_remove("type").ok_or_else(|| D::Error::missing_field("type"))?;
        let kind = self.get(&name(given).map_err(D::Error::custom)?).map_err(D::Error::custom)?;
        (kind.with.read)(&keys).map_err(D::Error::custom)
    }

    /// Returns the schema of a configuration: one of the registered types, by its `type`.
    pub fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        options::schema_by_type(self.all().into_iter().map(|kind| (kind.name, (kind.with.schema)(generator))))
    }
}

/// Implements what a configuration of any kind has in common with others: `$config` holds an `Arc<dyn $kind>`, and the
/// registry `$kinds` has the [types](crate::typed::ConfigType) that it may be. It dereferences to its kind, is read and
/// written with the kind's name as `type`, and `$schema` is the name of its schema. `$name` reads the value of `type`, as
/// in [`Registry::read`]. The kind has the methods `name` and `is_equal`.
#[macro_export]
macro_rules! typed_config {
    ($config:ident, $kind:ident, $kinds:ident, $schema:literal, $name:expr) => {
        impl<K: $kind> From<K> for $config {
            fn from(kind: K) -> Self {
                Self(std::sync::Arc::new(kind))
            }
        }

        impl std::ops::Deref for $config {
            type Target = dyn $kind;

            fn deref(&self) -> &Self::Target {
                &*self.0
            }
        }

        impl PartialEq for $config {
            fn eq(&self, other: &Self) -> bool {
                self.0.is_equal(&*other.0)
            }
        }

        impl std::fmt::Debug for $config {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        impl serde::Serialize for $config {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::typed::write(self.name(), &*self.0, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $config {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $kinds.read(deserializer, $name)
            }
        }

        impl schemars::JsonSchema for $config {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $schema.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $kinds.schema(generator)
            }
        }
    };
}

/// Writes a configuration: its name as `type`, then its own keys.
///
/// # Errors
/// Those of the serializer.
pub fn write<S: Serializer>(
    name: &'static str,
    keys: &dyn erased_serde::Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        #[serde(rename = "type")]
        name: &'static str,
        #[serde(flatten)]
        keys: &'a dyn erased_serde::Serialize,
    }

    Named { name, keys }.serialize(serializer)
}
