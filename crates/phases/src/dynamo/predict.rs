//! Answers of a trained run to single inputs.

use super::evaluate::{one_hot, write};
use super::model::Dynamo;
use super::run::DynamoError;
use super::setup::Setup;
use crate::batch::POSITION;
use crate::transcribe::pieces;
use crate::{Experiment, Pad, RunError, TranscribeError};
use burn::tensor::{Bool, Tensor, TensorData};
use std::path::Path;
use undertone_data::audio;
use undertone_data::features::LogMel;
use undertone_model::lora::Gates;

/// A run's newest model, ready to answer.
pub struct Predictor<'a> {
    setup: Setup<'a>,
    model: Dynamo,
    log_mel: LogMel,
    prompt: Vec<u32>,
}

/// An answer, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Where in the input it begins, in seconds.
    pub start: f64,
    /// The task whose head answered.
    pub task: String,
    /// What it wrote.
    pub text: String,
    /// How much each adapter counted, in the order of the tasks.
    pub gates: Vec<f32>,
    /// How sure the router is of its choice.
    pub confidence: f32,
}

impl<'a> Predictor<'a> {
    /// Loads the newest finished phase with a router.
    ///
    /// # Errors
    /// When there is none, or its parts cannot be had.
    pub fn load(experiment: &'a Experiment) -> Result<Self, DynamoError> {
        let setup = Setup::new(experiment)?;
        let (_, model) = super::analyze::newest(&setup)?;
        if model.router.is_none() {
            return Err(DynamoError::NoRouter(experiment.directory()));
        }
        let whisper = &setup.whisper;
        let prompt = whisper.tokenizer.prompt(&whisper.generation, None, None).map_err(TranscribeError::from)?;
        let log_mel = LogMel::new(whisper.config.num_mel_bins).map_err(RunError::from)?;
        Ok(Self { model, log_mel, prompt, setup })
    }

    /// Answers an audio file. What does not fit the window is cut where it is quietest, and every piece is routed by
    /// itself.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn audio(&self, path: &Path) -> Result<Vec<Prediction>, DynamoError> {
        let samples = audio::load(path).map_err(TranscribeError::from)?;
        let window = self.setup.whisper.config.max_frames() * 160;
        let answers = pieces(&samples, window).into_iter().map(|piece| {
            let start = piece.start as f64 / f64::from(audio::SAMPLE_RATE);
            Prediction { start, ..self.answer(&samples[piece], window) }
        });
        Ok(answers.collect())
    }

    fn answer(&self, samples: &[f32], window: usize) -> Prediction {
        let (setup, model) = (&self.setup, &self.model);
        let (device, config) = (&setup.device, &setup.experiment.router);
        let heard = samples.len().div_ceil(POSITION).max(1);
        // As long as what the adapters were judged on.
        let padded = match setup.experiment.data.eval_pad {
            Pad::Longest => heard * POSITION,
            Pad::Window => window,
        };
        let mel = self.log_mel.features_padded(samples, padded);
        let positions = mel.frames.div_ceil(2);
        let padding: Vec<bool> = (0..positions).map(|i| i >= heard).collect();
        let padding = Tensor::<2, Bool>::from_data(TensorData::new(padding, [1, positions]), device);
        let mel = Tensor::from_data(TensorData::new(mel.data, [1, mel.bins, mel.frames]), device);
        let tapped = model.tap(mel, &padding);
        let router = model.router.as_ref().expect("a predictor has a router");
        let routing = router.forward(tapped.pooled);
        let (task, gates) = (routing.choices()[0], routing.inference_gates(config));
        let confidence = routing.confidences().into_scalar::<f32>();
        let heads = one_hot(&[task], model.heads.len(), device);
        let cache = model.cache(tapped.states, Some(Gates::Each(gates.clone())), heads);
        let prompt = std::slice::from_ref(&self.prompt);
        let tokens = write(model, &setup.whisper, &setup.experiment.tasks, &cache, prompt, &[task]);
        Prediction {
            start: 0.0,
            task: setup.experiment.tasks[task].name.clone(),
            text: setup.whisper.tokenizer.decode(&tokens[0]).trim().to_owned(),
            gates: gates.into_data().iter::<f32>().collect(),
            confidence,
        }
    }
}
