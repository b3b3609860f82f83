//! The card that is measured, its driver, and where what tuning chose for it is kept.

use crate::bench::step::resolve;
use std::path::Path;
use undertone::ops::{Compute, DeviceSpec, backends, driver_name, runs_on_host};
use undertone::train::{Environment, gpu, gpu_driver, peak_flops};
use undertone_cli::Failure;

/// Device that is measured.
pub struct Card {
    /// Name that the driver reports.
    pub name: String,
    /// Memory in bytes, if the driver reports it.
    pub memory: Option<u64>,
    /// The version of NVIDIA's driver.
    pub driver: Option<String>,
    /// Whether it is no card but a driver that computes on the CPU.
    pub is_host: bool,
    /// The machine around it.
    pub machine: Environment,
}

/// The driver with which CUDA 12 begins, on Linux.
const OLDEST_DRIVER: [u32; 2] = [525, 60];

/// The device that `name` stands for.
pub fn find(name: &str) -> Result<(DeviceSpec, Card), Failure> {
    let driver = gpu_driver();
    if (name.contains("cuda") || name == "auto")
        && let Some(driver) = driver.as_deref().filter(|driver| is_too_old(driver))
    {
        let [major, minor] = OLDEST_DRIVER;
        return Err(Failure::BadInput(format!(
            "NVIDIA's driver {driver} is older than {major}.{minor}, with which CUDA 12 begins: update the driver"
        )));
    }
    let (spec, device) = resolve(name)?;
    if name == "auto" && spec == DeviceSpec::Cpu {
        return Err(Failure::BadInput(format!(
            "no GPU was found with what is built in ({}): build with --features cuda, wgpu or tch, or name a device by --device",
            backends().join(", ")
        )));
    }
    let nvidia = match spec {
        DeviceSpec::Cuda(index) | DeviceSpec::TchCuda(index) => gpu(index),
        _ => None,
    };
    let (known, memory) = nvidia.map_or((None, None), |(name, memory)| (Some(name), Some(memory)));
    let name = known.or_else(|| driver_name(&device)).unwrap_or_else(|| spec.to_string());
    let machine = Environment::now(&device, 0);
    Ok((spec, Card { name, memory, driver, is_host: runs_on_host(&device), machine }))
}

/// 470.57.02 is older than 525.60.
fn is_too_old(driver: &str) -> bool {
    let mut parts = driver.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), minor) => [major, minor.unwrap_or(0)] < OLDEST_DRIVER,
        _ => false,
    }
}

impl Card {
    /// The most operations per second of products in this type, where the card is known.
    pub fn peak(&self, compute: Compute) -> Option<f64> {
        peak_flops(&self.name, compute)
    }

    /// The name in a file's name: `nvidia-h200`.
    pub fn slug(&self) -> String {
        let letters = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let words: String = self.name.chars().map(letters).collect();
        words.split('-').filter(|word| !word.is_empty()).take(5).collect::<Vec<_>>().join("-")
    }

    /// Writes `work/cubecl.toml`, so that processes that are started there keep what CubeCL's autotuning finds in a folder of
    /// `caches` for this card. Returns a remark for the page if that folder is new: kernels were then tuned while they were timed.
    pub fn keep_caches_in(&self, caches: &Path, work: &Path) -> Result<Option<String>, Failure> {
        let failed =
            |path: &Path, e: std::io::Error| Failure::BadInput(format!("cannot write `{}`: {e}", path.display()));
        let own = caches.join(self.slug());
        let is_new = !own.is_dir();
        std::fs::create_dir_all(&own).map_err(|e| failed(&own, e))?;
        let own = own.canonicalize().map_err(|e| failed(&own, e))?;
        let file = work.join("cubecl.toml");
        let directory = toml_string(&own.to_string_lossy());
        std::fs::write(
            &file,
            format!("[environment]\npath = {{ directory = {directory} }}\n\n[compilation]\ncache = true\n"),
        )
        .map_err(|e| failed(&file, e))?;
        let of_others = std::fs::read_dir(caches).map_err(|e| failed(caches, e))?;
        let mut others: Vec<String> =
            of_others.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        others.retain(|name| *name != self.slug());
        others.sort();
        let none = format!("`{}` has no choices of tuning for {}", caches.display(), self.name);
        Ok(match (is_new, others.is_empty()) {
            (false, _) => None,
            (true, true) => Some(format!("{none} yet: kernels that are tuned were tuned while they were timed")),
            (true, false) => {
                let others = others.join(", ");
                Some(format!("{none}, only for {others}: kernels that are tuned were tuned while they were timed"))
            }
        })
    }
}

/// As a basic string of TOML.
fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str) -> Card {
        let machine = Environment::default();
        Card { name: name.to_owned(), memory: None, driver: None, is_host: false, machine }
    }

    #[test]
    fn drivers_are_compared_by_their_numbers() {
        for (driver, old) in [("470.57.02", true), ("525.59", true), ("525.60.13", false), ("1080", false), ("", false)]
        {
            assert_eq!(is_too_old(driver), old, "{driver}");
        }
    }

    #[test]
    fn a_card_has_choices_of_its_own() {
        let (caches, work) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let keep = |card: &Card| card.keep_caches_in(caches.path(), work.path()).ok().expect("kept");
        let (a, b) = (card("NVIDIA H200"), card("llvmpipe (LLVM 15.0.6, 256 bits)"));
        assert_eq!((a.slug(), b.slug()), ("nvidia-h200".to_owned(), "llvmpipe-llvm-15-0-6".to_owned()));
        assert!(keep(&a).is_some_and(|said| said.contains("NVIDIA H200 yet")));
        assert_eq!(keep(&a), None);
        assert!(keep(&b).is_some_and(|said| said.contains("only for nvidia-h200")));
        let config = std::fs::read_to_string(work.path().join("cubecl.toml")).expect("written");
        assert!(config.contains("llvmpipe-llvm-15-0-6"), "{config}");
    }
}
