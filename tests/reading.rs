//! The bundled models on Morse audio that others made: recordings off the air (`fixtures/off-air`) and clips that ebook2cw keyed
//! (`fixtures/ebook2cw/make.sh`). Spaces do not count off the air, where operators differ in them.

use std::path::Path;
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::metrics::{ErrorRate, cer};
use undertone::model::whisper::BUNDLED;
use undertone::ops::DeviceSpec;
use undertone::phases::ModelConfig;
use undertone::transcribe::{TranscribeOptions, Transcriber};

/// The character error rate of each bundled model on a fixture.
fn assert_rates(fixture: &str, spaces: bool, most: f64) {
    undertone::register().expect("registered");
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(fixture).join("manifest.csv");
    let clips = Clips::open(&RecordsConfig { path: manifest.into(), ..Default::default() }).expect("the manifest");
    for name in BUNDLED {
        let whisper = ModelConfig::named(name.as_ref()).load(&device, 0).expect("a bundled model");
        let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default()).expect("a transcriber");
        let mut total = ErrorRate::default();
        for index in 0..clips.len() {
            let read = transcriber.audio(&clips.load(index).expect("audio"));
            let [said, read] =
                [&clips.clip(index).text, &read].map(|text| if spaces { text.clone() } else { text.replace(' ', "") });
            println!("{name}: {said} | {read}");
            total += cer(&said, &read);
        }
        let rate = total.rate().expect("characters");
        println!("{name}: CER {:.1} %", 100.0 * rate);
        assert!(rate <= most, "{name}: CER {rate}");
    }
}

#[test]
fn characters_that_are_sent_several_times_in_a_row_are_counted() {
    undertone::register().expect("registered");
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ebook2cw/manifest.csv");
    let clips = Clips::open(&RecordsConfig { path: manifest.into(), ..Default::default() }).expect("the manifest");
    // Two clips at 22 and 26 words per minute, of which the models by themselves write `FT100` and `IC730`.
    let repeated: Vec<usize> = (0..clips.len()).filter(|index| clips.clip(*index).text.contains("000")).collect();
    assert_eq!(repeated.len(), 2);
    for name in BUNDLED {
        let whisper = ModelConfig::named(name.as_ref()).load(&device, 0).expect("a bundled model");
        let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default()).expect("a transcriber");
        for index in &repeated {
            let read = transcriber.audio(&clips.load(*index).expect("audio"));
            assert_eq!(read, clips.clip(*index).text, "{name}");
        }
    }
}

#[test]
fn bundled_models_read_radio() {
    assert_rates("off-air", false, 0.04);
}

#[test]
fn bundled_models_read_what_ebook2cw_keys() {
    assert_rates("ebook2cw", true, 0.02);
}
