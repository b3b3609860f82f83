//! The layer of a configuration that `device_preset` asks for.

use super::{DataConfig, ModelConfig};
use figment::Figment;
use serde_json::{Map, Value, json};
use undertone_data::loader::Workers;
use undertone_fit::{DevicePreset, Preset, PresetContext, PresetModel, PresetSplit};
use undertone_ops::DeviceSpec;

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
    let given = ["data.batch_size", "train.accumulation"].into_iter().find(|key| figment.find_value(key).is_ok());
    // How many threads make samples is the host's affair, whatever the card.
    let workers = Workers::Auto;
    let effective = DataConfig::default().batch_size;
    let context = PresetContext { device, given, effective, workers: workers.count() };
    let model = PresetModel {
        name: &model.to_string(),
        reads_text: model.backbone.is_text(),
        folder: model.path.as_deref().or(model.source.path.as_deref()),
        hub: model.source.hub.as_deref(),
        config: model.source.config.as_ref(),
    };
    let Preset { settings, reason } = preset.resolve(&model, &context)?;
    let Some(settings) = settings else { return Some(Layer { keys: Map::new(), reason }) };
    let mut data = json!({ "prefetch_batches": settings.prefetch_batches, "workers": workers });
    let mut train = json!({ "compute": settings.compute });
    if let Some(PresetSplit { batch_size, accumulation, checkpointed }) = settings.split {
        data["batch_size"] = json!(batch_size);
        train["accumulation"] = json!(accumulation);
        train["gradient_checkpointing"] = json!(checkpointed);
    }
    Some(Layer { keys: [("data".to_owned(), data), ("train".to_owned(), train)].into_iter().collect(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use undertone_ops::Compute;

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
            let value: Value = serde_norway::from_str(settings).expect("YAML");
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
