//! `cargo xtask monitor`, as scripts use it.

use undertone_tests::Place;
use undertone_tests::runs::send;

const LINE: &str = r#"{"step":20,"steps":20,"seconds":4.0,"samples_per_second":40.0,"time":{"data_wait":0.38,"transfer":0.0,"forward":0.2,"backward":0.4,"optimizer":0.02,"other":0.0},"hardware":{"cpu":0.5,"process_cpu":0.45}}"#;

/// A place with a run that waits for its data.
fn place() -> Place {
    let place = Place::default();
    std::fs::create_dir_all(place.path("runs/slow")).expect("made");
    place.write("runs/slow/config.yaml", "{data: {workers: 1}, train: {max_steps: 200}}");
    place.write("runs/slow/metrics.jsonl", "{\"step\":20,\"split\":\"train\",\"loss\":0.5,\"lr\":0.0003}\n");
    place.write("runs/slow/performance.jsonl", format!("{LINE}\n"));
    place
}

#[test]
fn once_json_prints_one_line_on_standard_output() {
    let place = place();
    for args in [&["monitor", "--once", "--json"][..], &["monitor", "slow", "--once", "--json"]] {
        let outcome = place.run(args);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""));
        assert_eq!(outcome.stdout.lines().count(), 1);
        let json = outcome.json();
        assert_eq!((json["run"].as_str(), json["state"].as_str()), (Some("runs/slow"), Some("running")));
        assert_eq!((json["step"].as_u64(), json["steps"].as_u64()), (Some(20), Some(200)));
        assert_eq!(json["train"]["loss"], 0.5);
        assert_eq!(json["performance"]["time"]["data_wait"], 0.38);
        let advice = &json["recommendations"][0];
        assert_eq!(
            (advice["finding"].as_str(), advice["changes"][0]["key"].as_str()),
            (Some("data wait 38 %"), Some("data.workers"))
        );
        assert_eq!(advice["changes"][0]["present"], 1);
    }
}

#[test]
fn once_shows_a_block_on_standard_error() {
    let outcome = place().run(&["monitor", "--once"]);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(0), ""));
    for part in
        ["runs/slow  running", "step    20/200", "data wait  38.0 %", "→ data wait 38 %: raise data.workers from 1 to "]
    {
        assert!(outcome.stderr.contains(part), "{part} is not in:\n{}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains('\x1b'), "no terminal, no control sequences");
}

#[test]
fn a_missing_run_is_refused_in_one_sentence() {
    let place = place();
    let outcome = place.run(&["monitor", "none", "--once"]);
    outcome.assert_refusal(&["`none`"]);
    assert_eq!((outcome.stderr.lines().count(), outcome.stdout.as_str()), (1, ""));
    Place::default().run(&["monitor"]).assert_refusal(&["`runs`"]);
    let alone = place.run(&["monitor", "--json"]);
    assert!(alone.status == Some(2) && alone.stderr.contains("--once"), "{alone:?}");
}

#[test]
#[cfg_attr(not(unix), ignore = "signals are sent as Unix sends them")]
fn an_interrupt_ends_the_live_view_with_status_0() {
    let place = place();
    let log = std::fs::File::create(place.path("log")).expect("created");
    let mut child = place.xtask(&["monitor", "slow", "--every", "1"]).stderr(log).spawn().expect("started");
    let shown = || place.text("log");
    while !shown().contains("step    20/200") {
        assert!(child.try_wait().expect("asked").is_none(), "it ended by itself: {}", shown());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    send("-INT", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert_eq!(shown().matches("step    20/200").count(), 1, "nothing new, nothing said");
}
