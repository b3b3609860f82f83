//! Arguments of `undertone transcribe`.

use super::decoding::Decoding;
use super::recordings::Recording;
use crate::commands::choices::one_of;
use crate::failure::Failure;
use clap::builder::RangedU64ValueParser;
use std::path::{Path, PathBuf};
use undertone::ops::Compute;
use undertone::store::write_atomically;
use undertone::transcribe::write::Format;

#[derive(clap::Args)]
pub struct Args {
    /// Model: whisper-nano-cw-wide or whisper-nano-cw, which are bundled and read Morse code; the directory of a run or of one of its stages,
    /// for its best model; a folder in the Hugging Face layout, or of an adapter that PEFT saved; a file of whisper.cpp or
    /// openai-whisper; a folder of CTranslate2; or a name on the hub
    #[arg(long, default_value = "whisper-nano-cw-wide")]
    pub model: PathBuf,
    /// Language code for multilingual models, or `auto` to detect it; the model's own language if not given, and detected
    /// if it has none
    #[arg(long)]
    pub language: Option<String>,
    /// transcribe or translate, for multilingual models; for a run with tasks, the task whose adapter to use
    #[arg(long)]
    pub task: Option<String>,
    /// Device: cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Precision of products: f32, tf32, bf16 or f16; `auto` is the one that the device is fastest with. bf16 takes a
    /// quarter to a third less time on AMD's CPUs since Zen 4, and may change a word
    #[arg(long, default_value = "f32", value_parser = one_of(PRECISIONS))]
    pub precision: Compute,
    /// Output format: `txt`, subtitles as `srt` or `vtt`, a table as `tsv`, `json` as openai-whisper writes it, or `jsonl`
    /// with one such object per line
    #[arg(long, default_value = "txt", value_parser = one_of(FORMATS))]
    pub format: Format,
    /// Write a file for each recording into this folder, instead of everything on standard output
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Times of words; subtitles have them unless the model reads no speech
    #[arg(long)]
    pub words: bool,
    /// With `txt`: a line for each segment, with its start and end in seconds
    #[arg(long)]
    pub timestamps: bool,
    /// Maximum number of characters of a subtitle's line; 42 if not given
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub line_length: Option<usize>,
    /// Maximum number of lines of a subtitle; 2 if not given
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub lines: Option<usize>,
    /// Print `_` for each character whose probability is below this, from 0 to 1
    #[arg(long, value_name = "PROBABILITY", default_value = "0", value_parser = probability)]
    pub least_confidence: f32,
    /// Sampling rate, if standard input is raw samples: 16 bits, little-endian, mono
    #[arg(long, value_name = "HZ")]
    pub rate: Option<u32>,
    /// Stations of a band, each read by itself: a line with times, pitch, speed and text for each, or an object with `--format
    /// json`. For models of Morse code
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub decoding: Decoding,
    /// Audio files, or folders of them: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A and the audio of MP4, MOV, MKV and WebM videos. `-` is
    /// standard input: WAV and, with --rate, raw samples are transcribed while they arrive, the other formats at their end
    #[arg(required = true)]
    pub audio: Vec<PathBuf>,
}

/// Formats by their names.
const FORMATS: [(&str, Format); 6] = [
    ("txt", Format::Text),
    ("srt", Format::Srt),
    ("vtt", Format::Vtt),
    ("tsv", Format::Tsv),
    ("json", Format::Json),
    ("jsonl", Format::Jsonl),
];

/// Precisions by their names.
const PRECISIONS: [(&str, Compute); 5] = [
    ("auto", Compute::Auto),
    ("f32", Compute::F32),
    ("tf32", Compute::Tf32),
    ("bf16", Compute::Bf16),
    ("f16", Compute::F16),
];

/// Name of the reader of Morse.
pub const MORSE: &str = "cw";

impl Args {
    /// Writes the file of a recording into the output folder.
    pub fn write_file(&self, folder: &Path, recording: &Recording, content: &str) -> Result<(), Failure> {
        let mut file = folder.join(&recording.name).into_os_string();
        file.push(".");
        file.push(self.format.name());
        let file = PathBuf::from(file);
        let parent = file.parent().unwrap_or(folder);
        let failed = |e: &dyn std::fmt::Display| Failure::Machine(format!("cannot write `{}`: {e}", file.display()));
        std::fs::create_dir_all(parent).map_err(|e| failed(&e))?;
        write_atomically(&file, content.as_bytes()).map_err(|e| failed(&e))
    }
}

fn probability(text: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "give a number from 0 (all is written) to 1".into())
}
