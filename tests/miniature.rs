//! The main job in small: the bundled backbone, fine-tuned for half a minute to contest traffic faster than any it has
//! heard, reads it better than before.

use std::path::Path;
use undertone::phases::run::train;
use undertone::phases::{Experiment, ModelConfig, Session};
use undertone::transcribe::{TranscribeOptions, Transcriber};

#[test]
fn half_a_minute_of_fine_tuning_lowers_the_error_rate() {
    undertone::register().expect("registered");
    let dir = tempfile::tempdir().expect("a directory");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/cw-contest.yaml");
    let settings = [
        format!("run.dir={}", dir.path().display()),
        "device=cpu".into(),
        "train.max_steps=80".into(),
        "train.optimizer.warmup_steps=10".into(),
        "train.evaluate.every=0".into(),
        "data.valid.samples=32".into(),
        "train.optimizer.lr=1e-3".into(),
        "data.train.0.cw.wpm=[52, 58]".into(),
        "data.valid.cw.wpm=[52, 58]".into(),
    ];
    let experiment = Experiment::load(Some(&config), &settings).expect("the configuration");
    let finetuned = train(&experiment, &Session::default()).expect("a run").remove(0);
    let summary = finetuned.summary.expect("it was trained");
    let (before, after) = (summary.before["cer"], summary.after["cer"]);
    println!("CER {before:.3} → {after:.3}");
    assert!(after < before - 0.1, "CER {before} became {after}");

    let device = experiment.device.resolve().expect("a CPU");
    let best = finetuned.directory.join("best");
    let whisper = ModelConfig::named(&best).load(&device, 0).expect("the best model");
    assert!(Transcriber::new(whisper, &device, TranscribeOptions::default()).is_ok(), "what was trained can be used");
    let log = std::fs::read_to_string(finetuned.directory.join("metrics.jsonl")).expect("metrics.jsonl");
    assert!(log.lines().count() >= 4 && log.lines().all(|l| l.starts_with("{\"step\":")));
}
