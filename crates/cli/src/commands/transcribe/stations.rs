//! `--all`: every station of a band, read by itself.

use super::arguments::{Args, MORSE};
use super::recordings::{Recording, cut_off, outcome};
use crate::failure::Failure;
use crate::{note, output};
use serde_json::{Value, json};
use std::ops::Range;
use undertone::cw::{Station, stations};
use undertone::data::audio::{self, Stored};
use undertone::metrics::cer;
use undertone::transcribe::write::{Format, Layout, rounded};
use undertone::transcribe::{Segment, Transcriber, Transcript};

/// Least number of characters of a station. Noise is sometimes taken for a letter or two.
const FEWEST: usize = 4;
/// Least mean confidence of the characters of a transmission. Below it a stronger station beside it disturbs too much.
const LEAST_OF_OVER: f32 = 0.7;
/// Least mean confidence of the characters of a station. What is written of the clicks of a strong station is below it.
const LEAST_OF_STATION: f32 = 0.85;
/// Decibels by which a station must be weaker than another one with the same text to count as its clicks or image.
const MUCH_WEAKER_DB: f64 = 20.0;
/// Decibels by which a station is weaker than another one that sends at the same time from which on it is mostly what is left of the other's
/// coding, as MP3 at 16 kbit/s; least confidence of a station there, and decibels from which on there is none.
const FAR_WEAKER_DB: f64 = 45.0;
const LEAST_OF_FAR_WEAKER: f32 = 0.97;
const OUT_OF_REACH_DB: f64 = 60.0;
/// Character error rate below which two texts are the same.
const SAME_TEXT: f64 = 0.5;

/// Refuses options that have no effect beside `--all`.
pub fn validate(args: &Args, live: bool) -> Result<(), Failure> {
    let refused = |text: &str| Err(Failure::BadInput(text.into()));
    if live {
        return refused("--all is for recordings: give a file instead of `-`");
    }
    if args.timestamps || args.words {
        return refused("--all prints the times of each station: leave out --timestamps and --words");
    }
    if !matches!(args.format, Format::Text | Format::Json | Format::Jsonl) {
        return refused("--all writes a line for each station: give `--format txt`, `json` or `jsonl`");
    }
    Ok(())
}

/// Transcribes every station of the recordings. What cannot be read is reported at once, and the others go on.
pub fn transcribe(args: &Args, recordings: &[Recording], transcriber: &Transcriber) -> Result<(), Failure> {
    if transcriber.reader().is_none_or(|reader| reader.name() != MORSE) {
        return Err(Failure::BadInput(
            "--all is for models of Morse code: leave it out, or leave out --model for the bundled one".into(),
        ));
    }
    let mut failures = Vec::new();
    for recording in recordings {
        let (audio, error) = Stored::file(&recording.path).readable();
        // What could be read of a damaged recording is written, too.
        if error.is_none() || !audio.is_empty() {
            write(args, recording, recordings.len() > 1, audio.len(), &read(transcriber, &audio))?;
        }
        if let Some(error) = error {
            let error = cut_off(&error, audio.len() as f64 / f64::from(audio::SAMPLE_RATE));
            if recordings.len() > 1 {
                note!("error: {error}");
            }
            failures.push(error);
        }
    }
    outcome(failures, recordings.len())
}

/// A station and its text.
struct Read {
    station: Station,
    transcript: Transcript,
}

impl Read {
    /// Whether it is Morse code at all: noise has a rhythm at times.
    fn is_readable(&self) -> bool {
        let characters = self.transcript.text(0.0).chars().filter(|character| *character != ' ').count();
        characters >= FEWEST && mean_confidence(&self.transcript.segments) >= LEAST_OF_STATION
    }

    /// Whether most of it is what a much stronger station sends at the same time.
    fn repeats(&self, stronger: &Self) -> bool {
        let plain = |text: String| text.replace(' ', "");
        let segments = || self.transcript.segments.iter().map(|segment| (segment, plain(segment.text(0.0))));
        let is_repeated = |(segment, text): &(&Segment, String)| {
            let others = stronger.transcript.segments.iter();
            let at_once = others
                .filter(|other| other.samples.start < segment.samples.end && segment.samples.start < other.samples.end);
            let whole: String = at_once.map(|other| plain(other.text(0.0))).collect();
            whole.contains(text.as_str()) || cer(&whole, text).rate().is_some_and(|rate| rate < SAME_TEXT)
        };
        let length = |(_, text): (&Segment, String)| text.chars().count();
        let all: usize = segments().map(length).sum();
        stronger.station.level_dbfs > self.station.level_dbfs + MUCH_WEAKER_DB
            && 2 * segments().filter(is_repeated).map(length).sum::<usize>() > all
    }

    /// Whether it is most likely what is left of the coding of a far stronger station that sends at the same time.
    fn is_left_of(&self, stronger: &Self) -> bool {
        let below = stronger.station.level_dbfs - self.station.level_dbfs;
        let at_once = |own: &Range<usize>, other: &Range<usize>| own.start < other.end && other.start < own.end;
        let meets = |own: &Range<usize>| stronger.station.overs.iter().any(|other| at_once(own, other));
        let is_doubtful = mean_confidence(&self.transcript.segments) < LEAST_OF_FAR_WEAKER || below > OUT_OF_REACH_DB;
        below > FAR_WEAKER_DB && is_doubtful && self.station.overs.iter().any(meets)
    }

    fn seconds(&self) -> [f64; 2] {
        let samples = self.station.samples();
        [samples.start, samples.end].map(|sample| sample as f64 / f64::from(audio::SAMPLE_RATE))
    }

    fn line(&self, least_confidence: f32) -> String {
        let ([start, end], tone) = (self.seconds(), &self.station.tone);
        let text = self.transcript.text(least_confidence);
        format!("{start:.2}\t{end:.2}\t{:.0} Hz\t{:.0} wpm\t{text}", tone.pitch_hz, tone.wpm)
    }

    fn json(&self, layout: &Layout) -> Value {
        let ([start, end], tone) = (self.seconds(), &self.station.tone);
        let tenths = |number: f64| (number * 10.0).round() / 10.0;
        let transcript = self.transcript.to_json(layout);
        json!({
            "pitch_hz": tenths(tone.pitch_hz),
            "wpm": tenths(tone.wpm),
            // JSON has no infinity, which is the ratio of a station without noise.
            "snr_db": tone.snr_db.is_finite().then(|| tenths(tone.snr_db)),
            "level_dbfs": tenths(self.station.level_dbfs),
            "start": rounded(start),
            "end": rounded(end),
            "text": transcript["text"],
            "segments": transcript["segments"],
        })
    }
}

/// Returns the stations of a recording that can be read, by their pitch.
fn read(transcriber: &Transcriber, audio: &[f32]) -> Vec<Read> {
    let mut all: Vec<Read> = Vec::new();
    for mut station in stations(audio) {
        let mut transcript = Transcript { samples: audio.len(), ..Transcript::default() };
        for over in std::mem::take(&mut station.overs) {
            let mut found = transcriber.transcript(&station.alone(audio, &over)).segments;
            if mean_confidence(&found) < LEAST_OF_OVER {
                continue;
            }
            for segment in &mut found {
                segment.samples = over.start + segment.samples.start..over.start + segment.samples.end;
            }
            transcript.segments.extend(found);
            station.overs.push(over);
        }
        let read = Read { station, transcript };
        if read.is_readable() && !all.iter().any(|other| read.repeats(other) || read.is_left_of(other)) {
            all.push(read);
        }
    }
    all.sort_by(|a, b| a.station.tone.pitch_hz.total_cmp(&b.station.tone.pitch_hz));
    all
}

/// Mean confidence of the characters of segments; 0 without any.
fn mean_confidence(segments: &[Segment]) -> f32 {
    let all: Vec<f32> = segments.iter().flat_map(|segment| segment.characters.iter().map(|(_, p)| *p)).collect();
    all.iter().sum::<f32>() / all.len().max(1) as f32
}

/// Writes a recording's stations into its file, or on standard output.
fn write(args: &Args, recording: &Recording, named: bool, samples: usize, stations: &[Read]) -> Result<(), Failure> {
    let path = recording.path.to_string_lossy();
    let layout = Layout { least_confidence: args.least_confidence, characters: true, ..Layout::default() };
    let content = match args.format {
        Format::Text => {
            let name = if named && args.output_dir.is_none() { format!("{path}\t") } else { String::new() };
            stations.iter().map(|read| format!("{name}{}\n", read.line(args.least_confidence))).collect()
        }
        format => {
            let stations: Vec<Value> = stations.iter().map(|read| read.json(&layout)).collect();
            let mut object = json!({"stations": stations, "duration": samples as f64 / f64::from(audio::SAMPLE_RATE)});
            if format == Format::Jsonl {
                object["audio"] = path.as_ref().into();
                format!("{object}\n")
            } else {
                format!("{object:#}\n")
            }
        }
    };
    match &args.output_dir {
        None => output::text(content),
        Some(folder) => args.write_file(folder, recording, &content),
    }
}
