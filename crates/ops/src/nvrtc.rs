//! Check for NVIDIA's compiler when a device is opened. CubeCL would look for it at the first kernel, in another
//! thread, and panic.

use cubecl_cuda::install::cuda_path;

/// Header that kernels include.
const HEADER: &str = "include/cuda_fp16.h";

/// Returns a description of the missing part, if any.
pub(crate) fn missing() -> Option<String> {
    let Some(folder) = cuda_path() else {
        return Some("CUDA_PATH is not set, and there is no toolkit in /usr/local/cuda or /opt/cuda".into());
    };
    if !folder.join(HEADER).is_file() {
        return Some(format!("`{}` has no {HEADER}", folder.display()));
    }
    // The first call loads the library, and panics if it is missing.
    let loaded = std::panic::catch_unwind(|| cudarc::nvrtc::result::create_program(c"", None));
    let none = "the loader finds no libnvrtc: let LD_LIBRARY_PATH name the toolkit's lib64";
    loaded.is_err().then(|| none.into())
}
