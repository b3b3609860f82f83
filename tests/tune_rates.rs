//! The search for a learning rate as a process: it finds one, goes on after an interruption, writes what trains, and refuses what
//! cannot be searched.

use std::path::Path;
use std::process::Stdio;
use undertone_tests::runs::{send, wait_until};
use undertone_tests::{CLIPS, Place, experiment_of_tasks};

/// A place with the tiny experiment of 24 samples.
fn place() -> Place {
    Place::with_experiment(&format!("samples: 24, {CLIPS}"))
}

const TUNE: [&str; 11] = [
    "tune", "--config", "tiny.yaml", "--lr", "--keep-batch", "--steps", "16", "--rates", "1e-6,1e-4,1e-3,1e-2",
    "--set", "train.checkpoint.metric=loss",
];

/// Rows of the table: rate, steps and metric.
fn trials(text: &str) -> Vec<(f64, u64, String)> {
    let cells = |line: &str| {
        let mut words = line.split_whitespace();
        let trial = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.to_owned());
        words.next().is_none().then_some(trial)
    };
    text.lines().filter_map(cells).collect()
}

fn weights_below(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => weights_below(&path),
        false => vec![path.display().to_string()],
    });
    found.filter(|path| path.ends_with(".safetensors")).collect()
}

#[test]
fn the_best_rate_is_written_and_trains() {
    let place = place();
    let found = place.run(&TUNE).succeeded();
    let trials = trials(&found.stdout);
    let of = |steps: u64| trials.iter().filter(|trial| trial.1 == steps).count();
    assert!(of(4) >= 4 && of(8) >= 2 && of(16) == 2, "{trials:?}");
    let longest = trials.iter().filter(|trial| trial.1 == 16);
    let best = longest.min_by(|a, b| a.2.parse::<f64>().expect("a loss").total_cmp(&b.2.parse().expect("a loss")));
    let tuned = place.load("tiny-tuned.yaml");
    assert_eq!(Some(tuned.train.optimizer.lr), best.map(|trial| trial.0));
    let before = place.load("tiny.yaml");
    assert_eq!((tuned.data.batch_size, tuned.train.max_steps), (before.data.batch_size, before.train.max_steps));
    let directory = place.path(&format!("runs/{}-lr", before.run.name));
    let page = std::fs::read_to_string(directory.join("report.html")).expect("a page");
    assert!(page.contains("Learning rates of") && page.contains("<svg"));
    assert_eq!(weights_below(&directory), [""; 0], "trials leave no weights");

    let again = place.run(&TUNE).succeeded();
    assert_eq!(again.stdout, found.stdout, "a search that is finished only tells its result again");
    let other = place.run(&[&TUNE[..], &["--set", "seed=7"]].concat());
    other.assert_refusal(&["another configuration", "run.overwrite"]);
    let notes = directory.join("notes.txt");
    std::fs::write(&notes, "mine").expect("written");
    place.run(&[&TUNE[..], &["--set", "seed=7", "--set", "run.overwrite=true"]].concat()).succeeded();
    assert_eq!(std::fs::read_to_string(&notes).expect("notes"), "mine", "trials alone are deleted");
    place.train("tiny-tuned.yaml", &["--set", "train.max_steps=3"]).succeeded();
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells a process how much memory it holds")]
fn a_search_goes_on_with_the_batch_that_it_began_with() {
    let place = place();
    let tune: Vec<&str> = TUNE.into_iter().filter(|argument| *argument != "--keep-batch").collect();
    place.run(&tune).succeeded();
    let found = place.load("tiny-tuned.yaml");
    let again = place.run(&tune).succeeded();
    assert!(again.stdout.contains("batch taken from the earlier search"), "{again:?}");
    assert_eq!(place.load("tiny-tuned.yaml"), found);
    let less = place.run(&[&tune[..], &["--memory", "900MB"]].concat());
    assert!(!less.stdout.contains("batch taken from the earlier search"), "with other memory: {less:?}");
    // Another search for the batch, whose result is that of another search for the rate.
    let other = place.run(&[&tune[..], &["--set", "data.batch_size=2", "--set", "run.overwrite=true"]].concat());
    assert!(!other.succeeded().stdout.contains("batch taken from the earlier search"));
}

#[test]
fn an_interrupted_search_goes_on_with_the_same_result() {
    let whole = place();
    let expected = whole.run(&TUNE).succeeded().stdout;
    let place = place();
    let mut child = place.xtask(&TUNE).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process");
    wait_until(|| place.path("runs/tiny-lr/search.json").exists(), "the first trial");
    send("-INT", &child);
    let status = child.wait().expect("a status").code();
    let said = std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text");
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("the same command goes on"), "{said}");
    assert!(!place.path("tiny-tuned.yaml").exists());
    assert_eq!(place.run(&TUNE).succeeded().stdout, expected);
}

#[test]
fn each_task_has_a_rate_of_its_own() {
    let place = place();
    place.write("tasks.yaml", experiment_of_tasks("metrics: [loss], "));
    let search = |more: &[&str]| {
        let common =
            ["tune", "--config", "tasks.yaml", "--lr", "--keep-batch", "--steps", "16", "--rates", "1e-3,1e-2"];
        place.run(&[&common[..], more].concat())
    };
    search(&["--task", "c"]).assert_refusal(&["no task `c`", "`a`, `b`"]);
    let found = search(&["--task", "b"]).succeeded();
    assert!(found.stdout.contains("tasks.b.train.optimizer.lr  0.001 → "), "{}", found.stdout);
    let tuned = place.load("tasks-tuned.yaml");
    let rate = |task: usize| tuned.tasks[task].train.get("optimizer")?.get("lr")?.as_f64();
    assert!(rate(0).is_none() && rate(1).is_some_and(|rate| rate >= 1e-3), "{:?}", tuned.tasks);
    let baseline = search(&["--baseline", "head"]).succeeded();
    assert!(baseline.stdout.contains("phases.baselines.head.optimizer.lr  0.001 → "), "{}", baseline.stdout);
    assert!(place.load("tasks-tuned.yaml").phases.baselines.head.contains_key("optimizer"));
}

#[test]
fn what_cannot_be_searched_is_refused_before_anything_is_trained() {
    let place = place();
    for (more, culprits) in [
        (vec!["--lr", "--keep-batch", "--steps", "8"], vec!["8 steps are too few", "16"]),
        // Before the search for the batch, which takes minutes.
        (vec!["--lr", "--steps", "8"], vec!["8 steps are too few", "16"]),
        (vec!["--lr", "--keep-batch", "--rates", "1e-3"], vec!["at least two", "0.001"]),
        (vec!["--lr", "--keep-batch", "--rates", "1e-3,-1"], vec!["above 0"]),
        (vec!["--lr", "--keep-batch", "--task", "a"], vec!["`--task`", "tasks"]),
        (vec!["--lr", "--keep-batch", "--baseline", "head"], vec!["tasks"]),
        (vec!["--lr", "--keep-batch", "--grow"], vec!["--grow"]),
        (vec!["--lr", "--keep-batch", "--memory", "1GB"], vec!["--memory"]),
        (vec!["--keep-batch"], vec!["--lr"]),
        (vec!["--rates", "1e-3,1e-4"], vec!["--lr"]),
        (vec!["--steps", "20"], vec!["--lr"]),
    ] {
        let outcome = place.run(&[&["tune", "--config", "tiny.yaml"], &more[..]].concat());
        assert_eq!(outcome.status, Some(2), "{more:?}: {outcome:?}");
        for culprit in culprits {
            assert!(outcome.stderr.contains(culprit), "{more:?}: {culprit} is not named in {}", outcome.stderr);
        }
    }
    assert!(!place.path("runs").exists() && !place.path("tiny-tuned.yaml").exists());
}
