//! Settings by device: how much of an optimizer step fits at once, and how much data is made ahead.
//!
//! A preset is a layer between the defaults and the YAML: what the YAML, the environment or `--set` say wins. It splits
//! the default effective batch of 16 samples and changes nothing that is learned. Where the configuration says by which
//! rule learning rates follow the batch (`train.optimizer.lr_scaling`), the batch is as large as fits, up to 256 samples.
//! `cargo xtask tune` measures instead, and `tune --grow` asks for more samples where there is room.
//!
//! **The batches are computed, not measured**: the largest of 16, 8, 4, 2 and 1 that fits into nine tenths of the card by
//! [`Footprint`], with what is trained (the whole model, a part, or adapters) in f32, full windows and the longest texts
//! (of text encoders those that heads allow, or 512 tokens), and on a GPU 0.7 GB for its driver and kernels.

use crate::footprint::{Execution, Footprint};
use crate::trained::TrainedPart;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::{Display, Formatter};
use std::path::Path;
use std::str::FromStr;
use undertone_model::text::TextEncoderConfig;
use undertone_model::whisper::WhisperConfig;
use undertone_ops::{Compute, DeviceSpec, runs_on_host};

/// Which device's settings an experiment begins from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DevicePreset {
    /// No device's.
    #[default]
    None,
    /// Those of the device the experiment is on.
    Auto,
    /// Those of a card, by its place in the table.
    Card(usize),
}

/// A device, as far as a preset is concerned.
struct Card {
    /// What YAML calls it.
    name: &'static str,
    /// What the driver's name for it contains; nothing for a CPU.
    driver: &'static str,
    /// Its memory in GB (10⁹ bytes, of which there are a few more).
    gigabytes: u64,
    /// Batches made ahead: fast devices empty them while the host does something else.
    prefetch_batches: usize,
    /// What products are computed in: what the card has units for, f16 where it has none for bf16.
    compute: Compute,
}

/// Below so many samples a device is not kept busy, and a third more arithmetic is the better bargain.
const FEW: usize = 4;

impl Card {
    /// The largest batch of a model that divides the samples of an optimizer step by a power of two, 0 where not one sample
    /// fits; and whether blocks run again in the backward pass for it.
    fn fits(&self, model: &Footprint, effective: usize) -> (usize, bool) {
        let (kept, again) = (self.largest(model, effective, false), self.largest(model, effective, true));
        if kept < FEW && again > kept { (again, true) } else { (kept, false) }
    }

    fn largest(&self, model: &Footprint, effective: usize, checkpointed: bool) -> usize {
        // Products in half precision leave what lies between them in f32.
        let execution = if self.driver.is_empty() { Execution::CPU } else { Execution::ACCELERATOR };
        let execution = Execution { checkpointed, ..execution };
        let splits = std::iter::successors(Some(effective), |batch| (batch % 2 == 0).then_some(batch / 2));
        let fits = |batch: &usize| model.bytes(*batch, effective / batch, &execution) <= self.usable();
        splits.filter(|batch| *batch > 0).find(fits).unwrap_or(0)
    }

    /// What of its memory a run may count on, in bytes.
    fn usable(&self) -> u64 {
        let driver = if self.driver.is_empty() { 0 } else { 700_000_000 };
        self.gigabytes * 900_000_000 - driver
    }
}

/// The cards. For CPUs, half of a laptop's memory.
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

/// Published models by size: what hub names contain, and whether it is for speech. Of names that contain one another the longer comes
/// first when one is looked for.
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
                format!("there is no preset `{text}`: there are none, auto, {names}")
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

/// What is known of a model before it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct PresetModel<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// Whether it reads text rather than speech.
    pub reads_text: bool,
    /// The folder that it is in.
    pub folder: Option<&'a Path>,
    /// Its name on the hub.
    pub hub: Option<&'a str>,
    /// The dimensions of a fresh Whisper.
    pub config: Option<&'a WhisperConfig>,
    /// What of it is trained.
    pub trained: &'a TrainedPart,
    /// The longest inputs of a text encoder, in tokens, where heads say it.
    pub tokens: Option<usize>,
}

/// The host's and the experiment's part in a preset.
#[derive(Clone, Copy, Debug)]
pub struct PresetContext<'a> {
    /// The device the experiment is on.
    pub device: DeviceSpec,
    /// The key of batch or accumulation that is given. They are one decision: who gives one of them has made it.
    pub given: Option<&'a str>,
    /// Samples of an optimizer step where nothing is given.
    pub effective: usize,
    /// The rule by which learning rates follow the batch, where there is one: then it may be larger.
    pub rate_rule: Option<&'a str>,
    /// Threads that make samples where their number is left to the host.
    pub workers: usize,
}

/// What a preset gives, and the line that says why.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The values, where a card was found.
    pub settings: Option<PresetSettings>,
    /// Why these.
    pub reason: String,
}

/// The values of a card for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetSettings {
    /// Batches made ahead.
    pub prefetch_batches: usize,
    /// What products are computed in.
    pub compute: Compute,
    /// How an optimizer step is split; nothing where it stays as it is.
    pub split: Option<PresetSplit>,
}

/// How the samples of an optimizer step are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetSplit {
    /// Samples per batch.
    pub batch_size: usize,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// Whether blocks run again in the backward pass.
    pub checkpointed: bool,
    /// Samples of an optimizer step that learning rates are for, where this one has more.
    pub base_batch: Option<usize>,
}

impl DevicePreset {
    /// What it gives for a model; nothing where no preset is asked for.
    pub fn resolve(self, model: &PresetModel, context: &PresetContext) -> Option<Preset> {
        let found = match self {
            Self::None => return None,
            Self::Card(index) => Ok((&CARDS[index], "as asked for".to_owned())),
            Self::Auto => of_device(context.device),
        };
        Some(match found {
            Ok((card, why)) => chosen(card, &why, model, context),
            Err(why) => Preset { settings: None, reason: format!("device preset: none is used, {why}") },
        })
    }
}

/// The values of a card for a model.
fn chosen(card: &Card, why: &str, model: &PresetModel, context: &PresetContext) -> Preset {
    let (split, said) = match (context.given, published_size(model)) {
        (Some(key), _) => (None, format!("`{key}` is given, so the batch stays")),
        (None, Err(unknown)) => (None, format!("the batch stays, {unknown}")),
        (None, Ok((index, like))) => {
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

/// How a step of a model is split, and a sentence about it.
fn split(card: &Card, model: &Footprint, like: &str, context: &PresetContext) -> (PresetSplit, String) {
    let effective = context.effective;
    let most = std::iter::successors(Some(effective), |batch| Some(2 * batch)).take_while(|batch| *batch <= MOST);
    let most = most.filter(|batch| card.largest(model, *batch, false) == *batch).last().unwrap_or(effective);
    if let (Some(rule), true) = (context.rate_rule, most > effective) {
        let said =
            format!("batch {most} for {like}, instead of {effective}: learning rates follow by `lr_scaling: {rule}`");
        let base_batch = Some(effective);
        return (PresetSplit { batch_size: most, accumulation: 1, checkpointed: false, base_batch }, said);
    }
    let (fits, checkpointed) = card.fits(model, effective);
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

/// A larger step is seldom worth its samples; `tune --grow` goes further.
const MOST: usize = 256;

/// The card a device is, or the largest that is no larger; and why.
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
    // A card of 24 GB may call itself one of 23.6.
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

/// The published model of a model's size: itself, or the smallest that takes as much; and its name. If there is none, why.
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

/// What training a published model takes.
fn footprint(index: usize, model: &PresetModel) -> Footprint {
    let whole = published(index);
    let whole = match model.tokens.filter(|_| model.reads_text) {
        Some(tokens) => whole.on(tokens, 0),
        None => whole,
    };
    whole.training_part(model.trained)
}

fn in_folder(folder: &Path, reads_text: bool) -> Option<Footprint> {
    let text = std::fs::read_to_string(folder.join("config.json")).ok()?;
    let json: Map<String, Value> = serde_json::from_str(&text).ok()?;
    match reads_text {
        true => TextEncoderConfig::from_hf(&json).ok().map(|config| Footprint::text(&config, TEXT_TOKENS)),
        false => WhisperConfig::from_hf(&json).ok().map(|config| Footprint::whisper(&config)),
    }
}

/// All that BERT and RoBERTa have positions for.
const TEXT_TOKENS: usize = 512;

/// What a published model takes.
fn published(index: usize) -> Footprint {
    let whisper = |d_model: usize, encoder_layers, decoder_layers, num_mel_bins| {
        // Heads of 64.
        let heads = d_model / 64;
        Footprint::whisper(&WhisperConfig {
            d_model,
            encoder_layers,
            decoder_layers,
            encoder_attention_heads: heads,
            decoder_attention_heads: heads,
            encoder_ffn_dim: 4 * d_model,
            decoder_ffn_dim: 4 * d_model,
            num_mel_bins,
            ..Default::default()
        })
    };
    let text = |hidden_size: usize, num_hidden_layers, num_attention_heads, vocab_size| {
        let config = TextEncoderConfig {
            hidden_size,
            num_hidden_layers,
            num_attention_heads,
            intermediate_size: 4 * hidden_size,
            vocab_size,
            ..Default::default()
        };
        Footprint::text(&config, TEXT_TOKENS)
    };
    match index {
        0 => whisper(384, 4, 4, 80),
        1 => whisper(512, 6, 6, 80),
        2 => whisper(768, 12, 12, 80),
        3 => whisper(1024, 24, 24, 80),
        4 => whisper(1280, 32, 32, 128),
        5 => whisper(1280, 32, 4, 128),
        6 => text(384, 6, 12, 30522),
        7 => text(768, 12, 12, 30522),
        8 => text(768, 12, 12, 50265),
        _ => text(1024, 24, 16, 50265),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_is_the_largest_that_fits_its_card() {
        // tiny, base, small, medium, large and turbo; MiniLM, BERT, RoBERTa and RoBERTa-large: without blocks that run
        // again in the backward pass, and with them.
        #[rustfmt::skip]
        let table = [
            ("cpu", [16, 8, 0, 0, 0, 0, 16, 8, 8, 0], [16, 16, 4, 0, 0, 0, 16, 16, 16, 0]),
            ("rtx-5060", [8, 4, 0, 0, 0, 0, 16, 8, 4, 0], [16, 16, 0, 0, 0, 0, 16, 16, 16, 0]),
            ("t4", [16, 16, 2, 0, 0, 0, 16, 16, 16, 4], [16, 16, 16, 0, 0, 0, 16, 16, 16, 16]),
            ("rtx-4080", [16, 16, 2, 0, 0, 0, 16, 16, 16, 4], [16, 16, 16, 0, 0, 0, 16, 16, 16, 16]),
            ("rtx-4090", [16, 16, 4, 0, 0, 0, 16, 16, 16, 8], [16, 16, 16, 2, 0, 1, 16, 16, 16, 16]),
            ("a100-40", [16, 16, 16, 2, 0, 2, 16, 16, 16, 16], [16, 16, 16, 16, 0, 16, 16, 16, 16, 16]),
            ("a100-80", [16, 16, 16, 8, 4, 8, 16, 16, 16, 16], [16, 16, 16, 16, 16, 16, 16, 16, 16, 16]),
            ("h100-80", [16, 16, 16, 8, 4, 8, 16, 16, 16, 16], [16, 16, 16, 16, 16, 16, 16, 16, 16, 16]),
            ("h200", [16, 16, 16, 16, 8, 16, 16, 16, 16, 16], [16, 16, 16, 16, 16, 16, 16, 16, 16, 16]),
        ];
        let rows = CARDS.iter().map(|card| {
            let computed = |checkpointed| -> [usize; 10] {
                std::array::from_fn(|index| card.largest(&published(index), 16, checkpointed))
            };
            (card.name, computed(false), computed(true))
        });
        assert_eq!(table.to_vec(), rows.collect::<Vec<_>>());
    }

    fn resolved(
        card: &str,
        hub: &str,
        trained: &TrainedPart,
        tokens: Option<usize>,
        rate_rule: Option<&str>,
    ) -> Preset {
        let reads_text = !hub.contains("whisper");
        let model = PresetModel { name: hub, reads_text, folder: None, hub: Some(hub), config: None, trained, tokens };
        let context = PresetContext { device: DeviceSpec::Cpu, given: None, effective: 16, rate_rule, workers: 1 };
        card.parse::<DevicePreset>().expect("a card").resolve(&model, &context).expect("a preset")
    }

    #[test]
    fn adapters_are_not_sized_as_full_fine_tuning() {
        let adapters = TrainedPart::Adapters(vec![crate::AdapterSize { r: 16, target_modules: vec!["q_proj".into()] }]);
        let batch = |card, hub, trained| {
            let split = resolved(card, hub, trained, None, None).settings.and_then(|s| s.split).expect("a split");
            (split.batch_size, split.checkpointed)
        };
        assert_eq!(batch("t4", "openai/whisper-medium", &TrainedPart::All), (1, false));
        assert_eq!(batch("t4", "openai/whisper-medium", &adapters), (8, true));
        assert_eq!(batch("rtx-5060", "openai/whisper-small", &TrainedPart::All), (1, false));
        assert!(batch("rtx-5060", "openai/whisper-small", &adapters).0 >= 8);
    }

    #[test]
    fn a_large_card_has_larger_batches_where_it_is_said_how_rates_follow() {
        let split = |rule, tokens| {
            let preset = resolved("a100-40", "roberta-base", &TrainedPart::All, tokens, rule);
            (preset.settings.and_then(|settings| settings.split).expect("a split"), preset.reason)
        };
        let (usual, reason) = split(None, None);
        assert_eq!((usual.batch_size, usual.accumulation, usual.base_batch), (16, 1, None));
        assert!(reason.contains("samples would fit") && reason.contains("lr_scaling"), "{reason}");
        let (grown, reason) = split(Some("sqrt"), None);
        assert!(grown.batch_size > 16 && (grown.accumulation, grown.base_batch) == (1, Some(16)), "{grown:?}");
        assert!(reason.contains("instead of 16") && reason.contains("sqrt"), "{reason}");
        let short = split(Some("sqrt"), Some(128)).0.batch_size;
        assert!(grown.batch_size < short && short <= MOST, "short texts leave room for more: {short}");
        let small = resolved("t4", "openai/whisper-small", &TrainedPart::All, None, Some("sqrt"));
        assert_eq!(small.settings.and_then(|s| s.split).map(|split| split.base_batch), Some(None), "there is no room");
    }

    #[test]
    fn names_round_trip() {
        for name in ["none", "auto", "cpu", "rtx-5060", "a100-80", "h200"] {
            assert_eq!(name.parse::<DevicePreset>().expect(name).to_string(), name);
        }
        let refused = "rtx-6000".parse::<DevicePreset>().expect_err("no such card");
        assert!(refused.contains("rtx-6000") && refused.contains("h100-80"), "{refused}");
    }

    #[test]
    fn gpus_are_known_by_name_and_memory() {
        for (gpu, mib, name) in [
            ("NVIDIA H200", 143771, Some("h200")),
            ("NVIDIA A100-SXM4-40GB", 40960, Some("a100-40")),
            ("NVIDIA A100-SXM4-80GB", 81920, Some("a100-80")),
            ("NVIDIA GeForce RTX 4090", 24564, Some("rtx-4090")),
            ("NVIDIA GeForce RTX 5060", 8151, Some("rtx-5060")),
            ("Tesla T4", 15360, Some("t4")),
            ("NVIDIA GeForce RTX 3060", 12288, Some("rtx-5060")),
            ("NVIDIA GeForce GTX 1050", 2048, None),
        ] {
            assert_eq!(of_gpu(gpu, mib << 20).map(|(card, _)| card.name), name, "{gpu}");
        }
    }
}
