//! Memory of the machine and of this process, and amounts of memory as text.

use burn::tensor::Device;
use bytesize::Unit;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use undertone_ops::runs_on_host;

/// A limit in a configuration: `6GB`, `512 MiB`, a plain number of bytes, or a share like `80%` of the available
/// memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryBudget {
    /// Number of bytes.
    Bytes(u64),
    /// Share of the available memory, above 0 and at most 1.
    Share(f64),
}

/// Error for a text that is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of memory: write it like 6GB, 512MiB or 80%")]
pub struct MemoryBudgetError(String);

impl Default for MemoryBudget {
    /// Leaves a fifth for the system's caches, and for what other programs need meanwhile.
    fn default() -> Self {
        Self::Share(0.8)
    }
}

impl MemoryBudget {
    /// Returns the limit in bytes. `None` for a share if `available` is unknown.
    pub fn bytes(self, available: Option<u64>) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Share(share) => available.map(|bytes| (bytes as f64 * share) as u64),
        }
    }
}

impl FromStr for MemoryBudget {
    type Err = MemoryBudgetError;

    fn from_str(text: &str) -> Result<Self, MemoryBudgetError> {
        let error = || MemoryBudgetError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let number = |digits: &str| {
            digits.trim_end().parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0).ok_or_else(error)
        };
        if let Some(percent) = lower.strip_suffix('%') {
            let share = number(percent)? / 100.0;
            return if share <= 1.0 { Ok(Self::Share(share)) } else { Err(error()) };
        }
        // Decimal for `GB` and `G`, binary for `GiB`, as the units are defined (IEC 80000-13).
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &lower[digits.len()..] {
            // A single letter is accepted for gigabytes only. A plain number is in bytes.
            unit @ ("kib" | "mib" | "gib" | "tib" | "kb" | "mb" | "gb" | "tb" | "g" | "b") => unit.parse::<Unit>().ok(),
            _ => None,
        };
        let size = match unit {
            Some(unit) => unit * 1,
            None if digits.len() == lower.len() => 1,
            None => return Err(error()),
        };
        let bytes = number(digits)? * size as f64;
        if bytes >= 1.0 && bytes < u64::MAX as f64 { Ok(Self::Bytes(bytes as u64)) } else { Err(error()) }
    }
}

/// Bytes in readable form: `612 MB`, `5.31 GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub u64);

impl Display for Amount {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        let text = match self.0 as f64 {
            bytes if bytes < 999_500_000.0 => format!("{:.0} MB", bytes / 1e6),
            bytes if bytes < 99_950_000_000.0 => format!("{:.2} GB", bytes / 1e9),
            bytes => format!("{:.0} GB", bytes / 1e9),
        };
        f.pad(&text)
    }
}

/// Returns the memory that this process can still allocate without swapping or being killed: the system's available
/// memory, or less if control groups (containers, batch systems) allow less. Known on Linux.
pub fn available_memory_bytes() -> Option<u64> {
    available_below(Path::new("/"))
}

/// Like [`available_memory_bytes`], for the file system below `root`.
fn available_below(root: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let system = kib_field(&meminfo, "MemAvailable:")?;
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    Some(memory_groups(&groups).into_iter().filter_map(|group| group.available(root)).fold(system, u64::min))
}

/// Returns the memory that this process has resident, in bytes. Known on Linux.
pub fn resident_memory_bytes() -> Option<u64> {
    kib_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Returns the peak memory of this process in bytes, if the system reports it.
pub fn peak_memory_bytes() -> Option<u64> {
    kib_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Returns the peak memory of a run in bytes: on an accelerator the memory that its allocator has reserved, if known, because it
/// never releases any; on a CPU that of the process.
pub fn peak_bytes(device: &Device) -> Option<u64> {
    match runs_on_host(device) {
        true => peak_memory_bytes(),
        false => device.memory_pool_usage().map(|usage| usage.bytes_reserved),
    }
}

/// Returns the number of KiB after `name` in a file of the proc file system, in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A control group that limits memory: its mount point and its file names.
struct MemoryGroup {
    mount: &'static str,
    path: PathBuf,
    limit: &'static str,
    usage: &'static str,
    /// Field of the part of the usage that is file pages, which are reclaimed first.
    reclaimable: &'static str,
}

/// Returns the groups in `/proc/self/cgroup`: the unified one (`0::/path`) and that of version 1 (`4:memory:/path`).
fn memory_groups(text: &str) -> Vec<MemoryGroup> {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let path = PathBuf::from(path.trim_start_matches('/'));
        match controllers {
            "" => Some(MemoryGroup {
                mount: "sys/fs/cgroup",
                path,
                limit: "memory.max",
                usage: "memory.current",
                reclaimable: "inactive_file ",
            }),
            _ if controllers.split(',').any(|name| name == "memory") => Some(MemoryGroup {
                mount: "sys/fs/cgroup/memory",
                path,
                limit: "memory.limit_in_bytes",
                usage: "memory.usage_in_bytes",
                reclaimable: "total_inactive_file ",
            }),
            _ => None,
        }
    };
    text.lines().filter_map(group).collect()
}

impl MemoryGroup {
    /// Returns the minimum that this group and the groups around it leave. A container may see its own group at the
    /// mount point itself, so a path that does not exist is skipped.
    fn available(&self, root: &Path) -> Option<u64> {
        let mount = root.join(self.mount);
        self.path.ancestors().filter_map(|path| self.left_in(&mount.join(path))).min()
    }

    /// `None` without a limit, which version 2 writes as `max`.
    fn left_in(&self, dir: &Path) -> Option<u64> {
        let number = |file: &str| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        let (limit, usage) = (number(self.limit)?, number(self.usage)?);
        let stat = std::fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let pages = stat.lines().find_map(|line| line.strip_prefix(self.reclaimable)?.trim().parse().ok());
        Some(limit.saturating_sub(usage.saturating_sub(pages.unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn budgets_are_read_as_people_write_them() {
        for (text, budget) in [
            ("6GB", MemoryBudget::Bytes(6_000_000_000)),
            ("6 gib", MemoryBudget::Bytes(6 << 30)),
            ("1.5G", MemoryBudget::Bytes(1_500_000_000)),
            ("512MB", MemoryBudget::Bytes(512_000_000)),
            ("1024", MemoryBudget::Bytes(1024)),
            ("80%", MemoryBudget::Share(0.8)),
            ("12.5 %", MemoryBudget::Share(0.125)),
        ] {
            assert_eq!(text.parse(), Ok(budget), "{text}");
        }
        for text in ["", "GB", "-1GB", "0", "0%", "101%", "6XB", "inf", "1e300GB", "0.2"] {
            let error = text.parse::<MemoryBudget>().expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_read_as_more_than_it_says(text in "[0-9.]{0,8} ?[kKmMgGtT]?i?[bB%]?") {
            match text.parse::<MemoryBudget>() {
                Ok(MemoryBudget::Share(share)) => prop_assert!(share > 0.0 && share <= 1.0),
                Ok(MemoryBudget::Bytes(bytes)) => prop_assert!(bytes > 0),
                Err(error) => prop_assert!(error.to_string().contains("80%")),
            }
        }
    }

    #[test]
    fn amounts_are_short() {
        for (bytes, text) in [(612_000_000, "612 MB"), (5_312_000_000, "5.31 GB"), (141_000_000_000, "141 GB")] {
            assert_eq!(Amount(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>8}", Amount(1_000_000)), "    1 MB");
    }

    fn machine(files: &[(&str, &str)]) -> Option<u64> {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        available_below(dir.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n");

    #[test]
    fn a_machine_without_limits_has_what_is_available() {
        assert_eq!(machine(&[]), None);
        assert_eq!(machine(&[MEMINFO]), Some(1_024_000));
        let unlimited = [MEMINFO, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(machine(&unlimited), Some(1_024_000));
    }

    #[test]
    fn a_control_group_or_one_around_it_limits() {
        let unified = [
            MEMINFO,
            ("proc/self/cgroup", "0::/slice/job\n"),
            ("sys/fs/cgroup/slice/memory.max", "500000\n"),
            ("sys/fs/cgroup/slice/memory.current", "300000\n"),
            ("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 100000\n"),
        ];
        assert_eq!(machine(&unified), Some(300_000), "file pages can be given up");
        let first = [
            MEMINFO,
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "150000\n"),
        ];
        assert_eq!(machine(&first), Some(250_000), "seen at the mount");
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells a process how much memory it holds")]
    fn this_process_holds_some_of_what_there_is() {
        assert!(resident_memory_bytes().expect("known") > 1 << 20);
        assert!(available_memory_bytes().expect("known") > 1 << 20);
    }
}
