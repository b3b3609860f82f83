//! Evaluations that hold in a review: counts, groups, comparisons, hallucinations and the worst samples, as processes.

use serde_json::Value;
use undertone::data::audio::write_wav;
use undertone_tests::{CLIPS, Place, write_model};

/// The tiny experiment, and a manifest of eight recordings by two speakers, of which two have no text.
fn place() -> Place {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    let mut rows = "audio,text,speaker,snr\n".to_owned();
    for clip in 0..8 {
        let seconds = if clip < 4 { 1 } else { 2 };
        let tone = |n: usize| 0.3 * (n as f32 * (0.1 + 0.03 * clip as f32)).sin();
        let audio: Vec<f32> = (0..16_000 * seconds).map(tone).collect();
        write_wav(&place.path(&format!("{clip}.wav")), &audio).expect("written");
        let text = if clip % 4 == 0 { "" } else { "CQ DX DE K" };
        let speaker = if clip % 2 == 0 { "anna" } else { "bob" };
        rows += &format!("{clip}.wav,{text},{speaker},{}\n", 5 * clip);
    }
    place.write("general.csv", rows);
    place
}

fn trained(place: &Place) {
    place.train("tiny.yaml", &["--set", "train.max_steps=6"]).succeeded();
}

fn json(place: &Place, args: &[&str]) -> Value {
    place.run(&[&["eval"], args].concat()).succeeded().json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

const GENERAL: [&str; 4] = ["--config", "tiny.yaml", "--data", "general.csv"];

#[test]
fn the_alignment_of_texts_is_counted() {
    let place = place();
    let line = json(&place, &[&GENERAL[..], &["--set", "train.evaluate.metrics=[cer,wer]"]].concat());
    assert_eq!(line["samples"], 8);
    for (metric, symbols) in [("cer", 6 * 10), ("wer", 6 * 4)] {
        let counts = &line["errors"][metric];
        let [hits, substitutions, deletions, insertions] =
            ["hits", "substitutions", "deletions", "insertions"].map(|kind| number(&counts[kind]));
        assert_eq!(hits + substitutions + deletions, f64::from(symbols), "{metric}: {line}");
        let rate = (substitutions + deletions + insertions) / f64::from(symbols);
        assert!((number(&line[metric]) - rate).abs() < 1e-12, "{metric}: {line}");
    }
}

#[test]
fn recordings_are_grouped_by_duration_and_by_columns_of_their_list() {
    let place = place();
    let line = json(&place, &[&GENERAL[..], &["--by", "duration", "--by", "speaker", "--by", "snr"]].concat());
    let groups = line["groups"].as_array().expect("groupings");
    let counted = |at: usize| -> Vec<(&str, u64)> {
        let groups = groups[at]["groups"].as_array().expect("groups");
        groups
            .iter()
            .map(|it| (it["name"].as_str().expect("a name"), it["samples"].as_u64().expect("a count")))
            .collect()
    };
    assert_eq!(counted(0), [("below 2 s", 4), ("2 to 5 s", 4)]);
    assert_eq!(counted(1), [("anna", 4), ("bob", 4)]);
    assert_eq!(counted(2).len(), 8, "few numbers are a group each: {line}");
    for group in groups[1]["groups"].as_array().expect("groups") {
        let [low, high] = [0, 1].map(|end| number(&group["intervals"]["cer"][end]));
        let cer = number(&group["metrics"]["cer"]);
        assert!(low <= cer && cer <= high, "{group}");
    }
    // Recordings without text are all anna's.
    let hallucinated = |at: usize| groups[1]["groups"][at]["metrics"].get("hallucinated_words_per_minute");
    assert!(hallucinated(0).is_some() && hallucinated(1).is_none(), "{line}");
    let refused = place.run(&[&["eval"], &GENERAL[..], &["--by", "accent"]].concat());
    refused.assert_refusal(&["`accent`", "a column of the list", "duration"]);
}

#[test]
fn what_a_synthesiser_tells_is_a_group_too() {
    let place = place();
    let args = ["--config", "tiny.yaml", "--by", "wpm", "--set", "data.valid.samples=12"];
    let line = json(&place, &args);
    let groups = line["groups"][0]["groups"].as_array().expect("groups");
    let samples: u64 = groups.iter().map(|group| group["samples"].as_u64().expect("a count")).sum();
    assert_eq!((samples, groups.len()), (12, 4), "{line}");
    assert!(line.get("hallucinated_words_per_minute").is_none(), "every sample has a text: {line}");
}

/// What is synthesised into files is grouped like what is synthesised on the way.
#[test]
fn a_manifest_that_was_synthesised_has_what_is_known() {
    let place = place();
    let synth = ["data", "synth", "--config", "tiny.yaml", "--count", "12", "--out", "clips"];
    place.run(&synth).succeeded();
    let line = json(&place, &["--config", "tiny.yaml", "--data", "clips/manifest.jsonl", "--by", "wpm"]);
    assert_eq!(line["groups"][0]["groups"].as_array().map(Vec::len), Some(4), "{line}");
}

#[test]
fn words_over_recordings_without_text_are_hallucinated() {
    let place = place();
    let line = json(&place, &GENERAL);
    let words = number(&line["hallucinated_words_per_minute"]);
    // Two recordings without text, of 1 and 2 seconds: every word is 20 a minute.
    assert!(words >= 0.0 && (words / 20.0).fract() == 0.0, "{line}");
    assert!(line["intervals"].get("hallucinated_words_per_minute").is_some(), "{line}");
    // Noise by itself has no error rate, and this metric all the same.
    place.write("noise.csv", "audio,text\n0.wav,\n4.wav,\n");
    write_model(&place.path("model"));
    let noise =
        json(&place, &["--config", "tiny.yaml", "--data", "noise.csv", "--compare", "model", "--by", "duration"]);
    let compared = noise["comparison"]["metrics"].as_object().expect("metrics");
    assert_eq!(compared.keys().collect::<Vec<_>>(), ["hallucinated_words_per_minute", "loss"], "{noise}");
    assert_eq!(noise["hallucinated_words_per_minute"], words, "{noise}");
    assert!(noise["cer"].is_null(), "{noise}");
    place.write_experiment("path: noise.csv");
    place.train("tiny.yaml", &[]).assert_refusal(&["none of 2 recordings has a text"]);
}

#[test]
fn a_run_is_compared_with_what_it_began_with() {
    let place = place();
    trained(&place);
    let compared = |args: &[&str]| json(&place, &[&["--run", "runs/tiny"], args].concat());
    for data in [&["--split", "test"][..], &["--data", "general.csv"]] {
        let line = compared(&[data, &["--compare", "base"]].concat());
        let comparison = &line["comparison"];
        assert_eq!(comparison["with"], "base");
        let cer = &comparison["metrics"]["cer"];
        assert!((number(&line["cer"]) - number(&cer["value"]) - number(&cer["difference"])).abs() < 1e-12, "{line}");
        let [low, high] = [0, 1].map(|end| number(&cer["interval"][end]));
        let p_value = number(&cer["p_value"]);
        assert!(low <= high && p_value > 0.0 && p_value <= 1.0, "{line}");
        // The loss is no sum over samples.
        let loss = &comparison["metrics"]["loss"];
        assert!(loss["difference"].is_number() && loss.get("p_value").is_none(), "{line}");
        // The other model is that which the configuration names.
        let base = json(&place, &[&["--config", "tiny.yaml"], data].concat());
        assert!((number(&base["loss"]) - number(&loss["value"])).abs() < 1e-9, "{base} {line}");
        assert_eq!(compared(&[data, &["--compare", "base"]].concat()), line, "it is the same every time");
    }
}

#[test]
fn runs_and_models_are_compared_on_the_same_samples() {
    let place = place();
    trained(&place);
    write_model(&place.path("model"));
    let compared = |with: &str| json(&place, &["--run", "runs/tiny", "--compare", with])["comparison"].clone();
    let same = compared("runs/tiny");
    let cer = &same["metrics"]["cer"];
    assert_eq!((number(&cer["difference"]), number(&cer["p_value"])), (0.0, 1.0), "{same}");
    let of_model = compared("model");
    assert!(number(&of_model["metrics"]["loss"]["difference"]) != 0.0, "{of_model}");
    // A folder that was exported from the run is the run's model.
    place.run(&["export", "--run", "runs/tiny", "--out", "exported"]).succeeded();
    assert_eq!(number(&compared("exported")["metrics"]["loss"]["difference"]), 0.0);
    let run = |args: &[&str]| place.run(&[&["eval"], args].concat());
    run(&["--config", "tiny.yaml", "--compare", "base"]).assert_refusal(&["`base`", "name another one"]);
    run(&["--run", "runs/tiny", "--compare", "nowhere"]).assert_refusal(&["nowhere"]);
    // Before anything is evaluated.
    let both = ["--run", "runs/tiny", "--data", "nothing.csv", "--compare", "nowhere"];
    run(&both).assert_refusal(&["nowhere"]);
    run(&["--run", "runs/tiny", "--data", "nothing.csv"]).assert_refusal(&["nothing.csv"]);
    run(&["--run", "runs/tiny", "--data", "{synht: cw}"]).assert_refusal(&["synht"]);
}

/// Texts of both models are normalised alike, whatever spellings each has.
#[test]
fn a_rival_is_compared_with_the_spellings_of_the_first_model() {
    let place = place();
    write_model(&place.path("model"));
    write_model(&place.path("british"));
    place.write("british/normalizer.json", r#"{"DX": "DISTANCE", "dx": "distance"}"#);
    let english =
        ["--set", "data.normalizer=english", "--set", "model.source.config=null", "--set", "model.path=model"];
    let args = [&["eval"], &GENERAL[..], &english, &["--compare", "british"]].concat();
    let line = place.run(&args).succeeded().json();
    assert_eq!(line["comparison"]["with"], "british");
    assert_eq!(number(&line["comparison"]["metrics"]["cer"]["difference"]), 0.0, "the same model: {line}");
}

#[test]
fn the_page_shows_the_evaluation_with_the_worst_samples_and_their_audio() {
    let place = place();
    trained(&place);
    let page = || place.text("runs/tiny/report.html");
    assert!(!page().contains("Worst samples") && page().contains("95 % interval"), "the intervals of the validation");
    let args = ["--run", "runs/tiny", "--data", "general.csv", "--by", "speaker", "--compare", "base", "--report"];
    let line = json(&place, &args);
    let shown = page();
    for text in ["8 samples of general.csv", "By speaker", "Against base", "Worst samples", "<ins>"] {
        assert!(shown.contains(text), "{text} is not on the page");
    }
    // The audio is in the page, which may be moved.
    let record = place.json("runs/tiny/evaluation.json");
    let worst = record["worst"].as_array().expect("samples");
    assert!(!worst.is_empty() && worst.len() <= 8, "{record}");
    assert_eq!(shown.matches("src=\"data:audio/wav;base64,UklGR").count(), worst.len());
    assert!(worst.is_sorted_by_key(|sample| std::cmp::Reverse(sample["errors"].as_u64())), "{record}");
    let errors: u64 = worst.iter().map(|sample| sample["errors"].as_u64().expect("a count")).sum();
    let counts = &line["errors"]["cer"];
    let all: f64 = ["substitutions", "deletions", "insertions"].iter().map(|kind| number(&counts[kind])).sum();
    assert_eq!(errors as f64, all, "all samples with errors are among the worst twenty here");
    // The page is made again from the record.
    std::fs::remove_file(place.path("runs/tiny/report.html")).expect("a page");
    place.run(&["report", "runs/tiny"]).succeeded();
    assert_eq!(page(), shown);
    place.train("tiny.yaml", &["--set", "train.max_steps=4", "--set", "run.overwrite=true"]).succeeded();
    assert!(!place.path("runs/tiny/evaluation.json").exists(), "a new run has none");
    let nowhere = place.run(&["eval", "--config", "tiny.yaml", "--report"]);
    assert!(nowhere.status == Some(2) && nowhere.stderr.contains("--report"), "{nowhere:?}");
}
