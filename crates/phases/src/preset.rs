//! Settings by device: how much of an optimizer step fits at once, and how much data is made ahead.
//!
//! A preset is a layer between the defaults and the YAML: what the YAML, the environment or `--set` say wins. It splits
//! the default effective batch of 16 samples and changes nothing that is learned; `cargo xtask tune` measures instead, and
//! `tune --grow` asks for more samples where there is room.
//!
//! **The batches are computed, not measured**: the largest of 16, 8, 4, 2 and 1 that fits into nine tenths of the card by
//! [`Footprint`](crate::footprint::Footprint), with the whole model trained in f32, full windows and the longest texts (of
//! text encoders 512 tokens), and on a GPU 0.7 GB for its driver and kernels. A test compares every one.

use crate::footprint::Footprint;
use crate::{Backbone, DataConfig, ModelConfig};
use figment::Figment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt::{Display, Formatter};
use std::path::Path;
use std::str::FromStr;
use undertone_data::loader::Workers;
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

/// A device, and the batches that fit it.
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
    /// Samples per batch for each of [`MODELS`]; 0 where not one fits.
    batches: [usize; 10],
    /// The same where every block runs again in the backward pass.
    checkpointed: [usize; 10],
}

/// Below so many samples a device is not kept busy, and a third more arithmetic is the better bargain.
const FEW: usize = 4;

impl Card {
    /// Samples per batch for a model, and whether blocks run again in the backward pass for it.
    fn fits(&self, column: usize) -> (usize, bool) {
        let (kept, again) = (self.batches[column], self.checkpointed[column]);
        if kept < FEW && again > kept { (again, true) } else { (kept, false) }
    }
}

/// The table. For CPUs, half of a laptop's memory. Batches in the order of [`MODELS`]: tiny, base, small, medium, large and
/// turbo; MiniLM, BERT, RoBERTa and RoBERTa-large.
#[rustfmt::skip]
static CARDS: [Card; 9] = [
    Card { name: "cpu", driver: "", gigabytes: 8, prefetch_batches: 4, compute: Compute::F32,
           batches:      [16,  8,  0,  0,  0,  0, 16,  8,  8,  0],
           checkpointed: [16, 16,  4,  0,  0,  0, 16, 16, 16,  0] },
    Card { name: "rtx-5060", driver: "RTX 5060", gigabytes: 8, prefetch_batches: 16, compute: Compute::Bf16,
           batches:      [ 8,  4,  0,  0,  0,  0, 16,  8,  4,  0],
           checkpointed: [16, 16,  0,  0,  0,  0, 16, 16, 16,  0] },
    Card { name: "t4", driver: "T4", gigabytes: 16, prefetch_batches: 16, compute: Compute::F16,
           batches:      [16, 16,  2,  0,  0,  0, 16, 16, 16,  4],
           checkpointed: [16, 16, 16,  0,  0,  0, 16, 16, 16, 16] },
    Card { name: "rtx-4080", driver: "RTX 4080", gigabytes: 16, prefetch_batches: 16, compute: Compute::Bf16,
           batches:      [16, 16,  2,  0,  0,  0, 16, 16, 16,  4],
           checkpointed: [16, 16, 16,  0,  0,  0, 16, 16, 16, 16] },
    Card { name: "rtx-4090", driver: "RTX 4090", gigabytes: 24, prefetch_batches: 16, compute: Compute::Bf16,
           batches:      [16, 16,  4,  0,  0,  0, 16, 16, 16,  8],
           checkpointed: [16, 16, 16,  2,  0,  1, 16, 16, 16, 16] },
    Card { name: "a100-40", driver: "A100", gigabytes: 40, prefetch_batches: 32, compute: Compute::Bf16,
           batches:      [16, 16, 16,  2,  0,  2, 16, 16, 16, 16],
           checkpointed: [16, 16, 16, 16,  0, 16, 16, 16, 16, 16] },
    Card { name: "a100-80", driver: "A100", gigabytes: 80, prefetch_batches: 32, compute: Compute::Bf16,
           batches:      [16, 16, 16,  8,  4,  8, 16, 16, 16, 16],
           checkpointed: [16, 16, 16, 16, 16, 16, 16, 16, 16, 16] },
    Card { name: "h100-80", driver: "H100", gigabytes: 80, prefetch_batches: 32, compute: Compute::Bf16,
           batches:      [16, 16, 16,  8,  4,  8, 16, 16, 16, 16],
           checkpointed: [16, 16, 16, 16, 16, 16, 16, 16, 16, 16] },
    Card { name: "h200", driver: "H200", gigabytes: 141, prefetch_batches: 32, compute: Compute::Bf16,
           batches:      [16, 16, 16, 16,  8, 16, 16, 16, 16, 16],
           checkpointed: [16, 16, 16, 16, 16, 16, 16, 16, 16, 16] },
];

/// The columns: what hub names contain, and whether it is for speech. Of names that contain one another the longer comes
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

/// What a preset gives, and the line that says why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    pub keys: Map<String, Value>,
    pub reason: String,
}

/// The layer that `figment` asks for, below everything that is in it; none if it asks for none, or cannot be read, which
/// is said when it is read as a whole.
pub(crate) fn layer(figment: &Figment) -> Option<Layer> {
    let preset: DevicePreset = figment.extract_inner("device_preset").ok()?;
    let device: DeviceSpec = figment.extract_inner("device").unwrap_or_default();
    let model: ModelConfig = match figment.find_value("model") {
        Ok(_) => figment.extract_inner("model").ok()?,
        Err(_) => ModelConfig::default(),
    };
    let found = match preset {
        DevicePreset::None => return None,
        DevicePreset::Card(index) => Ok((&CARDS[index], "as asked for".to_owned())),
        DevicePreset::Auto => of_device(device),
    };
    let given = ["data.batch_size", "train.accumulation"].into_iter().find(|key| figment.find_value(key).is_ok());
    let nothing = |why: String| Layer { keys: Map::new(), reason: format!("device preset: none is used, {why}") };
    Some(match found {
        Ok((card, why)) => chosen(card, &why, &model, given),
        Err(why) => nothing(why),
    })
}

/// The keys of a card for a model. Batch and accumulation are one decision: who gives one of them has made it.
fn chosen(card: &Card, why: &str, model: &ModelConfig, given: Option<&str>) -> Layer {
    // How many threads make samples is the host's affair, whatever the card.
    let workers = Workers::Auto;
    let mut data = json!({ "prefetch_batches": card.prefetch_batches, "workers": workers });
    let mut train = json!({ "compute": card.compute });
    let effective = DataConfig::default().batch_size;
    let split = match (given, column(model)) {
        (Some(key), _) => format!("`{key}` is given, so the batch stays"),
        (None, Err(unknown)) => format!("the batch stays, {unknown}"),
        (None, Ok((index, like))) => {
            let (fits, again) = card.fits(index);
            let batch = fits.max(1);
            train["gradient_checkpointing"] = json!(again);
            data["batch_size"] = json!(batch);
            train["accumulation"] = json!(effective / batch);
            let again = if again { ", blocks run again in the backward pass" } else { "" };
            let split = format!("batch {batch} × accumulation {} for {like}{again}", effective / batch);
            match fits {
                0 => format!(
                    "{split}, of which by arithmetic not even one sample fits: train a part (`model.trainable`, or adapters by `tasks`) or a smaller model"
                ),
                _ => split,
            }
        }
    };
    let Card { name, prefetch_batches, .. } = card;
    let reason = format!(
        "device preset {name}: {why}; {split}; compute {}, workers auto ({} here), prefetch_batches {prefetch_batches}",
        card.compute,
        workers.count()
    );
    let keys = [("data".to_owned(), data), ("train".to_owned(), train)].into_iter().collect();
    Layer { keys, reason }
}

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
    let (name, bytes) = undertone_train::gpu(index).ok_or("the driver (nvidia-smi) does not say what GPU it is")?;
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

/// `NVIDIA H200, 143771`, as `nvidia-smi` prints it: MiB.
#[cfg(test)]
fn parse_gpu(line: &str) -> Option<(String, u64)> {
    let (name, mib) = line.lines().next()?.rsplit_once(',')?;
    Some((name.trim().to_owned(), mib.trim().parse::<u64>().ok()? << 20))
}

/// The column of a model: its own, or the smallest that takes as much; and its name. If there is none, why.
fn column(model: &ModelConfig) -> Result<(usize, String), String> {
    let speech = !model.backbone.is_text();
    let folder = model.path.as_ref().or(model.source.path.as_ref());
    if let (None, Some(hub)) = (folder, &model.source.hub) {
        let named = |(_, (name, for_speech)): &(usize, &(&str, bool))| {
            *for_speech == speech && hub.to_lowercase().contains(&name.to_lowercase())
        };
        let found = MODELS.iter().enumerate().filter(named).max_by_key(|(_, (name, _))| name.len());
        return found
            .map(|(index, (name, _))| (index, (*name).to_owned()))
            .ok_or(format!("the size of `{hub}` is not in its name"));
    }
    let own = match (folder, &model.source.config) {
        (Some(folder), _) => in_folder(folder, model.backbone)
            .ok_or(format!("`{}` has no config.json of such a model", folder.display()))?,
        (None, Some(config)) => match config.check_new() {
            Ok(()) => Footprint::whisper(config),
            Err(error) => return Err(error.to_string()),
        },
        (None, None) if speech => return Ok((0, format!("{model}, which is smaller than {}", MODELS[0].0))),
        (None, None) => return Err("there is no model".into()),
    };
    let takes = |footprint: &Footprint| footprint.bytes(1, 1, &crate::footprint::Treatment::CPU);
    let columns = (0..MODELS.len()).filter(|index| MODELS[*index].1 == speech);
    let enough = columns.filter(|index| takes(&published(*index)) as f64 >= 0.98 * takes(&own) as f64);
    let found = enough.min_by_key(|index| takes(&published(*index)));
    found
        .map(|index| (index, format!("a model of the size of {}", MODELS[index].0)))
        .ok_or("the model is larger than any in the table".into())
}

fn in_folder(folder: &Path, backbone: Backbone) -> Option<Footprint> {
    let text = std::fs::read_to_string(folder.join("config.json")).ok()?;
    let json: Map<String, Value> = serde_json::from_str(&text).ok()?;
    match backbone.is_text() {
        true => TextEncoderConfig::from_hf(&json).ok().map(|config| Footprint::text(&config, TEXT_TOKENS)),
        false => WhisperConfig::from_hf(&json).ok().map(|config| Footprint::whisper(&config)),
    }
}

/// All that BERT and RoBERTa have positions for.
const TEXT_TOKENS: usize = 512;

/// What the models of the columns take.
fn published(column: usize) -> Footprint {
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
    match column {
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
    use crate::Experiment;
    use crate::footprint::Treatment;

    /// What of a card a run may count on.
    fn usable(card: &Card) -> u64 {
        let runtime = if card.driver.is_empty() { 0 } else { 700_000_000 };
        card.gigabytes * 900_000_000 - runtime
    }

    fn treatment(card: &Card) -> Treatment {
        if card.driver.is_empty() { Treatment::CPU } else { Treatment::ACCELERATOR }
    }

    #[test]
    fn every_batch_is_the_largest_that_fits_its_card() {
        let rows = CARDS.iter().map(|card| {
            let computed = |checkpointed| -> [usize; 10] {
                std::array::from_fn(|column| {
                    // Products in half precision leave what lies between them in f32.
                    let treatment = Treatment { checkpointed, ..treatment(card) };
                    let fits = |batch: &usize| published(column).bytes(*batch, 16 / batch, &treatment) <= usable(card);
                    [16, 8, 4, 2, 1].into_iter().find(fits).unwrap_or(0)
                })
            };
            (card.name, computed(false), computed(true))
        });
        let table = CARDS.iter().map(|card| (card.name, card.batches, card.checkpointed));
        assert_eq!(table.collect::<Vec<_>>(), rows.collect::<Vec<_>>());
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
        let card = |line: &str| {
            let (name, bytes) = parse_gpu(line).expect(line);
            of_gpu(&name, bytes).map(|(card, _)| card.name)
        };
        for (line, name) in [
            ("NVIDIA H200, 143771\n", Some("h200")),
            ("NVIDIA A100-SXM4-40GB, 40960", Some("a100-40")),
            ("NVIDIA A100-SXM4-80GB, 81920", Some("a100-80")),
            ("NVIDIA GeForce RTX 4090, 24564", Some("rtx-4090")),
            ("NVIDIA GeForce RTX 5060, 8151", Some("rtx-5060")),
            ("Tesla T4, 15360", Some("t4")),
            ("NVIDIA GeForce RTX 3060, 12288", Some("rtx-5060")),
            ("NVIDIA GeForce GTX 1050, 2048", None),
        ] {
            assert_eq!(card(line), name, "{line}");
        }
        assert_eq!(parse_gpu("No devices were found"), None);
    }

    fn load(settings: &[&str]) -> Experiment {
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        Experiment::load(None, &settings).expect("an experiment")
    }

    #[test]
    fn a_preset_splits_the_batch_and_what_is_given_wins() {
        let split = |settings: &[&str]| {
            let experiment = load(settings);
            (experiment.data.batch_size, experiment.train.accumulation, experiment.data.prefetch_batches)
        };
        let (small, medium) = ("model.source.hub=openai/whisper-small.en", "model.source.hub=openai/whisper-medium");
        assert_eq!(split(&[]), (16, 1, 16));
        // Sixteen samples with blocks that run again instead of two without.
        assert_eq!(split(&["device_preset=t4", small]), (16, 1, 16));
        let train = |settings: &[&str]| load(settings).train;
        assert_eq!(train(&["device_preset=t4", small]).gradient_checkpointing.every().map(|n| n.get()), Some(1));
        assert_eq!(train(&["device_preset=h100-80", small]).gradient_checkpointing.every(), None);
        assert_eq!(train(&["device_preset=h100-80", small]).compute, Compute::Bf16);
        assert_eq!(train(&["device_preset=h100-80", small, "train.compute=f32"]).compute, Compute::F32);
        assert_eq!(split(&["device_preset=h100-80", small]), (16, 1, 32));
        assert_eq!(split(&["device_preset=a100-40", medium]), (16, 1, 32));
        assert_eq!(split(&["device_preset=rtx-4090", medium]), (2, 8, 16));
        assert_eq!(split(&["device_preset=h100-80", "model.source.hub=openai/whisper-large-v3-turbo"]), (8, 2, 32));
        assert_eq!(split(&["device_preset=rtx-5060", medium]), (1, 16, 16));
        assert_eq!(split(&["device_preset=h100-80", small, "data.prefetch_batches=2"]), (16, 1, 2));
        // Half of a decision would change what is learned.
        assert_eq!(split(&["device_preset=h100-80", small, "data.batch_size=5"]), (5, 1, 32));
        assert_eq!(split(&["device_preset=h100-80", small, "train.accumulation=3"]), (16, 3, 32));
        assert_eq!(split(&["device_preset=t4", "model.source.hub=somebody/else"]), (16, 1, 16));
    }

    #[test]
    fn auto_without_a_gpu_is_the_cpu_and_says_so() {
        let figment = |settings: &str| {
            let value: Value = serde_yaml::from_str(settings).expect("YAML");
            Figment::from(figment::providers::Serialized::defaults(value))
        };
        let found = layer(&figment("{device_preset: auto, device: cpu}")).expect("a layer");
        assert!(found.reason.contains("cpu") && found.reason.contains("no GPU"), "{}", found.reason);
        assert_eq!((&found.keys["data"]["batch_size"], &found.keys["train"]["accumulation"]), (&json!(16), &json!(1)));
        assert!(!found.reason.contains('\n'));
        assert_eq!(layer(&figment("{device: cpu}")), None);
        let heavy = "{device_preset: rtx-5060, model: {source: {config: {d_model: 1024, encoder_layers: 24, decoder_layers: 24}}}}";
        let heavy = layer(&figment(heavy)).expect("a layer");
        assert!(heavy.reason.contains("model.trainable") && heavy.reason.contains("medium"), "{}", heavy.reason);
    }

    #[test]
    fn a_resolved_configuration_is_not_preset_again() {
        let experiment = load(&["device_preset=t4", "model.source.hub=openai/whisper-small"]);
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, experiment.to_yaml()).expect("written");
        assert_eq!(Experiment::load(Some(&file), &["device_preset=h200".into()]).expect("read").data, experiment.data);
    }
}
