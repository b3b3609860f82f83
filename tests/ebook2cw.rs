//! The bundled backbone on Morse audio from a generator that is not ours (`fixtures/ebook2cw/make.sh`).

use std::path::Path;
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::metrics::{ErrorRate, cer};
use undertone::ops::DeviceSpec;
use undertone::phases::ModelConfig;
use undertone::transcribe::{TranscribeOptions, Transcriber};

#[test]
fn the_bundled_model_reads_what_ebook2cw_keys() {
    undertone::register().expect("registered");
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let whisper = ModelConfig::default().load(&device, 0).expect("the bundled model");
    let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default()).expect("a transcriber");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ebook2cw/manifest.csv");
    let mut total = ErrorRate::default();
    let clips = Clips::open(&RecordsConfig { path: manifest.into(), ..Default::default() }).expect("the manifest");
    for index in 0..clips.len() {
        let said = &clips.clip(index).text;
        let text = transcriber.audio(&clips.load(index).expect("audio"));
        println!("{said} | {text}");
        total += cer(said, &text);
    }
    let rate = total.rate().expect("characters");
    println!("CER {:.1} %", 100.0 * rate);
    assert!(rate <= 0.02, "CER {rate}");
}
