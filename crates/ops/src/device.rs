//! Devices by the name that a user gives.

#[cfg(feature = "tch")]
use crate::libtorch;
#[cfg(feature = "cuda")]
use crate::nvrtc;
#[cfg(feature = "cube")]
use burn::backend::CubeDevice;
use burn::backend::DispatchDevice;
#[cfg(feature = "wgpu")]
use burn::backend::WgpuDeviceKind;
use burn::tensor::Device;
#[cfg(feature = "cube")]
use burn::tensor::DeviceType;
#[cfg(feature = "cuda")]
use burn::tensor::StreamId;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Device by name: `auto`, `cpu`, `cuda:0`, `wgpu:0`, `tch:cpu` or `tch:cuda:0`.
///
/// ```
/// use undertone_ops::DeviceSpec;
///
/// let spec: DeviceSpec = "cpu".parse()?;
/// let device = spec.resolve()?;
/// assert_eq!(DeviceSpec::of(&device), Some(spec));
/// # Ok::<(), undertone_ops::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceSpec {
    /// The first GPU that this build and machine have, through CUDA, LibTorch or wgpu, in this order; otherwise the
    /// CPU.
    #[default]
    Auto,
    /// Flex, Burn's CPU backend in Rust.
    Cpu,
    /// A CUDA device through CubeCL; needs the feature `cuda`.
    Cuda(usize),
    /// A device of Vulkan, Metal or DirectX 12 through CubeCL; needs the feature `wgpu`. Discrete GPUs are numbered
    /// first, then GPUs without memory of their own; drivers that compute on the CPU, such as lavapipe, come last.
    Wgpu(usize),
    /// LibTorch on the CPU; needs the feature `tch`.
    TchCpu,
    /// LibTorch on a CUDA device; needs the feature `tch`.
    TchCuda(usize),
}

/// Returns the compiled-in backends, by the names of their Cargo features.
pub fn backends() -> Vec<&'static str> {
    let [cuda, wgpu, tch] = [cfg!(feature = "cuda"), cfg!(feature = "wgpu"), cfg!(feature = "tch")];
    let all = [("flex", true), ("cuda", cuda), ("wgpu", wgpu), ("tch", tch)];
    all.into_iter().filter(|(_, built_in)| *built_in).map(|(name, _)| name).collect()
}

/// Reason why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is not one of the forms of [`DeviceSpec`].
    #[error("`{0}` names no device: use auto, cpu, cuda:N, wgpu:N, tch:cpu or tch:cuda:N")]
    Unknown(String),
    /// The backend is not compiled in.
    #[error(
        "device `{device}` is not in this build: rebuild with `--features {feature}` (cargo xtask --features {feature} …)"
    )]
    NotCompiled {
        /// Requested device.
        device: String,
        /// Cargo feature that adds it.
        feature: &'static str,
    },
    /// The backend is available, the device is not.
    #[error("device `{device}` was not found on this machine, which has {found} of that kind: {advice}, or use `cpu`")]
    NotFound {
        /// Requested device.
        device: String,
        /// Number of devices of that kind.
        found: usize,
        /// Advice on what to check.
        advice: &'static str,
    },
    /// The device exists, but its driver does not open it.
    #[error("device `{device}` was found and cannot be opened: {reason}; check its driver, or use `cpu`")]
    NotOpened {
        /// Requested device.
        device: String,
        /// Message of the driver.
        reason: String,
    },
    /// The device exists, but the compiler for its kernels is missing.
    #[error(
        "device `{device}` was found, and NVIDIA's compiler was not: {missing}; `cargo xtask cuda COMMAND …` installs it and runs \
         the command, or install a CUDA toolkit with NVRTC and let CUDA_PATH name it"
    )]
    NoCompiler {
        /// Requested device.
        device: String,
        /// Missing library or header.
        missing: String,
    },
    /// The device belongs to a backend that Undertone's operations do not support.
    #[error(
        "{0} belongs to a backend that Undertone does not run on: use a device of Flex, CubeCL (features `cuda`, `wgpu`) or \
         LibTorch (feature `tch`)"
    )]
    Unlisted(String),
}

impl DeviceSpec {
    /// Returns the Burn device, without autodiff; training wraps it with `.autodiff()`.
    ///
    /// # Errors
    /// When the backend was not compiled in, the machine has no such device, or its driver does not open it.
    pub fn resolve(self) -> Result<Device, DeviceError> {
        self.resolve_for(0)
    }

    /// As [`resolve`](Self::resolve), for process `number` of several on one machine, counted from 0. With `auto`, each
    /// process takes its own card of those found through CUDA or LibTorch; numbers beyond the last card start again at
    /// the first.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_for(self, number: usize) -> Result<Device, DeviceError> {
        #[cfg(feature = "autotune")]
        crate::kernel_cache::keep();
        #[cfg(feature = "cube")]
        crate::fusion::configure();
        match self {
            Self::Auto => match Self::Cuda(number % cuda_devices().max(1)).resolve() {
                // A card is there, so falling back to the CPU is not what the user wants.
                Err(error @ DeviceError::NoCompiler { .. }) => Err(error),
                cuda => Ok([cuda, Self::TchCuda(number % tch_cuda_devices().max(1)).resolve(), first_wgpu_gpu()]
                    .into_iter()
                    .find_map(Result::ok)
                    .unwrap_or_else(Device::flex)),
            },
            Self::Cpu => Ok(Device::flex()),
            Self::Cuda(index) => self.cuda(index),
            Self::Wgpu(index) => self.wgpu(index),
            Self::TchCpu => self.tch_cpu(),
            Self::TchCuda(index) => self.tch_cuda(index),
        }
    }

    /// Returns the spec that [`Self::resolve`] maps to this device; `None` if there is none, as for a device that Burn
    /// chose.
    pub fn of(device: &Device) -> Option<Self> {
        let device = device.clone().inner();
        match Backing::of(&device) {
            Backing::Flex => Some(Self::Cpu),
            #[cfg(feature = "cuda")]
            Backing::Cuda => match device.as_dispatch() {
                DispatchDevice::Cube(CubeDevice::Cuda(cuda)) => Some(Self::Cuda(cuda.index)),
                _ => None,
            },
            #[cfg(feature = "wgpu")]
            Backing::Cube => wgpu_devices().iter().position(|found| *found == device).map(Self::Wgpu),
            #[cfg(feature = "tch")]
            Backing::LibTorch if device == libtorch::cpu() => Some(Self::TchCpu),
            #[cfg(feature = "tch")]
            Backing::LibTorch => libtorch::cuda_index(&device).map(Self::TchCuda),
            _ => None,
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(self, index: usize) -> Result<Device, DeviceError> {
        let found = cuda_devices();
        let missing = if index < found { nvrtc::missing() } else { None };
        match missing {
            Some(missing) => Err(DeviceError::NoCompiler { device: self.to_string(), missing }),
            None => self.opened(index, found, CUDA_ADVICE, || Device::cuda(index)),
        }
    }

    #[cfg(feature = "wgpu")]
    fn wgpu(self, index: usize) -> Result<Device, DeviceError> {
        let devices = wgpu_devices();
        self.opened(index, devices.len(), WGPU_ADVICE, || devices[index].clone())
    }

    /// Returns the device if there are more than `index` of its kind and its driver opens it.
    #[cfg(feature = "cube")]
    fn opened(
        self,
        index: usize,
        found: usize,
        advice: &'static str,
        device: impl FnOnce() -> Device,
    ) -> Result<Device, DeviceError> {
        if index >= found {
            return Err(DeviceError::NotFound { device: self.to_string(), found, advice });
        }
        let device = device();
        // A failing driver ends a thread of the backend with a panic, which prints its message.
        let opened = std::panic::catch_unwind(|| device.identity());
        let reason = "its backend panicked, as printed above".to_owned();
        opened.map_err(|_| DeviceError::NotOpened { device: self.to_string(), reason })?;
        #[cfg(feature = "autotune")]
        crate::kernel_cache::use_for(&device);
        Ok(device)
    }

    #[cfg(feature = "tch")]
    fn tch_cpu(self) -> Result<Device, DeviceError> {
        Ok(libtorch::cpu())
    }

    #[cfg(feature = "tch")]
    fn tch_cuda(self, index: usize) -> Result<Device, DeviceError> {
        let none = |found| DeviceError::NotFound { device: self.to_string(), found, advice: CUDA_ADVICE };
        libtorch::cuda(index).map_err(none)
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(self, _index: usize) -> Result<Device, DeviceError> {
        Err(self.not_compiled("cuda"))
    }

    #[cfg(not(feature = "wgpu"))]
    fn wgpu(self, _index: usize) -> Result<Device, DeviceError> {
        Err(self.not_compiled("wgpu"))
    }

    #[cfg(not(feature = "tch"))]
    fn tch_cpu(self) -> Result<Device, DeviceError> {
        Err(self.not_compiled("tch"))
    }

    #[cfg(not(feature = "tch"))]
    fn tch_cuda(self, _index: usize) -> Result<Device, DeviceError> {
        Err(self.not_compiled("tch"))
    }

    #[cfg(not(all(feature = "cuda", feature = "tch", feature = "wgpu")))]
    fn not_compiled(self, feature: &'static str) -> DeviceError {
        DeviceError::NotCompiled { device: self.to_string(), feature }
    }
}

#[cfg(any(feature = "cuda", feature = "tch"))]
const CUDA_ADVICE: &str = "check the index and NVIDIA's driver (`nvidia-smi` lists what it sees)";
#[cfg(feature = "wgpu")]
const WGPU_ADVICE: &str = "check the index and the graphics driver (Vulkan, Metal or DirectX 12; on Linux `vulkaninfo \
     --summary` lists what Vulkan's loader, libvulkan1, sees)";

/// Number of CUDA devices.
fn cuda_devices() -> usize {
    #[cfg(feature = "cuda")]
    return Device::enumerate(DeviceType::Cuda).into_vec().len();
    #[cfg(not(feature = "cuda"))]
    0
}

/// Number of CUDA devices that LibTorch finds.
fn tch_cuda_devices() -> usize {
    #[cfg(feature = "tch")]
    return libtorch::cuda_devices();
    #[cfg(not(feature = "tch"))]
    0
}

/// wgpu's devices in the order in which [`DeviceSpec::Wgpu`] numbers them. None is opened.
#[cfg(feature = "wgpu")]
fn wgpu_devices() -> Vec<Device> {
    let mut devices = Device::enumerate(DeviceType::Wgpu).into_vec();
    devices.sort_by_key(|device| match wgpu_kind(device) {
        Some(WgpuDeviceKind::DiscreteGpu(_)) => 0,
        Some(WgpuDeviceKind::IntegratedGpu(_)) => 1,
        Some(WgpuDeviceKind::VirtualGpu(_)) => 2,
        Some(WgpuDeviceKind::Cpu) => 4,
        _ => 3,
    });
    devices
}

#[cfg(feature = "wgpu")]
fn wgpu_kind(device: &Device) -> Option<&WgpuDeviceKind> {
    match device.as_dispatch() {
        DispatchDevice::Cube(CubeDevice::Wgpu(wgpu)) => Some(&wgpu.kind),
        _ => None,
    }
}

/// Returns `wgpu:0` if it is a GPU.
fn first_wgpu_gpu() -> Result<Device, DeviceError> {
    #[cfg(feature = "wgpu")]
    if wgpu_devices().first().and_then(wgpu_kind) == Some(&WgpuDeviceKind::Cpu) {
        return Err(DeviceError::NotFound { device: "wgpu".into(), found: 0, advice: WGPU_ADVICE });
    }
    DeviceSpec::Wgpu(0).resolve()
}

/// Whether the device's data lies in the memory of this process: true for CPUs and for graphics drivers that compute on
/// them.
pub fn runs_on_host(device: &Device) -> bool {
    let device = device.clone().inner();
    match Backing::of(&device) {
        Backing::Flex => true,
        #[cfg(feature = "cube")]
        Backing::Cube => device.identity().is_some_and(|identity| identity.physical.is_none()),
        #[cfg(feature = "tch")]
        Backing::LibTorch => device == libtorch::cpu(),
        _ => false,
    }
}

/// Returns the driver's name for the device, such as `NVIDIA H100 80GB HBM3`, if CubeCL runs it.
pub fn driver_name(device: &Device) -> Option<String> {
    #[cfg(feature = "cube")]
    if Backing::of(device).is_cube() {
        return device.clone().inner().identity().map(|identity| identity.name);
    }
    let _ = device;
    None
}

/// Whether kernels for this device are compiled when they are first launched.
pub fn compiles_kernels(device: &Device) -> bool {
    #[cfg(feature = "cube")]
    return Backing::of(device).is_cube();
    #[cfg(not(feature = "cube"))]
    {
        let _ = device;
        false
    }
}

/// Runs `upload`, which copies data to the device. On CUDA the copies go to a stream of their own and overlap with
/// kernels launched before. Later uses of the copies wait for them through an event that CubeCL records between the
/// streams.
pub fn on_upload_stream<T>(device: &Device, upload: impl FnOnce() -> T) -> T {
    #[cfg(feature = "cuda")]
    if Backing::of(device) == Backing::Cuda {
        static UPLOADS: std::sync::OnceLock<StreamId> = std::sync::OnceLock::new();
        return UPLOADS.get_or_init(StreamId::allocate).executes(upload);
    }
    let _ = device;
    upload()
}

/// Rejects devices of backends that Undertone's operations do not support.
///
/// # Errors
/// For a device that neither Flex, CubeCL nor LibTorch runs, or whose feature this crate was built without.
pub fn check_backend(device: &Device) -> Result<(), DeviceError> {
    match Backing::of(device) {
        Backing::Unlisted => Err(DeviceError::Unlisted(format!("{:?}", device.clone().inner()))),
        _ => Ok(()),
    }
}

/// Backend of a device, as far as operations distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "no build has every backend")]
pub(crate) enum Backing {
    /// Burn's CPU backend, with Undertone's kernels.
    Flex,
    /// CubeCL on CUDA.
    Cuda,
    /// CubeCL on anything else.
    Cube,
    /// LibTorch.
    LibTorch,
    /// A backend that another crate added.
    Unlisted,
}

impl Backing {
    pub fn of(device: &Device) -> Self {
        match device.as_dispatch() {
            DispatchDevice::Flex(_) => Self::Flex,
            #[cfg(feature = "cuda")]
            DispatchDevice::Cube(CubeDevice::Cuda(_)) => Self::Cuda,
            #[cfg(feature = "cube")]
            DispatchDevice::Cube(_) => Self::Cube,
            #[cfg(feature = "tch")]
            DispatchDevice::LibTorch(_) => Self::LibTorch,
            DispatchDevice::Autodiff(_) => Self::of(&device.clone().inner()),
            #[allow(unreachable_patterns)] // Burn may have no other backend built in.
            _ => Self::Unlisted,
        }
    }

    /// Whether CubeCL's kernels run there.
    #[cfg(feature = "cube")]
    pub fn is_cube(self) -> bool {
        matches!(self, Self::Cuda | Self::Cube)
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
            "wgpu" => Ok(Self::Wgpu(0)),
            "tch:cpu" => Ok(Self::TchCpu),
            "tch:cuda" => Ok(Self::TchCuda(0)),
            _ => match name.rsplit_once(':').ok_or_else(unknown)? {
                ("cuda", text) => Ok(Self::Cuda(index(text)?)),
                ("wgpu", text) => Ok(Self::Wgpu(index(text)?)),
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
            Self::Wgpu(index) => write!(f, "wgpu:{index}"),
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
        for name in ["auto", "cpu", "cuda:0", "cuda:3", "wgpu:0", "wgpu:12", "tch:cpu", "tch:cuda:1"] {
            assert_eq!(name.parse::<DeviceSpec>().expect(name).to_string(), name);
        }
        for name in ["", "gpu", "cuda:", "cuda:x", "wgpu:-1", "tch", "tch:mps:0", "cpu:0"] {
            assert_eq!(name.parse::<DeviceSpec>(), Err(DeviceError::Unknown(name.to_owned())));
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_device_that_was_not_compiled_in_names_its_feature() {
        let error = DeviceSpec::Cuda(0).resolve().expect_err("no cuda here").to_string();
        assert!(error.contains("`cuda:0`") && error.contains("--features cuda"), "{error}");
    }

    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn wgpu_that_was_not_compiled_in_names_its_feature() {
        let error = DeviceSpec::Wgpu(1).resolve().expect_err("no wgpu here").to_string();
        assert!(error.contains("`wgpu:1`") && error.contains("--features wgpu"), "{error}");
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_device_beyond_those_there_are_says_how_many_there_are() {
        let found = wgpu_devices().len();
        let error = DeviceSpec::Wgpu(99).resolve().expect_err("no hundred devices");
        assert!(matches!(error, DeviceError::NotFound { found: said, .. } if said == found), "{error}");
        assert!(error.to_string().contains("`wgpu:99` was not found"), "{error}");
    }

    #[test]
    fn auto_is_a_gpu_or_the_cpu() {
        let device = DeviceSpec::Auto.resolve().expect("a device");
        assert!(!runs_on_host(&device) || device == Device::flex(), "{device:?}");
        assert_eq!(DeviceSpec::of(&device).expect("a name").resolve().as_ref(), Ok(&device));
        assert_eq!(check_backend(&device.autodiff()), Ok(()));
    }
}
