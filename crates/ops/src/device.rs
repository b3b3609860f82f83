//! The device a run is on, by the name a user gives it.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A device by name: `auto`, `cpu`, `cuda:0`, `tch:cpu` or `tch:cuda:0`.
///
/// ```
/// use undertone_ops::DeviceSpec;
///
/// let spec: DeviceSpec = "cpu".parse()?;
/// let device = spec.resolve()?;
/// # Ok::<(), undertone_ops::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceSpec {
    /// The first CUDA device this build and machine have, else the CPU.
    #[default]
    Auto,
    /// Flex, Burn's CPU backend in Rust.
    Cpu,
    /// A CUDA device through CubeCL; needs the feature `cuda`.
    Cuda(usize),
    /// LibTorch on the CPU; needs the feature `tch`.
    TchCpu,
    /// LibTorch on a CUDA device; needs the feature `tch`.
    TchCuda(usize),
}

/// The backends that are built in, by the features that bring them.
pub fn backends() -> Vec<&'static str> {
    let all = [("flex", true), ("cuda", cfg!(feature = "cuda")), ("tch", cfg!(feature = "tch"))];
    all.into_iter().filter(|(_, built_in)| *built_in).map(|(name, _)| name).collect()
}

/// Why a device cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is not one of the forms of [`DeviceSpec`].
    #[error("`{0}` names no device: use auto, cpu, cuda:N, tch:cpu or tch:cuda:N")]
    Unknown(String),
    /// The backend is not in this binary.
    #[error(
        "device `{device}` is not in this build: rebuild with `--features {feature}` (cargo xtask --features {feature} …)"
    )]
    NotCompiled {
        /// The device asked for.
        device: String,
        /// The Cargo feature that brings it.
        feature: &'static str,
    },
    /// The backend is there, the device is not.
    #[error(
        "device `{device}` was not found on this machine, which has {found} of that kind: check the index and the driver, or use `cpu`"
    )]
    NotFound {
        /// The device asked for.
        device: String,
        /// How many devices of that kind there are.
        found: usize,
    },
}

impl DeviceSpec {
    /// The Burn device, without autodiff; training wraps it by `.autodiff()`.
    ///
    /// # Errors
    /// When the backend was not compiled in, or the machine has no such device.
    pub fn resolve(self) -> Result<Device, DeviceError> {
        match self {
            Self::Auto => {
                Ok(Self::Cuda(0).resolve().or_else(|_| Self::TchCuda(0).resolve()).unwrap_or_else(|_| Device::flex()))
            }
            Self::Cpu => Ok(Device::flex()),
            Self::Cuda(index) => self.cuda(index),
            Self::TchCpu => self.tch_cpu(),
            Self::TchCuda(index) => self.tch_cuda(index),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(self, index: usize) -> Result<Device, DeviceError> {
        self.existing(index, burn::tensor::DeviceType::Cuda, |_| true)?;
        Ok(Device::cuda(index))
    }

    #[cfg(feature = "tch")]
    fn tch_cpu(self) -> Result<Device, DeviceError> {
        Ok(Device::libtorch())
    }

    #[cfg(feature = "tch")]
    fn tch_cuda(self, index: usize) -> Result<Device, DeviceError> {
        let cpu = Device::libtorch();
        self.existing(index, burn::tensor::DeviceType::LibTorch, move |device| *device != cpu)?;
        Ok(Device::libtorch_cuda(index))
    }

    #[cfg(any(feature = "cuda", feature = "tch"))]
    fn existing(
        self,
        index: usize,
        kind: burn::tensor::DeviceType,
        counts: impl Fn(&Device) -> bool,
    ) -> Result<(), DeviceError> {
        // A missing driver surfaces as a panic inside the backend's enumeration; to a user it means "none".
        let found = std::panic::catch_unwind(|| Device::enumerate(kind).into_vec())
            .map_or(0, |devices| devices.iter().filter(|device| counts(device)).count());
        if index < found { Ok(()) } else { Err(DeviceError::NotFound { device: self.to_string(), found }) }
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(self, _index: usize) -> Result<Device, DeviceError> {
        Err(self.not_compiled("cuda"))
    }

    #[cfg(not(feature = "tch"))]
    fn tch_cpu(self) -> Result<Device, DeviceError> {
        Err(self.not_compiled("tch"))
    }

    #[cfg(not(feature = "tch"))]
    fn tch_cuda(self, _index: usize) -> Result<Device, DeviceError> {
        Err(self.not_compiled("tch"))
    }

    #[cfg(not(all(feature = "cuda", feature = "tch")))]
    fn not_compiled(self, feature: &'static str) -> DeviceError {
        DeviceError::NotCompiled { device: self.to_string(), feature }
    }
}

impl FromStr for DeviceSpec {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(name.to_owned());
        let index = |text: &str| text.parse::<usize>().map_err(|_| unknown());
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "tch:cpu" => Ok(Self::TchCpu),
            "tch:cuda" => Ok(Self::TchCuda(0)),
            _ => match name.rsplit_once(':').ok_or_else(unknown)? {
                ("cuda", text) => Ok(Self::Cuda(index(text)?)),
                ("tch:cuda", text) => Ok(Self::TchCuda(index(text)?)),
                _ => Err(unknown()),
            },
        }
    }
}

impl TryFrom<String> for DeviceSpec {
    type Error = DeviceError;

    fn try_from(name: String) -> Result<Self, DeviceError> {
        name.parse()
    }
}

impl From<DeviceSpec> for String {
    fn from(spec: DeviceSpec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::TchCpu => f.write_str("tch:cpu"),
            Self::TchCuda(index) => write!(f, "tch:cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["auto", "cpu", "cuda:0", "cuda:3", "tch:cpu", "tch:cuda:1"] {
            assert_eq!(name.parse::<DeviceSpec>().expect(name).to_string(), name);
        }
        for name in ["", "gpu", "cuda:", "cuda:x", "tch", "tch:mps:0", "cpu:0"] {
            assert_eq!(name.parse::<DeviceSpec>(), Err(DeviceError::Unknown(name.to_owned())));
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_device_that_was_not_compiled_in_names_its_feature() {
        let error = DeviceSpec::Cuda(0).resolve().expect_err("no cuda here").to_string();
        assert!(error.contains("`cuda:0`") && error.contains("--features cuda"), "{error}");
    }

    #[test]
    fn auto_always_finds_something() {
        assert!(DeviceSpec::Auto.resolve().is_ok());
    }
}
