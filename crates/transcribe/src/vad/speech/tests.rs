use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

/// White noise in `[-1, 1)`, by the generator of Park and Miller (1988) with the seed 1.
fn noise(samples: usize) -> impl Iterator<Item = f32> {
    let mut state = 1_u64;
    (0..samples).map(move |_| {
        state = state * 48_271 % 2_147_483_647;
        (state as f64 / 1_073_741_824.0 - 1.0) as f32
    })
}

/// The recording of the fixture: silence, a speech, noise, and the same speech softly.
fn recording() -> Vec<f32> {
    let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/src/verify/clips/jfk.flac");
    let clip = undertone_data::audio::load(&clip).expect("the clip");
    let mut audio = vec![0.0; 80_000];
    audio.extend(&clip);
    audio.extend(noise(48_000).map(|sample| sample * 0.1));
    audio.extend(clip.iter().map(|sample| sample * 0.125));
    audio
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("../fixtures/vad.json")).expect("JSON")
}

#[test]
fn probabilities_are_those_of_silero() {
    let expected: Vec<f64> = serde_json::from_value(fixture()["probabilities"].clone()).expect("numbers");
    let mut audio = recording();
    audio.resize(audio.len().next_multiple_of(FRAME), 0.0);
    let network = VadNetwork::new();
    for frames in [1, 7, 10_000] {
        let mut state = VadState::default();
        let found: Vec<f32> = audio.chunks(frames * FRAME).flat_map(|part| network.forward(part, &mut state)).collect();
        assert_eq!(found.len(), expected.len());
        let most = found.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(most < 1e-4, "{most} with {frames} frames at a time");
    }
}

#[test]
fn speech_is_where_silero_finds_it() {
    let expected: Vec<[usize; 2]> = serde_json::from_value(fixture()["speech"].clone()).expect("spans");
    // Its defaults.
    let options = VadOptions { threshold: 0.5, min_speech_s: 0.25, min_silence_s: 0.1, pad_s: 0.03 };
    let found = speech(&VadNetwork::new(), &recording(), &options, usize::MAX);
    let found: Vec<[usize; 2]> = found.into_iter().map(|found| [found.samples.start, found.samples.end]).collect();
    assert_eq!(found, expected);
}

#[test]
fn silence_and_noise_have_no_speech() {
    let network = VadNetwork::new();
    let audio: Vec<f32> = std::iter::repeat_n(0.0, 100_000).chain(noise(100_000).map(|sample| sample * 0.1)).collect();
    for audio in [&audio[..], &[], &[0.1; 100]] {
        assert!(speech(&network, audio, &VadOptions::default(), 480_000).is_empty());
    }
}

/// Whether a stretch is at most `longest` samples long, within the audio, and around its speech.
fn is_within(stretch: &Stretch, audio: usize, longest: usize) -> bool {
    let Stretch { samples, speech } = stretch;
    samples.start < samples.end
        && samples.len() <= longest
        && samples.end <= audio
        && speech
            .iter()
            .all(|range| range.start < range.end && samples.start <= range.start && range.end <= samples.end)
        && speech.windows(2).all(|pair| pair[0].end < pair[1].start)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn stretches_are_short_enough_and_in_order_however_audio_comes(block in 1_usize..40_000, longest in 20_000_usize..200_000) {
        let (network, audio) = (VadNetwork::new(), recording());
        let found = speech(&network, &audio, &VadOptions::default(), longest);
        let parts: Vec<Stretch> = found.iter().cloned().flat_map(Stretch::at_pauses).collect();
        for found in [&found, &parts] {
            prop_assert!(found.iter().all(|stretch| is_within(stretch, audio.len(), longest)), "{:?}", found);
            prop_assert!(found.windows(2).all(|pair| pair[0].samples.end <= pair[1].samples.start), "{:?}", found);
        }
        prop_assert!(parts.iter().all(|part| part.speech.len() == 1));
        let mut finder = SpeechFinder::new(&network, VadOptions::default(), longest);
        let mut again = Vec::new();
        for block in audio.chunks(block) {
            let before = finder.needed_from();
            let new = finder.push(block);
            prop_assert!(new.iter().all(|stretch| stretch.samples.start >= before), "the audio of {:?} is no longer there", new);
            again.extend(new);
        }
        again.extend(finder.finish());
        prop_assert_eq!(again, found);
    }
}
