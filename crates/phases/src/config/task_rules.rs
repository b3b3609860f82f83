//! Validation of tasks and phases that needs neither data nor a model.

use super::adapter::key_of;
use super::error::ensure;
use super::stage_train::{ERROR, LOSS, phase_train, task_train};
use super::{AdapterPhase, ConfigError, CurriculumConfig, Parallel, PhasesConfig, TaskConfig};
use crate::backbone::Architecture;
use serde_json::Value;
use undertone_model::limits::MOST_BEAMS;
use undertone_report::GUMBEL_TEMPERATURE;
use undertone_tasks::GenerationSettings;
use undertone_train::{LAST_LOSS, TrainConfig};

/// Names that lines of `metrics.jsonl` or folders use for something else.
const RESERVED: [&str; 18] = [
    GUMBEL_TEMPERATURE, "step", "split", "loss", LAST_LOSS, "lr", "grad_norm", "loss_scale", "skipped_steps", "all",
    ERROR, "routing", "load_balance", "efficiency", "consistency", "entropy", "temperature", "confidence",
];

pub(crate) fn validate_phases(phases: &PhasesConfig, base: &TrainConfig) -> Result<(), ConfigError> {
    let PhasesConfig { adapters, router, joint, baselines } = phases;
    ensure(
        !adapters.mixed || adapters.parallel != Parallel::Tasks,
        || "`phases.1.parallel: tasks` gives each process tasks of its own, and `phases.1.mixed` trains all at once: leave one out",
    )?;
    for (phase, train) in [(1, &adapters.train), (2, &router.train), (3, &joint.train)] {
        phase_train(base, train).map_err(|e| format!("`phases.{phase}.train`: {e}"))?;
    }
    baselines.teacher.validate()?;
    for (name, train) in baselines.all() {
        let train = phase_train(base, &adapters.train).and_then(|base| phase_train(&base, train));
        train.map_err(|e| format!("`phases.baselines.{name}`: {e}"))?;
    }
    for (part, lr, _) in joint.lr.all() {
        let lr = lr.unwrap_or(1.0);
        ensure(lr.is_finite() && lr > 0.0, || format!("`phases.3.lr.{part}` is {lr}: it must be above 0"))?;
    }
    let ratio = router.train.get("optimizer").and_then(|optimizer| optimizer.get("lora_plus_ratio"));
    ensure(
        ratio.is_none_or(Value::is_null),
        || "`phases.2.train.optimizer.lora_plus_ratio`: phase 2 trains the router, and no adapter",
    )?;
    for (phase, losses) in [(2, &router.losses), (3, &joint.losses)] {
        for (name, weight) in losses.all() {
            let name = format!("phases.{phase}.losses.{name}");
            ensure(weight.is_finite() && weight >= 0.0, || format!("`{name}` is {weight}: it must be at least 0"))?;
        }
        let is_trained = losses.all().iter().any(|(_, weight)| *weight != 0.0);
        ensure(is_trained, || format!("`phases.{phase}.losses` are all 0: nothing would be trained"))?;
    }
    for (phase, temperature) in [(2, router.task_temperature), (3, joint.task_temperature)] {
        ensure(temperature.is_finite() && temperature >= 1.0, || {
            format!("`phases.{phase}.task_temperature` is {temperature}: it must be at least 1")
        })?;
    }
    ensure(
        joint.losses.task != 0.0,
        || "`phases.3.losses.task` is 0: adapters would not be trained; phase 2 trains a router alone",
    )?;
    for (phase, gates) in [(2, router.gates), (3, joint.gates)] {
        gates.validate().map_err(|rule| format!("`phases.{phase}.gates`: {rule}"))?;
    }
    let CurriculumConfig { from, to } = joint.curriculum;
    let are_shares = (0.0..=1.0).contains(&from) && (0.0..=1.0).contains(&to);
    Ok(ensure(are_shares, || "`phases.3.curriculum`: `from` and `to` are shares between 0 and 1")?)
}

pub(crate) fn validate_tasks(
    tasks: &[TaskConfig],
    backbone: Architecture,
    phase: &AdapterPhase,
    base: &TrainConfig,
) -> Result<(), ConfigError> {
    for (index, task) in tasks.iter().enumerate() {
        let name = &task.name;
        let is_of_folder = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure(is_of_folder, || {
            format!(
                "`tasks.{index}.name` is `{name}`: it names folders, so it has letters from a to z, figures, `-` and `_` only"
            )
        })?;
        ensure(!RESERVED.contains(&name.as_str()), || {
            format!("`tasks.{index}.name` is `{name}`, which records use for something else: choose another")
        })?;
        let is_taken = tasks[..index].iter().any(|other| other.name == *name);
        ensure(!is_taken, || format!("two tasks are called `{name}`: names tell them apart"))?;
        let adapter = task.adapter();
        let key = key_of(&adapter);
        adapter.validate().map_err(|e| format!("task `{name}`: `{key}`: {e}"))?;
        let (first, types) = (&tasks[0].name, [tasks[0].adapter().name(), adapter.name()]);
        ensure(types[0] == types[1], || {
            let [one, other] = types;
            format!(
                "tasks `{first}` and `{name}` have adapters of the types `{one}` and `{other}`: give all tasks adapters of one type"
            )
        })?;
        validate_task(task, backbone).map_err(|reason| format!("task `{name}`: {reason}"))?;
        if phase.mixed && !task.train.is_empty() {
            let reason = "`train` is for its own stage, and `phases.1.mixed` has none";
            return Err(format!("task `{name}`: {reason}").into());
        }
        task_train(base, phase, task).map_err(|e| format!("task `{name}`: `train`: {e}"))?;
        let weight = task.weight;
        ensure(weight.is_finite() && weight > 0.0, || {
            format!("task `{name}`: `weight` is {weight}: it must be above 0")
        })?;
    }
    Ok(())
}

/// Checks head, metrics and generation of a task. The error is the reason.
fn validate_task(task: &TaskConfig, backbone: Architecture) -> Result<(), String> {
    let TaskConfig { head, generation, .. } = task;
    head.validate(backbone.is_text())?;
    let registered = head.registered_metrics();
    let known = head.metrics().iter().chain(&registered).map(|metric| metric.name);
    let known: Vec<&str> = known.chain([LOSS]).collect();
    if let Some(metric) = task.metrics.iter().find(|metric| !known.contains(&metric.as_str())) {
        return Err(format!("there is no metric `{metric}` for its head: there are {}", known.join(", ")));
    }
    ensure(
        head.max_target().is_some() || *generation == GenerationSettings::default(),
        || "`generation` is for heads that write text, of type `seq2seq`",
    )?;
    ensure(
        generation.max_new_tokens != Some(0) && generation.num_beams > 0,
        || "`generation`: `max_new_tokens` and `num_beams` are at least 1",
    )?;
    let beams = generation.num_beams;
    ensure(beams <= MOST_BEAMS, || format!("`generation.num_beams` is {beams}: it must be at most {MOST_BEAMS}"))?;
    if let (Some(max_target), Some(tokens), true) = (head.max_target(), generation.max_new_tokens, backbone.is_text())
        && tokens >= max_target
    {
        let most = max_target - 1;
        return Err(format!("`generation.max_new_tokens` is {tokens}: `head.max_target` leaves room for {most}"));
    }
    let penalty = generation.length_penalty;
    ensure(penalty.is_finite() && (beams > 1 || penalty == 1.0), || {
        format!("`generation.length_penalty` is {penalty}: it needs `num_beams` above 1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GumbelConfig, JointPhase, PartRates};

    #[test]
    fn the_curriculum_and_the_temperature_follow_optimizer_steps() {
        let curriculum = CurriculumConfig::default();
        for (step, share) in [(0, 0.8), (50, 0.5), (100, 0.2), (200, 0.2)] {
            assert!((curriculum.at(step, 101) - share).abs() < 1e-9);
        }
        let gumbel = GumbelConfig { every: 2, ..Default::default() };
        assert_eq!([gumbel.at(0), gumbel.at(1), gumbel.at(2)], [1.0, 1.0, 0.95]);
        assert_eq!(gumbel.at(10_000), 0.1);
    }

    #[test]
    fn a_phase_changes_what_it_names() {
        let base = TrainConfig { max_steps: Some(500), ..Default::default() };
        let changes = serde_json::json!({"epochs": 2, "optimizer": {"lr": 0.5}});
        let train = phase_train(&base, changes.as_object().expect("an object")).expect("valid");
        assert_eq!((train.max_steps, train.epochs, train.optimizer.lr), (None, Some(2), 0.5));
        assert_eq!(train.optimizer.weight_decay, base.optimizer.weight_decay);
        let unknown = serde_json::json!({"learning_rate": 1});
        assert!(phase_train(&base, unknown.as_object().expect("an object")).is_err());
    }

    #[test]
    fn rates_of_parts_are_groups() {
        let rates = PartRates { router: Some(1e-2), heads: Some(1e-4), ..Default::default() };
        let groups = rates.groups();
        assert_eq!(groups.iter().map(|group| group.lr).collect::<Vec<_>>(), [Some(1e-2), Some(1e-4)]);
        assert!(groups[0].pattern.is_found_in("router.mlp.weight") && !groups[0].pattern.is_found_in("heads.0.router"));
        let base = TrainConfig { max_steps: Some(500), ..Default::default() };
        let joint = |lr| PhasesConfig { joint: JointPhase { lr, ..Default::default() }, ..Default::default() };
        assert_eq!(validate_phases(&joint(rates), &base), Ok(()));
        let adapters = AdapterPhase { mixed: true, parallel: Parallel::Tasks, ..Default::default() };
        let both = PhasesConfig { adapters, ..Default::default() };
        assert!(validate_phases(&both, &base).expect_err("refused").to_string().contains("`phases.1.parallel: tasks`"));
        let none = PartRates { adapters: Some(0.0), ..rates };
        let error = validate_phases(&joint(none), &base).expect_err("refused").to_string();
        assert!(error.contains("`phases.3.lr.adapters`"), "{error}");
        let mut plus = PhasesConfig::default();
        plus.router.train.insert("optimizer".into(), serde_json::json!({"lora_plus_ratio": 16}));
        let error = validate_phases(&plus, &base).expect_err("refused").to_string();
        assert!(error.contains("`phases.2.train.optimizer.lora_plus_ratio`"), "{error}");
    }

    #[test]
    fn tasks_need_names_of_their_own() {
        let task = |name: &str| TaskConfig { name: name.into(), ..Default::default() };
        let check = |tasks: &[TaskConfig]| {
            let base = TrainConfig { max_steps: Some(500), ..Default::default() };
            validate_tasks(tasks, Architecture::WHISPER, &AdapterPhase::default(), &base)
        };
        assert_eq!(check(&[task("a"), task("b")]), Ok(()));
        assert!(check(&[task("a"), task("a")]).is_err());
        assert!(check(&[task("a/b")]).is_err());
        let odd = TaskConfig { metrics: vec!["accuracy".into()], ..task("a") };
        assert!(check(&[odd]).expect_err("refused").to_string().contains("`accuracy`"));
    }
}
