//! Models between two others: their weights are interpolated.

use super::choice::Choice;
use crate::{ModelConfig, RunError};
use burn::tensor::Device;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;
use undertone_model::whisper::{PretrainedWhisper, Whisper};
use undertone_store::{HostTensor, StoreError, load_parameters, parameters};

/// Share of another model in the weights, written `base:0.3` or `FOLDER:0.3`.
///
/// Between a tuned model and the one that its training began with there are models that have learned most of the task and
/// forgotten little ([Wortsman et al., 2022](https://arxiv.org/abs/2109.01903)).
#[derive(Clone, Debug, PartialEq)]
pub struct Blend {
    /// The other model; `None` for the one that the training began with.
    pub with: Option<PathBuf>,
    /// Its share, from 0 to 1.
    pub share: f64,
}

impl Blend {
    /// Returns the weights of `whisper`, the model of `choice`, mixed with the other model's.
    ///
    /// # Errors
    /// When the other model cannot be loaded, or has another architecture.
    pub fn of(
        &self,
        choice: &Choice,
        mut whisper: PretrainedWhisper,
        device: &Device,
    ) -> Result<PretrainedWhisper, RunError> {
        let experiment = &choice.experiment;
        let other = match &self.with {
            None => experiment.model.load(device, experiment.seed)?,
            Some(path) => ModelConfig::named(path).load(device, 0)?,
        };
        let refused = |source| RunError::Blend { with: self.name(), source };
        whisper.model = mixed(whisper.model, &other.model, self.share).map_err(refused)?;
        Ok(whisper)
    }

    fn name(&self) -> String {
        self.with.as_ref().map_or("base".to_owned(), |path| path.display().to_string())
    }
}

/// Returns `(1 - share) · model + share · other`. An architecture differs by the names or shapes of its weights.
pub(super) fn mixed(model: Whisper, other: &Whisper, share: f64) -> Result<Whisper, StoreError> {
    let (mut own, mut others) = (parameters(&model), parameters(other));
    if let Some(name) = others.keys().find(|name| !own.contains_key(*name)) {
        return Err(StoreError::Missing { name: name.clone(), origin: "the model that is blended".into() });
    }
    load_parameters(model, |name| {
        let missing = || StoreError::Missing { name: name.to_owned(), origin: "the model to blend with".into() };
        let (own, other) = (own.remove(name), others.remove(name));
        let (HostTensor { shape, data }, other) = own.zip(other).ok_or_else(missing)?;
        if other.shape != shape {
            // The parameter is replaced by one of the other shape, which is the error to report.
            return Ok(other);
        }
        let mix = |(own, other): (f32, f32)| ((1.0 - share) * f64::from(own) + share * f64::from(other)) as f32;
        Ok(HostTensor { shape, data: data.into_iter().zip(other.data).map(mix).collect() })
    })
}

impl Display for Blend {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name(), self.share)
    }
}

impl FromStr for Blend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write `base:0.3` for 0.3 of the model that the training began with, or `FOLDER:0.3`".to_owned();
        let (name, share) = text.rsplit_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong)?;
        Ok(Self { with: (name != "base").then(|| PathBuf::from(name)), share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_model::whisper::WhisperConfig;

    fn network(d_model: usize) -> Whisper {
        WhisperConfig::new(d_model, 64, 2, [1, 1]).init(&Device::default())
    }

    #[test]
    fn weights_are_interpolated() {
        let (a, b) = (network(32), network(32));
        let mean = parameters(&mixed(a.clone(), &b, 0.25).expect("blended"));
        let (a, b) = (parameters(&a), parameters(&b));
        let name = "decoder.layers.0.fc1.weight";
        for (index, value) in mean[name].data.iter().enumerate() {
            let expected = 0.75 * a[name].data[index] + 0.25 * b[name].data[index];
            assert!((value - expected).abs() < 1e-7, "{value} and {expected}");
        }
    }

    #[test]
    fn other_architectures_are_refused() {
        assert!(matches!(mixed(network(32), &network(64), 0.5), Err(StoreError::Shape { .. })));
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for blend in [Blend { with: None, share: 0.3 }, Blend { with: Some("a:b".into()), share: 1.0 }] {
            assert_eq!(blend.to_string().parse(), Ok(blend));
        }
        for wrong in ["base", "base:", ":0.5", "base:1.5", "base:x"] {
            assert!(wrong.parse::<Blend>().is_err(), "{wrong}");
        }
    }
}
