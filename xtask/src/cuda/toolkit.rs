//! What CubeCL needs of NVIDIA's toolkit: NVRTC, which compiles kernels when the program runs, and the headers that they include.

use crate::process::{python, succeeds};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};
use undertone_cli::{Failure, note};

/// Where the toolkit is installed when the machine has none: a virtual environment of Python's, and links to what is in it.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/cuda");
/// Where CubeCL looks besides `CUDA_PATH`.
const USUAL: [&str; 2] = ["/usr/local/cuda", "/opt/cuda"];
/// NVIDIA's packages of a version of CUDA.
const PACKAGES: [&str; 4] = ["nvrtc", "runtime", "nvcc", "cccl"];
/// The package of the disassembler, which has no version for CUDA 12 and reads what that makes.
const DISASSEMBLER: &str = "nvidia-cuda-nvdisasm";
/// The newest toolkit that is installed: the first that knows every card of today.
const NEWEST: u32 = 8;

/// A folder with `include`, and with NVRTC in `lib64` or `lib`.
pub struct Toolkit {
    /// Path of the toolkit.
    pub folder: PathBuf,
}

impl Toolkit {
    /// The one that `CUDA_PATH` names, or that of the machine, or one of Undertone's own, which is installed where it is not yet.
    pub fn bring() -> Result<Self, Failure> {
        if let Some(folder) = std::env::var_os("CUDA_PATH") {
            let named = Self { folder: folder.into() };
            return named.missing().map_or(Ok(()), Err).map(|()| named).map_err(|missing| {
                Failure::BadInput(format!(
                    "CUDA_PATH names `{}`, which has no {missing}: let it name a CUDA toolkit, or unset it to have NVIDIA's \
                     compiler installed",
                    Path::new(&std::env::var_os("CUDA_PATH").unwrap_or_default()).display()
                ))
            });
        }
        let own = Path::new(INSTALLED).join("toolkit");
        let known = USUAL.iter().map(PathBuf::from).chain([own.clone()]).map(|folder| Self { folder });
        if let Some(found) = known.into_iter().find(|toolkit| toolkit.missing().is_none()) {
            return Ok(found);
        }
        install(&own)?;
        let installed = Self { folder: own };
        match installed.missing() {
            None => Ok(installed),
            Some(missing) => Err(Failure::Machine(format!(
                "NVIDIA's packages were installed in `{INSTALLED}`, and there is no {missing}: remove that folder and try again"
            ))),
        }
    }

    /// What CubeCL looks for there and does not find.
    fn missing(&self) -> Option<&'static str> {
        if !self.folder.join("include/cuda_fp16.h").is_file() {
            return Some("include/cuda_fp16.h");
        }
        self.nvrtc().is_none().then_some("libnvrtc in its lib64 or lib")
    }

    /// NVRTC's library.
    pub fn nvrtc(&self) -> Option<PathBuf> {
        let folders = ["lib64", "lib"].map(|name| self.folder.join(name));
        let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let is_nvrtc = |name: &str| name == "libnvrtc.so" || name.starts_with("libnvrtc.so.");
        files
            .map(|file| file.path())
            .filter(|path| path.file_name().is_some_and(|n| is_nvrtc(&n.to_string_lossy())))
            .min()
    }

    /// Where its libraries are.
    pub fn libraries(&self) -> PathBuf {
        self.nvrtc().and_then(|file| file.parent().map(Path::to_owned)).unwrap_or_else(|| self.folder.join("lib64"))
    }

    /// What a program needs to find it.
    pub fn variables(&self) -> [(&'static str, OsString); 1] {
        [("CUDA_PATH", self.folder.clone().into())]
    }

    /// NVIDIA's assembler, which says what a kernel takes of a card.
    pub fn assembler(&self) -> PathBuf {
        self.folder.join("bin/ptxas")
    }

    /// What shows machine code as text.
    pub fn disassembler(&self) -> PathBuf {
        self.folder.join("bin/nvdisasm")
    }
}

/// Installs NVIDIA's packages from PyPI, and lays out what is in them as a toolkit has it.
fn install(folder: &Path) -> Result<(), Failure> {
    let version = version_for(driver_version().as_deref());
    note!(
        "── CUDA: this machine has no CUDA toolkit; installing NVIDIA's compiler {version} once in target/cuda, which fetches \
         130 MB and takes 360 MB of disk"
    );
    let environment = Path::new(INSTALLED).join("python");
    if !succeeds(Command::new(python()).args(["-m", "venv"]).arg(&environment)) {
        return Err(Failure::Machine(format!(
            "`{} -m venv` failed, see above: install Python with it (Debian: python3-venv), or set CUDA_PATH to a CUDA toolkit",
            python()
        )));
    }
    let packages = PACKAGES.map(|name| format!("nvidia-cuda-{name}-cu12=={version}.*"));
    let pip = environment.join("bin/python3");
    if !succeeds(Command::new(&pip).args(["-m", "pip", "install", "--quiet", DISASSEMBLER]).args(packages)) {
        return Err(Failure::Machine(
            "pip could not install NVIDIA's packages, see above: is there a network? CUDA_PATH may name a CUDA toolkit instead".into(),
        ));
    }
    let packages = packages_of(&environment).ok_or_else(|| {
        Failure::Machine(format!("pip installed NVIDIA's packages, and `{}` has none of them", environment.display()))
    })?;
    lay_out(&packages, folder)
        .map_err(|e| Failure::Machine(format!("cannot lay out NVIDIA's packages in `{}`: {e}", folder.display())))
}

/// `site-packages/nvidia` of a virtual environment.
fn packages_of(environment: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(environment.join("lib")).ok()?;
    versions.flatten().map(|version| version.path().join("site-packages/nvidia")).find(|found| found.is_dir())
}

/// Links of `folder/{include,lib64,bin,nvvm}` to what the packages have, each in a folder of its own.
fn lay_out(packages: &Path, folder: &Path) -> io::Result<()> {
    for package in fs::read_dir(packages)? {
        let package = package?.path();
        for (name, to) in
            [("include", "include"), ("lib", "lib64"), ("bin", "bin"), ("nvvm/libdevice", "nvvm/libdevice")]
        {
            if package.join(name).is_dir() {
                link_all(&package.join(name), &folder.join(to))?;
            }
        }
    }
    Ok(())
}

/// Links to every file in `from`, in folders of the same names: two packages have parts of one folder.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let link = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            link_all(&entry.path(), &link)?;
        } else if !link.exists() {
            // A link that leads nowhere, because the repository was moved.
            if link.is_symlink() {
                fs::remove_file(&link)?;
            }
            link_file(&entry.path().canonicalize()?, &link)?;
        }
    }
    Ok(())
}

/// A link to a file.
#[cfg(unix)]
pub fn link_file(from: &Path, to: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

/// A copy of a file.
#[cfg(not(unix))]
pub fn link_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop)
}

/// The version of CUDA that the machine's driver is for, as `nvidia-smi` says it.
fn driver_version() -> Option<String> {
    let output = Command::new("nvidia-smi").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_once("CUDA Version: ").and_then(|(_, version)| version.split_whitespace().next()).map(str::to_owned)
}

/// The toolkit for a driver: no newer than it, since a driver does not load what a newer compiler writes.
fn version_for(driver: Option<&str>) -> String {
    let newest = format!("12.{NEWEST}");
    let Some((major, minor)) = driver.and_then(|version| version.split_once('.')) else { return newest };
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        // There is no 12.7.
        (Ok(12), Ok(7)) => "12.6".into(),
        (Ok(12), Ok(minor)) if minor < NEWEST => format!("12.{minor}"),
        _ => newest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_no_newer_than_the_driver() {
        let of = [None, Some("12.8"), Some("13.1"), Some("12.4"), Some("12.7"), Some("N/A")].map(version_for);
        assert_eq!(of, ["12.8", "12.8", "12.8", "12.4", "12.6", "12.8"]);
    }

    #[test]
    #[cfg(unix)]
    fn packages_are_laid_out_as_a_toolkit() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |path: &str| {
            let path = dir.path().join("nvidia").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "").expect("written");
        };
        for path in ["cuda_runtime/include/cuda_fp16.h", "cuda_runtime/include/crt/a.h", "cuda_nvcc/include/crt/b.h"] {
            write(path);
        }
        let (packages, toolkit) = (dir.path().join("nvidia"), Toolkit { folder: dir.path().join("toolkit") });
        assert_eq!(toolkit.missing(), Some("include/cuda_fp16.h"));
        lay_out(&packages, &toolkit.folder).expect("laid out");
        assert_eq!(toolkit.missing(), Some("libnvrtc in its lib64 or lib"));
        write("cuda_nvrtc/lib/libnvrtc.so.12");
        write("cuda_nvrtc/lib/libnvrtc-builtins.so.12.8");
        lay_out(&packages, &toolkit.folder).expect("laid out again");
        assert!(toolkit.missing().is_none() && toolkit.folder.join("include/crt/b.h").is_file());
        assert_eq!(toolkit.nvrtc().expect("NVRTC"), toolkit.folder.join("lib64/libnvrtc.so.12"));
    }
}
