use std::f64::consts::TAU;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::level::{energy, peak, ratio, signal_power};
use crate::records::Paths;
use crate::{fourier, random};

const WINDOW: usize = 480_000;

fn sine(hz: f64, samples: usize) -> Vec<f32> {
    (0..samples).map(|n| 0.3 * (TAU * hz * n as f64 / 16_000.0).sin() as f32).collect()
}

/// A tone that is switched on and off, with noise.
fn keyed(index: u64) -> Vec<f32> {
    let mut lengths = [1, 3, 1, 1, 3, 3, 1, 3, 3, 1, 3, 1, 1, 1, 3].into_iter().cycle();
    let mut audio: Vec<f32> = Vec::new();
    let hz = 500.0 + 10.0 * index as f64;
    while audio.len() < 96_000 {
        audio.extend(sine(hz, lengths.next().unwrap() * 960));
        audio.extend([0.0; 960]);
    }
    audio.truncate(96_000);
    let noise = &mut random::stream(1, index);
    audio.iter_mut().for_each(|sample| *sample += random::between(noise, [-0.2, 0.2]));
    audio
}

/// Makes the augmentation of a configuration.
fn augment(config: &AugmentConfig) -> Augment {
    Augment::new(config, WINDOW).unwrap()
}

/// Everything on.
fn all() -> AugmentConfig {
    let mut config = AugmentConfig::default();
    for p in [
        &mut config.speed.p, &mut config.reverb.p, &mut config.noise.p, &mut config.volume.p,
        &mut config.spec_augment.p, &mut config.text.lowercase, &mut config.text.strip_punctuation,
    ] {
        *p = 1.0;
    }
    config
}

fn only(change: impl FnOnce(&mut AugmentConfig)) -> Augment {
    let mut config = AugmentConfig::default();
    change(&mut config);
    Augment::new(&config, WINDOW).unwrap()
}

#[test]
fn keys_of_effects_that_are_off_are_known() {
    let read = |json: &str| serde_json::from_str::<AugmentConfig>(json).expect("read").without_effect();
    assert_eq!(
        read(r#"{"noise": {"snr_db": [0, 1], "path": "nowhere"}, "volume": {"p": 0.5, "db": [-3, 3]}}"#),
        ["noise.snr_db", "noise.path",]
    );
    assert!(AugmentConfig::default().without_effect().is_empty() && all().without_effect().is_empty());
}

fn bits(audio: &[f32]) -> Vec<u32> {
    audio.iter().map(|sample| sample.to_bits()).collect()
}

fn pitch(audio: &[f32]) -> f64 {
    let size = 1 << 18;
    let spectrum = fourier::spectrum(audio, size);
    let loudest = (0..spectrum.len()).max_by(|a, b| spectrum[*a].norm().total_cmp(&spectrum[*b].norm())).unwrap();
    loudest as f64 * 16_000.0 / size as f64
}

fn folder(clips: &[(&str, &[f32])]) -> (TempDir, Paths) {
    let dir = TempDir::new().unwrap();
    for (name, clip) in clips {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        crate::audio::write_wav(&path, clip).unwrap();
    }
    std::fs::write(dir.path().join("README.md"), "not audio").unwrap();
    let paths = Paths::from(PathBuf::from(dir.path()));
    (dir, paths)
}

fn refusal(change: impl FnOnce(&mut AugmentConfig)) -> String {
    let mut config = AugmentConfig::default();
    change(&mut config);
    Augment::new(&config, WINDOW).err().unwrap().to_string()
}

#[test]
fn the_default_changes_nothing() {
    let augment = only(|_| ());
    let (mut audio, mut mel) = (keyed(3), vec![0.5; 80 * 30]);
    assert_eq!(augment.audio(&mut audio, 9), 1.0);
    augment.features(&mut mel, 80, 30, 30, 9);
    assert_eq!(bits(&audio), bits(&keyed(3)));
    assert_eq!(mel, vec![0.5; 80 * 30]);
    assert_eq!(augment.text("Well, NO.", 9), "Well, NO.");
    assert!(!augment.config().changes_audio() && all().changes_audio());
}

#[test]
fn the_same_draw_gives_the_same_bits_on_any_thread_and_another_draw_others() {
    let augment = augment(&all());
    let run = |draw: u64| {
        let (mut audio, mut mel) = (keyed(3), (0..80 * 300).map(|n| n as f32).collect::<Vec<_>>());
        let times = augment.audio(&mut audio, draw);
        augment.features(&mut mel, 80, 300, 250, draw);
        (bits(&audio), times.to_bits(), bits(&mel))
    };
    let here = run(7);
    std::thread::scope(|scope| {
        scope.spawn(|| run(8));
        assert!(scope.spawn(|| run(7)).join().unwrap() == here);
    });
    assert!(run(8) != here);
}

#[test]
fn speed_changes_length_and_pitch_by_its_factor() {
    for factor in [0.9, 1.07, 1.1, 1.5] {
        let augment = only(|c| c.speed = SpeedConfig { p: 1.0, range: [factor, factor] });
        let mut audio = sine(440.0, 48_000);
        let times = augment.audio(&mut audio, 1);
        let factor = (f64::from(factor) * 100.0).round() / 100.0;
        assert_eq!(audio.len(), (48_000.0 / factor).ceil() as usize);
        assert!((times * factor - 1.0).abs() < 1e-9);
        assert!((pitch(&audio) / 440.0 / factor - 1.0).abs() < 1e-3, "{} at {factor}", pitch(&audio));
    }
}

#[test]
fn a_clip_does_not_grow_past_the_window() {
    let speed = SpeedConfig { p: 1.0, range: [0.8, 0.8] };
    let config = AugmentConfig { speed, ..AugmentConfig::default() };
    let augment = Augment::new(&config, 20_000).unwrap();
    let mut fits = sine(440.0, 16_000);
    assert_eq!(augment.audio(&mut fits, 1), 1.25);
    assert_eq!(fits.len(), 20_000);
    let mut too_long = sine(440.0, 16_001);
    assert_eq!(augment.audio(&mut too_long, 1), 1.0);
    assert_eq!(too_long, sine(440.0, 16_001));
}

#[test]
fn an_effect_is_applied_as_often_as_it_says() {
    let augment = only(|c| c.volume.p = 0.3);
    let changed = (0..2000).filter(|draw| {
        let mut audio = vec![0.5];
        augment.audio(&mut audio, *draw);
        audio != [0.5]
    });
    // 2000 draws at 0.3 have a standard deviation of 20.
    assert!((520..680).contains(&changed.count()));
}

#[test]
fn volume_is_within_its_decibels_and_never_clips() {
    let augment = only(|c| c.volume = VolumeConfig { p: 1.0, db: [-6.0, 6.0] });
    let gains: Vec<f64> = (0..200)
        .map(|draw| {
            let mut audio = vec![0.1, -0.05];
            augment.audio(&mut audio, draw);
            assert_eq!(audio[0] / audio[1], -2.0);
            20.0 * f64::from(audio[0] / 0.1).log10()
        })
        .collect();
    assert!(gains.iter().all(|gain| gain.abs() < 6.001));
    assert!(gains.iter().any(|gain| *gain < -5.0) && gains.iter().any(|gain| *gain > 5.0));
    let loud = only(|c| c.volume = VolumeConfig { p: 1.0, db: [6.0, 6.0] });
    let mut audio = vec![0.8, -0.4];
    loud.audio(&mut audio, 1);
    assert_eq!(audio, [1.0, -0.5]);
    // A clip louder than full scale is not raised further.
    let mut audio = vec![2.0, -1.0];
    loud.audio(&mut audio, 1);
    assert_eq!(audio, [2.0, -1.0]);
}

#[test]
fn noise_files_are_found_in_folders_and_laid_under_the_clip() {
    let hum: Vec<f32> = sine(50.0, 3200);
    let (_dir, path) = folder(&[("a/hum.wav", &hum), ("b/also hum.WAV", &hum)]);
    let noise = NoiseConfig { p: 1.0, snr_db: [10.0, 10.0], kind: None, path: Some(path) };
    let augment = only(|c| c.noise = noise);
    let clean = sine(1000.0, 32_000);
    let mut audio = clean.clone();
    augment.audio(&mut audio, 5);
    let added: Vec<f32> = audio.iter().zip(&clean).map(|(a, b)| a - b).collect();
    assert!((pitch(&added) - 50.0).abs() < 1.0);
    let snr = 10.0 * (energy(&clean) / energy(&added)).log10();
    assert!((snr - 10.0).abs() < 0.1, "{snr}");
}

#[test]
fn recorded_rooms_keep_length_energy_and_time() {
    let mut response = vec![0.0f32; 4000];
    response[100] = 0.9;
    for (n, tap) in response.iter_mut().enumerate().skip(300) {
        *tap = 0.05 * ((n * n) as f32).sin() * (-(n as f32) / 800.0).exp();
    }
    let (_dir, path) = folder(&[("room.wav", &response)]);
    let augment = only(|c| c.reverb = ReverbConfig { p: 1.0, path: Some(path), ..ReverbConfig::default() });
    let clean = keyed(5);
    let mut audio = clean.clone();
    augment.audio(&mut audio, 5);
    assert_eq!(audio.len(), clean.len());
    assert!(energy(&audio) / energy(&clean) < 1.001);
    let with = |shift: usize| clean.iter().zip(&audio[shift..]).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    assert!((1..200).all(|shift| with(shift) < with(0)), "the direct sound is where it was");
}

#[test]
fn texts_lose_capitals_and_punctuation() {
    let both = only(|c| c.text = TextConfig { lowercase: 1.0, strip_punctuation: 1.0 });
    assert_eq!(both.text("Well, Mr. Brown: DON'T!", 1), "well mr brown don't");
    let lowercase = only(|c| c.text = TextConfig { lowercase: 1.0, strip_punctuation: 0.0 });
    assert_eq!(lowercase.text("Well, NO.", 1), "well, no.");
    // Each is drawn separately.
    let half = only(|c| c.text = TextConfig { lowercase: 0.5, strip_punctuation: 0.5 });
    let seen: std::collections::BTreeSet<String> = (0..100).map(|draw| half.text("A, b", draw)).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["A b", "A, b", "a b", "a, b"]);
}

#[test]
fn masks_are_the_mean_and_as_wide_as_they_may_be() {
    let (bins, frames, valid) = (80, 300, 200);
    let spec = SpecAugmentConfig { p: 1.0, time_masks: 1, time_width: 100, freq_masks: 1, ..Default::default() };
    let augment = only(|c| c.spec_augment = spec);
    let original: Vec<f32> = (0..bins * frames).map(|n| (n % 7) as f32 + (n / 7) as f32 * 1e-3).collect();
    let row = |bin: usize| bin * frames..bin * frames + valid;
    let sum: f64 = (0..bins).flat_map(|bin| &original[row(bin)]).map(|x| f64::from(*x)).sum();
    let mean = (sum / (bins * valid) as f64) as f32;
    let (mut widest_time, mut widest_freq) = (0, 0);
    for draw in 0..400 {
        let mut mel = original.clone();
        augment.features(&mut mel, bins, frames, valid, draw);
        let masked = |bin: usize, frame: usize| mel[bin * frames + frame] != original[bin * frames + frame];
        let times: Vec<usize> = (0..valid).filter(|frame| (0..bins).all(|bin| masked(bin, *frame))).collect();
        let freqs: Vec<usize> = (0..bins).filter(|bin| (0..valid).all(|frame| masked(*bin, frame))).collect();
        for stripe in [&times, &freqs] {
            assert!(stripe.windows(2).all(|pair| pair[1] == pair[0] + 1), "one stripe: {stripe:?}");
        }
        for (n, (new, old)) in mel.iter().zip(&original).enumerate() {
            let inside = n % frames < valid && (times.contains(&(n % frames)) || freqs.contains(&(n / frames)));
            assert_eq!(*new, if inside { mean } else { *old }, "draw {draw}, bin {}, frame {}", n / frames, n % frames);
        }
        (widest_time, widest_freq) = (widest_time.max(times.len()), widest_freq.max(freqs.len()));
    }
    // A fifth of the 200 valid frames is narrower than 100.
    assert_eq!((widest_time, widest_freq), (40, 27));
}

#[test]
fn refusals_name_the_key_and_the_way_out() {
    let said = refusal(|c| c.speed.range = [1.1, 0.9]);
    assert_eq!(said, "augment.speed.range is [1.1, 0.9]: give two numbers from 0.5 to 2, the smaller one first");
    assert!(refusal(|c| c.noise.p = f32::NAN).starts_with("augment.noise.p is NaN: give a number from 0"));
    assert!(refusal(|c| c.noise.snr_db = [0.0, 1e9]).starts_with("augment.noise.snr_db is [0, 1000000000]"));
    assert!(refusal(|c| c.volume.db = [-61.0, 0.0]).starts_with("augment.volume.db"));
    assert!(refusal(|c| c.reverb.rt60_s = [0.0, 1.0]).starts_with("augment.reverb.rt60_s"));
    assert!(refusal(|c| c.text.lowercase = -1.0).starts_with("augment.text.lowercase is -1"));
    assert!(refusal(|c| c.spec_augment.freq_width = 0).starts_with("augment.spec_augment.freq_width is 0"));
    let no_masks = SpecAugmentConfig { p: 1.0, time_masks: 0, freq_masks: 0, ..Default::default() };
    assert!(refusal(|c| c.spec_augment = no_masks).contains("raise one, or set p to 0"));
    let path = Some(Paths::from(PathBuf::from("/no/such/place")));
    let said = refusal(|c| c.noise = NoiseConfig { p: 1.0, path: path.clone(), ..Default::default() });
    assert!(said.starts_with("augment.noise.path: /no/such/place: cannot be read"), "{said}");
    let both = NoiseConfig { kind: Some(NoiseColour::Pink), path: path.clone(), ..Default::default() };
    assert!(refusal(|c| c.noise = both).contains("leave out kind"));
    let both = ReverbConfig { path, direct_db: [1.0, 2.0], ..Default::default() };
    assert!(refusal(|c| c.reverb = both).contains("leave out direct_db"));
    let (_dir, path) = folder(&[]);
    let said = refusal(|c| c.reverb = ReverbConfig { p: 1.0, path: Some(path), ..Default::default() });
    assert!(said.starts_with("augment.reverb.path: ") && said.contains("holds no audio"), "{said}");
    let (_dir, path) = folder(&[("zero.wav", &[0.0; 100])]);
    let said = refusal(|c| c.noise = NoiseConfig { p: 1.0, path: Some(path), ..Default::default() });
    assert!(said.contains("zero.wav is silent"), "{said}");
    assert!(refusal(|c| c.noise.path = Some(Paths::default())).starts_with("augment.noise.path is empty"));
}

#[test]
fn a_config_survives_its_file() {
    let read: AugmentConfig =
        serde_json::from_str(r#"{"noise": {"p": 0.5, "kind": "pink"}, "volume": {"p": 0.1}}"#).unwrap();
    assert_eq!((read.noise.p, read.noise.kind, read.volume.p), (0.5, Some(NoiseColour::Pink), 0.1));
    let written = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<AugmentConfig>(&written).unwrap(), read);
    let said = serde_json::from_str::<AugmentConfig>(r#"{"noize": {}}"#).unwrap_err().to_string();
    assert!(said.starts_with("`noize`: there is no such key"), "{said}");
}

/// Clips of any length and level, silence and pauses among them.
fn clips() -> impl Strategy<Value = Vec<f32>> {
    let sample = (-1.0f32..1.0, -6i32..2).prop_map(|(x, e)| x * 10f32.powi(e));
    prop_oneof![
        prop::collection::vec(sample, 0..3000),
        (0usize..9000).prop_map(|n| vec![0.0; n]),
        (0usize..9000, 100.0f64..4000.0).prop_map(|(n, hz)| sine(hz, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_clip_it_stays_finite_and_within_its_peak(clip in clips(), draw: u64) {
        let augment = augment(&all());
        let mut audio = clip.clone();
        let times = augment.audio(&mut audio, draw);
        prop_assert!(audio.iter().all(|sample| sample.is_finite()));
        prop_assert!(peak(&audio) <= peak(&clip).max(1.0));
        prop_assert_eq!(audio.len(), (clip.len() as f64 * times - 1e-6).ceil() as usize);
    }

    #[test]
    fn only_speed_changes_the_length(clip in clips(), draw: u64) {
        let mut config = all();
        config.speed.p = 0.0;
        let mut audio = clip.clone();
        prop_assert_eq!(augment(&config).audio(&mut audio, draw), 1.0);
        prop_assert_eq!(audio.len(), clip.len());
        prop_assert!(peak(&audio) <= peak(&clip).max(1.0));
    }

    #[test]
    fn the_ratio_of_signal_to_noise_is_met(
        snr_db in -10.0f32..40.0,
        kind in prop_oneof![Just(NoiseColour::White), Just(NoiseColour::Pink), Just(NoiseColour::Brown)],
        pause in 0usize..16_000,
        draw: u64,
    ) {
        let noise = NoiseConfig { p: 1.0, snr_db: [snr_db, snr_db], kind: Some(kind), path: None };
        let augment = only(|c| c.noise = noise);
        let mut clean: Vec<f32> = sine(440.0, 16_000).iter().map(|sample| sample * 0.05).collect();
        clean.extend(vec![0.0; pause]);
        let mut audio = clean.clone();
        augment.audio(&mut audio, draw);
        // Where the sum would have exceeded full scale, both were scaled; the pause has the noise alone.
        let scale = clean.iter().zip(&audio).map(|(a, b)| f64::from(a * b)).sum::<f64>() / energy(&clean);
        prop_assume!(peak(&audio) < 1.0);
        prop_assert!((scale - 1.0).abs() < 10f64.powf(-f64::from(snr_db) / 20.0));
        let added: Vec<f32> = audio.iter().zip(&clean).map(|(a, b)| a - b).collect();
        let met = 10.0 * (signal_power(&clean) / (energy(&added) / added.len() as f64)).log10();
        prop_assert!((met - f64::from(snr_db)).abs() < 0.1, "{} instead of {} dB", met, snr_db);
    }

    #[test]
    fn settings_of_one_effect_leave_the_draws_of_others_alone(draw: u64, p in 0.0f32..1.0, db in 0.1f32..3.0) {
        let noise = NoiseConfig { p: 1.0, snr_db: [20.0, 20.0], ..NoiseConfig::default() };
        let mut config = AugmentConfig { noise, ..AugmentConfig::default() };
        let clean: Vec<f32> = sine(440.0, 4000).iter().map(|sample| sample * 0.1).collect();
        let added = |config: &AugmentConfig| {
            let mut audio = clean.clone();
            Augment::new(config, WINDOW).unwrap().audio(&mut audio, draw);
            audio
        };
        let alone = added(&config);
        config.volume = VolumeConfig { p, db: [db, db] };
        config.text.lowercase = p;
        let gain = ratio(db).sqrt() as f32;
        let both = added(&config);
        let same = |gain: f32| alone.iter().zip(&both).all(|(a, b)| (a * gain - b).abs() < 1e-5);
        prop_assert!(same(1.0) || same(gain));
    }

    #[test]
    fn padding_is_never_masked(valid in 0usize..120, frames in 1usize..100, bins in 1usize..130, draw: u64) {
        let augment = augment(&all());
        let original: Vec<f32> = (0..bins * frames).map(|n| n as f32).collect();
        let mut mel = original.clone();
        augment.features(&mut mel, bins, frames, valid, draw);
        for (n, (new, old)) in mel.iter().zip(&original).enumerate() {
            prop_assert!(new.is_finite() && (n % frames < valid || new == old));
        }
    }
}
