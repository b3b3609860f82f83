//! `undertone transcribe`: audio to text, subtitles and tables.

mod arguments;
mod bar;
mod decoding;
mod keying;
mod live;
mod recordings;
mod stations;

use crate::failure::Failure;
use crate::{note, output, say};
pub use arguments::Args;
use arguments::MORSE;
use bar::{AudioBar, times_as_fast};
use burn::tensor::Device;
use recordings::{Recording, cut_off, outcome, recordings};
use std::path::Path;
use std::time::Instant;
use undertone::data::audio::{self, Stored};
use undertone::ops::{Compute, DeviceSpec, autocast};
use undertone::phases::run::{has_tasks, load_whisper};
use undertone::transcribe::write::{Format, Layout};
use undertone::transcribe::{Segment, TranscribeError, Transcriber, Transcript, Update};

/// Name of standard input among the files.
const LIVE: &str = "-";

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
    if args.words && !args.format.has_words() && !args.decoding.is_sequential() {
        return Err(Failure::BadInput(
            "--words is for formats with the times of words: give `--format json`, `jsonl`, `srt` or `vtt`".into(),
        ));
    }
    args.decoding.validate(live)?;
    if args.all {
        stations::validate(args, live)?;
    }
    if (args.line_length.is_some() || args.lines.is_some()) && !args.format.is_subtitles() {
        return Err(Failure::BadInput(
            "--line-length and --lines are for subtitles: give `--format srt` or `vtt`".into(),
        ));
    }
    if args.timestamps && args.format != Format::Text {
        return Err(Failure::BadInput("--timestamps is for the format `txt`: the others have times anyway".into()));
    }
    if let Some(folder) = args.output_dir.as_deref().filter(|folder| folder.exists() && !folder.is_dir()) {
        let text = format!("`--output-dir {}` is not a folder: name one for the texts", folder.display());
        return Err(Failure::BadInput(text));
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
    if let Some(reader) = transcriber.reader() {
        args.decoding.validate_for_reader(reader.name())?;
    }
    let precision = args.precision.on(&device);
    if args.precision != Compute::Auto && precision != args.precision {
        tracing::warn!("this device has no {}: products are computed in {precision}", args.precision);
    }
    autocast(precision, || match live {
        true => live::transcribe(&transcriber, args.rate, args.least_confidence),
        false if args.all => stations::transcribe(args, &found, &transcriber),
        false => Job::new(args, &found, &transcriber).run(),
    })
}

/// Loads the model, with a run's adapter merged into its weights.
fn load(args: &Args, device: &Device) -> Result<Transcriber, Failure> {
    let task = args.task.as_deref();
    let (of_run, of_model) = if has_tasks(&args.model) { (task, None) } else { (None, task) };
    let whisper = load_whisper(&args.model, of_run, device).map_err(Failure::of_run)?;
    let ignored = whisper.generation.ignored();
    if !ignored.is_empty() {
        tracing::warn!("the model's generation_config.json sets {}, which has no effect here", ignored.join(", "));
    }
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
        outcome(self.failures, self.recordings.len())
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
            Update::Done { recording, transcript, error } => {
                self.bar.done(transcript.seconds());
                // What could be read of a damaged recording is written, too.
                if error.is_none() || !transcript.segments.is_empty() {
                    self.write(recording, &transcript)?;
                    self.seconds += transcript.seconds();
                    self.report(recording, &transcript);
                }
                if let Some(error) = error {
                    let seconds = if transcript.segments.is_empty() { 0.0 } else { transcript.seconds() };
                    self.fail(cut_off(&error, seconds));
                }
                Ok(())
            }
        }
    }

    /// Notes why a recording was not transcribed, or not to its end.
    fn fail(&mut self, error: String) {
        if self.recordings.len() > 1 {
            self.bar.hidden(|| note!("error: {error}"));
        }
        self.failures.push(error);
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
        self.args.write_file(folder, &self.recordings[recording], &content)
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
        if self.transcriber.reader().is_some_and(|reader| reader.name() == MORSE) {
            let (audio, _) = Stored::file(self.path(recording)).readable();
            let keying = keying::keying(&audio);
            // Several recordings are read at a time.
            let speed = if self.recordings.len() == 1 { format!("; {}", self.speed()) } else { String::new() };
            self.bar.hidden(|| tracing::info!("{path}: {keying}{speed}"));
            if transcript.text(0.0).trim().is_empty() {
                let text = "nothing was read: this model reads Morse code; for speech name another, such as `--model openai/whisper-tiny`";
                self.bar.hidden(|| tracing::warn!("{path}: {text}"));
            }
        }
    }

    /// Returns how fast all recordings so far were read.
    fn speed(&self) -> String {
        let (seconds, elapsed) = (self.seconds, self.since.elapsed().as_secs_f64());
        format!("{seconds:.1} s read in {elapsed:.2} s, {}", times_as_fast(seconds, elapsed))
    }
}
