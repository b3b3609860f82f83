//! Every file in configs/ is an experiment that can be run.

use std::path::Path;
use undertone::phases::Experiment;

#[test]
fn every_shipped_configuration_parses_and_says_how_to_run_it() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).expect("configs/") {
        let path = entry.expect("an entry").path();
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
        seen += 1;
    }
    assert!(seen >= 3);
}
