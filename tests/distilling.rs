//! A smaller model from a larger one, as a user makes it: the large one labels recordings, and a student with fewer blocks
//! learns from the labels and from the predictions of its teacher.

use serde_json::Value;
use undertone_tests::runs::two_tasks;
use undertone_tests::{Place, json_lines};

/// Recordings of Morse with their texts, and an experiment that distils the bundled model on them.
fn place() -> Place {
    let place = Place::default();
    let synth = ["data", "synth", "--count", "8", "--out", "clips", "--set", "data.train.cw.duration_s=[4, 5]"];
    let easy = [
        "--set", "data.train.cw.clean=1", "--set", "data.train.cw.noise_only=0", "--set", "data.train.cw.wpm=[20, 25]",
    ];
    place.run(&[&synth[..], &easy].concat()).succeeded();
    place.write(
        "distil.yaml",
        "run: {name: student, dir: runs}
device: cpu
model: {decoder_layers: 1, trainable: decoder}
data:
  batch_size: 4
  workers: 1
  pad: window
  cache: {what: encoder, dir: cache}
  train: {path: labels.jsonl}
  valid: {path: clips/manifest.jsonl, limit: 2}
loss: {distillation: {teacher: whisper-nano-cw, weight: 1.25}}
train:
  max_steps: 12
  log_every: 1
  optimizer: {lr: 1.0e-3, warmup_steps: 1}
  evaluate: {every: 0}
  checkpoint: {every: 4}
",
    );
    place
}

/// Labels the recordings of `list`.
fn label(place: &Place, list: &str, more: &[&str]) -> undertone_tests::Outcome {
    let data = format!("data.train.path={list}");
    place.run(&[&["data", "label", "--config", "distil.yaml", "--set", &data], more].concat())
}

#[test]
fn a_student_learns_from_the_labels_and_the_predictions_of_its_teacher() {
    let place = place();
    let labelled = label(&place, "clips/manifest.jsonl", &["--max-wer", "0.5", "--out", "labels.jsonl"]).succeeded();
    let rows = json_lines(&place.text("labels.jsonl"));
    assert!(labelled.stdout.contains("labelled") && labelled.stdout.contains("WER"), "{labelled:?}");
    assert!(rows.len() >= 6, "the bundled model reads clean Morse: {rows:?}");
    for row in &rows {
        assert!(row["wer"].as_f64().is_some_and(|wer| wer <= 0.5) && row["text"] != "", "{row}");
        assert!(
            row["reference"].is_string() && row["audio"].as_str().is_some_and(|path| path.starts_with('/')),
            "{row}"
        );
    }
    place.train("distil.yaml", &[]).succeeded();
    let steps: Vec<Value> = json_lines(&place.text("runs/student/metrics.jsonl"))
        .into_iter()
        .filter(|line| line.get("text").is_some())
        .collect();
    let term = |step: &Value, name: &str| step[name].as_f64().expect("a number");
    assert_eq!(steps.len(), 12);
    for step in &steps {
        let total = term(step, "text") + 1.25 * term(step, "distillation");
        assert!((term(step, "loss") - total).abs() < 1e-3 * total, "{step}");
    }
    let [first, last] = [&steps[0], &steps[11]].map(|step| term(step, "distillation"));
    assert!(last < 0.7 * first, "{first} became {last}");
    let config = place.json("runs/student/best/config.json");
    assert_eq!(config["decoder_layers"], 1);
    let audio = rows[0]["audio"].as_str().expect("a path");
    place.run(&["transcribe", "--model", "runs/student", audio]).succeeded();
    place.run(&["eval", "--run", "runs/student", "--compare", "whisper-nano-cw"]).succeeded();
    assert_goes_on_the_same_way(&place, "runs/student", 12, &["--config", "distil.yaml"]);
}

/// Deletes what a run did after its last checkpoint but one, and trains on: what a killed run had not done, it does the same way.
fn assert_goes_on_the_same_way(place: &Place, run: &str, last_step: u64, arguments: &[&str]) {
    let checkpoint = format!("{run}/checkpoints/step-{last_step:08}");
    let of_last = |name: &str| place.bytes(&format!("{checkpoint}/{name}"));
    let whole = ["model.safetensors", "optimizer.safetensors"].map(of_last);
    std::fs::remove_file(place.path(&format!("{run}/summary.json"))).expect("removed");
    std::fs::remove_dir_all(place.path(&checkpoint)).expect("removed");
    place.run(&[&["train"], arguments, &["--resume"]].concat()).succeeded();
    assert!(["model.safetensors", "optimizer.safetensors"].map(of_last) == whole, "other bits");
}

#[test]
fn one_adapter_learns_from_those_of_a_run() {
    let place = Place::default();
    let mut limits = ["generation: {max_new_tokens: 10}", "generation: {max_new_tokens: 15}"].into_iter();
    let with_limits = |line: &str| match line.contains("metrics:") {
        true => format!("{line}\n    {}", limits.next().expect("a task")),
        false => line.to_owned(),
    };
    let yaml: Vec<String> = two_tasks().lines().map(with_limits).collect();
    place.write("two.yaml", yaml.join("\n"));
    let train = |more: &[&str]| place.train("two.yaml", more);
    train(&["--phase", "1"]).succeeded();
    let distilled = ["--baseline", "distilled"];
    train(&distilled).assert_refusal(&["phase 3", "phases.baselines.teacher.phase"]);
    let second = ["--baseline", "distilled", "--set", "phases.baselines.teacher.phase=2"];
    train(&second).assert_refusal(&["phases 1 and 3 train adapters"]);
    train(&["--phase", "2"]).succeeded();
    train(&["--phase", "3"]).succeeded();
    train(&distilled).succeeded();
    let steps = json_lines(&place.text("runs/two/baselines/distilled/metrics.jsonl"));
    let steps: Vec<&Value> = steps.iter().filter(|line| line["split"] == "train").collect();
    assert!(!steps.is_empty());
    for step in steps {
        let term = |name: &str| step.get(name).map_or(0.0, |value| value.as_f64().expect("a number"));
        let terms = ["low", "high", "low.distillation", "high.distillation"].map(term);
        let total: f64 = terms.iter().sum();
        assert!((term("loss") - total).abs() < 1e-3 * total && terms[2] + terms[3] > 0.0, "{step}");
    }
    let resumed = ["--config", "two.yaml", "--baseline", "distilled"];
    assert_goes_on_the_same_way(&place, "runs/two/baselines/distilled", 12, &resumed);
    // One head for both tasks: which of them is asked for has to be said, and a model for both stops for neither too early.
    place.run(&["eval", "--run", "runs/two/baselines/distilled"]).assert_refusal(&["low, high"]);
    place.run(&["eval", "--run", "runs/two/baselines/distilled", "--task", "high"]).succeeded();
    let merged = ["export", "--run", "runs/two/baselines/distilled", "--merge", "--out"];
    let longest = |name: &str, more: &[&str]| {
        place.run(&[&merged[..], &[name], more].concat()).succeeded();
        let config = place.json(&format!("{name}/generation_config.json"));
        config["max_new_tokens"].as_u64().expect("a length")
    };
    let [both, low, high] =
        [longest("both", &[]), longest("low", &["--task", "low"]), longest("high", &["--task", "high"])];
    assert_eq!((both, low + 5), (high, high));
    let table = place.run(&["analyze", "--run", "runs/two"]).succeeded();
    assert!(table.stdout.contains("distilled adapter"), "{}", table.stdout);
    let rates = place.run(&["tune", "--lr", "--config", "two.yaml", "--baseline", "distilled"]);
    rates.assert_refusal(&["--baseline shared", "phases.baselines.distilled"]);
}

#[test]
fn labels_are_written_whole_or_not_at_all_and_what_is_left_out_is_said() {
    let place = place();
    // One text is another recording's, one recording has no text, and one is missing.
    let mut rows = json_lines(&place.text("clips/manifest.jsonl"));
    rows[0]["text"] = "SOMETHING ELSE ALTOGETHER".into();
    rows[1]["text"] = "".into();
    let list: String = rows[..4].iter().map(|row| format!("{row}\n")).collect();
    place.write("clips/some.jsonl", &list);
    let labelled = label(&place, "clips/some.jsonl", &["--max-wer", "0.5", "--out", "labels.jsonl"]).succeeded();
    assert!(labelled.stdout.contains("1 left out that differ by more than 50.0 %"), "{labelled:?}");
    let texts = json_lines(&place.text("labels.jsonl"));
    assert!(texts.len() == 3 && texts[0].get("reference").is_none(), "{texts:?}");
    let silent: String = rows[1..2].iter().map(|row| format!("{row}\n")).collect();
    place.write("clips/silent.jsonl", silent);
    let alone = label(&place, "clips/silent.jsonl", &["--max-wer", "0.5", "--out", "alone.jsonl"]).succeeded();
    assert!(alone.stderr.contains("--max-wer has no effect"), "{alone:?}");
    let again = label(&place, "clips/some.jsonl", &["--out", "labels.jsonl"]);
    again.assert_refusal(&["labels.jsonl", "exists"]);
    std::fs::remove_file(place.path("clips/000002.wav")).expect("removed");
    std::fs::write(place.path("clips/000002.wav"), "no audio").expect("written");
    let unreadable = label(&place, "clips/some.jsonl", &["--out", "rest.jsonl"]);
    unreadable.assert_refusal(&["1 of the recordings cannot be read"]);
    assert_eq!(json_lines(&place.text("rest.jsonl")).len(), 3, "the others are labelled");
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        std::fs::create_dir(place.path("odd")).expect("a folder");
        let odd = |ending: &[u8]| place.path("odd").join(std::ffi::OsStr::from_bytes(&[b"caf\xe9", ending].concat()));
        std::fs::copy(place.path("clips/000000.wav"), odd(b".wav")).expect("copied");
        std::fs::write(odd(b".txt"), "CQ").expect("written");
        std::fs::copy(place.path("clips/000000.wav"), place.path("odd/plain.wav")).expect("copied");
        std::fs::write(place.path("odd/plain.txt"), "CQ").expect("written");
        label(&place, "odd", &["--out", "odd.jsonl"]).assert_refusal(&["1 of the recordings cannot be read"]);
        assert_eq!(json_lines(&place.text("odd.jsonl")).len(), 1, "the other is labelled");
    }
    let nobody = ["--set", "loss.distillation=null", "--out", "other.jsonl"];
    label(&place, "clips/some.jsonl", &nobody).assert_refusal(&["--model", "loss.distillation.teacher"]);
    place.write("synth.yaml", "loss: {distillation: {teacher: whisper-nano-cw}}\n");
    let synthesised = ["data", "label", "--config", "synth.yaml", "--out", "x.jsonl"];
    place.run(&synthesised).assert_refusal(&["synthesised"]);
    assert!(!place.path("x.jsonl").exists());
}
