//! A run that is stopped and goes on ends in the same bits as one that never stopped.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use undertone::phases::run::{Phase, train, train_phases};
use undertone::phases::{Experiment, Session};
use undertone::train::Checkpoints;
use undertone_testing::skipped;
use undertone_tests::runs::{
    LAST, Records, TRAIN, finishes, place, send, spawn_to, train_to, two_tasks, wait_until, wait_while_alive,
    with_recordings,
};
use undertone_tests::toys::lines;
use undertone_tests::{Outcome, Place, change_tensors, sets, write_model};

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    // The bundled model is large enough for its products to be spread over threads.
    let settings = [
        "model.source.config=null", "model.source.bundled=whisper-nano-cw", "loss.alignment.characters=1",
        "train.checkpoint.every=0",
    ];
    let train = |threads: &str| {
        let place = place();
        let mut command = place.xtask(&TRAIN);
        settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
        Outcome::of(command.env("RAYON_NUM_THREADS", threads)).succeeded();
        Records::of(&place)
    };
    train("1").assert_same_as(&train("3"));
}

#[test]
fn an_interrupted_run_goes_on_to_the_same_bits() {
    let whole = Records::uninterrupted();
    for signal in ["-INT", "-TERM"] {
        let place = place();
        let mut child = train_to(&place, 7);
        send(signal, &child);
        assert_eq!(child.wait().expect("a status").code(), Some(130), "{signal}");
        let summary = place.text("runs/tiny/summary.json");
        assert!(summary.contains("\"completed\": false"), "{summary}");
        let outcome = finishes(&place, &["--resume", "--set", "data.workers=3"]);
        assert!(outcome.stderr.contains("resuming from"), "{}", outcome.stderr);
        Records::of(&place).assert_same_as(&whole);
    }
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    let place = place();
    // A step takes seconds: after the first signal it would be waited for.
    let slow = [
        "model.source.config=null", "model.source.bundled=whisper-nano-cw", "data.valid.samples=2",
        "data.batch_size=192", "data.train.samples=2000", "train.accumulation=1", "train.log_every=1",
    ];
    let mut command = place.xtask(&TRAIN);
    slow.iter().for_each(|setting| _ = command.args(["--set", setting]));
    let mut child = command.spawn().expect("a process");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut hear = |part: &str| {
        let said = lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains(part));
        assert!(said.is_some(), "{part}");
    };
    hear("step 1/");
    std::thread::sleep(Duration::from_millis(300));
    send("-INT", &child);
    hear("once more to leave at once");
    // Signals that come together are one.
    std::thread::sleep(Duration::from_millis(400));
    send("-INT", &child);
    assert_eq!(child.wait().expect("a status").code(), Some(130));
    assert!(!place.path("runs/tiny/summary.json").exists(), "it waited for the step");
}

#[test]
fn one_interrupt_is_enough_where_a_sample_hangs() {
    let place = with_recordings(0.1);
    place.write_experiment("path: list.jsonl");
    // Windows of two of an epoch's three batches, so that one may have come; a first evaluation that takes a while.
    let more = ["--set", "train.accumulation=2", "--set", "data.valid.samples=200"];
    let mut child = place.xtask(&[&TRAIN[..], &more].concat()).spawn().expect("a process");
    wait_until(|| place.path("runs/tiny/environment.json").exists(), "the run to begin");
    // A pipe that nobody writes to: opening it never returns.
    let (pipe, clip) = (place.path("pipe"), place.path("07.wav"));
    let whole = std::fs::read(&clip).expect("a clip");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::fs::rename(&pipe, &clip).expect("a pipe in a clip's place");
    let quiet = listen(&mut child);
    wait_until(|| quiet.lock().expect("a time").is_some_and(|last| last.elapsed() > Duration::from_secs(2)), "a pause");
    let asked = Instant::now();
    send("-INT", &child);
    assert_eq!(child.wait().expect("a status").code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?}", asked.elapsed());
    let (newest, complaints) = Checkpoints::new(place.path("runs/tiny/checkpoints")).newest();
    let stopped = newest.expect("a checkpoint").state;
    assert!(stopped.step <= 1 && stopped.epoch == 0 && complaints.is_empty(), "{stopped:?} {complaints:?}");
    // Repaired, the run goes on and ends in the bits of one that never met the pipe.
    std::fs::remove_file(&clip).expect("removed");
    std::fs::write(&clip, whole).expect("written");
    finishes(&place, &[&more[..], &["--resume"]].concat());
    let found = Records::of(&place);
    finishes(&place, &[&more[..], &["--set", "run.overwrite=true"]].concat());
    found.assert_same_as(&Records::of(&place));
}

/// When the process last said something from the first evaluation on, so far.
fn listen(child: &mut Child) -> Arc<Mutex<Option<Instant>>> {
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let last: Arc<Mutex<Option<Instant>>> = Arc::default();
    let noted = last.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok).skip_while(|line| !line.starts_with("step 0 ")) {
            drop(line);
            *noted.lock().expect("a time") = Some(Instant::now());
        }
    });
    last
}

#[test]
fn scale_and_averages_go_on_to_the_same_bits() {
    let everything = [
        "train.compute=f16",
        "train.loss_scale={initial: 8.0e6, growth_interval: 5}",
        "train.ema_decay=0.9",
        "train.guard={on_spike: skip, spike_factor: 0.5}",
    ];
    let run = |place: &Place, steps: &str, more: &[&str]| {
        finishes(place, &[&sets(&everything)[..], &["--set", steps], more].concat());
        let checkpoint = place.path("runs/tiny/checkpoints").join(LAST);
        ["model", "optimizer", "ema"]
            .map(|name| std::fs::read(checkpoint.join(name).with_extension("safetensors")).ok())
    };
    let (whole, parts) = (place(), place());
    let expected = run(&whole, "train.max_steps=24", &[]);
    assert!(expected.iter().all(Option::is_some));
    // A constant rate, for a run that is lengthened has another schedule than one that was long from the start.
    let constant = ["--set", "train.optimizer.schedule=constant"];
    let expected_constant =
        run(&whole, "train.max_steps=24", &[&constant[..], &["--set", "run.overwrite=true"]].concat());
    assert!(expected_constant != expected);
    run(&parts, "train.max_steps=9", &constant);
    let resumed = run(&parts, "train.max_steps=24", &[&constant[..], &["--resume"]].concat());
    assert!(resumed == expected_constant, "the tensors differ");
    let lines = |place: &Place| {
        let metrics = place.text("runs/tiny/metrics.jsonl");
        // The shorter run also judged its last step.
        metrics
            .lines()
            .filter(|line| !line.contains("\"step\":9,\"split\":\"valid"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&parts), lines(&whole));
}

/// Kills a run `after` so long, or as soon as it is seen to write a checkpoint after that, and goes on with `workers`.
/// What is left must be what `whole` is. Whether there was anything to go on with.
fn survives_a_kill(whole: &Records, after: Duration, in_a_checkpoint: bool, workers: usize) -> bool {
    let place = place();
    let mut child = place.xtask(&TRAIN_OFTEN).stderr(Stdio::null()).spawn().expect("a process");
    std::thread::sleep(after);
    while in_a_checkpoint && child.try_wait().expect("a status").is_none() && !is_writing(&place) {}
    // It may have ended by now; then there is nothing left to do, which is a moment like any other.
    let _ = child.kill();
    child.wait().expect("a status");
    let begun = std::fs::read_dir(place.path("runs/tiny/checkpoints"))
        .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("step-")));
    let how = if begun { "--resume" } else { "--set=run.overwrite=true" };
    let workers = format!("data.workers={workers}");
    let outcome = place.run(&[&TRAIN_OFTEN[..], &[how, "--set", &workers]].concat());
    assert_eq!(outcome.status, Some(0), "killed after {after:?}: {outcome:?}");
    Records::of(&place).assert_same_as(whole);
    begun
}

/// A checkpoint every step: half of a run's time is spent in writing.
const TRAIN_OFTEN: [&str; 5] = ["train", "--config", "tiny.yaml", "--set", "train.checkpoint.every=1"];

/// Whether a checkpoint is being written: its directory has not got its name yet.
fn is_writing(place: &Place) -> bool {
    std::fs::read_dir(place.path("runs/tiny/checkpoints"))
        .is_ok_and(|entries| entries.flatten().any(|e| e.file_name().to_string_lossy().starts_with(".tmp-")))
}

#[test]
fn a_run_killed_at_any_of_twenty_moments_goes_on_to_the_same_bits() {
    let started = Instant::now();
    let place = place();
    place.run(&TRAIN_OFTEN).succeeded();
    let (whole, length) = (Records::of(&place), started.elapsed());
    // Other moments every time: what a failure says is enough to look for it again.
    let mut state = u64::from(started.elapsed().subsec_nanos()) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let went_on = (0..20).filter(|n| {
        let after = length.mul_f64(random());
        survives_a_kill(&whole, after, n % 2 == 1, 1 + n % 3)
    });
    let went_on = went_on.count();
    assert!(went_on >= 5, "{went_on} of 20 kills fell behind a checkpoint: they say little");
}

/// A file system of its own, with room for `size`, if this system lets us make one.
fn small_disk(place: &Place, name: &str, size: &str) -> Option<SmallDisk> {
    let path = place.path(name);
    std::fs::create_dir(&path).expect("a directory");
    let size = format!("size={size}");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path).output();
    mounted.is_ok_and(|output| output.status.success()).then_some(SmallDisk(path))
}

struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_run_and_leaves_what_was_whole() {
    let place = place();
    let Some(disk) = small_disk(&place, "runs", "2m") else {
        return skipped("no file system can be mounted here (that needs root)");
    };
    // A run of this size would fit; its fifth checkpoint will not.
    let every = "train.checkpoint.every=2";
    let mut child = place.xtask(&[&TRAIN[..], &["--set", every]].concat()).spawn().expect("a process");
    let first = disk.0.join("tiny/checkpoints/step-00000004");
    wait_while_alive(&mut child, || first.exists(), "its checkpoint");
    let filler = disk.0.join("filler");
    let _ = std::fs::write(&filler, vec![0_u8; 4 << 20]);
    let Outcome { status, stderr: errors, .. } = Outcome::at_the_end(child);
    let last = errors.lines().last().unwrap_or_default();
    assert_eq!(status, Some(1), "{errors}");
    // Whatever was written first is what did not fit: a checkpoint, the best model, a line.
    assert!(last.starts_with("error: ") && last.contains("cannot write") && last.contains("No space left"), "{errors}");
    // What is left is whole, and with room again the run goes on.
    let (newest, complaints) = Checkpoints::new(disk.0.join("tiny/checkpoints")).newest();
    assert!(newest.is_some_and(|checkpoint| checkpoint.state.step >= 4) && complaints.is_empty(), "{complaints:?}");
    std::fs::remove_file(&filler).expect("removed");
    finishes(&place, &["--resume", "--set", every]);
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_one_before_used() {
    let place = place();
    finishes(&place, &[]);
    let whole = Records::of(&place);
    let newest = place.path("runs/tiny/checkpoints").join(LAST).join("optimizer.safetensors");
    let mut bytes = std::fs::read(&newest).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).expect("written");
    let outcome = finishes(&place, &["--resume"]);
    assert!(
        outcome.stderr.lines().any(|l| l.contains(LAST) && l.contains("optimizer.safetensors")),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("step-00000020`, step 20"), "{}", outcome.stderr);
    Records::of(&place).assert_same_as(&whole);
}

#[test]
fn a_finished_run_goes_on_when_more_steps_are_asked_of_it() {
    let place = place();
    finishes(&place, &[]);
    let more = ["--resume", "--set", "train.max_steps=27"];
    let outcome = finishes(&place, &more);
    assert!(outcome.stderr.contains(&format!("{LAST}`, step 24")), "{}", outcome.stderr);
    let records = || {
        ["summary.json", "metrics.jsonl"]
            .map(|name| std::fs::read_to_string(place.path("runs/tiny").join(name)).expect(name))
    };
    let [summary, metrics] = records();
    assert!(summary.contains("\"completed\": true") && summary.contains("\"steps\": 27"), "{summary}");
    let steps = |line: &&str| line.contains("\"train\"");
    assert_eq!(metrics.lines().filter(steps).count(), 27, "{metrics}");
    assert!(place.path("runs/tiny/checkpoints/step-00000027").is_dir());
    finishes(&place, &more);
    assert_eq!(records(), [summary, metrics], "nothing is left to do");
}

#[test]
fn a_run_that_is_to_end_where_it_was_interrupted_is_evaluated_and_finished() {
    let place = place();
    // As if it had been stopped after a checkpoint of step 8, which nothing has evaluated.
    let often = ["--set", "train.evaluate.every=0", "--set", "train.checkpoint={every: 4, keep_last: 6}"];
    finishes(&place, &often);
    for step in [12, 16, 20, 24] {
        let checkpoint = format!("runs/tiny/checkpoints/step-{step:08}");
        std::fs::remove_dir_all(place.path(&checkpoint)).expect("removed");
    }
    let ended = place.text("runs/tiny/summary.json");
    place.write("runs/tiny/summary.json", ended.replace("\"completed\": true", "\"completed\": false"));
    for _ in 0..2 {
        finishes(&place, &[&often[..], &["--resume", "--set", "train.max_steps=8"]].concat());
        let summary = place.json("runs/tiny/summary.json");
        assert_eq!((summary["completed"].as_bool(), summary["steps"].as_u64()), (Some(true), Some(8)));
        let judged = lines(&place.path("runs/tiny"), "valid");
        let at: Vec<bool> = judged.iter().map(|line| line["step"] == 8).collect();
        assert_eq!(at, [false, true], "{judged:?}");
    }
}

#[test]
fn a_run_does_not_go_on_beside_a_changed_frozen_encoder() {
    let place = place();
    write_model(&place.path("model"));
    let settings = ["model.source.config=null", "model.path=model", "model.trainable=decoder"];
    let with = |more: &[&'static str]| [&sets(&settings)[..], more].concat();
    finishes(&place, &with(&["--set", "train.max_steps=3"]));
    let before = place.tree();
    change_tensors(&place.path("model/model.safetensors"), |tensors| {
        let weight = tensors.get_mut("model.encoder.conv1.weight").expect("a weight");
        weight.data[0] += 1e-3;
    });
    let outcome = place.train("tiny.yaml", &with(&["--resume", "--set", "train.max_steps=6"]));
    outcome.assert_refusal(&["checkpoints/step-00000003", "frozen weights", "--resume"]);
    assert_eq!(place.tree(), before, "nothing is touched");
}

#[test]
fn a_run_interrupted_before_its_first_step_evaluates_the_beginning_once() {
    let place = place();
    let settings = [format!("run.dir={}", place.path("runs").display()), "train.max_steps=3".to_owned()];
    let experiment = Experiment::load(Some(&place.path("tiny.yaml")), &settings).expect("an experiment");
    let run = |resume, interrupt| {
        let session = Session { resume, ..Session::default() };
        if interrupt {
            session.interrupt.ask();
        }
        train(&experiment, &session).expect("a run").remove(0).summary.is_some_and(|summary| summary.completed)
    };
    let evaluated = || {
        let metrics = std::fs::read_to_string(place.path("runs/tiny/metrics.jsonl")).unwrap_or_default();
        metrics.lines().filter(|line| line.contains("\"step\":0,")).count()
    };
    assert!(!run(false, true));
    assert_eq!(evaluated(), 0, "it is left to the next session, for it may take long");
    assert!(run(true, false));
    assert_eq!(evaluated(), 1);
}

/// As under `nohup`.
#[cfg(unix)]
#[test]
fn a_signal_that_is_to_be_ignored_does_not_stop_a_run() {
    let place = place();
    let train = place.xtask(&TRAIN);
    let mut shell = place.program("sh".as_ref(), &["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    shell.arg(train.get_program()).args(train.get_args());
    let mut child = spawn_to(&mut shell, 4);
    send("-HUP", &child);
    assert!(child.wait().expect("ended").success());
    assert!(place.path("runs/tiny/checkpoints").join(LAST).is_dir(), "it took all its steps");
    // A terminal that closes stops others, which save what they have.
    let place = self::place();
    let mut child = train_to(&place, 4);
    send("-HUP", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
}

#[test]
fn an_interruption_after_the_last_step_of_a_router_is_one() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    let trained = |more: &[&str]| place.train("two.yaml", more).succeeded();
    trained(&["--phase", "1"]);
    trained(&["--phase", "2"]);
    let described = place.path("runs/two/phase2/inputs.safetensors");
    let before = std::fs::read(&described).expect("a file");
    std::fs::remove_file(&described).expect("removed");
    let settings = [format!("run.dir={}", place.path("runs").display())];
    let experiment = Experiment::load(Some(&place.path("two.yaml")), &settings).expect("an experiment");
    let session = Session { resume: true, ..Session::default() };
    session.interrupt.ask();
    let error = train_phases(&experiment, &[Phase::Router], &session).expect_err("interrupted");
    assert!(error.is_interruption() && error.to_string().contains("--resume"), "{error}");
    trained(&["--phase", "2", "--resume"]);
    assert_eq!(std::fs::read(&described).expect("described then"), before);
}
