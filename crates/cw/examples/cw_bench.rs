//! How fast the CW synthesiser is: clips of 6 s per second, on one thread and on all.
//!
//! `cargo run --example cw_bench -p undertone-cw [CLIPS]`

use rayon::prelude::*;
use std::time::Instant;
use undertone_cw::{CwConfig, CwSynth};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clips: u64 = std::env::args().nth(1).map_or(Ok(600), |text| text.parse())?;
    let synth = CwSynth::new(CwConfig { duration_s: [6.0, 6.0], ..CwConfig::default() }, 1)?;
    for threads in [1, std::thread::available_parallelism()?.get()] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let started = Instant::now();
        let samples: usize =
            pool.install(|| (0..clips).into_par_iter().map(|index| synth.sample(index).audio.len()).sum());
        let seconds = started.elapsed().as_secs_f64();
        let rate = clips as f64 / seconds;
        println!("{threads} threads: {rate:.0} clips/s ({:.0} times real time)", samples as f64 / 16_000.0 / seconds);
    }
    Ok(())
}
