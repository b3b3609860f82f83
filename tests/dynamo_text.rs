//! A DYNAMO run on text as a user sees it: a head of each kind over one small BERT.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use undertone_tests::model_folder::{copy_folder, read_json};
use undertone_tests::reference::fixture;
use undertone_tests::toys::logged;
use undertone_tests::{Outcome, Place, tensors};

const TASKS: [&str; 4] = ["tone", "where", "names", "turn"];

/// Four tasks on records that a reader could tell apart by their words.
fn yaml() -> String {
    let task = |name: &str, head: &str, file: &str, metrics: &str| {
        format!(
            "  - name: {name}
    head: {{type: {head}}}
    lora: {{r: 2, lora_alpha: 4, lora_dropout: 0.1, target_modules: [query, dense]}}
    metrics: [{metrics}]
    data: {{train: {{{file}}}, valid: {{{file}, limit: 4}}, test: {{{file}}}}}
"
        )
    };
    format!(
        "run: {{name: four, dir: runs}}
device: cpu
model: {{backbone: bert, path: bert}}
data: {{batch_size: 4, eval_batch_size: 3, workers: 1}}
tasks:
{}{}{}{}router: {{tap: 1, hidden: [8]}}
train:
  log_every: 1
  optimizer: {{lr: 1.0e-2, warmup_steps: 1}}
  evaluate: {{every: 3}}
  checkpoint: {{every: 2}}
phases:
  1: {{train: {{max_steps: 6}}}}
  2: {{train: {{max_steps: 6}}}}
  3: {{train: {{max_steps: 6}}}}
",
        task("tone", "classify, labels: [bad, good], max_length: 16", "path: tone.tsv", "accuracy, macro_f1"),
        task("where", "span, max_length: 12, doc_stride: 3", "path: where.jsonl", "f1, exact_match"),
        task("names", "tag, labels: [O, B-name, I-name], max_length: 16", "path: names.conll", "entity_f1"),
        task(
            "turn",
            "seq2seq, layers: 1, heads: 2, ffn: 32, max_source: 16, max_target: 12",
            "path: turn.txt, target_path: turned.txt",
            "bleu, rouge1, rouge2, rouge_l, cer, wer, exact"
        ),
    )
}

/// Where `text.yaml` and its data are.
pub fn place() -> Place {
    let place = Place::default();
    copy_folder(&fixture("text/bert"), &place.path("bert"), &[]);
    place.write("text.yaml", yaml());
    place.write("tone.tsv", "a bad row\tbad\nsad\tbad\nhello world\tgood\nhello hello\tgood\nbad and sad\t0\n");
    let spans: Vec<String> = ["hello a world and hello b c d hello", "a hello", "se and se and se hello and a b c d"]
        .iter()
        .map(|context| {
            let start = context.find("hello").expect("an answer");
            serde_json::json!({"question": "a b", "context": context,
                               "answers": {"text": ["hello"], "answer_start": [start]}})
            .to_string()
        })
        .collect();
    place.write("where.jsonl", spans.join("\n"));
    place.write("names.conll", "a\tO\nworld\tB-name\nhello\tI-name\n\nworld\tB-name\nand\tO\n\nse\tO\n\n");
    place.write("turn.txt", "a b\nhello world\nc d\nworld and hello\n");
    place.write("turned.txt", "b a\nworld hello\nd c\nhello and world\n");
    place
}

fn train(place: &Place, more: &[&str]) -> Outcome {
    place.train("text.yaml", more)
}

fn trained(place: &Place, more: &[&str]) -> Outcome {
    train(place, more).succeeded()
}

/// Names and keys are those that PEFT itself wrote for an adapter with these targets on this backbone, above the tap; that
/// matrices under those names mean the same is what `parity_lora.rs` tests.
fn assert_saved_like_peft(adapter: &Path) {
    let names = |file: &Path| tensors(file).into_keys().collect::<BTreeSet<_>>();
    let theirs = names(&fixture("text/lora/bert/adapter_model.safetensors"));
    let expected: BTreeSet<String> =
        theirs.into_iter().filter(|name| name.contains(".layer.1.") && !name.contains(".value.")).collect();
    assert!(!expected.is_empty() && names(&adapter.join("adapter_model.safetensors")) == expected);
    let keys =
        |file: &Path| -> BTreeSet<String> { read_json(file).as_object().expect("an object").keys().cloned().collect() };
    let known = keys(&fixture("text/lora/bert/adapter_config.json"));
    assert!(keys(&adapter.join("adapter_config.json")).is_subset(&known));
}

/// Texts are grouped by their number of words and by columns of their file; a text of several windows is one sample.
fn assert_groups(place: &Place) {
    place.write("by.csv", "text,label,by\na bad row,bad,ann\nsad,bad,bob\nhello world,good,ann\nhello hello,good,\n");
    let eval = |task: &str, more: &[&str]| place.run(&[&["eval", "--run", "runs/four", "--task", task], more].concat());
    let sizes = |task: &str, more: &[&str]| {
        let line = eval(task, more).succeeded().json();
        let groupings = line["groups"].as_array().expect("groupings").clone();
        let size = |group: &Value| format!("{}: {}", group["name"].as_str().expect("a name"), group["samples"]);
        let of = |grouping: Value| grouping["groups"].as_array().expect("groups").iter().map(size).collect();
        groupings.into_iter().map(of).collect::<Vec<Vec<String>>>()
    };
    let found = sizes("tone", &["--data", "by.csv", "--by", "words", "--by", "by"]);
    assert_eq!(found, [vec!["1: 1", "2: 2", "3: 1"], vec!["ann: 2", "bob: 1", "not given: 1"]]);
    assert_eq!(sizes("where", &["--by", "words"]), [["4: 1", "11: 1", "13: 1"]]);
    place.write("words.jsonl", r#"{"words": ["a", "world"], "tags": ["O", "B-name"]}"#);
    assert_eq!(sizes("names", &["--data", "words.jsonl", "--by", "words"]), [["2: 1"]]);
    place.run(&["analyze", "--run", "runs/four", "--by", "words"]).succeeded();
    eval("tone", &["--by", "speaker"]).assert_refusal(&["`speaker`", "words"]);
}

/// Tasks are written as transformers' models of an encoder with a head, whose names these are. What it has no such model for is
/// refused.
fn assert_whole_models(place: &Place) {
    let export = |more: &[&str]| place.run(&[&["export", "--out"][..], more].concat());
    let classify = ["bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"];
    let (span, tag) = (["qa_outputs.bias", "qa_outputs.weight"], ["classifier.bias", "classifier.weight"]);
    let base: BTreeSet<String> = {
        let shards = (1..=3).map(|shard| place.path(&format!("bert/model-{shard:05}-of-00003.safetensors")));
        let names = shards.flat_map(|shard| tensors(&shard).into_keys());
        names.filter(|name| ["bert.embeddings.", "bert.encoder."].iter().any(|part| name.starts_with(part))).collect()
    };
    for (task, class, head, labels) in [
        ("tone", "BertForSequenceClassification", classify.as_slice(), vec!["bad", "good"]),
        ("where", "BertForQuestionAnswering", &span, vec![]),
        ("names", "BertForTokenClassification", &tag, vec!["O", "B-name", "I-name"]),
    ] {
        export(&[task, "--run", "runs/four", "--task", task, "--merge"]).succeeded();
        let config = place.json(&format!("{task}/config.json"));
        assert_eq!(config["architectures"], serde_json::json!([class]));
        let named = |at: usize| config["id2label"][at.to_string()].as_str();
        assert!((0..=labels.len()).all(|at| named(at) == labels.get(at).copied()), "{config}");
        let written = tensors(&place.path(&format!("{task}/model.safetensors")));
        let expected = base.iter().cloned().chain(head.iter().map(|name| (*name).to_owned())).collect();
        assert_eq!(written.keys().cloned().collect::<BTreeSet<_>>(), expected, "{task}");
        let trained = tensors(&place.path("runs/four/phase3/best/heads.safetensors"));
        assert!(head.iter().all(|name| trained.values().any(|tensor| *tensor == written[*name])), "{task}");
    }
    let query = |folder: &str| {
        tensors(&place.path(&format!("{folder}/model.safetensors")))["bert.encoder.layer.1.attention.self.query.weight"]
            .clone()
    };
    assert_ne!(query("tone"), query("names"), "each has its adapter in the weights");
    // It is an encoder to begin another run with.
    let again = ["--set", "model.path=tone", "--set", "run.name=again", "--set", "phases.1.train.max_steps=2"];
    trained(place, &[&["--phase", "1"][..], &again].concat());
    let full = ["--run", "runs/four/baselines/full", "--task", "tone", "--dtype", "bf16"];
    export(&[&["full"][..], &full].concat()).succeeded();
    assert_ne!(query("tone"), query("full"));
    export(&[&["x", "--merge"][..], &full].concat()).assert_refusal(&["no adapter", "--merge"]);
    let of_run = |more: &[&str]| export(&[&["x", "--run", "runs/four"][..], more].concat());
    of_run(&["--task", "turn", "--merge"]).assert_refusal(&["`turn`", "`seq2seq`", "--format dynamo"]);
    of_run(&["--task", "tone"]).assert_refusal(&["--merge"]);
    of_run(&["--task", "tone", "--merge", "--format", "ggml"]).assert_refusal(&["reads text", "--format hf"]);
    of_run(&["--task", "tone", "--merge", "--verify"]).assert_refusal(&["reads text", "--verify"]);
    of_run(&["--task", "tone", "--merge", "--blend", "base:0.5"]).assert_refusal(&["a blend is of a Whisper"]);
}

/// Every answer says how many of the tasks' own inputs are as unlike them, and above `router.reject` that it belongs to one.
fn assert_none_of_the_tasks(place: &Place) {
    let predict = |run: &str, reject: &str, format: &str| {
        let reject = format!("router.reject={reject}");
        let line = ["predict", "--run", run, "--text", "sad", "--context", "a", "--format", format, "--set", &reject];
        place.run(&line)
    };
    let json = |run: &str, reject: &str| -> Value { predict(run, reject, "json").succeeded().json() };
    let own = json("runs/four", "0");
    let share = own["own_share"].as_f64().expect("a share");
    assert!(share > 0.0 && share <= 1.0 && own["none"] == false, "{own}");
    let none = json("runs/four", &format!("{}", (share + 1e-6).min(0.999_999)));
    assert_eq!((none["none"].as_bool(), none["own_share"].as_f64()), (Some(share < 0.999_999), Some(share)), "{none}");
    place.write("others.txt", "se se se se se se\n\nname name and name\n");
    let analyze = |others: &str| place.run(&["analyze", "--run", "runs/four", "--others", others]);
    let table = analyze("others.txt").succeeded().stdout;
    assert!(table.contains("and 2 of others.txt: area under the ROC curve") && table.contains("0.1 |"), "{table}");
    assert!(!table.contains("0.05 |"), "with 17 validation inputs nothing is below it: {table}");
    place.write("empty.txt", " \n");
    for odd in ["empty.txt", "missing.txt"] {
        analyze(odd).assert_refusal(&[odd]);
    }
    // A run that was trained before does not know its inputs until it is told to record them.
    for phase in ["phase2", "phase3"] {
        std::fs::remove_file(place.path(&format!("runs/four/{phase}/inputs.safetensors"))).expect("removed");
    }
    assert_eq!(json("runs/four", "0")["own_share"], Value::Null);
    predict("runs/four", "0.1", "text").assert_refusal(&["phase3", "--resume"]);
    analyze("others.txt").assert_refusal(&["`--others`", "--resume"]);
    trained(place, &["--phase", "all", "--resume"]);
    assert_eq!(json("runs/four", "0")["own_share"].as_f64(), Some(share), "the same again");
}

/// With a large `router.words` a text belongs to the task whose training texts are written like it.
fn assert_words_decide(place: &Place) {
    let predict = |more: &[&str]| {
        let line = ["predict", "--run", "runs/four", "--format", "json", "--set", "router.words=1000"];
        place.run(&[&line, more].concat())
    };
    let pair: &[&str] = &["--text", "a b", "--context", "se and hello a b c d"];
    for (text, task) in [(&["--text", "sad"][..], "tone"), (&["--text", "c d"], "turn"), (pair, "where")] {
        let answer = predict(text).succeeded().json();
        assert_eq!(answer["task"], task, "{text:?}: {answer}");
        assert!(answer["gates"][task] == 1.0 && answer["confidence"].as_f64() > Some(0.99), "{answer}");
    }
    // Evaluations ask the words, too, in training as afterwards.
    let accuracy = |weight: &str| {
        let eval = ["eval", "--run", "runs/four", "--split", "test", "--set", &format!("router.words={weight}")];
        let scores = place.run(&eval).succeeded().json();
        scores["routing_accuracy"].as_f64().expect("a share")
    };
    assert!(accuracy("1000") > accuracy("0") && accuracy("1000") > 0.8, "{} {}", accuracy("1000"), accuracy("0"));
    trained(place, &["--phase", "2", "--set", "run.overwrite=true", "--set", "router.words=1000"]);
    let untrained = logged(&place.path("runs/four/phase2"), "valid", "routing_accuracy")[0];
    assert!(untrained > 0.8, "a router before its first step chooses by words: {untrained}");
    std::fs::remove_file(place.path("runs/four/phase2/words.safetensors")).expect("removed");
    predict(pair).assert_refusal(&["`router.words`", "phase2", "--resume"]);
    trained(place, &["--phase", "2", "--resume", "--set", "router.words=1000"]);
    predict(pair).succeeded();
}

/// Texts of a file have the answers that each has by itself, in the order of the file.
fn assert_files_of_texts_are_answered(place: &Place) {
    let predict = |more: &[&str]| place.run(&[&["predict", "--run", "runs/four"], more].concat());
    let texts = ["hello world", "sad", "a b", "hello", "se and c"];
    let rows = texts.map(|text| serde_json::json!({"question": text, "context": "hello and a b c"}).to_string());
    place.write("asked.jsonl", rows.join("\n"));
    let lines = |more: &[&str]| predict(&[&["--texts", "asked.jsonl"], more].concat()).succeeded().stdout;
    let answers = lines(&["--format", "json", "--set", "data.eval_batch_size=2"]);
    assert_eq!(answers.lines().count(), texts.len(), "{answers}");
    for (text, line) in texts.iter().zip(answers.lines()) {
        let alone = predict(&["--format", "json", "--text", text, "--context", "hello and a b c"]).succeeded().stdout;
        let [alone, of_file] = [&alone, line].map(|json| serde_json::from_str::<Value>(json.trim()).expect("JSON"));
        assert_eq!((&alone["task"], &alone["text"]), (&of_file["task"], &of_file["text"]), "{text}");
        for number in ["confidence", "own_share"]
            .map(|name| [&alone[name], &of_file[name]].map(|value| value.as_f64().expect("a number")))
        {
            assert!((number[0] - number[1]).abs() < 1e-3, "{text}: {alone} {of_file}");
        }
    }
    let tasks: Vec<&str> = TASKS.to_vec();
    assert!(lines(&[]).lines().all(|line| tasks.contains(&line.split('\t').next().expect("a task"))), "{}", lines(&[]));
    place.write("tweets.csv", "id,tweet\n1,\"sad, a b\"\n2,\n3,hello\n");
    let tone = ["--texts", "tweets.csv", "--task", "tone"];
    let labels = predict(&[&tone[..], &["--columns", "text=tweet"]].concat()).succeeded().stdout;
    let labels: Vec<&str> = labels.split('\n').collect();
    let is_label = |label| ["bad", "good"].contains(&label);
    assert!(labels.len() == 4 && is_label(labels[0]) && labels[1].is_empty() && is_label(labels[2]), "{labels:?}");
    // Without a context there is no answer in one, and a task that reads one text reads none.
    for text in ["hello", "a b", "se and c", "name hello", "world d", "sad"] {
        let answer = predict(&["--format", "json", "--text", text, "--task", "where,tone"]).succeeded().json();
        assert_eq!((&answer["task"], &answer["gates"]["where"]), (&"tone".into(), &0.0.into()), "{answer}");
    }
    predict(&["--text", "hello", "--task", "where"]).assert_refusal(&["`where`", "--context"]);
    let unread = predict(&["--text", "a b", "--context", "c d", "--task", "turn"]);
    assert!(unread.stderr.contains("its context is not read"), "{unread:?}");
    assert_eq!(unread.stdout, predict(&["--text", "a b", "--task", "turn"]).succeeded().stdout);
    predict(&[&tone[..], &["--columns", "text=body"]].concat()).assert_refusal(&["tweets.csv", "body"]);
    predict(&["--texts", "tweets.txt", "--task", "tone"]).assert_refusal(&["tweets.txt"]);
    place.write("long.csv", format!("question,context\nhello,a b c\n{},a b c\n", "a b ".repeat(9)));
    predict(&["--texts", "long.csv", "--task", "where"]).assert_refusal(&["long.csv line 3", "the question has"]);
}

#[test]
fn heads_of_all_kinds_share_a_backbone_and_a_router() {
    let place = place();
    trained(&place, &["--phase", "all"]);
    let checkpoint =
        |stage: &str| tensors(&place.path(&format!("runs/four/{stage}/checkpoints/step-00000006/model.safetensors")));
    for (task, of_head) in TASKS.iter().zip(["out_proj", "qa_outputs", "classifier", "encoder_attn"]) {
        let trained = checkpoint(&format!("phase1/{task}"));
        assert!(trained.keys().any(|name| name.starts_with("heads.0.") && name.contains(of_head)), "{task}");
        assert!(trained.keys().all(|name| name.contains(".lora.") || name.starts_with("heads.")), "nothing else is");
        assert!(trained.keys().all(|name| !name.contains("embed_tokens")), "embeddings are the backbone's");
        assert!(trained.keys().all(|name| !name.contains("layer.0.")), "nothing is adapted below the tap");
        assert_saved_like_peft(&place.path(&format!("runs/four/phase3/best/adapters/{task}")));
    }
    let heads = tensors(&place.path("runs/four/phase3/best/heads.safetensors"));
    assert!(TASKS.iter().all(|task| heads.keys().any(|name| name.starts_with(&format!("{task}.")))), "{heads:?}");
    assert!(checkpoint("phase2").keys().all(|name| name.starts_with("router.")), "phase 2 trains the router alone");
    let metrics = place.text("runs/four/phase3/metrics.jsonl");
    for metric in ["tone.accuracy", "where.f1", "names.entity_f1", "turn.bleu", "routing_accuracy"] {
        assert!(metrics.contains(&format!("\"{metric}\"")), "{metric}");
    }
    for baseline in ["head", "shared", "full"] {
        trained(&place, &["--baseline", baseline]);
    }
    let analysis = place.run(&["analyze", "--run", "runs/four"]);
    assert_eq!(analysis.status, Some(0), "{analysis:?}");
    for row in ["learned", "uniform", "random", "head only", "shared adapter", "full fine-tuning", "copy, majority"] {
        assert!(analysis.stdout.contains(row), "{row} is not in {}", analysis.stdout);
    }
    let predict = |more: &[&str]| place.run(&[&["predict", "--run", "runs/four", "--format", "json"], more].concat());
    let answer = predict(&["--text", "hello world", "--context", "a hello and b"]);
    let answer = answer.json();
    let gates: f64 = TASKS.iter().map(|task| answer["gates"][task].as_f64().expect("a gate")).sum();
    assert!((gates - 1.0).abs() < 1e-5 && TASKS.contains(&answer["task"].as_str().expect("a task")), "{answer}");
    assert_none_of_the_tasks(&place);
    // One decision says whose head answers, and through which adapters: also where the task reads less of the text.
    let words = ["hello", "world", "a", "b", "name", "and"];
    for turn in 0..2 * words.len() {
        let text =
            |count| (0..count).map(|at: usize| words[(turn + at * at + at / 7) % words.len()]).collect::<Vec<_>>();
        let answer = predict(&["--text", &text(3).join(" "), "--context", &text(60).join(" ")]);
        let answer = answer.json();
        let gate = |task: &str| answer["gates"][task].as_f64().expect("a gate");
        let widest = TASKS.iter().max_by(|a, b| gate(a).total_cmp(&gate(b))).expect("a task");
        assert_eq!(answer["task"].as_str(), Some(*widest), "{answer}");
    }
    // One task of a stage that has a head for each answers by its own, and what is found of it is what `analyze` finds.
    let table = table(&analysis.stdout);
    for (column, stage) in [("shared adapter", "shared"), ("full fine-tuning", "full")] {
        let column = table[0].iter().position(|cell| cell == column).expect("a column");
        let run = format!("runs/four/baselines/{stage}");
        for (task, metric) in TASKS.iter().zip(["accuracy", "f1", "entity_f1", "cer"]) {
            let row = table.iter().find(|row| row[1].starts_with(&format!("{task}: {metric}"))).expect("a row");
            let judged = place.run(&["eval", "--run", &run, "--task", task, "--split", "test"]);
            let scores = judged.json();
            let score = scores[format!("{task}.{metric}")].as_f64().expect("a score");
            let [low, high] = [0, 1].map(|end| scores["intervals"][format!("{task}.{metric}")][end].as_f64());
            let interval = low.zip(high).map_or(String::new(), |(low, high)| format!(" [{low:.4}, {high:.4}]"));
            assert_eq!(format!("{score:.4}{interval}"), row[column], "{stage} on {task}: {scores}");
            let text = ["--text", "hello world", "--context", "a hello and b"];
            let answer = place.run(&[&["predict", "--run", &run, "--task", task][..], &text].concat());
            let is_label = ["bad", "good"].contains(&answer.stdout.trim());
            assert_eq!(is_label, *task == "tone", "another head has answered for {task} of {stage}: {answer:?}");
        }
    }
    assert_groups(&place);
    assert_whole_models(&place);
    let compared = place.run(&["eval", "--run", "runs/four", "--compare", "runs/four"]).succeeded();
    let compared = compared.json();
    let routing = &compared["comparison"]["metrics"]["routing_accuracy"];
    assert_eq!((routing["difference"].as_f64(), routing["p_value"].as_f64()), (Some(0.0), Some(1.0)), "{compared}");
    let relabelled = yaml().replace("labels: [bad, good]", "labels: [good, bad]");
    assert_ne!(relabelled, yaml());
    place.write("relabelled.yaml", relabelled);
    let first = ["train", "--config", "relabelled.yaml", "--phase", "1", "--set", "run.name=relabelled"];
    place.run(&first).succeeded();
    place
        .run(&["eval", "--run", "runs/four", "--task", "tone", "--compare", "runs/relabelled"])
        .assert_refusal(&["runs/relabelled", "its labels for `tone`"]);
    predict(&["--text", "-5 degrees", "--context", "- a hello"]).succeeded();
    let of_label = predict(&["--text", "hello", "--task", "tone"]).succeeded().json();
    let scores = ["bad", "good"].map(|label| of_label["scores"][label].as_f64().expect("a score"));
    let best = if scores[0] > scores[1] { "bad" } else { "good" };
    assert!((scores[0] + scores[1] - 1.0).abs() < 1e-6 && of_label["text"] == best, "{of_label}");
    place.run(&["serve", "--model", "runs/four"]).assert_refusal(&["runs/four", "several tasks", "--runs"]);
    place.run(&["eval", "--config", "text.yaml"]).assert_refusal(&["train it", "--run"]);
    predict(&["--audio", "tone.tsv"]).assert_refusal(&["takes text", "--text"]);
    assert_words_decide(&place);
    assert_files_of_texts_are_answered(&place);
    for odd in [&[][..], &["--text", "a", "--audio", "tone.tsv"], &["--audio", "tone.tsv", "--context", "a"]] {
        let refused = predict(odd);
        assert!(refused.status == Some(2) && refused.stderr.contains("--audio <AUDIO>"), "{refused:?}");
    }
}

#[test]
fn adapters_and_heads_train_to_the_same_bits_when_blocks_run_again() {
    let run = |checkpointing: &str| {
        let place = place();
        trained(&place, &["--phase", "1", "--set", &format!("train.gradient_checkpointing={checkpointing}")]);
        TASKS.map(|task| {
            tensors(&place.path(&format!("runs/four/phase1/{task}/checkpoints/step-00000006/model.safetensors")))
        })
    };
    assert!(run("true") == run("false"));
}

#[test]
fn a_head_learns_what_its_records_say() {
    let place = place();
    let longer = ["--set", "phases.1.train.max_steps=80", "--set", "train.evaluate.every=0", "--phase", "1"];
    let outcome = trained(&place, &longer);
    for metric in ["tone.accuracy", "where.f1", "names.entity_f1", "turn.exact"] {
        assert!(
            outcome.stdout.lines().any(|line| line.contains(metric) && line.ends_with("→ 1.0000")),
            "{metric}: {outcome:?}"
        );
    }
}

#[test]
fn an_interrupted_phase_ends_in_the_same_bits() {
    let (whole, parts) = (place(), place());
    trained(&whole, &[]);
    trained(&parts, &[]);
    let run = parts.path("runs/four");
    for stage in ["phase1/where", "phase1/turn", "phase3"] {
        std::fs::remove_file(run.join(stage).join("summary.json")).expect("deleted");
        std::fs::remove_dir_all(run.join(stage).join("checkpoints/step-00000006")).expect("deleted");
    }
    trained(&parts, &["--resume"]);
    for stage in ["phase1/where", "phase1/turn", "phase3"] {
        let file = format!("runs/four/{stage}/checkpoints/step-00000006/model.safetensors");
        let read = |place: &Place| place.bytes(&file);
        assert!(read(&whole) == read(&parts), "{file} differs");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    train(&place(), &["--set", "train.gradient_checkpointing.every=0"])
        .assert_refusal(&["`train.gradient_checkpointing.every` is 0"]);
    let place = place();
    let before = place.tree();
    for (old, new, culprits) in [
        ("type: classify", "type: classification", vec!["head", "classification"]),
        ("labels: [bad, good]", "labels: [bad]", vec!["task `tone`", "labels"]),
        ("labels: [bad, good]", "labels: [bad, fine]", vec!["task `tone`", "tone.tsv", "good"]),
        ("labels: [O, B-name, I-name]", "labels: [B-name, I-name]", vec!["task `names`", "`O`"]),
        ("labels: [O, B-name, I-name]", "labels: [O, name]", vec!["task `names`", "`name`", "B-"]),
        ("valid: {path: tone.tsv, limit: 4}", "valid: {}", vec!["task `tone`", "data.valid", "no data"]),
        ("data: {batch_size: 4", "data: {pad: window, batch_size: 4", vec!["data.pad", "speech"]),
        ("path: where.jsonl", "path: tone.tsv", vec!["task `where`", "tone.tsv"]),
        ("path: where.jsonl", "path: nowhere.jsonl", vec!["task `where`", "nowhere.jsonl"]),
        ("train: {path: tone.tsv}", "train: {}", vec!["task `tone`", "data.train", "no data"]),
        ("train: {path: tone.tsv}", "train: {synth: cw}", vec!["task `tone`", "`synth`"]),
        ("train: {path: tone.tsv}", "train: {hub: a/b}", vec!["task `tone`", "`split`"]),
        ("metrics: [entity_f1]", "metrics: [accuracy]", vec!["task `names`", "`accuracy`", "entity_f1"]),
        ("span, max_length: 12", "span, max_length: 200", vec!["task `where`", "max_length", "16"]),
        ("heads: 2", "heads: 5", vec!["task `turn`", "`heads`", "5"]),
        ("backbone: bert", "backbone: roberta", vec!["bert", "model.backbone"]),
        ("path: bert", "source: {bundled: whisper-nano-cw}", vec!["bundled"]),
        ("[query, dense]", "[q_proj]", vec!["task `tone`", "q_proj", "query"]),
        ("[query, dense]", "'*.query'", vec!["task `tone`", "*.query", "regular expression"]),
        // What is wrong may be the path alone.
        ("backbone: bert, path: bert", "path: brt", vec!["is for text", "`brt`", "config.json", "model.backbone"]),
    ] {
        assert!(yaml().contains(old), "{old}");
        place.write("odd.yaml", yaml().replacen(old, new, 1));
        place.train("odd.yaml", &[]).assert_refusal(&culprits);
    }
    std::fs::remove_file(place.path("odd.yaml")).expect("deleted");
    assert_eq!(place.tree(), before, "nothing is touched");
}

#[test]
fn a_missing_file_leads_to_the_head_of_its_configuration() {
    let place = Place::default();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/dynamo-text-small.yaml");
    let text = std::fs::read_to_string(shipped).expect("readable");
    place.write("small.yaml", text.replace("../shared/", "nowhere/at/all/"));
    let refused = place.train("small.yaml", &[]);
    refused.assert_refusal(&["nowhere/at/all/models/minilm-l6", "the comment at the head of `small.yaml`"]);
    // Without such a comment there is nothing to say.
    let bare: String = text.lines().skip_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    place.write("bare.yaml", bare.replace("../shared/", "nowhere/at/all/"));
    let refused = place.train("bare.yaml", &[]);
    assert!(refused.status == Some(2) && !refused.stderr.contains("the head of"), "{refused:?}");
}

#[test]
fn what_needs_no_model_has_no_loss() {
    let place = place();
    trained(&place, &["--phase", "1", "--set", "tasks.turn.metrics=[bleu, loss]"]);
    let analysis = place.run(&["analyze", "--run", "runs/four"]);
    let table = table(&analysis.stdout);
    let losses = table.iter().find(|row| row[1] == "turn: loss ↓").expect("a row");
    let of = |router: &str| losses[table[0].iter().position(|cell| cell == router).expect("a column")].as_str();
    assert!(of("oracle").parse::<f64>().is_ok_and(|loss| loss > 0.0), "{}", analysis.stdout);
    assert_eq!(["copy, majority", "lead sentence"].map(of), ["–", "–"]);
}

/// The cells of a table, without what marks the best; the first one of each row is empty.
fn table(stdout: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().replace('*', "")).collect();
    stdout.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}
