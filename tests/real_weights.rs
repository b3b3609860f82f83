//! Real models and real recordings, where they are at hand in `../shared` beside the repository; skipped elsewhere.

use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::data::text::EnglishNormalizer;
use undertone::metrics::{ErrorRate, wer};
use undertone::model::whisper::WhisperTokenizer;
use undertone::ops::DeviceSpec;
use undertone::phases::ModelConfig;
use undertone::transcribe::{TranscribeOptions, Transcriber};
use undertone_testing::shared;

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
fn openais_vocabulary_spells_every_text() {
    undertone::register().expect("registered");
    let Some(tokenizer) = shared("models/whisper-tokenizer/tokenizer.json") else { return };
    let tokenizer = WhisperTokenizer::from_bytes(std::fs::read(tokenizer).expect("read")).expect("a tokenizer");
    for text in ["", " a  b ", "Grüße, 世界! \u{1F600}\u{0}\u{7f}\u{a0}\u{ad}\r\n\t", "ﬁ e\u{301} \u{e9}"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).expect(text)), text);
    }
    assert!(tokenizer.encode("a<|endoftext|>").is_err());
}
