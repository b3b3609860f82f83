//! Tests with every number of a configuration replaced by extreme values: each is refused with a message, or works.

use crate::backbone::SpeechBackbone;
use crate::run::{TaskOrder, collate};
use crate::{ConfigError, Experiment, SourceConfig, SpeechDataset};
use burn::tensor::Device;
use proptest::prelude::*;
use rayon::prelude::*;
use serde_norway::Value;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use undertone_data::loader::{Dataset, Loader, Mixture, Order, Workers};
use undertone_train::peak_memory_bytes;

/// Extreme values in YAML, some of them just within limits. Each key is tried with the first `ALONE`.
const EXTREMES: [&str; 10] = [
    "0", "10000000", "1000000000000000000", "18446744073709551615", "1.0e300", ".nan", "-1", "65536", "1.0e-300",
    ".inf",
];
const ALONE: usize = 6;

/// A configuration to change a number of.
struct Base {
    /// Its own keys.
    own: Value,
    /// The same with all defaults.
    complete: Value,
}

impl Base {
    fn new(own: &str, experiment: &Experiment) -> Self {
        let mut own: Value = serde_norway::from_str(own).expect("YAML");
        own.apply_merge().expect("merge keys");
        Self { own, complete: serde_norway::from_str(&experiment.to_yaml()).expect("YAML") }
    }

    /// Returns the configuration with another value at `path`: its own keys, and all beside the changed one. Reading the other defaults,
    /// too, takes most of the time.
    fn with(&self, path: &[String], number: &str) -> Value {
        let mut changed = self.own.clone();
        let section = path[0].as_str();
        match (&self.complete[section], path.get(1)) {
            (Value::Mapping(all), Some(key)) => changed[section][key.as_str()] = all[key.as_str()].clone(),
            (other, _) => changed[section] = other.clone(),
        }
        set(&mut changed, path, number);
        changed
    }
}

/// Returns the default configuration, and those in `configs`.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let mut files: Vec<_> =
            std::fs::read_dir(configs).expect("listed").map(|e| e.expect("an entry").path()).collect();
        files.sort();
        let shipped = files.iter().map(|file| {
            let experiment = Experiment::load(Some(file), &[]).expect("a configuration");
            Base::new(&std::fs::read_to_string(file).expect("read"), &experiment)
        });
        [Base::new("{}", &Experiment::default())].into_iter().chain(shipped).collect()
    })
}

/// Finds the paths of all numbers and nulls: a null is a key without a value, which could be a number.
fn places(value: &Value, path: &[String], found: &mut Vec<Vec<String>>) {
    let below = |key: String| [path, &[key]].concat();
    match value {
        Value::Number(_) | Value::Null => found.push(path.to_vec()),
        Value::Sequence(items) => {
            items.iter().enumerate().for_each(|(at, item)| places(item, &below(at.to_string()), found));
        }
        Value::Mapping(map) => map.iter().for_each(|(key, item)| {
            places(item, &below(key.as_str().unwrap_or_default().to_owned()), found);
        }),
        Value::Bool(_) | Value::String(_) | Value::Tagged(_) => {}
    }
}

fn set(value: &mut Value, path: &[String], number: &str) {
    let Some((key, rest)) = path.split_first() else {
        *value = serde_norway::from_str(number).expect("YAML");
        return;
    };
    match value {
        Value::Sequence(items) => set(&mut items[key.parse::<usize>().expect("an index")], rest, number),
        other => set(other.get_mut(key.as_str()).expect("a key"), rest, number),
    }
}

/// Loads a configuration and, if it is valid, computes the first things that a run would.
fn try_out(yaml: &Value) -> Result<(), ConfigError> {
    let experiment = Experiment::of_yaml(&serde_norway::to_string(yaml).expect("YAML"), &[])?;
    let (data, train) = (&experiment.data, &experiment.train);
    let mut loader = data.training_loader(experiment.seed);
    loader.workers = Workers::Count(1);
    let of_text = experiment.model.backbone.is_text();
    let batches = if !experiment.tasks.is_empty() {
        let lengths: Vec<usize> = experiment.tasks.iter().map(|task| samples(&task.data.train.0[0])).collect();
        let order = TaskOrder::new(lengths.clone(), &loader).with_accumulation(train.accumulation);
        let temperature = experiment.phases.joint.task_temperature;
        if let Ok(order) = order.clone().with_temperature(temperature) {
            assert_eq!(order.epoch(3).len(), lengths.iter().sum::<usize>());
            order.step(u64::MAX, order.batches());
        }
        order.batches()
    } else if of_text || data.train.0.iter().any(SourceConfig::is_recorded) {
        100
    } else {
        let sources: Vec<&SourceConfig> = data.train.0.iter().collect();
        let Ok(dataset) = SpeechDataset::new(&experiment, &sources, whisper(), true, experiment.seed) else {
            return Ok(());
        };
        let (sizes, last) = (dataset.sizes(), dataset.len() - 1);
        let _ = dataset.get(last, 1_000_000);
        if let Some(Ok(order)) = data.train.weights().map(|weights| Mixture::weighted(sizes, &weights, 1)) {
            assert_eq!(order.epoch(7).len(), dataset.len());
        }
        let Ok(collate) = collate(data, whisper(), true) else { return Ok(()) };
        let Ok(loader) = Loader::new(Arc::new(dataset), Arc::new(collate), loader) else { return Ok(()) };
        let steps = train.steps_over(|epoch| loader.batches(epoch));
        assert!(steps > 0 || loader.batches(0) == 0);
        loader.batches(0)
    };
    let steps = train.steps(batches);
    let (optimizer, _) = train.optimizer.for_batch(data.batch_size as f64 * train.accumulation as f64);
    for step in [0, steps / 2, steps.saturating_sub(1), steps] {
        assert!(!optimizer.rate(step, steps).is_nan());
    }
    Ok(())
}

/// Returns the number of samples of a source: of recordings, which do not exist, the default number.
fn samples(source: &SourceConfig) -> usize {
    source.synthesised().cloned().unwrap_or_default().samples
}

fn whisper() -> &'static SpeechBackbone {
    static WHISPER: OnceLock<SpeechBackbone> = OnceLock::new();
    WHISPER.get_or_init(|| crate::ModelConfig::default().load(&Device::flex(), 1).expect("the bundled model").into())
}

/// Maximum memory for any configuration, in bytes.
const MEMORY: u64 = 2 << 30;

fn assert_modest() {
    assert!(peak_memory_bytes().is_none_or(|peak| peak < MEMORY), "{:?} bytes", peak_memory_bytes());
}

#[test]
fn every_number_alone_may_be_anything() {
    let (mut cases, mut tried) = (Vec::new(), HashSet::new());
    // Most of the time goes into reading YAML: each key is tried in the shortest configuration that has it.
    let mut bases: Vec<&Base> = bases().iter().collect();
    bases.sort_by_cached_key(|base| serde_norway::to_string(&base.complete).expect("YAML").len());
    for base in bases {
        let mut found = Vec::new();
        places(&base.complete, &[], &mut found);
        assert!(found.len() > 50, "{} numbers", found.len());
        // Each key is tried at its first occurrence, and in lists of tasks or sources in the first element.
        let key =
            |path: &[String]| path.iter().filter(|part| part.parse::<usize>().is_err()).cloned().collect::<Vec<_>>();
        cases.extend(found.into_iter().filter(|path| tried.insert(key(path))).map(|path| (base, path)));
    }
    assert!(cases.len() > 200, "{} keys", cases.len());
    let refused = |(base, path): &(&Base, Vec<String>)| {
        let is_refused =
            |number: &str| try_out(&base.with(path, number)).is_err_and(|error| error.to_string().len() > 10);
        EXTREMES[..ALONE].iter().filter(|number| is_refused(number)).count()
    };
    let refused: usize = cases.par_iter().map(refused).sum();
    assert!(refused > 600, "only {refused} were refused");
    assert_modest();
}

#[test]
fn what_is_too_much_is_refused_by_the_name_of_its_key() {
    let huge = "1000000000000000000";
    for (key, named) in [
        ("data.batch_size", "batch_size"),
        ("data.eval_batch_size", "data.eval_batch_size"),
        ("data.prefetch_batches", "prefetch_batches"),
        ("data.workers", "workers"),
        ("data.train.samples", "samples"),
        ("data.valid.samples", "samples"),
        ("train.max_steps", "train.max_steps"),
        ("train.epochs", "train.epochs"),
        ("train.accumulation", "train.accumulation"),
        ("data.train.stages", "stages[0].epochs"),
        ("data.train.cw.duration_s", "duration_s"),
        ("data.train.cw.wpm", "wpm"),
    ] {
        let value = match key {
            "data.train.stages" => format!("[{{epochs: {huge}, cw: {{}}}}]"),
            _ if key.contains(".cw.") => format!("[{huge}, {huge}]"),
            _ => huge.to_owned(),
        };
        let error = Experiment::load(None, &[format!("{key}={value}")]).expect_err(key).to_string();
        assert!(error.contains(named) && (error.contains("most") || error.contains("from")), "{key}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn several_numbers_together_may_be_anything(
        base in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&EXTREMES[..])), 2..5),
    ) {
        let base = &base.get(bases()).complete;
        let mut found = Vec::new();
        places(base, &[], &mut found);
        let mut yaml = base.clone();
        for (at, number) in changes {
            let path: &Vec<String> = at.get(&found);
            set(&mut yaml, path, number);
        }
        let _ = try_out(&yaml);
        assert_modest();
    }
}
