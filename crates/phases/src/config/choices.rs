//! Choices of a configuration: maps whose further keys depend on the kind that they name.
//!
//! A layer that names another kind than the layers below it replaces their keys. Where it names none, its keys are added to theirs.

use super::keys::{dict_mut, find, find_mut, join};
use figment::value::{Dict, Value};
use undertone_train::OptimizerConfig;

/// A map whose further keys depend on the kind that it names.
pub(super) struct Choice {
    /// Path; in `train` sections, that within the section.
    pub path: &'static str,
    /// Key of the name.
    pub tag: &'static str,
    /// Kind without a name.
    pub usual: &'static str,
}

const fn choice(path: &'static str, usual: &'static str) -> Choice {
    Choice { path, tag: "type", usual }
}

/// Choices of every `train` section.
pub(super) const OF_TRAIN: [Choice; 6] = [
    Choice { path: "optimizer", tag: "name", usual: "adamw" },
    choice("optimizer.schedule", "cosine"),
    choice("optimizer.lr_scaling", "none"),
    choice("compute", "auto"),
    choice("guard.on_nan", "stop"),
    choice("guard.on_spike", "warn"),
];

/// Choices outside `train` sections.
pub(super) const OTHERS: [Choice; 5] = [
    choice("model.adapter", "lora"),
    Choice { path: "data.cache", tag: "what", usual: "off" },
    choice("router.gates", "hard"),
    choice("phases.2.gates", "soft"),
    choice("phases.3.gates", "gumbel"),
];

/// Sections with the keys of `train`, except for those of tasks, and the sections that each of them changes.
pub(super) const TRAIN: [(&str, &[&str]); 8] = [
    ("train", &[]),
    ("phases.1.train", &["train"]),
    ("phases.2.train", &["train"]),
    ("phases.3.train", &["train"]),
    ("phases.baselines.head", &["phases.1.train", "train"]),
    ("phases.baselines.shared", &["phases.1.train", "train"]),
    ("phases.baselines.distilled", &["phases.1.train", "train"]),
    ("phases.baselines.full", &["phases.1.train", "train"]),
];

/// Section that the `train` of a task changes.
pub(super) const OF_TASKS: &[&str] = &["phases.1.train", "train"];

/// Applies `settle_at` to all layers of a configuration, lowest first.
pub(super) fn settle(layers: &mut [Dict]) {
    TRAIN.iter().for_each(|(section, _)| settle_train(layers, section));
    OTHERS.iter().for_each(|choice| settle_at(layers, choice.path, choice));
    SOURCES.iter().for_each(|path| settle_source(layers, path));
    for task in layers.iter_mut().flat_map(tasks_mut) {
        if let Some(train) = task.get_mut("train").and_then(dict_mut) {
            settle_train(std::slice::from_mut(train), "");
        }
    }
}

/// Sources of data that may be one map, and the keys of which one says where its samples come from.
const SOURCES: [&str; 3] = ["data.train", "data.valid", "data.test"];
const ORIGINS: [&str; 4] = ["part_of_train", "path", "hub", "synth"];

/// As `settle_at`: where a layer names another origin than those below it, theirs lose all of their keys.
fn settle_source(layers: &mut [Dict], path: &str) {
    let mut below: Option<&str> = None;
    for index in 0..layers.len() {
        let Some(keys) = find(&layers[index], path).and_then(Value::as_dict).filter(|keys| !keys.is_empty()) else {
            continue;
        };
        let is_given = |origin: &&str| keys.get(*origin).is_some_and(|value| !matches!(value, Value::Empty(..)));
        let named = ORIGINS.into_iter().find(is_given);
        if named.is_some() && below.is_some() && named != below {
            layers[..index]
                .iter_mut()
                .filter_map(|layer| find_mut(layer, path).and_then(dict_mut))
                .for_each(Dict::clear);
        }
        // Samples are made where nothing is named.
        below = named.or(below).or(Some("synth"));
    }
}

/// Applies `settle_at` to the choices of a `train` section.
pub(super) fn settle_train(layers: &mut [Dict], section: &str) {
    OF_TRAIN.iter().for_each(|choice| settle_at(layers, &join(section, choice.path), choice));
}

/// Returns the tasks in a layer.
pub(super) fn tasks_mut(layer: &mut Dict) -> impl Iterator<Item = &mut Dict> {
    let tasks: &mut [Value] = match layer.get_mut("tasks") {
        Some(Value::Array(_, tasks)) => tasks,
        _ => &mut [],
    };
    tasks.iter_mut().filter_map(dict_mut)
}

/// Returns the kind that a value names.
pub(super) fn named<'a>(value: &'a Value, choice: &Choice) -> Option<&'a str> {
    value.as_str().or_else(|| value.as_dict()?.get(choice.tag)?.as_str())
}

/// Makes layers that can be merged key by key: a name alone becomes a map, and where a layer names another kind than those below it,
/// theirs lose the keys of their kind.
fn settle_at(layers: &mut [Dict], path: &str, choice: &Choice) {
    let mut below: Option<String> = None;
    for index in 0..layers.len() {
        if let Some(value) = find_mut(&mut layers[index], path)
            && let Some(name) = value.as_str().map(str::to_owned)
        {
            *value = Dict::from([(choice.tag.to_owned(), name.into())]).into();
        }
        let Some(name) = find(&layers[index], path).and_then(|value| named(value, choice)).map(str::to_owned) else {
            continue;
        };
        if below.as_ref().is_some_and(|below| *below != name) {
            layers[..index].iter_mut().for_each(|layer| drop_kind(layer, path, choice));
        }
        below = Some(name);
    }
}

/// Removes the name and the keys of a kind.
fn drop_kind(layer: &mut Dict, path: &str, choice: &Choice) {
    // The kinds of optimizers have most keys in common.
    let kept: &[&str] = if choice.tag == "name" { &OptimizerConfig::COMMON_KEYS } else { &[] };
    if let Some(keys) = find_mut(layer, path).and_then(dict_mut) {
        keys.retain(|key, _| kept.contains(&key.as_str()));
    }
}
