//! Detection of launchers such as `mpirun` and `srun`.

use std::env;

/// One of several processes that a launcher started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Rank of this process, from 0.
    pub rank: usize,
    /// Number of processes; more than one.
    pub count: usize,
    /// Index of this process among those on its machine, from 0.
    pub local: usize,
}

/// Environment variables of launchers: rank and number of ranks. For OpenMPI, for MPICH and Intel MPI, and for Slurm.
const VARIABLES: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
];

/// Those of the local rank on the machine. MPICH's ranks are also started by Slurm and by Cray's PALS, which have variables of their own.
const LOCAL: [&str; 4] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID"];

/// Returns the place of this process among those that `mpirun` or `srun` started together; `None` if it was started
/// alone.
pub fn launched() -> Option<Launched> {
    of_variables(|name| env::var(name).ok())
}

fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| -> Option<usize> { variable(name)?.parse().ok() };
    let local = LOCAL.into_iter().find_map(number).unwrap_or(0);
    let of = |[rank, count]: &[&str; 2]| Some(Launched { rank: number(rank)?, count: number(count)?, local });
    VARIABLES.iter().filter_map(of).find(|launched| launched.count > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_started_by_itself_is_alone() {
        let of = |variables: &[(&str, &str)]| {
            of_variables(|name| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "many")]), None);
        let found = of(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8"), ("SLURM_PROCID", "0")]);
        assert_eq!(found, Some(Launched { rank: 3, count: 8, local: 0 }));
        let pmi = [("PMI_RANK", "5"), ("PMI_SIZE", "8"), ("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1")];
        assert_eq!(of(&pmi), Some(Launched { rank: 5, count: 8, local: 1 }), "srun --mpi=pmi2");
        let found = of(&[("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_LOCALID", "1")]);
        assert_eq!(found, Some(Launched { rank: 5, count: 8, local: 1 }));
    }
}
