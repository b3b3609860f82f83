//! A run's directory has one owner; a run that fails keeps what it learned; and a run goes on with nothing but what it was
//! begun with.

use std::path::PathBuf;
use std::process::Stdio;
use undertone::train::Checkpoints;
use undertone_testing::skipped;
use undertone_tests::runs::{
    LAST, Records, TRAIN, finishes, place, send, train_to, two_tasks, wait_until, with_recordings,
};
use undertone_tests::{CLIPS, Outcome, Place, wav};

const OVERWRITE: [&str; 2] = ["--set", "run.overwrite=true"];

fn train(place: &Place, more: &[&str]) -> Outcome {
    place.train("tiny.yaml", more)
}

/// Every file of the run with what is in it.
fn contents(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    let files = place.tree().into_iter().filter(|path| path.is_file());
    files.map(|path| (path.clone(), std::fs::read(&path).expect("read"))).collect()
}

#[test]
fn a_directory_that_is_no_run_is_neither_replaced_nor_written_into() {
    let place = place();
    std::fs::create_dir_all(place.path("runs/tiny/src")).expect("made");
    place.write("runs/tiny/src/thesis.txt", "the work of three years");
    // A configuration of another program, and one that a user wrote for this program.
    for config in ["theme: minimal", "run: {name: project}\nmodel: {path: tiny}\ndata: {train: {path: a.csv}}"] {
        place.write("runs/tiny/config.yaml", config);
        let modified = || place.path("runs/tiny").metadata().and_then(|folder| folder.modified()).expect("a time");
        let before = (contents(&place), modified());
        for more in [&[][..], &["--resume"], &OVERWRITE] {
            let outcome = train(&place, more);
            outcome.assert_refusal(&["`runs/tiny`", "not a run"]);
            assert!(!outcome.stderr.contains("overwrite"), "{outcome:?}");
            assert!((contents(&place), modified()) == before, "something was changed");
        }
    }
}

#[test]
fn files_beside_those_of_a_run_are_named_and_stay() {
    let place = place();
    finishes(&place, &[]);
    std::fs::create_dir(place.path("runs/tiny/src")).expect("made");
    for own in ["src/thesis.txt", "best/notes.md"] {
        place.write(&format!("runs/tiny/{own}"), "mine");
    }
    let before = contents(&place);
    for more in [&[][..], &OVERWRITE] {
        train(&place, more).assert_refusal(&["`runs/tiny`", "`src`", "`best/notes.md`", "elsewhere"]);
        assert!(contents(&place) == before, "something was changed");
    }
    std::fs::remove_dir_all(place.path("runs/tiny/src")).expect("removed");
    std::fs::remove_file(place.path("runs/tiny/best/notes.md")).expect("removed");
    let outcome = finishes(&place, &OVERWRITE);
    assert!(outcome.stderr.contains("deleting what was trained in `runs/tiny`"), "{outcome:?}");
}

#[test]
fn what_is_put_into_the_best_model_outlives_a_better_one() {
    let place = place();
    let mut first = train_to(&place, 3);
    place.write("runs/tiny/best/notes.md", "mine");
    assert_eq!(first.wait().expect("a status").code(), Some(0));
    assert_eq!(place.text("runs/tiny/best/notes.md"), "mine");
    // By its loss a model gets better all the time.
    let place = self::place();
    let loss = ["--set", "train.checkpoint.metric=loss"];
    let mut second = place.xtask(&[&TRAIN[..], &loss].concat()).spawn().expect("a process");
    wait_until(|| place.path("runs/tiny/best/score.json").exists(), "a best model");
    place.write("runs/tiny/best/notes.md", "mine");
    assert_eq!(second.wait().expect("a status").code(), Some(0));
    assert_eq!(place.text("runs/tiny/best/notes.md"), "mine");
    let score = place.text("runs/tiny/best/score.json");
    assert!(!score.contains("\"step\": 0"), "{score}");
}

#[test]
fn a_lock_that_is_none_is_left_as_it_is() {
    let place = place();
    std::fs::create_dir_all(place.path("runs/tiny")).expect("made");
    place.write("diary.txt", "dear diary");
    std::os::unix::fs::symlink(place.path("diary.txt"), place.path("runs/tiny/.lock")).expect("linked");
    let before = contents(&place);
    for more in [&[][..], &OVERWRITE] {
        train(&place, more).assert_refusal(&["runs/tiny/.lock", "symbolic link", "run.name=NAME"]);
        assert!(contents(&place) == before, "something was changed");
    }
    std::fs::remove_file(place.path("runs/tiny/.lock")).expect("removed");
    place.write("runs/tiny/.lock", "that of npm");
    train(&place, &OVERWRITE).assert_refusal(&["runs/tiny/.lock", "another program"]);
    assert_eq!(place.text("runs/tiny/.lock"), "that of npm");
}

/// Changes to the tiny experiment: it is judged on clips in which nobody sends.
const NOBODY_SENDS: [&str; 2] = ["--set", "data.valid.cw.noise_only=1"];

#[test]
fn a_run_that_nothing_could_be_judged_in_has_the_model_of_its_last_step() {
    let place = place();
    let outcome = finishes(&place, &NOBODY_SENDS);
    assert!(outcome.stderr.contains("the validation data gives no `cer`"), "{outcome:?}");
    let said = "model: runs/tiny/best, that of step 24: no evaluation found a `cer`";
    assert!(outcome.stdout.contains(said), "{outcome:?}");
    let read = |name: &str| std::fs::read_to_string(place.path("runs/tiny/best").join(name)).expect(name);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&read("score.json")).expect("JSON")["step"], 24);
    place.write("clip.wav", wav(&vec![0.1; 16000]));
    assert_eq!(place.run(&["transcribe", "--model", "runs/tiny", "clip.wav"]).status, Some(0));
    let again = finishes(&place, &[&NOBODY_SENDS[..], &["--resume"]].concat());
    assert_eq!(again.stdout.lines().last(), Some(said));
}

#[test]
fn what_an_interrupted_run_has_for_a_model_is_said() {
    for (more, said) in
        [(&[][..], "model: runs/tiny/best, untrained: that of step 0 scored best"), (&NOBODY_SENDS, "model: none yet")]
    {
        let place = place();
        let slow = ["--set", "train.evaluate.every=0", "--set", "train.max_steps=2000"];
        let first = place.xtask(&[&TRAIN[..], &slow, more].concat()).spawn().expect("a process");
        let judged = || std::fs::read_to_string(place.path("runs/tiny/metrics.jsonl")).unwrap_or_default();
        wait_until(|| judged().contains("valid"), "the run to be judged");
        send("-INT", &first);
        let Outcome { status, stdout, .. } = Outcome::at_the_end(first);
        assert_eq!(status, Some(130));
        assert!(stdout.lines().any(|line| line == said), "{stdout}");
    }
}

#[test]
fn a_run_that_is_alive_is_left_alone_by_every_other_start() {
    let place = place();
    let mut first = train_to(&place, 3);
    // Asleep, it is as alive as ever, and changes nothing that is compared.
    send("-STOP", &first);
    let before = contents(&place);
    let owner = format!("process {} on ", first.id());
    for more in [&[][..], &["--resume"], &OVERWRITE] {
        train(&place, more).assert_refusal(&["`runs/tiny` is in use by", &owner, " since ", "run.name=NAME"]);
    }
    assert!(contents(&place) == before, "something was changed");
    send("-CONT", &first);
    assert_eq!(first.wait().expect("a status").code(), Some(0));
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn of_two_that_start_together_one_trains_and_the_other_is_refused() {
    let place = place();
    let both = [(); 2].map(|()| place.xtask(&TRAIN).spawn().expect("a process"));
    let mut codes = both.map(|child| Outcome::at_the_end(child).status);
    codes.sort();
    assert_eq!(codes, [Some(0), Some(2)]);
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_directory_is_owned_before_anything_slow_begins() {
    let place = place();
    // Larger than the others' model, so that it takes a moment to load.
    let bundled = ["--set", "model.source.config=null", "--set", "model.source.bundled=whisper-nano-cw"];
    let mut first = place.xtask(&[&TRAIN[..], &bundled].concat()).stderr(Stdio::null()).spawn().expect("a process");
    while !place.path("runs/tiny/.lock").exists() {
        assert!(first.try_wait().expect("a status").is_none(), "it ended before it owned anything");
    }
    send("-STOP", &first);
    assert!(!place.path("runs/tiny/config.yaml").exists(), "it had loaded everything by then");
    train(&place, &[]).assert_refusal(&["runs/tiny", "is in use by"]);
    first.kill().expect("killed");
    first.wait().expect("a status");
    // What a killed process leaves owns nothing and is in nobody's way.
    finishes(&place, &[]);
    assert!(!place.path("runs/tiny/.lock").exists());
}

#[test]
fn a_run_that_fails_goes_on_from_the_step_it_failed_at() {
    let whole = {
        let place = with_recordings(0.1);
        finishes(&place, &[]);
        Records::of(&place)
    };
    let place = with_recordings(0.1);
    let clip = place.bytes("07.wav");
    let mut first = train_to(&place, 3);
    place.write("07.wav", "no longer audio");
    assert_eq!(first.wait().expect("a status").code(), Some(2));
    let (newest, complaints) = Checkpoints::new(place.path("runs/tiny/checkpoints")).newest();
    let stopped = newest.expect("a checkpoint").state;
    assert!((3..24).contains(&stopped.step) && complaints.is_empty(), "{stopped:?} {complaints:?}");
    train(&place, &["--resume"]).assert_refusal(&["07.wav"]);
    place.write("07.wav", clip);
    finishes(&place, &["--resume"]);
    Records::of(&place).assert_same_as(&whole);
}

#[test]
fn a_run_that_fails_before_its_first_step_leaves_nothing() {
    let place = with_recordings(f32::NAN);
    let before = place.tree();
    train(&place, &[]).assert_refusal(&[".wav"]);
    assert_eq!(place.tree(), before);
}

#[test]
fn a_run_that_was_killed_before_it_learned_anything_begins_again() {
    let place = place();
    let every = ["--set", "train.checkpoint.every=0", "--set", "train.evaluate.every=0"];
    let mut first = place.xtask(&[&TRAIN[..], &every].concat()).stderr(Stdio::null()).spawn().expect("a process");
    wait_until(|| place.path("runs/tiny/metrics.jsonl").exists(), "the run to begin");
    first.kill().expect("killed");
    first.wait().expect("a status");
    train(&place, &[]).assert_refusal(&["runs/tiny", "--resume"]);
    let outcome = finishes(&place, &["--resume"]);
    assert!(outcome.stderr.contains("no checkpoint yet"), "{}", outcome.stderr);
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_begins_again() {
    let place = place();
    finishes(&place, &[]);
    // As a kill after the first evaluation leaves it.
    std::fs::remove_file(place.path("runs/tiny/summary.json")).expect("removed");
    for checkpoint in std::fs::read_dir(place.path("runs/tiny/checkpoints")).expect("a folder") {
        std::fs::remove_dir_all(checkpoint.expect("an entry").path()).expect("removed");
    }
    let outcome = finishes(&place, &["--resume"]);
    assert!(outcome.stderr.contains("no checkpoint yet"), "{}", outcome.stderr);
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_run_that_is_moved_while_it_trains_is_not_divided() {
    let place = place();
    let long = ["--set", "train.max_steps=100000"];
    let run = place.xtask(&[&TRAIN[..], &long].concat()).spawn().expect("a process");
    wait_until(|| place.path("runs/tiny/best/score.json").exists(), "an evaluation");
    std::fs::rename(place.path("runs/tiny"), place.path("runs/moved")).expect("moved");
    let Outcome { status, stderr: said, .. } = Outcome::at_the_end(run);
    assert!(status != Some(0) && said.contains("was moved or deleted while it was trained"), "{said}");
    assert!(!place.path("runs/tiny").exists(), "half of the run is elsewhere");
}

#[test]
fn a_best_model_whose_weights_are_gone_is_none() {
    let place = place();
    finishes(&place, &["--set", "train.max_steps=8"]);
    std::fs::remove_file(place.path("runs/tiny/best/model.safetensors")).expect("removed");
    let outcome = finishes(&place, &["--resume"]);
    assert!(outcome.stderr.contains("lacks `model.safetensors`"), "{}", outcome.stderr);
    assert!(place.path("runs/tiny/best/model.safetensors").exists());
}

#[test]
fn a_best_model_without_checkpoints_is_not_begun_anew() {
    let place = place();
    finishes(&place, &[]);
    std::fs::remove_dir_all(place.path("runs/tiny/checkpoints")).expect("removed");
    for name in ["summary.json", "best/score.json"] {
        let before = contents(&place);
        train(&place, &["--resume"]).assert_refusal(&["no checkpoint", "runs/tiny"]);
        assert!(contents(&place) == before, "something was changed");
        // Without these two nothing says how far it came, and it is still not deleted.
        std::fs::remove_file(place.path("runs/tiny").join(name)).expect("removed");
    }
    train(&place, &["--resume"]).assert_refusal(&["no checkpoint", "runs/tiny"]);
}

#[test]
fn a_run_does_not_go_on_with_what_changes_the_meaning_of_what_it_stored() {
    let place = place();
    finishes(&place, &["--set", "train.max_steps=4"]);
    let before = contents(&place);
    for (setting, change) in [
        ("data.batch_size=2", "`data.batch_size` 4 → 2"),
        ("data.train.samples=13", "`data.train"),
        ("data.valid.samples=3", "`data.valid.samples` 2 → 3"),
        ("train.checkpoint.metric=loss", "`train.checkpoint.metric` cer → loss"),
        ("train.accumulation=1", "`train.accumulation` 2 → 1"),
        ("train.optimizer.name=adafactor", "`train.optimizer.name` adamw → adafactor"),
        ("loss.label_smoothing=0.1", "`loss.label_smoothing` 0.0 → 0.1"),
        ("model.trainable=decoder", "`model.trainable` all → decoder"),
        ("seed=7", "`seed` 42 → 7"),
    ] {
        let outcome = train(&place, &["--resume", "--set", "train.max_steps=8", "--set", setting]);
        outcome.assert_refusal(&["runs/tiny/config.yaml", change]);
        assert!(!outcome.stderr.contains("max_steps"), "what may change is not a reason: {}", outcome.stderr);
        assert!(contents(&place) == before, "{setting} was refused and something was changed");
    }
    // Whoever knows that it means the same says so where the run says what it was begun with.
    let config = place.text("runs/tiny/config.yaml");
    place.write("runs/tiny/config.yaml", config.replace("label_smoothing: 0.0", "label_smoothing: 0.1"));
    finishes(&place, &["--resume", "--set", "train.max_steps=8", "--set", "loss.label_smoothing=0.1"]);
    place.write("runs/tiny/config.yaml", "trian: {}");
    train(&place, &["--resume"]).assert_refusal(&["runs/tiny/config.yaml", "trian"]);
}

#[test]
fn what_may_change_is_said_and_the_configuration_before_is_kept() {
    let place = place();
    finishes(&place, &["--set", "train.max_steps=4"]);
    let config = place.bytes("runs/tiny/config.yaml");
    let outcome = finishes(&place, &["--resume", "--set", "train.optimizer.lr=1.0e-4"]);
    let said = "from step 5 on: `train.max_steps` 4 → 24, `train.optimizer.lr` 0.001 → 0.0001 (before: `runs/tiny/config.1.yaml`)";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    assert!(place.bytes("runs/tiny/config.1.yaml") == config);
    assert!(place.path("runs/tiny/checkpoints").join(LAST).is_dir());
    // Another place is no change, and neither is nothing.
    finishes(&place, &["--resume", "--set", "train.optimizer.lr=1.0e-4"]);
    assert!(!place.path("runs/tiny/config.2.yaml").exists());
}

#[test]
fn runs_under_faults_end_in_the_bits_of_undisturbed_ones() {
    // Another seed each time: what a failure says is enough to look for it again.
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let outcome = Place::default().run(&["bench", "faults", "--runs", "10", "--seed", &seed.to_string()]).succeeded();
    assert!(outcome.stdout.contains(": 0 lost, 0 ended in other bits"), "{outcome:?}");
    if outcome.stdout.contains("not possible here") {
        skipped("no file system can be mounted here (that needs root), so no disk was full");
    }
    // The harness would see it: a program that trains nothing loses every run.
    let outcome = Place::default().run(&["bench", "faults", "--runs", "1", "--program", "/bin/true"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
}

#[test]
fn a_run_with_tasks_and_one_without_do_not_mix() {
    let place = Place::with_experiment(&format!("samples: 8, {CLIPS}"));
    place.write("two.yaml", two_tasks());
    let train = |args: &[&str]| place.run(&[&["train"], args].concat());
    let tiny = ["--config", "tiny.yaml", "--set", "train.max_steps=3", "--set", "train.evaluate.every=0"];
    let two = ["--config", "two.yaml", "--phase", "1"];
    train(&tiny).succeeded();
    train(&[&two[..], &["--set", "run.name=tiny"]].concat()).assert_refusal(&["there is a run in", "runs/tiny"]);
    assert!(!place.path("runs/tiny/phase1").exists());
    // What `eval --blend --report` and `analyze` write belongs to a run.
    std::fs::create_dir_all(place.path("runs/tiny/pictures")).expect("a folder");
    place.write("runs/tiny/blend.html", "");
    place.write("runs/tiny/pictures/calibration.svg", "");
    train(&[&tiny[..], &["--set", "run.overwrite=true"]].concat()).succeeded();
    assert!(!place.path("runs/tiny/blend.html").exists());
    train(&two).succeeded();
    let phase = place.path("runs/two/phase1/low/best");
    train(&[&tiny[..], &["--set", "run.name=two", "--resume"]].concat()).assert_refusal(&["another run", "runs/two"]);
    assert!(phase.is_dir());
    train(&[&two[..], &["--set", "run.name=tiny", "--set", "run.overwrite=true"]].concat()).succeeded();
    assert!(place.path("runs/tiny/phase1/low/best").is_dir() && !place.path("runs/tiny/best").exists());
}
