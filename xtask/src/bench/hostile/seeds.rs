//! Good inputs of every kind: the repository's fixtures, and what this program makes itself.

use super::hub;
use super::kind::Kind;
use crate::process::{output, this_program};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};
use undertone::cw::morse;
use undertone::data::audio::write_wav;
use undertone::exchange::ggml::{self, GgmlType};
use undertone::exchange::openai;
use undertone::model::whisper::{GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer, bundled};
use undertone::ops::DeviceSpec;
use undertone::phases::Experiment;
use undertone::store::Dtype;
use undertone_cli::Failure;

/// Writes the good inputs of a kind, a folder for each, below `dir`.
pub fn write(kind: Kind, dir: &Path) -> Result<(), Failure> {
    let seeds = Folders(dir);
    match kind {
        Kind::Yaml => configurations(&seeds),
        Kind::Wav => {
            seeds.fixtures(&["data/tests/fixtures/tone.wav", "data/tests/fixtures/mel.wav"])?;
            WAVS.into_iter().try_for_each(|(name, format)| seeds.write(name, "clip.wav", &wav(format)))
        }
        Kind::Flac => seeds.fixtures(&["data/tests/fixtures/tone.flac", "data/src/clips/fixtures/long.flac"]),
        Kind::Mp3 => seeds.fixtures(&["data/tests/fixtures/tone.mp3", "data/src/clips/fixtures/long.mp3"]),
        Kind::Ogg => seeds.fixtures(&["data/tests/fixtures/tone.ogg", "data/src/clips/fixtures/long.ogg"]),
        Kind::Opus => ["tone.opus", "tone_stereo.opus", "tone_speech.opus", "tone.webm", "tone_16k.webm", "tone.mkv"]
            .iter()
            .try_for_each(|name| seeds.copy(name, &format!("crates/data/tests/fixtures/{name}"))),
        Kind::Mp4 => ["tone.m4a", "tone_alac.m4a", "tone.mp4", "tone_fragments.mp4"]
            .iter()
            .try_for_each(|name| seeds.copy(name, &format!("crates/data/tests/fixtures/{name}"))),
        Kind::Stream => {
            let mut plain = WAVS.into_iter().filter(|(name, _)| *name != "adpcm");
            plain.try_for_each(|(name, format)| seeds.write(name, "clip.wav", &wav(format)))?;
            seeds.write("alone", "clip.raw", &wav(WAVS[0].1)[44..])?;
            ["flac", "mp3", "ogg"]
                .iter()
                .try_for_each(|ending| seeds.copy(ending, &format!("crates/data/tests/fixtures/tone.{ending}")))
        }
        Kind::List => LISTS.into_iter().try_for_each(|(folder, name, text)| {
            seeds.write(folder, name, text.as_bytes())?;
            ["tone.wav", "tone.flac", "tone.mp3"]
                .iter()
                .try_for_each(|name| seeds.copy(folder, &format!("crates/data/tests/fixtures/{name}")))
        }),
        Kind::Records => {
            RECORDS.into_iter().try_for_each(|(folder, name, text)| seeds.write(folder, name, text.as_bytes()))
        }
        Kind::Tar => seeds.write("tar", "clips.tar", &tar()?),
        Kind::Parquet => {
            seeds.fixtures(&["data/src/clips/fixtures/speech.parquet", "data/src/records/fixtures/squad.parquet"])
        }
        Kind::Safetensors => {
            ["lora/bert/adapter_model", "lora/whisper/adapter_model", "roberta/model"].iter().try_for_each(|name| {
                seeds.copy(&name.replace('/', "-"), &format!("tests/fixtures/text/{name}.safetensors"))
            })
        }
        Kind::Tokenizer => {
            seeds.copy("bert", "tests/fixtures/text/bert/tokenizer.json")?;
            seeds.copy("roberta", "tests/fixtures/text/roberta/tokenizer.json")?;
            let nano = bundled("whisper-nano-cw").and_then(|mut files| files.remove("tokenizer.json"));
            seeds.write("nano", "tokenizer.json", &nano.unwrap_or_default())
        }
        Kind::Whisper => whispers(&seeds),
        Kind::Foreign => foreign(&seeds),
        Kind::Text => {
            ["bert", "roberta"].iter().try_for_each(|name| seeds.text_model(name))?;
            seeds.text_model_in_parts("bert-in-parts", "bert")?;
            seeds.text_model_in_parts("roberta-in-parts", "roberta")
        }
        Kind::Tasks => {
            seeds.train("two", TASKS)?;
            let clip: Vec<f32> = (0..8000).map(|t| (t as f32 * 0.25).sin() * 0.5).collect();
            write_wav(&dir.join("two/clip.wav"), &clip).map_err(failed)
        }
        Kind::Run | Kind::Resume => seeds.train("tiny", TINY),
        Kind::Hub => {
            let sha = "0123456789abcdef0123456789abcdef01234567";
            let files = ["config.json", "model.safetensors", "default/train/0000.parquet"];
            let siblings: Vec<Value> = files.iter().map(|name| json!({ "rfilename": name })).collect();
            seeds.answer("hub", hub::LISTING, &json!({"sha": sha, "siblings": siblings}).to_string())?;
            seeds.answer("hub", hub::FILE, "{}")
        }
        Kind::Trial => TRIALS.iter().try_for_each(|what| seeds.write(what, "what.txt", what.as_bytes())),
    }
}

/// Where seeds are written, a folder for each.
struct Folders<'a>(&'a Path);

impl Folders<'_> {
    fn write(&self, folder: &str, file: &str, bytes: &[u8]) -> Result<(), Failure> {
        let folder = self.0.join(folder);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(folder.join(file), bytes).map_err(failed)
    }

    /// An answer of HTTP.
    fn answer(&self, folder: &str, file: &str, body: &str) -> Result<(), Failure> {
        let head = format!("ETag: \"0123\"\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
        self.write(folder, file, format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}").as_bytes())
    }

    /// A file of the repository.
    fn copy(&self, folder: &str, file: &str) -> Result<(), Failure> {
        let from = root().join(file);
        let unread =
            |e| Failure::Machine(format!("cannot read `{}`, which comes with the repository: {e}", from.display()));
        let bytes = std::fs::read(&from).map_err(unread)?;
        self.write(folder, &from.file_name().unwrap_or_default().to_string_lossy(), &bytes)
    }

    /// Files of the crates, each in a folder of its name.
    fn fixtures(&self, files: &[&str]) -> Result<(), Failure> {
        files.iter().try_for_each(|file| {
            let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
            self.copy(&name, &format!("crates/{file}"))
        })
    }

    fn text_model(&self, name: &str) -> Result<(), Failure> {
        self.text_model_without(name, name, &[])
    }

    /// A text model whose tokenizer is in the files that older programs write.
    fn text_model_in_parts(&self, folder: &str, name: &str) -> Result<(), Failure> {
        self.text_model_without(folder, name, &["tokenizer.json"])?;
        let whole =
            std::fs::read(root().join("tests/fixtures/text").join(name).join("tokenizer.json")).map_err(failed)?;
        let model = &serde_json::from_slice::<Value>(&whole).map_err(failed)?["model"];
        let Some(merges) = model["merges"].as_array() else {
            let vocab = model["vocab"].as_object().into_iter().flatten();
            let by_id: BTreeMap<u64, &String> = vocab.filter_map(|(token, id)| Some((id.as_u64()?, token))).collect();
            let lines: Vec<&str> = by_id.into_values().map(String::as_str).collect();
            return self.write(folder, "vocab.txt", lines.join("\n").as_bytes());
        };
        let merge = |pair: &Value| match pair {
            Value::String(pair) => pair.clone(),
            pair => format!("{} {}", pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default()),
        };
        self.write(folder, "vocab.json", model["vocab"].to_string().as_bytes())?;
        self.write(folder, "merges.txt", merges.iter().map(merge).collect::<Vec<_>>().join("\n").as_bytes())
    }

    fn text_model_without(&self, folder: &str, name: &str, without: &[&str]) -> Result<(), Failure> {
        let from = root().join("tests/fixtures/text").join(name);
        for entry in std::fs::read_dir(&from).map_err(failed)? {
            let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if !["io.safetensors", "texts.json"].contains(&file.as_str()) && !without.contains(&file.as_str()) {
                self.copy(folder, &format!("tests/fixtures/text/{name}/{file}"))?;
            }
        }
        Ok(())
    }

    /// Trains what `yaml` says, in a process of its own, and leaves nothing in its records that is another each time.
    fn train(&self, folder: &str, yaml: &str) -> Result<(), Failure> {
        self.write(folder, "config.yaml", yaml.as_bytes())?;
        let folder = self.0.join(folder);
        output(this_program()?.args(["train", "--config", "config.yaml"]).current_dir(&folder))?;
        settle(&folder.join("runs"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn failed(error: impl Display) -> Failure {
    Failure::Machine(format!("cannot make good inputs: {error}"))
}

/// Replaces what depends on the moment in records: times, rates and amounts of memory. What says whose machine it was made
/// on goes.
fn settle(dir: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.as_str() {
            _ if path.is_dir() => settle(&path)?,
            "environment.json" | "report.html" => std::fs::remove_file(&path).map_err(failed)?,
            "summary.json" | "state.json" | "performance.jsonl" => {
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                let state = name == "state.json";
                let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
                let lines: Result<String, _> =
                    values.map(|value| value.map(|value| format!("{}\n", settled(value, state)))).collect();
                let lines = lines.map_err(failed)?;
                std::fs::write(&path, &lines).map_err(failed)?;
                super::repair::checkpoint(&path, lines.as_bytes()).map_err(failed)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Numbers with a fraction become one half, and large ones a million, but for those in the state of training, which are
/// checksums and seeds.
fn settled(value: Value, state: bool) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => json!(0.5),
        Value::Number(number) if !state && number.as_u64().is_some_and(|number| number > 100_000) => json!(1_000_000),
        Value::Array(values) => values.into_iter().map(|value| settled(value, state)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, settled(value, state))).collect())
        }
        other => other,
    }
}

fn configurations(seeds: &Folders) -> Result<(), Failure> {
    for entry in std::fs::read_dir(root().join("configs")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        seeds.copy(name.trim_end_matches(".yaml"), &format!("configs/{name}"))?;
    }
    seeds.write("default", "config.yaml", Experiment::default().to_yaml().as_bytes())?;
    [("tiny", TINY), ("tasks", TASKS), ("recorded", RECORDED)]
        .into_iter()
        .try_for_each(|(name, yaml)| seeds.write(name, "config.yaml", yaml.as_bytes()))
}

/// A Whisper of width 16, its weights in one file and in a shard with an index.
fn whispers(seeds: &Folders) -> Result<(), Failure> {
    let config =
        WhisperConfig { max_source_positions: 100, max_target_positions: 56, ..WhisperConfig::new(16, 32, 2, [1, 1]) };
    let characters: String = morse::alphabet().collect();
    let tokenizer = WhisperTokenizer::of_characters(&characters, &["en"]).map_err(failed)?;
    let device = DeviceSpec::Cpu.resolve().map_err(failed)?;
    undertone::ops::seed(1);
    let whisper = PretrainedWhisper::init(config, tokenizer, GenerationConfig::new(true), &device).map_err(failed)?;
    let (whole, sharded) = (seeds.0.join("whole"), seeds.0.join("sharded"));
    std::fs::create_dir_all(seeds.0).map_err(failed)?;
    whisper.save(&whole, Dtype::F32).map_err(failed)?;
    whisper.save(&sharded, Dtype::F16).map_err(failed)?;
    let shard = sharded.join("model-00001-of-00001.safetensors");
    std::fs::rename(sharded.join("model.safetensors"), &shard).map_err(failed)?;
    let names = undertone::store::TensorFile::open(&shard).map_err(failed)?.names();
    let map: serde_json::Map<String, Value> =
        names.into_iter().map(|name| (name, json!("model-00001-of-00001.safetensors"))).collect();
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    seeds.write("sharded", "model.safetensors.index.json", format!("{index:#}").as_bytes())
}

/// Small Whispers in the formats of other programs.
fn foreign(seeds: &Folders) -> Result<(), Failure> {
    seeds.write("openai", "tiny.pt", &unpacked("openai.pt.gz")?)?;
    let device = DeviceSpec::Cpu.resolve().map_err(failed)?;
    let checkpoint = seeds.0.join("openai/tiny.pt");
    let mut whisper = openai::read(&checkpoint, &device).map_err(failed)?;
    for packed in ["float16", "int8"] {
        seeds.write(packed, "model.bin", &unpacked(&format!("{packed}.bin.gz"))?)?;
        seeds.write(packed, "tokenizer.json", whisper.tokenizer.to_bytes())?;
    }
    // The shortest window that whisper.cpp holds has 1500 positions.
    let config = WhisperConfig {
        max_source_positions: 1500,
        d_model: 32,
        encoder_ffn_dim: 128,
        decoder_ffn_dim: 128,
        ..whisper.config
    };
    whisper = PretrainedWhisper::init(config, whisper.tokenizer, whisper.generation, &device).map_err(failed)?;
    [("f16", GgmlType::F16), ("q5_0", GgmlType::Q5_0)].into_iter().try_for_each(|(name, dtype)| {
        std::fs::create_dir_all(seeds.0.join(name)).map_err(failed)?;
        ggml::write(&seeds.0.join(name).join("tiny.bin"), &whisper, dtype).map_err(failed)
    })
}

/// A fixture of the crate `exchange`, which are packed.
fn unpacked(name: &str) -> Result<Vec<u8>, Failure> {
    let file = std::fs::File::open(root().join("crates/exchange/src/fixtures").join(name)).map_err(failed)?;
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Code of the format, bits and channels of a WAV, and its sampling rate.
type WavFormat = (u16, u16, u16, u32);

const WAVS: [(&str, WavFormat); 5] = [
    ("bits-8", (1, 8, 1, 8000)),
    ("bits-24", (1, 24, 2, 44_100)),
    ("bits-32", (1, 32, 1, 48_000)),
    ("float", (3, 32, 2, 16_000)),
    ("adpcm", (0x11, 4, 1, 16_000)),
];

/// A WAV of silence and of what counts up.
fn wav((format, bits, channels, rate): WavFormat) -> Vec<u8> {
    let adpcm = format == 0x11;
    let align = if adpcm { 256 } else { bits / 8 * channels };
    let data: Vec<u8> = (0..u32::from(align) * if adpcm { 8 } else { 2000 })
        .map(|i| if format == 3 || adpcm || i % 2 == 0 { 0 } else { (i / 7) as u8 })
        .collect();
    let mut chunk = Vec::new();
    let put = |bytes: &mut Vec<u8>, numbers: &[u16]| numbers.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    put(&mut chunk, &[format, channels]);
    chunk.extend(rate.to_le_bytes());
    chunk.extend((rate * u32::from(align)).to_le_bytes());
    put(&mut chunk, &[align, bits]);
    if adpcm {
        put(&mut chunk, &[2, 505]);
    }
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((4 + 8 + chunk.len() as u32 + 8 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend((chunk.len() as u32).to_le_bytes());
    bytes.extend(chunk);
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

/// Three recordings as WebDataset has them.
fn tar() -> Result<Vec<u8>, Failure> {
    let mut archive = tar::Builder::new(Vec::new());
    for (key, end) in [("a", "wav"), ("b", "flac"), ("c", "mp3")] {
        let audio =
            std::fs::read(root().join("crates/data/tests/fixtures/tone").with_extension(end)).map_err(failed)?;
        let text = json!({"text": format!("clip {key}"), "language": "en"}).to_string().into_bytes();
        for (end, bytes) in [(end, audio), ("json", text)] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, format!("part/{key}.{end}"), bytes.as_slice()).map_err(failed)?;
        }
    }
    archive.into_inner().map_err(failed)
}

const LISTS: [(&str, &str, &str); 4] = [
    (
        "csv",
        "list.csv",
        "audio,text,language,start,end\ntone.wav,\"one, two\",en,0.1,0.5\ntone.flac,three,en,,\ntone.mp3,four,en,0,0.25\n",
    ),
    ("tsv", "list.tsv", "path\tsentence\tspeaker\ntone.wav\tone two\tx\ntone.flac\tthree\ty\n"),
    (
        "jsonl",
        "list.jsonl",
        "{\"audio\": \"tone.wav\", \"text\": \"one\", \"start\": 0.1, \"end\": 0.4}\n{\"audio\": \"tone.flac\", \"segments\": \
         [{\"start\": 0.0, \"end\": 0.2, \"text\": \"a\"}, {\"start\": 0.2, \"end\": 0.5, \"text\": \"b\"}]}\n",
    ),
    (
        "json",
        "list.json",
        "[{\"audio\": \"tone.wav\", \"text\": \"one\", \"duration\": 0.5},\n {\"audio\": \"tone.mp3\", \"text\": \"two\"}]\n",
    ),
];

const RECORDS: [(&str, &str, &str); 5] = [
    ("csv", "list.csv", "text,label\n\"good, it was\",good\nbad,bad\nso so,0\n"),
    ("tsv", "list.tsv", "source\ttarget\none\teins\ntwo\tzwei\n"),
    ("jsonl", "list.jsonl", "{\"text\": \"good\", \"label\": 1}\n\n{\"text\": \"bad\", \"label\": 0}\n"),
    ("conll", "list.conll", "-DOCSTART- O\n\nAnna\tB-PER\nLee\tI-PER\nsings\tO\n\nin\tO\nUlm\tB-LOC\n"),
    (
        "spans",
        "list.jsonl",
        "{\"id\": \"1\", \"question\": \"When?\", \"context\": \"It was built in 1890.\", \"answers\": {\"text\": [\"1890\"], \
         \"answer_start\": [16]}}\n",
    ),
];

const TRIALS: [&str; 7] = ["abort", "accept", "allocate", "hang", "overflow", "panic", "refuse"];

/// A run of a few steps on a model of width 16.
const TINY: &str = include_str!("tiny.yaml");

/// A run with two tasks.
const TASKS: &str = include_str!("tasks.yaml");

/// Everything that is for recordings.
const RECORDED: &str = include_str!("recorded.yaml");
