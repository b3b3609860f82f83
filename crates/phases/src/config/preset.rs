//! The configuration layer of `device_preset`.

use super::{DataConfig, ModelConfig, TaskConfig, Trainable};
use figment::Figment;
use serde_json::{Map, Value, json};
use undertone_data::loader::Workers;
use undertone_fit::{DevicePreset, Preset, PresetContext, PresetModel, PresetSplit, TrainedPart};
use undertone_model::limits::MOST_POSITIONS;
use undertone_ops::{Compute, DeviceSpec};
use undertone_train::{OptimizerConfig, Precision};

/// Keys that a preset sets, and one line with the reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    pub keys: Map<String, Value>,
    pub reason: String,
}

/// Keys that say, or depend on, how an optimizer step is split into batches: where one is given, that stays as it is.
const GIVEN: [&str; 10] = [
    "data.batch_size",
    "train.accumulation",
    "data.max_batch_seconds",
    "phases.1.train.accumulation",
    "phases.2.train.accumulation",
    "phases.3.train.accumulation",
    "phases.baselines.head.accumulation",
    "phases.baselines.shared.accumulation",
    "phases.baselines.distilled.accumulation",
    "phases.baselines.full.accumulation",
];

/// Returns the layer of the preset in `figment`, for a place below everything else in it. `None` without a preset, or
/// if `figment` is invalid, which is reported when the whole configuration is read.
pub(crate) fn layer(figment: &Figment) -> Option<Layer> {
    let preset: DevicePreset = figment.extract_inner("device_preset").ok()?;
    let device: DeviceSpec = figment.extract_inner("device").unwrap_or_default();
    let model: ModelConfig = match figment.find_value("model") {
        Ok(_) => figment.extract_inner("model").ok()?,
        Err(_) => ModelConfig::default(),
    };
    let tasks: Vec<TaskConfig> = figment.extract_inner("tasks").unwrap_or_default();
    let of_a_task = tasks.iter().any(|task| task.train.contains_key("accumulation"));
    let given = GIVEN.into_iter().find(|key| figment.find_value(key).is_ok());
    let given = given.or(of_a_task.then_some("tasks[].train.accumulation"));
    // The number of data loader threads depends on the host, not on the card.
    let workers = Workers::Auto;
    let effective = DataConfig::default().batch_size;
    let rule: Option<String> = figment.extract_inner("train.optimizer.lr_scaling.type").ok();
    let rate_rule = rule.as_deref().and_then(|rule| ["linear", "sqrt"].into_iter().find(|known| *known == rule));
    let given_compute: Option<Precision> = figment.extract_inner("train.compute").ok();
    let compute = given_compute.map(Precision::number_type).filter(|compute| *compute != Compute::Auto);
    let context = PresetContext { device, compute, given, effective, rate_rule, workers: workers.count() };
    let trained = trained(&model, &tasks);
    let optimizer: OptimizerConfig = figment.extract_inner("train.optimizer").unwrap_or_default();
    let model = PresetModel {
        name: &model.to_string(),
        reads_text: model.backbone.is_text(),
        folder: model.path.as_deref().or(model.source.path.as_deref()),
        hub: model.source.hub.as_deref(),
        config: model.source.config.as_ref(),
        trained: &trained,
        frozen: model.frozen_dtype,
        // Longer ones are refused when the whole configuration is read.
        tokens: tasks.iter().map(|task| task.head.max_input().min(MOST_POSITIONS)).max().filter(|tokens| *tokens > 0),
        optimizer_state: optimizer.algorithm.state_bytes(),
    };
    let Preset { settings, reason } = preset.resolve(&model, &context)?;
    let Some(settings) = settings else { return Some(Layer { keys: Map::new(), reason }) };
    let mut data = json!({ "prefetch_batches": settings.prefetch_batches, "workers": workers });
    let mut train = json!({ "compute": settings.compute });
    if let Some(PresetSplit { batch_size, accumulation, checkpointed, base_batch }) = settings.split {
        data["batch_size"] = json!(batch_size);
        train["accumulation"] = json!(accumulation);
        train["gradient_checkpointing"] = json!(checkpointed);
        if let Some(base_batch) = base_batch {
            train["optimizer"] = json!({ "lr_scaling": {"type": rule, "base_batch": base_batch} });
        }
    }
    Some(Layer { keys: [("data".to_owned(), data), ("train".to_owned(), train)].into_iter().collect(), reason })
}

/// Returns the trained part of a model: the adapters of all tasks, as in the last phase, or `model.trainable`.
fn trained(model: &ModelConfig, tasks: &[TaskConfig]) -> TrainedPart {
    if !tasks.is_empty() {
        return TrainedPart::Adapters(tasks.iter().map(TaskConfig::adapter).collect());
    }
    match model.trainable {
        Trainable::All => TrainedPart::All,
        Trainable::Encoder => TrainedPart::Encoder,
        Trainable::Decoder => TrainedPart::Decoder,
        Trainable::Lora => TrainedPart::Adapters(vec![model.adapter()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use undertone_ops::Compute;
    use undertone_train::LrScalingConfig;

    fn load(settings: &[&str]) -> Experiment {
        Experiment::of_yaml("", settings).expect("an experiment")
    }

    #[test]
    fn a_preset_splits_the_batch_and_what_is_given_wins() {
        let split = |settings: &[&str]| {
            let experiment = load(settings);
            (experiment.data.batch_size, experiment.train.accumulation, experiment.data.prefetch_batches)
        };
        let (small, medium) = ("model.source.hub=openai/whisper-small.en", "model.source.hub=openai/whisper-medium");
        assert_eq!(split(&[]), (16, 1, 16));
        assert_eq!(split(&["device_preset=t4", small]), (4, 4, 16));
        // Sixteen samples with gradient checkpointing instead of one without.
        assert_eq!(split(&["device_preset=rtx-4090", medium]), (16, 1, 16));
        let train = |settings: &[&str]| load(settings).train;
        assert_eq!(train(&["device_preset=rtx-4090", medium]).gradient_checkpointing.every().map(|n| n.get()), Some(1));
        assert_eq!(train(&["device_preset=h100-80", small]).gradient_checkpointing.every(), None);
        assert_eq!(train(&["device_preset=h100-80", small]).compute, Compute::Bf16);
        assert_eq!(train(&["device_preset=h100-80", small, "train.compute=f32"]).compute, Compute::F32);
        assert_eq!(split(&["device_preset=h100-80", small]), (16, 1, 32));
        assert_eq!(split(&["device_preset=a100-40", medium]), (4, 4, 32));
        assert_eq!(split(&["device_preset=h100-80", "model.source.hub=openai/whisper-large-v3"]), (8, 2, 32));
        assert_eq!(split(&["device_preset=rtx-5060", medium]), (1, 16, 16));
        assert_eq!(split(&["device_preset=h100-80", small, "data.prefetch_batches=2"]), (16, 1, 2));
        // Setting only one of batch size and accumulation would change the effective batch.
        assert_eq!(split(&["device_preset=h100-80", small, "data.batch_size=5"]), (5, 1, 32));
        assert_eq!(split(&["device_preset=h100-80", small, "train.accumulation=3"]), (16, 3, 32));
        assert_eq!(split(&["device_preset=t4", "model.source.hub=somebody/else"]), (16, 1, 16));
    }

    #[test]
    fn a_preset_knows_adapters_and_grows_a_batch_by_the_rule_that_is_said() {
        let task = "tasks=[{name: a, lora: {r: 8, target_modules: [query]}, head: {type: classify, labels: [x, y], max_length: 128}}]";
        let roberta = ["device_preset=t4", "model.backbone=roberta", "model.source.hub=FacebookAI/roberta-large"];
        let data = "tasks.a.data={train: {path: a.tsv}, valid: {path: b.tsv}}";
        let adapted = load(&[&roberta[..], &[task, data]].concat());
        assert_eq!((adapted.data.batch_size, adapted.train.gradient_checkpointing.every()), (16, None));
        let small = ["device_preset=h200", "model.source.hub=openai/whisper-small"];
        let sqrt = |base_batch| LrScalingConfig::Sqrt { base_batch };
        let grown = load(&[&small[..], &["train.optimizer.lr_scaling=sqrt"]].concat());
        assert!(grown.data.batch_size > 16, "{}", grown.data.batch_size);
        let of_all = |compute: &str| -> usize {
            let cards = ["a100-40", "a100-80", "h200"].map(|card| format!("device_preset={card}"));
            let base = ["model.source.hub=openai/whisper-base", "train.optimizer.lr_scaling=sqrt", compute];
            cards.iter().map(|card| load(&[&[card.as_str()], &base[..]].concat()).data.batch_size).sum()
        };
        assert!(of_all("train.compute=f32") < of_all("train.compute=auto"), "fewer fit in f32");
        assert_eq!((grown.train.accumulation, grown.train.optimizer.lr_scaling), (1, sqrt(16)));
        let given = load(&[&small[..], &["train.optimizer.lr_scaling=sqrt", "train.optimizer.base_batch=8"]].concat());
        assert_eq!(given.train.optimizer.lr_scaling, sqrt(8), "what is given wins");
        let nested = load(&[&small[..], &["train.optimizer.lr_scaling={type: sqrt, base_batch: 8}"]].concat());
        assert_eq!(nested.train, given.train);
        let lora = load(&["device_preset=rtx-5060", "model.source.hub=openai/whisper-small", "model.trainable=lora"]);
        assert_eq!((lora.data.batch_size, lora.train.gradient_checkpointing.every()), (4, None));
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
        let again = Experiment::of_yaml(&experiment.to_yaml(), &["device_preset=h200"]).expect("read");
        assert_eq!(again.data, experiment.data);
    }
}
