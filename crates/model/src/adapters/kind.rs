//! Types of adapters.

use super::{AdapterBank, BoxedAdapterBank};
use crate::target::Target;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::Device;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// Type of adapter: the configuration in `adapter: {type: …}`.
///
/// The implementing type is the configuration itself, a struct that derives `Clone`, `PartialEq`, `Debug`, `Serialize`
/// and `Deserialize` with `#[serde(default, deny_unknown_fields)]`. Its keys are those of PEFT's `adapter_config.json`
/// where PEFT has the type.
pub trait AdapterKind: AdapterKindConfig {
    /// Bank of adapters of this type.
    type Bank: AdapterBank + Module + ModuleDisplay
    where
        Self: Sized;

    /// Name in YAML, and in the paths of parameters: `…q_proj.name.….`
    fn name(&self) -> &'static str;

    /// JSON Schema of its configuration, without `type`; by default any keys.
    fn schema(_: &mut SchemaGenerator) -> Schema
    where
        Self: Sized,
    {
        json_schema!({"type": "object"})
    }

    /// Checks the values. Only the model can check that the targets exist.
    ///
    /// # Errors
    /// Names the invalid key.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Linear maps to adapt ([`Target`](crate::target::Target)).
    fn target_modules(&self) -> &[String];

    /// Creates the bank of a map of `[d_out, d_in]` with the adapters that target it, at least one, by index. There
    /// are `adapters` in all: gates have as many columns. A new adapter leaves the map's output unchanged.
    fn bank(d_in: usize, d_out: usize, targeting: &[(usize, &Self)], adapters: usize, device: &Device) -> Self::Bank
    where
        Self: Sized;

    /// Number of parameters of one adapter at a map of `[d_out, d_in]`, for estimates of memory.
    fn parameters(&self, d_in: usize, d_out: usize) -> usize;

    /// Returns the configuration of one adapter for several tasks, for the baseline that compares it with one for each;
    /// by default that of the first task.
    fn shared(tasks: &[&Self]) -> Self
    where
        Self: Sized + Clone,
    {
        tasks[0].clone()
    }

    /// Keys of PEFT's `adapter_config.json` besides `peft_type`, which is the name in capitals, and those of the
    /// configuration; none by default.
    fn peft_keys(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Short description for the page of a run, such as `rank 8, alpha 16`; by default the name.
    fn summary(&self) -> String {
        self.name().to_owned()
    }
}

/// Methods that every [`AdapterKind`] struct gets from its derives.
pub trait AdapterKindConfig: Any + Debug + Send + Sync + erased_serde::Serialize {
    /// Whether it equals another configuration.
    fn is_equal(&self, other: &dyn Any) -> bool;
    /// As [`AdapterKind::bank`] for adapters of this type; others are left out.
    fn boxed_bank(
        &self,
        d_in: usize,
        d_out: usize,
        targeting: &[(usize, &AdapterConfig)],
        adapters: usize,
        device: &Device,
    ) -> BoxedAdapterBank;
    /// As [`AdapterKind::shared`] for tasks whose adapters are of this type.
    fn shared_config(&self, tasks: &[AdapterConfig]) -> AdapterConfig;
}

impl<K: AdapterKind + Clone + PartialEq + Serialize> AdapterKindConfig for K {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<K>() == Some(self)
    }

    fn boxed_bank(
        &self,
        d_in: usize,
        d_out: usize,
        targeting: &[(usize, &AdapterConfig)],
        adapters: usize,
        device: &Device,
    ) -> BoxedAdapterBank {
        let own = targeting.iter().filter_map(|(adapter, config)| Some((*adapter, config.downcast_ref::<K>()?)));
        let own: Vec<(usize, &K)> = own.collect();
        BoxedAdapterBank::new(self.name(), K::bank(d_in, d_out, &own, adapters, device))
    }

    fn shared_config(&self, tasks: &[AdapterConfig]) -> AdapterConfig {
        let own: Vec<&K> = tasks.iter().filter_map(AdapterConfig::downcast_ref).collect();
        if own.is_empty() { self.clone().into() } else { K::shared(&own).into() }
    }
}

/// Configuration of an adapter, such as `adapter: {type: lora, r: 8}`: an [`AdapterKind`] of the type that is
/// registered under the name.
#[derive(Clone)]
pub struct AdapterConfig(pub(super) Arc<dyn AdapterKind>);

impl AdapterConfig {
    /// Returns the configuration, if it is of this type.
    pub fn downcast_ref<K: AdapterKind>(&self) -> Option<&K> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Checks the keys of its type, and that every target can be read ([`Target::parse`]).
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self) -> Result<(), String> {
        self.target_modules().iter().try_for_each(|target| Target::parse(target).map(|_| ()))?;
        self.0.validate()
    }
}
