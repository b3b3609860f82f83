//! `undertone transcribe`: audio files to text.

use crate::commands::choices::Format;
use crate::failure::Failure;
use crate::{output, say};
use burn::tensor::Device;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use undertone::cw::listen::{KeyedTone, keyed_tone};
use undertone::data::audio::{self, LiveAudio};
use undertone::ops::DeviceSpec;
use undertone::phases::run::{has_tasks, load_whisper};
use undertone::phases::{LiveTranscriber, Passage, Transcriber};

#[derive(clap::Args)]
pub struct Args {
    /// Model: whisper-nano-cw, which is bundled and reads Morse code; the directory of a run or of one of its stages,
    /// for its best model; a folder in the Hugging Face layout, or of an adapter that PEFT saved; a file of whisper.cpp or
    /// openai-whisper; a folder of CTranslate2; or a name on the hub
    #[arg(long, default_value = "whisper-nano-cw")]
    model: PathBuf,
    /// Language code for multilingual models; the model's own default if not given
    #[arg(long)]
    language: Option<String>,
    /// transcribe or translate, for multilingual models; for a run with tasks, the task whose adapter to use
    #[arg(long)]
    task: Option<String>,
    /// Device: cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    device: String,
    /// Output format: `text`, or `json` with one object per line
    #[arg(long, default_value = "text")]
    format: Format,
    /// Print a line for each passage, with its start and end in seconds
    #[arg(long)]
    timestamps: bool,
    /// Print `_` for each character whose probability is below this, from 0 to 1
    #[arg(long, value_name = "PROBABILITY", default_value = "0", value_parser = probability)]
    least_confidence: f32,
    /// Sampling rate, if standard input is raw samples: 16 bits, little-endian, mono
    #[arg(long, value_name = "HZ")]
    rate: Option<u32>,
    /// Audio files: WAV, FLAC, MP3 or Ogg Vorbis. `-` is standard input: WAV and, with --rate, raw samples are
    /// transcribed while they arrive, the other formats at their end
    #[arg(required = true)]
    audio: Vec<PathBuf>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let live = args.audio == [Path::new(LIVE)];
    if live && (args.timestamps || args.format == Format::Json) {
        return Err(Failure::BadInput(
            "standard input is written as text alone: leave out --timestamps and --format".into(),
        ));
    }
    if args.rate.is_some() && !live {
        return Err(Failure::BadInput("audio files say their rate themselves: leave out --rate, or read `-`".into()));
    }
    let files = args.audio.iter().filter(|_| !live);
    if let Some(missing) = files.clone().find(|path| !path.is_file()) {
        return Err(Failure::BadInput(format!("there is no audio file `{}`", missing.display())));
    }
    let spec: DeviceSpec = args.device.parse().map_err(Failure::bad_input)?;
    let device = spec.resolve().map_err(Failure::bad_input)?;
    let transcriber = load(args, &device)?;
    if live {
        return transcribe_live(args, &transcriber);
    }
    files.clone().try_for_each(|path| transcribe(args, &transcriber, path))
}

/// Loads the model, with a run's adapter merged into its weights.
fn load(args: &Args, device: &Device) -> Result<Transcriber, Failure> {
    let task = args.task.as_deref();
    let (of_run, of_model) = if has_tasks(&args.model) { (task, None) } else { (None, task) };
    let whisper = load_whisper(&args.model, of_run, device).map_err(Failure::of_run)?;
    Transcriber::new(whisper, device, args.language.as_deref(), of_model).map_err(Failure::bad_input)
}

/// Name of the reader of Morse.
const MORSE: &str = "cw";

/// Name of standard input among the files.
const LIVE: &str = "-";
/// Number of samples per block of live audio: a quarter of a second.
const BLOCK: usize = 4_000;

fn transcribe_live(args: &Args, transcriber: &Transcriber) -> Result<(), Failure> {
    let mut audio = LiveAudio::new(std::io::stdin().lock(), args.rate).map_err(Failure::bad_input)?;
    let mut live = LiveTranscriber::new(transcriber, args.least_confidence);
    let mut begun = false;
    let mut write = |text: &str| {
        // No space before the first word.
        let text = if begun { text } else { text.trim_start() };
        begun |= !text.is_empty();
        output::text(text)
    };
    loop {
        let block = audio.next(BLOCK).map_err(Failure::bad_input)?;
        if block.is_empty() {
            return write(&live.finish()).and_then(|()| write("\n"));
        }
        write(&live.push(&block))?;
    }
}

fn transcribe(args: &Args, transcriber: &Transcriber, path: &Path) -> Result<(), Failure> {
    let audio = audio::load(path).map_err(Failure::bad_input)?;
    let begun = Instant::now();
    let mut passages = transcriber.passages(&audio);
    if args.timestamps && args.format == Format::Text {
        // Passages are printed as they come, because a recording may last hours.
        passages.by_ref().try_for_each(|passage| say!("{}", timed(args, path, &passage)))?;
    }
    let rest: Vec<Passage> = passages.collect();
    let elapsed = begun.elapsed().as_secs_f64();
    let text = rest.iter().fold(String::new(), |mut text, passage| {
        passage.append_to(&mut text, args.least_confidence);
        text
    });
    match args.format {
        Format::Json => say!("{}", object(args, path, &text, &rest))?,
        Format::Text if args.timestamps => {}
        Format::Text if args.audio.len() > 1 => say!("{}\t{text}", path.display())?,
        Format::Text => say!("{text}")?,
    }
    if transcriber.reader().is_some_and(|reader| reader.name() == MORSE) {
        let seconds = seconds(audio.len());
        let (heard, times) = (heard(&audio), seconds / elapsed.max(1e-9));
        tracing::info!("{}: {heard}; {seconds:.1} s read in {elapsed:.2} s, {times:.0} times as fast", path.display());
    }
    Ok(())
}

/// Describes the keyed tone in the audio.
fn heard(audio: &[f32]) -> String {
    match keyed_tone(audio) {
        Some(KeyedTone { pitch_hz, wpm, snr_db }) if snr_db < CLEAN_DB => {
            format!(
                "a tone of {pitch_hz:.0} Hz keyed at {wpm:.0} words per minute, {snr_db:.0} dB over the noise in 500 Hz"
            )
        }
        Some(KeyedTone { pitch_hz, wpm, .. }) => {
            format!("a tone of {pitch_hz:.0} Hz keyed at {wpm:.0} words per minute, without noise")
        }
        None => "no tone is heard that is keyed".into(),
    }
}

/// Signal-to-noise ratio, in dB, that counts as noiseless: more than the 16 bits of a file hold.
const CLEAN_DB: f64 = 96.0;

fn timed(args: &Args, path: &Path, passage: &Passage) -> String {
    let [start, end] = [passage.samples.start, passage.samples.end].map(seconds);
    let file = if args.audio.len() > 1 { format!("{}\t", path.display()) } else { String::new() };
    format!("{file}{start:.2}\t{end:.2}\t{}", passage.text(args.least_confidence))
}

/// Returns the object that `--format json` writes for a file. JSON cannot hold a path that is not Unicode: its invalid
/// bytes become U+FFFD.
fn object(args: &Args, path: &Path, text: &str, passages: &[Passage]) -> serde_json::Value {
    let mut object = json!({"audio": path.to_string_lossy(), "text": text});
    if args.timestamps {
        let passage = |passage: &Passage| {
            let confidences: Vec<f64> =
                passage.characters.iter().map(|(_, p)| (f64::from(*p) * 1000.0).round() / 1000.0).collect();
            let [start, end] = [passage.samples.start, passage.samples.end].map(seconds);
            json!({"start": start, "end": end, "text": passage.text(args.least_confidence), "confidence": confidences})
        };
        object["passages"] = passages.iter().map(passage).collect();
    }
    object
}

fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(audio::SAMPLE_RATE)
}

fn probability(text: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "give a number from 0 (all is written) to 1".into())
}
