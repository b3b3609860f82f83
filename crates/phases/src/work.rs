//! How much there is to do in a batch, for throughput and utilisation.

use crate::WhisperBatch;
use crate::run::BackboneNetwork;
use burn::module::Module;
use undertone_model::whisper::Whisper;
use undertone_train::Work;

/// Seconds of a frame.
const FRAME: f64 = 0.01;

/// Of a batch for `model`, of whose parameters `trainable` of 1 are trained.
pub(crate) fn whisper_work(model: &Whisper, batch: &WhisperBatch, trainable: f64) -> Work {
    let rows = batch.names.len() as f64;
    Work {
        audio_seconds: Some(rows * batch.frames as f64 * FRAME),
        tokens: Some(batch.labels.iter().filter(|label| **label >= 0).count() as f64),
        flops: Some(rows * passes(trainable) * model.forward_flops(batch.frames, batch.tokens)),
    }
}

/// Of `rows` texts of `length` tokens, `targets` of which are to be answered.
pub(crate) fn text_work(
    backbone: &BackboneNetwork,
    rows: usize,
    length: usize,
    targets: usize,
    trainable: f64,
) -> Work {
    let BackboneNetwork::Text(encoder) = backbone else { return Work::default() };
    let flops = rows as f64 * passes(trainable) * encoder.forward_flops(length);
    Work { audio_seconds: None, tokens: Some(targets as f64), flops: Some(flops) }
}

/// What forward and backward pass cost in forward passes: the gradients of inputs are as much again, and those of weights
/// are too, for the weights that have one.
fn passes(trainable: f64) -> f64 {
    2.0 + trainable
}

/// The share of parameters that training changes.
pub(crate) fn trainable_share<M: Module>(model: &M) -> f64 {
    let infos = undertone_store::parameter_infos(model);
    let elements = |only: bool| {
        let counted = infos.iter().filter(|parameter| parameter.trainable || !only);
        counted.map(|parameter| parameter.shape.iter().product::<usize>()).sum::<usize>()
    };
    elements(true) as f64 / elements(false).max(1) as f64
}
