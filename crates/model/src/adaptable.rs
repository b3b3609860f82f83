//! Linear maps of a model that adapters can be added to.

use crate::adapters::{AdapterConfig, changed};
use crate::frozen_dtype::widened;
use crate::layers::Linear;
use crate::target::Target;
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

/// A model with linear maps that can be adapted.
pub trait Adaptable {
    /// Returns every linear map of every block with its location.
    fn linears(&mut self) -> Vec<(Site, &mut Linear)>;

    /// PEFT's prefix for the paths of these maps in an adapter's file.
    fn peft_prefix(&self) -> &'static str {
        "base_model.model."
    }
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
    /// A target is neither a name nor a regular expression.
    #[error("{0}")]
    Pattern(String),
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
    let mut targets: Vec<Vec<Target>> = Vec::new();
    for (adapter, config) in adapters.iter().enumerate() {
        if config.name() != adapters[0].name() {
            return Err(AdaptError::Types(adapters[0].name(), config.name()));
        }
        if config.target_modules().is_empty() {
            return Err(AdaptError::NoTarget { adapter, known: known() });
        }
        let parsed: Result<Vec<Target>, String> = config.target_modules().iter().map(|t| Target::parse(t)).collect();
        let parsed = parsed.map_err(AdaptError::Pattern)?;
        for (target, written) in parsed.iter().zip(config.target_modules()) {
            if !maps.iter().any(|(site, _)| target.names(&site.path)) {
                let place = if tap == 0 { "of the model's blocks" } else { "above the router's tap" };
                return Err(AdaptError::Target { target: written.clone(), place, known: known() });
            }
        }
        targets.push(parsed);
    }
    for (site, linear) in &mut maps {
        let targeting: Vec<(usize, &AdapterConfig)> = adapters
            .iter()
            .enumerate()
            .filter(|(adapter, _)| targets[*adapter].iter().any(|target| target.names(&site.path)))
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

/// Name of a map as a target.
fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
