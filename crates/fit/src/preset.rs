//! Device presets: the batch into which an optimizer step is split, and the amount of data that is prefetched.
//!
//! A preset is a layer between the defaults and the YAML: the YAML, the environment and `--set` override it. It splits
//! the default effective batch of 16 samples and does not change the result of training. If you configure a rule by
//! which learning rates follow the batch (`train.optimizer.lr_scaling`), the batch is as large as fits, up to 256
//! samples. `cargo xtask tune` measures instead, and `tune --grow` uses more samples if there is room.
//!
//! **The batches are computed, not measured**: the largest of 16, 8, 4, 2 and 1 that fits into nine tenths of the card
//! according to [`Footprint`], with the trained part (the whole model, a part, or adapters) in f32, products in the
//! type of the card or the one you configure, full windows and the longest texts (for text encoders the maximum that
//! heads allow, or 512 tokens), and on a GPU 0.7 GB for its driver and kernels. A card that you name is used through
//! CUDA unless `device` says otherwise.

use crate::execution::Execution;
use crate::footprint::Footprint;
use crate::trained::TrainedPart;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::{Display, Formatter};
use std::path::Path;
use std::str::FromStr;
use undertone_model::frozen::FrozenDtype;
use undertone_model::text::TextEncoderConfig;
use undertone_model::whisper::WhisperConfig;
use undertone_ops::{Compute, DeviceSpec, runs_on_host};

/// Device preset of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum DevicePreset {
    /// No preset.
    #[default]
    None,
    /// Preset of the device in use.
    Auto,
    /// Preset of a card, by its index in the table.
    Card(usize),
}

/// Properties of a device that determine its preset.
struct Card {
    /// Name in YAML.
    name: &'static str,
    /// Part of the name that the driver reports; empty for a CPU.
    driver: &'static str,
    /// Nominal memory in GB (10⁹ bytes); the actual memory is slightly larger.
    gigabytes: u64,
    /// Number of batches prefetched: fast devices use them up while the host is busy otherwise.
    prefetch_batches: usize,
    /// Type of matrix products: bf16 if the card has units for it, else f16.
    compute: Compute,
}

/// Batch below which a device is not fully used, so that activation checkpointing, a third more arithmetic, pays off.
const FEW: usize = 4;

impl Card {
    /// Returns the largest batch that divides the samples of an optimizer step by a power of two, 0 if not even one
    /// sample fits; and whether it needs activation checkpointing.
    fn fits(&self, model: &Footprint, effective: usize, execution: &Execution) -> (usize, bool) {
        let of = |checkpointed| self.largest(model, effective, &Execution { checkpointed, ..*execution });
        let (kept, again) = (of(false), of(true));
        if kept < FEW && again > kept { (again, true) } else { (kept, false) }
    }

    /// Returns the execution on this card through the backend of `device`, with products in `compute`.
    fn execution(&self, device: DeviceSpec, compute: Compute) -> Execution {
        let execution = match device {
            _ if self.driver.is_empty() => Execution::CPU,
            DeviceSpec::TchCpu | DeviceSpec::TchCuda(_) => Execution::COMPOSED,
            DeviceSpec::Wgpu(_) => Execution::GPU,
            _ if matches!(compute, Compute::Bf16 | Compute::F16) => Execution::GPU.in_half(),
            _ => Execution::GPU,
        };
        execution.with_memory(Some(self.gigabytes * 1_000_000_000))
    }

    fn largest(&self, model: &Footprint, effective: usize, execution: &Execution) -> usize {
        let splits = std::iter::successors(Some(effective), |batch| (batch % 2 == 0).then_some(batch / 2));
        let fits = |batch: &usize| model.bytes(*batch, effective / batch, execution) <= self.usable();
        splits.filter(|batch| *batch > 0).find(fits).unwrap_or(0)
    }

    /// Returns the memory that a run may use, in bytes.
    fn usable(&self) -> u64 {
        match self.driver.is_empty() {
            true => self.gigabytes * 900_000_000,
            false => usable_bytes(self.gigabytes * 1_000_000_000),
        }
    }
}

/// Returns the bytes that a run may use of a GPU's memory: nine tenths, without 0.7 GB for its driver and kernels.
pub fn usable_bytes(memory: u64) -> u64 {
    (memory / 10 * 9).saturating_sub(700_000_000)
}

/// Known devices. The memory of a CPU is half of a laptop's.
#[rustfmt::skip]
static CARDS: [Card; 9] = [
    Card { name: "cpu", driver: "", gigabytes: 8, prefetch_batches: 4, compute: Compute::F32 },
    Card { name: "rtx-5060", driver: "RTX 5060", gigabytes: 8, prefetch_batches: 16, compute: Compute::Bf16 },
    Card { name: "t4", driver: "T4", gigabytes: 16, prefetch_batches: 16, compute: Compute::F16 },
    Card { name: "rtx-4080", driver: "RTX 4080", gigabytes: 16, prefetch_batches: 16, compute: Compute::Bf16 },
    Card { name: "rtx-4090", driver: "RTX 4090", gigabytes: 24, prefetch_batches: 16, compute: Compute::Bf16 },
    Card { name: "a100-40", driver: "A100", gigabytes: 40, prefetch_batches: 32, compute: Compute::Bf16 },
    Card { name: "a100-80", driver: "A100", gigabytes: 80, prefetch_batches: 32, compute: Compute::Bf16 },
    Card { name: "h100-80", driver: "H100", gigabytes: 80, prefetch_batches: 32, compute: Compute::Bf16 },
    Card { name: "h200", driver: "H200", gigabytes: 141, prefetch_batches: 32, compute: Compute::Bf16 },
];

/// Published models by size: part of their names on the hub, and whether they are for speech. If one name contains
/// another, the longer one has precedence in look-ups.
static MODELS: [(&str, bool); 10] = [
    ("whisper-tiny", true),
    ("whisper-base", true),
    ("whisper-small", true),
    ("whisper-medium", true),
    ("whisper-large", true),
    ("whisper-large-v3-turbo", true),
    ("MiniLM-L6", false),
    ("bert-base", false),
    ("roberta-base", false),
    ("roberta-large", false),
];

impl Display for DevicePreset {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Auto => "auto",
            Self::Card(index) => CARDS[*index].name,
        })
    }
}

impl FromStr for DevicePreset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            _ => CARDS.iter().position(|card| card.name == text).map(Self::Card).ok_or_else(|| {
                let names = CARDS.iter().map(|card| card.name).collect::<Vec<_>>().join(", ");
                format!("there is no preset `{text}`: choose none, auto, {names}")
            }),
        }
    }
}

impl TryFrom<String> for DevicePreset {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DevicePreset> for String {
    fn from(preset: DevicePreset) -> Self {
        preset.to_string()
    }
}

/// Properties of a model that are known before it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct PresetModel<'a> {
    /// Name in messages.
    pub name: &'a str,
    /// Whether it reads text rather than speech.
    pub reads_text: bool,
    /// Folder of the model.
    pub folder: Option<&'a Path>,
    /// Name on the hub.
    pub hub: Option<&'a str>,
    /// Dimensions of a new Whisper.
    pub config: Option<&'a WhisperConfig>,
    /// Part that is trained.
    pub trained: &'a TrainedPart,
    /// Type in which its frozen matrices are held.
    pub frozen: FrozenDtype,
    /// Maximum input length of a text encoder, in tokens, if heads determine it.
    pub tokens: Option<usize>,
    /// Bytes of the optimizer's state for a trainable parameter.
    pub optimizer_state: u64,
}

/// Properties of the host and the experiment that determine a preset.
#[derive(Clone, Copy, Debug)]
pub struct PresetContext<'a> {
    /// Device of the experiment.
    pub device: DeviceSpec,
    /// Type of products that the user has set, if not [`Compute::Auto`].
    pub compute: Option<Compute>,
    /// Key of batch size or accumulation that the user has set. The two belong together: if one is set, both stay.
    pub given: Option<&'a str>,
    /// Samples per optimizer step if neither is set.
    pub effective: usize,
    /// Rule by which learning rates follow the batch, if there is one; the batch may then be larger.
    pub rate_rule: Option<&'a str>,
    /// Number of data loader workers if the host determines it.
    pub workers: usize,
}

/// Values of a preset, and the reason for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Values, if a card was found.
    pub settings: Option<PresetSettings>,
    /// Reason for these values.
    pub reason: String,
}

/// Values of a card's preset for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetSettings {
    /// Number of batches prefetched.
    pub prefetch_batches: usize,
    /// Type of matrix products.
    pub compute: Compute,
    /// Split of an optimizer step; `None` if it does not change.
    pub split: Option<PresetSplit>,
}

/// Split of an optimizer step into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetSplit {
    /// Samples per batch.
    pub batch_size: usize,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// Whether activation checkpointing is on.
    pub checkpointed: bool,
    /// Samples per optimizer step that the learning rates are tuned for, if this step has more.
    pub base_batch: Option<usize>,
}

impl DevicePreset {
    /// Returns the preset for a model; `None` if no preset is requested.
    pub fn resolve(self, model: &PresetModel, context: &PresetContext) -> Option<Preset> {
        let found = match self {
            Self::None => return None,
            Self::Card(index) => Ok((&CARDS[index], "as asked for".to_owned())),
            Self::Auto => of_device(context.device),
        };
        // `auto` is the backend that this build prefers; a card that is named may be elsewhere.
        let in_use = || context.device.resolve().ok().and_then(|device| DeviceSpec::of(&device));
        let device = if self == Self::Auto { in_use().unwrap_or(context.device) } else { context.device };
        Some(match found {
            Ok((card, why)) => chosen(card, &why, model, &PresetContext { device, ..*context }),
            Err(why) => Preset { settings: None, reason: format!("device preset: none is used, {why}") },
        })
    }
}

/// Returns the preset of a card for a model.
fn chosen(card: &Card, why: &str, model: &PresetModel, context: &PresetContext) -> Preset {
    let (split, said) = match (context.given, published_size(model)) {
        (Some(key), _) => (None, format!("`{key}` is given, so the batch stays")),
        (None, Err(unknown)) => (None, format!("the batch stays, {unknown}")),
        (None, Ok((index, like))) => {
            let like =
                if model.frozen == FrozenDtype::F32 { like } else { format!("{like}, frozen in {}", model.frozen) };
            let (split, said) = split(card, &footprint(index, model), &like, context);
            (Some(split), said)
        }
    };
    let Card { name, prefetch_batches, compute, .. } = *card;
    let reason = format!(
        "device preset {name}: {why}; {said}; compute {compute}, workers auto ({} here), prefetch_batches {prefetch_batches}",
        context.workers
    );
    Preset { settings: Some(PresetSettings { prefetch_batches, compute, split }), reason }
}

/// Returns the split of an optimizer step for a model, and a sentence about it.
fn split(card: &Card, model: &Footprint, like: &str, context: &PresetContext) -> (PresetSplit, String) {
    let effective = context.effective;
    let execution = card.execution(context.device, context.compute.unwrap_or(card.compute));
    let most = std::iter::successors(Some(effective), |batch| Some(2 * batch)).take_while(|batch| *batch <= MOST);
    let most = most.filter(|batch| card.largest(model, *batch, &execution) == *batch).last().unwrap_or(effective);
    if let (Some(rule), true) = (context.rate_rule, most > effective) {
        let said =
            format!("batch {most} for {like}, instead of {effective}: learning rates follow by `lr_scaling: {rule}`");
        let base_batch = Some(effective);
        return (PresetSplit { batch_size: most, accumulation: 1, checkpointed: false, base_batch }, said);
    }
    let (fits, checkpointed) = card.fits(model, effective, &execution);
    let batch_size = fits.max(1);
    let accumulation = effective / batch_size;
    let again = if checkpointed { ", blocks run again in the backward pass" } else { "" };
    let said = format!("batch {batch_size} × accumulation {accumulation} for {like}{again}");
    let said = match fits {
        0 => format!(
            "{said}, of which by arithmetic not even one sample fits: train a part (`model.trainable`, or adapters by `tasks`) or a smaller model"
        ),
        _ if most > effective => format!(
            "{said} ({most} samples would fit: `train.optimizer.lr_scaling` says how learning rates follow a larger batch)"
        ),
        _ => said,
    };
    (PresetSplit { batch_size, accumulation, checkpointed, base_batch: None }, said)
}

/// Maximum batch of a preset: a larger one is seldom worth its samples; `tune --grow` goes further.
const MOST: usize = 256;

/// Returns the card of a device, or the largest one that is not larger; and the reason.
fn of_device(device: DeviceSpec) -> Result<(&'static Card, String), String> {
    let resolved = device.resolve().map_err(|e| e.to_string())?;
    if runs_on_host(&resolved) {
        return Ok((&CARDS[0], "there is no GPU in use".into()));
    }
    let index = match device {
        DeviceSpec::Cuda(index) | DeviceSpec::TchCuda(index) => index,
        _ => 0,
    };
    let (name, bytes) = undertone_train::gpu(index).ok_or("the driver does not say what GPU it is")?;
    of_gpu(&name, bytes).ok_or_else(|| format!("`{name}` has less memory than any card there is a preset for"))
}

fn of_gpu(name: &str, bytes: u64) -> Option<(&'static Card, String)> {
    // A card of 24 GB may report 23.6 GB.
    let fits = |card: &&Card| !card.driver.is_empty() && card.gigabytes as f64 * 0.95e9 <= bytes as f64;
    let named = CARDS.iter().filter(fits).filter(|card| name.contains(card.driver)).max_by_key(|card| card.gigabytes);
    let what = format!("{name} with {:.0} GB", bytes as f64 / 1e9);
    match named {
        Some(card) => Some((card, what)),
        None => {
            let smaller = CARDS.iter().filter(fits).max_by_key(|card| card.gigabytes)?;
            Some((smaller, format!("{what}, the next smaller there is a preset for")))
        }
    }
}

/// Returns the published model of the same size: itself, or the smallest that needs as much memory; and its name. If
/// there is none, returns the reason.
fn published_size(model: &PresetModel) -> Result<(usize, String), String> {
    let speech = !model.reads_text;
    if let (None, Some(hub)) = (model.folder, model.hub) {
        let named = |(_, (name, for_speech)): &(usize, &(&str, bool))| {
            *for_speech == speech && hub.to_lowercase().contains(&name.to_lowercase())
        };
        let found = MODELS.iter().enumerate().filter(named).max_by_key(|(_, (name, _))| name.len());
        return found
            .map(|(index, (name, _))| (index, (*name).to_owned()))
            .ok_or(format!("the size of `{hub}` is not in its name"));
    }
    let own = match (model.folder, model.config) {
        (Some(folder), _) => in_folder(folder, model.reads_text)
            .ok_or(format!("`{}` has no config.json of such a model", folder.display()))?,
        (None, Some(config)) => match config.check_new() {
            Ok(()) => Footprint::whisper(config),
            Err(error) => return Err(error.to_string()),
        },
        (None, None) if speech => return Ok((0, format!("{}, which is smaller than {}", model.name, MODELS[0].0))),
        (None, None) => return Err("there is no model".into()),
    };
    let takes = |footprint: &Footprint| footprint.bytes(1, 1, &Execution::CPU);
    let sizes = (0..MODELS.len()).filter(|index| MODELS[*index].1 == speech);
    let enough = sizes.filter(|index| takes(&published(*index)) as f64 >= 0.98 * takes(&own) as f64);
    let found = enough.min_by_key(|index| takes(&published(*index)));
    found
        .map(|index| (index, format!("a model of the size of {}", MODELS[index].0)))
        .ok_or("the model is larger than any in the table".into())
}

/// Returns the footprint of training a published model.
fn footprint(index: usize, model: &PresetModel) -> Footprint {
    let whole = published(index);
    let whole = match model.tokens.filter(|_| model.reads_text) {
        Some(tokens) => whole.on(tokens, 0),
        None => whole,
    };
    whole.training_part(model.trained).holding(model.frozen).with_optimizer_state(model.optimizer_state)
}

fn in_folder(folder: &Path, reads_text: bool) -> Option<Footprint> {
    let text = std::fs::read_to_string(folder.join("config.json")).ok()?;
    let json: Map<String, Value> = serde_json::from_str(&text).ok()?;
    match reads_text {
        true => TextEncoderConfig::from_hf(&json).ok().map(|config| Footprint::text(&config, TEXT_TOKENS)),
        false => WhisperConfig::from_hf(&json).ok().map(|config| Footprint::whisper(&config)),
    }
}

/// Number of positions of BERT and RoBERTa.
const TEXT_TOKENS: usize = 512;

/// Returns the footprint of full training of a published model.
pub(crate) fn published(index: usize) -> Footprint {
    let whisper = |d_model: usize, encoder_layers, decoder_layers, num_mel_bins, vocab_size| {
        // The head width is 64.
        let heads = d_model / 64;
        Footprint::whisper(&WhisperConfig {
            num_mel_bins,
            vocab_size,
            ..WhisperConfig::new(d_model, 4 * d_model, heads, [encoder_layers, decoder_layers])
        })
    };
    let text = |hidden_size: usize, layers, heads, vocab_size| {
        let stock = TextEncoderConfig::new(hidden_size, 4 * hidden_size, heads, layers);
        Footprint::text(&TextEncoderConfig { vocab_size, ..stock }, TEXT_TOKENS)
    };
    match index {
        0 => whisper(384, 4, 4, 80, 51865),
        1 => whisper(512, 6, 6, 80, 51865),
        2 => whisper(768, 12, 12, 80, 51865),
        3 => whisper(1024, 24, 24, 80, 51865),
        4 => whisper(1280, 32, 32, 128, 51866),
        5 => whisper(1280, 32, 4, 128, 51866),
        6 => text(384, 6, 12, 30522),
        7 => text(768, 12, 12, 30522),
        8 => text(768, 12, 12, 50265),
        _ => text(1024, 24, 16, 50265),
    }
}

#[cfg(test)]
mod tests;
