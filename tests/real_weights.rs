//! Real models and real recordings, where they are at hand in `../shared` beside the repository; skipped elsewhere.

use undertone::data::audio;
use undertone::data::manifest::Manifest;
use undertone::data::text::EnglishNormalizer;
use undertone::ops::DeviceSpec;
use undertone::phases::Transcriber;
use undertone::train::metrics::{ErrorRate, wer};
use undertone_tests::reference::shared;

#[test]
fn whisper_tiny_en_reads_ljspeech() {
    let (Some(model), Some(clips), Some(spellings)) = (
        shared("models/whisper-tiny.en"),
        shared("data/speech-en/metadata.csv"),
        shared("models/whisper-tokenizer/english.json"),
    ) else {
        return;
    };
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let transcriber = Transcriber::load(&model, &device, None, None).expect("the model");
    let normalizer = EnglishNormalizer::from_file(spellings).expect("the spellings");
    let entries = Manifest::load(&clips, true).expect("the manifest").entries;
    let ljspeech =
        entries.iter().filter(|e| e.audio.file_name().is_some_and(|n| n.to_string_lossy().starts_with("LJ001")));
    let mut total = ErrorRate::default();
    let mut clips = 0;
    for entry in ljspeech {
        let text = transcriber.audio(&audio::load(&entry.audio).expect("audio"));
        total += wer(&normalizer.normalize(&entry.text), &normalizer.normalize(&text));
        clips += 1;
    }
    let rate = total.rate().expect("words");
    println!("{clips} clips, {} words, WER {:.2} %", total.length, 100.0 * rate);
    assert!(clips >= 20 && rate <= 0.08, "WER {rate} over {clips} clips");
}
