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

/// Model, data and batches of the first stage; what needs files that are not here names one of them.
#[test]
fn every_shipped_configuration_builds_or_names_what_is_missing() {
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
