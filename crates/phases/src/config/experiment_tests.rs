use super::*;
use crate::{Origin, SourceConfig, Split, Synthesised};
use std::path::PathBuf;
use undertone_data::loader::Workers;
use undertone_model::frozen::FrozenDtype;

impl Experiment {
    /// Loads a configuration from a text, for tests.
    pub(crate) fn of_yaml(yaml: &str, settings: &[&str]) -> Result<Self, ConfigError> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("test.yaml");
        std::fs::write(&file, yaml).expect("written");
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self::load(Some(&*file).filter(|_| !yaml.is_empty()), &settings)
    }
}

fn load(yaml: &str, settings: &[&str]) -> Result<Experiment, ConfigError> {
    Experiment::of_yaml(yaml, settings)
}

fn options(source: &SourceConfig) -> &undertone_data::options::Options {
    &source.synthesised().expect("a synthesiser").options
}

#[test]
fn layers_override_each_other_and_the_rest_is_default() {
    let yaml =
        "train: {max_steps: 5, optimizer: {lr: 1.0e-2, warmup_steps: 1}}\ndata: {train: {cw: {text: {cqww: 1.0}}}}";
    let experiment = load(yaml, &["train.max_steps=7", "data.workers=3", "model.path=some/dir"]).expect("loaded");
    assert_eq!(experiment.train.max_steps, Some(7));
    assert_eq!(experiment.train.optimizer.lr, 1e-2);
    assert_eq!(experiment.data.workers, Workers::Count(3));
    assert_eq!(experiment.model.path, Some("some/dir".into()));
    let text = &options(&experiment.data.train.0[0])["text"];
    assert_eq!(
        (&text["cqww"], &text["words"]),
        (&1.0.into(), &0.0.into()),
        "naming one kind of text leaves the others out"
    );
}

#[test]
fn judged_by_what_is_written_unless_something_else_is_said() {
    let result = |yaml: &str, settings: &[&str]| {
        let train = load(yaml, settings).expect(yaml).train;
        (train.evaluate.metrics, train.checkpoint.metric)
    };
    let (usual, words) = (vec!["cer".to_owned(), "wer".to_owned()], vec!["wer".to_owned()]);
    for yaml in ["", "train: {}", "train: {max_steps: 500, evaluate: {every: 5}, checkpoint: {every: 5}}"] {
        assert_eq!(result(yaml, &[]), (usual.clone(), "cer".into()), "{yaml}");
    }
    assert_eq!(result("train: {evaluate: {every: 5}}", &["train.checkpoint.metric=wer"]), (usual, "wer".into()));
    let of_words = (words, "wer".into());
    assert_eq!(result("train: {evaluate: {metrics: [wer]}, checkpoint: {metric: wer}}", &[]), of_words);
    assert_eq!(result("", &["train.evaluate.metrics=[wer]", "train.checkpoint.metric=wer"]), of_words);
    assert_eq!(result("", &["train.evaluate.metrics=[wer]"]), of_words);
    for (settings, culprit) in [
        (vec!["train.evaluate.metrics=[wer]", "train.checkpoint.metric=cer"], "`train.checkpoint.metric` is `cer`"),
        (vec!["train.evaluate.metrics=[]"], "`train.evaluate.metrics` is `empty`: name at least one metric"),
        (vec!["train.evaluate.metrics=[]", "train.checkpoint.metric=loss"], "name at least one metric"),
    ] {
        let error = load("", &settings).expect_err(culprit).to_string();
        assert!(error.contains(culprit), "{error}");
    }
    // Settings of parts of a run override those of the whole.
    let parts = "{1: {train: {evaluate: {every: 7}}}}";
    let tasks = load(&format!("{TASKS}phases: {parts}"), &[]).expect("loaded");
    assert_eq!(tasks.train, load("train: {optimizer: {warmup_steps: 1}}", &[]).expect("loaded").train);
    assert_eq!(load(&tasks.to_yaml(), &[]), Ok(tasks));
}

#[test]
fn a_task_is_not_called_as_a_loss_term_that_is_on() {
    let named = |name: &str| TASKS.replacen("name: a", &format!("name: {name}"), 1);
    for (name, term) in [("ctc", "loss.ctc=0.1"), ("elements", "loss.alignment.elements=0.1")] {
        load(&named(name), &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let error = load(&named(name), &[term]).expect_err(name).to_string();
        assert!(error.contains(&format!("task `{name}`")) && error.contains("loss term"), "{error}");
    }
}

#[test]
fn languages_are_given_by_code_or_by_name() {
    for given in ["de", "German", "de-DE"] {
        let experiment = load(&format!("data: {{language: {given}}}"), &[]).expect(given);
        assert_eq!(experiment.data.language, "de");
    }
}

#[test]
fn elements_of_lists_are_set_by_name_or_number() {
    let yaml = "train: {max_steps: 5, optimizer: {warmup_steps: 1}}\ntasks: [{name: a, data: &d {train: {synth: cw}, valid: {synth: cw}}}, {name: b, data: *d}]";
    let settings = ["tasks.b.train.max_steps=7", "tasks.0.data.train={path: x.csv}", "tasks.1.lora.r=3"];
    let experiment = load(yaml, &settings).expect("loaded");
    assert_eq!(experiment.tasks[1].train["max_steps"], 7);
    assert_eq!(
        (&experiment.tasks[0].data.train.0[0], experiment.tasks[0].train.len()),
        (&SourceConfig::files(PathBuf::from("x.csv")), 0)
    );
    assert_eq!(
        (experiment.tasks[1].lora.as_ref().map_or(0, |lora| lora.r), experiment.tasks[0].name.as_str()),
        (3, "a")
    );
    // Keys of environment variables have no capital letters.
    let renamed = load(&yaml.replace("name: b", "name: B"), &["tasks.b.weight=2"]).expect("loaded");
    assert_eq!(renamed.tasks[1].weight, 2.0);
    for (setting, culprit) in [("tasks.c.weight=2", "`c`"), ("tasks.2.weight=2", "`2`"), ("tasks.a.wait=2", "wait")] {
        let error = load(yaml, &[setting]).expect_err(setting).to_string();
        assert!(error.contains(culprit), "{error}");
    }
}

#[test]
fn the_tasks_losses_have_a_weight_in_phase_2_only_where_it_is_given() {
    let task = |yaml: &str, settings: &[&str]| {
        let phases = load(&format!("{{tasks: [{{name: a, data: &d {{train: {{synth: cw}}, valid: {{synth: cw}}}}}}, {{name: b, data: *d}}]{yaml}}}"), settings).expect("loaded").phases;
        [phases.router.losses.task, phases.router.losses.routing, phases.joint.losses.task]
    };
    assert_eq!(task("", &[]), [0.0, 1.0, 1.0]);
    assert_eq!(task(", phases: {2: {losses: {routing: 2}}, 3: {losses: {routing: 2}}}", &[]), [0.0, 2.0, 1.0]);
    assert_eq!(task("", &["phases.2.losses.entropy=0.5"]), [0.0, 1.0, 1.0]);
    assert_eq!(task("", &["phases.2.losses.task=0.5"]), [0.5, 1.0, 1.0]);
}

#[test]
fn an_adapter_has_a_long_and_a_short_spelling_and_is_recorded_by_one() {
    let tasks = |adapter: &str| {
        let data = "data: {train: {synth: cw}, valid: {synth: cw}}";
        format!("train: {{max_steps: 5, optimizer: {{warmup_steps: 1}}}}\ntasks: [{{name: a, {adapter}{data}}}]")
    };
    let (short, long) =
        ("lora: {r: 3, target_modules: [fc1]}, ", "adapter: {type: lora, r: 3, target_modules: [fc1]}, ");
    let [short, long] = [short, long].map(|adapter| load(&tasks(adapter), &[]).expect("loaded").to_yaml());
    assert_eq!(short, long);
    assert!(short.contains("  lora:\n    r: 3\n") && !short.contains("adapter:"), "{short}");
    assert_eq!(load(&tasks(""), &[]).expect("loaded").tasks[0].lora, Some(Default::default()));
    // In `model` a LoRA has targets if none are given, however it is spelled.
    let model = |adapter: &str| load(&format!("model: {{trainable: adapter, {adapter}}}"), &[]).expect("loaded").model;
    assert_eq!(model("adapter: {type: lora, r: 3}"), model("lora: {r: 3}"));
    assert_eq!(model("").lora.expect("a LoRA").target_modules, ["q_proj", "v_proj"]);
    for (yaml, culprits) in [
        (tasks("lora: {r: 3}, adapter: {type: lora}, "), ["`lora` and `adapter` are both given", "leave one out"]),
        ("model: {trainable: lora, lora: {}, adapter: {type: lora}}".into(), ["both given", "`model`"]),
        (tasks("adapter: {type: lore}, "), ["`lore` is none of the names here", "choose `lora`"]),
        (tasks("adapter: {r: 3}, "), ["adapter", "type"]),
        (tasks("adapter: {type: lora, r: 0}, "), ["task `a`", "`r` is 0"]),
        (tasks("lora: {target_modules: '*.query'}, "), ["task `a`", "`*.query`, which is neither a name"]),
        ("model: {adapter: {type: lora, r: 3}}".into(), ["`model.lora`", "`model.trainable: lora`"]),
    ] {
        let error = load(&yaml, &[]).expect_err(&yaml).to_string();
        assert!(culprits.iter().all(|culprit| error.contains(culprit)), "{yaml}: {error}");
    }
}

#[test]
fn the_schema_has_both_keys_of_an_adapter() {
    let schema = Experiment::schema();
    for config in ["TaskConfig", "ModelConfig"] {
        let keys = &schema["$defs"][config]["properties"];
        assert!(keys["lora"].is_object() && keys["adapter"].is_object(), "{config}: {keys}");
        assert_eq!(schema["$defs"][config]["additionalProperties"], false);
    }
    assert_eq!(schema["$defs"]["Adapter"]["oneOf"][0]["properties"]["type"]["const"], "lora");
}

#[test]
fn resolved_yaml_reads_back_the_same() {
    let experiment = load("train: {max_steps: 5, optimizer: {warmup_steps: 1}}\ndata: {train: {samples: 3, stages: [{epochs: 2, cw: {wpm: [20, 25]}}]}}", &[]).expect("loaded");
    assert_eq!(load(&experiment.to_yaml(), &[]), Ok(experiment));
}

#[test]
fn what_validation_is_may_be_left_unsaid_or_be_a_part_of_the_training_data() {
    let said = |settings: &[&str]| load("data: {train: {path: x.csv}}", settings).map(|e| e.data.valid);
    let path = |name: &str| Some(SourceConfig::files(PathBuf::from(name)));
    assert_eq!(said(&["data.valid.path=y.csv"]), Ok(path("y.csv")));
    let part = load("data: {train: {path: x.csv}, valid: {part_of_train: 0.05}}", &[]).expect("loaded");
    assert_eq!(part.data.splits().sources(Split::Valid).expect("some")[0].to_string(), "x.csv (5 % of it)");
    assert_eq!(load(&part.to_yaml(), &[]), Ok(part));
    let unsaid = load("data: {train: {cw: {wpm: [20, 25]}}}", &[]).expect("loaded");
    assert_eq!(unsaid.data.valid, None);
    let other = &unsaid.data.splits().sources(Split::Valid).expect("some")[0];
    assert_eq!(options(other)["wpm"], serde_json::json!([20.0, 25.0]));
    assert_eq!(load(&unsaid.to_yaml(), &[]), Ok(unsaid));
    let fewer = load("", &["data.valid.samples=8"]).expect("loaded");
    assert_eq!(fewer.data.valid, Some(made(8)));
}

/// Returns the default source with this number of samples.
fn made(samples: usize) -> SourceConfig {
    Origin::Synthesised(Synthesised { samples, ..Default::default() }).into()
}

const TASKS: &str = "train: {optimizer: {warmup_steps: 1}}\ntasks: [{name: a, data: &d {train: {synth: cw}, valid: {synth: cw}}}, {name: b, data: *d}]\n";

#[test]
fn tasks_are_judged_as_other_runs_are() {
    let experiment = load(&TASKS.replace(", valid: {synth: cw}", ""), &[]).expect("other samples");
    assert_eq!(
        experiment.tasks[0].data.splits().sources(Split::Valid).expect("some")[0].synthesised().expect("one").samples,
        64
    );
    for (valid, culprits) in [("", ["`data.valid`", "part_of_train"]), (", valid: {}", ["`data.valid`", "no data"])] {
        let yaml = TASKS.replace("{synth: cw}, valid: {synth: cw}", &format!("{{path: x.csv}}{valid}"));
        let error = load(&yaml, &[]).expect_err("refused").to_string();
        assert!(error.starts_with("task `a`") && culprits.iter().all(|it| error.contains(it)), "{error}");
    }
    let yaml = TASKS
        .replace("valid: {synth: cw}", "valid: {part_of_train: 0.1}")
        .replace("train: {synth: cw}", "train: {path: x.csv}");
    let part = load(&yaml, &[]).expect("loaded");
    assert_eq!(load(&part.to_yaml(), &[]), Ok(part.clone()));
    // Configurations saved by versions that had default validation data for runs without tasks.
    let earlier = Experiment { data: DataConfig { valid: Some(made(64)), ..part.data.clone() }, ..part };
    assert_eq!(earlier.validate(), Ok(()));
}

#[test]
fn settings_that_nothing_reads_are_refused() {
    for (more, culprit) in [
        ("router: {hidden: [], dropout: 0.2}", "`router.dropout`"),
        ("phases: {2: {gates: hard}}", "`phases.2.gates`"),
        ("phases: {2: {gates: gumbel}, 3: {gates: soft, gumbel: {floor: 0.2}}}", "`phases.2.gates`"),
        (
            "router: {learn_temperature: false}\nphases: {3: {losses: {temperature: 1}}}",
            "`phases.3.losses.temperature`",
        ),
        ("phases: {3: {train: {compute: f32, loss_scale: {initial: 2}}}}", "`train.loss_scale.initial`"),
    ] {
        let error = load(&format!("{TASKS}{more}"), &[]).expect_err(more).to_string();
        assert!(error.contains(culprit), "{error}");
    }
    for more in [
        "router: {top_k: 1, gates: top_k}",
        "router: {top_k: 1}\nphases: {3: {gates: top_k}}",
        "phases: {3: {gumbel: {floor: 0.2}}}",
        "phases: {2: {gates: gumbel, losses: {task: 1}}, 3: {gates: soft, gumbel: {floor: 0.2}}}",
        "phases: {2: {train: {compute: f32}}, 3: {train: {compute: f16, loss_scale: {initial: 2}}}}",
    ] {
        let experiment = load(&format!("{TASKS}{more}"), &[]).expect(more);
        assert_eq!(load(&experiment.to_yaml(), &[]), Ok(experiment));
    }
}

#[test]
fn a_folder_says_what_it_is_where_the_configuration_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("config.json"), r#"{"model_type": "bert"}"#).expect("written");
    let path = format!("model.path={}", dir.path().display());
    let refused = load("", &[&path]).expect_err("a text encoder needs tasks").to_string();
    assert!(refused.contains("is for text"), "{refused}");
    let given = load("", &[&path, "model.backbone=whisper"]).expect("what is given wins");
    assert_eq!(given.model.backbone, Architecture::WHISPER);
    let refused = given.load_whisper(&Device::default()).expect_err("another architecture").to_string();
    assert!(
        refused.ends_with("a model of type `bert`, and `model.backbone` is `whisper`: set it to `bert`"),
        "{refused}"
    );
    std::fs::write(dir.path().join("config.json"), r#"{"model_type": "moth"}"#).expect("written");
    let unknown = load("", &[&path]).expect_err("refused").to_string();
    assert!(
        unknown.contains("of type `moth`")
            && unknown.contains("bert, roberta, whisper, distilbert, xlm-roberta and camembert"),
        "{unknown}"
    );
}

#[test]
fn a_key_that_is_given_twice_is_refused() {
    for yaml in [
        "train: {max_steps: 200}\nseed: 1\ntrain: {log_every: 3}",
        "data: {batch_size: 2, batch_size: 3}",
        "base: &b {max_steps: 200}\ntrain:\n  <<: *b\n  log_every: 3\n  log_every: 4",
    ] {
        let error = load(yaml, &[]).expect_err("refused").to_string();
        assert!(error.contains("duplicate"), "{error}");
    }
}

#[test]
fn a_source_that_is_named_replaces_the_one_below() {
    let made = "data: {train: {synth: cw, samples: 5, cw: {clean: 1.0}}, valid: {synth: cw, samples: 2}}";
    let files = ["data.train={path: x.csv}", "data.valid={part_of_train: 0.1}"];
    let data = load(made, &files).expect("loaded").data;
    assert_eq!(data.train.0, [SourceConfig::files(PathBuf::from("x.csv"))]);
    assert!(data.valid.is_some());
    let samples = |source: &SourceConfig| source.synthesised().expect("a synthesiser").samples;
    let recorded = "data: {train: {path: x.csv, columns: {text: said}}, valid: {path: y.csv}}";
    let back = load(recorded, &["data.train={synth: cw, samples: 5}"]).expect("loaded").data;
    assert_eq!(samples(&back.train.0[0]), 5);
    // Without a name, keys are added to those that are there.
    let more = load(made, &["data.train={samples: 7}", "data.valid.samples=3"]).expect("loaded").data;
    assert_eq!((samples(&more.train.0[0]), options(&more.train.0[0]).contains_key("clean")), (7, true));
}

#[test]
fn a_file_of_brackets_is_refused_at_once() {
    for open in ["[", "{a: ", "a: [b, {c: "] {
        let begun = std::time::Instant::now();
        let error = load(&format!("train:\n  {}", open.repeat(100_000)), &[]).expect_err(open).to_string();
        assert!(error.contains("line 2 of") && error.contains("test.yaml"), "{error}");
        assert!(begun.elapsed().as_secs() < 5);
    }
}

#[test]
fn refusals_name_the_key_and_the_place() {
    let refused = |yaml: &str, settings: &[&str], culprits: &[&str]| {
        let error = load(yaml, settings).expect_err(yaml).to_string();
        for culprit in culprits {
            assert!(error.contains(culprit), "{error:?} does not name {culprit}");
        }
        assert!(!error.contains('\n'), "{error:?} is more than a sentence");
        assert!(!error.contains("::"), "{error:?} names a type of Rust");
    };
    for (yaml, culprits) in [
        ("trian: {max_steps: 5}", vec!["trian", "test.yaml"]),
        ("train: {max_stepz: 5}", vec!["train.max_stepz", "test.yaml"]),
        ("train: {max_steps: many}", vec!["train.max_steps", "test.yaml"]),
        ("train: {compute: f12}", vec!["train.compute", "f12"]),
        ("train: [", vec!["test.yaml"]),
        ("device: gpu", vec!["device", "gpu"]),
        ("data: {train: {cw: {snr_db: [10]}}}", vec!["data.train.cw.snr_db"]),
        ("data: {train: {cw: {wpm: [30, 10]}}}", vec!["data.train", "wpm"]),
        ("data: {train: {stages: [{epochs: 1, cw: {wpn: [1, 2]}}]}}", vec!["data.train", "stages[0]", "wpn"]),
        ("data: {augment: {noise: {p: 1}}}", vec!["data.augment", "recordings"]),
        ("data: {cache: {what: audio}}", vec!["data.cache", "recordings"]),
        ("data: {cache: {dir: kept}}", vec!["`data.cache.dir`", "`data.cache.what` is off"]),
        (
            "data: {cache: {what: encoder}, train: {path: x}, valid: {path: y}}",
            vec!["`data.cache.what: encoder`", "`data.pad: window`"],
        ),
        (
            "data: {cache: encoder, pad: window, augment: {spec_augment: {p: 1}}, train: {path: x}, valid: {path: y}}",
            vec!["`data.augment.spec_augment`", "encoder"],
        ),
        (
            "data: {cache: encoder, pad: window, pack: true, train: {path: x}, valid: {path: y}}",
            vec!["`data.pack`", "`data.cache.what: encoder`"],
        ),
        (
            "{loss: {alignment: {characters: 0.1}}, data: {cache: encoder, pad: window, train: [{path: x}, {synth: cw}], valid: {path: y}}}",
            vec!["`loss.alignment`", "`data.cache.what: encoder`"],
        ),
        ("loss: {alignment: {elements_layer: 1}}", vec!["`loss.alignment.elements_layer`", "elements`"]),
        ("data: {train: {path: x.csv}}", vec!["`data.valid`", "`path`", "`part:`", "part_of_train: 0.05"]),
        ("data: {train: [{path: x.csv}, {synth: cw}]}", vec!["`data.valid`", "part_of_train: 0.05"]),
        ("data: {train: {path: x.csv}, valid: {samples: 8}}", vec!["`data.valid`", "synth: cw"]),
        ("data: {train: {path: x.csv}, valid: {path: y.csv}, test: {samples: 8}}", vec!["`data.test`", "synth: cw"]),
        ("data: {valid: {part_of_train: 0.1}}", vec!["`data.valid`", "part_of_train", "recordings"]),
        ("data: {pack: true}", vec!["data.pack"]),
        (
            "data: {pack: true, previous_text: 1, train: {path: x}, valid: {path: y}}",
            vec!["data.pack", "data.previous_text"],
        ),
        (
            "{data: {previous_text: 0.5}, tasks: [{name: a, data: {train: {path: x.csv}, valid: {path: y.csv}}}]}",
            vec!["data.previous_text", "runs without `tasks`"],
        ),
        ("data: {group_by_length: true, valid: {path: x.csv}}", vec!["data.group_by_length"]),
        ("data: {max_bad_share: 0.1, train: {path: x.csv}}", vec!["data.max_bad_share", "on_bad_sample"]),
        ("data: {spellings: x.json}", vec!["data.spellings", "data.normalizer"]),
        ("data: {normalizer: english, spellings: x.json}", vec!["data.spellings", "`x.json`"]),
        (
            "model: {source: {config: {encoder_key_value_heads: 4}}}",
            vec!["`model.source.config`", "`encoder_key_value_heads` is 4", "which is 6"],
        ),
        (
            "model: {source: {config: {encoder_block: conformer, conv_kernel_size: 30}}}",
            vec!["`model.source.config`", "`conv_kernel_size` is 30: must be odd"],
        ),
        ("model: {source: {config: {encoder_block: convolution}}}", vec!["encoder_block", "conformer"]),
        ("model: {source: {grow_from: whisper}}", vec!["`model.source.grow_from` needs `model.source.config`"]),
        (
            "model: {source: {config: {}, grow_from: x}, tokenizer: {vocab_size: 300}}",
            vec!["`model.tokenizer`", "no `grow_from`"],
        ),
        (
            "model: {source: {config: {}, grow_from: x, initializer: local}}",
            vec!["`model.source.initializer`", "no `grow_from`"],
        ),
        (
            "model: {source: {config: {position_embeddings_type: rotary}, initializer: local}}",
            vec!["`model.source.initializer: local`", "absolute positions"],
        ),
        (
            "{model: {source: {config: {position_embeddings_type: rotary}}}, loss: {random_position: true}}",
            vec!["`loss.random_position`", "relative positions"],
        ),
        ("run: {name: a/b}", vec!["run.name"]),
        ("data: {valid: {synth: cw, path: x.csv}}", vec!["data.valid", "synth"]),
        ("train: {evaluate: {metrics: [bleu]}, checkpoint: {metric: bleu}}", vec!["bleu"]),
        (
            "{phases: {1: {train: {optimizer: {lr: abc}}}}, tasks: [{name: a, data: {train: {synth: cw}, valid: {synth: cw}}}]}",
            vec!["`phases.1.train`", "`optimizer.lr`", "`abc`"],
        ),
        (
            "{train: {checkpoint: {metric: loss}}, tasks: [{name: a, data: {train: {synth: cw}, valid: {synth: cw}}}]}",
            vec!["`train.checkpoint.metric`", "runs without `tasks`"],
        ),
        (
            "tasks: [{name: übersetzung, data: {train: {synth: cw}, valid: {synth: cw}}}]",
            vec!["`tasks.0.name`", "letters from a to z"],
        ),
    ] {
        refused(yaml, &[], &culprits);
    }
    refused("", &["train.max_steps"], &["--set train.max_steps"]);
    refused("", &["train.no_such=1"], &["train.no_such", "--set"]);
    refused("", &["router.hidden=[8"], &["--set router.hidden=[8", "not YAML", "quotes"]);
    assert!(matches!(Experiment::load(Some(Path::new("no/such.yaml")), &[]), Err(ConfigError::NoFile(_))));
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().join("empty.yaml");
    for text in ["", "# Nothing yet.\n", "{}"] {
        std::fs::write(&empty, text).expect("written");
        let error = Experiment::load(Some(&empty), &[]).expect_err("refused").to_string();
        assert!(error.contains("there is no key in it") && error.contains("empty.yaml"), "{error}");
    }
}

#[test]
fn what_is_frozen_is_held_where_something_is() {
    let held = "model.frozen_dtype=bf16";
    let refused = load("", &[held]).expect_err("nothing is frozen").to_string();
    assert!(
        refused.contains("`model.frozen_dtype` is bf16") && refused.contains("`model.trainable: all`"),
        "{refused}"
    );
    for part in ["encoder", "decoder", "lora"] {
        let loaded = load("", &[held, &format!("model.trainable={part}")]).expect(part);
        assert_eq!(loaded.model.frozen_dtype, FrozenDtype::Bf16);
        assert_eq!(load(&loaded.to_yaml(), &[]), Ok(loaded));
    }
    assert_eq!(load("", &[]).expect("loaded").model.frozen_dtype, FrozenDtype::F32);
    let tasks = load(TASKS, &["model.frozen_dtype=f16"]).expect("the backbone is frozen");
    assert_eq!(tasks.model.frozen_dtype, FrozenDtype::F16);
    let text = "model: {backbone: bert, path: bert, frozen_dtype: bf16}\ntasks: [{name: a, head: {type: classify, \
                labels: [x, y]}, lora: {target_modules: [query]}, data: {train: {path: a.tsv}, valid: {path: b.tsv}}}]";
    assert_eq!(load(text, &[]).expect("a text backbone").model.frozen_dtype, FrozenDtype::Bf16);
}
