//! Tests of the transcriber with the bundled model and with untrained ones.

use crate::decoded::mean_log;
use crate::{Language, Segmentation, TranscribeError, TranscribeOptions, Transcriber, Update, Window};
use burn::module::Module;
use burn::tensor::Device;
use std::path::Path;
use undertone_cw::{CwConfig, CwFarnsworth, CwHand, CwSynth, CwText};
use undertone_data::audio::Stored;
use undertone_model::whisper::{
    BUNDLED, GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer, bundled as files,
};
use undertone_store::load_parameters;

/// The bundled model of Morse.
pub(crate) fn whisper_nano() -> PretrainedWhisper {
    undertone_cw::register().expect("registered");
    let files = files(BUNDLED[0]).expect("the bundled files");
    PretrainedWhisper::from_files(Path::new(BUNDLED[0]), files, &Device::flex()).expect("the bundled model")
}

/// A transcriber with the bundled model, which `change` may change.
pub(crate) fn bundled(change: impl FnOnce(&mut PretrainedWhisper)) -> Transcriber {
    let mut whisper = whisper_nano();
    change(&mut whisper);
    Transcriber::new(whisper, &Device::flex(), TranscribeOptions::default()).expect("a transcriber")
}

/// Morse audio of a text in even time, at a speed in words per minute.
fn even_morse(text: &str, wpm: f32) -> CwConfig {
    CwConfig {
        text: CwText { fixed: vec![text.into()], ..CwText::default() },
        wpm: [wpm; 2],
        farnsworth: CwFarnsworth { probability: 0.0, ..CwFarnsworth::default() },
        hand: CwHand { probability: 0.0, ..CwHand::default() },
        noise_only: 0.0,
        ..CwConfig::default()
    }
}

/// Returns Morse audio with a speed in words per minute and a signal-to-noise ratio in decibels.
pub(crate) fn sent(text: &str, wpm: f32, snr_db: f32, seed: u64) -> Vec<f32> {
    let config = CwConfig {
        snr_db: [snr_db; 2],
        pitch_hz: [500.0, 800.0],
        duration_s: [1.0, 120.0],
        clean: 0.0,
        ..even_morse(text, wpm)
    };
    CwSynth::new(config, seed).expect("a synthesiser").sample(0).audio
}

/// An untrained multilingual model with a window of two seconds and timestamps.
fn untrained() -> PretrainedWhisper {
    undertone_ops::seed(5);
    let texts = ["one two three, four five."].repeat(20);
    let tokenizer = WhisperTokenizer::train(texts.into_iter(), 270, &["en", "de"], 101).expect("a tokenizer");
    let config = WhisperConfig {
        max_source_positions: 100,
        max_target_positions: 40,
        init_std: 0.4,
        ..WhisperConfig::new(16, 32, 2, [1, 2])
    };
    PretrainedWhisper::init(config, tokenizer, GenerationConfig::new(true), &Device::flex()).expect("a model")
}

/// A transcriber with an untrained model.
pub(crate) fn transcriber(options: TranscribeOptions) -> Result<Transcriber, TranscribeError> {
    Transcriber::new(untrained(), &Device::flex(), options)
}

/// Noise that gets louder.
fn noise(samples: usize) -> Vec<f32> {
    let mut state = 1_u64;
    (0..samples)
        .map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / 8_388_608.0 - 1.0) * at as f32 / samples as f32
        })
        .collect()
}

#[test]
fn another_language_or_task_is_asked_for_as_their_own_transcriber_asks() {
    let of = |language, task| transcriber(TranscribeOptions::plain(language, task)).expect("ready");
    let [english, german, translating] =
        [("en", "transcribe"), ("de", "transcribe"), ("de", "translate")].map(|(l, t)| of(Some(l), Some(t)));
    let audio = noise(50_000);
    let text = |transcriber: &Transcriber, language, task| transcriber.transcript_in(&audio, language, task).text(0.0);
    let all = [&english, &german, &translating].map(|transcriber| transcriber.audio(&audio));
    assert!(all[0] != all[1] && all[1] != all[2], "{all:?}");
    assert_eq!(text(&english, None, None), all[0]);
    assert_eq!(text(&english, Some("de"), None), all[1]);
    assert_eq!(text(&english, Some("de"), Some("translate")), all[2]);
    assert_eq!(text(&german, None, Some("translate")), all[2]);
    assert_eq!(text(&german, Some("xx"), None), all[1], "what the model does not know is refused elsewhere");
}

#[test]
fn a_batch_is_decoded_as_its_windows_alone() {
    let of = |batch_size, words| {
        let options = TranscribeOptions { batch_size, words, ..TranscribeOptions::plain(Some("en"), None) };
        transcriber(options).expect("ready").transcript(&noise(200_000))
    };
    let (alone, together) = (of(1, true), of(8, true));
    assert!(alone.segments.len() > 5);
    assert_eq!(alone.text(0.0), together.text(0.0));
    let words = |transcript: &crate::Transcript| -> Vec<_> {
        transcript
            .segments
            .iter()
            .flat_map(|segment| &segment.words)
            .map(|w| (w.text.clone(), w.start, w.end))
            .collect()
    };
    assert_eq!(words(&alone), words(&together));
    assert!(!words(&alone).is_empty() && of(8, false).segments.iter().all(|segment| segment.words.is_empty()));
    assert_eq!(of(8, false).text(0.0), together.text(0.0), "the times of words change no text");
}

#[test]
fn windows_follow_the_timestamps_to_the_end() {
    for words in [false, true] {
        let options = TranscribeOptions {
            segmentation: Segmentation::Timestamps,
            no_speech_threshold: None,
            compression_ratio_threshold: None,
            logprob_threshold: None,
            words,
            ..TranscribeOptions::of(Some("en"), None)
        };
        let transcript = transcriber(options).expect("ready").transcript(&noise(100_000));
        assert_eq!(transcript.samples, 100_000);
        let times: Vec<_> = transcript.segments.iter().map(|segment| segment.samples.clone()).collect();
        assert!(times.iter().all(|range| range.start < range.end && range.end <= 100_000), "{times:?}");
    }
}

#[test]
fn short_windows_are_as_long_as_they_are_asked_to_be() {
    let of = |window, words| {
        let options = TranscribeOptions { window, words, ..TranscribeOptions::plain(Some("en"), None) };
        transcriber(options).expect("ready")
    };
    let positions = |window| of(window, false).encode(&[noise(8_000), noise(12_345)]).dims()[1];
    assert_eq!(positions(Window::OfModel), 100);
    assert_eq!(positions(Window::Longest), 39);
    assert_eq!(positions(Window::Seconds(1.5)), 75);
    let transcript = of(Window::Seconds(1.0), false).transcript(&noise(48_000));
    assert_eq!(transcript.segments.iter().map(|segment| segment.samples.len().div_ceil(16_000)).max(), Some(1));
    let transcript = of(Window::Longest, true).transcript(&noise(10_000));
    assert!(transcript.segments[0].words.iter().all(|word| word.end <= 0.64), "{transcript:?}");
}

#[test]
fn a_language_is_detected_where_none_is_given() {
    let found = transcriber(TranscribeOptions::plain(None, None)).expect("ready").transcript(&noise(40_000));
    let language = found.language.clone().expect("a language");
    assert!(["en", "de"].contains(&language.code.as_str()), "{language:?}");
    assert!(language.probability.is_some_and(|p| (0.5..=1.0).contains(&p)), "{language:?}");
    let options = TranscribeOptions::plain(Some(&language.code), None);
    let told = transcriber(options).expect("ready").transcript(&noise(40_000));
    assert_eq!(told.text(0.0), found.text(0.0));
    let mut whisper = untrained();
    whisper.generation.language = Some("de".into());
    let own = Transcriber::new(whisper.clone(), &Device::flex(), TranscribeOptions::default()).expect("ready");
    assert_eq!(own.known_language().flatten().map(|language| language.code).as_deref(), Some("de"));
    let options = TranscribeOptions { language: Language::Detected, ..TranscribeOptions::default() };
    assert_eq!(Transcriber::new(whisper, &Device::flex(), options).expect("ready").known_language(), None);
}

#[test]
fn options_that_a_model_cannot_follow_are_refused() {
    let refused = |options| transcriber(options).err().expect("refused").to_string();
    let error = refused(TranscribeOptions::plain(Some("xx"), None));
    assert!(error.contains("<|xx|>"), "{error}");
    let long = Some("one two three, four five. ".repeat(9));
    let error = refused(TranscribeOptions { hotwords: long.clone(), ..TranscribeOptions::default() });
    assert!(error.contains("hotwords") && error.contains("19"), "{error}");
    // Letters that no other token has: 14, and a space.
    let [prompt, prefix] = ["one two three", "bcdgjklmpqsxyz"].map(|text| Some(text.to_owned()));
    let both = TranscribeOptions { initial_prompt: long.clone(), prefix, ..TranscribeOptions::default() };
    let error = refused(both.clone());
    assert!(error.contains("prefix") && error.contains("30"), "{error}");
    assert!(transcriber(TranscribeOptions { initial_prompt: prompt, ..both.clone() }).is_ok());
    let cut = transcriber(TranscribeOptions { prefix: None, ..both }).expect("ready");
    assert_eq!(cut.parts.initial.len(), 19, "the end of a long prompt is its context");
    let error = refused(TranscribeOptions { temperatures: Vec::new(), ..TranscribeOptions::default() });
    assert!(error.contains("temperatures"), "{error}");
    let mut english = untrained();
    english.generation.is_multilingual = false;
    for (language, task, culprit) in [(Some("de"), None, "`de`"), (None, Some("translate"), "`translate`")] {
        let options = TranscribeOptions::plain(language, task);
        let error = Transcriber::new(english.clone(), &Device::flex(), options).err().expect("refused").to_string();
        assert!(error.contains("one language") && error.contains(culprit), "{error}");
    }
    let morse =
        |options| Transcriber::new(whisper_nano(), &Device::flex(), options).err().expect("refused").to_string();
    let error = morse(TranscribeOptions { words: true, ..TranscribeOptions::default() });
    assert!(error.contains("`cw`") && error.contains("words"), "{error}");
}

#[test]
fn a_window_has_as_many_tokens_as_the_decoder_has_positions() {
    let of = |segmentation, change: &dyn Fn(&mut PretrainedWhisper, &mut TranscribeOptions)| {
        let mut whisper = untrained();
        let mut options = TranscribeOptions { segmentation, ..TranscribeOptions::plain(Some("en"), None) };
        change(&mut whisper, &mut options);
        let transcriber = Transcriber::new(whisper, &Device::flex(), options).expect("ready");
        transcriber.transcript(&noise(32_000)).segments.iter().map(|segment| segment.tokens.len()).max()
    };
    // 40 positions, of which 4 are the prompt's. An untrained model does not end.
    assert_eq!(of(Segmentation::Pauses, &|_, _| ()), Some(36));
    let text = || Some("one two three".to_owned());
    let context = of(Segmentation::Pauses, &|_, options| options.initial_prompt = text()).expect("a segment");
    assert!((20..36).contains(&context), "{context}");
    // The limit of a model counts its plain prompt, and no context.
    let limit = |whisper: &mut PretrainedWhisper| whisper.generation.max_length = Some(14);
    assert_eq!(of(Segmentation::Pauses, &|whisper, _| limit(whisper)), Some(10));
    let limited = of(Segmentation::Pauses, &|whisper, options| {
        limit(whisper);
        options.initial_prompt = text();
    });
    assert_eq!(limited, Some(10));
    // The pass that times words also reads the end.
    let words = of(Segmentation::Pauses, &|_, options| {
        options.words = true;
        options.prefix = text();
    });
    assert!(words.is_some_and(|tokens| tokens > 0));
}

#[test]
fn what_can_be_read_of_a_damaged_recording_is_transcribed() {
    let clip = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/src/verify/clips/jfk.flac");
    let whole = std::fs::read(clip).expect("read");
    let stored = |bytes: &[u8]| Stored::memory("held".into(), std::sync::Arc::new(bytes.to_vec()));
    let recordings = [stored(&whole[..whole.len() * 3 / 4]), stored(&whole), stored(b"no audio")];
    for segmentation in [Segmentation::Pauses, Segmentation::Timestamps] {
        let options = TranscribeOptions { segmentation, ..TranscribeOptions::plain(Some("en"), None) };
        let mut done = Vec::new();
        let told = transcriber(options).expect("ready").recordings(&recordings, |update| {
            if let Update::Done { recording, transcript, error } = update {
                done.push((recording, transcript.seconds(), transcript.segments.len(), error.map(|e| e.to_string())));
            }
            Ok::<_, std::convert::Infallible>(())
        });
        assert!(told.is_ok());
        let [cut, whole, other] = &done[..] else { panic!("{done:?}") };
        assert!(cut.1 > 7.0 && cut.1 < 9.0 && cut.2 > 2 && cut.3.is_some(), "{segmentation:?}: {cut:?}");
        assert!((whole.1 - 11.0).abs() < 0.01 && whole.2 > cut.2 && whole.3.is_none(), "{segmentation:?}: {whole:?}");
        assert!(other.2 == 0 && other.3.is_some(), "{segmentation:?}: {other:?}");
    }
}

#[test]
fn what_is_drawn_depends_on_the_seed_alone() {
    let of = |seed, batch_size, temperatures: &[f64]| {
        let options = TranscribeOptions {
            temperatures: temperatures.to_vec(),
            logprob_threshold: Some(0.0),
            no_speech_threshold: None,
            segmentation: Segmentation::Pauses,
            seed,
            batch_size,
            ..TranscribeOptions::of(Some("en"), None)
        };
        let transcript = transcriber(options).expect("ready").transcript(&noise(100_000));
        assert!(transcript.segments.iter().all(|segment| segment.temperature == 0.9));
        transcript.text(0.0)
    };
    for temperatures in [&[0.0, 0.9][..], &[0.9]] {
        assert_eq!(of(1, 1, temperatures), of(1, 4, temperatures));
        assert_ne!(of(1, 4, temperatures), of(2, 4, temperatures));
    }
}

#[test]
fn a_window_that_the_model_doubts_is_left_out() {
    let mut transcriber = bundled(|_| {});
    let config = CwConfig { clean: 1.0, duration_s: [5.0, 5.0], ..CwConfig::default() };
    let audio = CwSynth::new(config, 3).expect("a synthesiser").sample(0).audio;
    let sure = transcriber.audio(&audio);
    assert!(sure.len() > 2, "{sure}");
    transcriber.whisper.generation.min_mean_logprob = Some(-2.0);
    assert_eq!(transcriber.audio(&audio), sure);
    // No probability is above 1.
    transcriber.whisper.generation.min_mean_logprob = Some(1e-3);
    assert_eq!(transcriber.audio(&audio), "");
    assert_eq!((mean_log(&[-0.5, -1.5]), mean_log(&[])), (-1.0, 0.0));
}

#[test]
fn a_station_is_read_beside_another_one() {
    let transcriber = bundled(|_| {});
    let station = |pitch: f32, text: &str| {
        let config = CwConfig { pitch_hz: [pitch; 2], duration_s: [1.0, 7.9], clean: 1.0, ..even_morse(text, 22.0) };
        CwSynth::new(config, 3).expect("a synthesiser").sample(0)
    };
    let (clip, other) = (station(600.0, "THE WIND WAS"), station(800.0, "MY DOG IS OLD"));
    let both: Vec<f32> = clip.audio.iter().zip(&other.audio).map(|(a, b)| a + 0.3 * b).collect();
    let alone = transcriber.audio(&clip.audio);
    assert!(alone.len() > 2, "{alone}");
    assert_eq!(transcriber.audio(&both), alone);
    let state = transcriber.encode(&[both.as_slice()]);
    let start = transcriber.start(None, None).expect("a prompt");
    let at_once = transcriber.decode(&state, &[start], None).pop().expect("a text").text;
    assert_ne!(at_once, alone, "both tones at once are not read");
}

#[test]
fn slow_senders_are_read_with_the_spaces_between_their_words() {
    let transcriber = bundled(|_| {});
    let text = "THE WIND WAS COLD AND THE HOUSE WAS DARK";
    for (wpm, snr_db) in [(5.0, 30.0), (7.0, 10.0), (12.0, 10.0)] {
        assert_eq!(transcriber.audio(&sent(text, wpm, snr_db, 3)), text, "{wpm}");
    }
}

#[test]
fn a_fingerprint_tells_what_is_heard_differently_and_nothing_else() {
    let device = Device::flex();
    let whisper = untrained();
    let of = |whisper: PretrainedWhisper, language| {
        Transcriber::new(whisper, &device, TranscribeOptions::plain(Some(language), None)).expect("ready").fingerprint()
    };
    let known = of(whisper.clone(), "en");
    let mut frozen = whisper.clone();
    frozen.model = frozen.model.no_grad();
    assert_eq!(of(frozen, "en"), known, "what is trained of it is no matter");
    assert_ne!(of(whisper.clone(), "de"), known, "another language");
    let mut parameters = undertone_store::parameters(&whisper.model);
    let changed = parameters.values_mut().last().expect("parameters");
    changed.data[0] = f32::from_bits(changed.data[0].to_bits() ^ 1);
    let mut other = whisper.clone();
    other.model = load_parameters(other.model, |name| Ok(parameters[name].clone())).expect("loaded");
    assert_ne!(of(other, "en"), known, "one bit of a weight");
    let mut whisper = whisper;
    whisper.generation.suppress_tokens.push(3);
    assert_ne!(of(whisper, "en"), known, "a character that it never writes");
}
