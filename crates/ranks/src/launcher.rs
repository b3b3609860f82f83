//! Whether the process is one of several that a launcher started.

use std::env;

/// What launchers tell each process about how many there are: OpenMPI, MPICH and Intel MPI, Slurm.
const COUNTS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// How many processes `mpirun` or `srun` started together with this one; nothing where it was started by itself.
pub fn launched() -> Option<usize> {
    counted(|name| env::var(name).ok())
}

fn counted(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    COUNTS.iter().filter_map(|name| variable(name)?.parse().ok()).find(|count| *count > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_started_by_itself_is_alone() {
        assert_eq!(counted(|_| None), None);
        assert_eq!(counted(|name| (name == "SLURM_STEP_NUM_TASKS").then(|| "1".into())), None);
        assert_eq!(counted(|name| (name == "PMI_SIZE").then(|| "many".into())), None);
        assert_eq!(counted(|name| (name == "OMPI_COMM_WORLD_SIZE").then(|| "8".into())), Some(8));
    }
}
