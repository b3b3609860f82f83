//! Linear maps of a model that adapters can be added to.

use crate::adapters::{AdapterConfig, changed};
use crate::frozen_dtype::widened;
use crate::layers::Linear;
use burn::tensor::Device;
use std::collections::BTreeMap;
use undertone_store::{HostTensor, StoreError, set_trainable};

/// Linear map within a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Path, such as `encoder.layers.0.self_attn.q_proj`.
    pub path: String,
    /// Encoder block that it belongs to, counted from 0; decoders lie above every block.
    pub block: usize,
}

/// Target that names every linear map, as in PEFT.
pub const ALL_LINEAR: &str = "all-linear";

/// A model with linear maps that can be adapted.
pub trait Adaptable {
    /// Returns every linear map of every block with its location.
    fn linears(&mut self) -> Vec<(Site, &mut Linear)>;
}

/// Reason why adapters cannot be added to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdaptError {
    /// No linear map has the name.
    #[error("`target_modules` has `{target}`, which names no linear map {place}: there are {known}")]
    Target {
        /// Target name.
        target: String,
        /// Where maps are adapted.
        place: &'static str,
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
    /// Adapters side by side are of different types.
    #[error("adapters of the types `{0}` and `{1}` cannot be mixed: give all tasks adapters of one type")]
    Types(&'static str, &'static str),
}

/// Adds to every targeted linear map at or above block `tap` a bank of the adapters that target it, by index. The maps'
/// own weights stay unchanged, trainable or frozen.
///
/// # Errors
/// When a target names no linear map there, or the adapters are of different types.
pub fn adapt<A: Clone + Into<AdapterConfig>>(
    model: &mut (impl Adaptable + ?Sized),
    adapters: &[A],
    tap: usize,
    device: &Device,
) -> Result<(), AdaptError> {
    let adapters: Vec<AdapterConfig> = adapters.iter().cloned().map(Into::into).collect();
    let mut maps: Vec<(Site, &mut Linear)> =
        model.linears().into_iter().filter(|(site, _)| site.block >= tap).collect();
    let known = || {
        let mut names: Vec<&str> = maps.iter().map(|(site, _)| name(&site.path)).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    for (adapter, config) in adapters.iter().enumerate() {
        if config.name() != adapters[0].name() {
            return Err(AdaptError::Types(adapters[0].name(), config.name()));
        }
        if config.target_modules().is_empty() {
            return Err(AdaptError::NoTarget { adapter, known: known() });
        }
        for target in config.target_modules() {
            if !maps.iter().any(|(site, _)| matches(&site.path, target)) {
                let place = if tap == 0 { "of the model's blocks" } else { "above the router's tap" };
                return Err(AdaptError::Target { target: target.clone(), place, known: known() });
            }
        }
    }
    for (site, linear) in &mut maps {
        let targeting: Vec<(usize, &AdapterConfig)> = adapters
            .iter()
            .enumerate()
            .filter(|(_, config)| config.target_modules().iter().any(|target| matches(&site.path, target)))
            .collect();
        let [d_out, d_in] = linear.weight.dims();
        linear.adapters =
            targeting.first().map(|(_, first)| first.boxed_bank(d_in, d_out, &targeting, adapters.len(), device));
    }
    Ok(())
}

/// Makes all adapters of a model trainable or frozen; its own weights stay trainable or frozen as they are.
pub fn set_adapters_trainable(model: &mut (impl Adaptable + ?Sized), trainable: bool) {
    for (_, linear) in model.linears() {
        linear.adapters = linear.adapters.take().map(|bank| set_trainable(bank, |_| trainable));
    }
}

/// Folds an adapter into the weights that it targets. The model without gates then computes the same as before with
/// that gate at 1. Weights that are held in half precision are in f32 afterwards.
pub fn merge(model: &mut (impl Adaptable + ?Sized), adapter: usize) {
    for (_, linear) in model.linears() {
        let Some(bank) = &linear.adapters else { continue };
        let (weight, bias) =
            (widened(linear.weight.val().detach()), linear.bias.as_ref().map(|bias| bias.val().detach()));
        let Some((weight, bias)) = bank.merged(adapter, weight, bias) else { continue };
        linear.weight = changed(&linear.weight, |_| weight.detach());
        linear.bias = linear.bias.as_ref().zip(bias).map(|(old, bias)| changed(old, |_| bias.detach()));
    }
}

/// Merges an adapter ([`merge`]) and removes all adapters from the model, as PEFT's method of that name does.
pub fn merge_and_unload(model: &mut (impl Adaptable + ?Sized), adapter: usize) {
    merge(model, adapter);
    unload(model);
}

/// Removes all adapters from the model.
pub(crate) fn unload(model: &mut (impl Adaptable + ?Sized)) {
    model.linears().into_iter().for_each(|(_, linear)| linear.adapters = None);
}

/// Returns an adapter's tensors by the path of their linear map, such as `encoder.layers.0.self_attn.q_proj`, each with
/// its name in PEFT's files, such as `lora_A.weight`. Maps that the adapter does not target are left out.
pub fn adapter_parameters(
    model: &mut (impl Adaptable + ?Sized),
    adapter: usize,
) -> BTreeMap<String, Vec<(&'static str, HostTensor)>> {
    let maps = model.linears().into_iter();
    let found = maps.filter_map(|(site, linear)| Some((site.path, linear.adapters.as_ref()?.tensors(adapter))));
    found.filter(|(_, tensors)| !tensors.is_empty()).collect()
}

/// Replaces an adapter's tensors with those that `source` returns for their paths and names:
/// `encoder.layers.0.self_attn.q_proj.lora_A.weight`.
///
/// # Errors
/// The first error of `source`, or the first tensor with a different shape.
pub fn load_adapter(
    model: &mut (impl Adaptable + ?Sized),
    adapter: usize,
    mut source: impl FnMut(&str) -> Result<HostTensor, StoreError>,
) -> Result<(), StoreError> {
    for (site, linear) in model.linears() {
        let Some(bank) = linear.adapters.as_mut() else { continue };
        bank.load(adapter, &mut |name, shape| {
            let name = format!("{}.{name}", site.path);
            let found = source(&name)?;
            if found.shape != shape {
                return Err(StoreError::Shape { name, expected: shape.to_vec(), found: found.shape });
            }
            Ok(found)
        })?;
    }
    Ok(())
}

/// Whether a target names a map: by the last part of its path or any longer suffix, as in PEFT, or by the whole path in
/// transformers' Whisper, which begins with `model.`. `intermediate` and
/// `output` name the two maps of BERT's feed-forward layers, whose own name is `dense`. [`ALL_LINEAR`] names all.
fn matches(path: &str, target: &str) -> bool {
    let ends = |end: &str| path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    match target {
        ALL_LINEAR => true,
        "output" => ends("output.dense") && !ends("attention.output.dense"),
        "intermediate" => ends("intermediate.dense"),
        _ => ends(target) || target.strip_prefix("model.") == Some(path),
    }
}

/// Name of a map as a target.
fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{ALL_LINEAR, matches};

    #[test]
    fn targets_match_whole_names_at_the_end_of_a_path() {
        let path = "encoder.layers.0.self_attn.q_proj";
        assert!(matches(path, "q_proj") && matches(path, "self_attn.q_proj") && matches(path, path));
        assert!(matches(path, ALL_LINEAR));
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
