//! Checks of the audio: timing, purity of tone, noise, and whether its content matches the label.

use super::{morse, *};
use crate::radio::{Drift, Fading, Interference, ReceiverFilter, Static};
use proptest::prelude::*;
use realfft::{RealFftPlanner, num_complex::Complex};
use undertone_data::random::Range;

const RATE: f64 = 16_000.0;

/// One machine, one pitch and no effects, so that only the settings a test changes have an effect.
pub(super) fn plain() -> CwConfig {
    CwConfig {
        wpm: [20.0, 20.0],
        pitch_hz: [700.0, 700.0],
        rise_ms: [5.0, 5.0],
        farnsworth: CwFarnsworth { probability: 0.0, ..CwFarnsworth::default() },
        hand: CwHand { probability: 0.0, ..CwHand::default() },
        drift: Drift { probability: 0.0, ..Drift::default() },
        chirp: CwChirp { probability: 0.0, ..CwChirp::default() },
        qsb: Fading { probability: 0.0, ..Fading::default() },
        qrn: Static { probability: 0.0, ..Static::default() },
        qrm: Interference { probability: 0.0, ..Interference::default() },
        filter: ReceiverFilter { probability: 0.0, ..ReceiverFilter::default() },
        clean: 1.0,
        noise_only: 0.0,
        ..CwConfig::default()
    }
}

pub(super) fn fixed(config: CwConfig, text: &str, longest_s: f32) -> CwConfig {
    let text = CwText { fixed: vec![text.to_owned()], ..CwText::default() };
    CwConfig { text, duration_s: [1.0, longest_s], ..config }
}

pub(super) fn one(config: CwConfig) -> CwSample {
    CwSynth::new(config, 7).unwrap().sample(0)
}

/// A text in noise whose characters are sent at `wpm` and all of it at this share of it, up to a moment after its last mark.
pub(super) fn far_apart(text: &str, wpm: f32, ratio: f32) -> Vec<f32> {
    let farnsworth = CwFarnsworth { probability: 1.0, ratio: [ratio; 2] };
    let mut clip =
        one(fixed(CwConfig { farnsworth, wpm: [wpm; 2], snr_db: [20.0; 2], clean: 0.0, ..plain() }, text, 200.0));
    let end = clip.marks.last().map_or(0.0, |mark| mark.end) + 0.3;
    clip.audio.truncate((end * 16_000.0) as usize);
    clip.audio
}

fn spectrum(audio: &[f32]) -> Vec<Complex<f64>> {
    let mut input: Vec<f64> = audio.iter().map(|x| f64::from(*x)).collect();
    let forward = RealFftPlanner::new().plan_fft_forward(input.len());
    let mut output = forward.make_output_vec();
    forward.process(&mut input, &mut output).unwrap();
    output
}

/// Returns the audio between two frequencies, without everything else.
pub(super) fn band(audio: &[f32], low_hz: f64, high_hz: f64) -> Vec<f64> {
    let mut bins = spectrum(audio);
    let width = RATE / audio.len() as f64;
    for (n, bin) in bins.iter_mut().enumerate() {
        if !(low_hz..high_hz).contains(&(n as f64 * width)) {
            *bin = Complex::default();
        }
    }
    let inverse = RealFftPlanner::new().plan_fft_inverse(audio.len());
    let mut output = inverse.make_output_vec();
    inverse.process(&mut bins, &mut output).unwrap();
    output.iter().map(|x| x / audio.len() as f64).collect()
}

pub(super) fn mean_power(audio: &[f64]) -> f64 {
    audio.iter().map(|x| x * x).sum::<f64>() / audio.len() as f64
}

/// The carrier's amplitude by mixing it down to 0 Hz and averaging twice over 3 ms, which leaves nothing of the mixing
/// product at twice the pitch that could be taken for keying.
pub(super) fn detect(audio: &[f32], pitch_hz: f64) -> Vec<f64> {
    let mixed = audio
        .iter()
        .enumerate()
        .map(|(n, x)| Complex::from_polar(f64::from(*x), -std::f64::consts::TAU * pitch_hz * n as f64 / RATE))
        .collect::<Vec<_>>();
    average(&average(&mixed)).iter().map(|value| 2.0 * value.norm()).collect()
}

fn average(values: &[Complex<f64>]) -> Vec<Complex<f64>> {
    let mut sums: Vec<Complex<f64>> = vec![Complex::default()];
    for value in values {
        sums.push(sums[sums.len() - 1] + value);
    }
    let last = values.len();
    (0..last).map(|n| (sums[(n + 24).min(last)] - sums[n.saturating_sub(24)]) / 48.0).collect()
}

/// Returns the times at which the carrier is above half of its amplitude, in seconds.
pub(super) fn key_downs(audio: &[f32], pitch_hz: f64) -> Vec<[f64; 2]> {
    let amplitude = detect(audio, pitch_hz);
    let threshold = amplitude.iter().copied().fold(0.0, f64::max) / 2.0;
    let mut elements = Vec::new();
    let mut down = None;
    for (n, value) in amplitude.iter().enumerate() {
        match (down, *value > threshold) {
            (None, true) => down = Some(n as f64 / RATE),
            (Some(since), false) => {
                elements.push([since, n as f64 / RATE]);
                down = None;
            }
            _ => {}
        }
    }
    elements
}

/// Reads machine keying, knowing only the speed.
fn decode(audio: &[f32], pitch_hz: f64, wpm: f64) -> String {
    let unit = 1.2 / wpm;
    let (mut text, mut code, mut last_up) = (String::new(), String::new(), None);
    let elements = key_downs(audio, pitch_hz);
    for [down, up] in elements {
        let gap = last_up.map_or(0.0, |last| down - last);
        if gap > 2.0 * unit {
            text.push_str(&morse::spelling(&code).unwrap_or("*".to_owned()));
            code.clear();
        }
        if gap > 5.0 * unit {
            text.push(' ');
        }
        code.push(if up - down > 2.0 * unit { '-' } else { '.' });
        last_up = Some(up);
    }
    if !code.is_empty() {
        text.push_str(&morse::spelling(&code).unwrap_or("*".to_owned()));
    }
    text
}

#[test]
fn an_independent_decoder_reads_every_clean_clip() {
    let config = CwConfig { wpm: [10.0, 45.0], pitch_hz: [400.0, 1000.0], duration_s: [4.0, 12.0], ..plain() };
    let synth = CwSynth::new(config, 3).unwrap();
    for index in 0..300 {
        let clip = synth.sample(index);
        assert!(!clip.text.is_empty());
        assert_eq!(decode(&clip.audio, clip.info.pitch_hz.into(), clip.info.wpm.into()), clip.text, "clip {index}");
    }
}

#[test]
fn every_character_is_read_back() {
    let all: String = morse::characters().collect();
    let text = format!("{all} <sk> <KN><AS> <BK>  <BT> <AR>");
    let clip = one(fixed(plain(), &text, 90.0));
    assert_eq!(clip.text, format!("{all} <SK> <KN><AS> <BK> = +"));
    assert_eq!(decode(&clip.audio, 700.0, 20.0), clip.text);
}

#[test]
fn the_audio_keeps_paris_time() {
    let clip = one(fixed(plain(), "PARIS PARIS", 8.0));
    let elements = key_downs(&clip.audio, 700.0);
    // 14 elements make PARIS; the next P starts 50 units of 60 ms later.
    assert!((elements[14][0] - elements[0][0] - 3.0).abs() < 0.001);
    assert!((elements[0][1] - elements[0][0] - 0.06).abs() < 0.001);
    let farnsworth = CwFarnsworth { probability: 1.0, ratio: [0.5, 0.5] };
    let clip = one(fixed(CwConfig { farnsworth, ..plain() }, "PARIS PARIS", 14.0));
    let elements = key_downs(&clip.audio, 700.0);
    assert!((elements[14][0] - elements[0][0] - 6.0).abs() < 0.001);
    assert!((elements[0][1] - elements[0][0] - 0.06).abs() < 0.001);
}

#[test]
fn marks_match_the_envelope() {
    let hand = CwHand { probability: 1.0, ..CwHand::default() };
    let synth = CwSynth::new(CwConfig { hand, ..plain() }, 5).unwrap();
    for index in 0..50 {
        let clip = synth.sample(index);
        assert_eq!(clip.marks.iter().map(|mark| mark.character).collect::<String>(), clip.text);
        let mut elements = key_downs(&clip.audio, 700.0).into_iter();
        let mut marks = clip.marks.iter();
        let mut last_end = 0.0;
        for (place, word) in morse::parse(&clip.text).unwrap().into_iter().enumerate() {
            let gap = if place > 0 { marks.next() } else { None };
            for (at, symbol) in word.into_iter().enumerate() {
                let keyed: Vec<_> = elements.by_ref().take(symbol.code.len()).collect();
                let shared: Vec<_> = marks.by_ref().take(symbol.spelling.len()).collect();
                for mark in &shared {
                    assert!((keyed[0][0] - f64::from(mark.start)).abs() < 0.001);
                    assert!((keyed[keyed.len() - 1][1] - f64::from(mark.end)).abs() < 0.001);
                }
                if let (Some(gap), 0) = (gap, at) {
                    assert_eq!([gap.start, gap.end], [last_end, shared[0].start]);
                }
                last_end = shared[0].end;
            }
        }
        assert!(elements.next().is_none() && marks.next().is_none());
    }
}

#[test]
fn keying_does_not_click() {
    let clip = one(fixed(plain(), "THE QUICK BROWN FOX 599", 30.0));
    let total = mean_power(&band(&clip.audio, 0.0, 8001.0));
    let aside = mean_power(&band(&clip.audio, 0.0, 200.0)) + mean_power(&band(&clip.audio, 1200.0, 8001.0));
    let db = 10.0 * (aside / total).log10();
    assert!(db < -60.0, "{db:.1} dB more than 500 Hz off the carrier");
}

#[test]
fn the_signal_to_noise_ratio_is_the_stated_one() {
    for (snr_db, bandwidth_hz) in [(20.0, 500.0), (6.0, 250.0), (10.0, 2500.0)] {
        let config = CwConfig {
            snr_db: [snr_db, snr_db],
            snr_bandwidth_hz: bandwidth_hz,
            lead_s: [20.0, 20.0],
            pitch_hz: [1500.0, 1500.0],
            clean: 0.0,
            ..plain()
        };
        let clip = one(fixed(config, &"T".repeat(40), 60.0));
        let half = f64::from(bandwidth_hz) / 2.0;
        let audio = band(&clip.audio, 1500.0 - half, 1500.0 + half);
        let noise = mean_power(&audio[1600..19 * 16_000]);
        // From the middle of each dah, 180 ms long.
        let marks = clip.marks.iter().map(|mark| (f64::from(mark.start) * RATE) as usize);
        let keyed: Vec<f64> = marks.flat_map(|start| &audio[start + 480..start + 2400]).copied().collect();
        let measured = 10.0 * ((mean_power(&keyed) - noise) / noise).log10();
        assert!((measured - f64::from(snr_db)).abs() < 0.5, "{measured:.2} dB and not {snr_db} in {bandwidth_hz} Hz");
        let carrier = f64::from(clip.info.carrier_amplitude).powi(2) / 2.0;
        assert!((10.0 * (carrier / (mean_power(&keyed) - noise)).log10()).abs() < 0.5);
    }
}

#[test]
fn a_filter_keeps_the_timing() {
    let filter = ReceiverFilter { probability: 1.0, width_hz: [300.0, 300.0] };
    let config = CwConfig { clean: 0.0, snr_db: [60.0, 60.0], filter, ..plain() };
    let clip = one(fixed(config, "PARIS", 8.0));
    let elements = key_downs(&clip.audio, 700.0);
    assert_eq!(elements.len(), 14);
    assert!((elements[0][0] - f64::from(clip.marks[0].start)).abs() < 0.002);
    assert!((elements[13][1] - f64::from(clip.marks[4].end)).abs() < 0.002);
}

#[test]
fn other_effects_are_heard() {
    let qsb = Fading { probability: 1.0, depth_db: [12.0, 12.0], period_s: [2.0, 2.0] };
    let clip = one(fixed(CwConfig { qsb, clean: 0.0, snr_db: [90.0, 90.0], ..plain() }, &"T".repeat(20), 12.0));
    let amplitude = detect(&clip.audio, 700.0);
    let middle = |mark: &CwMark| amplitude[((mark.start + mark.end) / 2.0 * 16_000.0) as usize];
    let levels: Vec<f64> = clip.marks.iter().map(middle).collect();
    let depth = 20.0
        * (levels.iter().fold(0.0, |a: f64, b| a.max(*b)) / levels.iter().fold(1.0, |a: f64, b| a.min(*b))).log10();
    assert!((9.0..=12.1).contains(&depth), "{depth:.1} dB");

    let qrm = Interference {
        probability: 1.0,
        stations: [1, 1],
        offset_hz: [800.0, 800.0],
        level_db: [-6.0, -6.0],
        ..Interference::default()
    };
    let clip = one(CwConfig { qrm, clean: 0.0, snr_db: [60.0, 60.0], ..plain() });
    assert_eq!(clip.info.qrm[0].pitch_hz, 1500.0);
    let level = |hz| detect(&clip.audio, hz).iter().copied().fold(0.0, f64::max);
    let db = 20.0 * (level(1500.0) / level(700.0)).log10();
    assert!((db + 6.0).abs() < 0.5, "{db:.1} dB");

    let drift = Drift { probability: 1.0, hz_per_s: [10.0, 10.0], walk_hz: [0.0, 0.0] };
    let clip = one(fixed(CwConfig { drift, ..plain() }, &"T".repeat(40), 20.0));
    let last = &clip.marks[39];
    let tail = &clip.audio[(last.start * 16_000.0) as usize..(last.end * 16_000.0) as usize];
    let bins = spectrum(tail);
    let peak = (0..bins.len()).max_by(|a, b| bins[*a].norm().total_cmp(&bins[*b].norm())).unwrap();
    let moved = (peak as f64 * RATE / tail.len() as f64 - 700.0).abs();
    assert!((moved - 10.0 * f64::from(last.start)).abs() < 6.0, "{moved} Hz after {} s", last.start);
}

#[test]
fn every_kind_of_text_stays_in_the_alphabet() {
    let alphabet: Vec<char> = morse::alphabet().collect();
    let text = CwText { beacons: 1.0, numbers: 1.0, scatter: 1.0, sentences: 1.0, ..CwText::default() };
    let config = CwConfig { text, duration_s: [30.0, 30.0], noise_only: 0.0, ..plain() };
    let synth = CwSynth::new(config, 2).unwrap();
    let mut heard = std::collections::HashSet::new();
    for index in 0..200 {
        let clip = synth.sample(index);
        heard.insert(clip.info.source);
        assert!(clip.text.chars().all(|character| alphabet.contains(&character)), "{}", clip.text);
        assert!(clip.text.split(' ').all(|word| !word.is_empty()), "{:?}", clip.text);
    }
    assert_eq!(heard.len(), 13);
}

/// Any range within the limits, sometimes of no width.
fn range(least: f32, most: f32) -> impl Strategy<Value = Range> {
    (0.0..=1.0f32, 0.0..=1.0f32).prop_map(move |(a, b)| {
        let at = |x: f32| (least + (most - least) * x).clamp(least, most);
        [at(a.min(b)), at(a.max(b))]
    })
}

pub(super) fn any_config() -> impl Strategy<Value = CwConfig> {
    let p = || prop_oneof![Just(0.0f32), Just(1.0), 0.0..=1.0f32];
    let sender = (range(0.5, 12.0), range(0.0, 1.0), range(5.0, 60.0), range(0.0, 20.0), range(200.0, 2000.0), p());
    let hand = (p(), range(0.0, 0.3), range(0.0, 0.3), range(0.3, 0.7), range(0.0, 0.5), p(), range(0.1, 1.0));
    let tone = (p(), range(0.0, 50.0), range(0.0, 50.0), p(), range(0.0, 200.0), range(1.0, 500.0));
    let fading =
        (p(), range(0.0, 60.0), range(0.1, 600.0), p(), range(0.0, 50.0), range(-60.0, 40.0), range(0.1, 50.0));
    let others = (p(), 0usize..3, 0usize..3, range(10.0, 3000.0), range(5.0, 60.0), range(-60.0, 40.0));
    let noise = (range(-40.0, 100.0), 1.0..=8000.0f32, p(), range(20.0, 3000.0), p(), range(-100.0, 0.0));
    (sender, hand, tone, fading, others, noise).prop_map(|(s, h, t, f, o, n)| CwConfig {
        task: CwTask::Copy,
        text: CwText { portable: s.5, cut_numbers: s.5, ..CwText::default() },
        duration_s: s.0,
        lead_s: s.1,
        tail_s: s.1,
        wpm: s.2,
        rise_ms: s.3,
        pitch_hz: s.4,
        hand: CwHand { probability: h.0, mark_jitter: h.1, gap_jitter: h.2, weighting: h.3, swing: h.4 },
        farnsworth: CwFarnsworth { probability: h.5, ratio: h.6 },
        drift: Drift { probability: t.0, hz_per_s: t.1, walk_hz: t.2 },
        chirp: CwChirp { probability: t.3, hz: t.4, settle_ms: t.5 },
        qsb: Fading { probability: f.0, depth_db: f.1, period_s: f.2 },
        qrn: Static { probability: f.3, rate_per_s: f.4, level_db: f.5, decay_ms: f.6 },
        qrm: Interference { probability: o.0, stations: [o.1, o.1 + o.2], offset_hz: o.3, wpm: o.4, level_db: o.5 },
        snr_db: n.0,
        snr_bandwidth_hz: n.1,
        filter: ReceiverFilter { probability: n.2, width_hz: n.3 },
        clean: n.4,
        noise_only: n.4 * 0.3,
        level_dbfs: n.5,
        ..CwConfig::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_global_rejects: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_accepted_config_makes_sound_clips(config in any_config(), seed: u64, index: u64) {
        prop_assume!(config.validate().is_ok());
        let [shortest, longest] = config.duration_s.map(|seconds| f64::from(seconds) * RATE);
        let clip = CwSynth::new(config, seed).unwrap().sample(index);
        prop_assert!(clip.audio.iter().all(|x| x.abs() <= 1.0));
        prop_assert!((shortest - 1.0..=longest + 1.0).contains(&(clip.audio.len() as f64)));
        prop_assert_eq!(clip.text.is_empty(), clip.info.source.is_none());
        prop_assert_eq!(&clip.text, &clip.sent);
        let seconds = clip.audio.len() as f32 / 16_000.0;
        prop_assert!(clip.marks.iter().all(|mark| 0.0 <= mark.start && mark.start < mark.end && mark.end <= seconds));
        prop_assert_eq!(clip.marks.iter().map(|mark| mark.character).collect::<String>(), clip.text);
    }

    #[test]
    fn a_fixed_text_is_sent_whole(text in "[A-Z0-9?=]{1,6}( [A-Z0-9/+]{1,5}){0,2}", config in any_config(), seed: u64) {
        let text_config = CwText { fixed: vec![text.clone()], ..CwText::default() };
        let config = CwConfig { text: text_config, noise_only: 0.0, duration_s: [config.duration_s[0], 120.0], ..config };
        prop_assume!(config.validate().is_ok());
        prop_assert_eq!(CwSynth::new(config, seed).unwrap().sample(0).text, text);
    }

    #[test]
    fn no_number_makes_validation_panic(low in proptest::num::f32::ANY, high in proptest::num::f32::ANY) {
        for field in 0..4 {
            let mut config = CwConfig::default();
            *[&mut config.wpm, &mut config.duration_s, &mut config.hand.swing, &mut config.farnsworth.ratio][field] = [low, high];
            let _ = config.validate();
        }
    }
}
