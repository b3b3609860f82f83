//! One of the processes.

use super::super::names::name;
use super::super::numbers::{median, rounded};
use super::super::training::{Trained, Training};
use super::options::ChildArgs;
use burn::tensor::Device;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone::ops::Compute;
use undertone::phases::Trainable;
use undertone::train::ranks::{Mpi, Ranks, Slow, SumTimes, launched, time_sums};
use undertone::train::{ProcessGroup, TrainError};
use undertone_cli::{Failure, say};

/// Tokens of each clip.
const TOKENS: usize = 32;
const WARM_UPS: usize = 2;

pub fn run(args: &ChildArgs) -> Result<(), Failure> {
    pin(launched().map_or(0, |launched| launched.rank));
    let (rank, line) = if args.megabytes.is_empty() { steps(args)? } else { sums(args)? };
    if rank == 0 {
        say!("{line}")?;
    }
    Ok(())
}

fn sums(args: &ChildArgs) -> Result<(usize, Value), Failure> {
    let sizes: Vec<usize> = args.megabytes.iter().map(|megabytes| (megabytes * 1e6 / 4.0) as usize).collect();
    let (rank, _, times) = time_sums(&sizes, args.steps).map_err(machine)?;
    let line = |(megabytes, times): (&f64, &SumTimes)| {
        let bytes = megabytes * 1e6;
        json!({"megabytes": megabytes, "ours_gb_per_s": rate(bytes, &times.ours), "bare_gb_per_s": rate(bytes, &times.bare)})
    };
    Ok((rank, args.megabytes.iter().zip(&times).map(line).collect()))
}

fn steps(args: &ChildArgs) -> Result<(usize, Value), Failure> {
    let latency = Duration::from_secs_f64(args.latency);
    let process_group = match launched() {
        None => ProcessGroup::default(),
        Some(_) => ProcessGroup::of(Arc::new(
            Ranks::over(move || Ok(Slow::new(Mpi::init()?, latency, f64::INFINITY))).map_err(machine)?,
        )),
    };
    let device = Device::default();
    let config = args.size.config();
    let training = |process_group: ProcessGroup| {
        let trained = Trained::Part(Trainable::All);
        Training::new(&config, ([args.batch, TOKENS], 1), trained, Compute::F32, None, &device, process_group)
    };
    let timed = time_steps(args, &process_group, training);
    // An error of one is one of all.
    let line =
        process_group.all_ok(timed.map_err(|failure| TrainError::Data(failure.text().into()))).map_err(machine)?;
    Ok((process_group.rank(), line))
}

/// Steps by itself and steps with the others, in turn, so that both see the same machine.
fn time_steps(
    args: &ChildArgs,
    process_group: &ProcessGroup,
    training: impl Fn(ProcessGroup) -> Result<Training, Failure>,
) -> Result<Value, Failure> {
    let (mut alone, mut together) = (training(ProcessGroup::default())?, training(process_group.clone())?);
    let (mut seconds_alone, mut seconds_together) = (Vec::new(), Vec::new());
    for step in 0..WARM_UPS + args.steps {
        // All begin at the same time.
        process_group.all_gather(()).map_err(machine)?;
        let began = Instant::now();
        alone.step()?;
        let own = began.elapsed().as_secs_f64();
        // The slowest is what a step of all waits for.
        let slowest = process_group.all_gather(own).map_err(machine)?.into_iter().fold(0.0, f64::max);
        let began = Instant::now();
        together.step()?;
        let shared = began.elapsed().as_secs_f64();
        if step >= WARM_UPS {
            seconds_alone.push(slowest);
            seconds_together.push(shared);
        }
    }
    let line = json!({
        "ranks": process_group.count(),
        "size": name(args.size),
        "batch": args.batch,
        "latency_s": args.latency,
        "gradient_bytes": 4 * together.parameters(),
        "alone_s": rounded(median(&seconds_alone), 5),
        "together_s": rounded(median(&seconds_together), 5),
    });
    Ok(line)
}

/// Gigabytes a second of times for so many bytes, in the middle.
fn rate(bytes: f64, times: &[Duration]) -> f64 {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    rounded(bytes / median(&seconds) / 1e9, 3)
}

/// To a core of its own, as far as there are so many.
fn pin(rank: usize) {
    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)]
    {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: an empty set of cores is all zeros, and the call reads no more than it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(rank % cores, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = rank;
}

fn machine(error: impl std::fmt::Display) -> Failure {
    Failure::Machine(error.to_string())
}
