//! `cargo xtask data check` finds every fault that data was made to have and none in data that has none; `data cache`
//! keeps what training then finds.

use serde_json::Value;
use undertone_testing::shared;
use undertone_tests::model_folder::copy_folder;
use undertone_tests::reference::fixture;
use undertone_tests::toys::logged;
use undertone_tests::{CLIPS, Outcome, Place, experiment, wav};

/// So many seconds of a tone that nothing else is like, at a fifth of full scale.
fn tone(seconds: f32, hertz: f32) -> Vec<f32> {
    let step = std::f32::consts::TAU * hertz / 16_000.0;
    (0..(seconds * 16_000.0) as usize).map(|n| 0.2 * (step * n as f32).sin()).collect()
}

/// A place whose model hears two seconds and writes 56 tokens, with clean recordings in both splits.
fn clean() -> Place {
    let place = Place::default();
    let yaml = experiment("path: train.jsonl");
    let valid = format!("valid: {{samples: 2, {CLIPS}}}");
    assert!(yaml.contains(&valid), "{yaml}");
    place.write("tiny.yaml", yaml.replace(&valid, "valid: {path: valid.jsonl}"));
    for (name, hertz) in [("a", 440.0), ("b", 550.0), ("c", 660.0), ("v", 770.0), ("w", 880.0)] {
        place.write(&format!("{name}.wav"), wav(&tone(1.0, hertz)));
    }
    place.write("train.jsonl", TRAIN);
    place.write("valid.jsonl", VALID);
    place
}

const TRAIN: &str = r#"{"audio": "a.wav", "text": "CQ"}
{"audio": "b.wav", "text": "DE"}
{"audio": "c.wav", "text": "TEST"}
"#;
const VALID: &str = r#"{"audio": "v.wav", "text": "PSE"}
{"audio": "w.wav", "text": "QSL"}
"#;

const CHECK: [&str; 6] = ["data", "check", "--config", "tiny.yaml", "--json", "check.json"];

/// What the check says, and its report.
fn check(place: &Place, more: &[&str]) -> (Outcome, Value) {
    let outcome = place.run(&[&CHECK, more].concat());
    let report = std::fs::read(place.path("check.json")).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
    (outcome, serde_json::from_slice(&report).expect("JSON"))
}

/// The check of the clean place with more rows in `train.jsonl`.
fn with_rows(files: &[(&str, Vec<u8>)], rows: &str, more: &[&str]) -> (Outcome, Value) {
    let place = clean();
    files.iter().for_each(|(name, bytes)| place.write(name, bytes));
    place.write("train.jsonl", format!("{TRAIN}{rows}"));
    check(&place, more)
}

/// Kinds of problems, with how many samples they concern.
fn problems(report: &Value, severity: &str) -> Vec<(String, u64)> {
    let all = report["problems"].as_array().expect("a list").iter();
    let wanted = all.filter(|problem| problem["severity"] == severity);
    wanted.map(|p| (p["kind"].as_str().expect("a kind").to_owned(), p["count"].as_u64().expect("a number"))).collect()
}

/// Training would fail for one reason alone, which names these.
fn assert_fails((outcome, report): &(Outcome, Value), kind: &str, count: u64, culprits: &[&str]) {
    outcome.assert_refusal(&[&["training would fail"][..], culprits].concat());
    assert_eq!(problems(report, "failure"), [(kind.to_owned(), count)], "{report:#}");
    assert_eq!(report["fails"], true);
    for culprit in culprits {
        assert!(outcome.stdout.contains(culprit), "{culprit} is not in {}", outcome.stdout);
    }
}

/// There is one warning, which names these, and training would not fail.
fn assert_warns((outcome, report): &(Outcome, Value), kind: &str, count: u64, culprits: &[&str]) {
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert_eq!(problems(report, "failure"), []);
    assert_eq!(problems(report, "warning"), [(kind.to_owned(), count)], "{report:#}");
    for culprit in culprits {
        assert!(outcome.stdout.contains(culprit), "{culprit} is not in {}", outcome.stdout);
    }
}

#[test]
fn clean_data_has_nothing_wrong_with_it() {
    let place = clean();
    let (outcome, report) = check(&place, &["--out", "out"]);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(outcome.stdout.contains("nothing is wrong with it"), "{}", outcome.stdout);
    assert_eq!((&report["fails"], &report["window"]), (&false.into(), &2.0.into()));
    assert_eq!(
        (report["problems"].as_array().map(Vec::len), report["leaks"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
    let train = &report["splits"][0]["sources"][0];
    assert_eq!((&train["samples"], &train["decoded"], &train["seconds"]["total"]), (&3.into(), &3.into(), &3.0.into()));
    // Start, language, task and no times, then the letters.
    assert_eq!((&train["tokens"]["least"], &train["tokens"]["most"]), (&6.0.into(), &8.0.into()));
    assert_eq!((&train["token_limit"], &train["languages"]["en"]), (&56.into(), &3.into()));
    assert_eq!(place.json("out/data_check.json"), report);
    let picture = place.text("out/data_check.svg");
    assert!(picture.starts_with("<svg") && picture.contains("train: train.jsonl"), "{picture}");
}

#[test]
fn the_report_goes_to_standard_output_alone_where_it_is_asked_for() {
    let place = clean();
    let outcome = place.run(&[&CHECK[..4], &["--json", "-"][..]].concat());
    let report = outcome.json();
    assert_eq!(report["fails"], false);
    assert!(outcome.stderr.contains("nothing is wrong with it"), "{outcome:?}");
}

#[test]
fn what_a_synthesiser_makes_is_drawn_and_looked_at() {
    let place = Place::with_experiment(&format!("samples: 8, {CLIPS}"));
    let outcome = place.run(&CHECK);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let report = place.json("check.json");
    let train = &report["splits"][0]["sources"][0];
    assert_eq!((&train["samples"], &train["drawn"]), (&8.into(), &8.into()));
    assert!(outcome.stdout.contains("8 samples were made"), "{}", outcome.stdout);
    // Two seconds are more than a model of one second hears.
    let narrow = place.run(&[&CHECK[..], &["--set", "model.source.config.max_source_positions=50"][..]].concat());
    narrow.assert_refusal(&["training would fail", "1.00 s"]);
}

#[test]
fn audio_in_two_splits_is_a_leak_whatever_it_is_called() {
    let place = clean();
    place.write("same.wav", wav(&tone(1.0, 440.0)));
    place.write("valid.jsonl", format!("{VALID}{{\"audio\": \"same.wav\", \"text\": \"K\"}}\n"));
    let (outcome, report) = check(&place, &[]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let leak = &report["leaks"][0];
    assert_eq!((&leak["kind"], &leak["count"], &leak["of"]), (&"audio".into(), &1.into(), &3.into()));
    assert!(outcome.stdout.contains("`same.wav` and `a.wav`"), "{}", outcome.stdout);
    // Not heard, it is another file; but a file in both lists needs no ear.
    assert_eq!(check(&place, &["--no-audio"]).1["leaks"], serde_json::json!([]));
    place.write(
        "valid.jsonl",
        format!("{VALID}{{\"audio\": \"a.wav\", \"text\": \"K\", \"start\": 0.5, \"end\": 1}}\n"),
    );
    let leaks = &check(&place, &["--no-audio"]).1["leaks"];
    assert_eq!((&leaks[0]["kind"], &leaks[0]["count"]), (&"recording".into(), &1.into()));
}

#[test]
fn recordings_without_validation_are_refused_by_every_command_that_judges() {
    let place = clean();
    let yaml = place.text("tiny.yaml");
    place.write("tiny.yaml", yaml.replace("  valid: {path: valid.jsonl}\n", ""));
    let before = place.tree();
    for command in [&["train"][..], &["eval"], &["data", "check"], &["data", "cache"], &["tune"]] {
        let outcome = place.run(&[command, &["--config", "tiny.yaml"]].concat());
        outcome.assert_refusal(&["`data.valid`", "`path` or `hub`", "`part:`", "{part_of_train: 0.05}"]);
    }
    // How many samples, but not of what: Morse is not what anybody meant.
    let vague = place.train("tiny.yaml", &["--set", "data.valid.samples=8"]);
    vague.assert_refusal(&["`data.valid`", "`synth: cw`"]);
    assert_eq!(place.tree(), before, "nothing is written");
    let morse = format!("data.valid={{samples: 2, {CLIPS}}}");
    assert_eq!(place.run(&[&CHECK[..4], &["--set", &morse]].concat()).status, Some(0), "if that is what is said");
}

/// A place with forty recordings, each in two rows of its list, and a share of them to judge by.
fn with_a_share() -> Place {
    let place = clean();
    let yaml = place.text("tiny.yaml");
    place.write("tiny.yaml", yaml.replace("valid: {path: valid.jsonl}", "valid: {part_of_train: 0.25}"));
    let mut rows = String::new();
    for (start, end) in [(0.0, 0.5), (0.5, 1.0)] {
        for n in 0..40_u8 {
            place.write(&format!("{n}.wav"), wav(&tone(1.0, 300.0 + 20.0 * f32::from(n))));
            rows += &format!("{{\"audio\": \"{n}.wav\", \"text\": \"E{n}\", \"start\": {start}, \"end\": {end}}}\n");
        }
    }
    place.write("train.jsonl", rows);
    place
}

#[test]
fn a_share_of_the_training_data_is_judged_and_not_trained_on() {
    let place = with_a_share();
    let (outcome, report) = check(&place, &[]);
    assert_eq!((outcome.status, &report["leaks"]), (Some(0), &serde_json::json!([])), "{outcome:?}");
    let source = |split: usize| &report["splits"][split]["sources"][0];
    assert_eq!((&report["splits"][0]["split"], &report["splits"][1]["split"]), (&"train".into(), &"valid".into()));
    let names = [source(0)["source"].as_str(), source(1)["source"].as_str()];
    assert_eq!(names, [Some("train.jsonl (75 % of it)"), Some("train.jsonl (25 % of it)")]);
    let [trained, judged] = [0, 1].map(|split| source(split)["samples"].as_u64().expect("a number"));
    assert!(trained + judged == 80 && (8..32).contains(&judged) && judged % 2 == 0, "{trained} and {judged}");
    assert!(outcome.stdout.contains("train.jsonl (25 % of it)"), "{}", outcome.stdout);

    let cache = ["--set", "data.cache={what: audio, dir: cache}"];
    let outcome = place.run(&[&["data", "cache", "--config", "tiny.yaml"][..], &cache[..]].concat());
    assert!(outcome.stdout.contains("80 entries"), "{outcome:?}");
    let steps = ["--set", "train.max_steps=4", "--set", "train.evaluate={every: 2, metrics: [cer, loss]}"];
    place.train("tiny.yaml", &steps).succeeded();
    // The configuration that is saved means the same: the best model scores there what it scored in training.
    let score = place.run(&["eval", "--run", "runs/tiny"]).json();
    let scores = logged(&place.path("runs/tiny"), "valid", "cer");
    let cer = score["cer"].as_f64().expect("a score");
    assert!(scores.iter().any(|score| (score - cer).abs() < 1e-4), "{score} {scores:?}");
    place.run(&["eval", "--run", "runs/tiny", "--split", "test"]).assert_refusal(&["no `data.test`"]);
}

#[test]
fn the_same_text_in_two_splits_is_only_a_note() {
    let place = clean();
    place.write("valid.jsonl", VALID.replace("PSE", "cq"));
    let (outcome, report) = check(&place, &[]);
    // The vocabulary has no small letters.
    assert_fails(&(outcome, report.clone()), "unspellable", 1, &["'c' 'q'"]);
    place.write("valid.jsonl", VALID.replace("PSE", "CQ"));
    let leaks = &check(&place, &[]).1["leaks"];
    assert_eq!((&leaks[0]["kind"], &leaks[0]["severity"]), (&"text".into(), &"note".into()));
}

#[test]
fn long_audio_is_cut_by_its_segments_and_refused_without() {
    let long = || vec![("long.wav", wav(&tone(5.0, 300.0)))];
    let bare = with_rows(&long(), r#"{"audio": "long.wav", "text": "A B C"}"#, &[]);
    assert_fails(&bare, "too_long", 1, &["long.wav", "5.00 s"]);
    let segments = |end: f32| {
        format!(
            r#"{{"audio": "long.wav", "segments": [{{"start": 0, "end": {end}, "text": "A"}}, {{"start": 3.4, "end": 5, "text": "B"}}]}}"#
        )
    };
    let (outcome, report) = with_rows(&long(), &segments(1.5), &[]);
    assert_eq!((outcome.status, problems(&report, "failure")), (Some(0), vec![]), "{outcome:?}");
    let cut = &report["splits"][0]["sources"][0]["long"];
    assert_eq!((&cut["cut"], &cut["pieces"], &cut["without_times"]), (&1.into(), &2.into(), &0.into()));
    let wide = with_rows(&long(), &segments(2.5), &[]);
    assert_fails(&wide, "segments", 1, &["long.wav", "segment 1", "2.50 s"]);
    let aligned = with_rows(&long(), r#"{"audio": "long.wav", "text": "A B C"}"#, &["--set", "data.long_audio=align"]);
    assert_eq!(aligned.0.status, Some(0), "{aligned:?}");
    assert_eq!(problems(&aligned.1, "note"), [("aligned".to_owned(), 1)]);
}

#[test]
fn audio_that_sounds_wrong_is_named() {
    let loud: Vec<f32> = tone(1.0, 300.0).iter().map(|x| (8.0 * x).clamp(-1.0, 1.0)).collect();
    let faint: Vec<f32> = tone(1.0, 300.0).iter().map(|x| 0.02 * x).collect();
    for (kind, audio) in [("silent", vec![0.0; 16_000]), ("clipped", loud), ("quiet", faint)] {
        let found = with_rows(&[("odd.wav", wav(&audio))], r#"{"audio": "odd.wav", "text": "A"}"#, &[]);
        assert_warns(&found, kind, 1, &["odd.wav"]);
        let unheard = with_rows(&[("odd.wav", wav(&audio))], r#"{"audio": "odd.wav", "text": "A"}"#, &["--no-audio"]);
        assert_eq!(problems(&unheard.1, "warning"), [], "nobody listened");
    }
    // Where nothing is said nothing is to be decoded.
    let (outcome, report) = with_rows(&[("odd.wav", wav(&[0.0; 16_000]))], r#"{"audio": "odd.wav", "text": ""}"#, &[]);
    assert_eq!((problems(&report, "warning"), problems(&report, "note")), (vec![], vec![("empty".to_owned(), 1)]));
    assert_eq!(outcome.status, Some(0));
}

#[test]
fn a_text_that_nobody_says_in_time_and_a_repeated_recording_are_named() {
    let row = format!(r#"{{"audio": "short.wav", "text": "{}"}}"#, "A".repeat(30));
    let crowded = with_rows(&[("short.wav", wav(&tone(0.5, 300.0)))], &row, &[]);
    assert_warns(&crowded, "crowded", 1, &["short.wav", "30 characters in 0.50 s"]);
    let twice = with_rows(&[("again.wav", wav(&tone(1.0, 440.0)))], r#"{"audio": "again.wav", "text": "CQ"}"#, &[]);
    assert_warns(&twice, "duplicate", 1, &["`again.wav` and `a.wav`"]);
}

#[test]
fn texts_that_the_model_cannot_write_are_counted_and_named() {
    let rows: String = (0..40).map(|n| format!("{{\"audio\": \"a.wav\", \"text\": \"É{n}\"}}\n")).collect();
    let place = clean();
    place.write("train.jsonl", format!("{TRAIN}{rows}"));
    let (outcome, report) = check(&place, &[]);
    outcome.assert_refusal(&["training would fail", "40 of 43", "'É'", "and 37 more"]);
    let unspellable = &report["splits"][0]["sources"][0]["unspellable"];
    assert_eq!(unspellable, &serde_json::json!([{"character": "É", "texts": 40, "example": "a.wav"}]));

    let long = format!(r#"{{"audio": "a.wav", "start": 0, "end": 1, "text": "{}"}}"#, "E".repeat(60));
    let (outcome, report) = with_rows(&[], &long, &[]);
    outcome.assert_refusal(&["training would fail", "a.wav", "64 tokens, 56 fit"]);
    assert_eq!(problems(&report, "failure"), [("long_text".to_owned(), 1)]);

    let control =
        with_rows(&[("d.wav", wav(&tone(1.0, 300.0)))], r#"{"audio": "d.wav", "text": "A<|endoftext|>"}"#, &[]);
    assert_fails(&control, "control", 1, &["d.wav", "<|endoftext|>"]);
    let language =
        with_rows(&[("d.wav", wav(&tone(1.0, 300.0)))], r#"{"audio": "d.wav", "text": "A", "language": "xx"}"#, &[]);
    assert_fails(&language, "no_token", 1, &["d.wav", "<|xx|>"]);
}

#[test]
fn what_may_be_left_out_is_a_warning_and_what_is_too_much_is_not() {
    let place = clean();
    let rows = |bad: usize| {
        let good = (0..20).map(|n| format!("{{\"audio\": \"a.wav\", \"start\": 0.{n:02}, \"text\": \"A\"}}\n"));
        let bad = (0..bad).map(|n| format!("{{\"audio\": \"b.wav\", \"start\": 0.{n:02}, \"text\": \"É\"}}\n"));
        good.chain(bad).collect::<String>()
    };
    let skip = ["--no-audio", "--set", "data.on_bad_sample=skip", "--set", "data.max_bad_share=0.1"];
    place.write("train.jsonl", rows(1));
    let (outcome, report) = check(&place, &skip);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!(problems(&report, "warning"), [("unspellable".to_owned(), 1)]);
    place.write("train.jsonl", rows(5));
    check(&place, &skip).0.assert_refusal(&["training would fail", "5 of 25"]);
}

#[test]
fn times_outside_of_the_file_and_damaged_audio_are_named() {
    let outside = with_rows(
        &[("d.wav", wav(&tone(1.0, 300.0)))],
        r#"{"audio": "d.wav", "start": 0.5, "end": 1.6, "text": "A"}"#,
        &[],
    );
    assert_fails(&outside, "outside_file", 1, &["d.wav", "1.6 s"]);
    let whole = wav(&tone(1.0, 300.0));
    let damaged = with_rows(&[("d.wav", whole[..whole.len() / 2].to_vec())], r#"{"audio": "d.wav", "text": "A"}"#, &[]);
    assert_fails(&damaged, "unreadable", 1, &["d.wav"]);
}

#[test]
fn rows_that_cannot_be_used_are_counted_and_the_others_looked_at() {
    let rows: String = (0..7).map(|n| format!("{{\"audio\": \"none-{n}.wav\", \"text\": \"A\"}}\n")).collect();
    let (outcome, report) = with_rows(&[], &rows, &[]);
    outcome.assert_refusal(&["training would fail", "7 of 10 rows", "none-0.wav", "and 4 more"]);
    assert_eq!(problems(&report, "failure"), [("rows".to_owned(), 7)]);
    assert_eq!(report["splits"][0]["sources"][0]["samples"], 3);
}

#[test]
fn what_only_training_itself_refuses_is_found_too() {
    let (outcome, report) = with_rows(&[], "", &["--set", "data.timestamps=0.5"]);
    outcome.assert_refusal(&["training would fail", "data.timestamps"]);
    assert_eq!(problems(&report, "failure"), [("refused".to_owned(), 1)]);
}

#[test]
fn a_cache_is_filled_verified_and_emptied() {
    let place = clean();
    let run = |more: &[&str]| {
        let base = ["data", "cache", "--config", "tiny.yaml"];
        place.run(&[&base[..], &["--set", "data.cache.dir=cache"], more].concat())
    };
    run(&[]).assert_refusal(&["`data.cache.what` is off"]);
    for what in ["data.cache.what=audio", "data.cache.what=features"] {
        let said = |more: &[&str]| {
            let outcome = run(&[&["--set", what][..], more].concat());
            assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
            outcome.stdout
        };
        assert!(said(&[]).contains("5 entries") && said(&[]).contains("0 written, 5 there already"), "{what}");
        assert!(said(&["--verify"]).contains("5 entries, ") && said(&["--verify"]).contains("0 damaged"), "{what}");
        let entry = place.tree().into_iter().find(|path| path.starts_with(place.path("cache")) && path.is_file());
        std::fs::write(entry.expect("an entry"), "damaged").expect("written");
        assert!(said(&["--verify"]).contains("4 entries, "), "{what}");
        assert!(said(&[]).contains("1 written, 4 there already"), "{what}");
        assert!(said(&["--clear"]).contains("5 entries removed"), "{what}");
    }
    place.write("train.jsonl", format!("{TRAIN}{{\"audio\": \"d.wav\", \"text\": \"A\"}}\n"));
    place.write("d.wav", "no audio");
    run(&["--set", "data.cache.what=audio"]).assert_refusal(&["1 of the recordings cannot be read", "data check"]);
}

#[test]
fn training_finds_what_was_kept() {
    let place = clean();
    let cache = ["--set", "data.cache={what: features, dir: cache}"];
    place.run(&[&["data", "cache", "--config", "tiny.yaml"][..], &cache[..]].concat()).succeeded();
    let kept = place.tree();
    let steps = ["--set", "train.max_steps=4", "--set", "train.evaluate.every=2"];
    place.train("tiny.yaml", &[&steps[..], &cache[..]].concat()).succeeded();
    let files = |tree: std::collections::BTreeSet<std::path::PathBuf>| {
        tree.into_iter().filter(|path| path.starts_with(place.path("cache")) && path.is_file()).collect::<Vec<_>>()
    };
    assert_eq!(files(kept), files(place.tree()), "nothing was computed anew");
}

#[test]
fn texts_are_looked_at_by_task() {
    let place = Place::default();
    copy_folder(&fixture("text/bert"), &place.path("bert"), &[]);
    place.write(
        "text.yaml",
        "model: {backbone: bert, path: bert}
tasks:
  - name: tone
    head: {type: classify, labels: [bad, good, odd], max_length: 6}
    data: {train: {path: train.tsv}, valid: {path: valid.tsv}}
  - name: turn
    head: {type: seq2seq, layers: 1, heads: 2, ffn: 32, max_source: 16, max_target: 12}
    data: {train: {path: pairs.tsv}, valid: {path: pairs.tsv}}
",
    );
    place.write("train.tsv", "text\tlabel\nhello world\tgood\nhello  World\tgood\na b c d a b c d\tbad\n");
    place.write("valid.tsv", "text\tlabel\nhello world\tgood\nbad\tbad\n");
    place.write("pairs.tsv", "source\ttarget\nhello\tworld\n");
    let run = || place.run(&["data", "check", "--config", "text.yaml", "--json", "check.json"]);
    let outcome = run();
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let report = place.json("check.json");
    let train = &report["splits"][0]["sources"][0];
    assert_eq!(train["labels"], serde_json::json!({"bad": 1, "good": 2, "odd": 0}));
    assert_eq!((&train["tokens"]["most"], &train["token_limit"]), (&6.0.into(), &6.into()));
    assert_eq!(problems(&report, "warning"), [("no_sample".to_owned(), 1)], "{report:#}");
    assert_eq!(problems(&report, "note"), [("cut_input".to_owned(), 1), ("duplicate".to_owned(), 1)], "{report:#}");
    let leaks: Vec<_> = report["leaks"].as_array().expect("a list").iter().map(|leak| &leak["task"]).collect();
    assert_eq!(leaks, ["tone", "turn"], "{report:#}");
    place.write("valid.tsv", "text\tlabel\nbad\tawful\n");
    run().assert_refusal(&["training would fail", "tone/valid", "awful"]);
    place.write("valid.tsv", "text\tlabel\n \tgood\n\tbad\n");
    run().assert_refusal(&["training would fail", "tone/valid", "all 2 records have an empty text"]);
    // A row for each word, as tables of named entities often are, and a head that is longer than the backbone.
    place.write("words.csv", "Sentence #,Word,Tag\nSentence: 1,hello,O\n,world,B-X\nSentence: 2,good,O\n");
    let tags = "{path: words.csv, columns: {words: Word, tags: Tag}}";
    let head = "head: {type: tag, labels: [O, B-X, I-X], max_length: 8}";
    place.write(
        "tags.yaml",
        format!("model: {{backbone: bert, path: bert}}\ntasks: [{{name: names, {head}, data: {{train: {tags}, valid: {tags}}}}}]\n"),
    );
    let words = place.run(&["data", "check", "--config", "tags.yaml"]);
    assert!(words.succeeded().stdout.contains("3 of 3 records have one word"));
    place
        .run(&["data", "check", "--config", "tags.yaml", "--set", "tasks.names.head.max_length=1000"])
        .assert_refusal(&["training would fail", "names", "1000", "positions"]);
    // One text of a pair in both splits.
    place.write("train.tsv", "text\ttext_pair\tlabel\nhello world hello world\ta\tgood\n");
    place.write("valid.tsv", "text\ttext_pair\tlabel\nhello world hello world\tb\tbad\n");
    let outcome = run();
    assert!(
        outcome.stdout.contains("tone/valid: 1 of 1 samples share a passage, or one text of a pair"),
        "{outcome:?}"
    );
}

#[test]
fn texts_that_training_writes_in_lower_case_must_be_spelt_so_too() {
    let place = clean();
    let (outcome, report) = check(&place, &["--set", "data.augment.text.lowercase=0.3"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert_eq!(problems(&report, "failure"), [("unspellable".to_owned(), 3)], "{report:#}");
    assert!(outcome.stderr.contains("data.augment.text.lowercase"), "{outcome:?}");
}

#[test]
fn real_recordings_have_nothing_that_fails() {
    let (Some(model), Some(clips)) = (shared("models/whisper-tiny.en"), shared("data/speech-en/metadata.csv")) else {
        return;
    };
    let place = Place::default();
    let data = format!("{{path: {}}}", clips.display());
    place.write("en.yaml", format!("model: {{path: {}}}\ndata: {{train: {data}, valid: {data}}}\n", model.display()));
    place.run(&["data", "check", "--config", "en.yaml", "--json", "check.json"]).succeeded();
    let report = place.json("check.json");
    assert_eq!(report["splits"][0]["sources"][0]["decoded"], 29);
    // What is judged by is what was trained on.
    assert_eq!((&report["leaks"][0]["kind"], &report["leaks"][0]["count"]), (&"audio".into(), &29.into()));
}
