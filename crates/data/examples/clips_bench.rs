//! How fast clips open and load: `cargo run --release -p undertone-data --example clips_bench -- PATH [field=column]…`
//!
//! Prints the time to open, to ask every header for its length, and to load in sequence, in a shuffle of blocks and in
//! any order, with 2 threads; then the most memory the process had. Of a single long file give a list of parts of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use undertone_data::clips::{BlockShuffle, Clips};
use undertone_data::loader::{Order, epoch_order};
use undertone_data::records::{Column, RecordsConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("give a path")?;
    let columns = args.filter_map(|arg| {
        let (field, column) = arg.split_once('=')?;
        Some((field.to_owned(), Column::from(column)))
    });
    let config = RecordsConfig {
        path: std::path::PathBuf::from(path).into(),
        columns: columns.collect(),
        ..RecordsConfig::default()
    };
    let begun = Instant::now();
    let clips = Clips::open(&config)?;
    println!("opened {} clips in {:.3} s, {} MB", clips.len(), begun.elapsed().as_secs_f64(), peak_memory());
    println!("the first: {:?}", clips.clip(0));

    let begun = Instant::now();
    let known: Vec<f64> = (0..clips.len()).filter_map(|index| clips.seconds(index)).collect();
    let (count, hours) = (known.len(), known.iter().sum::<f64>() / 3600.0);
    println!("{count} lengths, {hours:.3} h, in {:.3} s", begun.elapsed().as_secs_f64());
    println!("{} problems", clips.problems().len());

    load("in sequence", &clips, &(0..clips.len()).collect::<Vec<_>>());
    if let Some(blocks) = clips.blocks() {
        println!("{} blocks", blocks.len());
        load("blocks of 4 shuffled", &clips, &BlockShuffle::new(blocks, 4, 1).epoch(0));
    }
    load("in any order", &clips, &epoch_order(clips.len(), 1, 0));
    Ok(())
}

/// Loads the clips in an order, on two threads.
fn load(name: &str, clips: &Clips, order: &[usize]) {
    let (begun, next, samples, failed) =
        (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match clips.load(*index) {
                        Ok(audio) => samples.fetch_add(audio.len(), Ordering::Relaxed),
                        Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
    });
    let (seconds, hours) = (begun.elapsed().as_secs_f64(), samples.into_inner() as f64 / 16_000.0 / 3600.0);
    println!(
        "{name}: {seconds:.3} s, {:.2} ms a clip, {hours:.3} h of audio, {} failed, {} MB at most",
        1e3 * seconds / order.len() as f64,
        failed.into_inner(),
        peak_memory()
    );
}

/// The most memory that the process had so far, in MB; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}
