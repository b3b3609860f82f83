//! `undertone transcribe`: audio to text, subtitles and tables.

mod bar;
mod decoding;
mod keying;
mod live;
mod recordings;

use crate::commands::choices::one_of;
use crate::failure::Failure;
use crate::{note, output, say};
use bar::AudioBar;
use burn::tensor::Device;
use decoding::Decoding;
use recordings::{Recording, recordings};
use std::path::{Path, PathBuf};
use std::time::Instant;
use undertone::data::audio::{self, Stored};
use undertone::ops::{Compute, DeviceSpec, autocast};
use undertone::phases::run::{has_tasks, load_whisper};
use undertone::store::write_atomically;
use undertone::transcribe::write::{Format, Layout};
use undertone::transcribe::{Segment, TranscribeError, Transcriber, Transcript, Update};

#[derive(clap::Args)]
pub struct Args {
    /// Model: whisper-nano-cw, which is bundled and reads Morse code; the directory of a run or of one of its stages,
    /// for its best model; a folder in the Hugging Face layout, or of an adapter that PEFT saved; a file of whisper.cpp or
    /// openai-whisper; a folder of CTranslate2; or a name on the hub
    #[arg(long, default_value = "whisper-nano-cw")]
    model: PathBuf,
    /// Language code for multilingual models, or `auto` to detect it; the model's own language if not given, and detected
    /// if it has none
    #[arg(long)]
    language: Option<String>,
    /// transcribe or translate, for multilingual models; for a run with tasks, the task whose adapter to use
    #[arg(long)]
    task: Option<String>,
    /// Device: cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    device: String,
    /// Precision of products: f32, tf32, bf16 or f16; `auto` is the one that the device is fastest with. bf16 takes a
    /// quarter to a third less time on CPUs with AVX512-BF16, and may change a word
    #[arg(long, default_value = "f32", value_parser = one_of(PRECISIONS))]
    precision: Compute,
    /// Output format: `txt`, subtitles as `srt` or `vtt`, a table as `tsv`, `json` as openai-whisper writes it, or `jsonl`
    /// with one such object per line
    #[arg(long, default_value = "txt", value_parser = one_of(FORMATS))]
    format: Format,
    /// Write a file for each recording into this folder, instead of everything on standard output
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Times of words; subtitles have them unless the model reads no speech
    #[arg(long)]
    words: bool,
    /// With `txt`: a line for each segment, with its start and end in seconds
    #[arg(long)]
    timestamps: bool,
    /// Maximum number of characters of a subtitle's line; 42 if not given
    #[arg(long, value_name = "N")]
    line_length: Option<usize>,
    /// Maximum number of lines of a subtitle; 2 if not given
    #[arg(long, value_name = "N")]
    lines: Option<usize>,
    /// Print `_` for each character whose probability is below this, from 0 to 1
    #[arg(long, value_name = "PROBABILITY", default_value = "0", value_parser = probability)]
    least_confidence: f32,
    /// Sampling rate, if standard input is raw samples: 16 bits, little-endian, mono
    #[arg(long, value_name = "HZ")]
    rate: Option<u32>,
    #[command(flatten)]
    decoding: Decoding,
    /// Audio files, or folders of them: WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A and the audio of MP4, MOV, MKV and WebM videos. `-` is
    /// standard input: WAV and, with --rate, raw samples are transcribed while they arrive, the other formats at their end
    #[arg(required = true)]
    audio: Vec<PathBuf>,
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

/// Name of standard input among the files.
const LIVE: &str = "-";
/// Name of the reader of Morse.
const MORSE: &str = "cw";

pub fn run(args: &Args) -> Result<(), Failure> {
    let live = args.audio == [Path::new(LIVE)];
    if live && (args.timestamps || args.words || args.output_dir.is_some() || args.format != Format::Text) {
        return Err(Failure::BadInput(
            "standard input is written as text alone: leave out --timestamps, --words, --format and --output-dir"
                .into(),
        ));
    }
    if args.rate.is_some() && !live {
        return Err(Failure::BadInput("audio files say their rate themselves: leave out --rate, or read `-`".into()));
    }
    args.decoding.validate(live)?;
    if (args.line_length.is_some() || args.lines.is_some()) && !args.format.is_subtitles() {
        return Err(Failure::BadInput(
            "--line-length and --lines are for subtitles: give `--format srt` or `vtt`".into(),
        ));
    }
    if args.timestamps && args.format != Format::Text {
        return Err(Failure::BadInput("--timestamps is for the format `txt`: the others have times anyway".into()));
    }
    let found = if live { Vec::new() } else { recordings(&args.audio, args.output_dir.is_some())? };
    if args.output_dir.is_none() && found.len() > 1 && !matches!(args.format, Format::Text | Format::Jsonl) {
        return Err(Failure::BadInput(format!(
            "`--format {}` is one file for each recording: give --output-dir, or one recording",
            args.format.name()
        )));
    }
    let spec: DeviceSpec = args.device.parse().map_err(Failure::bad_input)?;
    let device = spec.resolve().map_err(Failure::bad_input)?;
    let transcriber = load(args, &device)?;
    let precision = args.precision.on(&device);
    if args.precision != Compute::Auto && precision != args.precision {
        tracing::warn!("this device has no {}: products are computed in {precision}", args.precision);
    }
    autocast(precision, || match live {
        true => live::transcribe(&transcriber, args.rate, args.least_confidence),
        false => Job::new(args, &found, &transcriber).run(),
    })
}

/// Loads the model, with a run's adapter merged into its weights.
fn load(args: &Args, device: &Device) -> Result<Transcriber, Failure> {
    let task = args.task.as_deref();
    let (of_run, of_model) = if has_tasks(&args.model) { (task, None) } else { (None, task) };
    let whisper = load_whisper(&args.model, of_run, device).map_err(Failure::of_run)?;
    let options = |words| args.decoding.options(args.language.as_deref(), of_model, words);
    // Subtitles of speech are divided by the times of words.
    let words = args.words || args.format.is_subtitles();
    match Transcriber::new(whisper.clone(), device, options(words)) {
        Err(TranscribeError::NotSpeech { .. }) if words && !args.words => {
            Transcriber::new(whisper, device, options(false)).map_err(Failure::bad_input)
        }
        transcriber => transcriber.map_err(Failure::bad_input),
    }
}

/// Transcription of the recordings.
struct Job<'a> {
    args: &'a Args,
    recordings: &'a [Recording],
    transcriber: &'a Transcriber,
    layout: Layout,
    bar: AudioBar,
    /// When the first recording was begun.
    since: Instant,
    /// Seconds of audio that were read since.
    seconds: f64,
    /// Errors so far.
    failures: Vec<String>,
}

impl<'a> Job<'a> {
    fn new(args: &'a Args, recordings: &'a [Recording], transcriber: &'a Transcriber) -> Self {
        // A recording whose header gives no length counts nothing.
        let seconds =
            |recording: &Recording| Stored::file(&recording.path).seconds().ok().flatten().unwrap_or_default();
        let usual = Layout::default();
        let layout = Layout {
            line: args.line_length.unwrap_or(usual.line),
            lines: args.lines.unwrap_or(usual.lines),
            least_confidence: args.least_confidence,
            characters: transcriber.reader().is_some(),
            ..usual
        };
        let bar = AudioBar::begin(recordings.iter().map(seconds).sum());
        Self { args, recordings, transcriber, layout, bar, since: Instant::now(), seconds: 0.0, failures: Vec::new() }
    }

    /// Transcribes all recordings. What cannot be read is reported at once, and the others go on.
    fn run(mut self) -> Result<(), Failure> {
        let stored: Vec<Stored> = self.recordings.iter().map(|recording| Stored::file(&recording.path)).collect();
        let transcriber = self.transcriber;
        let result = transcriber.recordings(&stored, |update| self.take(update));
        self.bar.end();
        result?;
        if self.recordings.len() > 1 {
            tracing::info!("{}", self.speed());
        }
        match self.failures.len() {
            0 => Ok(()),
            1 if self.recordings.len() == 1 => Err(Failure::BadInput(self.failures.remove(0))),
            failed => Err(Failure::BadInput(format!(
                "{failed} of {} recordings were not transcribed: see above",
                self.recordings.len()
            ))),
        }
    }

    fn take(&mut self, update: Update) -> Result<(), Failure> {
        match update {
            Update::Segments { recording, segments, reached } => {
                self.bar.reach(reached as f64 / f64::from(audio::SAMPLE_RATE));
                // Segments are printed as they come, because a recording may last hours.
                let comes = self.args.timestamps && self.args.output_dir.is_none();
                let lines = segments.iter().filter(|_| comes).map(|segment| self.timed(recording, segment));
                lines.collect::<Vec<_>>().into_iter().try_for_each(|line| self.bar.hidden(|| say!("{line}")))
            }
            Update::Done { recording, transcript: Ok(transcript) } => {
                self.bar.done(transcript.seconds());
                self.write(recording, &transcript)?;
                self.seconds += transcript.seconds();
                self.report(recording, &transcript);
                Ok(())
            }
            Update::Done { transcript: Err(error), .. } => {
                let error = error.to_string();
                if self.recordings.len() > 1 {
                    self.bar.hidden(|| note!("error: {error}"));
                }
                self.failures.push(error);
                Ok(())
            }
        }
    }

    fn timed(&self, recording: usize, segment: &Segment) -> String {
        let file =
            if self.recordings.len() > 1 { format!("{}\t", self.path(recording).display()) } else { String::new() };
        let text = segment.text(self.args.least_confidence);
        format!("{file}{:.2}\t{:.2}\t{text}", segment.start(), segment.end())
    }

    fn path(&self, recording: usize) -> &Path {
        &self.recordings[recording].path
    }

    /// Writes a recording's transcript into its file, or on standard output.
    fn write(&self, recording: usize, transcript: &Transcript) -> Result<(), Failure> {
        let path = self.path(recording);
        // JSON cannot hold a path that is not Unicode: its invalid bytes become U+FFFD.
        let content = if self.args.timestamps {
            transcript.segments.iter().map(|segment| self.timed(recording, segment) + "\n").collect()
        } else {
            self.args.format.write_named(&path.to_string_lossy(), transcript, &self.layout)
        };
        let Some(folder) = &self.args.output_dir else {
            let several = self.recordings.len() > 1;
            return self.bar.hidden(|| match self.args.format {
                Format::Text if self.args.timestamps => Ok(()),
                Format::Text if several => output::text(format_args!("{}\t{content}", path.display())),
                _ => output::text(content),
            });
        };
        let mut file = folder.join(&self.recordings[recording].name).into_os_string();
        file.push(".");
        file.push(self.args.format.name());
        let file = PathBuf::from(file);
        let parent = file.parent().unwrap_or(folder);
        let failed = |e: &dyn std::fmt::Display| Failure::Machine(format!("cannot write `{}`: {e}", file.display()));
        std::fs::create_dir_all(parent).map_err(|e| failed(&e))?;
        write_atomically(&file, content.as_bytes()).map_err(|e| failed(&e))
    }

    /// Logs what was found out beside the text.
    fn report(&self, recording: usize, transcript: &Transcript) {
        let path = self.path(recording).display();
        if let Some(window) = self.args.decoding.window_s().filter(|window| transcript.seconds() > *window) {
            self.bar.hidden(|| {
                tracing::warn!("{path}: cut into windows of {window} s; `--window` is for clips that are shorter");
            });
        }
        if let Some(language) = &transcript.language
            && let Some(probability) = language.probability
        {
            self.bar.hidden(|| tracing::info!("{path}: the language is `{}` ({probability:.2})", language.code));
        }
        if self.transcriber.reader().is_some_and(|reader| reader.name() == MORSE)
            && let Ok(audio) = audio::load(self.path(recording))
        {
            let keying = keying::keying(&audio);
            // Several recordings are read at a time.
            let speed = if self.recordings.len() == 1 { format!("; {}", self.speed()) } else { String::new() };
            self.bar.hidden(|| tracing::info!("{path}: {keying}{speed}"));
        }
    }

    /// Returns how fast all recordings so far were read.
    fn speed(&self) -> String {
        let (seconds, elapsed) = (self.seconds, self.since.elapsed().as_secs_f64());
        let times = seconds / elapsed.max(1e-9);
        format!("{seconds:.1} s read in {elapsed:.2} s, {times:.0} times as fast")
    }
}

fn probability(text: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "give a number from 0 (all is written) to 1".into())
}
