use super::*;
use crate::Segments;

#[test]
fn refusals_name_the_key() {
    let mut valid = TrainConfig { max_steps: Some(1000), ..Default::default() };
    assert_eq!(valid.validate(), Ok(()));
    valid.evaluate.metrics = vec!["error".into(), "perplexity".into()];
    valid.checkpoint.metric = "error".into();
    assert_eq!(valid.validate(), Ok(()));
    type Spoil = fn(&mut TrainConfig);
    let cases: [(&str, Spoil); 26] = [
        ("max_steps", |c| c.max_steps = Some(0)),
        ("max_steps", |c| c.max_steps = Some(u64::MAX)),
        ("epochs", |c| (c.max_steps, c.epochs) = (None, Some(1 << 60))),
        ("accumulation", |c| c.accumulation = usize::MAX),
        ("loss_scale.initial", |c| c.loss_scale.initial = 1e300),
        ("loss_scale.initial", |c| c.loss_scale.initial = f64::NAN),
        ("epochs", |c| c.epochs = Some(2)),
        ("accumulation", |c| c.accumulation = 0),
        ("gradient_checkpointing.every", |c| {
            c.gradient_checkpointing = GradientCheckpointing::Segments(Segments { every: 0 });
        }),
        ("optimizer.lr", |c| c.optimizer.lr = f64::NAN),
        ("optimizer.beta2", |c| c.optimizer.beta2 = 1.0),
        ("optimizer.warmup_steps", |c| c.optimizer.warmup_steps = 1000),
        ("checkpoint.metric", |c| c.checkpoint.metric = "bleu".into()),
        ("checkpoint.keep_last", |c| c.checkpoint.keep_last = 0),
        ("evaluate.metrics", |c| c.evaluate.metrics.clear()),
        ("ema_decay", |c| c.ema_decay = Some(1.0)),
        ("loss_scale.initial", |c| c.loss_scale.initial = 0.5),
        ("loss_scale.growth_interval", |c| c.loss_scale.growth_interval = 0),
        ("guard.spike_factor", |c| c.guard.spike_factor = f64::NAN),
        ("early_stopping.greater_is_better", |c| c.early_stopping.greater_is_better = Some(true)),
        // Without effect.
        ("loss_scale.initial", |c| (c.compute, c.loss_scale.initial) = (Compute::F32, 1024.0)),
        ("loss_scale.growth_interval", |c| {
            (c.compute, c.loss_scale.growth_interval) = (Compute::Bf16, 10);
        }),
        ("guard.spike_factor", |c| (c.guard.on_spike, c.guard.spike_factor) = (OnSpike::Ignore, 3.0)),
        ("guard.limit", |c| c.guard.limit = 1),
        ("early_stopping.metric", |c| c.early_stopping.metric = Some("error".into())),
        ("early_stopping.min_delta", |c| c.early_stopping.min_delta = 0.1),
    ];
    for (key, spoil) in cases {
        let mut config = valid.clone();
        spoil(&mut config);
        assert_eq!(config.validate().expect_err(key).key, key);
    }
}

#[test]
fn what_is_inherited_may_be_without_effect() {
    let mut base = TrainConfig { compute: Compute::F16, max_steps: Some(1000), ..Default::default() };
    base.loss_scale.initial = 1024.0;
    (base.guard.on_nan, base.guard.limit, base.early_stopping.patience) = (OnNan::Skip, 2, 3);
    base.early_stopping.min_delta = 0.1;
    assert_eq!(base.validate(), Ok(()));
    let mut part = TrainConfig { compute: Compute::F32, ..base.clone() };
    (part.guard.on_nan, part.early_stopping.patience) = (OnNan::Stop, 0);
    assert_eq!(part.validate_beside(&base), Ok(()));
    assert_eq!(part.validate().expect_err("without effect").key, "loss_scale.initial");
    part.early_stopping.min_delta = 0.2;
    assert_eq!(part.validate_beside(&base).expect_err("its own").key, "early_stopping.min_delta");
}

#[test]
fn what_decides_has_a_direction_or_the_run_does_not_begin() {
    let mut config = TrainConfig::default();
    let of = |config: &TrainConfig| config.directions(direction_of);
    let both = |direction| Ok(Directions { deciding: direction, watched: Some(direction) });
    assert_eq!(of(&config), both(Direction::Lower));
    config.checkpoint.metric = "copy.accuracy".into();
    assert_eq!(of(&config), both(Direction::Higher));
    config.checkpoint.metric = "brier".into();
    let error = of(&config).expect_err("unknown").to_string();
    assert!(error.contains("`train.checkpoint.metric` is `brier`") && error.contains("direction"), "{error}");
    assert_eq!(config.directions(|_| Some(Direction::Higher)), both(Direction::Higher));
    // The configuration may give the direction of the watched metric.
    let mut config = TrainConfig::default();
    config.early_stopping.metric = Some("brier".into());
    assert_eq!(of(&config), Ok(Directions { deciding: Direction::Lower, watched: None }));
    config.early_stopping.patience = 1;
    assert_eq!(of(&config).expect_err("unknown").key, "early_stopping.metric");
    config.early_stopping.greater_is_better = Some(true);
    assert_eq!(of(&config), Ok(Directions { deciding: Direction::Lower, watched: Some(Direction::Higher) }));
    assert_eq!(config.validate(), Ok(()));
    config.early_stopping.metric = Some("loss".into());
    for refused in [of(&config).map(|_| ()), config.validate()] {
        let error = refused.expect_err("contradicts").to_string();
        assert!(error.contains("greater_is_better` is true") && error.contains("`loss` lower is better"), "{error}");
    }
}

#[test]
fn epochs_count_their_tails() {
    let config = TrainConfig { epochs: Some(3), accumulation: 4, ..Default::default() };
    assert_eq!(config.steps(9), 9);
    assert_eq!(config.steps_over(|epoch| 4 + epoch as usize), 1 + 2 + 2);
}
