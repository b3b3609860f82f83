//! The search for a batch as a process: it finds one within a budget, what it writes trains, and what cannot be is refused.

use undertone::phases::tune::SIGNATURE;
use undertone_tests::{CLIPS, Place, experiment_of_tasks};

/// A place with the tiny experiment and `batch_size` 64.
fn place() -> Place {
    Place::with_experiment(&format!("samples: 64, {CLIPS}"))
}

const TUNE: [&str; 5] = ["tune", "--config", "tiny.yaml", "--set", "data.batch_size=64"];

/// Rows of the table on standard output: batch, and whether it fits.
fn probes(stdout: &str) -> Vec<(usize, bool)> {
    let cells = |line: &str| -> Option<(usize, bool)> {
        let batch = line.split_whitespace().next()?.parse().ok()?;
        Some((batch, line.ends_with("  fits")))
    };
    stdout.lines().skip(1).map_while(cells).collect()
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells a process how much memory it holds")]
fn a_budget_bounds_the_batch_and_accumulation_makes_up_for_it() {
    let place = place();
    // What one process holds with a single sample, and what 64 take beyond that, are this machine's own.
    let all = place.run(&[&TUNE[..], &["--objective", "largest", "--out", "all.yaml"]].concat());
    assert_eq!(all.status, Some(0), "{all:?}");
    assert_eq!(probes(&all.stdout), [1, 2, 4, 8, 16, 32, 64].map(|batch| (batch, true)));
    let tuned = place.load("all.yaml");
    assert_eq!((tuned.data.batch_size, tuned.train.accumulation), (64, 1));
    let peaks: Vec<f64> =
        all.stdout.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    let budget = format!("{}MB", (peaks[0] + peaks[6]) / 2.0);

    let within = place.run(&[&TUNE[..], &["--objective", "largest", "--memory", &budget]].concat());
    assert_eq!(within.status, Some(0), "{within:?}");
    let found = probes(&within.stdout);
    assert!(found.contains(&(1, true)) && found.iter().any(|(_, fits)| !fits), "{budget}: {}", within.stdout);
    let largest = found.iter().filter(|(_, fits)| *fits).map(|(batch, _)| *batch).max().expect("one fits");
    let tuned = place.load("tiny-tuned.yaml");
    assert!(tuned.data.batch_size <= largest && tuned.train.accumulation > 1);
    assert_eq!(tuned.data.batch_size * tuned.train.accumulation, 64);
    assert_eq!(tuned.train.optimizer, place.load("tiny.yaml").train.optimizer);
    assert!(!place.path("runs").exists(), "probes leave no run");
    assert_eq!(std::fs::read_dir(place.path("tmp")).expect("listed").count(), 0, "nor anything else");

    let trained = place.train("tiny-tuned.yaml", &["--set", "train.max_steps=3"]);
    assert_eq!(trained.status, Some(0), "{trained:?}");
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells a process how much memory it holds")]
fn a_budget_too_small_for_one_sample_is_refused_in_words() {
    let place = place();
    let outcome = place.run(&[&TUNE[..], &["--memory", "1MB"]].concat());
    outcome.assert_refusal(&["one sample", "it held", "memory"]);
    assert!(!place.path("tiny-tuned.yaml").exists());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_tried() {
    let place = place();
    place.write("mine.yaml", "seed: 1\n");
    for (more, culprits) in [
        (vec!["--memory", "much"], vec!["much"]),
        (vec!["--memory", "0GB"], vec!["0GB"]),
        (vec!["--out", "mine.yaml"], vec!["mine.yaml", "--out"]),
        (vec!["--out", "no/such/dir.yaml"], vec!["no/such", "--out"]),
        (vec!["--set", "model.path=nowhere"], vec!["nowhere"]),
        (vec!["--device", "gpu"], vec!["gpu"]),
    ] {
        let outcome = place.run(&[&TUNE[..], &more].concat());
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        for culprit in culprits {
            assert!(outcome.stderr.contains(culprit), "{culprit} is not named in {}", outcome.stderr);
        }
    }
    assert_eq!(place.text("mine.yaml"), "seed: 1\n");
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells a process how much memory it holds")]
fn a_run_with_tasks_is_tried_in_its_last_phase_and_an_earlier_answer_is_replaced() {
    let place = place();
    place.write("tasks.yaml", experiment_of_tasks(""));
    place.write("tasks-tuned.yaml", format!("{SIGNATURE}\nold: true\n"));
    let outcome = place.run(&["tune", "--config", "tasks.yaml"]).succeeded();
    assert!(outcome.stderr.contains("phase 3"), "{}", outcome.stderr);
    assert_eq!(probes(&outcome.stdout), [(1, true), (2, true), (4, true)]);
    assert_eq!(place.load("tasks-tuned.yaml").tasks.len(), 2);
}
