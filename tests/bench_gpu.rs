//! The page that `bench gpu` writes, on the CPU.

use undertone_tests::Place;

const SMALL: [&str; 16] = [
    "bench", "gpu", "--device", "cpu", "--sizes", "nano", "--batch", "1", "--steps", "1", "--guides", "small",
    "--guide-steps", "6", "--output", "pages",
];

/// The page of a measurement, and with which status it ended.
fn page(place: &Place, more: &[&str]) -> (Option<i32>, String) {
    let outcome = place.run(&[&SMALL, more].concat());
    let path = outcome.stdout.lines().last().unwrap_or_else(|| panic!("{outcome:?}"));
    (outcome.status, place.text(path))
}

#[test]
fn a_page_has_all_that_could_be_measured_and_why_the_rest_could_not() {
    let place = Place::default();
    let (status, page) = page(&place, &["--minutes", "30"]);
    assert_eq!(status, Some(0), "{page}");
    for part in ["Parity with the CPU", "Quickstart", "Training steps", "Runs"] {
        assert!(page.contains(&format!("\n## {part}\n")), "no {part} in {page}");
    }
    for row in [
        "| everything | f32 | 4 | 0e0 | 0e0 |",
        "| nano | LoRA 32 | 1 |",
        "| DYNAMO on whisper-nano, bf16, batch 4: phase2 | 6 |",
    ] {
        assert!(page.contains(row), "no {row} in {page}");
    }
    assert!(page.contains("not a GPU but a driver") && page.contains("\nAll of it took "), "{page}");
    assert!(
        page.contains("kernels of nano: it failed") && page.contains("nothing times kernels on this device"),
        "{page}"
    );
    assert!(page.contains("`target/gpu-caches` has no choices of tuning for cpu yet"), "{page}");
    assert!(place.path("target/gpu-caches/cpu").is_dir());
    // Another one of the day does not replace it.
    let again = place.run(&[SMALL.as_slice(), &["--minutes", "0.01"]].concat());
    assert!(again.stdout.trim_end().ends_with("-gpu-cpu-2.md"), "{again:?}");
}

#[test]
fn what_does_not_fit_into_the_time_is_left_out_by_name() {
    let place = Place::default();
    let (status, page) = page(&place, &["--minutes", "0.01"]);
    assert_eq!(status, Some(1), "{page}");
    assert!(page.contains("9 minutes and 0.01 were given"), "{page}");
    for what in [
        "parity in f32, LoRA of rank 0",
        "a step of nano, everything, batch 1",
        "cw-contest",
        "tweets on an encoder of two blocks, bf16, batch 32",
    ] {
        assert!(page.contains(&format!("- {what}: 0 s were left, and it takes")), "no {what} in {page}");
    }
}

#[test]
fn what_cannot_be_measured_with_is_refused_at_once() {
    let place = Place::default();
    for (options, said) in
        [(["--minutes", "0"], "a number of minutes above 0"), (["--peer-python", "python3"], "--peer")]
    {
        let outcome = place.run(&[&["bench", "gpu"], options.as_slice()].concat());
        assert!(outcome.status == Some(2) && outcome.stderr.contains(said), "{outcome:?}");
    }
    place
        .run(&["bench", "gpu", "--device", "tch:cpu"])
        .assert_refusal(&["`tch:cpu` is not in this build", "features tch"]);
}
