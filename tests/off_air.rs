//! The bundled model on three recordings that nobody here made (`fixtures/off-air`).

use std::path::Path;
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::metrics::{ErrorRate, cer};
use undertone::ops::DeviceSpec;
use undertone::phases::ModelConfig;
use undertone::transcribe::{TranscribeOptions, Transcriber};

#[test]
fn the_bundled_model_reads_radio() {
    undertone::register().expect("registered");
    let device = DeviceSpec::Cpu.resolve().expect("a CPU");
    let whisper = ModelConfig::default().load(&device, 0).expect("the bundled model");
    let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default()).expect("a transcriber");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/off-air/manifest.csv");
    let clips = Clips::open(&RecordsConfig { path: manifest.into(), ..Default::default() }).expect("the manifest");
    let mut total = ErrorRate::default();
    for index in 0..clips.len() {
        let said = clips.clip(index).text.replace(' ', "");
        let read = transcriber.audio(&clips.load(index).expect("audio"));
        println!("{said} | {read}");
        total += cer(&said, &read.replace(' ', ""));
    }
    let rate = total.rate().expect("characters");
    println!("CER {:.1} % without spaces", 100.0 * rate);
    assert!(rate <= 0.04, "CER {rate}");
}
