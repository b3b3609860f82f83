//! Every test that crosses crates, in one binary: Burn is linked once. A module is a subject; `cargo nextest run --workspace
//! -E 'test(/^resume::/)'` runs one. Each test has a process of its own there; in `cargo test` they share one, so they
//! leave its environment, directory and hooks alone.

mod bench_gpu;
mod cli;
mod compact;
mod configs;
mod data;
mod data_check;
mod distilling;
mod dynamo;
mod dynamo_text;
mod evaluation;
mod exchange;
mod fakecuda;
mod folder;
mod front_door;
mod frozen;
mod guarding;
mod hostile;
mod hub;
mod interop;
mod judging;
mod learner;
mod learning;
mod lora;
mod miniature;
mod mixing;
mod monitor;
#[cfg(feature = "mpi")]
mod mpi;
mod on_device;
mod optimizer;
mod output;
mod parity;
mod parity_lora;
mod parity_text;
mod ranks;
mod reading;
mod real_weights;
mod report;
mod resume;
mod run_directory;
mod serving;
mod text_folder;
mod transcribing;
mod tune;
mod tune_rates;
mod vocabulary;
