//! Real models and real recordings, where they are at hand in `../shared` beside the repository; skipped elsewhere.

use serde_json::Value;
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::data::text::EnglishNormalizer;
use undertone::metrics::{ErrorRate, wer};
use undertone::model::whisper::WhisperTokenizer;
use undertone::ops::DeviceSpec;
use undertone::phases::ModelConfig;
use undertone::transcribe::{Segmentation, TranscribeOptions, Transcriber};
use undertone_testing::shared;
use undertone_tests::{Place, wav};

#[test]
fn whisper_tiny_en_reads_ljspeech() {
    undertone::register().expect("registered");
    let (Some(model), Some(clips), Some(spellings)) = (
        shared("models/whisper-tiny.en"),
        shared("data/speech-en/metadata.csv"),
        shared("models/whisper-tokenizer/english.json"),
    ) else {
        return;
    };
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let whisper = ModelConfig::named(&model).load(&device, 0).expect("the model");
    let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default()).expect("a transcriber");
    let normalizer = EnglishNormalizer::from_file(spellings).expect("the spellings");
    let clips = Clips::open(&RecordsConfig { path: clips.into(), ..Default::default() }).expect("the manifest");
    let ljspeech: Vec<usize> = (0..clips.len()).filter(|index| clips.clip(*index).name.contains("LJ001")).collect();
    let mut total = ErrorRate::default();
    for index in &ljspeech {
        let text = transcriber.audio(&clips.load(*index).expect("audio"));
        total += wer(&normalizer.normalize(&clips.clip(*index).text), &normalizer.normalize(&text));
    }
    let clips = ljspeech.len();
    let rate = total.rate().expect("words");
    println!("{clips} clips, {} words, WER {:.2} %", total.length, 100.0 * rate);
    assert!(clips >= 20 && rate <= 0.08, "WER {rate} over {clips} clips");
}

#[test]
fn a_model_of_speech_has_no_stations() {
    let Some(model) = shared("models/whisper-tiny.en") else { return };
    let place = Place::default();
    place.write("clip.wav", wav(&[0.1; 1600]));
    let outcome = place.run(&["transcribe", "--all", "--model", &model.to_string_lossy(), "clip.wav"]);
    outcome.assert_refusal(&["--all", "Morse"]);
}

#[test]
fn openais_vocabulary_spells_every_text() {
    undertone::register().expect("registered");
    let Some(tokenizer) = shared("models/whisper-tokenizer/tokenizer.json") else { return };
    let tokenizer = WhisperTokenizer::from_bytes(std::fs::read(tokenizer).expect("read")).expect("a tokenizer");
    for text in ["", " a  b ", "Grüße, 世界! \u{1F600}\u{0}\u{7f}\u{a0}\u{ad}\r\n\t", "ﬁ e\u{301} \u{e9}"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).expect(text)), text);
    }
    assert!(tokenizer.encode("a<|endoftext|>").is_err());
}

/// The recording of `fixtures/transcription/make.py`: a clip three times, with pauses.
fn three_times() -> Vec<f32> {
    let clip = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/exchange/src/verify/clips/jfk.flac");
    let clip = undertone::data::audio::load(&clip).expect("the clip");
    [&clip[..], &[0.0; 16_000], &clip, &[0.0; 32_000], &clip].concat()
}

#[test]
fn windows_are_decoded_as_by_openai_whisper() {
    undertone::register().expect("registered");
    let Some(model) = shared("models/whisper-tiny.en") else { return };
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let whisper = ModelConfig::named(&model).load(&device, 0).expect("the model");
    let expected: Value = serde_json::from_str(include_str!("fixtures/transcription/openai.json")).expect("JSON");
    let plain = TranscribeOptions {
        segmentation: Segmentation::Timestamps,
        temperatures: vec![0.0],
        ..TranscribeOptions::default()
    };
    for (name, options) in [
        ("greedy", plain.clone()),
        ("beams", TranscribeOptions { beams: Some(5), ..plain.clone() }),
        ("words", TranscribeOptions { words: true, ..plain.clone() }),
    ] {
        let transcriber = Transcriber::new(whisper.clone(), &device, options).expect("a transcriber");
        let found = transcriber.transcript(&three_times());
        let expected = expected[name].as_array().expect("segments");
        let texts: Vec<String> = found.segments.iter().map(|segment| segment.text(0.0)).collect();
        let theirs: Vec<&str> = expected.iter().map(|segment| segment["text"].as_str().expect("a text")).collect();
        assert_eq!(texts, theirs, "{name}");
        for (segment, theirs) in found.segments.iter().zip(expected) {
            let number = |key: &str| theirs[key].as_f64().expect("a number");
            let near = |found: f64, key: &str, most: f64| {
                assert!((found - number(key)).abs() <= most, "{name}: {key} is {found}, theirs {}", number(key));
            };
            // They pad the features of the last window with zeros, which is no silence, as in training: it differs.
            near(segment.start(), "start", 0.3);
            near(segment.end(), "end", 0.3);
            if segment.start() < 24.0 {
                near(segment.mean_log_prob, "mean_log_prob", 0.02);
                near(f64::from(segment.no_speech.expect("a probability")), "no_speech", 0.02);
            }
            near(segment.compression_ratio, "compression_ratio", 0.02);
            let words = theirs["words"].as_array().expect("words");
            assert_eq!(segment.words.len(), words.len(), "{name}");
            for (word, theirs) in segment.words.iter().zip(words) {
                let time = |index: usize| theirs[index].as_f64().expect("a number");
                assert_eq!(Some(word.text.as_str()), theirs[0].as_str());
                assert!((word.start - time(1)).abs() < 0.2 && (word.end - time(2)).abs() < 0.2, "{word:?}, {theirs}");
            }
        }
    }
}
