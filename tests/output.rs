//! Output that nobody reads, or that does not fit on the disk: no command panics, and none loses its work.

use std::process::Command;
use undertone_tests::runs::{Records, TRAIN, finishes, place, two_tasks};
use undertone_tests::{Outcome, Place, wav};

/// Runs a command to its end, whose standard output nobody reads.
fn unread(mut command: Command) -> Outcome {
    let mut child = command.spawn().expect("a process");
    drop(child.stdout.take());
    Outcome::at_the_end(child)
}

/// Runs a command to its end, whose standard output is a full disk.
fn on_full_disk(mut command: Command) -> Outcome {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full disk");
    Outcome::of(command.stdout(full))
}

fn assert_quiet(outcome: &Outcome, what: &str) {
    assert_eq!(outcome.status, Some(0), "{what}: {outcome:?}");
    let said = ["panicked", "error:", "Broken pipe", "standard output"];
    assert!(!said.iter().any(|word| outcome.stderr.contains(word)), "{what}: {outcome:?}");
}

fn assert_full(outcome: &Outcome, what: &str) {
    assert_eq!(outcome.status, Some(1), "{what}: {outcome:?}");
    let last = outcome.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: cannot write on standard output: No space left"), "{what}: {outcome:?}");
    assert!(!outcome.stderr.contains("panicked"), "{what}: {outcome:?}");
}

/// A place with a list, a recording and a run of one stage, and commands that say something about each.
fn commands() -> (Place, Vec<Vec<&'static str>>) {
    let place = place();
    finishes(&place, &[]);
    place.write("clip.wav", wav(&vec![0.1; 16_000]));
    let commands = [
        "--help",
        "train --help",
        "transcribe clip.wav",
        "transcribe --format jsonl clip.wav clip.wav",
        "eval --run runs/tiny",
        "export --run runs/tiny --out exported",
        "report runs/tiny",
        "monitor --once --json runs/tiny",
        "data check --config tiny.yaml",
        "data check --config tiny.yaml --json -",
        "data synth --config tiny.yaml --count 1 --out clips",
        "structure",
    ];
    (place, commands.iter().map(|command| command.split(' ').collect()).collect())
}

/// What a command writes is in nobody's way the next time.
fn again(place: &Place) {
    ["exported", "clips"].iter().for_each(|name| _ = std::fs::remove_dir_all(place.path(name)));
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "a full disk is a device of Linux")]
fn output_that_nobody_reads_ends_a_command_and_output_that_does_not_fit_is_an_error() {
    let (place, commands) = commands();
    for args in commands {
        let what = args.join(" ");
        again(&place);
        assert_quiet(&unread(place.xtask(&args)), &what);
        again(&place);
        assert_full(&on_full_disk(place.xtask(&args)), &what);
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "a full disk is a device of Linux")]
fn tasks_are_analysed_and_answered_whoever_reads_it() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    let train = ["train", "--config", "two.yaml", "--phase"];
    assert_quiet(&unread(place.xtask(&[&train[..], &["1"]].concat())), "phase 1");
    assert_full(&on_full_disk(place.xtask(&[&train[..], &["2"]].concat())), "phase 2");
    place.write("clip.wav", wav(&vec![0.1; 16_000]));
    for args in [
        ["predict", "--run", "runs/two", "--audio", "clip.wav"].as_slice(),
        &["predict", "--run", "runs/two", "--audio", "clip.wav", "--format", "json"],
        &["eval", "--run", "runs/two"],
        &["analyze", "--run", "runs/two", "--split", "valid"],
    ] {
        assert_quiet(&unread(place.xtask(args)), &args.join(" "));
        assert_full(&on_full_disk(place.xtask(args)), &args.join(" "));
    }
}

#[test]
fn training_loses_nothing_because_nobody_reads_what_it_says() {
    let place = place();
    let mut child = place.xtask(&TRAIN).spawn().expect("a process");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    assert!(place.path("runs/tiny/summary.json").is_file() && place.path("runs/tiny/best/config.json").is_file());
    Records::of(&place).assert_same_as(&Records::uninterrupted());
}

#[test]
fn a_verdict_does_not_depend_on_whether_it_is_read() {
    let place = Place::default();
    place.write("list.csv", "audio,text\nnone.wav,CQ\n");
    place.write_experiment("path: list.csv");
    let outcome = unread(place.xtask(&["data", "check", "--config", "tiny.yaml"]));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let mut child = place.xtask(&["eval", "--run", "nowhere"]).spawn().expect("a process");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().expect("a status").code(), Some(2));
}

#[test]
#[cfg(target_os = "linux")]
fn a_name_that_is_no_unicode_is_written_as_near_to_it_as_json_can() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::default();
    let name = OsStr::from_bytes(b"clip-\xff.wav");
    std::fs::write(place.path("").join(name), wav(&vec![0.1; 16_000])).expect("written");
    let mut command = place.xtask(&["transcribe", "--format", "jsonl"]);
    let outcome = Outcome::from(command.arg(name).output().expect("a process")).succeeded();
    let line = outcome.json();
    assert_eq!(line["audio"], "clip-\u{fffd}.wav");
}
