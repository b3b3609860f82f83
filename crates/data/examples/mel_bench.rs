//! Milliseconds per 30 s clip on one thread: `cargo run --release -p undertone-data --example mel_bench`.
//!
//! `mel_peer.py` beside this measures Hugging Face's extractor on the same audio.

use std::time::Instant;

use undertone_data::features::LogMel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const WINDOW: usize = 480_000;
    const RUNS: usize = 101;
    // Noise from end to end, so that nothing is skipped as padding.
    let mut state = 1u32;
    let audio: Vec<f32> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state as f32 / u32::MAX as f32 - 0.5) * 0.2
    })
    .take(WINDOW)
    .collect();

    for bins in [80, 128] {
        let log_mel = LogMel::new(bins)?;
        for (name, clip) in [("30 s of sound", &audio[..]), ("8 s and padding", &audio[..128_000])] {
            let mut times: Vec<f64> = (0..RUNS)
                .map(|_| {
                    let start = Instant::now();
                    std::hint::black_box(log_mel.features_padded(std::hint::black_box(clip), WINDOW));
                    start.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{bins} bins, {name}: median {:.3} ms, fastest {:.3} ms", times[RUNS / 2], times[0]);
        }
    }
    Ok(())
}
