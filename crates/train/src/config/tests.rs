use super::*;
use crate::{AdamWConfig, Algorithm, LossScaleConfig, OnSpike, Segments};

#[test]
fn refusals_name_the_key() {
    let mut valid = TrainConfig { max_steps: Some(1000), ..Default::default() };
    assert_eq!(valid.validate(), Ok(()));
    valid.evaluate.metrics = vec!["error".into(), "perplexity".into()];
    valid.checkpoint.metric = "error".into();
    assert_eq!(valid.validate(), Ok(()));
    type Spoil = fn(&mut TrainConfig);
    fn f16(initial_scale: f64, growth_interval: u64) -> Precision {
        Precision::F16(LossScaleConfig { initial_scale, growth_interval })
    }
    fn stopping(config: &mut TrainConfig) -> &mut EarlyStoppingConfig {
        config.early_stopping.insert(EarlyStoppingConfig::after(2))
    }
    let cases: [(&str, Spoil); 22] = [
        ("max_steps", |c| c.max_steps = Some(0)),
        ("max_steps", |c| c.max_steps = Some(u64::MAX)),
        ("epochs", |c| (c.max_steps, c.epochs) = (None, Some(1 << 60))),
        ("accumulation", |c| c.accumulation = usize::MAX),
        ("compute.initial_scale", |c| c.compute = f16(1e300, 10)),
        ("compute.initial_scale", |c| c.compute = f16(f64::NAN, 10)),
        ("epochs", |c| c.epochs = Some(2)),
        ("accumulation", |c| c.accumulation = 0),
        ("gradient_checkpointing.every", |c| {
            c.gradient_checkpointing = GradientCheckpointing::Segments(Segments { every: 0 });
        }),
        ("optimizer.lr", |c| c.optimizer.lr = f64::NAN),
        ("optimizer.beta2", |c| {
            c.optimizer.algorithm = Algorithm::AdamW(AdamWConfig { beta2: 1.0, ..Default::default() });
        }),
        ("optimizer.warmup_steps", |c| c.optimizer.warmup_steps = Some(1000)),
        ("checkpoint.metric", |c| c.checkpoint.metric = "bleu".into()),
        ("checkpoint.keep_last", |c| c.checkpoint.keep_last = 0),
        ("evaluate.metrics", |c| c.evaluate.metrics.clear()),
        ("ema_decay", |c| c.ema_decay = Some(1.0)),
        ("compute.initial_scale", |c| c.compute = f16(0.5, 10)),
        ("compute.growth_interval", |c| c.compute = f16(2.0, 0)),
        ("guard.on_spike.factor", |c| c.guard.on_spike = OnSpike::Warn { factor: f64::NAN }),
        ("early_stopping.greater_is_better", |c| stopping(c).greater_is_better = Some(true)),
        ("early_stopping.min_delta", |c| stopping(c).min_delta = -0.1),
        ("early_stopping.patience", |c| (stopping(c).min_delta, c.evaluate.every) = (0.1, 0)),
    ];
    for (key, spoil) in cases {
        let mut config = valid.clone();
        spoil(&mut config);
        assert_eq!(config.validate().expect_err(key).key, key);
    }
}

#[test]
fn a_key_without_effect_cannot_be_written() {
    for (json, culprit) in [
        (r#"{"compute": {"type": "f32", "initial_scale": 1024}}"#, "`initial_scale`: `type: f32` has no such key"),
        (r#"{"compute": {"type": "bf16", "growth_interval": 10}}"#, "`growth_interval`"),
        (r#"{"guard": {"on_spike": {"type": "ignore", "factor": 3}}}"#, "`factor`: `type: ignore`"),
        (r#"{"guard": {"on_spike": {"type": "warn", "limit": 3}}}"#, "`limit`: `type: warn`"),
        (r#"{"guard": {"on_nan": {"type": "stop", "limit": 1}}}"#, "`limit`: `type: stop`"),
        (r#"{"early_stopping": {"metric": "error"}}"#, "`patience`"),
        (r#"{"optimizer": {"schedule": {"type": "linear", "decay_share": 0.5}}}"#, "`decay_share`: `type: linear`"),
        (r#"{"optimizer": {"lr_scaling": {"type": "none", "base_batch": 16}}}"#, "`base_batch`: `type: none`"),
        (r#"{"optimizer": {"lr_scaling": "sqrt"}}"#, "missing field `base_batch`"),
    ] {
        let error = serde_json::from_str::<TrainConfig>(json).expect_err(json).to_string();
        assert!(error.contains(culprit), "{error}");
    }
    for (json, expected) in [
        (r#"{"compute": "f16"}"#, Precision::F16(LossScaleConfig::default())),
        (
            r#"{"compute": {"type": "auto", "initial_scale": 8}}"#,
            Precision::Auto(LossScaleConfig { initial_scale: 8.0, ..Default::default() }),
        ),
        (r#"{"compute": {"type": "bf16"}}"#, Precision::Bf16),
    ] {
        let config: TrainConfig = serde_json::from_str(json).expect(json);
        assert_eq!(config.compute, expected);
        let written = serde_json::to_value(&config).expect("JSON");
        assert_eq!(serde_json::from_value::<TrainConfig>(written).expect("read"), config);
    }
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
    let brier = EarlyStoppingConfig { metric: Some("brier".into()), ..EarlyStoppingConfig::after(1) };
    config.early_stopping = Some(brier.clone());
    assert_eq!(of(&config).expect_err("unknown").key, "early_stopping.metric");
    config.early_stopping = Some(EarlyStoppingConfig { greater_is_better: Some(true), ..brier.clone() });
    assert_eq!(of(&config), Ok(Directions { deciding: Direction::Lower, watched: Some(Direction::Higher) }));
    assert_eq!(config.validate(), Ok(()));
    config.early_stopping =
        Some(EarlyStoppingConfig { metric: Some("loss".into()), greater_is_better: Some(true), ..brier });
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
