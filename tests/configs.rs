//! Every file in configs/ is an experiment that can be run.

use std::path::{Path, PathBuf};
use std::process::Command;
use undertone::phases::run::Run;
use undertone::phases::{Experiment, RunError};
use undertone::train::{Batches, Learner};
use undertone_tests::{CLIPS, Outcome, Place, sets};

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
        let says = |command: &str| text.contains(&format!("{command} --config configs/{name}"));
        assert!(says("cargo xtask train") || says("cargo xtask cuda train"), "{name} does not say how to run it");
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
    assert!(validator.is_valid(&serde_json::json!({"model": {"trainable": "adapter"}})), "the other name of `lora`");
    let described =
        schema["properties"].as_object().expect("keys").values().filter(|key| key["description"].is_string());
    assert!(described.count() >= 10, "keys are described: {schema}");
}

/// Takes one step of a run's first stage.
fn step(run: Run, place: &Place) {
    let Run { device, config, model, batches, objective, seed, .. } = run;
    let (_, batch) = batches.epoch(0, 0).next().expect("a batch").expect("readable");
    let learner = Learner::builder(config, objective, model, place.path("run")).with_device(device).with_seed(seed);
    let (_, report) = learner.build().step(&mut [batch]).expect("a step");
    assert!(report.loss.is_finite(), "{report:?}");
}

/// The first stage takes a step on a small batch; what needs files that are not here names one of them.
#[test]
fn every_shipped_configuration_takes_a_step_or_names_what_is_missing() {
    const OFFLINE: &str = "HF_HUB_OFFLINE";
    if std::env::var_os(OFFLINE).is_none() {
        // In a process that asks the cache alone for models: no Hub is waited for, and nothing is downloaded.
        let this = "configs::every_shipped_configuration_takes_a_step_or_names_what_is_missing";
        let mut test = Command::new(std::env::current_exe().expect("a path"));
        let outcome = test.args(["--exact", this]).env(OFFLINE, "1").output().expect("run");
        assert!(outcome.status.success(), "{}", Outcome::from(outcome).stdout);
        return;
    }
    undertone::register().expect("registered");
    let mut built = 0;
    for path in shipped() {
        let small = ["device=cpu".into(), "data.batch_size=2".into()];
        let experiment = Experiment::load(Some(&path), &small).expect("checked by the test above");
        match experiment.build().map_err(|error: RunError| error.to_string()) {
            Ok(run) => {
                assert!(run.batches.per_epoch() > 0, "{} has nothing to train on", path.display());
                step(run, &Place::default());
                built += 1;
            }
            Err(error) => {
                let mut words = error.split([' ', '`', ',', ';']).map(|word| word.trim_end_matches(':'));
                let missing =
                    words.any(|word| (word.contains('/') || word.ends_with(".csv")) && !Path::new(word).exists());
                assert!(missing, "{}: {error}", path.display());
            }
        }
    }
    assert!(built >= 3, "those that need nothing but this repository");
}

#[test]
fn the_page_of_keys_is_that_of_this_version() {
    let outcome = Place::default().run(&["config", "reference"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference.md");
    let page = std::fs::read_to_string(page).unwrap_or_default();
    assert!(outcome.stdout == page, "write it with `cargo xtask config reference > docs/reference.md`");
}

const EARLIER: &str =
    "# Mine.\ntrain:\n  max_steps: 7 # short\n  optimizer: {schedule: wsd, decay_share: 0.5, warmup_steps: 1}\n";

#[test]
fn earlier_keys_are_written_anew_in_the_file_and_comments_stay() {
    let place = Place::default();
    place.write("mine.yaml", EARLIER);
    let migrate = |more: &[&str]| place.run(&[&["config", "migrate", "mine.yaml"], more].concat());
    let checked = migrate(&["--check"]);
    assert_eq!(checked.status, Some(1), "{checked:?}");
    assert!(checked.stderr.contains("`train.optimizer.decay_share`") && checked.stderr.contains("config migrate"));
    let before = Experiment::load(Some(&place.path("mine.yaml")), &[]).expect("loaded");
    assert_eq!(place.text("mine.yaml"), EARLIER, "nothing is changed");
    assert_eq!(migrate(&[]).status, Some(0));
    let text = place.text("mine.yaml");
    assert_eq!(text, EARLIER.replace("schedule: wsd, decay_share: 0.5", "schedule: {type: wsd, decay_share: 0.5}"));
    assert_eq!(Experiment::load(Some(&place.path("mine.yaml")), &[]).expect("loaded"), before);
    for more in [&["--check"][..], &[]] {
        let again = migrate(more);
        assert_eq!(again.status, Some(0), "{again:?}");
        assert!(again.stdout.contains("no keys of an earlier version"), "{again:?}");
    }
}

#[test]
fn a_comment_is_never_lost_without_a_word() {
    let place = Place::default();
    let shared = "train:\n  optimizer:\n    <<: {schedule: wsd, decay_share: 0.5} # shared\n    warmup_steps: 1\n";
    place.write("mine.yaml", shared);
    let outcome = place.run(&["config", "migrate", "mine.yaml"]).succeeded();
    assert_eq!(place.text("mine.yaml"), shared);
    assert!(outcome.stderr.contains("stays as it is: `train.optimizer.decay_share`"), "{outcome:?}");
    place.write("new.yaml", &outcome.stdout);
    let load = |name: &str| Experiment::load(Some(&place.path(name)), &[]).expect("loaded");
    assert_eq!(load("new.yaml"), load("mine.yaml"));
    place.write("odd.yaml", "train: {optimizer: {decay_share: 0.5}}");
    place.run(&["config", "migrate", "odd.yaml"]).assert_refusal(&["odd.yaml", "`train.optimizer.decay_share` is 0.5"]);
    place.run(&["config", "migrate", "none.yaml"]).assert_refusal(&["none.yaml"]);
}

#[test]
fn a_run_of_an_earlier_version_goes_on_with_the_keys_of_this_one() {
    let place = Place::default();
    place.write_experiment(&format!("samples: 12, {CLIPS}"));
    let train = |settings: &[&str], more: &[&str]| {
        place.run(&[&["train", "--config", "tiny.yaml"], &sets(settings)[..], more].concat())
    };
    let wsd = "train.optimizer.schedule={type: wsd, decay_share: 0.5}";
    assert_eq!(train(&[wsd, "train.max_steps=3"], &[]).status, Some(0));
    let recorded = place.path("runs/tiny/config.yaml");
    let text = std::fs::read_to_string(&recorded).expect("read");
    let earlier = text.replace(
        "    schedule:\n      type: wsd\n      decay_share: 0.5\n",
        "    schedule: wsd\n    decay_share: 0.5\n",
    );
    assert_ne!(text, earlier);
    std::fs::write(&recorded, earlier).expect("written");
    let outcome = train(&[wsd, "train.max_steps=4"], &["--resume"]).succeeded();
    assert!(
        outcome.stderr.contains("`train.max_steps` 3 → 4") && !outcome.stderr.contains("`train.optimizer.schedule` "),
        "{outcome:?}"
    );
}
