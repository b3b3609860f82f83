//! Cache of what a frozen encoder makes of recordings.

use super::error::SpeechError;
use crate::Experiment;
use crate::backbone::SpeechBackbone;
use burn::module::Module;
use std::sync::Once;
use undertone_data::cache::{Cache, CacheError, CacheWhat, Key, States};
use undertone_model::backbone::{BoxedBackbone, own_path};
use undertone_ops::driver_name;
use undertone_store::{frozen_checksum, parameter_infos};

/// States after the blocks of a frozen encoder on disk, before its last norm: one entry for each recording in a whole
/// window. An entry is found again by the same recording, the same weights and the same precision.
pub(crate) struct StateCache {
    cache: Cache,
    /// Everything besides the recording that the states depend on.
    encoder: Vec<u8>,
    /// Positions of a window.
    positions: usize,
    d_model: usize,
    /// Completed once an entry was declined.
    full: Once,
}

impl StateCache {
    /// Opens the cache; `None` unless it keeps states.
    ///
    /// # Errors
    /// When the encoder is trained, or the folder cannot be used.
    pub fn open(experiment: &Experiment, speech: &SpeechBackbone) -> Result<Option<Self>, SpeechError> {
        let config = &experiment.data.cache;
        if config.what() != CacheWhat::Encoder {
            return Ok(None);
        }
        // Only in training are parameters known as trained or frozen.
        let network = speech.network.clone().train();
        if let Some(trained) = trained_outside_of_decoder(&network) {
            return Err(SpeechError::TrainedEncoder(trained));
        }
        let Some(cache) = config.open()? else { return Ok(None) };
        let weights = frozen_checksum(&network);
        // What `auto` stands for here: another machine may share the folder.
        let device = speech.network.token_embedding().weight.val().device().inner();
        let compute = experiment.train.compute.on(&device).number_type();
        let device = driver_name(&device).unwrap_or_else(|| format!("{device:?}"));
        let encoder = format!("{weights:08x}, frozen in {}, {compute} on {device}", experiment.model.frozen_dtype);
        let positions = speech.max_frames / speech.frames_per_position.max(1);
        let (encoder, d_model) = (encoder.into_bytes(), speech.network.d_model());
        Ok(Some(Self { cache, encoder, positions, d_model, full: Once::new() }))
    }

    /// Returns the key of the states of a part of a recording.
    pub fn key(&self, recording: &[u8], part: &str) -> Key {
        Key::new(&[b"states", &self.encoder, recording, part.as_bytes()])
    }

    /// Returns the states, if they are kept.
    pub fn get(&self, key: &Key) -> Option<States> {
        self.cache.get::<States>(key).filter(|found| (found.positions, found.d_model) == (self.positions, self.d_model))
    }

    /// Keeps states, and returns them as they will be found: rounded to f16.
    ///
    /// # Errors
    /// When one of them is not a number in f16.
    pub fn keep(&self, key: &Key, states: &States) -> Result<States, CacheError> {
        let kept = self.cache.keep(key, states)?;
        if self.cache.counts().declined > 0 {
            self.full.call_once(|| {
                tracing::warn!(
                    "`data.cache` is full or cannot be written: the encoder runs in every epoch for what is not in it; you may set \
                     `data.cache.max_bytes` higher"
                );
            });
        }
        Ok(kept)
    }
}

/// Returns the path of a trained parameter that the encoder's states may depend on.
fn trained_outside_of_decoder(network: &BoxedBackbone) -> Option<String> {
    let trained = parameter_infos(network).into_iter().filter(|parameter| parameter.trainable);
    trained.map(|parameter| own_path(&parameter.name).to_owned()).find(|path| !path.starts_with("decoder."))
}
