use super::*;
use crate::Experiment;
use serde_json::{Value, json};
use undertone_data::loader::SampleError;
use undertone_data::options::{self, Options, OptionsError};
use undertone_data::source::{self, SourceRequest, SpeechSource, Utterances};

/// A source of another crate.
struct Beeps;

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BeepOptions {
    hz: f32,
    loud: bool,
}

impl Default for BeepOptions {
    fn default() -> Self {
        Self { hz: 440.1, loud: false }
    }
}

impl SpeechSource for Beeps {
    fn name(&self) -> &str {
        "beeps"
    }

    fn open(&self, _: &SourceRequest) -> Result<Box<Utterances>, SampleError> {
        Err("there are none".into())
    }

    fn complete(&self, options: &Options) -> Result<Options, OptionsError> {
        Ok(options::write(&options::read::<BeepOptions>(options)?))
    }
}

fn read(source: Value) -> Result<SourceConfig, String> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| source::register(Beeps).expect("registered"));
    serde_json::from_value(source).map_err(|error| error.to_string())
}

/// Returns the settings of the default synthesiser as runs record them.
fn recorded_cw() -> Value {
    serde_json::to_value(Experiment::default()).expect("JSON")["data"]["train"]["cw"].take()
}

/// Returns a source as runs record it, with these keys.
fn recorded(keys: Value) -> Value {
    let mut source = json!({
        "synth": null, "samples": 1000, "stages": [], "path": null, "hub": null, "subset": null,
        "split": null, "revision": null, "stream": false, "target_path": null, "format": "auto", "columns": {},
        "header": null, "limit": null, "part": null, "weight": null, "part_of_train": null, "group_by": null
    });
    source.as_object_mut().expect("a map").extend(keys.as_object().expect("a map").clone());
    source
}

#[test]
fn what_runs_record_is_read_as_what_it_was() {
    let mut fast = recorded_cw();
    fast["wpm"] = json!([30.5, 40.0]);
    let stages = json!([{"epochs": 2, "cw": {"wpm": [10, 20]}}]);
    for (recorded, short) in [
        (recorded(json!({"cw": recorded_cw()})), json!({})),
        (
            recorded(json!({"synth": "cw", "cw": fast, "stages": stages})),
            json!({"synth": "cw", "cw": {"wpm": [30.5, 40]}, "stages": stages}),
        ),
        (recorded(json!({"path": "x.csv", "limit": 3})), json!({"path": "x.csv", "limit": 3})),
        (recorded(json!({"hub": "a/b", "split": "train"})), json!({"hub": "a/b", "split": "train"})),
        (recorded(json!({"part_of_train": 0.1})), json!({"part_of_train": 0.1})),
        (
            recorded(json!({"synth": "beeps", "options": {"hz": 2.5, "loud": false}})),
            json!({"synth": "beeps", "options": {"hz": 2.5}}),
        ),
    ] {
        let source = read(short).expect("a source");
        assert_eq!(serde_json::to_value(&source).expect("JSON"), recorded);
        assert_eq!(read(recorded.clone()), Ok(source.clone()));
        // Earlier versions recorded the default synthesiser's settings with every source.
        let mut earlier = recorded;
        let keys = earlier.as_object_mut().expect("a map");
        keys.entry("cw").or_insert_with(recorded_cw);
        assert_eq!(read(earlier), Ok(source));
    }
}

#[test]
fn options_have_two_spellings_and_stages_too() {
    let long = json!({"synth": "beeps", "options": {"hz": 1}, "stages": [{"epochs": 1, "options": {"loud": true}}]});
    let short = json!({"synth": "beeps", "beeps": {"hz": 1}, "stages": [{"epochs": 1, "beeps": {"loud": true}}]});
    let source = read(long).expect("a source");
    assert_eq!(read(short), Ok(source.clone()));
    let made = source.synthesised().expect("a synthesiser");
    assert_eq!(Value::Object(made.stage(0).expect("a stage")), json!({"hz": 1.0, "loud": true}));
    assert_eq!(read(json!({"options": {"wpm": [9, 10]}})), read(json!({"cw": {"wpm": [9, 10]}})));
}

#[test]
fn a_key_without_effect_is_refused() {
    for (source, culprits) in [
        (json!({"path": "x", "hub": "a/b"}), vec!["either `path` or `hub`"]),
        (json!({"path": "x", "samples": 3}), vec!["`samples` is for samples that are made"]),
        (json!({"path": "x", "cw": {"wpm": [9, 10]}}), vec!["`cw` is for samples that are made"]),
        (json!({"path": "x", "split": "train"}), vec!["`split` is for `hub`"]),
        (json!({"hub": "a/b"}), vec!["`split` is missing"]),
        (json!({"hub": "a/b", "split": "train", "format": "csv"}), vec!["`format`", "Parquet"]),
        (json!({"limit": 3}), vec!["`limit` is for recordings", "synth: cw"]),
        (
            json!({"synth": "beeps", "cw": {"wpm": [9, 10]}}),
            vec!["`cw` is for `synth: cw`", "synth: beeps", "`options`"],
        ),
        (json!({"synth": "beeps", "beeps": {"hz": 1}, "options": {"hz": 1}}), vec!["`options` and `beeps`"]),
        (json!({"synth": "beeps", "options": {"pitch": 1}}), vec!["`options.pitch`: there is no such key", "hz"]),
        (json!({"stages": [{"epochs": 1, "beeps": {}}]}), vec!["`stages[0].beeps`", "cw"]),
        (json!({"stages": [{"epochs": 1}]}), vec!["`stages[0]`", "`cw`"]),
        (json!({"synth": "boops"}), vec!["`synth`", "`boops`", "beeps, cw"]),
        (json!({"sampels": 3}), vec!["`sampels`: there is no such key", "samples"]),
        (json!({"cw": 3}), vec!["`cw`", "3"]),
    ] {
        let error = read(source).expect_err("refused");
        assert!(culprits.iter().all(|culprit| error.contains(culprit)), "{error}");
    }
}
