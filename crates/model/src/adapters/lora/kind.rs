//! LoRA as a type of adapter.

use super::{LoraBank, LoraConfig};
use crate::adapters::{AdapterBank, AdapterKind, Gates, MapWeights, ReadTensor};
use burn::tensor::{Device, Tensor};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};
use undertone_ops::{lora_linear, lora_linear_lowered};
use undertone_store::{HostTensor, StoreError};

impl AdapterKind for LoraConfig {
    type Bank = LoraBank;

    fn name(&self) -> &'static str {
        "lora"
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Self::json_schema(generator)
    }

    fn validate(&self) -> Result<(), String> {
        Self::validate(self).map_err(|error| error.to_string())
    }

    fn target_modules(&self) -> &[String] {
        &self.target_modules
    }

    fn bank(d_in: usize, d_out: usize, targeting: &[(usize, &Self)], adapters: usize, device: &Device) -> LoraBank {
        LoraBank::init(d_in, d_out, targeting, adapters, device)
    }

    fn parameters(&self, d_in: usize, d_out: usize) -> usize {
        self.r * (d_in + d_out)
    }

    /// Returns an adapter with the summed ranks and all targets of the tasks' adapters. It has as many parameters as
    /// these together if all have the same targets, more otherwise.
    fn shared(tasks: &[&Self]) -> Self {
        let mut config = tasks[0].clone();
        let scale = config.scale();
        config.r = tasks.iter().map(|task| task.r).sum();
        config.lora_alpha *= scale / config.scale();
        for target in tasks.iter().flat_map(|task| &task.target_modules) {
            if !config.target_modules.contains(target) {
                config.target_modules.push(target.clone());
            }
        }
        config
    }

    fn peft_keys(&self) -> Map<String, Value> {
        [("bias".to_owned(), "none".into()), ("fan_in_fan_out".to_owned(), false.into())].into_iter().collect()
    }

    fn summary(&self) -> String {
        format!("rank {}, alpha {}", self.r, self.lora_alpha)
    }
}

impl AdapterBank for LoraBank {
    fn forward(&self, x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, gates: &Gates) -> Tensor<3> {
        self.forward_mixed(x, weight, bias, gates, false)
    }

    fn forward_mixed(
        &self,
        x: Tensor<3>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        gates: &Gates,
        lowered: bool,
    ) -> Tensor<3> {
        let updates = self.updates(&x, gates);
        let map = if lowered { lora_linear_lowered } else { lora_linear };
        map(x, weight, bias, updates)
    }

    fn merged(&self, adapter: usize, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Option<MapWeights> {
        Some((weight + self.delta(adapter)?, bias))
    }

    fn tensors(&self, adapter: usize) -> Vec<(&'static str, HostTensor)> {
        let matrices = self.adapter(adapter).map(|(a, b)| [(LORA_A, a.into()), (LORA_B, b.into())]);
        matrices.into_iter().flatten().collect()
    }

    fn load(&mut self, adapter: usize, read: &mut ReadTensor) -> Result<(), StoreError> {
        let Some((a, b)) = self.adapter(adapter) else { return Ok(()) };
        let [a, b] = [(LORA_A, a), (LORA_B, b)]
            .map(|(name, old)| Ok::<_, StoreError>(read(name, &old.dims())?.on(&old.device())));
        self.set_adapter(adapter, a?, b?);
        Ok(())
    }
}

const LORA_A: &str = "lora_A.weight";
const LORA_B: &str = "lora_B.weight";
