//! Models in the programs that read them. `tests/interop.sh` installs the programs and runs these tests; without
//! `INTEROP_PYTHON`, an interpreter that has them, they are skipped.

use crate::dynamo_text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use undertone_testing::{shared, skipped};
use undertone_tests::runs::two_tasks;
use undertone_tests::{Outcome, Place, json_lines, sets};

/// Clips, a Whisper and the Python with the programs.
struct Interop {
    place: Place,
    python: String,
    model: String,
}

fn python() -> Option<String> {
    let python = std::env::var("INTEROP_PYTHON").ok();
    if python.is_none() {
        skipped("INTEROP_PYTHON names no Python with the other programs");
    }
    python
}

impl Interop {
    fn new() -> Option<Self> {
        let python = python()?;
        let (model, data) = (shared("models/whisper-tiny.en")?, shared("data/speech-en")?);
        let place = Place::default();
        let list = std::fs::read_to_string(data.join("metadata.csv")).expect("a list");
        let rows: Vec<String> = list.lines().take(5).map(|row| format!("{}/{row}", data.display())).collect();
        place.write("clips.csv", rows.join("\n"));
        Some(Self { place, python, model: model.to_string_lossy().into_owned() })
    }

    /// Trains for a few steps, which is enough to change texts' weights and not the texts to nonsense.
    fn train(&self, name: &str, model: &str, tasks: &str, lr: &str) {
        let data = "batch_size: 2, workers: 1";
        let data = if tasks.is_empty() { format!("{data}, {CLIPS}") } else { data.to_owned() };
        let yaml = format!(
            "run: {{name: {name}, dir: runs}}
device: cpu
model: {{path: {}, {model}}}
data: {{{data}}}
{tasks}
train: {{max_steps: 4, optimizer: {{lr: {lr}, warmup_steps: 1}}, evaluate: {{every: 4}}, checkpoint: {{every: 4}}}}
",
            self.model
        );
        self.place.write("run.yaml", yaml);
        let phase = ["--phase", "1"];
        let phase = if tasks.is_empty() { &[] } else { phase.as_slice() };
        self.place.train("run.yaml", phase).succeeded();
    }

    fn export(&self, what: &[&str], out: &str) -> Outcome {
        let verify = ["--out", out, "--verify", "clips.csv", "--python", &self.python];
        self.place.run(&[&["export"], what, &verify].concat())
    }

    /// Exports a model, and checks that programs write all texts as they are written here.
    fn assert_equal(&self, what: &[&str], out: &str, programs: &[&str]) {
        self.assert_counts(what, out, programs, &["5 of 5"]);
    }

    /// Exports a model, and checks that programs write one of these numbers of texts as they are written here.
    fn assert_counts(&self, what: &[&str], out: &str, programs: &[&str], counts: &[&str]) {
        let table = self.export(what, out).stdout;
        for program in programs {
            let line = table.lines().find(|line| line.starts_with(program)).unwrap_or_default();
            assert!(counts.iter().any(|count| line.contains(count)), "{program}: {table}");
        }
    }
}

/// Sources of a run.
const CLIPS: &str = "train: {path: clips.csv}, valid: {path: clips.csv, limit: 1}";

/// Programs whose features are those of transformers. faster-whisper's differ, and with them now and then a comma.
const FOLDERS: [&str; 2] = ["transformers", "ctranslate2"];

#[test]
fn models_of_morse_code_are_read_by_transformers() {
    let Some(python) = python() else { return };
    let place = Place::default();
    let easy =
        ["duration_s=[4, 5]", "wpm=[20, 25]", "clean=1", "noise_only=0"].map(|key| format!("data.train.cw.{key}"));
    place.run(&[&["data", "synth", "--count", "4", "--out", "clips"], &sets(&easy)[..]].concat()).succeeded();
    for model in undertone::model::whisper::BUNDLED {
        let table = place.run(&["export", "--model", model, "--out", model, "--verify", "clips", "--python", &python]);
        for program in ["transformers", "ctranslate2"] {
            let line = table.stdout.lines().find(|line| line.starts_with(program)).unwrap_or_default();
            assert!(line.contains("4 of 4"), "{program}: {table:?}");
        }
    }
}

#[test]
fn whisper_tiny_en_is_read_elsewhere_as_it_is_here() {
    let Some(interop) = Interop::new() else { return };
    interop.assert_equal(&["--model", &interop.model], "tiny.en", &FOLDERS);
    let ggml = ["--model", &interop.model, "--format", "ggml", "--dtype", "q8_0"];
    interop.assert_equal(&ggml, "tiny.en.bin", &["whisper.cpp"]);
}

#[test]
fn a_lora_is_read_elsewhere_merged_and_by_itself() {
    let Some(interop) = Interop::new() else { return };
    interop.train(
        "lora",
        "trainable: lora, lora: {r: 4, lora_alpha: 8, target_modules: [q_proj, v_proj, fc1]}",
        "",
        "1.0e-4",
    );
    interop.assert_equal(&["--run", "runs/lora", "--merge", "--dtype", "f16"], "merged", &FOLDERS);
    interop.assert_equal(&["--run", "runs/lora", "--format", "peft"], "adapter", &["peft"]);
    // Back here, from the folder that PEFT reads.
    interop.assert_equal(&["--model", "adapter"], "again", &FOLDERS);
}

#[test]
fn a_task_is_read_elsewhere_merged() {
    let Some(interop) = Interop::new() else { return };
    let task = |name: &str| {
        format!(
            "  - name: {name}\n    lora: {{r: 4, lora_alpha: 8, target_modules: [q_proj, v_proj]}}\n    metrics: [wer]\n    data: {{train: {{path: clips.csv}}, valid: {{path: clips.csv, limit: 1}}}}\n"
        )
    };
    interop.train("tasks", "trainable: all", &format!("tasks:\n{}{}", task("one"), task("two")), "1.0e-4");
    interop.assert_equal(&["--run", "runs/tasks", "--task", "one", "--merge"], "one", &FOLDERS);
    let adapter = ["--run", "runs/tasks", "--task", "one", "--format", "peft"];
    interop.export(&adapter, "adapter").assert_refusal(&["--verify", "--merge"]);
}

#[test]
fn a_full_fine_tuning_is_read_elsewhere() {
    let Some(interop) = Interop::new() else { return };
    interop.train("full", "trainable: all", "", "1.0e-5");
    interop.assert_equal(&["--run", "runs/full", "--dtype", "f16"], "full", &FOLDERS);
    // whisper.cpp computes in f16, and after a few steps it is nearly a tie whether a clip ends with a comma or a full stop.
    let ggml = ["--run", "runs/full", "--format", "ggml", "--dtype", "f16"];
    interop.assert_counts(&ggml, "full.bin", &["whisper.cpp"], &["4 of 5", "5 of 5"]);
}

/// Exports a run as one folder, and checks that the script in it answers an input as `predict` does.
fn assert_script_answers(place: &Place, python: &str, run: &str, inputs: &[&[&str]]) {
    place.run(&["export", "--run", run, "--format", "dynamo", "--out", "folder"]).succeeded();
    for input in inputs {
        let here = place.run(&[&["predict", "--run", run, "--format", "json"], *input].concat()).succeeded().stdout;
        let mut script = Command::new(python);
        script.arg(place.path("folder/predict.py")).arg("folder").args(*input).current_dir(place.path("."));
        let there = Outcome::of(&mut script).succeeded().stdout;
        let [here, there]: [Vec<Value>; 2] = [here, there].map(|lines| json_lines(&lines));
        assert_eq!(here.len(), there.len(), "{input:?}");
        for (here, there) in here.iter().zip(&there) {
            assert_eq!((&here["task"], &here["text"]), (&there["task"], &there["text"]), "{input:?}");
            let near = |here: &Value, there: &Value| match (here.as_f64(), there.as_f64()) {
                (Some(here), Some(there)) => (here - there).abs() < 1e-4,
                (here, there) => here == there,
            };
            assert_eq!(here["tags"], there["tags"], "{here} {there}");
            for (label, score) in here["scores"].as_object().into_iter().flatten() {
                assert!(near(score, &there["scores"][label]), "{here} {there}");
            }
            assert!(near(&here["confidence"], &there["confidence"]), "{here} {there}");
            assert_eq!(here["none"], there["none"], "{here} {there}");
            assert!(near(&here["own_share"], &there["own_share"]), "{here} {there}");
            for (task, gate) in here["gates"].as_object().into_iter().flatten() {
                assert!(near(gate, &there["gates"][task]), "{here} {there}");
            }
        }
    }
}

#[test]
fn the_script_of_a_folder_answers_audio_as_predict_does() {
    let Some(python) = python() else { return };
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    place.train("two.yaml", &[]).succeeded();
    for (name, pitch) in [("low.wav", 0.16), ("high.wav", 0.36)] {
        let tone: Vec<f32> = (0..24_000).map(|t| (t as f32 * pitch).sin() * 0.5).collect();
        undertone::data::audio::write_wav(&place.path(name), &tone).expect("written");
    }
    let inputs: [&[&str]; 3] =
        [&["--audio", "low.wav"], &["--audio", "high.wav"], &["--audio", "low.wav", "--task", "high"]];
    assert_script_answers(&place, &python, "runs/two", &inputs);
}

#[test]
fn the_script_of_a_folder_answers_texts_as_predict_does() {
    let Some(python) = python() else { return };
    let place = dynamo_text::place();
    place.train("text.yaml", &["--set", "router.words=2"]).succeeded();
    let context = "se and se and se hello and a b c d";
    let inputs: [&[&str]; 6] = [
        &["--text", "a bad row", "--task", "tone"],
        &["--text", "a b", "--context", context, "--task", "where"],
        &["--text", "hello a world and hello", "--task", "names"],
        &["--text", "world and hello", "--task", "turn"],
        &["--text", "hello world", "--context", context],
        &["--text", "c d", "--context", context],
    ];
    assert_script_answers(&place, &python, "runs/four", &inputs);
}

/// Runs the Python of the card in a folder on inputs of ours, and returns what it prints of each.
fn answers_by_card(place: &Place, python: &str, folder: &str, inputs: &[(&str, &str)]) -> Vec<String> {
    let card = place.text(&format!("{folder}/README.md"));
    let code = card.split("```python\n").nth(1).and_then(|code| code.split("```").next()).expect("code");
    let answer = |(text, context): &(&str, &str)| {
        let quoted = |text: &str| serde_json::to_string(text).expect("a text");
        let words = serde_json::to_string(&text.split(' ').collect::<Vec<_>>()).expect("words");
        let code = code.replace("FOLDER", folder).replace("\"A text.\"", &quoted(text));
        let code = code.replace(r#"["A", "text", "."]"#, &words);
        let code = code.replace("\"A question?\"", &quoted(text)).replace("\"Its context.\"", &quoted(context));
        let mut script = Command::new(python);
        Outcome::of(script.args(["-c", &code]).current_dir(place.path("."))).succeeded().stdout.trim().to_owned()
    };
    inputs.iter().map(answer).collect()
}

#[test]
fn tasks_on_text_are_answered_elsewhere_as_their_cards_say() {
    let Some(python) = python() else { return };
    let place = dynamo_text::place();
    let yaml = place.text("text.yaml");
    place.write(
        "mean.yaml",
        yaml.replace("labels: [bad, good]", "labels: [bad, good], pooling: mean").replace("name: tone", "name: mean"),
    );
    let longer = ["--set", "phases.1.train.max_steps=80", "--set", "train.evaluate.every=0", "--phase", "1"];
    place.train("text.yaml", &longer).succeeded();
    place.train("mean.yaml", &[&longer[..], &["--set", "run.name=pooled"]].concat()).succeeded();
    let texts = [("bad and sad", ""), ("hello world", "")];
    let contexts = [("a b", "hello a world")];
    let sentences = [("a world hello", ""), ("se", "")];
    for (run, task, inputs) in [
        ("four", "tone", &texts[..]),
        ("pooled", "mean", &texts),
        ("four", "where", &contexts),
        ("four", "names", &sentences),
    ] {
        let run = format!("runs/{run}/phase1/{task}");
        let there = ["f32", "f16"].map(|dtype| {
            let out = format!("{task}-{dtype}");
            place.run(&["export", "--run", &run, "--merge", "--dtype", dtype, "--out", &out]).succeeded();
            answers_by_card(&place, &python, &out, inputs)
        });
        for ((text, context), there) in inputs.iter().cycle().zip(there.concat()) {
            let context: &[&str] = if context.is_empty() { &[] } else { &["--context", context] };
            let predict = [&["predict", "--run", &run, "--text", text][..], context].concat();
            let here = place.run(&predict).succeeded().stdout;
            let expected = match (task, here.trim()) {
                ("tone", label) => format!("'label': '{label}'"),
                ("mean", label) => format!("['{label}']"),
                ("names", tags) => {
                    // `world (B-name) hello (I-name)`: words outside are not listed.
                    let tags: BTreeMap<&str, &str> =
                        tags.split(") ").filter_map(|tag| tag.trim_end_matches(')').split_once(" (")).collect();
                    let tagged =
                        text.split(' ').map(|word| format!("('{word}', '{}')", tags.get(word).unwrap_or(&"O")));
                    format!("[{}]", tagged.collect::<Vec<_>>().join(", "))
                }
                (_, answer) => answer.to_owned(),
            };
            assert!(there.contains(&expected), "{task}: {text}: {here} here, {there} there");
        }
    }
}
