//! A LoRA on a Whisper as one task without a router, and single stages and tasks of runs that have several: trained, judged,
//! merged and used.

use undertone_tests::runs::two_tasks;
use undertone_tests::{CLIPS, Outcome, Place, change_tensors, sets, tensors, wav, write_model};

/// What makes the tiny experiment one with an adapter on the model in `model`, chosen by its loss.
const LORA: [&str; 7] = [
    "model.source.config=null",
    "model.path=model",
    "model.trainable=lora",
    "model.lora={r: 4, lora_alpha: 8, target_modules: [q_proj, v_proj, fc1]}",
    "train.optimizer={lr: 3.0e-2, lora_plus_ratio: 4}",
    "train.evaluate.metrics=[cer,loss]",
    "train.checkpoint.metric=loss",
];

fn ran(place: &Place, args: &[&str]) -> Outcome {
    place.run(args).succeeded()
}

/// Three clips with something in them.
fn clips(place: &Place) -> [String; 3] {
    [0.1_f32, 0.25, 0.4].map(|pitch| {
        let name = format!("{pitch}.wav");
        place.write(&name, wav(&(0..24000).map(|n| 0.3 * (n as f32 * pitch).sin()).collect::<Vec<_>>()));
        name
    })
}

/// A trained run with an adapter, and clips.
fn adapted() -> (Place, [String; 3]) {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    write_model(&place.path("model"));
    place.train("tiny.yaml", &sets(&LORA)).succeeded();
    let clips = clips(&place);
    (place, clips)
}

fn loss(place: &Place, args: &[&str]) -> f64 {
    ran(place, args).json()["loss"].as_f64().expect("a loss")
}

/// What each of the files says to a model.
fn texts(place: &Place, model: &[&str], clips: &[String]) -> Vec<String> {
    let text = |clip: &String| ran(place, &[&["transcribe"], model, &[clip]].concat()).stdout;
    clips.iter().map(text).collect()
}

fn predicted(place: &Place, run: &[&str], clips: &[String]) -> Vec<String> {
    let text = |clip: &String| ran(place, &[&["predict"], run, &["--audio", clip]].concat()).stdout;
    clips.iter().map(text).collect()
}

#[test]
fn the_average_of_an_adapter_is_a_model_for_every_command() {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    write_model(&place.path("model"));
    place.train("tiny.yaml", &[&sets(&LORA)[..], &["--set", "train.ema_decay=0.5"]].concat()).succeeded();
    let (average, clip) = ("runs/tiny/best_ema", &clips(&place)[0]);
    let score = place.json("runs/tiny/best_ema/score.json");
    let judged = loss(&place, &["eval", "--run", average]);
    assert!((judged - score["value"].as_f64().expect("a number")).abs() < 1e-5, "{judged} {score}");
    assert!(
        (judged - loss(&place, &["eval", "--run", "runs/tiny"])).abs() > 1e-6,
        "the average is not the model itself"
    );
    ran(&place, &["export", "--run", average, "--merge", "--out", "averaged"]);
    let said = ["averaged", average].map(|model| ran(&place, &["transcribe", "--model", model, clip]).stdout);
    assert_eq!(said[0], said[1]);
    ran(&place, &["predict", "--run", average, "--audio", clip]);
}

#[test]
fn an_adapter_on_a_whisper_is_trained_judged_merged_and_used() {
    let (place, clips) = adapted();
    let run = "runs/tiny";
    let names = tensors(&place.path("runs/tiny/best/adapters/default/adapter_model.safetensors"));
    assert!(names.keys().any(|name| name.starts_with("base_model.model.model.encoder.layers.0.self_attn.q_proj.")));
    assert!(tensors(&place.path("runs/tiny/best/heads.safetensors")).is_empty(), "an adapter alone is all there is");
    let summary = place.json("runs/tiny/summary.json");
    let best = summary["best"][0].as_f64().expect("a score");
    // What is judged is the base with its adapter, and the merged folder the same.
    let eval = loss(&place, &["eval", "--run", run]);
    assert!((eval - best).abs() < 1e-6 * best, "{eval} and {best}");
    ran(&place, &["export", "--run", run, "--merge", "--out", "merged"]);
    let of = |model: &str| {
        let path = format!("model.path={model}");
        loss(
            &place,
            &["eval", "--config", "tiny.yaml", "--set", "model.source.config=null", "--set", &path, "--set", LORA[5]],
        )
    };
    assert!((of("merged") - eval).abs() < 1e-4 * eval, "{} and {eval}", of("merged"));
    let base = of("model");
    assert!((base - eval).abs() > 1e-2 * eval, "the adapter changes something: {base} and {eval}");
    let expected = texts(&place, &["--model", run], &clips);
    assert_eq!(texts(&place, &["--model", "merged"], &clips), expected);
    assert_eq!(texts(&place, &["--model", "runs/tiny/best"], &clips), expected);
    assert_eq!(predicted(&place, &["--run", run], &clips), expected);
    // It goes on where it stopped, and is no run of the other kind.
    let more = ["--resume", "--set", "train.max_steps=26"];
    place.train("tiny.yaml", &[&sets(&LORA)[..], &more].concat()).succeeded();
    place.run(&["analyze", "--run", run]).assert_refusal(&[run, "cargo xtask eval --run"]);
}

#[test]
fn an_adapter_by_itself_is_written_as_peft_has_it_and_never_taken_for_a_whole_model() {
    let (place, _) = adapted();
    let export = ["export", "--run", "runs/tiny", "--out"];
    place.run(&[&export[..], &["whole"]].concat()).assert_refusal(&["`runs/tiny`", "--merge", "--format peft"]);
    let outcome = ran(&place, &[&export[..], &["adapter", "--format", "peft"]].concat());
    assert!(!outcome.stderr.contains("head"), "there is none: {outcome:?}");
    let mut files: Vec<_> =
        std::fs::read_dir(place.path("adapter")).expect("listed").flatten().map(|e| e.file_name()).collect();
    files.sort();
    assert_eq!(files, ["adapter_config.json", "adapter_model.safetensors"]);
    place.run(&[&export[..], &["x", "--format", "peft", "--merge"]].concat()).assert_refusal(&["--format peft"]);
    place.run(&["export", "--run", "none", "--out", "x"]).assert_refusal(&["`none` is not a run"]);
    for (settings, culprits) in [
        (&["model.lora={r: 0}"][..], &["`model.lora`", "`r`"][..]),
        (&["model.lora={target_modules: [query]}"], &["`query`", "q_proj"]),
        (&["model.trainable=all"], &["`model.lora`", "trainable: lora"]),
    ] {
        let args = [&["--set", "run.name=odd"], &sets(&LORA)[..], &sets(settings)].concat();
        place.train("tiny.yaml", &args).assert_refusal(culprits);
    }
}

#[test]
fn a_run_of_the_other_kind_is_told_the_command_that_it_is_for() {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    place.train("tiny.yaml", &["--set", "train.max_steps=3"]).succeeded();
    let [clip, ..] = clips(&place);
    let predict = place.run(&["predict", "--run", "runs/tiny", "--audio", &clip]);
    predict.assert_refusal(&["`runs/tiny`", "cargo xtask transcribe --model runs/tiny"]);
    place.run(&["analyze", "--run", "runs/tiny"]).assert_refusal(&["`runs/tiny`", "cargo xtask eval --run runs/tiny"]);
    place.run(&["export", "--run", "runs/tiny", "--merge", "--out", "x"]).assert_refusal(&["`runs/tiny`", "--merge"]);
    place.run(&["eval", "--run", "runs/tiny", "--task", "low"]).assert_refusal(&["`low`", "none"]);
}

#[test]
fn one_task_of_a_run_is_used_by_itself_with_what_tells_the_decoder_of_it() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    place.train("two.yaml", &["--phase", "1"]).succeeded();
    // A start that matters, as one does after more than six steps.
    change_tensors(&place.path("runs/two/phase1/low/best/heads.safetensors"), |heads| {
        let start = heads.get_mut("low.start").expect("a start");
        start.data.iter_mut().enumerate().for_each(|(at, x)| *x = if at % 2 == 0 { 3.0 } else { -3.0 });
    });
    let clips = clips(&place);
    let run = "runs/two";
    let expected = predicted(&place, &["--run", run, "--task", "low"], &clips);
    assert_eq!(predicted(&place, &["--run", "runs/two/phase1/low"], &clips), expected);
    assert_eq!(texts(&place, &["--model", run, "--task", "low"], &clips), expected);
    assert_eq!(texts(&place, &["--model", "runs/two/phase1/low"], &clips), expected);
    let outcome = ran(&place, &["export", "--run", run, "--task", "low", "--merge", "--out", "merged"]);
    assert!(outcome.stderr.is_empty(), "all of it is in there: {outcome:?}");
    assert_eq!(texts(&place, &["--model", "merged"], &clips), expected);
    // The start is in the row of the start token, which is never written.
    let row = |folder: &str| tensors(&place.path(folder))["model.decoder.embed_tokens.weight"].data.clone();
    ran(&place, &["export", "--run", run, "--task", "high", "--merge", "--out", "other"]);
    let moved =
        row("merged/model.safetensors").iter().zip(row("other/model.safetensors")).filter(|(a, b)| **a != *b).count();
    assert_eq!(moved, 16, "of one row");
    let [generation, config] = ["merged/generation_config.json", "merged/config.json"].map(|name| place.json(name));
    let suppressed = generation["suppress_tokens"].as_array().expect("a list");
    assert!(suppressed.contains(&config["decoder_start_token_id"]), "{generation}");
    // By itself the adapter is not what was trained, and that is said.
    let outcome = ran(&place, &["export", "--run", run, "--task", "low", "--format", "peft", "--out", "adapter"]);
    assert!(outcome.stderr.contains("not the task's head") && outcome.stderr.contains("--merge"), "{outcome:?}");
    let adapter = "runs/two/phase1/low/best/adapters/low";
    place.run(&["transcribe", "--model", adapter, &clips[0]]).assert_refusal(&[adapter, "head", "the run or stage"]);
    // Whose task is meant has to be said once there are two.
    for args in [&["transcribe", "--model", run, &clips[0]][..], &["export", "--run", run, "--merge", "--out", "x"]] {
        place.run(args).assert_refusal(&["--task", "low, high"]);
    }
    place
        .run(&["transcribe", "--model", run, "--task", "middle", &clips[0]])
        .assert_refusal(&["`middle`", "low, high"]);
    place.run(&["eval", "--run", "runs/two/phase7"]).assert_refusal(&["runs/two/phase7"]);
    let judged = |args: &[&str]| ran(&place, &[&["eval", "--run"], args].concat()).stdout;
    let low = judged(&[run, "--task", "low"]);
    assert!(low.contains("low.cer") && !low.contains("high."), "{low}");
    assert_eq!(judged(&["runs/two/phase1/low"]), low);
    // With a router it is the latest phase that answers.
    place.train("two.yaml", &["--phase", "2"]).succeeded();
    assert_eq!(predicted(&place, &["--run", run, "--task", "low"], &clips), expected);
}

#[test]
fn a_run_with_one_task_trains_that_task_and_no_router() {
    let place = Place::default();
    let two = two_tasks();
    let (second, rest) = (two.rfind("  - name:").expect("a task"), two.find("router:").expect("a router"));
    place.write("one.yaml", [&two[..second], &two[rest..]].concat());
    let trained = place.train("one.yaml", &[]).succeeded();
    assert!(trained.stdout.contains("phase1") && place.path("runs/two/phase1").is_dir(), "{trained:?}");
    assert!(!place.path("runs/two/phase2").exists() && !place.path("runs/two/phase3").exists());
    place.train("one.yaml", &["--phase", "all", "--resume"]).succeeded();
    place.train("one.yaml", &["--phase", "2"]).assert_refusal(&["at least two `tasks`"]);
}
