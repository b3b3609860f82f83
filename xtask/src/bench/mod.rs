//! `cargo xtask bench …`: how fast training is, alone and beside a peer.

mod checkpointing;
mod compare;
mod data;
mod decode;
mod device;
mod faults;
pub mod gpu;
mod host;
pub mod hostile;
pub mod kernels;
mod names;
mod numbers;
mod ops;
mod quality;
mod random;
pub mod ranks;
mod snapshot;
mod step;
mod training;

use undertone_cli::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Time training steps of a random Whisper on random data; one JSON line
    Step(step::Workload),
    /// Time the same steps here and in PyTorch, in turn; a JSON line each, and one that compares them
    Compare(compare::Args),
    /// Time the same steps with everything kept and with blocks run again in the backward pass, in turn; a JSON line each,
    /// and one that compares them
    Checkpointing(checkpointing::Args),
    /// Time features, decoding, tokens and the loader, beside Python's if one is given, and what a consumer waits; a JSON
    /// line each
    Data(data::Args),
    /// Time a token that a random Whisper writes, beside the time of reading its weights; a JSON line each
    Decode(decode::Args),
    /// Time every fused operation beside its composition, as a share of what this machine can do; a table
    Ops(ops::Args),
    /// Count what a step of the Learner asks of an accelerator: kernels, waits, memory; a JSON line
    Device(device::Args),
    /// Measure a card in a few minutes: parity, steps beside PyTorch's, kernels, real runs; writes a page of docs/benchmarks
    Gpu(gpu::Args),
    /// Compile the kernels of training steps for NVIDIA's cards, without one, and say what each of them takes; a page
    Kernels(kernels::Args),
    /// Time the host's part of training steps on CUDA, on a driver that computes nothing; a JSON line each
    Host(host::Args),
    /// Kill, starve and damage small runs at random moments, resume them, and compare what they end in; a table
    Faults(faults::Args),
    /// Train small models on both sides, here and with transformers and PEFT, and DYNAMO's phases beside one adapter for all
    /// tasks, several seeds each; tables
    Quality(quality::Args),
    /// Time sums over several processes beside MPI's own, and training steps of 1, 2 and more of them; tables
    Ranks(ranks::Args),
    /// Give changed inputs to everything that reads what users give: none may do more than be refused; a table
    Hostile(hostile::Args),
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Step(workload) => step::run(workload),
        Command::Compare(args) => compare::run(args),
        Command::Checkpointing(args) => checkpointing::run(args),
        Command::Data(args) => data::run(args),
        Command::Decode(args) => decode::run(args),
        Command::Ops(args) => ops::run(args),
        Command::Device(args) => device::run(args),
        Command::Gpu(args) => gpu::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Host(args) => host::run(args),
        Command::Faults(args) => faults::run(args),
        Command::Quality(args) => quality::run(args),
        Command::Ranks(args) => ranks::run(args),
        Command::Hostile(args) => hostile::run(args),
    }
}
