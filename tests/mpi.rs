//! Processes that `mpirun` starts train one run. Built with the feature `mpi`, where OpenMPI is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use undertone_tests::runs::{wait_for, wait_until};
use undertone_tests::toys::logged;
use undertone_tests::{CLIPS, Outcome, Place};

/// So many processes of `cargo xtask ARGS`.
fn mpirun(place: &Place, count: usize, args: &[&str]) -> Command {
    let own = place.xtask(args);
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &count.to_string()]).arg(own.get_program()).args(args);
    as_in(&mut command, &own);
    command
}

/// With the directory, variables and pipes of another command.
fn as_in(command: &mut Command, other: &Command) {
    command.current_dir(other.get_current_dir().expect("a directory"));
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // In containers tests run as root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // Each process would take all cores for itself.
    command.env("RAYON_NUM_THREADS", "1");
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
}

/// Trains `text.yaml` to its end.
fn train_texts(place: &Place, count: usize, more: &[&str]) {
    let args = [&["train", "--config", "text.yaml"], more].concat();
    Outcome::of(&mut mpirun(place, count, &args)).succeeded();
}

/// Runs them to their end.
fn run(place: &Place, count: usize, settings: &[&str]) -> Outcome {
    // A constant rate, so that the parts of a run have the rates of the whole.
    let mut args = vec!["train", "--config", "tiny.yaml", "--set", "train.optimizer.schedule=constant"];
    for setting in settings {
        args.extend(if *setting == "--resume" { vec![*setting] } else { vec!["--set", *setting] });
    }
    Outcome::of(&mut mpirun(place, count, &args))
}

fn trained(place: &Place, count: usize, settings: &[&str]) {
    run(place, count, settings).succeeded();
}

fn place() -> Place {
    Place::with_experiment(&format!("samples: 32, {CLIPS}"))
}

/// What decides whether two runs were the same but for rounding: the losses of all steps, and what evaluations found.
fn assert_same_curves(a: &Path, b: &Path) {
    for (split, name) in [("train", "loss"), ("valid", "loss"), ("valid", "cer")] {
        let (a, b) = (logged(a, split, name), logged(b, split, name));
        assert!(!a.is_empty() && a.len() == b.len(), "{name}: {} and {}", a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{name}: {a} and {b}");
        }
    }
}

/// The files of a checkpoint.
fn checkpoint(run: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let dir = run.join(format!("checkpoints/step-{step:08}"));
    ["model.safetensors", "optimizer.safetensors"]
        .map(|name| (name.to_owned(), std::fs::read(dir.join(name)).expect(name)))
        .into()
}

/// The process of a rank, once it is there.
fn pid_of(mpirun: &Child, rank: usize) -> i32 {
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
    let children = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", mpirun.id())).unwrap_or_default();
    let is_rank = |pid: &str| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let found = || children().split_whitespace().find(|pid| is_rank(pid)).map(|pid| pid.parse().expect("a number"));
    wait_for(Duration::from_secs(120), found, "the rank's process")
}

/// A run on three ranks that would go on for long, some steps after its begin.
fn begun(place: &Place, more: &[&str]) -> Child {
    let mut args = vec!["train", "--config", "tiny.yaml", "--set", "train.max_steps=100000"];
    args.extend(["--set", "train.evaluate.every=0"]);
    more.iter().for_each(|setting| args.extend(["--set", *setting]));
    let child = mpirun(place, 3, &args).spawn().expect("mpirun is there");
    let metrics = place.path("runs/tiny/metrics.jsonl");
    let lines = || std::fs::read_to_string(&metrics).unwrap_or_default().lines().count();
    wait_until(|| lines() > 12, "steps");
    child
}

fn signal(pid: i32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().expect("kill");
    assert!(status.success());
}

#[test]
fn several_processes_take_the_steps_of_one() {
    // Clipped steps are the same to rounding, for the length of shared gradients is added up in other parts.
    let clip = "train.optimizer.clip_norm=0";
    let place = place();
    trained(&place, 1, &["train.accumulation=4", "run.name=one", "train.max_steps=8", clip]);
    for (count, accumulation, name) in [(2, 2, "two"), (4, 1, "four"), (2, 2, "again")] {
        let [accumulation, own] = [format!("train.accumulation={accumulation}"), format!("run.name={name}")];
        trained(&place, count, &[&accumulation, &own, "train.max_steps=8", clip]);
        assert_same_curves(&place.path("runs").join(name), &place.path("runs/one"));
    }
    let [two, again] = ["two", "again"].map(|name| checkpoint(&place.path("runs").join(name), 8));
    assert!(two == again, "the same number of ranks gives the same bits");
    let shared = ["train.accumulation=2", "run.name=shared", "train.max_steps=8", "train.shard_optimizer=true", clip];
    trained(&place, 2, &shared);
    assert!(checkpoint(&place.path("runs/shared"), 8) == two, "so does sharing out the optimizer's state");
    let performance = place.text("runs/two/performance.jsonl");
    assert!(performance.lines().all(|line| line.contains("\"ranks\":{\"count\":2,")), "{performance}");
}

#[test]
fn evaluations_that_processes_share_are_those_of_one() {
    let place = crate::dynamo_text::place();
    for (count, name) in [(1, "run.name=one"), (3, "run.name=three")] {
        // A rate of nearly nothing: what is judged is the same model.
        train_texts(&place, count, &["--phase", "1", "--set", name, "--set", "train.optimizer.lr=1.0e-12"]);
    }
    for task in ["tone", "where", "names", "turn"] {
        let judged = |run: &str| {
            let stage = place.path("runs").join(run).join("phase1").join(task);
            let metrics = std::fs::read_to_string(stage.join("metrics.jsonl")).expect("metrics");
            metrics.lines().filter(|line| line.contains("\"valid\"")).map(str::to_owned).collect::<Vec<_>>()
        };
        let (one, three) = (judged("one"), judged("three"));
        assert!(!one.is_empty() && one == three, "{task}: {one:?} and {three:?}");
    }
}

#[test]
fn processes_with_tasks_of_their_own_train_what_one_process_trains() {
    let place = crate::dynamo_text::place();
    train_texts(&place, 1, &["--set", "run.name=one"]);
    train_texts(&place, 3, &["--set", "run.name=three", "--set", "phases.1.parallel=tasks"]);
    for task in ["tone", "where", "names", "turn"] {
        let stage = |run: &str| place.path("runs").join(run).join("phase1").join(task);
        assert!(checkpoint(&stage("one"), 6) == checkpoint(&stage("three"), 6), "{task}");
    }
    assert!(place.path("runs/three/phase3/best").exists(), "and later phases follow");
}

#[test]
fn several_processes_train_a_task_where_there_are_more_of_them_than_tasks() {
    let place = crate::dynamo_text::place();
    let apart = ["--set", "phases.1.parallel=tasks"];
    for (count, name, more) in [(1, "one", &[][..]), (2, "two", &[]), (6, "six", &apart)] {
        let name = format!("run.name={name}");
        train_texts(&place, count, &[&["--phase", "1", "--set", &name], more].concat());
    }
    // Two for the first and the third task, one for the others.
    for (task, like) in [("tone", "two"), ("where", "one"), ("names", "two"), ("turn", "one")] {
        let stage = |run: &str| place.path("runs").join(run).join("phase1").join(task);
        assert!(checkpoint(&stage(like), 6) == checkpoint(&stage("six"), 6), "{task}");
    }
}

/// An epoch of several processes has fewer steps.
#[test]
fn finished_phases_of_several_processes_are_finished() {
    let place = crate::dynamo_text::place();
    let yaml = place.text("text.yaml");
    let epochs = yaml.replace("1: {train: {max_steps: 6}}", "1: {train: {epochs: 2}}");
    assert_ne!(epochs, yaml);
    place.write("text.yaml", epochs);
    train_texts(&place, 2, &["--phase", "1"]);
    train_texts(&place, 2, &["--phase", "2"]);
    let router = || place.bytes("runs/four/phase2/best/router.safetensors");
    let before = router();
    train_texts(&place, 2, &["--phase", "1", "--resume"]);
    assert!(router() == before, "nothing was left to do");
}

#[test]
fn a_run_is_resumed_with_another_number_of_processes() {
    let place = place();
    // Judged wherever a part ends, as the parts are.
    let usual = ["train.accumulation=2", "train.evaluate.every=4"];
    trained(&place, 2, &[&usual[..], &["train.max_steps=12", "run.name=whole"]].concat());
    for (count, steps, resume) in [(2, 4, false), (4, 8, true), (1, 12, true)] {
        let steps = format!("train.max_steps={steps}");
        let own = ["run.name=parts", &steps, "--resume"];
        let own = if resume { &own[..] } else { &own[..2] };
        trained(&place, count, &[&usual[..], own].concat());
    }
    assert_same_curves(&place.path("runs/parts"), &place.path("runs/whole"));
}

#[test]
fn a_killed_process_ends_the_job_and_the_run_goes_on_from_its_checkpoint() {
    let place = place();
    let mut job = begun(&place, &[]);
    signal(pid_of(&job, 1), "KILL");
    let began = Instant::now();
    let status = wait_for(Duration::from_secs(120), || job.try_wait().expect("a job"), "its end");
    assert!(!status.success() && began.elapsed() < Duration::from_secs(60));
    let checkpoints = std::fs::read_dir(place.path("runs/tiny/checkpoints")).expect("checkpoints");
    let names = checkpoints.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let last: u64 = names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max().expect("a checkpoint");
    let resumed = run(&place, 2, &["--resume", &format!("train.max_steps={}", last + 2)]);
    assert!(resumed.status == Some(0) && resumed.stderr.contains("resuming from"), "{resumed:?}");
}

#[test]
fn a_silent_process_is_named_by_one_of_the_others_and_what_was_learned_is_saved() {
    let place = place();
    let job = begun(&place, &["train.rank_timeout=3"]);
    let silent = pid_of(&job, 1);
    signal(silent, "STOP");
    let began = Instant::now();
    let waker = std::thread::spawn(move || {
        // `mpirun` waits for a process that is stopped, and ends it once it can.
        std::thread::sleep(Duration::from_secs(8));
        let _ = Command::new("kill").args(["-s", "CONT", &silent.to_string()]).status();
    });
    let ended = Outcome::at_the_end(job);
    waker.join().expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(60) && ended.status != Some(0), "{ended:?}");
    let errors: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains("has received nothing from rank 1 on "), "{ended:?}");
    let saved = std::fs::read_dir(place.path("runs/tiny/checkpoints")).expect("checkpoints").count();
    assert!(saved > 0);
}

#[test]
fn a_process_that_pauses_is_waited_for() {
    let place = place();
    let job = begun(&place, &[]);
    let paused = pid_of(&job, 1);
    signal(paused, "STOP");
    // Meanwhile the others give signs of life, which are none of what it waits for.
    std::thread::sleep(Duration::from_secs(6));
    signal(paused, "CONT");
    let metrics = place.path("runs/tiny/metrics.jsonl");
    let lines = || std::fs::read_to_string(&metrics).unwrap_or_default().lines().count();
    let before = lines();
    wait_until(|| lines() > before + 20, "more steps");
    signal(paused, "TERM");
    let ended = Outcome::at_the_end(job);
    assert_eq!(ended.status, Some(130), "{ended:?}");
}

#[test]
fn a_wish_to_end_that_reaches_one_process_ends_all_after_the_same_step() {
    let place = place();
    let job = begun(&place, &[]);
    signal(pid_of(&job, 2), "TERM");
    let ended = Outcome::at_the_end(job);
    assert_eq!(ended.status, Some(130), "{ended:?}");
    assert!(ended.stdout.contains("interrupted") && ended.stdout.contains("--resume"), "{ended:?}");
}

#[test]
fn what_is_wrong_is_said_once() {
    let place = place();
    let wrong =
        run(&place, 3, &["data.valid.metadata=nowhere.csv", "data.valid.synth=null", "data.valid.samples=null"]);
    let errors: Vec<&str> = wrong.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!((wrong.status, errors.len()), (Some(2), 1), "{wrong:?}");
    assert!(!place.path("runs/tiny/metrics.jsonl").exists());
}

/// Starts two processes that differ in a setting.
fn run_differently(place: &Place, settings: [&str; 2], more: &[&str]) -> Outcome {
    let [own, other] =
        settings.map(|setting| place.xtask(&[&["train", "--config", "tiny.yaml", "--set", setting], more].concat()));
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", "1"]).arg(own.get_program()).args(own.get_args());
    command.args([":", "-n", "1"]).arg(other.get_program()).args(other.get_args());
    as_in(&mut command, &own);
    Outcome::of(&mut command)
}

#[test]
fn a_directory_that_not_all_see_is_refused() {
    let refused = run_differently(&place(), ["run.dir=here", "run.dir=there"], &[]);
    assert_ne!(refused.status, Some(0));
    assert!(refused.stderr.contains("is another directory for rank 1 on "), "{refused:?}");
}

#[test]
fn processes_that_differ_delete_nothing() {
    let place = place();
    place.train("tiny.yaml", &[]).succeeded();
    let weights = || place.bytes("runs/tiny/best/model.safetensors");
    let before = weights();
    let refused = run_differently(&place, ["seed=1", "seed=3"], &["--set", "run.overwrite=true"]);
    assert!(refused.stderr.contains("another configuration"), "{refused:?}");
    assert!(weights() == before);
}
