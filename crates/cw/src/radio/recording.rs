//! Radio path for recordings, as if they were transmitted again.

use serde::{Deserialize, Serialize};

use super::channel::{self, RATE};
use super::stream::Stream;
use super::{Drift, Fading, Filter, Interference, OtherStations, Path, Receiver, ReceiverFilter, Recorder, Static};
use undertone_data::bounds::{BoundsError, probability};
use undertone_data::random::{between, chance};
use undertone_data::{fourier, level};

/// Range in which the pitch of a recording is searched, in hertz.
const PITCH_HZ: [f64; 2] = [200.0, 2000.0];
/// Width within which power counts as one pitch, in hertz: keying at 60 wpm widens a carrier to about that.
const LINE_HZ: f64 = 50.0;

/// Effects of a radio path on recordings of one station. Levels are relative to the recording's own carrier, whose
/// amplitude and pitch are estimated from the recording. Its power while there is a signal is taken for that of a sine,
/// and its pitch is the maximum of its spectrum between 200 and 2000 Hz.
///
/// Each effect has a probability of its own among the clips that pass through a radio path at all. White noise is not
/// one of them: `noise` adds it, and 0 dB over the whole band are 12 dB in a bandwidth of 500 Hz.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RadioChannel {
    /// Probability that a clip passes through a radio path.
    pub p: f32,
    /// Drift of the receiver, which shifts everything in the recording.
    pub drift: Drift,
    /// Slow fading, of the recording's noise together with its signal.
    pub qsb: Fading,
    /// Other stations.
    pub qrm: Interference,
    /// Static crashes.
    pub qrn: Static,
    /// The receiver's filter, around the recording's pitch.
    pub filter: ReceiverFilter,
    /// Flutter and echoes.
    pub path: Path,
    /// Receiver effects after the filter.
    pub receiver: Receiver,
    /// Recorder, with which the result is recorded again.
    pub recorder: Recorder,
}

impl RadioChannel {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), BoundsError> {
        probability("p", self.p)?;
        self.drift.validate()?;
        self.qsb.validate()?;
        self.qrn.validate()?;
        self.qrm.validate()?;
        self.filter.validate()?;
        self.path.validate()?;
        self.receiver.validate()?;
        self.recorder.validate()
    }

    /// Passes a clip through the radio path with the configured probability; returns whether it was changed. Its length
    /// stays the same. `stations` synthesises the other stations; without it there are none.
    pub fn transmit(&self, stations: Option<&dyn OtherStations>, audio: &mut [f32], draw: u64) -> bool {
        if !chance(&mut Stream::Channel.of(draw), self.p) {
            return false;
        }
        let amplitude = (2.0 * level::signal_power(audio)).sqrt();
        if amplitude == 0.0 {
            return false;
        }
        let pitch_hz = carrier_pitch(audio);
        let [mut drifting, mut fading, mut others, mut bursts, mut filtering] =
            [Stream::Drift, Stream::Qsb, Stream::Qrm, Stream::Qrn, Stream::Filter].map(|stream| stream.of(draw));
        let drift = self.drift.draw(&mut drifting);
        let qsb = self.qsb.draw(&mut fading);
        let qrm = self.qrm.draw(pitch_hz as f32, &mut others);
        let qrn = self.qrn.draw(&mut bursts);
        let filter = chance(&mut filtering, self.filter.probability)
            .then(|| Filter::new(pitch_hz, between(&mut filtering, self.filter.width_hz).into()));
        let path = self.path.draw(draw);
        let receiver = self.receiver.draw(pitch_hz as f32, draw);
        let recorder = self.recorder.draw(draw);
        let untouched = drift.is_none() && qsb.is_none() && qrm.is_empty() && qrn.is_none() && filter.is_none();
        if untouched && path.is_clear() && receiver.is_perfect() && recorder.is_perfect() {
            return false;
        }

        // Levels are relative to the carrier, and samples after the end are needed for the filter's delay.
        let mut air = audio.to_vec();
        level::scale(&mut air, 1.0 / amplitude);
        air.resize(audio.len() + filter.as_ref().map_or(0, |filter| filter.delay), 0.0);
        if let Some(drift) = drift {
            channel::wander(drift, pitch_hz, &mut drifting, &mut air);
        }
        channel::fade(qsb, &mut air);
        path.apply(draw, &mut air);
        if let Some(stations) = stations {
            stations.add(&qrm, &mut others, &mut air);
        }
        if let Some(qrn) = qrn {
            channel::add_static(qrn, &mut bursts, &mut air);
        }
        let delay = filter.map_or(0, |filter| {
            filter.apply(&mut air);
            filter.delay
        });
        audio.copy_from_slice(&air[delay..]);
        receiver.apply(draw, audio);
        recorder.apply(draw, audio);
        level::scale(audio, amplitude);
        true
    }
}

/// Returns the frequency between 200 and 2000 Hz at which the clip's spectrum is strongest, in hertz.
pub fn carrier_pitch(audio: &[f32]) -> f64 {
    line(audio, PITCH_HZ, LINE_HZ)
}

/// Returns the strongest tones of 16 kHz audio in each range of frequencies, in hertz, the strongest first, keyed or not.
pub(crate) fn carriers<const N: usize>(audio: &[f32], ranges_hz: [[f64; 2]; N], most: usize) -> [Vec<Line>; N] {
    let spectrum = Spectrum::of(audio);
    ranges_hz.map(|range_hz| spectrum.lines(range_hz, LINE_HZ, most))
}

/// Returns the frequency in a range at which the power within `width_hz` is strongest, in hertz.
pub(crate) fn line(audio: &[f32], range_hz: [f64; 2], width_hz: f64) -> f64 {
    Spectrum::of(audio).lines(range_hz, width_hz, 1).first().map(|line| line.hz).unwrap_or_default()
}

/// Line of a spectrum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Frequency.
    pub hz: f64,
    /// Power in the width of a line, in the units of the spectrum.
    pub power: f64,
}

/// Sums of the power of audio up to each frequency.
struct Spectrum {
    sums: Vec<f64>,
    size: usize,
}

/// Least distance between two lines, in hertz.
const APART_HZ: f64 = 60.0;

impl Spectrum {
    fn of(audio: &[f32]) -> Self {
        let size = audio.len().next_power_of_two().max(2);
        let mut sums = vec![0.0];
        for value in fourier::spectrum(audio, size) {
            sums.push(sums[sums.len() - 1] + f64::from(value.norm_sqr()));
        }
        Self { sums, size }
    }

    /// Returns the frequencies at which the power within `width_hz` is strongest, the strongest first.
    fn lines(&self, range_hz: [f64; 2], width_hz: f64, most: usize) -> Vec<Line> {
        let Self { sums, size } = self;
        let bin = |hz: f64| (hz * *size as f64 / RATE).round() as usize;
        let half = bin(width_hz / 2.0);
        let power = |at: usize| sums[(at + half + 1).min(sums.len() - 1)] - sums[at.saturating_sub(half)];
        let mut bins: Vec<usize> = (bin(range_hz[0])..=bin(range_hz[1])).collect();
        let mut found = Vec::new();
        while let Some(loudest) = bins.iter().copied().max_by(|a, b| power(*a).total_cmp(&power(*b)))
            && found.len() < most
        {
            found.push(Line { hz: loudest as f64 * RATE / *size as f64, power: power(loudest) });
            bins.retain(|other| other.abs_diff(loudest) > bin(APART_HZ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{keyed_tone, off, tone};
    use super::*;

    #[test]
    fn a_drifting_receiver_moves_the_pitch_and_nothing_else() {
        let mut channel = off();
        channel.drift = Drift { probability: 1.0, hz_per_s: [20.0, 20.0], walk_hz: [0.0, 0.0] };
        let mut audio = tone(700.0, 4.0);
        assert!(channel.transmit(None, &mut audio, 5));
        // After 3.5 s it has moved by 70 Hz on average over the last second, upwards or downwards.
        let moved = carrier_pitch(&audio[48_000..]) - 700.0;
        assert!((moved.abs() - 70.0).abs() < 5.0, "{moved}");
        assert!((level::energy(&audio) / level::energy(&tone(700.0, 4.0)) - 1.0).abs() < 0.01);
    }

    #[test]
    fn fading_is_as_deep_as_it_says() {
        let mut channel = off();
        channel.qsb = Fading { probability: 1.0, depth_db: [12.0, 12.0], period_s: [1.0, 1.0] };
        let mut audio = tone(700.0, 4.0);
        assert!(channel.transmit(None, &mut audio, 5));
        let level = |piece: &[f32]| 10.0 * (level::energy(piece) / piece.len() as f64).log10();
        let levels: Vec<f64> = audio.chunks(400).map(level).collect();
        let [least, most] = [f64::min, f64::max].map(|pick| levels.iter().copied().reduce(pick).unwrap());
        assert!((most - least - 12.0).abs() < 0.3, "{}", most - least);
    }

    #[test]
    fn a_filter_keeps_the_carrier_where_and_as_loud_as_it_is() {
        let mut channel = off();
        channel.filter = ReceiverFilter { probability: 1.0, width_hz: [300.0, 300.0] };
        let clean = keyed_tone(700.0, 96_000);
        let mut audio = clean.clone();
        assert!(channel.transmit(None, &mut audio, 5));
        assert_eq!(audio.len(), clean.len());
        // The keying must have the same timing for any phase of the carrier.
        let with = |shift: usize| {
            let shifted = fourier::analytic(&audio[shift..]);
            let product = shifted.iter().zip(&clean).map(|(a, b)| a * b).sum::<rustfft::num_complex::Complex<f32>>();
            f64::from(product.norm()) / (level::energy(&audio) * level::energy(&clean)).sqrt()
        };
        assert!(with(0) > 0.97 && with(160) < with(0), "{} {}", with(0), with(160));
        assert!((level::energy(&audio) / level::energy(&clean) - 1.0).abs() < 0.1);
    }

    #[test]
    fn effects_do_not_change_the_draws_of_others() {
        let mut channel = off();
        channel.qrn.probability = 1.0;
        let clean = tone(700.0, 4.0);
        let added = |channel: &RadioChannel| -> Vec<f32> {
            let mut audio = clean.clone();
            channel.transmit(None, &mut audio, 77);
            audio.iter().zip(&clean).map(|(a, b)| a - b).collect()
        };
        let alone = added(&channel);
        channel.qsb = Fading { probability: 1.0, depth_db: [0.0, 0.0], ..Fading::default() };
        let both = added(&channel);
        assert!(alone.iter().zip(&both).all(|(a, b)| (a - b).abs() < 1e-6));
    }

    #[test]
    fn what_is_off_changes_no_draw() {
        let mut channel = off();
        for probability in [
            &mut channel.drift.probability, &mut channel.qsb.probability, &mut channel.qrn.probability,
            &mut channel.filter.probability,
        ] {
            *probability = 1.0;
        }
        let mut audio = tone(700.0, 4.0);
        assert!(channel.transmit(None, &mut audio, 77));
        // Values from before path, receiver and recorder existed.
        let known = [0.022853058, 0.06651531, 0.054638922, 0.07398655];
        for (at, known) in [9_000, 20_000, 33_333, 50_000].into_iter().zip(known) {
            assert!((audio[at] - known).abs() < 1e-4, "{}", audio[at]);
        }
    }

    #[test]
    fn a_receiver_and_a_recorder_act_on_recordings() {
        let clean = tone(700.0, 4.0);
        for effect in 0..3 {
            let mut channel = off();
            *[
                &mut channel.path.flutter.probability, &mut channel.receiver.floor.probability,
                &mut channel.recorder.codec.probability,
            ][effect] = 1.0;
            let mut audio = clean.clone();
            assert!(channel.transmit(None, &mut audio, 5));
            let changed = level::energy(&audio.iter().zip(&clean).map(|(a, b)| a - b).collect::<Vec<_>>());
            assert!((1e-7..1.0).contains(&(changed / level::energy(&clean))), "{effect}: {changed}");
        }
        let mut audio = clean.clone();
        assert!(!off().transmit(None, &mut audio, 5));
        assert_eq!(audio, clean);
    }
}
