//! A slice of `bench hostile`: changed inputs are accepted or refused in words, and the harness sees what is neither.

use std::collections::BTreeMap;
use undertone_tests::{Outcome, Place};

fn hostile(more: &[&str]) -> Outcome {
    Place::default().run(&[&["bench", "hostile"], more].concat())
}

/// The cells of a row of the table, by the names of their columns.
fn row(outcome: &Outcome, name: &str) -> BTreeMap<String, String> {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut lines = outcome.stdout.lines();
    let head = cells(lines.next().expect("a head"));
    let row = lines.map(cells).find(|cells| cells.get(1).is_some_and(|cell| cell == name));
    head.into_iter().zip(row.unwrap_or_else(|| panic!("no row {name}: {outcome:?}"))).collect()
}

#[test]
fn hostile_inputs_are_accepted_or_refused_in_words() {
    let outcome = hostile(&["--cases", "400", "--seed", "2026", "--patience", "60"]).succeeded();
    let all = row(&outcome, "all");
    let count = |name: &str| all[name].parse::<u64>().expect("a count");
    assert!(count("cases") > 390 && count("refused") > 100 && count("accepted") > 20, "{outcome:?}");
}

#[test]
fn the_same_seed_makes_the_same_cases() {
    let counts = || {
        let outcome = hostile(&["--kind", "list", "--cases", "60", "--seed", "5", "--patience", "60"]);
        let list = row(&outcome, "list");
        ["cases", "accepted", "refused"].map(|name| list[name].clone())
    };
    let first = counts();
    assert_eq!(first[0], "60");
    assert_eq!(counts(), first);
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "memory is limited on Linux alone")]
fn what_no_input_may_do_is_seen_and_named() {
    let outcome = hostile(&["--kind", "trial", "--cases", "7", "--patience", "3"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let trial = row(&outcome, "trial");
    for column in ["accepted", "refused", "panics", "aborts", "hangs", "over the cap"] {
        assert!(trial[column].parse::<u64>().expect("a count") > 0, "{column}: {outcome:?}");
    }
    let named = outcome.stderr.lines().find(|line| line.contains("a panic on trial")).expect("the panic");
    let number = named.split([' ', ':']).nth(1).expect("a number");
    assert!(named.contains(&format!("--kind trial --seed 1 --only {number})")), "{named}");
    let again = hostile(&["--kind", "trial", "--seed", "1", "--only", number]);
    assert_eq!((row(&again, "trial")["cases"].as_str(), row(&again, "trial")["panics"].as_str()), ("1", "1"));
}
