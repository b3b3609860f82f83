//! Whisper, fine-tuned: `cargo run -p undertone --example finetune_whisper`.
//!
//! An experiment is what YAML says; built, it is all that a [`Learner`] takes. Here it is the bundled whisper-nano-cw, and
//! Morse that is faster than any it was trained on.

use undertone::phases::Experiment;
use undertone::phases::run::Run;
use undertone::train::Learner;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    undertone::register()?;
    let dir = tempfile::tempdir()?;
    // As after `--set`; a file of YAML is the other argument.
    let settings = [
        "device=cpu", "data.batch_size=8", "data.train.samples=320", "data.train.cw.wpm=[38, 42]",
        "data.train.cw.duration_s=[2, 3]", "data.eval_pad=longest", "train.max_steps=40", "train.optimizer.lr=1.0e-4",
        "train.optimizer.warmup_steps=4", "train.evaluate.metrics=[cer, loss]",
    ];
    let mut experiment = Experiment::load(None, &settings.map(String::from))?;
    experiment.at(&dir.path().join("fast"));

    let Run { device, config, model, batches, objective, seed, .. } = experiment.build()?;
    let learner = Learner::builder(config, objective, model, experiment.directory());
    let summary = learner.with_device(device).with_seed(seed).build().train(&batches)?;

    let (before, after) = (&summary.before, &summary.after);
    println!(
        "{} steps: loss {:.3} -> {:.3}, CER {:.3} -> {:.3}",
        summary.steps, before["loss"], after["loss"], before["cer"], after["cer"]
    );
    assert!(after["loss"] < before["loss"], "nothing was learned");
    Ok(())
}
