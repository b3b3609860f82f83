//! First steps of a new user: the tests on a machine that has Rust alone, and the bundled model on a recording.

use std::process::{Command, Stdio};
use undertone_tests::reference::fixture;
use undertone_tests::{Outcome, Place, write_model};

/// A `cargo` that notes how it is called, in `calls`. Its nextest is there once it is installed, if it can be installed;
/// its tests note a skip.
const CARGO: &str = r#"#!/bin/sh
echo "$*" >> calls
case "$1 $2" in
    "nextest --version") test -e installed ;;
    "install cargo-nextest") test -e network && touch installed ;;
    "nextest run") test -z "$SKIPPED_TESTS" || printf 'pack a_test\tno disk\npack a_test\tno disk\n' >> "$SKIPPED_TESTS" ;;
esac
"#;

/// A place with that `cargo` and files by name.
fn bare_machine(files: &[&str]) -> Place {
    let place = Place::default();
    place.write("cargo", CARGO);
    files.iter().for_each(|file| place.write(file, ""));
    place
}

/// `cargo xtask ARGS` with that `cargo`, and how it was called.
fn run(place: &Place, args: &[&str]) -> (Outcome, Vec<String>) {
    // The program calls cargo from the repository's root; this one's files are here. What a workspace is made of, the real
    // one knows.
    let (real, here) = (env!("CARGO"), place.path(""));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = metadata ] && exec '{real}' \"$@\"\ncd '{}' && exec ./cargo \"$@\"\n",
        here.display()
    );
    place.write("here", script);
    // MPI is there where a file of its name is, whatever the machine has.
    for program in ["mpicc", "mpirun"] {
        place.write(program, format!("#!/bin/sh\ntest -e '{}'\n", place.path("mpi").display()));
    }
    let programs = ["cargo", "here", "mpicc", "mpirun"].map(|name| place.path(name));
    assert!(Command::new("chmod").arg("+x").args(&programs).status().is_ok_and(|status| status.success()));
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap_or_default());
    let outcome = Outcome::of(place.xtask(args).env("CARGO", &programs[1]).env("PATH", path));
    let calls = std::fs::read_to_string(place.path("calls")).unwrap_or_default();
    (outcome, calls.lines().map(str::to_owned).collect())
}

#[test]
#[cfg_attr(not(unix), ignore = "it needs a shell")]
fn a_missing_test_runner_is_announced_and_installed_and_skips_are_counted() {
    let place = bare_machine(&["network"]);
    let (outcome, calls) = run(&place, &["test"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let whole =
        ["nextest --version", "install cargo-nextest --locked", "nextest run --workspace", "test --workspace --doc"];
    assert_eq!(calls, whole);
    assert!(outcome.stderr.starts_with("── test runner: cargo-nextest is not here; installing it"), "{outcome:?}");
    let end = "1 test or check could not run here, or only in part:\n  pack a_test: no disk\n";
    assert!(outcome.stderr.ends_with(end), "{outcome:?}");

    let (outcome, calls) = run(&place, &["test", "--", "-E", "test(x)", "--no-fail-fast"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let again = ["nextest --version", "nextest run --workspace -E test(x) --no-fail-fast"];
    assert_eq!(calls[whole.len()..], again, "it is there, and some tests are not all");
}

#[test]
#[cfg_attr(not(unix), ignore = "it needs a shell")]
fn without_a_network_there_is_another_way_to_run_the_tests() {
    let (outcome, calls) = run(&bare_machine(&[]), &["test"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert_eq!(calls, ["nextest --version", "install cargo-nextest --locked"]);
    let said = "error: cargo-nextest could not be installed";
    assert!(outcome.stderr.contains(said) && outcome.stderr.contains("`cargo test --workspace`"), "{outcome:?}");
}

#[test]
#[cfg_attr(not(unix), ignore = "it needs a shell")]
fn all_checks_run_the_tests_as_the_command_for_tests_does() {
    let (outcome, calls) = run(&bare_machine(&["network"]), &["ci"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let tests = [
        "nextest --version",
        "install cargo-nextest --locked",
        "nextest run --workspace --cargo-profile ci --features undertone-tests/wgpu",
        "test --workspace --doc --profile ci --features undertone-tests/wgpu",
    ];
    assert!(calls.windows(tests.len()).any(|calls| calls == tests), "{calls:?}");
    let on_wgpu = "nextest run --workspace --run-ignored all --cargo-profile ci --features undertone-tests/wgpu -E ";
    assert!(calls.iter().any(|call| call.starts_with(on_wgpu)), "{calls:?}");
    assert!(outcome.stderr.contains("  pack a_test: no disk\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("  tests of several processes: there is no OpenMPI"), "{outcome:?}");

    let (outcome, calls) = run(&bare_machine(&["network", "mpi"]), &["ci"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let with_mpi = "nextest run --workspace --cargo-profile ci --features undertone-tests/wgpu --features \
                    undertone-tests/mpi,xtask/mpi";
    assert!(calls.iter().any(|call| call == with_mpi), "{calls:?}");
}

#[test]
fn the_bundled_model_reads_a_recording_by_its_name() {
    let clip = fixture("ebook2cw").join("clip00.mp3");
    let outcome =
        Place::default().run(&["transcribe", "--model", "whisper-nano-cw", &clip.to_string_lossy()]).succeeded();
    let manifest = std::fs::read_to_string(fixture("ebook2cw").join("manifest.csv")).expect("a manifest");
    let said = manifest.lines().find_map(|line| line.strip_prefix("clip00.mp3,")).expect("a row");
    assert_eq!(outcome.stdout.trim_end(), said.trim_matches('"'));
}

#[test]
fn morse_is_said_to_be_heard_and_can_be_timed_and_doubted() {
    let place = Place::default();
    let clip = fixture("ebook2cw").join("clip00.mp3").to_string_lossy().into_owned();
    // Without a model the bundled one is meant.
    let plain = place.run(&["transcribe", &clip]);
    assert_eq!(plain.status, Some(0), "{plain:?}");
    for said in ["Hz keyed at", "words per minute", "times as fast"] {
        assert!(plain.stderr.contains(said), "{plain:?}");
    }
    let text = plain.stdout.trim_end();
    let timed = place.run(&["transcribe", "--timestamps", &clip]).stdout;
    let cells: Vec<Vec<&str>> = timed.lines().map(|line| line.split('\t').collect()).collect();
    let read: String = cells.iter().map(|cells| cells[2]).collect::<Vec<_>>().join(" ");
    assert_eq!(read.replace(' ', ""), text.replace(' ', ""));
    assert!(cells.iter().all(|cells| cells[0].parse::<f64>().unwrap() < cells[1].parse::<f64>().unwrap()), "{timed}");
    let json = place.run(&["transcribe", "--format", "json", &clip]).json();
    let segment = &json["segments"][0];
    let confidence = segment["confidence"].as_array().expect("numbers");
    assert_eq!(confidence.len(), segment["text"].as_str().expect("a text").chars().count());
    // Nothing is as sure as that.
    let doubted = place.run(&["transcribe", "--least-confidence", "1", &clip]).stdout;
    assert!(doubted.contains('_') && doubted.trim_end().chars().count() == text.chars().count(), "{doubted}");
    let refused = place.run(&["transcribe", "--least-confidence", "2", &clip]);
    assert!(refused.status == Some(2) && refused.stderr.contains("from 0 (all is written) to 1"), "{refused:?}");
}

#[test]
fn standard_input_is_read_while_it_comes() {
    let place = Place::default();
    let clip = fixture("ebook2cw").join("clip00.mp3");
    let samples = undertone::data::audio::load(&clip).expect("audio");
    let said = place.run(&["transcribe", &clip.to_string_lossy()]).stdout;
    let flac = fixture("off-air").join("kw4kd_sunday.flac");
    let raw: Vec<u8> = samples.iter().flat_map(|sample| ((sample * 32_767.0) as i16).to_le_bytes()).collect();
    undertone::data::audio::write_wav(&place.path("clip.wav"), &samples).expect("written");
    let wav = place.bytes("clip.wav");
    let piped = |options: &[&str], bytes: &[u8]| {
        let mut command = place.xtask(&[&["transcribe", "-"], options].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a process");
        // What is refused is not read to its end.
        let _ = std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), bytes);
        Outcome::at_the_end(child)
    };
    let mp3 = std::fs::read(&clip).expect("read");
    for (options, bytes) in [(&["--rate", "16000"][..], &raw), (&[], &wav), (&[], &mp3)] {
        assert_eq!(piped(options, bytes).stdout, said, "{options:?}");
    }
    let radio = place.run(&["transcribe", &flac.to_string_lossy()]).stdout;
    assert_eq!(piped(&[], &std::fs::read(&flac).expect("read")).stdout, radio);
    let text = b"root:x:0:0:root:/root:/bin/bash\n".repeat(100);
    for (options, bytes, culprits) in [
        (&[][..], &raw, &["standard input", "--rate"][..]),
        (&["--rate", "16000"], &wav, &["is WAV", "leave out `--rate`"]),
        (&[], &text, &["standard input", "it is text"]),
        (&["--rate", "8000"], &text, &["standard input", "it is text"]),
        (&[], &Vec::new(), &["standard input", "no audio"]),
    ] {
        piped(options, bytes).assert_refusal(culprits);
    }
    place.run(&["transcribe", "-", "a.wav"]).assert_refusal(&["`-`"]);
    place.run(&["transcribe", "--timestamps", "-"]).assert_refusal(&["standard input", "--timestamps"]);
}

#[test]
fn a_run_stands_for_its_best_model() {
    let place = Place::default();
    write_model(&place.path("tiny/best"));
    let clip = fixture("ebook2cw").join("clip05.mp3");
    let read = |model: &str| place.run(&["transcribe", "--model", model, &clip.to_string_lossy()]);
    let (run, best) = (read("tiny"), read("tiny/best"));
    assert_eq!((run.status, &run.stdout), (Some(0), &best.stdout), "{run:?}");
}

#[test]
fn a_model_that_is_not_there_is_answered_with_what_is_bundled() {
    let place = Place::default();
    place.write("clip.wav", undertone_tests::wav(&[0.0; 1600]));
    let outcome = place.run(&["transcribe", "--model", "whisper-nano", "clip.wav"]);
    outcome.assert_refusal(&["`whisper-nano`", "whisper-nano-cw"]);
    // A folder that is there is meant, whatever it is called.
    std::fs::create_dir(place.path("whisper-nano-cw")).expect("a directory");
    let outcome = place.run(&["transcribe", "--model", "whisper-nano-cw", "clip.wav"]);
    outcome.assert_refusal(&["whisper-nano-cw/model.safetensors"]);
}

#[test]
fn a_model_that_cannot_write_what_its_folder_says_that_it_reads_is_refused() {
    let place = Place::default();
    place.write("clip.wav", undertone_tests::wav(&[0.0; 1600]));
    place.run(&["export", "--model", "whisper-nano-cw", "--out", "nano"]);
    let transcribe = ["transcribe", "--model", "nano", "clip.wav"];
    assert_eq!(place.run(&transcribe).status, Some(0));
    let read = |name: &str| place.text(name);
    let tokenizer = read("nano/tokenizer.json");
    let without = tokenizer.replace("\"Q\":", "\"Ø\":");
    assert_ne!(without, tokenizer);
    place.write("nano/tokenizer.json", without);
    place.run(&transcribe).assert_refusal(&["`cw`", "'Q'", "generation_config.json"]);
    place.write("nano/generation_config.json", read("nano/generation_config.json").replace("\"cw\"", "\"runes\""));
    place.run(&transcribe).assert_refusal(&["`reader`", "`runes`"]);
}

#[test]
fn the_bundled_model_is_exported_by_its_name() {
    let place = Place::default();
    let outcome = place.run(&["export", "--model", "whisper-nano-cw", "--dtype", "f16", "--out", "nano"]);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(0), "nano\n"), "{outcome:?}");
    assert!(place.path("nano/model.safetensors").is_file() && place.path("nano/config.json").is_file());
    place.run(&["export", "--model", "nono", "--out", "x"]).assert_refusal(&["`nono`", "whisper-nano-cw"]);
}
