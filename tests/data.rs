//! The command line on recordings: what cannot be read, batches by length, several sources, caches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::store::HostTensor;
use undertone_tests::runs::{send, wait_while_alive};
use undertone_tests::{CLIPS, Outcome, Place, sets, tensors, wav};

/// A place with twelve recordings of different length, of which the fifth is no audio, and an experiment on them.
fn place() -> Place {
    let place = Place::with_experiment("path: list.jsonl");
    place.write_recordings((0..12).map(|index| {
        let audio = (0..4000 + 2000 * index).map(|n| 0.2 * (n as f32 * 0.3).sin()).collect();
        (audio, format!("E{}", "T".repeat(index % 5)))
    }));
    place.write("04.wav", "no audio");
    place
}

const SKIP: [&str; 4] = ["--set", "data.on_bad_sample=skip", "--set", "data.max_bad_share=0.2"];
const CONSTANT: [&str; 2] = ["--set", "train.optimizer.schedule=constant"];

/// Trains to `steps` and returns the weights and what `metrics.jsonl` says of training.
fn train(place: &Place, steps: usize, more: &[&str]) -> (BTreeMap<String, HostTensor>, Vec<String>) {
    let setting = format!("train.max_steps={steps}");
    place.train("tiny.yaml", &[&["--set", &setting][..], &SKIP, &CONSTANT, more].concat()).succeeded();
    let weights = place.path(&format!("runs/tiny/checkpoints/step-{steps:08}/model.safetensors"));
    let metrics = place.text("runs/tiny/metrics.jsonl");
    let trained = metrics.lines().filter(|line| line.contains("\"train\"")).map(str::to_owned).collect();
    (tensors(&weights), trained)
}

#[test]
fn a_recording_that_cannot_be_read_stops_the_run_or_is_listed() {
    let place = place();
    let stopped = place.train("tiny.yaml", &[]);
    stopped.assert_refusal(&["04.wav"]);
    train(&place, 12, &["--set", "run.overwrite=true"]);
    let record = bad_samples(&place);
    assert_eq!((&record["samples"], &record["first"][0]["name"]), (&1.into(), &"04.wav".into()), "{record}");
    assert!(record["first"][0]["reason"].as_str().is_some_and(|reason| reason.contains("not audio")), "{record}");
    let skip = ["--set", "run.overwrite=true", "--set", "data.on_bad_sample=skip"];
    place.train("tiny.yaml", &skip).assert_refusal(&["max_bad_share", "04.wav"]);
}

#[test]
fn a_run_that_can_read_nothing_ends_and_names_the_first() {
    let place = place();
    (0..12).for_each(|index| place.write(&format!("{index:02}.wav"), b"no audio"));
    let skip_all = ["--set", "data.on_bad_sample=skip", "--set", "data.max_bad_share=1.0"];
    let ended = place.train("tiny.yaml", &skip_all);
    ended.assert_refusal(&["not one of the 12 samples", ".wav` (", "not audio", "data check", "bad_samples.json"]);
}

#[test]
fn recordings_that_all_break_end_a_run_that_is_under_way() {
    let place = place();
    train(&place, 3, &[]);
    (0..12).for_each(|index| place.write(&format!("{index:02}.wav"), b"no audio"));
    let settings =
        ["--set", "train.max_steps=60", "--set", "data.on_bad_sample=skip", "--set", "data.max_bad_share=1.0"];
    let ended = place.train("tiny.yaml", &[&["--resume"], &settings[..], &CONSTANT].concat());
    ended.assert_refusal(&["not one of the 12 samples of epoch 1", "bad_samples.json"]);
    assert_eq!(bad_samples(&place)["samples"], 12, "the run has a checkpoint, and so its list stays");
}

#[test]
fn a_run_that_keeps_its_encoders_states_goes_on_to_the_same_bits() {
    let set = |text: &'static str| ["--set", text];
    let settings =
        [set("model.trainable=decoder"), set("data.pad=window"), set("data.cache={what: encoder, dir: kept}")].concat();
    let whole = train(&place(), 12, &settings);
    let place = place();
    train(&place, 5, &settings);
    let resumed = train(&place, 12, &[&settings[..], &["--resume"]].concat());
    assert_eq!(resumed.0, whole.0);
    // Another run finds what this one kept.
    let again = train(&place, 12, &[&settings[..], &["--set", "run.overwrite=true"]].concat());
    assert_eq!(again, whole);
    let more = ["--set", "run.overwrite=true", "--set", "model.trainable=all"];
    let refused = place.train("tiny.yaml", &[&SKIP[..], &settings, &more].concat());
    refused.assert_refusal(&["`data.cache.what: encoder`", "`encoder.", "`model.trainable: decoder`"]);
    let refused = place.run(&[&["data", "cache", "--config", "tiny.yaml"], &settings[..]].concat());
    refused.assert_refusal(&["`data.cache.what: encoder`", "first epoch"]);
}

/// What `bad_samples.json` says.
fn bad_samples(place: &Place) -> serde_json::Value {
    place.json("runs/tiny/bad_samples.json")
}

#[test]
fn what_was_left_out_is_listed_for_the_whole_run_and_a_sample_once() {
    let place = place();
    place.write("07.wav", "");
    let names = |record: &serde_json::Value| {
        let first = record["first"].as_array().expect("a list").iter();
        first.map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>()
    };
    // Three batches are an epoch.
    train(&place, 3, &[]);
    let before = bad_samples(&place);
    assert_eq!((names(&before), &before["times"]), (BTreeSet::from(["04.wav".into(), "07.wav".into()]), &2.into()));
    // What was broken is repaired, and something else breaks.
    place.write("07.wav", wav(&[0.1; 8000]));
    place.write("10.wav", "");
    train(&place, 9, &["--resume"]);
    let after = bad_samples(&place);
    assert_eq!(names(&after), BTreeSet::from(["04.wav".into(), "07.wav".into(), "10.wav".into()]));
    // Two of them in each of two more epochs.
    assert_eq!((&after["samples"], &after["times"]), (&3.into(), &6.into()), "{after}");
    train(&place, 3, &["--set", "run.overwrite=true"]);
    let anew = bad_samples(&place);
    assert_eq!(names(&anew), BTreeSet::from(["04.wav".into(), "10.wav".into()]), "a new run has a list of its own");
}

#[test]
fn a_run_goes_on_exactly_behind_a_batch_that_was_passed_over() {
    // In batches of one, the recording that cannot be read is a batch of its own.
    let one = ["--set", "data.batch_size=1"];
    for stop in [3, 7, 11] {
        let (whole, parts) = (place(), place());
        let expected = train(&whole, 16, &one);
        train(&parts, stop, &one);
        let found = train(&parts, 16, &[&one[..], &["--resume", "--set", "data.workers=2"]].concat());
        assert!(found.0 == expected.0, "stopped after step {stop}: the weights differ");
        assert_eq!(found.1, expected.1, "stopped after step {stop}");
    }
}

#[test]
fn batches_by_length_are_the_same_for_any_workers_and_after_a_pause() {
    let by_length = sets(&[
        "data.max_batch_seconds=3",
        "data.attention_cost=0.1",
        "data.group_by_length=true",
        "data.augment={speed: {p: 0.5}, noise: {p: 0.5}, spec_augment: {p: 1}}",
    ]);
    let (whole, parts) = (place(), place());
    let expected = train(&whole, 14, &by_length);
    let again =
        train(&whole, 14, &[&by_length[..], &["--set", "run.overwrite=true", "--set", "data.workers=3"]].concat());
    assert!(again.0 == expected.0 && again.1 == expected.1, "three workers");
    let steps = ["--set", "train.max_steps=5"];
    let outcome = parts.train("tiny.yaml", &[&steps[..], &SKIP, &CONSTANT, &by_length].concat()).succeeded();
    assert!(!outcome.stderr.contains("for their lengths"), "the headers of files are near: {outcome:?}");
    let found = train(&parts, 14, &[&by_length[..], &["--resume"]].concat());
    assert!(found.0 == expected.0, "the weights differ");
    assert_eq!(found.1, expected.1);
}

#[test]
fn sources_are_mixed_and_a_full_cache_gives_what_an_empty_one_does() {
    let place = place();
    let train_on = format!("data.train=[{{path: list.jsonl, weight: 1}}, {{samples: 12, {CLIPS}, weight: 2}}]");
    let mixed = ["--set", &train_on];
    train(&place, 10, &mixed);
    let cached = ["--set", "data.cache={what: audio, dir: cache}", "--set", "run.overwrite=true"];
    let train = || train(&place, 10, &[&mixed[..], &cached].concat());
    assert!(train() == train(), "with an empty cache and with a full one");
    assert!(place.path("cache").is_dir());
    let one = place.train("tiny.yaml", &["--set", "data.train.weight=2"]);
    one.assert_refusal(&["data.train", "weight"]);
}

/// A place with ten recordings of Morse, each some clips long, that the bundled model is to align.
fn long_recordings() -> Place {
    let place = Place::with_experiment("path: list.jsonl");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ebook2cw/manifest.csv");
    let clips = Clips::open(&RecordsConfig { path: manifest.into(), ..Default::default() }).expect("the manifest");
    place.write_recordings((0..10).map(|index| {
        let (mut audio, mut text) = (Vec::new(), Vec::new());
        while audio.len() < 14 * 16_000 {
            let clip = (index + text.len()) % clips.len();
            audio.extend(clips.load(clip).expect("audio"));
            audio.extend([0.0; 8000]);
            text.push(clips.clip(clip).text.clone());
        }
        (audio, text.join(" "))
    }));
    place
}

const ALIGN: [&str; 5] = [
    "model.source.config=null", "model.source.bundled=whisper-nano-cw", "data.long_audio=align", "data.cache.dir=kept",
    "data.batch_size=2",
];

/// How many recordings have been aligned.
fn aligned(place: &Place) -> usize {
    let whole = |file: std::io::Result<std::fs::DirEntry>| file.is_ok_and(|f| f.path().extension().is_some());
    std::fs::read_dir(place.path("kept/aligned")).map_or(0, |files| files.map(whole).filter(|whole| *whole).count())
}

#[test]
fn what_was_heard_in_long_recordings_outlives_an_interruption_and_a_resumed_run_does_not_listen() {
    let start = |place: &Place, steps: &str, more: &[&str]| {
        let steps = format!("train.max_steps={steps}");
        place
            .xtask(&[&["train", "--config", "tiny.yaml", "--set", &steps], &CONSTANT[..], &sets(&ALIGN), more].concat())
    };
    let finishes = |place: &Place, steps: &str, more: &[&str]| -> String {
        Outcome::of(&mut start(place, steps, more)).succeeded().stderr
    };
    let weights = |place: &Place| tensors(&place.path("runs/tiny/checkpoints/step-00000008/model.safetensors"));
    let (whole, parts) = (long_recordings(), long_recordings());
    let said = finishes(&whole, "8", &[]);
    assert!(said.contains("listening to 10 recordings") && said.contains("were cut into"), "{said}");

    let mut child = start(&parts, "4", &[]).spawn().expect("a process");
    wait_while_alive(&mut child, || aligned(&parts) >= 2, "it heard two recordings");
    let begin = Instant::now();
    send("-INT", &child);
    let Outcome { status, stderr: said, .. } = Outcome::at_the_end(child);
    let took = begin.elapsed();
    assert_eq!(status, Some(130), "{said}");
    assert!(took < Duration::from_secs(30), "it went on for {took:?}");
    let before = aligned(&parts);
    assert!(
        (2..10).contains(&before) && said.contains(&format!("{before} of 10 long recordings are aligned")),
        "{before}: {said}"
    );
    assert!(!parts.path("runs/tiny").exists(), "nothing is in the way of the next start");

    let said = finishes(&parts, "4", &[]);
    let rest = format!("listening to {} recordings", 10 - before);
    assert!(said.contains(&rest) && said.contains(&format!("({before} more were aligned before)")), "{said}");
    let said = finishes(&parts, "8", &["--resume"]);
    assert!(!said.contains("listening") && said.contains("as recorded in `kept/aligned`"), "{said}");
    assert!(weights(&parts) == weights(&whole), "the weights differ");

    // What training made of the model is judged on the pieces that it was trained on.
    let args = ["eval", "--run", "runs/tiny", "--split", "train"];
    let judged = parts.run(&args);
    assert_eq!(judged.status, Some(0), "{judged:?}");
    assert!(!judged.stderr.contains("listening") && judged.stderr.contains("as recorded"), "{judged:?}");
}
