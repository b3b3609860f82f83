//! The command line on bad input: exit status 2, one line that names the culprit, and nothing left behind.

use undertone::phases::Experiment;
use undertone_tests::runs::TRAIN;
use undertone_tests::{CLIPS, Outcome, Place, json_lines, wav, write_model};

/// A place with the tiny experiment.
fn place() -> Place {
    Place::with_experiment(&format!("samples: 8, {CLIPS}"))
}

/// The command is refused in one line, and the place is as it was.
fn refuses(place: &Place, args: &[&str], culprits: &[&str]) {
    let before = place.tree();
    let outcome = place.run(args);
    outcome.assert_refusal(culprits);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    assert_eq!(place.tree(), before, "something was left behind");
}

fn refuses_to_train(place: &Place, more: &[&str], culprits: &[&str]) {
    refuses(place, &[&TRAIN, more].concat(), culprits);
}

#[test]
fn a_config_that_cannot_be_is_refused_with_its_key_and_file() {
    for (yaml, culprits) in [
        ("trian: {max_steps: 5}", ["trian", "tiny.yaml"]),
        ("train: {optimizer: {learning_rate: 1}}", ["train.optimizer.learning_rate", "tiny.yaml"]),
        ("train: {max_steps: many}", ["train.max_steps", "tiny.yaml"]),
        ("data: {batch_size: [4]}", ["data.batch_size", "tiny.yaml"]),
        ("train: {max_steps: 5", ["tiny.yaml", "line"]),
        ("train:\n\tmax_steps: 5", ["tiny.yaml", "line"]),
        ("train: {max_steps: 0}", ["train.max_steps", "at least 1"]),
        ("device: gpu", ["device", "gpu"]),
    ] {
        let place = Place::default();
        place.write("tiny.yaml", yaml);
        refuses_to_train(&place, &[], &culprits);
    }
}

#[test]
fn environment_variables_are_read_as_settings_are_and_named_in_refusals() {
    let place = place();
    let refused = |variable: &str, value: &str, culprits: &[&str]| {
        let mut command = place.xtask(&["train", "--config", "tiny.yaml"]);
        Outcome::of(command.env(variable, value)).assert_refusal(culprits);
    };
    for (variable, value, culprits) in [
        ("UNDERTONE_TRAIN__OPTIMIZER__LR", "fast", &["`train.optimizer.lr`", "UNDERTONE_TRAIN__OPTIMIZER__LR"][..]),
        ("UNDERTONE_TRAIN__MAX_STEPS", "1e-5", &["`train.max_steps`", "UNDERTONE_TRAIN__MAX_STEPS"]),
        ("UNDERTONE_DATA__TRAIN", "[{samples: }", &["UNDERTONE_DATA__TRAIN", "not YAML"]),
    ] {
        refused(variable, value, culprits);
    }
    let mut command = place.xtask(&["train", "--config", "tiny.yaml", "--set", "train.max_steps=3"]);
    command.env("UNDERTONE_TRAIN__OPTIMIZER__LR", "1e-5").env("UNDERTONE_DATA__TRAIN__SAMPLES", "8");
    Outcome::of(&mut command).succeeded();
    let recorded = place.text("runs/tiny/config.yaml");
    assert!(recorded.contains("lr: 0.00001") || recorded.contains("lr: 1e-5"), "{recorded}");
}

#[test]
fn a_missing_config_is_named() {
    refuses(&place(), &["train", "--config", "none.yaml"], &["none.yaml"]);
}

#[test]
fn a_malformed_setting_is_quoted() {
    let place = place();
    for (setting, culprit) in [
        ("train.max_steps", "--set train.max_steps"),
        ("=5", "--set =5"),
        ("train.max_steps=[", "--set train.max_steps=["),
        ("train.steps=5", "train.steps"),
        ("train.max_steps=many", "train.max_steps"),
    ] {
        refuses_to_train(&place, &["--set", setting], &[culprit]);
    }
}

#[test]
#[cfg_attr(feature = "mpi", ignore = "mpi is in this build")]
fn copies_of_one_run_that_a_launcher_starts_are_refused() {
    let place = place();
    let error = |variables: [(&str, &str); 2]| {
        let mut command = place.xtask(&["train", "--config", "none.yaml"]);
        let outcome = Outcome::of(command.envs(variables));
        assert_eq!(outcome.status, Some(2));
        outcome.stderr
    };
    let of_two = |rank| error([("OMPI_COMM_WORLD_RANK", rank), ("OMPI_COMM_WORLD_SIZE", "2")]);
    let first = of_two("0");
    assert!(first.contains("2 processes were started together"), "{first}");
    assert_eq!(of_two("1"), "", "one of them says it");
    let alone = error([("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]);
    assert!(alone.contains("none.yaml"), "{alone}");
}

#[test]
fn an_unknown_device_is_named() {
    refuses_to_train(&place(), &["--device", "gpu"], &["gpu"]);
}

#[test]
#[cfg_attr(feature = "cuda", ignore = "cuda is in this build")]
fn a_gpu_that_was_not_compiled_in_names_its_feature() {
    refuses_to_train(&place(), &["--device", "cuda:0"], &["cuda:0", "--features cuda"]);
}

#[test]
#[cfg_attr(feature = "tch", ignore = "tch is in this build")]
fn a_libtorch_that_was_not_compiled_in_names_its_feature() {
    refuses_to_train(&place(), &["--device", "tch:cpu"], &["tch:cpu", "--features tch"]);
}

#[test]
#[cfg_attr(feature = "tui", ignore = "the dashboard is in this build")]
fn a_dashboard_that_was_not_compiled_in_names_its_feature() {
    refuses_to_train(&place(), &["--tui"], &["--tui", "--features tui"]);
}

#[test]
fn a_report_of_no_run_is_refused() {
    refuses(&place(), &["report", "runs/none"], &["runs/none", "metrics.jsonl"]);
}

#[test]
fn an_existing_run_is_left_alone_and_resume_is_named() {
    let place = place();
    std::fs::create_dir_all(place.path("runs/tiny")).expect("a directory");
    place.write("runs/tiny/config.yaml", Experiment::default().to_yaml());
    refuses_to_train(&place, &[], &["tiny", "--resume"]);
}

#[test]
fn resuming_without_a_run_leaves_nothing() {
    refuses_to_train(&place(), &["--resume"], &["tiny", "resume"]);
}

/// Spoils a model folder; to train from it and to transcribe with it are refused alike.
fn refuses_model(spoil: impl FnOnce(&Place), culprits: &[&str]) {
    let place = place();
    write_model(&place.path("model"));
    place.write("silence.wav", wav(&[0.0; 1600]));
    spoil(&place);
    refuses_to_train(&place, &["--set", "model.path=model"], culprits);
    refuses(&place, &["transcribe", "--model", "model", "silence.wav"], culprits);
}

#[test]
fn a_missing_model_folder_is_named() {
    refuses_model(|place| std::fs::remove_dir_all(place.path("model")).expect("removed"), &["`model`"]);
}

#[test]
fn a_model_folder_without_a_file_is_refused() {
    for name in ["config.json", "model.safetensors"] {
        refuses_model(|place| std::fs::remove_file(place.path("model").join(name)).expect("removed"), &[name]);
    }
    // The vocabulary is there in parts as well.
    let forget = |place: &Place| {
        for name in ["tokenizer.json", "vocab.json"] {
            std::fs::remove_file(place.path("model").join(name)).expect("removed");
        }
    };
    refuses_model(forget, &["tokenizer.json", "vocab.json", "merges.txt"]);
}

#[test]
fn truncated_weights_are_named() {
    let cut = |place: &Place| {
        let whole = place.bytes("model/model.safetensors");
        place.write("model/model.safetensors", &whole[..whole.len() / 2]);
    };
    refuses_model(cut, &["model.safetensors"]);
}

#[test]
fn a_preprocessor_with_another_mel_count_is_refused() {
    let spoil = |place: &Place| place.write("model/preprocessor_config.json", r#"{"feature_size": 128}"#);
    refuses_model(spoil, &["preprocessor_config.json", "128", "80"]);
}

#[test]
fn the_tokenizer_of_another_model_is_refused() {
    for characters in [" ABC", &(' '..='~').collect::<String>()] {
        let other =
            undertone::model::whisper::WhisperTokenizer::of_characters(characters, &["en"]).expect("a tokenizer");
        refuses_model(|place| place.write("model/tokenizer.json", other.to_bytes()), &["tokenizer.json"]);
    }
}

/// A place that trains on a manifest, beside `a.wav` of a second.
fn with_manifest(lines: &str) -> Place {
    let place = Place::with_experiment("path: manifest.jsonl");
    place.write("a.wav", wav(&[0.1; 16_000]));
    place.write("manifest.jsonl", lines);
    place
}

#[test]
fn an_unusable_manifest_is_named_with_its_line() {
    let long = format!("{{\"audio\": \"a.wav\", \"text\": \"{}\"}}", "A".repeat(60));
    for (lines, culprits) in [
        ("", ["manifest.jsonl", "no records"]),
        ("{\"audio\": \"a.wav\", \"text\": \"A\"}\n{\"audio\": \"b.wav\", \"text\": \"B\"}", ["line 2", "b.wav"]),
        ("{\"audio\": \"a.wav\", \"text\": \"A\"}\nnonsense", ["manifest.jsonl", "line 2"]),
        ("{\"audio\": \"a.wav\", \"text\": \"AB#\"}", ["a.wav", "'#'"]),
        (&long, ["a.wav", "56"]),
    ] {
        refuses_to_train(&with_manifest(lines), &[], &culprits);
    }
}

#[test]
fn a_missing_manifest_is_named() {
    let place = with_manifest("");
    std::fs::remove_file(place.path("manifest.jsonl")).expect("removed");
    refuses_to_train(&place, &[], &["manifest.jsonl"]);
}

#[test]
fn audio_longer_than_the_window_is_named() {
    let place = with_manifest(r#"{"audio": "long.wav", "text": "A"}"#);
    place.write("long.wav", wav(&[0.1; 40_000]));
    place.train("tiny.yaml", &[]).assert_refusal(&["long.wav", "2.50 s", "2.00 s"]);
}

#[test]
fn audio_that_cannot_be_read_is_named() {
    let place = Place::default();
    write_model(&place.path("model"));
    place.write("text.wav", "to be read, not to be heard\n".repeat(100));
    place.write("nothing.wav", "");
    place.write("no-samples.wav", wav(&[]));
    place.write("nan.wav", wav(&[0.1, f32::NAN, 0.1]));
    for name in ["none.wav", "text.wav", "nothing.wav", "no-samples.wav", "nan.wav"] {
        refuses(&place, &["transcribe", "--model", "model", name], &[name]);
    }
}

#[test]
fn several_files_are_transcribed_a_line_each() {
    let place = Place::default();
    write_model(&place.path("model"));
    place.write("a.wav", wav(&[0.1; 1600]));
    let Outcome { status, stdout, stderr } = place.run(&["transcribe", "--model", "model", "a.wav", "a.wav"]);
    assert_eq!(status, Some(0));
    let (each, last) = stderr.trim_end().rsplit_once('\n').expect("lines");
    assert!(each.lines().all(|line| line == "a.wav: there is no tone that is keyed"), "{stderr}");
    assert!(last.starts_with("0.2 s read in "), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1] && lines[0].starts_with("a.wav\t"), "{lines:?}");
}

/// What a run of three steps says with the levels that `RUST_LOG` is set to.
fn said(place: &Place, levels: Option<&str>, args: &[&str]) -> String {
    let short = ["--set", "train.max_steps=3", "--set", "run.overwrite=true"];
    let mut command = place.xtask(&[&TRAIN, &short[..], args].concat());
    levels.map(|levels| command.env("RUST_LOG", levels));
    Outcome::of(&mut command).succeeded().stderr
}

/// Every line as the JSON object that it is.
fn objects(said: &str) -> Vec<serde_json::Value> {
    let objects = json_lines(said);
    for object in &objects {
        assert!(
            object["level"].is_string() && object["message"].is_string() && object["target"].is_string(),
            "{object}"
        );
    }
    objects
}

#[test]
fn what_is_said_is_sentences_or_json() {
    let place = place();
    let plain = said(&place, None, &[]);
    assert!(plain.starts_with("step 0  valid  ") && plain.contains("\nstep 3/3  loss "), "{plain}");
    assert!(!plain.contains('\x1b') && !plain.contains("INFO"), "{plain}");
    let json = objects(&said(&place, None, &["--log-format", "json"]));
    let messages: Vec<&str> = json.iter().filter_map(|object| object["message"].as_str()).collect();
    // The second run is told that it replaces the first.
    assert!(messages[0].starts_with("run.overwrite: deleting what was trained in `runs/tiny`"), "{messages:?}");
    assert_eq!(messages.len(), 1 + plain.lines().count(), "{messages:?}");
    assert!(messages.iter().any(|message| message.starts_with("step 3/3  loss ")), "{messages:?}");
    assert!(json.iter().all(|object| object["level"] == "INFO" && object["target"] != ""), "{json:?}");
}

#[test]
fn levels_are_those_of_rust_log() {
    let place = place();
    assert_eq!(said(&place, Some("error"), &[]), "");
    assert_eq!(said(&place, Some("undertone_train=warn"), &[]), "");
    let refused = place.xtask(&["report", "runs/none"]).env("RUST_LOG", "off").output().expect("a process");
    assert!(refused.stderr.starts_with(b"error: "), "what ends a command is always said: {refused:?}");
    let wrong = place.xtask(&TRAIN).env("RUST_LOG", "undertone=loud").output().expect("a process");
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && text.lines().count() == 1, "{wrong:?}");
    assert!(text.starts_with("error: `RUST_LOG` is `undertone=loud`") && text.contains("`warn`"), "{text}");
}

#[test]
fn parts_of_a_step_are_spans() {
    let place = place();
    let json = objects(&said(&place, Some("undertone_train=debug"), &["--log-format", "json"]));
    for part in ["load", "forward", "backward", "optimizer", "evaluate", "checkpoint"] {
        let of_part = |object: &&serde_json::Value| object["message"] == "close" && object["span"]["name"] == part;
        let timed: Vec<_> = json.iter().filter(of_part).collect();
        assert!(!timed.is_empty() && timed.iter().all(|it| it["time.busy"].is_string()), "{part}: {json:?}");
    }
}

#[test]
fn a_refusal_in_json_is_an_error() {
    let outcome = place().run(&["report", "runs/none", "--log-format", "json"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let [object] = &objects(&outcome.stderr)[..] else { panic!("{outcome:?}") };
    assert!(object["level"] == "ERROR" && object["message"].as_str().is_some_and(|it| it.contains("runs/none")));
}
