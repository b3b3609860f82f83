//! Tests of the stages of an experiment.

use super::*;

/// Returns an experiment with two tasks.
fn two(phases: &str) -> Experiment {
    let train = "{max_steps: 50, optimizer: {warmup_steps: 1}}";
    let yaml = format!("{{train: {train}, tasks: [{{name: a}}, {{name: b}}], phases: {phases}}}");
    serde_norway::from_str(&yaml).expect("an experiment")
}

fn directories(stages: &[StageSpec]) -> Vec<String> {
    let below = |stage: &StageSpec| stage.directory.strip_prefix("runs/run").expect("in the run").to_owned();
    stages.iter().map(|stage| below(stage).display().to_string()).collect()
}

#[test]
fn a_run_has_the_stages_of_its_tasks() {
    assert_eq!(directories(&all_stages(&Experiment::default())), [""]);
    let baselines =
        ["baselines/head/a", "baselines/head/b", "baselines/shared", "baselines/distilled", "baselines/full"];
    let with = |first: &[&'static str]| [first, &["phase2", "phase3"], &baselines].concat();
    assert_eq!(directories(&all_stages(&two("{}"))), with(&["phase1/a", "phase1/b"]));
    assert_eq!(directories(&all_stages(&two("{1: {mixed: true}}"))), with(&["phase1/all"]));
    let own: Vec<Option<usize>> = all_stages(&two("{}")).iter().map(|stage| stage.task).collect();
    assert_eq!(own, [Some(0), Some(1), None, None, Some(0), Some(1), None, None, None]);
}

#[test]
fn changes_of_phase_task_and_baseline_come_one_after_the_other() {
    let mut experiment = two("{1: {train: {log_every: 3, accumulation: 2}}, baselines: {head: {log_every: 9}}}");
    experiment.tasks[1].train.insert("log_every".into(), 4.into());
    let of = |kind: StageKind, at: usize| {
        let config = stages(&experiment, kind)[at].train_config(&experiment.train, Some(70)).expect("valid");
        (config.max_steps, config.accumulation, config.log_every, config.checkpoint.metric)
    };
    let error = || "error".to_owned();
    assert_eq!(of(Phase::Adapters.into(), 0), (Some(70), 2, 3, error()));
    assert_eq!(of(Phase::Adapters.into(), 1), (Some(70), 2, 4, error()));
    assert_eq!(of(Baseline::Head.into(), 1), (Some(70), 2, 9, error()));
    assert_eq!(of(Baseline::Full.into(), 0), (Some(70), 2, 3, error()));
    let router = stages(&experiment, Phase::Router)[0].train_config(&experiment.train, None).expect("valid");
    assert_eq!((router.max_steps, router.accumulation), (Some(50), 1));
    let model = stages(&experiment, StageKind::Model)[0].train_config(&experiment.train, Some(70));
    assert_eq!(model.expect("valid"), experiment.train, "`train` is for it alone");
}

#[test]
fn a_baseline_of_all_tasks_takes_the_steps_of_phase_1_unless_told_otherwise() {
    let experiment = two("{baselines: {full: {max_steps: 20}}}");
    let steps = |baseline| {
        let spec = stages(&experiment, baseline).swap_remove(0);
        let config = spec.train_config(&experiment.train, Some(70)).expect("valid");
        (spec.steps_of_adapters, config.max_steps)
    };
    assert_eq!([Baseline::Shared, Baseline::Full].map(steps), [(true, Some(70)), (true, Some(20))]);
    assert!(!stages(&two("{1: {mixed: true}}"), Baseline::Full)[0].steps_of_adapters);
}

#[test]
fn a_key_concerns_the_stages_whose_result_it_affects() {
    let experiment = two("{}");
    let concerned = |key: &str| {
        let all = all_stages(&experiment);
        directories(&all.into_iter().filter(|stage| stage.concerns(key)).collect::<Vec<_>>()).join(" ")
    };
    let everywhere = concerned("seed");
    assert_eq!(everywhere.split(' ').count(), 9);
    assert_eq!(concerned("router.tap"), everywhere);
    assert_eq!(concerned("router.hidden"), "phase2 phase3");
    assert_eq!(concerned("phases.2.losses.task"), "phase2");
    assert_eq!(concerned("phases.3.gates"), "phase3 baselines/distilled");
    let unrouted =
        "phase1/a phase1/b baselines/head/a baselines/head/b baselines/shared baselines/distilled baselines/full";
    assert_eq!(concerned("phases.1.train.log_every"), unrouted);
    assert_eq!(concerned("phases.baselines.head.lr"), "baselines/head/a baselines/head/b");
    assert_eq!(concerned("phases.baselines.full.lr"), "baselines/full");
    assert_eq!(
        concerned("tasks.a.train.lr"),
        "phase1/a baselines/head/a baselines/shared baselines/distilled baselines/full"
    );
    let of_all = "phase2 phase3 baselines/shared baselines/distilled baselines/full";
    assert_eq!(concerned("tasks.gone"), of_all);
    assert_eq!(
        concerned("tasks.b.lora.r"),
        "phase1/b phase2 phase3 baselines/head/b baselines/shared baselines/distilled baselines/full"
    );
}

#[test]
fn only_stages_that_train_adapters_keep_a_ratio_of_all_phases() {
    let mut experiment = two("{3: {lr: {router: 0.1}}}");
    experiment.train.optimizer.lora_plus_ratio = Some(4.0);
    let kept = |stage: &StageSpec| stage.optimizer(&experiment.train).lora_plus_ratio.is_some();
    let all = all_stages(&experiment);
    let with: Vec<StageSpec> = all.iter().filter(|stage| kept(stage)).cloned().collect();
    assert_eq!(directories(&with), ["phase1/a", "phase1/b", "phase3", "baselines/shared", "baselines/distilled"]);
    assert!(kept(&StageSpec::first(&Experiment::default())), "`train` is for it alone");
    let groups: Vec<usize> = all.iter().map(|stage| stage.optimizer(&experiment.train).groups.len()).collect();
    assert_eq!(groups, [0, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_stage_for_one_task_has_its_adapter_and_head_and_no_router() {
    let experiment = two("{}");
    let names = |stage: StageSpec| {
        let Description { adapters, heads, .. } = stage.description;
        let adapters: Vec<String> = adapters.into_iter().map(|adapter| adapter.name).collect();
        (adapters.join(" "), heads.into_iter().map(|head| head.name).collect::<Vec<_>>().join(" "))
    };
    let pair = |adapter: &str, head: &str| (adapter.to_owned(), head.to_owned());
    let joint = stages(&experiment, Phase::Joint).swap_remove(0);
    assert!(joint.is_routed() && !joint.only(1).is_routed());
    assert_eq!((names(joint.only(1)), names(joint)), (pair("b", "b"), pair("a b", "a b")));
    assert_eq!(names(stages(&experiment, Phase::Adapters)[1].only(1)), pair("b", "b"));
    assert_eq!(names(stages(&experiment, Baseline::Shared)[0].only(1)), pair("shared", "shared"));
    assert_eq!(names(stages(&experiment, Baseline::Full)[0].only(1)), pair("", "full"));
    assert_eq!(names(StageSpec::first(&Experiment::default()).only(0)), pair("", ""));
}
