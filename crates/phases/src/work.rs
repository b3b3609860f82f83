//! How much there is to do in a batch, for throughput and utilisation.

use crate::WhisperBatch;
use crate::dynamo::BackboneNetwork;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
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
    #[derive(Default)]
    struct Counter {
        trainable: usize,
        all: usize,
    }

    impl ModuleVisitor for Counter {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let elements = param.dims().iter().product::<usize>();
            self.all += elements;
            self.trainable += if param.is_require_grad() { elements } else { 0 };
        }
    }

    let mut counter = Counter::default();
    model.visit(&mut counter);
    counter.trainable as f64 / counter.all.max(1) as f64
}
