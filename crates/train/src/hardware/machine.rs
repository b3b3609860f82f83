//! Processor and memory.

use super::Hardware;
use sysinfo::{CGroupLimits, MemoryRefreshKind, Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System};

/// Reads the operating system's counters.
#[derive(Debug)]
pub(super) struct Machine {
    system: System,
    process: Pid,
    /// Whether counters were read before, so that there is a difference to report.
    primed: bool,
}

impl Machine {
    pub fn new() -> Self {
        Self { system: System::new(), process: Pid::from_u32(std::process::id()), primed: false }
    }

    /// Returns shares of the time since the last call, and current memory.
    pub fn sample(&mut self) -> Hardware {
        let memory = MemoryRefreshKind::nothing().with_ram();
        self.system.refresh_memory_specifics(memory);
        // Also reads the machine's processor times, because a process's share is relative to them.
        let what = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.process]), false, what);
        let process = self.system.process(self.process);
        let cores = self.system.cpus().len();
        let primed = std::mem::replace(&mut self.primed, true) && cores > 0;
        let share = |percent: f32, of: usize| primed.then(|| (f64::from(percent) / 100.0 / of as f64).clamp(0.0, 1.0));
        let machine = (self.system.total_memory(), self.system.available_memory());
        let memory = (machine.0 > 0).then(|| within(machine, process.and_then(Process::cgroup_limits).as_ref()));
        Hardware {
            cpu: share(self.system.global_cpu_usage(), 1),
            process_cpu: process.and_then(|process| share(process.cpu_usage(), cores)),
            memory_bytes: process.map(Process::memory).filter(|bytes| *bytes > 0),
            memory_total_bytes: memory.map(|(total, _)| total),
            memory_available_bytes: memory.map(|(_, available)| available),
            gpus: Vec::new(),
        }
    }
}

/// Returns total and available memory: the machine's, or a container's if it is limited to less.
fn within((total, available): (u64, u64), container: Option<&CGroupLimits>) -> (u64, u64) {
    match container.filter(|limits| limits.total_memory < total) {
        // Cached file pages count against a container and are reclaimed when needed, so the available memory is the
        // limit less `rss`, not sysinfo's free memory.
        Some(limits) => (limits.total_memory, limits.total_memory.saturating_sub(limits.rss).min(available)),
        None => (total, available),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_what_its_limit_leaves() {
        let container = |total_memory, rss| CGroupLimits { total_memory, free_memory: 0, free_swap: 0, rss };
        assert_eq!(within((100, 60), None), (100, 60));
        assert_eq!(within((100, 60), Some(&container(100, 10))), (100, 60), "a container without a limit");
        assert_eq!(within((100, 60), Some(&container(40, 10))), (40, 30), "files in memory are no use");
        assert_eq!(within((100, 20), Some(&container(40, 10))), (40, 20), "others have it");
        assert_eq!(within((100, 60), Some(&container(40, 50))), (40, 0));
    }

    #[test]
    fn shares_are_told_from_the_second_look_on() {
        let mut machine = Machine::new();
        let first = machine.sample();
        assert_eq!((first.cpu, first.process_cpu), (None, None));
        std::thread::sleep(sysinfo::MINIMUM_CPU_UPDATE_INTERVAL);
        let second = machine.sample();
        assert!(second.cpu.is_some_and(|share| (0.0..=1.0).contains(&share)), "{second:?}");
        assert!(second.process_cpu.is_some_and(|share| (0.0..=1.0).contains(&share)), "{second:?}");
        assert!(second.memory_bytes <= second.memory_total_bytes, "{second:?}");
    }
}
