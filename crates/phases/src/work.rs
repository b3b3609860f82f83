//! Amount of work of a batch, for throughput and utilisation.

use crate::SpeechBatch;
use burn::module::Module;
use undertone_model::backbone::BoxedBackbone;
use undertone_tasks::TextBatch;
use undertone_train::BatchStats;

/// Duration of a frame in seconds.
const FRAME: f64 = 0.01;

/// Returns the work of a batch of speech for a backbone. `trainable` is the share of trained parameters, from 0 to 1.
pub(crate) fn speech_work(backbone: &BoxedBackbone, batch: &SpeechBatch, trainable: f64) -> BatchStats {
    let rows = batch.names.len() as f64;
    let flops = rows * passes(trainable) * backbone.forward_flops(batch.frames, batch.tokens);
    BatchStats {
        audio_seconds: Some(rows * batch.frames as f64 * FRAME),
        tokens: Some(batch.labels.iter().filter(|label| **label >= 0).count() as f64),
        flops: (flops > 0.0).then_some(flops),
    }
}

/// Returns the work of a batch of texts.
pub(crate) fn text_work(backbone: &BoxedBackbone, batch: &TextBatch, trainable: f64) -> BatchStats {
    let targets: usize = batch.samples.iter().map(|sample| sample.target.count()).sum();
    let flops = batch.samples.len() as f64 * passes(trainable) * backbone.forward_flops(batch.tokens, 0);
    BatchStats { audio_seconds: None, tokens: Some(targets as f64), flops: (flops > 0.0).then_some(flops) }
}

/// Returns the cost of forward and backward pass, in forward passes: the gradients of inputs cost one, and those of
/// weights cost one for the share of weights that are trained.
fn passes(trainable: f64) -> f64 {
    2.0 + trainable
}

/// Returns the share of parameters that are trained.
pub(crate) fn trainable_share<M: Module>(model: &M) -> f64 {
    let infos = undertone_store::parameter_infos(model);
    let elements = |only: bool| {
        let counted = infos.iter().filter(|parameter| parameter.trainable || !only);
        counted.map(|parameter| parameter.shape.iter().product::<usize>()).sum::<usize>()
    };
    elements(true) as f64 / elements(false).max(1) as f64
}
