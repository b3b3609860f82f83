//! Linear maps of a model that adapters can be added to.

use super::bank::changed;
use super::{LoraBank, LoraConfig};
use crate::layers::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone_store::{HostTensor, StoreError};

/// Linear map within a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Path, such as `encoder.layers.0.self_attn.q_proj`.
    pub path: String,
    /// Encoder block that it belongs to, counted from 0; decoders lie above every block.
    pub block: usize,
}

/// A model with linear maps that can be adapted.
pub trait Adaptable {
    /// Returns every linear map of every block with its location.
    fn linears(&mut self) -> Vec<(Site, &mut Linear)>;
}

/// Reason why adapters cannot be added to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdaptError {
    /// No linear map has the name.
    #[error("`target_modules` has `{target}`, which names no linear map above the router's tap: there are {known}")]
    Target {
        /// Target name.
        target: String,
        /// Known names.
        known: String,
    },
    /// An adapter has no targets.
    #[error("adapter {adapter} has no `target_modules`: there are {known}")]
    NoTarget {
        /// Index of the adapter.
        adapter: usize,
        /// Known names.
        known: String,
    },
}

/// Adds to every targeted linear map at or above block `tap` a bank of the adapters that target it, by index. The maps'
/// own weights stay unchanged, trainable or frozen.
///
/// # Errors
/// When a target names no linear map there.
pub fn adapt(
    model: &mut (impl Adaptable + ?Sized),
    adapters: &[LoraConfig],
    tap: usize,
    device: &Device,
) -> Result<(), AdaptError> {
    let mut maps: Vec<(Site, &mut Linear)> =
        model.linears().into_iter().filter(|(site, _)| site.block >= tap).collect();
    let known = || {
        let mut names: Vec<&str> = maps.iter().map(|(site, _)| name(&site.path)).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    for (adapter, config) in adapters.iter().enumerate() {
        if config.target_modules.is_empty() {
            return Err(AdaptError::NoTarget { adapter, known: known() });
        }
        for target in &config.target_modules {
            if !maps.iter().any(|(site, _)| matches(&site.path, target)) {
                return Err(AdaptError::Target { target: target.clone(), known: known() });
            }
        }
    }
    for (site, linear) in &mut maps {
        let targeting: Vec<(usize, &LoraConfig)> = adapters
            .iter()
            .enumerate()
            .filter(|(_, config)| config.target_modules.iter().any(|target| matches(&site.path, target)))
            .collect();
        let [d_out, d_in] = linear.weight.dims();
        linear.lora = (!targeting.is_empty()).then(|| LoraBank::init(d_in, d_out, &targeting, adapters.len(), device));
    }
    Ok(())
}

/// Makes all adapters of a model trainable or frozen; its own weights stay trainable or frozen as they are.
pub fn set_adapters_trainable(model: &mut (impl Adaptable + ?Sized), trainable: bool) {
    for bank in model.linears().into_iter().filter_map(|(_, linear)| linear.lora.as_mut()) {
        for matrix in [&mut bank.lora_a, &mut bank.lora_b] {
            *matrix = matrix.clone().set_require_grad(trainable);
        }
    }
}

/// Adds an adapter's update to the weights it targets. The model without gates then computes the same as before with
/// that gate at 1.
pub fn merge(model: &mut (impl Adaptable + ?Sized), adapter: usize) {
    shift(model, adapter, 1.0);
}

/// Subtracts a merged adapter again.
pub fn unmerge(model: &mut (impl Adaptable + ?Sized), adapter: usize) {
    shift(model, adapter, -1.0);
}

/// Merges an adapter ([`merge`]) and removes all adapters from the model, as PEFT's method of that name does.
pub fn merge_and_unload(model: &mut (impl Adaptable + ?Sized), adapter: usize) {
    merge(model, adapter);
    model.linears().into_iter().for_each(|(_, linear)| linear.lora = None);
}

fn shift(model: &mut (impl Adaptable + ?Sized), adapter: usize, sign: f64) {
    for (_, linear) in model.linears() {
        let Some(delta) = linear.lora.as_ref().and_then(|bank| bank.delta(adapter)) else { continue };
        linear.weight = changed(&linear.weight, |weight| weight + delta.detach().mul_scalar(sign));
    }
}

/// Returns an adapter's matrices by PEFT's names: `encoder.layers.0.self_attn.q_proj.lora_A.weight`.
pub fn adapter_parameters(model: &mut (impl Adaptable + ?Sized), adapter: usize) -> BTreeMap<String, HostTensor> {
    let mut found = BTreeMap::new();
    for (site, linear) in model.linears() {
        let Some((a, b)) = linear.lora.as_ref().and_then(|bank| bank.adapter(adapter)) else { continue };
        found.insert(format!("{}.{LORA_A}", site.path), host(a));
        found.insert(format!("{}.{LORA_B}", site.path), host(b));
    }
    found
}

/// Replaces an adapter's matrices with those that `source` returns for their names.
///
/// # Errors
/// The first error of `source`, or the first matrix with a different shape.
pub fn load_adapter(
    model: &mut (impl Adaptable + ?Sized),
    adapter: usize,
    mut source: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<(), StoreError> {
    for (site, linear) in model.linears() {
        let Some(bank) = linear.lora.as_mut() else { continue };
        let Some((a, b)) = bank.adapter(adapter) else { continue };
        let mut read = |name: &str, old: Tensor<2>| {
            let name = format!("{}.{name}", site.path);
            let (found, expected) = (source(&name)?, old.dims().to_vec());
            if found.shape != expected {
                return Err(StoreError::Shape { name, expected, found: found.shape });
            }
            Ok(Tensor::from_data(TensorData::new(found.data, found.shape), &old.device()))
        };
        let (a, b) = (read(LORA_A, a)?, read(LORA_B, b)?);
        bank.set_adapter(adapter, a, b);
    }
    Ok(())
}

const LORA_A: &str = "lora_A.weight";
const LORA_B: &str = "lora_B.weight";

fn host(x: Tensor<2>) -> HostTensor {
    let shape = x.dims().to_vec();
    HostTensor { shape, data: x.try_into_vec_as().expect("parameters are floats") }
}

/// Whether a target names a map: by the last part of its path or any longer suffix, as in PEFT. `intermediate` and
/// `output` name the two maps of BERT's feed-forward layers, whose own name is `dense`.
fn matches(path: &str, target: &str) -> bool {
    let ends = |end: &str| path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    match target {
        "output" => ends("output.dense") && !ends("attention.output.dense"),
        "intermediate" => ends("intermediate.dense"),
        _ => ends(target),
    }
}

/// Name of a map as a target.
fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn targets_match_whole_names_at_the_end_of_a_path() {
        let path = "encoder.layers.0.self_attn.q_proj";
        assert!(matches(path, "q_proj") && matches(path, "self_attn.q_proj") && matches(path, path));
        assert!(!matches(path, "proj") && !matches(path, "attn.q_proj") && !matches(path, "k_proj"));
    }

    #[test]
    fn the_feed_forward_layers_of_bert_have_names_of_their_own() {
        let [attention, inner, outer] =
            ["attention.output.dense", "intermediate.dense", "output.dense"].map(|n| format!("encoder.layer.3.{n}"));
        assert!([&attention, &inner, &outer].iter().all(|path| matches(path, "dense")));
        assert!(matches(&inner, "intermediate") && !matches(&outer, "intermediate"));
        assert!(matches(&outer, "output") && !matches(&attention, "output") && !matches(&inner, "output"));
    }
}
