use super::*;
use crate::Experiment;
use proptest::prelude::*;

fn load(yaml: &str) -> Result<Experiment, ConfigError> {
    Experiment::of_yaml(yaml, &[])
}

fn text(yaml: &str) -> String {
    let migrated = migrated(yaml).expect(yaml);
    assert!(migrated.keeps_comments, "{yaml} becomes\n{}", migrated.text);
    assert_eq!(super::migrated(&migrated.text).map(|again| again.keys), Ok(Vec::new()), "once is enough");
    migrated.text
}

#[test]
fn keys_move_to_their_choice_and_the_rest_of_the_text_stays() {
    for (old, new) in [
        (
            "train:\n  optimizer: {lr: 1.0e-3, schedule: wsd, decay_share: 0.5, warmup_steps: 2} # fast\n  epochs: 2\n",
            "train:\n  optimizer: {lr: 1.0e-3, schedule: {type: wsd, decay_share: 0.5}, warmup_steps: 2} # fast\n  epochs: 2\n",
        ),
        (
            "# Mine.\ntrain:\n  optimizer:\n    schedule: wsd # stable\n    # A half.\n    decay_share: 0.5 # decays\n    lr: 1.0e-3\n\ndata: {batch_size: 4}\n",
            "# Mine.\ntrain:\n  optimizer:\n    schedule: {type: wsd, decay_share: 0.5} # stable\n    # A half.\n    # decays\n    lr: 1.0e-3\n\ndata: {batch_size: 4}\n",
        ),
        (
            "train:\n  compute: f16\n  loss_scale: {initial: 1024.0} # small\n",
            "train:\n  compute: {type: f16, initial_scale: 1024.0}\n  # small\n",
        ),
        (
            "train:\n  loss_scale:\n    # It overflows.\n    initial: 1024.0\n    growth_interval: 5",
            "train:\n  # It overflows.\n  compute: {type: auto, growth_interval: 5, initial_scale: 1024.0}\n",
        ),
        (
            "train: {guard: {on_nan: skip, on_spike: rollback, spike_factor: 4.5, limit: 3}}\n",
            "train: {guard: {on_nan: {type: skip, limit: 3}, on_spike: {type: rollback, factor: 4.5, limit: 3}}}\n",
        ),
        (
            "train: {guard: {spike_factor: 4.5}, early_stopping: {patience: 0}}\n",
            "train: {guard: {on_spike: {type: warn, factor: 4.5}}, early_stopping: null}\n",
        ),
        (
            "train:\n  optimizer:\n    name: adafactor\n    lr: 0.01\n    adafactor: {decay_rate: -0.7, scale_parameter: true}\n",
            "train:\n  optimizer:\n    name: adafactor\n    lr: 0.01\n    decay_rate: -0.7\n    scale_parameter: true\n",
        ),
        (
            "train: {optimizer: {lr_scaling: sqrt, base_batch: 16, groups: [{match: 'a, b', lr: 1.0e-3}]}}\n",
            "train: {optimizer: {lr_scaling: {type: sqrt, base_batch: 16}, groups: [{match: 'a, b', lr: 1.0e-3}]}}\n",
        ),
        (
            "router:\n  gates: top_k\n  top_k: 1\nphases:\n  2: {gates: gumbel, losses: {task: 1}}\n  3:\n    gumbel: {floor: 0.2} # cold\n",
            "router:\n  gates: {type: top_k, k: 1}\nphases:\n  2: {gates: {type: gumbel, floor: 0.2}, losses: {task: 1}}\n  3:\n    # cold\n    gates: {type: gumbel, floor: 0.2}\n",
        ),
        (
            "tasks:\n  - name: a\n    train: {optimizer: {schedule: wsd, decay_share: 0.5}}\n  - name: b # the other\n    train:\n      compute: f16\n      loss_scale: {initial: 8.0}\n",
            "tasks:\n  - name: a\n    train: {optimizer: {schedule: {type: wsd, decay_share: 0.5}}}\n  - name: b # the other\n    train:\n      compute: {type: f16, initial_scale: 8.0}\n",
        ),
        (
            "\u{feff}train:\r\n  compute: f16 # half\r\n  loss_scale:\t{initial: 8.0}\t# small\r\n",
            "train:\r\n  compute: {type: f16, initial_scale: 8.0} # half\r\n  # small\r\n",
        ),
        (
            "---\nrun:\n  name: |\n    a # b\n\n    c\n  dir: some\n    where\ntrain:\n  compute: f16\n  loss_scale: {initial: 8.0}\n...\n",
            "---\nrun:\n  name: |\n    a # b\n\n    c\n  dir: some\n    where\ntrain:\n  compute: {type: f16, initial_scale: 8.0}\n...\n",
        ),
        // A phase changes a key of the kind that the run chose.
        (
            "train: {compute: f16}\nphases:\n  2: {train: {loss_scale: {initial: 8.0}}}\n",
            "train: {compute: f16}\nphases:\n  2: {train: {compute: {initial_scale: 8.0}}}\n",
        ),
    ] {
        assert_eq!(text(old), new);
    }
}

#[test]
fn a_text_without_earlier_keys_is_not_touched() {
    for yaml in ["", "# Nothing.\n", "train: {optimizer: {schedule: {type: wsd}}, compute: bf16}\n"] {
        let expected = Migrated { text: yaml.into(), keys: Vec::new(), keeps_comments: true };
        assert_eq!(migrated(yaml), Ok(expected));
    }
    for (yaml, reason) in
        [("train: [".to_owned(), ""), ("[".repeat(2000), "more than 1000 brackets are open in line 1")]
    {
        let error = migrated(&yaml).expect_err(reason).to_string();
        assert!(error.starts_with(reason), "{error}");
    }
}

#[test]
fn earlier_keys_without_effect_are_refused_in_one_sentence() {
    for (yaml, expected) in [
        (
            "train: {optimizer: {decay_share: 0.5}}",
            "`train.optimizer.decay_share` is 0.5: it is for `optimizer.schedule: wsd`: leave it out",
        ),
        (
            "train: {optimizer: {adafactor: {beta1: 0.9}}}",
            "`train.optimizer.adafactor.beta1` is 0.9: it is for `optimizer.name: adafactor`",
        ),
        ("train: {optimizer: {name: adafactor, beta2: 0.999}}", "`train.optimizer.beta2` is 0.999: it is for AdamW"),
        ("train: {optimizer: {options: {a: 1}}}", "`train.optimizer.options` is"),
        (
            "train: {optimizer: {base_batch: 16}}",
            "`train.optimizer.base_batch` is 16: it is for `optimizer.lr_scaling`",
        ),
        (
            "train: {compute: f32, loss_scale: {initial: 2}}",
            "`train.loss_scale.initial` is 2: it is for `compute: f16`",
        ),
        (
            "train: {guard: {on_spike: ignore, spike_factor: 2}}",
            "`train.guard.spike_factor` is 2: `guard.on_spike: ignore`",
        ),
        ("train: {guard: {limit: 2}}", "`train.guard.limit` is 2: it counts skips and rollbacks"),
        ("train: {early_stopping: {min_delta: 0.1}}", "`train.early_stopping.min_delta` is 0.1: it is for"),
        ("phases: {2: {train: {guard: {limit: 2}}}}", "`phases.2.train`: `train.guard.limit` is 2"),
        ("tasks: [{name: a, train: {guard: {limit: 2}}}]", "task `a`: `train`: `train.guard.limit` is 2"),
        ("router: {top_k: 1}", "`router.top_k` is 1: it has no effect, for no `gates` are `top_k`"),
        (
            "phases: {3: {gates: soft, gumbel: {floor: 0.2}}}",
            "`phases.3.gumbel.floor` is 0.2: `phases.3.gumbel` has no effect",
        ),
        ("data: {cache: {max_bytes: 5000000}}", "`data.cache.max_bytes` is 5000000: `data.cache.what` is off"),
    ] {
        let error = load(yaml).expect_err(yaml).to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn a_size_is_given_for_everything_that_a_cache_keeps() {
    for what in ["audio", "features", "encoder"] {
        let yaml = format!(
            "model: {{trainable: decoder}}\ndata: {{pad: window, train: {{path: a.csv}}, valid: {{path: b.csv}}, cache: {{what: {what}, max_bytes: 5000000}}}}"
        );
        let cache = serde_json::to_value(load(&yaml).expect(what).data.cache).expect("JSON");
        assert_eq!((&cache["what"], &cache["max_bytes"]), (&what.into(), &5_000_000.into()));
    }
}

/// All keys of an earlier version with their defaults, as in the `config.yaml` of an earlier run.
#[test]
fn a_recorded_configuration_of_an_earlier_version_means_the_same() {
    let recorded = "train:
  compute: bf16
  loss_scale: {initial: 65536.0, growth_interval: 2000}
  guard: {on_nan: stop, on_spike: warn, spike_factor: 10.0, limit: 5}
  optimizer:
    name: adamw
    beta1: 0.9
    beta2: 0.98
    epsilon: 1.0e-8
    adafactor: {beta1: null, decay_rate: -0.8, epsilon1: 1e-30, epsilon2: 0.001, clip_threshold: 1.0, scale_parameter: false}
    schedule: cosine
    decay_share: 0.2
    lr_scaling: none
    base_batch: null
  early_stopping: {metric: null, greater_is_better: null, patience: 0, min_delta: 0.0}
data:
  cache: {dir: null, what: off, max_bytes: 20000000000}
router: {gates: hard, top_k: 2}
phases: {3: {gates: gumbel, gumbel: {temperature: 1.0, decay: 0.95, every: 10, floor: 0.1}}}
";
    assert_eq!(load(recorded), load("train: {compute: bf16}"));
    let empty = "train: {loss_scale: {}, optimizer: {adafactor: {}, options: {}}, early_stopping: {}, guard: {}}\nphases: {3: {gumbel: {}}}";
    assert_eq!(load(empty), load(""));
    let adafactor = recorded.replace("name: adamw", "name: adafactor");
    assert_eq!(load(&adafactor), load("train: {compute: bf16, optimizer: {name: adafactor}}"));
}

#[test]
fn settings_of_both_spellings_override_each_other() {
    let load = |yaml: &str, settings: &[&str]| {
        let loaded = Experiment::of_yaml(yaml, settings);
        loaded.map(|experiment| serde_json::to_value(experiment.train).expect("JSON"))
    };
    for (yaml, setting, path, expected) in [
        ("{schedule: wsd, decay_share: 0.5}", "schedule=linear", "/optimizer/schedule", "\"linear\""),
        ("{schedule: {type: wsd, decay_share: 0.5}}", "schedule=linear", "/optimizer/schedule", "\"linear\""),
        ("{schedule: {type: wsd, decay_share: 0.5}}", "schedule=wsd", "/optimizer/schedule/decay_share", "0.5"),
        ("{schedule: {type: wsd, decay_share: 0.5}}", "decay_share=0.4", "/optimizer/schedule/decay_share", "0.4"),
        ("{schedule: wsd, decay_share: 0.5}", "schedule.decay_share=0.4", "/optimizer/schedule/decay_share", "0.4"),
        ("{schedule: wsd}", "schedule={type: constant}", "/optimizer/schedule", "\"constant\""),
        ("{name: adamw, beta2: 0.999, lr: 0.5}", "name=adafactor", "/optimizer/lr", "0.5"),
        ("{name: adamw, beta2: 0.999}", "name=adafactor", "/optimizer/decay_rate", "-0.8"),
        ("{name: adafactor}", "adafactor.beta1=0.8", "/optimizer/beta1", "0.8"),
        ("{name: adafactor, decay_rate: -0.7}", "beta1=0.8", "/optimizer/decay_rate", "-0.7"),
    ] {
        let setting = format!("train.optimizer.{setting}");
        let train = load(&format!("train: {{optimizer: {yaml}}}"), &[&setting]).expect(yaml);
        assert_eq!(train.pointer(path).map(ToString::to_string).as_deref(), Some(expected), "{yaml}, {setting}");
    }
    let off = load("train: {early_stopping: {patience: 3, min_delta: 0.1}}", &["train.early_stopping.patience=0"]);
    assert_eq!(off.expect("loaded")["early_stopping"], serde_json::Value::Null);
    let tasks = "train: {optimizer: {warmup_steps: 1, schedule: {type: wsd, decay_share: 0.5}}, max_steps: 9}
tasks: [{name: a, train: {optimizer: {schedule: linear}}, data: {train: {synth: cw}, valid: {synth: cw}}}]
phases: {2: {train: {optimizer: {schedule: {decay_share: 0.4}}}}, 3: {train: {optimizer: {name: adafactor}}}}";
    assert!(load(tasks, &[]).is_ok(), "{:?}", load(tasks, &[]));
}

/// A value of each earlier key, or none.
fn earlier_keys() -> impl Strategy<Value = String> {
    let choose = |values: &'static [&'static str]| prop::sample::select(values);
    let optimizer = (
        choose(&["", "name: adamw, ", "name: adafactor, "]),
        choose(&["", "schedule: wsd, ", "schedule: linear, "]),
        choose(&["", "decay_share: 0.2, ", "decay_share: 0.5, "]),
        choose(&["", "lr_scaling: sqrt, ", "lr_scaling: none, "]),
        choose(&["", "base_batch: 16, ", "base_batch: null, "]),
        choose(&["", "adafactor: {decay_rate: -0.7}, ", "adafactor: {beta1: null}, "]),
        choose(&["", "beta2: 0.98, ", "beta2: 0.999, "]),
    );
    let loop_keys = (
        choose(&["", "compute: f16, ", "compute: f32, "]),
        choose(&["", "loss_scale: {initial: 8.0}, ", "loss_scale: {growth_interval: 2000}, "]),
        choose(&["", "on_nan: skip, ", "on_nan: stop, "]),
        choose(&["", "on_spike: ignore, ", "on_spike: rollback, "]),
        choose(&["", "spike_factor: 4.0, ", "spike_factor: 10, "]),
        choose(&["", "limit: 5, ", "limit: 2, "]),
        choose(&["", "early_stopping: {patience: 2, min_delta: 0.1}, ", "early_stopping: {patience: 0}, "]),
    );
    (optimizer, loop_keys, any::<bool>()).prop_map(|((a, b, c, d, e, f, g), (h, i, j, k, l, m, n), block)| {
        let optimizer = format!("{a}{b}{c}{d}{e}{f}{g}lr: 0.001");
        let guard = format!("{j}{k}{l}{m}");
        let train = format!("{h}{i}{n}guard: {{{guard}}}, optimizer: {{{optimizer}}}");
        let yaml = format!("train: {{{train}}}\n");
        if !block {
            return yaml;
        }
        let value: serde_norway::Value = serde_norway::from_str(&yaml).expect("YAML");
        let text = serde_norway::to_string(&value).expect("YAML");
        text.lines().enumerate().map(|(n, line)| format!("{line} # comment {n}\n")).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_migrated_text_is_the_same_experiment(yaml in earlier_keys()) {
        match (load(&yaml), migrated(&yaml)) {
            (Ok(experiment), Ok(found)) => {
                prop_assert_eq!(load(&found.text), Ok(experiment), "{}", found.text);
                prop_assert!(found.keeps_comments, "{}", yaml);
                prop_assert_eq!(migrated(&found.text).expect("migrated").keys, Vec::<String>::new());
            }
            (Err(refused), Err(also)) => prop_assert_eq!(refused, also),
            (loaded, found) => prop_assert!(loaded.is_err() && found.is_ok(), "{:?} {:?}", loaded, found),
        }
    }
}
