//! Rooms.

use std::path::Path;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::library::{self, HOURS};
use super::{AugmentError, ReverbConfig};
use crate::audio::SAMPLE_RATE;
use crate::fourier;
use crate::level::{energy, ratio, scale};
use crate::random::{between, chance};

/// Delay of a generated room's echo after the direct sound, in samples: 2.5 ms, a detour of 0.9 m.
const FIRST_ECHO: usize = 40;
/// Maximum length of a response, in samples: 10 s, more than any cathedral.
const LONGEST: usize = 10 * SAMPLE_RATE as usize;
const KEY: &str = "reverb.path";

pub(super) struct Reverb {
    config: ReverbConfig,
    /// Recorded impulse responses; empty if rooms are generated.
    recorded: Vec<Vec<f32>>,
}

impl Reverb {
    pub fn new(config: &ReverbConfig) -> Result<Self, AugmentError> {
        // A sample of 32 bits takes twice the memory of a noise sample.
        let most = HOURS / 2 * 3600 * SAMPLE_RATE as usize;
        let recorded = match &config.path {
            Some(path) if config.p > 0.0 => library::load(KEY, path, most, trimmed)?,
            _ => Vec::new(),
        };
        Ok(Self { config: config.clone(), recorded })
    }

    /// Reverberates the clip with the configured probability; returns whether it did.
    pub fn apply(&self, audio: &mut [f32], rng: &mut ChaCha8Rng) -> bool {
        if !chance(rng, self.config.p) || audio.is_empty() {
            return false;
        }
        if self.recorded.is_empty() {
            put_into(&self.made_up(rng), audio);
        } else {
            put_into(&self.recorded[rng.random_range(0..self.recorded.len())], audio);
        }
        true
    }

    /// Returns the direct sound, followed by noise whose amplitude falls by 60 dB (a thousandth) in the drawn time.
    fn made_up(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let rt60 = f64::from(between(rng, self.config.rt60_s)) * f64::from(SAMPLE_RATE);
        let direct_db = between(rng, self.config.direct_db);
        let fall = (-1000f64.ln() / rt60).exp();
        let mut level = 1.0;
        let mut taps: Vec<f32> = (0..rt60.ceil() as usize + FIRST_ECHO)
            .map(|_| {
                level *= fall;
                (level * rng.sample::<f64, _>(StandardNormal)) as f32
            })
            .collect();
        taps[..FIRST_ECHO].fill(0.0);
        let echo = energy(&taps);
        scale(&mut taps, (1.0 / (echo * ratio(direct_db))).sqrt());
        taps[0] = 1.0;
        taps
    }
}

/// Convolves the clip with a response. The response's loudest sample is the direct sound, so the clip is not delayed.
/// The energy is restored, so its level does not change.
fn put_into(taps: &[f32], audio: &mut [f32]) {
    let direct = (0..taps.len()).fold(0, |best, n| if taps[n].abs() > taps[best].abs() { n } else { best });
    let reverberant = fourier::convolve(audio, taps);
    let heard = &reverberant[direct..direct + audio.len()];
    let (before, after) = (energy(audio), energy(heard));
    if after > 0.0 {
        audio.copy_from_slice(heard);
        scale(audio, (before / after).sqrt());
    }
}

/// Returns the response up to where all but a millionth of its energy (60 dB) has passed.
fn trimmed(path: &Path, mut taps: Vec<f32>) -> Result<Vec<f32>, AugmentError> {
    let whole = energy(&taps);
    if whole == 0.0 {
        return Err(AugmentError::Silent { key: KEY, path: path.into() });
    }
    let mut rest = 0.0;
    while let Some(tap) = taps.last().map(|tap| f64::from(*tap)) {
        rest += tap * tap;
        if rest > whole * 1e-6 {
            break;
        }
        taps.pop();
    }
    if taps.len() > LONGEST {
        let seconds = taps.len() as f64 / f64::from(SAMPLE_RATE);
        return Err(AugmentError::NotARoom { key: KEY, path: path.into(), seconds });
    }
    Ok(taps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    #[test]
    fn a_made_up_room_dies_away_by_60_db_in_its_time() {
        let config = ReverbConfig { rt60_s: [0.5, 0.5], direct_db: [6.0, 6.0], ..ReverbConfig::default() };
        let taps = Reverb::new(&config).unwrap().made_up(&mut random::stream(1, 2));
        assert!((10.0 * (1.0 / energy(&taps[1..])).log10() - 6.0).abs() < 0.01);
        // Windows of 50 ms a quarter of a second, half the time, apart: 30 dB.
        let level = |from: usize| 10.0 * energy(&taps[from..from + 800]).log10();
        assert!((level(400) - level(4400) - 30.0).abs() < 1.5, "{}", level(400) - level(4400));
    }

    #[test]
    fn a_response_ends_where_it_can_no_longer_be_heard() {
        let mut taps = vec![0.0, 1.0, 0.5];
        taps.extend(vec![1e-6; 16_000]);
        assert_eq!(trimmed(Path::new("r.wav"), taps).unwrap(), [0.0, 1.0, 0.5]);
        let endless = trimmed(Path::new("r.wav"), vec![0.5; LONGEST + 1]).unwrap_err().to_string();
        assert!(endless.contains("r.wav lasts 10.0 s"), "{endless}");
        assert!(trimmed(Path::new("r.wav"), vec![0.0; 5]).unwrap_err().to_string().contains("is silent"));
    }

    #[test]
    fn the_direct_sound_stays_where_it_is() {
        let mut audio = vec![0.0; 1000];
        audio[300] = 0.5;
        let mut taps = vec![0.0; 50];
        (taps[20], taps[45]) = (-0.8, 0.1);
        put_into(&taps, &mut audio);
        assert_eq!(audio.len(), 1000);
        let loudest = (0..1000).max_by(|a, b| audio[*a].abs().total_cmp(&audio[*b].abs())).unwrap();
        assert_eq!(loudest, 300);
        assert!((energy(&audio) - 0.25).abs() < 1e-6);
        assert!((audio[325] / audio[300] + 0.125).abs() < 1e-4);
    }
}
