//! Precision of products.

use crate::loss_scale::LossScaleConfig;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use undertone_ops::Compute;
use undertone_registry::choice;

/// Number type of products in forward and backward pass, and the loss scaling that f16 needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
#[schemars(rename = "Precision", deny_unknown_fields, transform = choice::by_name)]
pub enum Precision {
    /// The card's native type: bf16 on CUDA since Ampere, f16 on CUDA since Volta, f32 on all other devices. The keys
    /// are those of loss scaling, for f16.
    Auto(LossScaleConfig),
    /// 32 bits in all products.
    F32,
    /// f32 numbers that are rounded to 11 bits of precision in products, as on NVIDIA's matrix units since Ampere,
    /// where it is several times as fast as f32. On other devices it is f32.
    Tf32,
    /// The range of f32 with 8 bits of precision. CPUs round the factors of products, and accumulate in f32: faster than
    /// f32 on AMD's with AVX512-BF16 (Zen 4 and later), about as fast in less memory on others with AVX2. Older CPUs emulate it slowly.
    Bf16,
    /// 11 bits of precision and numbers up to 65504: the loss is scaled, or small gradients would become 0. CPUs
    /// emulate it.
    F16(LossScaleConfig),
}

choice!(Precision, "type");

impl Default for Precision {
    fn default() -> Self {
        Self::Auto(LossScaleConfig::default())
    }
}

impl From<Compute> for Precision {
    fn from(compute: Compute) -> Self {
        Self::of(compute, LossScaleConfig::default())
    }
}

impl PartialEq<Compute> for Precision {
    fn eq(&self, compute: &Compute) -> bool {
        self.number_type() == *compute
    }
}

impl Precision {
    fn of(compute: Compute, loss_scale: LossScaleConfig) -> Self {
        match compute {
            Compute::Auto => Self::Auto(loss_scale),
            Compute::F32 => Self::F32,
            Compute::Tf32 => Self::Tf32,
            Compute::Bf16 => Self::Bf16,
            Compute::F16 => Self::F16(loss_scale),
        }
    }

    /// Returns the number type.
    pub fn number_type(self) -> Compute {
        match self {
            Self::Auto(_) => Compute::Auto,
            Self::F32 => Compute::F32,
            Self::Tf32 => Compute::Tf32,
            Self::Bf16 => Compute::Bf16,
            Self::F16(_) => Compute::F16,
        }
    }

    /// Returns the loss scaling, that of products in f16: the default for a type that has none of its own.
    pub fn loss_scale(self) -> LossScaleConfig {
        match self {
            Self::Auto(loss_scale) | Self::F16(loss_scale) => loss_scale,
            Self::F32 | Self::Tf32 | Self::Bf16 => LossScaleConfig::default(),
        }
    }

    /// Returns the precision with the number type that products have on `device`, as [`Compute::on`] says.
    pub fn on(self, device: &Device) -> Self {
        Self::of(self.number_type().on(device), self.loss_scale())
    }
}
