//! Configuration changes that are allowed when a run is resumed.

use crate::Experiment;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// Keys that may change when a run is resumed, each with all keys below it: stored results stay valid. All other keys
/// affect the model, its training data, or the meaning of stored numbers. `docs/resuming.md` lists these keys.
///
/// `train` includes its changes in phases, baselines and tasks, `data.test` that of tasks.
pub const CHANGEABLE: &[&str] = &[
    "device", "device_preset", "kernels", "data.workers", "data.prefetch_batches", "data.prefetch_bytes",
    "data.eval_batch_size", "data.cache", "data.on_bad_sample", "data.max_bad_share", "data.test", "train.max_steps",
    "train.epochs", "train.optimizer", "train.compute", "train.guard", "train.ema_decay", "train.shard_optimizer",
    "train.rank_timeout", "train.gradient_checkpointing", "train.evaluate", "train.checkpoint.every",
    "train.checkpoint.keep_last", "train.checkpoint.keep_best", "train.early_stopping.patience",
    "train.early_stopping.min_delta", "train.log_every", "train.tensorboard", "train.csv", "phases.3.lr",
    "phases.1.parallel", "router.reject",
];

/// Key with another value than the run was started with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Path of the key, with tasks by name: `tasks.copy.lora.r`.
    pub key: String,
    before: Value,
    after: Value,
}

/// Returns every key in which `now` differs from `before`, except for those of `run`, which only locate the run.
pub(crate) fn changes(before: &Experiment, now: &Experiment) -> Vec<Change> {
    let [before, now] = [before, now].map(values);
    let mut found = Vec::new();
    compare("", &before, &now, &mut found);
    found.retain(|change| !is_below(&change.key, "run"));
    found
}

fn values(experiment: &Experiment) -> Value {
    serde_json::to_value(experiment).unwrap_or_default()
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<Change>) {
    // Without early stopping nothing is compared with what it has watched.
    if before == after || after.is_null() && general(path) == "train.early_stopping" {
        return;
    }
    // Keys of training that a phase or task has, and had not, are compared one by one, and so are those of early stopping.
    let none = Value::Object(Default::default());
    let (before, after) = match (before, after) {
        (Value::Null, Value::Object(_)) if is_below(&general(path), "train") => (&none, after),
        (Value::Object(_), Value::Null) if is_below(&general(path), "train") => (before, &none),
        both => both,
    };
    let (Some(olds), Some(news)) = (fields(before), fields(after)) else {
        let (key, before, after) = (path.to_owned(), before.clone(), after.clone());
        return found.push(Change { key, before, after });
    };
    // Another kind has other keys, and to name them all says no more.
    if let Some(tag) = ["name", "type"].into_iter().find(|tag| before[tag].is_string() && before[tag] != after[tag]) {
        let key = format!("{path}.{tag}");
        return found.push(Change { key, before: before[tag].clone(), after: after[tag].clone() });
    }
    let names: BTreeSet<&String> = olds.iter().chain(&news).map(|(name, _)| name).collect();
    let value = |fields: &[(String, Value)], name: &String| {
        fields.iter().find(|(field, _)| field == name).map_or(Value::Null, |(_, value)| value.clone())
    };
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        compare(&path, &value(&olds, name), &value(&news, name), found);
    }
}

/// Returns the fields of an object, or the elements of a list whose elements have names.
fn fields(value: &Value) -> Option<Vec<(String, Value)>> {
    match value {
        Value::Object(fields) => Some(fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
        Value::Array(items) if !items.is_empty() => {
            items.iter().map(|item| Some((item.get("name")?.as_str()?.to_owned(), item.clone()))).collect()
        }
        _ => None,
    }
}

impl Change {
    /// Whether stored results stay valid with this change.
    pub fn is_harmless(&self) -> bool {
        let key = general(&self.key);
        key != "train.optimizer.name" && CHANGEABLE.iter().any(|changeable| is_below(&key, changeable))
    }
}

/// Returns the general form of a key of a phase, baseline or task: `tasks.copy.train.max_steps` is `train.max_steps`.
fn general(key: &str) -> String {
    let parts: Vec<&str> = key.split('.').collect();
    match parts[..] {
        ["tasks", _, "train", ..] | ["phases", "1" | "2" | "3", "train", ..] => parts[2..].join("."),
        ["phases", "baselines", _, ..] => ["train"].iter().chain(&parts[3..]).copied().collect::<Vec<_>>().join("."),
        ["tasks", _, "data", "test", ..] => parts[2..].join("."),
        _ => key.to_owned(),
    }
}

/// Whether `key` is `other` or a key below it.
pub(crate) fn is_below(key: &str, other: &str) -> bool {
    key.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Writes `key` before → after, with long values truncated.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |value: &Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain(['…']).collect() }
        };
        write!(f, "`{}` {} → {}", self.key, short(&self.before), short(&self.after))
    }
}

/// Maximum number of characters of a value in a message.
const LONGEST: usize = 40;

/// Returns the first changes for a message, and the number of further ones.
pub(crate) fn listed(changes: &[Change]) -> String {
    let mut shown: Vec<String> = changes.iter().take(SHOWN).map(Change::to_string).collect();
    if changes.len() > SHOWN {
        shown.push(format!("and {} more", changes.len() - SHOWN));
    }
    shown.join(", ")
}

const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(settings: &[&str]) -> Experiment {
        let task = |name: &str| format!("{{name: {name}, data: {{train: {{synth: cw}}, valid: {{synth: cw}}}}}}");
        let train = "{max_steps: 100, optimizer: {warmup_steps: 1}}";
        let yaml = format!("train: {train}\ntasks: [{}, {}]", task("a"), task("b"));
        Experiment::of_yaml(&yaml, settings).expect("loaded")
    }

    /// Returns the keys that change, and whether each change is harmless.
    fn keys(settings: &[&str]) -> Vec<(String, bool)> {
        let changes = changes(&experiment(&[]), &experiment(settings));
        changes.into_iter().map(|change| (change.key.clone(), change.is_harmless())).collect()
    }

    #[test]
    fn a_key_is_harmless_wherever_it_stands_and_only_if_it_is_listed() {
        for (setting, key, harmless) in [
            ("train.max_steps=7", "train.max_steps", true),
            ("train.optimizer.lr=1.0e-5", "train.optimizer.lr", true),
            ("train.optimizer.name=adafactor", "train.optimizer.name", false),
            ("train.evaluate.every=7", "train.evaluate.every", true),
            ("train.accumulation=2", "train.accumulation", false),
            ("data.workers=3", "data.workers", true),
            ("data.batch_size=3", "data.batch_size", false),
            ("seed=7", "seed", false),
            ("tasks.b.train.max_steps=7", "tasks.b.train.max_steps", true),
            ("tasks.b.train.accumulation=7", "tasks.b.train.accumulation", false),
            ("tasks.a.lora.r=3", "tasks.a.lora.r", false),
            ("tasks.a.data.train.samples=3", "tasks.a.data.train.samples", false),
            ("tasks.a.data.test={synth: cw}", "tasks.a.data.test", true),
            ("phases.2.train.max_steps=7", "phases.2.train.max_steps", true),
            ("phases.3.losses.routing=7", "phases.3.losses.routing", false),
            ("phases.3.lr.router=7", "phases.3.lr.router", true),
            ("phases.baselines.full.max_steps=7", "phases.baselines.full.max_steps", true),
            ("phases.baselines.full.accumulation=7", "phases.baselines.full.accumulation", false),
        ] {
            assert_eq!(keys(&[setting]), [(key.to_owned(), harmless)], "{setting}");
        }
        assert_eq!(keys(&["run.name=another", "run.overwrite=true"]), []);
        // A section that was not there before is compared key by key.
        for (setting, expected) in [
            ("tasks.a.train.checkpoint.every=1", ("tasks.a.train.checkpoint.every", true)),
            ("phases.3.train.early_stopping.patience=3", ("phases.3.train.early_stopping.patience", true)),
            ("tasks.a.train.optimizer={name: adafactor}", ("tasks.a.train.optimizer.name", false)),
        ] {
            assert_eq!(keys(&[setting]), [(expected.0.to_owned(), expected.1)], "{setting}");
        }
    }

    #[test]
    fn tasks_are_compared_by_name_and_not_by_place() {
        let (one, mut other) = (experiment(&[]), experiment(&[]));
        other.tasks.reverse();
        assert_eq!(changes(&one, &other), []);
        other.tasks.pop();
        assert_eq!(changes(&one, &other).iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["tasks.a"]);
    }

    #[test]
    fn a_sentence_names_the_first_changes_and_counts_the_others() {
        let before = Experiment::default();
        let now = Experiment { seed: 7, ..Default::default() };
        assert_eq!(listed(&changes(&before, &now)), "`seed` 42 → 7");
        let change = Change { key: "k".into(), before: Value::Null, after: "x".repeat(100).into() };
        let text = listed(&vec![change; 10]);
        assert!(text.ends_with("…, and 2 more") && text.starts_with("`k` null → xxxx"), "{text}");
    }

    #[test]
    fn the_docs_list_every_key_that_may_change() {
        let page = include_str!("../../../docs/resuming.md");
        for key in CHANGEABLE {
            assert!(page.contains(&format!("`{key}`")), "{key} is not in docs/resuming.md");
        }
    }
}
