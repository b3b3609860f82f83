//! Level of audio.

/// Length of the pieces that are classified as signal or pause, in samples: 20 ms.
const PIECE: usize = 320;
/// Power of the quietest piece that counts as signal, relative to the loudest piece: 30 dB below, the range of running
/// speech.
const SIGNAL: f64 = 1e-3;

/// Converts decibels to a ratio of powers.
pub fn ratio(db: f32) -> f64 {
    10f64.powf(f64::from(db) / 10.0)
}

/// Returns the sum of the squared samples.
pub fn energy(audio: &[f32]) -> f64 {
    audio.iter().map(|sample| f64::from(*sample) * f64::from(*sample)).sum()
}

/// Returns the largest absolute value.
pub fn peak(audio: &[f32]) -> f32 {
    audio.iter().fold(0.0, |peak, sample| peak.max(sample.abs()))
}

/// Returns the mean power of the pieces that are not pauses; 0 for silence.
pub fn signal_power(audio: &[f32]) -> f64 {
    let pieces: Vec<(f64, usize)> = audio.chunks(PIECE).map(|piece| (energy(piece), piece.len())).collect();
    let loudest = pieces.iter().map(|(energy, length)| energy / *length as f64).fold(0.0, f64::max);
    let signal = pieces.iter().filter(|(energy, length)| *energy >= SIGNAL * loudest * *length as f64);
    let (energy, length) = signal.fold((0.0, 0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
    if length == 0 { 0.0 } else { energy / length as f64 }
}

/// Multiplies every sample by `gain`.
pub fn scale(audio: &mut [f32], gain: f64) {
    for sample in audio {
        *sample = (f64::from(*sample) * gain) as f32;
    }
}

/// Scales a clip down so that no sample exceeds `most`.
pub fn limit(audio: &mut [f32], most: f32) {
    let peak = peak(audio);
    if peak > most {
        scale(audio, f64::from(most) / f64::from(peak));
        for sample in audio {
            *sample = sample.clamp(-most, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count_as_signal() {
        let mut audio = vec![0.5; 3200];
        assert!((signal_power(&audio) - 0.25).abs() < 1e-9);
        audio.extend(vec![0.001; 32_000]);
        assert!((signal_power(&audio) - 0.25).abs() < 1e-9);
        assert_eq!(signal_power(&[0.0; 1000]), 0.0);
        assert_eq!(signal_power(&[]), 0.0);
    }

    #[test]
    fn a_limit_scales_and_does_not_clip() {
        let mut audio = [0.5, -2.0, 1.0];
        limit(&mut audio, 1.0);
        assert_eq!(audio, [0.25, -1.0, 0.5]);
        limit(&mut audio, 1.0);
        assert_eq!(audio, [0.25, -1.0, 0.5]);
    }
}
