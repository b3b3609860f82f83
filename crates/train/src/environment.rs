//! What a run was made with and on: `environment.json`.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use undertone_store::{StoreError, write_atomically};

/// The Burn that this is built on; the workspace pins it.
const BURN: &str = "0.22.1";
/// The file's name in a run's directory.
const FILE: &str = "environment.json";

/// The programme and the machine of one session of a run. A run that was resumed has several, perhaps on several machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// When the session began, in UTC.
    pub started: String,
    /// Optimizer steps that were taken before it.
    pub step: u64,
    /// The command line.
    pub command: Vec<String>,
    /// Undertone's version.
    pub undertone: String,
    /// The git revision of Undertone's source, where Cargo has just built it from a checkout.
    ///
    /// It is looked up when the session begins, and only in a process that Cargo started (`cargo xtask`, `cargo run`):
    /// then what runs is what lies in the checkout. A binary started by itself may be older than its source, so nothing
    /// is said of it.
    pub revision: Option<String>,
    /// Whether that source had been changed since.
    pub modified: Option<bool>,
    /// The compiler.
    pub rustc: String,
    /// Burn's version.
    pub burn: String,
    /// The backends that are built in.
    pub backends: Vec<String>,
    /// The device that was trained on, as Burn calls it.
    pub device: String,
    /// The processor's model, where the system tells.
    pub cpu: Option<String>,
    /// Processors that the process may use at once.
    pub cores: usize,
    /// Memory of the machine, in bytes, where the system tells.
    pub memory_bytes: Option<u64>,
    /// The operating system and its kernel.
    pub os: String,
    /// Models of the graphics cards, where a driver tells.
    pub gpus: Vec<String>,
}

/// What the file holds.
#[derive(Default, Serialize, Deserialize)]
struct Sessions {
    sessions: Vec<Environment>,
}

impl Environment {
    /// The environment of a session on `device` that begins now, after `step` optimizer steps.
    pub fn now(device: &Device, step: u64) -> Self {
        let revision = source_revision();
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
            cpu: value_of(Path::new("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: value_of(Path::new("/proc/meminfo"), "MemTotal").and_then(|text| kib(&text)),
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
        let json = serde_json::to_string_pretty(&Sessions { sessions }).unwrap_or_default();
        write_atomically(&directory.join(FILE), json.as_bytes())
    }

    /// The sessions of the run in a directory, in their order; none where there is no file that can be read.
    pub fn sessions(directory: &Path) -> Vec<Self> {
        let bytes = std::fs::read(directory.join(FILE)).unwrap_or_default();
        serde_json::from_slice::<Sessions>(&bytes).unwrap_or_default().sessions
    }
}

/// Revision of the workspace this was built from, and whether its source differs from that.
fn source_revision() -> Option<(String, bool)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.canonicalize().ok()?;
    // Cargo sets this for the programmes it starts.
    let package = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).canonicalize().ok()?;
    // Without `.git` of its own, the source is a part of somebody else's repository.
    if !package.starts_with(&root) || !root.join(".git").exists() {
        return None;
    }
    let revision = git(&root, &["rev-parse", "HEAD"])?;
    let source = ["status", "--porcelain", "--", "crates", "xtask", "Cargo.toml", "Cargo.lock", ".cargo"];
    Some((revision, !git(&root, &source)?.is_empty()))
}

/// What git says, if it is there and content.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Burn's name without what it is wrapped in: `Device<Flex(FlexDevice)>` is `Flex(FlexDevice)`.
fn device_name(device: &Device) -> String {
    let name = format!("{:?}", device.clone().inner());
    name.strip_prefix("Device<").and_then(|name| name.strip_suffix('>')).unwrap_or(&name).to_owned()
}

/// The system's own name for itself, its kernel and its architecture; at the least what this was built for.
fn operating_system() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"'));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = if kernel.is_empty() { String::new() } else { format!(", kernel {}", kernel.trim()) };
    format!("{}{kernel}, {}", name.unwrap_or(std::env::consts::OS), std::env::consts::ARCH)
}

/// The first value of a key in a file of lines like `key : value`, as Linux describes itself in.
fn value_of(path: &Path, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// `24630232 kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The cards that NVIDIA's driver lists on Linux: a folder a card, with a file `information` in it.
fn nvidia_gpus(folder: &Path) -> Vec<String> {
    let Ok(cards) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = cards.flatten().map(|card| card.path().join("information")).collect();
    paths.sort();
    paths.iter().filter_map(|path| value_of(path, "Model")).collect()
}

/// Seconds since 1970 as `2026-11-21T18:38:16Z`.
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
        // A test is started by Cargo, from what has just been built; an archive of the source has no repository.
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
    fn what_linux_says_of_itself_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("info");
        std::fs::write(&path, "processor\t: 0\nmodel name\t: AMD EPYC 9B14: x\nprocessor\t: 1\n").expect("written");
        assert_eq!(value_of(&path, "model name").as_deref(), Some("AMD EPYC 9B14: x"));
        assert_eq!(value_of(&path, "processor").as_deref(), Some("0"));
        assert_eq!((value_of(&path, "MemTotal"), value_of(&dir.path().join("none"), "x")), (None, None));
        assert_eq!([kib("24630232 kB"), kib("many kB"), kib("12")], [Some(24_630_232 * 1024), None, None]);
    }

    #[test]
    fn time_is_written_as_everywhere() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_795_286_296), "2026-11-21T18:38:16Z");
    }
}
