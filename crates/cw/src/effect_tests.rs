//! Audible effects of habits, faults, and of an imperfect receiver.

use super::{
    tests::{any_config, band, detect, fixed, key_downs, mean_power, one, plain},
    *,
};
use crate::radio::{
    Agc, AudioBand, Codec, Echo, Floor, Flutter, Gate, Hum, LowRate, Overload, Path, Receiver, Recorder, SteepBand,
};
use proptest::prelude::*;

/// Only the keyed carrier, but without `clean`, so that an effect that a test switches on is audible.
fn bare() -> CwConfig {
    CwConfig { clean: 0.0, noiseless: 1.0, level_dbfs: [-6.0, -6.0], ..plain() }
}

fn db(power: f64) -> f64 {
    10.0 * power.log10()
}

/// Power around a pitch relative to that of all, in decibels.
fn share_db(audio: &[f32], low_hz: f64, high_hz: f64) -> f64 {
    db(mean_power(&band(audio, low_hz, high_hz)) / mean_power(&band(audio, 0.0, 8001.0)))
}

/// Between two of the dahs of a clip: the middle of the gap, 20 ms long.
fn gap(clip: &CwSample) -> &[f32] {
    let middle = ((clip.marks[0].end + clip.marks[1].start) / 2.0 * 16_000.0) as usize;
    &clip.audio[middle - 160..middle + 160]
}

fn level(audio: &[f32]) -> f64 {
    db(2.0 * audio.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / audio.len() as f64)
}

#[test]
fn without_noise_gaps_are_digital_silence() {
    assert!(gap(&one(fixed(bare(), "TTT", 8.0))).iter().all(|sample| *sample == 0.0));
    let clip = one(fixed(CwConfig { snr_db: [10.0, 10.0], noiseless: 0.0, ..bare() }, "TTT", 8.0));
    assert!(gap(&clip).iter().any(|sample| *sample != 0.0));
}

#[test]
fn a_backwave_stays_while_the_key_is_up() {
    let mut config = bare();
    config.transmitter.backwave = CwBackwave { probability: 1.0, level_db: [-30.0, -30.0], offset_hz: [0.0, 0.0] };
    let clip = one(fixed(config, "TTT", 8.0));
    let relative = level(gap(&clip)) - 20.0 * f64::from(clip.info.carrier_amplitude).log10();
    assert!((relative + 30.0).abs() < 0.7, "{relative}");
}

#[test]
fn clicks_are_wide_and_at_the_edges() {
    let mut config = bare();
    config.transmitter.clicks = CwClicks { probability: 1.0, level_db: [-10.0, -10.0], decay_ms: [1.0, 1.0] };
    let clip = one(fixed(config, "TTT", 8.0));
    let high: Vec<f32> = band(&clip.audio, 3000.0, 8001.0).iter().map(|x| *x as f32).collect();
    let piece = |time: f32| level(&high[(time * 16_000.0) as usize..][..32]);
    for mark in &clip.marks {
        let middle = piece((mark.start + mark.end) / 2.0);
        assert!(piece(mark.start) > middle + 20.0 && piece(mark.end) > middle + 20.0);
    }
}

#[test]
fn distortion_adds_harmonics_and_ripple_sidebands() {
    let mut config = bare();
    config.transmitter.distortion = CwDistortion { probability: 1.0, drive_db: [30.0, 30.0], bias: [0.0, 0.0] };
    let clip = one(fixed(config, "TTT", 8.0));
    // A square wave's third harmonic is a third, its fundamental 8/π² of the power: -10.5 dB of all.
    assert!((share_db(&clip.audio, 1900.0, 2300.0) + 10.5).abs() < 1.0, "{}", share_db(&clip.audio, 1900.0, 2300.0));

    let mut config = bare();
    config.transmitter.ripple = CwRipple { probability: 1.0, depth: [0.5, 0.5] };
    let clip = one(fixed(config, &"T".repeat(20), 20.0));
    let hz = f64::from(clip.info.transmitter.ripple.unwrap().0);
    // Each sideband has a quarter of the carrier's amplitude.
    let sideband = share_db(&clip.audio, 700.0 + hz - 5.0, 700.0 + hz + 5.0);
    assert!((-18.0..-10.0).contains(&sideband), "{sideband} dB at {hz} Hz");
}

#[test]
fn a_muted_receiver_hears_only_pauses() {
    let muting = CwMuting { probability: 1.0, hold_ms: [0.0, 0.0] };
    let config = CwConfig { muting, noiseless: 0.0, snr_db: [0.0, 0.0], ..bare() };
    let clip = one(fixed(config, "TTT", 8.0));
    let noise = |time: f32| {
        let aside = band(&clip.audio, 2000.0, 8001.0);
        db(mean_power(&aside[(time * 16_000.0) as usize..][..800]))
    };
    let (mark, pause) = (clip.marks[0], clip.marks[0].end + 0.05);
    assert!(noise(pause) > noise(mark.start + 0.05) + 30.0, "{} {}", noise(pause), noise(mark.start + 0.05));
}

#[test]
fn cut_clips_hold_whole_characters_only() {
    let cut = CwCut { probability: 1.0 };
    let config = CwConfig { cut, duration_s: [4.0, 6.0], ..bare() };
    let synth = CwSynth::new(config, 9).unwrap();
    let (mut beyond, mut written) = ([0, 0], 0);
    for index in 0..60 {
        let clip = synth.sample(index);
        assert_ne!(clip.info.cut, [false, false]);
        assert_eq!(clip.marks.iter().map(|mark| mark.character).collect::<String>(), clip.text);
        assert!(!clip.text.starts_with(' ') && !clip.text.ends_with(' '));
        written += clip.text.len();
        // A key that is down at an end was down before or stays down; such a character is not written.
        let elements = key_downs(&clip.audio, 700.0);
        let seconds = clip.audio.len() as f32 / 16_000.0;
        let (first, last) = (clip.marks.first(), clip.marks.last());
        beyond[0] += usize::from(first.is_some_and(|mark| (elements[0][0] as f32) < mark.start - 0.03));
        let up = elements[elements.len() - 1][1] as f32;
        beyond[1] += usize::from(last.is_some_and(|mark| up > mark.end + 0.03));
        // If a part of another character is at the end, the clip ends with the key down.
        assert!(last.is_none_or(|mark| up < mark.end + 0.03 || up > seconds - 0.03), "{index}");
    }
    assert!(beyond.iter().all(|clips| *clips > 10) && written > 300, "{beyond:?} {written}");
}

#[test]
fn brief_clips_hold_a_word_or_two_anywhere() {
    let synth = CwSynth::new(CwConfig { brief: 1.0, duration_s: [8.0, 8.0], ..bare() }, 9).unwrap();
    let clips: Vec<CwSample> = (0..60).map(|index| synth.sample(index)).collect();
    assert!(clips.iter().all(|clip| clip.text.split(' ').count() <= 2 && !clip.text.is_empty()));
    let starts = |range: std::ops::Range<f32>| clips.iter().filter(|clip| range.contains(&clip.marks[0].start)).count();
    assert!(starts(0.0..2.0) > 5 && starts(2.0..8.0) > 20);
}

#[test]
fn nobody_sends_in_any_idle_clip() {
    for (name, sound) in [
        ("noise", CwIdleSound::Noise),
        ("carrier", CwIdleSound::Carrier),
        ("speech", CwIdleSound::Speech),
        ("music", CwIdleSound::Music),
        ("silence", CwIdleSound::Silence),
    ] {
        let idle = serde_json::Map::from_iter([("noise".to_owned(), 0.into()), (name.to_owned(), 1.into())]);
        let idle = serde_json::from_value(idle.into()).unwrap();
        let clip = one(CwConfig { idle, noise_only: 1.0, snr_db: [40.0, 40.0], noiseless: 0.0, ..bare() });
        assert_eq!(clip.info.idle, Some(sound));
        assert!(clip.text.is_empty() && clip.marks.is_empty());
        assert_eq!(clip.audio.iter().all(|sample| *sample == 0.0), sound == CwIdleSound::Silence);
        if sound == CwIdleSound::Carrier {
            let levels = detect(&clip.audio, 700.0);
            let middle = &levels[800..levels.len() - 800];
            let [least, most] = [f64::min, f64::max].map(|pick| middle.iter().copied().reduce(pick).unwrap());
            assert!(least > 0.8 * most);
        }
    }
}

#[test]
fn habits_are_those_that_were_drawn() {
    let habits = CwHabits {
        probability: 1.0,
        dah: [4.0, 4.0],
        dah_jitter: [0.0, 0.0],
        letter_gap: [2.0, 2.0],
        sway: [0.0, 0.0],
        hesitations: [1, 1],
        hesitation_s: [1.0, 1.0],
        ..CwHabits::default()
    };
    let clip = one(fixed(CwConfig { habits, ..bare() }, "TTTTTTTTTTTT", 20.0));
    let drawn = clip.info.habits.as_ref().unwrap();
    let after = drawn.hesitations[0].0;
    for (place, pair) in clip.marks.windows(2).enumerate() {
        assert!((pair[0].end - pair[0].start - 0.24).abs() < 1e-4);
        let expected = if place + 1 == after { 1.12 } else { 0.12 };
        assert!((pair[1].start - pair[0].end - expected).abs() < 1e-4, "{place}");
    }
}

#[test]
fn characters_that_run_on_leave_the_gap_of_an_element() {
    let habits = CwHabits {
        probability: 1.0,
        dah: [3.0, 3.0],
        dah_jitter: [0.0, 0.0],
        letter_gap: [3.0, 3.0],
        sway: [0.0, 0.0],
        hesitations: [0, 0],
        run_ons: [2, 2],
        ..CwHabits::default()
    };
    let clip = one(fixed(CwConfig { habits, ..bare() }, "TTTTTTTTTTTTTTTTTTTT", 20.0));
    let drawn = &clip.info.habits.as_ref().unwrap().run_ons;
    let short = |pair: &[CwMark]| pair[1].start - pair[0].end < 0.1;
    let found: Vec<usize> =
        (1..).zip(clip.marks.windows(2)).filter(|(_, pair)| short(pair)).map(|(at, _)| at).collect();
    assert_eq!(&found, drawn);
}

/// Every effect of the path, the receiver and the recorder in every clip.
fn everything() -> CwConfig {
    let probability = 1.0;
    CwConfig {
        path: Path {
            flutter: Flutter { probability, ..Flutter::default() },
            echo: Echo { probability, echoes: [1, 1], ..Echo::default() },
        },
        receiver: Receiver {
            band: SteepBand { probability, ..SteepBand::default() },
            agc: Agc { probability, ..Agc::default() },
            floor: Floor { probability, ..Floor::default() },
            hum: Hum { probability, ..Hum::default() },
            gate: Gate { probability, ..Gate::default() },
            overload: Overload { probability, ..Overload::default() },
            audio: AudioBand { probability, ..AudioBand::default() },
        },
        recorder: Recorder {
            rate: LowRate { probability, ..LowRate::default() },
            codec: Codec { probability, ..Codec::default() },
        },
        muting: CwMuting { probability, ..CwMuting::default() },
        transmitter: CwTransmitter {
            distortion: CwDistortion { probability, ..CwDistortion::default() },
            ripple: CwRipple { probability, ..CwRipple::default() },
            backwave: CwBackwave { probability, ..CwBackwave::default() },
            clicks: CwClicks { probability, ..CwClicks::default() },
        },
        ..plain()
    }
}

#[test]
fn clean_clips_have_nothing_of_the_channel() {
    let clean = one(everything()).info;
    assert!(clean.path.is_clear() && clean.receiver.is_perfect() && clean.recorder.is_perfect());
    assert!(clean.muting_ms.is_none() && clean.transmitter.backwave.is_none() && clean.transmitter.clicks.is_none());
    let other = one(CwConfig { clean: 0.0, ..everything() }).info;
    assert!(!other.path.is_clear() && other.receiver.band.is_some() && other.recorder.codec.is_some());
    assert!(other.muting_ms.is_some() && other.transmitter.backwave.is_some());
}

#[test]
fn a_steep_band_ends_where_it_says() {
    let mut config = CwConfig { noiseless: 0.0, snr_db: [0.0, 0.0], ..bare() };
    config.receiver.band = SteepBand {
        probability: 1.0,
        width_hz: [400.0, 400.0],
        offset: [0.0, 0.0],
        shape: [1.5, 1.5],
        floor_db: [-60.0, -60.0],
    };
    let clip = one(fixed(config, "TTT", 8.0));
    let density = |low: f64, high: f64| db(mean_power(&band(&clip.audio, low, high)) / (high - low));
    let step = density(780.0, 850.0) - density(1100.0, 4000.0);
    assert!((step - 60.0).abs() < 3.0, "{step}");
}

#[test]
fn a_narrowed_clip_has_its_tone_at_700_hz_and_little_beside_it() {
    let noisy = CwConfig { noiseless: 0.0, snr_db: [6.0; 2], pitch_hz: [1130.0; 2], ..bare() };
    let clip = |narrowed: f32| one(fixed(CwConfig { narrowed, ..noisy.clone() }, "TTT", 8.0));
    let (wide, narrow) = (clip(0.0), clip(1.0));
    assert!(narrow.info.narrowed && !wide.info.narrowed);
    assert_eq!((wide.audio.len(), &wide.marks), (narrow.audio.len(), &narrow.marks));
    let density = |clip: &CwSample, low: f64, high: f64| db(mean_power(&band(&clip.audio, low, high)) / (high - low));
    let above = |clip: &CwSample, pitch: f64| {
        density(clip, pitch - 10.0, pitch + 10.0) - density(clip, pitch + 250.0, pitch + 500.0)
    };
    assert!(above(&narrow, 700.0) > above(&wide, 1130.0) + 30.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_global_rejects: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_at_once_makes_sound_clips(config in any_config(), seed: u64, index: u64) {
        let all = everything();
        let config = CwConfig {
            path: all.path, receiver: all.receiver, recorder: all.recorder, muting: all.muting, transmitter: all.transmitter,
            habits: CwHabits { probability: 0.5, run_ons: [0, 3], ..CwHabits::default() }, cut: CwCut { probability: 0.5 }, brief: 0.3,
            noiseless: 0.3, narrowed: 0.3, ..config
        };
        prop_assume!(config.validate().is_ok());
        let [shortest, longest] = config.duration_s.map(|seconds| f64::from(seconds) * 16_000.0);
        let clip = CwSynth::new(config.clone(), seed).unwrap().sample(index);
        prop_assert!(clip.audio.iter().all(|x| x.abs() <= 1.0));
        // A cut clip may be shorter by half an element and a gap.
        let less = if clip.info.cut == [false, false] { 1.0 } else { 4.0 * 16_000.0 * clip.info.fist().unit_s() };
        prop_assert!((shortest - less..=longest + 1.0).contains(&(clip.audio.len() as f64)));
        prop_assert_eq!(clip.marks.iter().map(|mark| mark.character).collect::<String>(), clip.text.clone());
        if clip.info.cut == [false, false] {
            prop_assert_eq!(clip.text.is_empty(), clip.info.source.is_none());
        }
        prop_assert_eq!(&CwSynth::new(config, seed).unwrap().sample(index), &clip);
    }
}
