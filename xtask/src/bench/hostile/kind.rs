//! What is made hostile, and who reads it.

use super::case::Case;
use super::hub;
use burn::tensor::{Int, Tensor, TensorData};
use clap::ValueEnum;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;
use undertone::data::audio::{self, LiveAudio, Stored};
use undertone::data::clips::Clips;
use undertone::data::records::{ClassifyRecord, PairRecord, RecordsConfig, SpanRecord, TagRecord, tag_set};
use undertone::model::text::{PretrainedText, TextTokenizer};
use undertone::model::whisper::WhisperTokenizer;
use undertone::ops::DeviceSpec;
use undertone::phases::check::{CheckOptions, check};
use undertone::phases::run::{Predictor, train};
use undertone::phases::{Experiment, ModelConfig, Session, Unwatched, stage_plan, write_reports};
use undertone::report::monitor::Monitor;
use undertone::store::TensorFile;
use undertone::train::Checkpoints;
use undertone::transcribe::{TranscribeOptions, Transcriber};

/// A kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Configurations
    Yaml,
    Wav,
    Flac,
    Mp3,
    Ogg,
    /// Opus in Ogg, WebM and Matroska
    Opus,
    /// AAC and ALAC in MP4
    Mp4,
    /// Audio on standard input: WAV, FLAC, MP3, Ogg Vorbis, samples alone
    Stream,
    /// Lists of recordings: CSV, TSV, JSON lines, JSON
    List,
    /// Records of text tasks: CSV, TSV, JSON lines, JSON, CoNLL
    Records,
    /// WebDataset
    Tar,
    /// Recordings and records in Parquet
    Parquet,
    Safetensors,
    Tokenizer,
    /// A Whisper's folder
    Whisper,
    /// A Whisper in a file of openai-whisper or whisper.cpp, or in a folder of CTranslate2
    Foreign,
    /// A BERT's or RoBERTa's folder
    Text,
    /// Adapters, heads and router of a run with tasks
    Tasks,
    /// A run's records, as reports and the monitor read them
    Run,
    /// A run's checkpoint, and what else goes on from there
    Resume,
    /// What the hub answers
    Hub,
    /// What the harness itself must see: a panic, an abort, a hang, an allocation, a stack that overflows
    #[value(hide = true)]
    Trial,
}

impl Kind {
    /// Of 10,000 cases, how many are of which kind.
    pub const SHARES: [(Self, u64); 21] = [
        (Self::Yaml, 1000),
        (Self::Wav, 450),
        (Self::Flac, 650),
        (Self::Mp3, 650),
        (Self::Ogg, 650),
        (Self::Opus, 350),
        (Self::Mp4, 250),
        (Self::Stream, 400),
        (Self::List, 1000),
        (Self::Records, 700),
        (Self::Tar, 500),
        (Self::Parquet, 900),
        (Self::Safetensors, 500),
        (Self::Tokenizer, 400),
        (Self::Whisper, 500),
        (Self::Foreign, 200),
        (Self::Text, 200),
        (Self::Tasks, 200),
        (Self::Run, 200),
        (Self::Resume, 100),
        (Self::Hub, 200),
    ];

    /// Whether the file is one of those that are changed; the others are there to be read beside it.
    pub fn changes(self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let below = |dir: &str| file.components().any(|part| part.as_os_str() == dir);
        match self {
            Self::List | Self::Records => name.starts_with("list."),
            Self::Tasks => below("phase3") && below("best"),
            Self::Run => !below("best") && !name.ends_with(".html"),
            Self::Foreign => name != "tokenizer.json",
            Self::Resume => below("checkpoints") || ["metrics.jsonl", "summary.json"].contains(&&*name),
            _ => true,
        }
    }

    /// Reads the case as its users would.
    pub fn read(self, case: &Case) -> Result<(), String> {
        let (dir, file) = (&case.dir, &case.file);
        match self {
            Self::Yaml => configuration(file),
            Self::Wav | Self::Flac | Self::Mp3 | Self::Ogg | Self::Opus | Self::Mp4 => recording(file),
            Self::Stream => either([None, Some(8_000)].map(|rate| stream(file, rate))),
            Self::List | Self::Tar => clips(file),
            Self::Records => records(file),
            Self::Parquet => either([clips(file), records(file)]),
            Self::Safetensors => tensors(file),
            Self::Tokenizer => tokenizer(file),
            Self::Whisper => transcription(dir),
            Self::Foreign => transcription(if file.ends_with("model.bin") { dir } else { file }),
            Self::Text => encoder(dir),
            Self::Tasks => answer(&dir.join("runs/two"), &dir.join("clip.wav")),
            Self::Run => view(&dir.join("runs/tiny")),
            Self::Resume => resume(&dir.join("runs/tiny")),
            Self::Hub => hub::ask(dir),
            Self::Trial => trial(file),
        }
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}

/// The first that is accepted, or the last refusal.
fn either<const N: usize>(results: [Result<(), String>; N]) -> Result<(), String> {
    results.into_iter().reduce(Result::or).unwrap_or(Ok(()))
}

/// Loads a configuration, and looks at the data of one that is accepted as `data check` does. Its model is not made: one
/// may ask for a model of any size.
fn configuration(file: &Path) -> Result<(), String> {
    let mut experiment = Experiment::load(Some(file), &[]).map_err(said)?;
    let _ = experiment.to_yaml();
    if !experiment.model.backbone.is_text() {
        experiment.model = ModelConfig::default();
        // Two tasks are as good as ten, and take less time.
        experiment.tasks.truncate(2);
        check(&experiment, &CheckOptions { audio: false, progress: &Unwatched }).map_err(said)?;
    }
    Ok(())
}

fn recording(file: &Path) -> Result<(), String> {
    let whole = audio::load(file).map_err(said);
    // A recording may be too short for it.
    let _ = audio::load_segment(file, Some(0.1), Some(0.3));
    let length = Stored::file(file).seconds().map_err(said);
    whole.and(length).map(drop)
}

/// Reads a file as what comes on standard input, with and without a word on its rate.
fn stream(file: &Path, rate: Option<u32>) -> Result<(), String> {
    let mut live = LiveAudio::new(std::fs::File::open(file).map_err(said)?, rate).map_err(said)?;
    while !live.next(4_000).map_err(said)?.is_empty() {}
    Ok(())
}

fn at(file: &Path) -> RecordsConfig {
    RecordsConfig { path: file.to_owned().into(), ..RecordsConfig::default() }
}

fn clips(file: &Path) -> Result<(), String> {
    let clips = Clips::open(&at(file)).map_err(said)?;
    let _ = clips.problems();
    let loaded = (0..clips.len().min(16)).map(|index| {
        let _ = (clips.seconds(index), clips.key(index), clips.continues(index));
        clips.load(index).map(drop).map_err(said)
    });
    // Each is looked at, and one that can be heard will do.
    loaded.collect::<Vec<_>>().into_iter().reduce(Result::or).unwrap_or(Ok(()))
}

fn records(file: &Path) -> Result<(), String> {
    let config = at(file);
    let labels = ["good", "bad"].map(str::to_owned);
    let tags = tag_set(&config).map_err(said).and_then(|tags| TagRecord::read(&config, &tags).map_err(said));
    either([
        tags.map(drop),
        ClassifyRecord::read(&config, &labels).map(drop).map_err(said),
        PairRecord::read(&config).map(drop).map_err(said),
        SpanRecord::read(&config).map(drop).map_err(said),
    ])
}

fn tensors(file: &Path) -> Result<(), String> {
    let file = TensorFile::open(file).map_err(said)?;
    file.names().iter().try_for_each(|name| file.read(name).map(drop).map_err(said))
}

fn tokenizer(file: &Path) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(said)?;
    let whisper = WhisperTokenizer::from_bytes(bytes.clone()).map_err(said).and_then(|tokenizer| {
        let ids = tokenizer.encode("CQ DE G4FON").map_err(said)?;
        let _ = (tokenizer.decode(&ids), tokenizer.languages(), tokenizer.control_tokens());
        Ok(())
    });
    let text = TextTokenizer::from_bytes(bytes, &[]).map_err(said).and_then(|tokenizer| {
        let ids = tokenizer.inner().encode("to be or not", true).map_err(said)?;
        let _ = tokenizer.decode(ids.get_ids());
        Ok(())
    });
    either([whisper, text])
}

/// Half a second of a tone.
fn tone() -> Vec<f32> {
    (0..8000).map(|t| (t as f32 * 0.25).sin() * 0.5).collect()
}

fn transcription(dir: &Path) -> Result<(), String> {
    let device = DeviceSpec::Cpu.resolve().map_err(said)?;
    let whisper = ModelConfig::named(dir).load(&device, 0).map_err(said)?;
    let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default()).map_err(said)?;
    let _ = transcriber.audio(&tone());
    Ok(())
}

fn encoder(dir: &Path) -> Result<(), String> {
    let device = DeviceSpec::Cpu.resolve().map_err(said)?;
    let text = PretrainedText::load(dir, &device).map_err(said)?;
    let encoding = text.tokenizer.inner().encode("to be", true).map_err(said)?;
    let ids: Vec<i64> = encoding.get_ids().iter().map(|id| i64::from(*id)).take(text.model.max_tokens()).collect();
    let ids = Tensor::<1, Int>::from_ints(TensorData::from(ids.as_slice()), &device).unsqueeze();
    let _ = text.model.forward(ids, None, None, None).into_data();
    Ok(())
}

fn answer(run: &Path, clip: &Path) -> Result<(), String> {
    let mut experiment = Experiment::load(Some(&run.join("config.yaml")), &[]).map_err(said)?;
    experiment.at(run);
    let predictor = Predictor::load(&experiment).map_err(said)?;
    predictor.audio(clip).map(drop).map_err(said)
}

fn view(run: &Path) -> Result<(), String> {
    let pages = write_reports(run).map(drop).map_err(said);
    let seen = Monitor::open(Some(run), run, stage_plan).map_err(said).map(|mut monitor| {
        let snapshot = monitor.look();
        let _ = (snapshot.text(), serde_json::json!(snapshot));
    });
    let (newest, complaints) = Checkpoints::new(run.join("checkpoints")).newest();
    let whole = newest.map(drop).ok_or_else(|| complaints.join("; "));
    pages.and(seen).and(whole)
}

fn resume(run: &Path) -> Result<(), String> {
    let mut experiment = Experiment::load(Some(&run.join("config.yaml")), &[]).map_err(said)?;
    experiment.at(run);
    train(&experiment, &Session { resume: true, ..Session::default() }).map(drop).map_err(said)
}

/// Does what the file says.
fn trial(file: &Path) -> Result<(), String> {
    match std::fs::read_to_string(file).map_err(said)?.trim() {
        "refuse" => return Err("refused".into()),
        "panic" => panic!("a panic on trial"),
        "abort" => std::process::abort(),
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "allocate" => drop(std::hint::black_box(vec![1_u8; 16 << 30])),
        "overflow" => _ = deeper(0),
        _ => {}
    }
    Ok(())
}

/// Never ends, and takes more of the stack all the time.
#[allow(unconditional_recursion)]
fn deeper(depth: u64) -> u64 {
    deeper(std::hint::black_box(depth + 1)) + depth
}
