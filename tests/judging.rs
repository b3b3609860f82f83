//! What a model is judged by.

use undertone_tests::{CLIPS, Place, change_tensors, write_model};

/// The tiny experiment from the model in `model`, judged by words.
fn judged() -> Place {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    write_model(&place.path("model"));
    place
}

const FROM_MODEL: [&str; 6] = [
    "--set", "model.source.config=null", "--set", "model.path=model", "--set", "train.evaluate.metrics=[cer,wer,loss]",
];

#[test]
fn spellings_travel_with_the_model_and_a_metric_without_them_says_so() {
    let place = judged();
    let spellings = r#"{"colour": "color"}"#;
    place.write("model/normalizer.json", spellings);
    let run = |more: &[&str]| place.run(more).succeeded();
    let english = [&FROM_MODEL[..], &["--set", "data.normalizer=english", "--set", "train.max_steps=3"]].concat();
    let train = [&["train", "--config", "tiny.yaml"], &english[..]].concat();
    let says = |text: &str| text.contains("has no spelling map") && text.contains("`data.spellings`");
    assert!(!says(&run(&train).stderr));
    assert_eq!(place.text("runs/tiny/best/normalizer.json"), spellings);
    let eval = ["eval", "--run", "runs/tiny"];
    assert!(!says(&run(&eval).stdout));
    run(&["export", "--run", "runs/tiny", "--out", "exported"]);
    assert_eq!(place.text("exported/normalizer.json"), spellings);
    assert!(!place.text("runs/tiny/report.html").contains("has no spelling map"));
    // Without them, in every place where the numbers stand.
    std::fs::remove_file(place.path("runs/tiny/best/normalizer.json")).expect("removed");
    std::fs::rename(place.path("model/normalizer.json"), place.path("spellings.json")).expect("moved");
    let outcome = run(&eval);
    let line = outcome.json();
    let remarks = line["remarks"].as_array().into_iter().flatten();
    let said = remarks.filter_map(serde_json::Value::as_str).any(says);
    assert!(says(&outcome.stderr) && said, "{outcome:?}");
    assert!(says(&run(&[&train[..], &["--set", "run.overwrite=true"]].concat()).stderr));
    assert!(
        says(&place.text("runs/tiny/summary.json"))
            && place.text("runs/tiny/report.html").contains("has no spelling map")
    );
    // A file by itself does as well, and from then on is the model's own.
    let named = ["--set", "data.spellings=spellings.json", "--set", "run.overwrite=true"];
    assert!(!says(&run(&[&train[..], &named].concat()).stderr));
    assert_eq!(place.text("runs/tiny/best/normalizer.json"), spellings);
    place.write("spellings.json", "[1]");
    place.run(&[&train[..], &named].concat()).assert_refusal(&["spellings.json", "JSON object of strings"]);
}

#[test]
fn a_model_with_a_bias_that_is_no_number_is_not_judged_by_a_finite_loss() {
    let place = judged();
    let eval = [&["eval", "--config", "tiny.yaml"], &FROM_MODEL[..]].concat();
    let loss = || place.run(&eval).succeeded().json()["loss"].as_f64();
    assert!(loss().is_some());
    change_tensors(&place.path("model/model.safetensors"), |tensors| {
        let bias = tensors.get_mut("model.encoder.layers.0.self_attn.q_proj.bias").expect("a bias");
        bias.data.fill(f32::NAN);
    });
    assert_eq!(loss(), None);
}
