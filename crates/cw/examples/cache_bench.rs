//! What an entry of the cache costs, next to computing it, and what its rounding changes, on one thread:
//! `cargo run --release -p undertone-cw --example cache_bench`.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use half::f16;
use undertone_cw::{CwConfig, CwSynth};
use undertone_data::cache::{Cache, Entry, Key};
use undertone_data::features::{LogMel, Mel};

const CLIPS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let synth = CwSynth::new(CwConfig::default(), 42)?;
    let long: Vec<f32> = (0..).map(|i| synth.sample(i)).flat_map(|clip| clip.audio).take(480_000).collect();

    println!("median µs of {CLIPS} clips, all in the page cache");
    for (name, bins, samples) in [("5 s, 80 bins", 80, 80_000), ("30 s, 128 bins", 128, 480_000)] {
        let (log_mel, audio) = (LogMel::new(bins)?, long[..samples].to_vec());
        let mel = log_mel.features(&audio);
        let compute = median(|_| {
            black_box(log_mel.features(black_box(&audio)));
        });
        let [put, get] = put_and_get(&mel)?;
        println!("{name}: log-mel {compute:.0}, features put {put:.0}, get {get:.0}");
        let [put, get] = put_and_get(&audio)?;
        println!("{name}: audio put {put:.0}, get {get:.0}");
    }

    println!("\nlargest and mean change of the log-mel features of 5 s of sound");
    let log_mel = LogMel::new(80)?;
    let clips = long.chunks_exact(80_000).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let as_f16 = |clip: &[f32]| clip.iter().map(|value| f16::from_f32(*value).to_f32()).collect::<Vec<f32>>();
    type Kept<'a> = &'a dyn Fn(&Vec<f32>) -> Result<Mel, Box<dyn Error>>;
    let peers: [(&str, Kept); 3] = [
        ("audio as the cache keeps it", &|clip| Ok(log_mel.features(&through_the_cache(clip)?))),
        ("audio as f16", &|clip| Ok(log_mel.features(&as_f16(clip)))),
        ("features as the cache keeps them (f16)", &|clip| through_the_cache(&log_mel.features(clip))),
    ];
    for (name, kept) in peers {
        let (mut largest, mut sum, mut count) = (0.0f64, 0.0, 0);
        for clip in &clips {
            for (exact, kept) in log_mel.features(clip).data.iter().zip(kept(clip)?.data) {
                let change = f64::from((exact - kept).abs());
                (largest, sum, count) = (largest.max(change), sum + change, count + 1);
            }
        }
        println!("{name}: {largest:.1e}, {:.1e}", sum / f64::from(count));
    }
    Ok(())
}

fn through_the_cache<T: Entry + Clone>(value: &T) -> Result<T, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    Cache::open(dir.path(), 1 << 30)?.get_or_compute(&Key::new(&[]), || Ok(value.clone()))
}

/// Microseconds per put and per get.
fn put_and_get<T: Entry>(value: &T) -> Result<[f64; 2], Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let cache = Cache::open(dir.path(), 1 << 34)?;
    let keys: Vec<Key> = (0..CLIPS).map(|i| Key::new(&[&i.to_le_bytes()])).collect();
    let put = median(|i| assert!(cache.put(&keys[i], value).is_ok_and(|written| written)));
    let get = median(|i| assert!(black_box(cache.get::<T>(&keys[i])).is_some()));
    Ok([put, get])
}

/// The median of what `CLIPS` calls take, in microseconds.
fn median(mut call: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..CLIPS)
        .map(|i| {
            let start = Instant::now();
            call(i);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[CLIPS / 2]
}
