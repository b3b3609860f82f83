//! Amount of work of a batch, for throughput and utilisation.

use crate::{SampleFacts, SpeechBatch};
use burn::module::Module;
use undertone_data::audio::SAMPLE_RATE;
use undertone_model::backbone::BoxedBackbone;
use undertone_tasks::TextBatch;
use undertone_train::BatchStats;

/// Shares of a model's backbone that are trained, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TrainedShares {
    /// Share of the encoder, adapters included.
    pub encoder: f64,
    /// Share of the decoder.
    pub decoder: f64,
    /// Whether a router is trained, from whose gates gradients go through all blocks with adapters.
    pub router: bool,
    /// Whether heads are trained, of which one of speech is where the decoder begins.
    pub heads: bool,
}

impl TrainedShares {
    /// Returns the shares of a model whose backbone is called `backbone`.
    pub fn of<M: Module>(model: &M) -> Self {
        let infos = undertone_store::parameter_infos(model);
        let share = |is_decoder: bool| {
            let own =
                infos.iter().filter(|p| p.name.starts_with("backbone.") && p.name.contains(".decoder.") == is_decoder);
            let sized = own.map(|parameter| (parameter.trainable, parameter.shape.iter().product::<usize>()));
            let (trained, all) = sized.fold((0, 0), |(trained, all), (is_trained, size)| {
                (trained + if is_trained { size } else { 0 }, all + size)
            });
            trained as f64 / all.max(1) as f64
        };
        let trains = |part: &str| infos.iter().any(|p| p.trainable && p.name.starts_with(part));
        Self { encoder: share(false), decoder: share(true), router: trains("router."), heads: trains("heads.") }
    }

    /// Floating-point operations of a sample in training. A forward pass costs one; where something is trained in a part or before
    /// it, the gradients of inputs cost another one, and those of weights one for the share of weights that are trained.
    fn flops(self, backbone: &BoxedBackbone, length: usize, written: usize) -> f64 {
        let encoder = backbone.encoder_flops(length);
        let decoder = backbone.forward_flops(length, written) - encoder;
        let passes = |share: f64, is_needed: bool| if is_needed { 2.0 + share } else { 1.0 };
        let into_encoder = self.encoder > 0.0 || self.router;
        passes(self.encoder, into_encoder) * encoder
            + passes(self.decoder, into_encoder || self.decoder > 0.0 || self.heads) * decoder
    }
}

/// Returns the work of a batch of speech for a backbone.
pub(crate) fn speech_work(backbone: &BoxedBackbone, batch: &SpeechBatch, trained: TrainedShares) -> BatchStats {
    let flops = batch.names.len() as f64 * trained.flops(backbone, batch.frames, batch.tokens);
    let samples: usize = batch.facts.iter().filter_map(|SampleFacts { length, .. }| *length).sum();
    BatchStats {
        audio_seconds: Some(samples as f64 / f64::from(SAMPLE_RATE)),
        tokens: Some(batch.labels.iter().filter(|label| **label >= 0).count() as f64),
        flops: (flops > 0.0).then_some(flops),
    }
}

/// Returns the work of a batch of texts.
pub(crate) fn text_work(backbone: &BoxedBackbone, batch: &TextBatch, trained: TrainedShares) -> BatchStats {
    let targets: usize = batch.samples.iter().map(|sample| sample.target.count()).sum();
    let flops = batch.samples.len() as f64 * trained.flops(backbone, batch.tokens, 0);
    BatchStats { audio_seconds: None, tokens: Some(targets as f64), flops: (flops > 0.0).then_some(flops) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_model::whisper::WhisperConfig;

    #[test]
    fn what_is_before_everything_trained_has_no_backward_pass() {
        let config =
            WhisperConfig { d_model: 16, encoder_layers: 1, decoder_layers: 1, vocab_size: 60, ..Default::default() };
        let whisper = config.init(&burn::tensor::Device::flex());
        let (encoder, all) = (whisper.encoder.forward_flops(3000), whisper.forward_flops(3000, 20));
        let backbone = BoxedBackbone::new("Whisper", whisper);
        let of = |shares: TrainedShares| shares.flops(&backbone, 3000, 20);
        let shares = |encoder, decoder| TrainedShares { encoder, decoder, router: false, heads: false };
        let flops = |encoder, decoder| of(shares(encoder, decoder));
        assert!((flops(1.0, 1.0) / (3.0 * all) - 1.0).abs() < 1e-9);
        assert!((flops(0.0, 1.0) / (encoder + 3.0 * (all - encoder)) - 1.0).abs() < 1e-9);
        assert!((flops(0.1, 0.0) / (2.1 * encoder + 2.0 * (all - encoder)) - 1.0).abs() < 1e-9);
        assert!((flops(0.0, 0.0) / all - 1.0).abs() < 1e-9);
        assert!((of(TrainedShares { router: true, ..shares(0.0, 0.0) }) / (2.0 * all) - 1.0).abs() < 1e-9);
        let heads = of(TrainedShares { heads: true, ..shares(0.0, 0.0) });
        assert!((heads / (encoder + 2.0 * (all - encoder)) - 1.0).abs() < 1e-9);
    }
}
