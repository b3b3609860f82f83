//! Whispers with options beyond OpenAI's architecture: trained, grown, continued, adapted, used and exported.

use std::path::Path;
use undertone::fit::{Execution, Footprint};
use undertone::phases::Experiment;
use undertone_tests::toys::lines;
use undertone_tests::{CLIPS, Place, sets, wav, write_model};

/// Every option, as a setting of the tiny experiment.
const OPTIONS: [&str; 6] = [
    "model.source.config.encoder_block=conformer",
    "model.source.config.conv_kernel_size=7",
    "model.source.config.position_embeddings_type=rotary",
    "model.source.config.encoder_key_value_heads=1",
    "model.source.config.decoder_key_value_heads=1",
    "model.source.config.embedding_size=8",
];

fn place() -> Place {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    place.write("clip.wav", wav(&(0..24000).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect::<Vec<_>>()));
    place
}

/// Loss of the first evaluation, before training.
fn first_loss(place: &Place, run: &str) -> f64 {
    let lines = lines(&place.path(run), "valid");
    let found = lines.iter().find(|line| line["step"] == 0).expect("an evaluation before training");
    found["loss"].as_f64().expect("a loss")
}

#[test]
fn a_compact_model_is_trained_continued_used_and_kept_from_programs_that_cannot_hold_it() {
    let place = place();
    place.train("tiny.yaml", &[&["--set", "train.max_steps=4"], &sets(&OPTIONS)[..]].concat()).succeeded();
    place.train("tiny.yaml", &[&["--resume", "--set", "train.max_steps=6"], &sets(&OPTIONS)[..]].concat()).succeeded();
    assert_eq!(place.json("runs/tiny/best/config.json")["model_type"], "compact_whisper");
    let text = place.run(&["transcribe", "--model", "runs/tiny", "clip.wav"]).succeeded().stdout;
    for (format, program) in [("hf", "transformers"), ("ggml", "whisper.cpp")] {
        let refused = place.run(&["export", "--run", "runs/tiny", "--format", format, "--out", "there"]);
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        let reason = format!("{program} cannot hold this model: `encoder_block` is `conformer`");
        assert!(
            refused.stderr.contains(&reason) && refused.stderr.contains("--format undertone"),
            "{}",
            refused.stderr
        );
        assert!(!place.path("there").exists());
    }
    place.run(&["export", "--run", "runs/tiny", "--format", "undertone", "--out", "ours"]).succeeded();
    assert_eq!(place.run(&["transcribe", "--model", "ours", "clip.wav"]).succeeded().stdout, text);
    let card = place.text("ours/README.md");
    assert!(card.contains("undertone transcribe") && !card.contains("transformers"), "{card}");
}

#[test]
fn an_adapter_on_a_compact_model_is_merged_here() {
    let place = place();
    place.train("tiny.yaml", &[&["--set", "train.max_steps=3"], &sets(&OPTIONS)[..]].concat()).succeeded();
    let adapted = sets(&[
        "run.name=adapted",
        "model.source.config=null",
        "model.path=runs/tiny/best",
        "model.trainable=lora",
        "model.lora={r: 2, target_modules: [k_proj, intermediate_dense, pointwise_conv1, pointwise_conv2]}",
        "train.max_steps=4",
    ]);
    place.train("tiny.yaml", &adapted).succeeded();
    let export = place.run(&["export", "--run", "runs/adapted", "--format", "peft", "--out", "adapter"]).succeeded();
    assert!(export.stderr.contains("`encoder_block` is `conformer`, and PEFT loads bases"), "{}", export.stderr);
    place.run(&["export", "--run", "runs/adapted", "--merge", "--format", "undertone", "--out", "merged"]).succeeded();
    let text = |model: &str| place.run(&["transcribe", "--model", model, "clip.wav"]).succeeded().stdout;
    assert_eq!(text("merged"), text("runs/adapted"));
}

#[test]
fn a_grown_model_begins_with_the_loss_of_the_one_that_it_grows_from() {
    let place = place();
    write_model(&place.path("model"));
    let run = |name: &str, more: &[&str]| {
        let name = format!("run.name={name}");
        place.train("tiny.yaml", &[&["--set", "train.max_steps=3", "--set", &name], more].concat())
    };
    let metrics = "train.evaluate.metrics=[loss,cer]";
    run("plain", &["--set", "model.source.config=null", "--set", "model.path=model", "--set", metrics]).succeeded();
    let grown = ["model.source.grow_from=model", OPTIONS[0], OPTIONS[1], metrics];
    let grown = sets(&grown);
    let quiet = run("grown", &grown).succeeded();
    assert!(!quiet.stderr.contains("does not begin"), "{}", quiet.stderr);
    let [plain, conformer] = ["runs/plain", "runs/grown"].map(|run| first_loss(&place, run));
    assert!((plain - conformer).abs() < 1e-5 * plain, "{plain} and {conformer}");
    let pooled = run("pooled", &[&grown[..], &["--set", OPTIONS[3]]].concat()).succeeded();
    assert!(pooled.stderr.contains("the loss does not begin as that of `model`"), "{}", pooled.stderr);
    for (option, key) in [(OPTIONS[2], "position_embeddings_type"), (OPTIONS[5], "embedding_size")] {
        let refused = run("refused", &[&grown[..], &["--set", option]].concat());
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        let reason = format!("`model.source.grow_from`: `{key}` is");
        assert!(refused.stderr.contains(&reason) && refused.stderr.contains("random weights"), "{}", refused.stderr);
    }
}

#[test]
fn the_configuration_for_8_gb_leaves_some_of_them_free() {
    undertone::register().expect("registered");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/compact-whisper-8gb.yaml");
    let Experiment { model, data, train, loss, .. } = Experiment::load(Some(&file), &[]).expect("an experiment");
    assert!(loss.ctc > 0.0);
    let (config, tokenizer) = (model.source.config.expect("dimensions"), model.tokenizer.expect("a vocabulary"));
    let footprint = Footprint::whisper(&config);
    // The classes of the CTC loss are the tokens of text, and the blank.
    let classes = tokenizer.vocab_size.expect("a size") + 1;
    let head = ((config.d_model + 1) * classes) as u64;
    let footprint = footprint.with_ctc(classes).training(footprint.trainable + head, true);
    let bytes = footprint.bytes(data.batch_size, train.accumulation, &Execution::GPU.in_half());
    assert!((3_000_000_000..4_000_000_000).contains(&bytes), "{bytes}");
}
