//! What a run leaves for people: its report, its table, and what it was made with.

use serde_json::Value;
use undertone_tests::{CLIPS, Outcome, Place};

/// A place with the tiny experiment.
fn place() -> Place {
    Place::with_experiment(&format!("samples: 24, {CLIPS}"))
}

fn train(place: &Place, more: &[&str]) -> Outcome {
    place.train("tiny.yaml", &[&["--set", "train.csv=true"], more].concat()).succeeded()
}

fn text(place: &Place, name: &str) -> String {
    place.text(&format!("runs/tiny/{name}"))
}

fn sessions(place: &Place) -> Vec<Value> {
    place.json("runs/tiny/environment.json")["sessions"].as_array().expect("a list").clone()
}

#[test]
fn a_run_and_its_continuation_are_one_table_one_report_and_two_sessions() {
    let (whole, parts) = (place(), place());
    train(&whole, &["--set", "train.max_steps=12"]);
    train(&parts, &["--set", "train.max_steps=6"]);
    let early = text(&parts, "report.html");
    assert!(early.contains("Finished after 6 steps") && early.contains("Training loss"), "{early}");
    train(&parts, &["--resume", "--set", "train.max_steps=12"]);
    assert!(text(&parts, "report.html").contains("Finished after 12 steps"));

    let begun: Vec<u64> = sessions(&parts).iter().map(|session| session["step"].as_u64().expect("a step")).collect();
    assert_eq!(begun, [0, 6]);
    let session = &sessions(&parts)[1];
    let command: Vec<&str> = session["command"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(command[0].ends_with("xtask") && command.contains(&"--resume"), "{command:?}");
    // Nothing is left to do, so nothing is done.
    train(&parts, &["--resume", "--set", "train.max_steps=12"]);
    assert_eq!(sessions(&parts).len(), 2);

    let shape = |place: &Place| -> Vec<Vec<bool>> {
        text(place, "metrics.csv").lines().map(|line| line.split(',').map(str::is_empty).collect()).collect()
    };
    assert!(
        text(&parts, "metrics.csv").starts_with("step,split,cer,loss,lr,grad_norm\n"),
        "{:?}",
        text(&parts, "metrics.csv")
    );
    assert_eq!(shape(&parts).len(), text(&parts, "metrics.jsonl").lines().count() + 1);
    // The first part judges at its end, which the whole does too.
    assert_eq!(shape(&parts), shape(&whole));
}

#[test]
fn a_report_can_be_made_again() {
    let place = place();
    train(&place, &["--set", "train.max_steps=4"]);
    let page = text(&place, "report.html");
    std::fs::remove_file(place.path("runs/tiny/report.html")).expect("removed");
    let outcome = place.run(&["report", "runs/tiny"]);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(0), "runs/tiny/report.html\n"), "{outcome:?}");
    assert_eq!(text(&place, "report.html"), page);
    // Without its summary it is a run that has not ended.
    std::fs::remove_file(place.path("runs/tiny/summary.json")).expect("removed");
    assert_eq!(place.run(&["report", "runs/tiny"]).status, Some(0));
    assert!(text(&place, "report.html").contains("Not ended"));
}

#[test]
#[cfg_attr(not(feature = "tui"), ignore = "the dashboard is not in this build: it needs the feature `tui`")]
fn without_a_terminal_the_dashboard_says_so_and_gives_way_to_lines() {
    let place = place();
    let outcome = train(&place, &["--tui", "--set", "train.max_steps=4"]);
    assert!(outcome.stderr.contains("the dashboard needs a terminal"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("step 4/4"), "{}", outcome.stderr);
}
