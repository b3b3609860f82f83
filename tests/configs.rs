//! Every file in configs/ is an experiment that can be run.

use std::path::{Path, PathBuf};
use undertone::phases::{Experiment, RunError};
use undertone::train::Batches;

fn shipped() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let files: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("configs/").map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() >= 3);
    files
}

#[test]
fn every_shipped_configuration_parses_and_says_how_to_run_it() {
    undertone::register().expect("registered");
    for path in shipped() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if let Err(error) = Experiment::load(Some(&path), &[]) {
            panic!("{name}: {error}");
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("# "), "{name} does not begin by saying what it is for");
        assert!(
            text.contains(&format!("cargo xtask train --config configs/{name}")),
            "{name} does not say how to run it"
        );
    }
}

#[test]
fn every_shipped_configuration_is_what_the_schema_describes() {
    undertone::register().expect("registered");
    let schema = Experiment::schema();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for path in shipped() {
        let experiment = Experiment::load(Some(&path), &[]).expect("checked by the test above");
        // As it was written, and with every key that a configuration has.
        for text in [std::fs::read_to_string(&path).expect("readable"), experiment.to_yaml()] {
            let mut yaml: serde_norway::Value = serde_norway::from_str(&text).expect("YAML");
            yaml.apply_merge().expect("merge keys");
            let value = serde_json::to_value(yaml).expect("JSON");
            let errors: Vec<String> =
                validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        }
    }
    for odd in [
        serde_json::json!({"train": {"max_stepz": 3}}),
        serde_json::json!({"train": {"optimizer": {"name": "lyon"}}}),
        serde_json::json!({"tasks": [{"name": "a", "head": {"type": "classify", "labelz": ["a"]}}]}),
    ] {
        assert!(!validator.is_valid(&odd), "{odd}");
    }
    let described =
        schema["properties"].as_object().expect("keys").values().filter(|key| key["description"].is_string());
    assert!(described.count() >= 10, "keys are described: {schema}");
}

/// Model, data and batches of the first stage; what needs files that are not here names one of them.
#[test]
fn every_shipped_configuration_builds_or_names_what_is_missing() {
    undertone::register().expect("registered");
    let mut built = 0;
    for path in shipped() {
        let experiment = Experiment::load(Some(&path), &["device=cpu".into()]).expect("checked by the test above");
        match experiment.build().map_err(|error: RunError| error.to_string()) {
            Ok(run) => {
                assert!(run.batches.per_epoch() > 0, "{} has nothing to train on", path.display());
                built += 1;
            }
            Err(error) => {
                let mut words = error.split([' ', '`', ',', ';']).map(|word| word.trim_end_matches(':'));
                let missing = words.any(|word| word.contains('/') && !Path::new(word).exists());
                assert!(missing, "{}: {error}", path.display());
            }
        }
    }
    assert!(built >= 3, "those that need nothing but this repository");
}
