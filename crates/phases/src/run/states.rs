//! States of batches at the tap: computed, or known from the cache.

use super::batch::TaskBatch;
use super::evaluator::Evaluator;
use super::model::{Tapped, TaskModel};
use crate::RowStates;
use crate::speech::StateCache;
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use rayon::prelude::*;
use undertone_data::cache::{CacheError, States};
use undertone_model::backbone::BackboneInput;
use undertone_train::BoxError;

const NO_INPUT: &str = "a batch has neither an input nor known states";

impl Evaluator {
    /// Returns the states of a batch at the tap. Those that are kept are computed for the missing rows alone, without dropout
    /// and gradients, and all of them are rounded as the cache rounds.
    pub(super) fn tapped(
        &self,
        model: &TaskModel,
        batch: &TaskBatch,
        input: Option<BackboneInput>,
        padding: Tensor<2, Bool>,
        device: &Device,
    ) -> Result<Tapped, BoxError> {
        let Some((rows, cache)) = batch.input.states().zip(self.states.as_deref()) else {
            return Ok(model.tap(input.ok_or(NO_INPUT)?, padding)?);
        };
        let computed = match input {
            Some(input) => computed(model, cache, batch, rows, input, &padding, device)?,
            None => Vec::new(),
        };
        let mut computed = computed.iter();
        let mut data = Vec::new();
        let mut d_model = 0;
        for row in rows {
            let states = match row {
                RowStates::Known(states) => states,
                RowStates::Missing(_) => computed.next().ok_or(NO_INPUT)?,
            };
            d_model = states.d_model;
            data.extend_from_slice(&states.data);
        }
        let data = TensorData::new(data, [rows.len(), batch.input.positions(), d_model]);
        Ok(Tapped { states: Tensor::from_data(data, device), padding })
    }
}

/// Computes the states of the missing rows, and keeps them.
fn computed(
    model: &TaskModel,
    cache: &StateCache,
    batch: &TaskBatch,
    rows: &[RowStates],
    input: BackboneInput,
    padding: &Tensor<2, Bool>,
    device: &Device,
) -> Result<Vec<States>, BoxError> {
    let missing = rows.iter().enumerate().filter_map(|(row, states)| match states {
        RowStates::Known(_) => None,
        RowStates::Missing(key) => Some((row, *key)),
    });
    let missing: Vec<_> = missing.collect();
    let indices: Vec<i64> = missing.iter().map(|(row, _)| *row as i64).collect();
    let indices: Tensor<1, Int> = Tensor::from_ints(TensorData::from(indices.as_slice()), device);
    let padding = padding.clone().select(0, indices).inner();
    let model = if device.is_autodiff() { model.valid() } else { model.clone() };
    let (mel, start) = input.mel()?;
    let states = model.tap(BackboneInput::Mel(mel.inner(), start), padding)?.states;
    let [_, positions, d_model] = states.dims();
    let values: Vec<f32> = undertone_ops::read(states);
    let facts = &batch.input.speech()?.facts;
    let kept = values.par_chunks(positions * d_model).zip(missing).map(|(data, (row, key))| {
        let samples = facts[row].length.unwrap_or_default() as u32;
        let states = States { samples, positions, d_model, data: data.to_vec() };
        match key {
            Some(key) => cache.keep(&key, &states),
            None => Ok(states),
        }
    });
    Ok(kept.collect::<Result<_, CacheError>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelConfig, Trainable};
    use crate::run::Run;
    use crate::{Experiment, Pad, SourceConfig};
    use std::path::{Path, PathBuf};
    use undertone_data::cache::{CacheConfig, CacheWhat};
    use undertone_ops::Compute;
    use undertone_train::{Batches, Objective};

    /// Experiment on five recordings that trains the decoder of the bundled model.
    fn experiment(dir: &Path) -> Experiment {
        let mut list = String::from("audio,text\n");
        for index in 0..5 {
            let audio: Vec<f32> = (0..6000 + 3000 * index).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
            undertone_data::audio::write_wav(&dir.join(format!("{index}.wav")), &audio).expect("written");
            list += &format!("{index}.wav,{}\n", "E".repeat(index + 1));
        }
        let list_of = |name: &str, list: &str| {
            std::fs::write(dir.join(name), list).expect("written");
            SourceConfig::files(dir.join(name))
        };
        let mut experiment = Experiment::default();
        experiment.model.trainable = Trainable::Decoder;
        experiment.data.train.0 = vec![list_of("train.csv", &list)];
        experiment.data.valid = Some(list_of("valid.csv", "audio,text\n0.wav,E\n"));
        experiment.data.pad = Pad::Window;
        experiment.data.batch_size = 2;
        experiment.data.cache = CacheConfig::of(CacheWhat::Encoder, Some(dir.join("cache")));
        experiment
    }

    fn run(experiment: &Experiment) -> Run {
        experiment.validate().expect("valid");
        experiment.build().expect("a run")
    }

    /// Returns the loss of an epoch, and how many of its rows had known states.
    fn epoch(run: &Run, number: u64) -> (f32, usize) {
        let device = run.device.clone().autodiff();
        let model = run.model.clone().train();
        let (mut sum, mut known) = (0.0, 0);
        for batch in run.batches.epoch(number, 0) {
            let (_, mut batch) = batch.expect("a batch");
            let of_batch = batch.input.states().unwrap_or_default();
            known += of_batch.iter().filter(|row| matches!(row, RowStates::Known(_))).count();
            let input = run.objective.upload(&mut batch, &device).expect("uploaded");
            for (_, loss) in run.objective.losses(&model, &batch, input, &device).expect("losses") {
                sum += loss.into_scalar::<f32>();
            }
        }
        (sum, known)
    }

    fn entries(dir: &Path) -> Vec<PathBuf> {
        let within = |path: PathBuf| std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("one").path());
        within(dir.join("cache")).filter(|path| path.is_dir()).flat_map(within).collect()
    }

    #[test]
    fn later_epochs_know_the_states_and_compute_what_the_encoder_would() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut without = experiment(dir.path());
        without.data.cache = CacheConfig::default();
        let (plain, _) = epoch(&run(&without), 0);
        let run_with_cache = run(&experiment(dir.path()));
        let (first, known) = epoch(&run_with_cache, 0);
        assert_eq!((known, entries(dir.path()).len()), (0, 5));
        assert!((first - plain).abs() < 1e-3 * plain, "{first} and {plain}");
        let (second, known) = epoch(&run_with_cache, 0);
        assert_eq!((second, known), (first, 5), "the same bits");
        let (shuffled, known) = epoch(&run_with_cache, 1);
        assert_eq!(known, 5);
        assert!((shuffled - first).abs() < 1e-4 * first, "{shuffled} and {first}");
        // Some rows of a batch are known, and others are not.
        entries(dir.path()).iter().take(2).for_each(|entry| std::fs::remove_file(entry).expect("removed"));
        let (mixed, known) = epoch(&run_with_cache, 0);
        assert_eq!((known, entries(dir.path()).len()), (3, 5));
        assert!((mixed - first).abs() < 1e-4 * first, "{mixed} and {first}");
    }

    #[test]
    fn an_adapter_of_the_decoder_alone_knows_the_states() {
        let dir = tempfile::tempdir().expect("a directory");
        let model = r#"{"trainable": "lora", "lora": {"target_modules": ["encoder_attn.q_proj"]}}"#;
        let model: ModelConfig = serde_json::from_str(model).expect("a model");
        let with_cache = Experiment { model, ..experiment(dir.path()) };
        let mut without = with_cache.clone();
        without.data.cache = CacheConfig::default();
        let (plain, _) = epoch(&run(&without), 0);
        let run = run(&with_cache);
        let (first, known) = epoch(&run, 0);
        assert!(known == 0 && (first - plain).abs() < 1e-3 * plain, "{first} and {plain}");
        assert_eq!(epoch(&run, 0), (first, 5));
    }

    #[test]
    fn evaluation_knows_the_states_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = run(&experiment(dir.path()));
        let evaluated = || run.objective.evaluate(&run.model.valid(), &[]).expect("evaluated");
        let first = evaluated();
        assert_eq!(entries(dir.path()).len(), 1);
        assert_eq!(evaluated(), first);
        assert_eq!(epoch(&run, 0).1, 1, "of training, for it is the same recording");
    }

    #[test]
    fn states_of_other_weights_are_not_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut experiment = experiment(dir.path());
        experiment.model.source.config = Some(crate::speech::tests::two_seconds());
        for (seed, known) in [(1, 0), (1, 5), (2, 0), (1, 5)] {
            experiment.seed = seed;
            assert_eq!(epoch(&run(&experiment), 0).1, known, "seed {seed}");
        }
    }

    #[test]
    fn the_precision_that_auto_stands_for_finds_the_same_states() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut experiment = experiment(dir.path());
        experiment.device = undertone_ops::DeviceSpec::Cpu;
        for (compute, known) in [(Compute::Auto, 0), (Compute::F32, 5), (Compute::F16, 0), (Compute::Auto, 5)] {
            experiment.train.compute = compute.into();
            assert_eq!(epoch(&run(&experiment), 0).1, known, "{compute}");
        }
    }

    #[test]
    fn an_encoder_that_is_trained_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = experiment(dir.path());
        let with = |model: &str| {
            let model: ModelConfig = serde_json::from_str(model).expect("a model");
            Experiment { model, ..experiment.clone() }.build().map(|_| ())
        };
        for (model, culprit) in [
            (r#"{"trainable": "all"}"#, "`encoder."),
            (r#"{"trainable": "encoder"}"#, "`encoder."),
            (r#"{"trainable": "lora", "lora": {"target_modules": ["q_proj"]}}"#, "`encoder."),
        ] {
            let refused = with(model).expect_err(model).to_string();
            assert!(refused.contains(culprit) && refused.contains("`model.trainable: decoder`"), "{refused}");
        }
    }
}
