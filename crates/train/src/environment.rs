//! `environment.json`: the software and the machine of a run.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use undertone_store::{StoreError, write_json};

/// Version of Burn, which the workspace pins.
const BURN: &str = "0.22.1";
/// Name of the file in a run's directory.
const FILE: &str = "environment.json";

/// Software and machine of one session of a run. A resumed run has several sessions, perhaps on several machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Start of the session, in UTC.
    pub started: String,
    /// Optimizer steps taken before the session.
    pub step: u64,
    /// Command line.
    pub command: Vec<String>,
    /// Version of Undertone.
    pub undertone: String,
    /// Git revision of Undertone's source, if Cargo has just built it from a checkout.
    ///
    /// It is read when the session begins, and only in a process that Cargo started (`cargo xtask`, `cargo run`),
    /// because only then the program matches the checkout. A binary that was started directly may be older than its
    /// source, so it has no revision.
    pub revision: Option<String>,
    /// Whether that source differs from the revision.
    pub modified: Option<bool>,
    /// Version of the compiler.
    pub rustc: String,
    /// Version of Burn.
    pub burn: String,
    /// Backends that are built in.
    pub backends: Vec<String>,
    /// Device of the training, by Burn's name.
    pub device: String,
    /// Model of the processor, if the system reports it.
    pub cpu: Option<String>,
    /// Number of processors that the process may use at once.
    pub cores: usize,
    /// Memory of the machine in bytes, if the system reports it.
    pub memory_bytes: Option<u64>,
    /// Operating system and kernel.
    pub os: String,
    /// Models of the graphics cards, if a driver reports them.
    pub gpus: Vec<String>,
}

/// Contents of the file.
#[derive(Default, Serialize, Deserialize)]
struct Sessions {
    sessions: Vec<Environment>,
}

impl Environment {
    /// The environment of a session on `device` that begins now, after `step` optimizer steps.
    pub fn now(device: &Device, step: u64) -> Self {
        let revision = source_revision();
        let (cpus, memory) = (CpuRefreshKind::nothing(), MemoryRefreshKind::nothing().with_ram());
        let machine = System::new_with_specifics(RefreshKind::nothing().with_cpu(cpus).with_memory(memory));
        let cpu = machine.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Self {
            started: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            step,
            command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            undertone: env!("CARGO_PKG_VERSION").into(),
            modified: revision.as_ref().map(|(_, modified)| *modified),
            revision: revision.map(|(revision, _)| revision),
            rustc: env!("UNDERTONE_RUSTC").into(),
            burn: BURN.into(),
            backends: undertone_ops::backends().iter().map(|name| (*name).to_owned()).collect(),
            device: device_name(device),
            cpu: cpu.filter(|model| !model.is_empty()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: Some(machine.total_memory()).filter(|bytes| *bytes > 0),
            os: operating_system(),
            gpus: nvidia_gpus(Path::new("/proc/driver/nvidia/gpus")),
        }
    }

    /// Adds this session to `environment.json` in a run's directory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn record(self, directory: &Path) -> Result<(), StoreError> {
        let mut sessions = Self::sessions(directory);
        sessions.push(self);
        write_json(&directory.join(FILE), &Sessions { sessions })
    }

    /// Reads the sessions of the run in a directory, in order. Empty if there is no readable file.
    pub fn sessions(directory: &Path) -> Vec<Self> {
        let bytes = std::fs::read(directory.join(FILE)).unwrap_or_default();
        serde_json::from_slice::<Sessions>(&bytes).unwrap_or_default().sessions
    }
}

/// Returns the git revision of the workspace that this was built from, and whether the source differs from it.
fn source_revision() -> Option<(String, bool)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.canonicalize().ok()?;
    // Cargo sets this for the programs that it starts.
    let package = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).canonicalize().ok()?;
    // Without a `.git` of its own, the source is part of another repository.
    if !package.starts_with(&root) || !root.join(".git").exists() {
        return None;
    }
    let revision = git(&root, &["rev-parse", "HEAD"])?;
    let source = ["status", "--porcelain", "--", "crates", "xtask", "Cargo.toml", "Cargo.lock", ".cargo"];
    Some((revision, !git(&root, &source)?.is_empty()))
}

/// Returns the output of git; `None` if git is missing or fails.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns Burn's name of a device without its wrapper: `Device<Flex(FlexDevice)>` is `Flex(FlexDevice)`.
fn device_name(device: &Device) -> String {
    let name = format!("{:?}", device.clone().inner());
    name.strip_prefix("Device<").and_then(|name| name.strip_suffix('>')).unwrap_or(&name).to_owned()
}

/// Returns the operating system's name, its kernel and its architecture. Without these files, those of the build
/// target.
fn operating_system() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"'));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = if kernel.is_empty() { String::new() } else { format!(", kernel {}", kernel.trim()) };
    format!("{}{kernel}, {}", name.unwrap_or(std::env::consts::OS), std::env::consts::ARCH)
}

/// Lists the cards of NVIDIA's driver on Linux, which has a folder for each card with a file `information`.
fn nvidia_gpus(folder: &Path) -> Vec<String> {
    let Ok(cards) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = cards.flatten().map(|card| card.path().join("information")).collect();
    paths.sort();
    let model = |path| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Model:")).map(|model| model.trim().to_owned())
    };
    paths.iter().filter_map(model).collect()
}

/// Formats seconds since 1970 as `2026-11-21T18:38:16Z`.
fn utc(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + std::time::Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_lists_its_sessions() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Environment::sessions(dir.path()), []);
        let first = Environment::now(&Device::flex(), 0);
        let second = Environment { step: 40, cpu: Some("another".into()), ..Environment::now(&Device::flex(), 0) };
        first.clone().record(dir.path()).expect("recorded");
        second.clone().record(dir.path()).expect("recorded");
        assert_eq!(Environment::sessions(dir.path()), [first, second]);
    }

    #[test]
    fn a_session_says_what_it_runs_on() {
        let here = Environment::now(&Device::flex().autodiff(), 7);
        assert_eq!((here.step, here.undertone.as_str()), (7, env!("CARGO_PKG_VERSION")));
        assert!(here.rustc.starts_with("rustc 1."), "{}", here.rustc);
        assert!(here.device.to_lowercase().contains("flex") && !here.device.contains('<'), "{}", here.device);
        assert!(here.backends.contains(&"flex".to_owned()), "{:?}", here.backends);
        assert!(here.cores > 0 && !here.os.is_empty(), "{here:?}");
        if cfg!(target_os = "linux") {
            assert!(here.memory_bytes.is_some_and(|bytes| bytes > 1 << 26), "{here:?}");
        }
        assert_eq!(here.started.len(), "2026-11-21T18:38:16Z".len());
        assert_eq!(here.command, std::env::args().collect::<Vec<_>>());
        // Cargo starts a test from a fresh build. An archive of the source has no repository.
        let is_checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
        assert_eq!(here.revision.as_ref().map(String::len), is_checkout.then_some(40), "{:?}", here.revision);
        assert_eq!(here.modified.is_some(), is_checkout);
    }

    #[test]
    fn burn_is_the_one_that_the_workspace_pins() {
        let manifest = include_str!("../../../Cargo.toml");
        assert!(manifest.contains(&format!("burn = {{ version = \"={BURN}\"")), "another version is pinned");
    }

    #[test]
    fn cards_are_those_that_the_driver_lists() {
        let dir = tempfile::tempdir().expect("a directory");
        for (card, model) in [("0000:41:00.0", "NVIDIA T4"), ("0000:01:00.0", "NVIDIA H200")] {
            std::fs::create_dir(dir.path().join(card)).expect("made");
            let text = format!("Model: \t\t {model}\nIRQ:   \t\t 90\n");
            std::fs::write(dir.path().join(card).join("information"), text).expect("written");
        }
        assert_eq!(nvidia_gpus(dir.path()), ["NVIDIA H200", "NVIDIA T4"]);
        assert!(nvidia_gpus(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn time_is_written_as_everywhere() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_795_286_296), "2026-11-21T18:38:16Z");
    }
}
