//! Alignment of recordings that are longer than a model's window and whose text has no times: the audio is cut at
//! silences, and the text is divided according to the model's transcript of each piece.

use super::error::{Listed, SpeechError};
use super::pieces::Piece;
use super::record::{Aligned, Part, Record, key};
use crate::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::OnceCell;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::cache::CacheError;
use undertone_data::clips::Clips;
use undertone_data::cut::{divide, pieces as cut_in_silence};
use undertone_data::loader::SampleError;
use undertone_transcribe::Transcriber;

/// Transcribes audio.
pub(super) trait Listener {
    /// Returns the transcript of 16 kHz audio; in a language or for a task that differs from that of all data, if
    /// given.
    fn transcribe(&self, audio: &[f32], language: Option<&str>, task: Option<&str>) -> String;
    /// Returns a key of everything the transcript depends on besides the audio.
    fn fingerprint(&self) -> String;
}

impl Listener for Transcriber {
    fn transcribe(&self, audio: &[f32], language: Option<&str>, task: Option<&str>) -> String {
        self.transcript_in(audio, language, task).text(0.0)
    }

    fn fingerprint(&self) -> String {
        Transcriber::fingerprint(self)
    }
}

/// Aligns the text of long recordings with their audio, and keeps the results on disk.
pub(super) struct Aligner<'a, L> {
    listener: L,
    /// Fingerprint, computed from all weights of the model, and only if there are long recordings.
    fingerprint: OnceCell<String>,
    /// Folder of the results.
    folder: Result<PathBuf, CacheError>,
    /// Stops the alignment once it is set.
    interrupt: &'a Interrupt,
}

/// Maximum word error rate of a piece. Pieces above it are left out: there the text does not belong to the audio, or
/// the model cannot tell.
const MISHEARD: f64 = 0.5;

/// Interval of progress lines if standard error is not a terminal.
const LINES: Duration = Duration::from_secs(60);

/// Reason why a recording was not aligned.
enum Stop {
    Unreadable(SampleError),
    Interrupted,
}

impl<'a, L: Listener> Aligner<'a, L> {
    /// Creates an aligner that transcribes with `listener` and keeps the results in `folder`; without a folder, every
    /// run transcribes anew.
    pub fn new(listener: L, folder: Result<PathBuf, CacheError>, interrupt: &'a Interrupt) -> Self {
        Self { listener, fingerprint: OnceCell::new(), folder, interrupt }
    }

    /// Returns the pieces of the clips in `long`, given with their durations in seconds, that do not fit a window of
    /// `window` samples. Pieces whose transcript differs too much from their text are left out. Clips with stored
    /// results are not decoded. The second list has the errors of unreadable clips if `skip` is set; else the first one
    /// is returned.
    ///
    /// # Errors
    /// If audio cannot be read, or on an interruption; the results until then are stored.
    pub fn align(
        &self,
        clips: &Clips,
        long: &[(usize, f64)],
        window: usize,
        skip: bool,
    ) -> Result<(Vec<Piece>, Vec<SpeechError>), SpeechError> {
        let fingerprint = self.fingerprint.get_or_init(|| self.listener.fingerprint());
        let key_of = |clip: usize| {
            let (recording, clip) = (clips.key(clip), clips.clip(clip));
            let [language, task] = [&clip.language, &clip.task].map(|own| own.as_deref().unwrap_or_default());
            let said = [recording.as_str(), &clip.text, language, task].map(str::as_bytes);
            key(&[&[fingerprint.as_bytes(), &(window as u64).to_le_bytes()], &said[..]].concat())
        };
        let record = self.record();
        let found = |(clip, _): &(usize, f64)| record.as_ref().and_then(|record| record.read(&key_of(*clip)));
        let mut all: Vec<Option<Aligned>> = long.iter().map(found).collect();
        let left = |all: &[Option<Aligned>]| all.iter().filter(|aligned| aligned.is_none()).count();
        let (window_s, known) = (window as f64 / f64::from(SAMPLE_RATE), long.len() - left(&all));
        let mut unreadable = Vec::new();
        if known < long.len() {
            let _heeding = self.interrupt.heed();
            let seconds = long.iter().zip(&all).filter(|(_, found)| found.is_none()).map(|((_, seconds), _)| seconds);
            let mut watch = AlignmentProgress::new(long.len() - known, seconds.sum(), window_s, known);
            let mut kept = record.is_some();
            for (place, (clip, _)) in long.iter().enumerate() {
                if all[place].is_some() {
                    continue;
                }
                let aligned = match self.listen(clips, *clip, window, &mut watch) {
                    Ok(aligned) => aligned,
                    Err(Stop::Unreadable(source)) => {
                        let error = SpeechError::Align { name: clips.clip(*clip).name.clone(), source };
                        if !skip {
                            return Err(error);
                        }
                        unreadable.push(error);
                        continue;
                    }
                    Err(Stop::Interrupted) => {
                        let aligned = if record.is_some() { long.len() - left(&all) } else { 0 };
                        return Err(SpeechError::Interrupted { aligned, of: long.len() });
                    }
                };
                // If another process has stored a result in the meantime, its result is used for both.
                let before = found(&long[place]);
                if before.is_none()
                    && let Some(record) = record.as_ref().filter(|_| kept)
                    && let Err(error) = record.write(&key_of(*clip), &aligned)
                {
                    watch.warn(&format!("transcripts of long recordings can no longer be stored: {error}"));
                    kept = false;
                }
                all[place] = Some(before.unwrap_or(aligned));
                watch.done();
            }
        }
        let all: Vec<(usize, Aligned)> =
            long.iter().zip(all).filter_map(|((clip, _), one)| Some((*clip, one?))).collect();
        let parts: usize = all.iter().map(|(_, one)| one.parts.len()).sum();
        let left_out: Vec<String> = all.iter().flat_map(|(clip, one)| one.left_out(clips, *clip)).collect();
        let on_record = match record.as_ref().filter(|_| known == long.len()) {
            Some(record) => format!(" as recorded in `{}`", record.0.display()),
            None => String::new(),
        };
        tracing::info!("{} recordings longer than {window_s:.2} s were cut into {parts} pieces{on_record}", all.len());
        if !left_out.is_empty() {
            let pieces = parts + left_out.len();
            let listed = Listed::new(left_out, pieces);
            tracing::warn!("left out, because the model read something else than their text: {listed}");
        }
        Ok((all.into_iter().flat_map(|(clip, aligned)| aligned.pieces(clips, clip)).collect(), unreadable))
    }

    /// Opens the folder of results; if that fails, logs the reason.
    fn record(&self) -> Option<Record> {
        let opened = match &self.folder {
            Ok(folder) => Record::open(folder.clone()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let complain = |reason: &String| {
            tracing::warn!(
                "transcripts of long recordings cannot be stored, and are made again at every start: {reason}"
            );
        };
        opened.inspect_err(complain).ok()
    }

    fn listen(
        &self,
        clips: &Clips,
        clip: usize,
        window: usize,
        watch: &mut AlignmentProgress,
    ) -> Result<Aligned, Stop> {
        let stopped = || self.interrupt.is_asked();
        if stopped() {
            return Err(Stop::Interrupted);
        }
        let audio = clips.load(clip).map_err(|error| Stop::Unreadable(error.into()))?;
        let clip = clips.clip(clip);
        let ranges = cut_in_silence(&audio, window);
        let mut read = Vec::with_capacity(ranges.len());
        for range in &ranges {
            if stopped() {
                return Err(Stop::Interrupted);
            }
            read.push(self.listener.transcribe(&audio[range.clone()], clip.language.as_deref(), clip.task.as_deref()));
            watch.advance(range.len());
        }
        let mut aligned =
            Aligned { name: clip.name.clone(), parts: Vec::with_capacity(ranges.len()), left_out: Vec::new() };
        let Some(division) = divide(&clip.text, &read) else {
            return Ok(Aligned { left_out: ranges.iter().map(|range| (range.start, range.end)).collect(), ..aligned });
        };
        let mut follows = false;
        for (range, part) in ranges.into_iter().zip(division.parts) {
            let kept = part.error_rate() <= MISHEARD && !part.text.is_empty();
            if kept {
                aligned.parts.push(Part { start: range.start, end: range.end, text: part.text, follows });
            } else if part.words > 0 || !part.text.is_empty() {
                aligned.left_out.push((range.start, range.end));
            }
            follows = kept;
        }
        Ok(aligned)
    }
}

impl Aligned {
    /// Returns the names of the pieces that are left out.
    fn left_out(&self, clips: &Clips, clip: usize) -> impl Iterator<Item = String> {
        let (name, begin) = (&clips.clip(clip).name, clips.clip(clip).start.unwrap_or(0.0));
        let at = move |sample: usize| begin + sample as f64 / f64::from(SAMPLE_RATE);
        self.left_out.iter().map(move |(start, end)| format!("`{name}` from {:.2} to {:.2} s", at(*start), at(*end)))
    }

    fn pieces(self, clips: &Clips, clip: usize) -> impl Iterator<Item = Piece> {
        let begin = clips.clip(clip).start.unwrap_or(0.0);
        let at = move |sample: usize| begin + sample as f64 / f64::from(SAMPLE_RATE);
        self.parts.into_iter().map(move |Part { start, end, text, follows }| {
            let (start, end) = (at(start), at(end));
            Piece { clip, part: Some((start, end)), text, timed: None, seconds: Some(end - start), follows }
        })
    }
}

/// Progress in seconds of audio: a bar on a terminal, a line now and then elsewhere.
struct AlignmentProgress {
    bar: ProgressBar,
    recordings: (usize, usize),
    /// Number of samples transcribed.
    samples: usize,
    said: Instant,
}

impl AlignmentProgress {
    fn new(recordings: usize, seconds: f64, window: f64, known: usize) -> Self {
        let more = if known > 0 { format!(" ({known} more were aligned before)") } else { String::new() };
        tracing::info!(
            "listening to {recordings} recordings longer than {window:.2} s, {:.2} h together, for what is said where{more}",
            seconds / 3600.0
        );
        let bar = ProgressBar::new(seconds as u64).with_message("aligning");
        let style = ProgressStyle::with_template("{msg}  {bar:28} {pos}/{len} s  ETA {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, recordings: (0, recordings), samples: 0, said: Instant::now() }
    }

    fn advance(&mut self, samples: usize) {
        self.samples += samples;
        self.bar.set_position(self.samples as u64 / u64::from(SAMPLE_RATE));
        if self.said.elapsed() >= LINES && !std::io::stderr().is_terminal() {
            self.said = Instant::now();
            let (done, of) = self.recordings;
            let hours = |seconds: u64| seconds as f64 / 3600.0;
            let (read, all) = (hours(self.bar.position()), hours(self.bar.length().unwrap_or_default()));
            tracing::info!("aligned {done} of {of} recordings, {read:.2} of {all:.2} h");
        }
    }

    fn done(&mut self) {
        self.recordings.0 += 1;
    }

    /// Logs a warning while the bar is hidden.
    fn warn(&self, line: &str) {
        self.bar.suspend(|| tracing::warn!("{line}"));
    }
}

impl Drop for AlignmentProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::path::Path;
    use undertone_data::audio::write_wav;
    use undertone_data::records::RecordsConfig;

    /// Transcribes the loudness: a word for each tenth of full scale.
    struct Loudness<'a> {
        fingerprint: &'static str,
        asked: &'a Cell<usize>,
        /// Number of the call during which Ctrl-C is pressed.
        stops_at: usize,
        interrupt: &'a Interrupt,
    }

    impl Listener for Loudness<'_> {
        fn transcribe(&self, audio: &[f32], language: Option<&str>, _task: Option<&str>) -> String {
            self.asked.set(self.asked.get() + 1);
            if self.asked.get() == self.stops_at {
                self.interrupt.ask();
            }
            let peak = audio.iter().fold(0.0, |peak: f32, x| peak.max(x.abs()));
            let words = if language == Some("de") { GERMAN } else { WORDS };
            words[(peak * 10.0).round() as usize].to_owned()
        }

        fn fingerprint(&self) -> String {
            self.fingerprint.to_owned()
        }
    }

    const WORDS: [&str; 6] = ["", "one", "two", "three", "four", "five"];
    const GERMAN: [&str; 6] = ["", "eins", "zwei", "drei", "vier", "fünf"];
    /// 2.2 s: a word, and half of the silence on both sides of it.
    const WINDOW: usize = 35_200;

    /// Writes a recording with 1.6 s of sound and 0.4 s of silence for each word.
    fn write(dir: &Path, name: &str, words: &[usize]) {
        let second = |loud: &usize| {
            let loud = *loud as f32 / 10.0;
            (0..32_000).map(move |n| if n < 25_600 { loud * if n % 20 < 10 { 1.0 } else { -1.0 } } else { 0.0 })
        };
        write_wav(&dir.join(name), &words.iter().flat_map(second).collect::<Vec<_>>()).expect("written");
    }

    /// Creates three recordings of 6, 8 and 4 s. In two pieces of the second, the audio differs from the text.
    fn recordings() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "a.wav", &[1, 2, 3]);
        write(dir.path(), "b.wav", &[3, 5, 4, 1]);
        write(dir.path(), "c.wav", &[4, 5]);
        list(dir.path(), "One, two: three!");
        dir
    }

    fn list(dir: &Path, first: &str) {
        let row = |(name, text)| format!("{}\n", serde_json::json!({"audio": name, "text": text}));
        let rows = [("a.wav", first), ("b.wav", "Three two two four. One."), ("c.wav", "four five")].map(row);
        std::fs::write(dir.join("list.jsonl"), rows.concat()).expect("written");
    }

    struct Start {
        fingerprint: &'static str,
        window: usize,
        stops_at: usize,
        folder: Option<PathBuf>,
    }

    impl Start {
        fn new(dir: &Path) -> Self {
            Self { fingerprint: "a model", window: WINDOW, stops_at: 0, folder: Some(dir.join("cache/aligned")) }
        }

        /// Returns the pieces, and the number of transcriptions.
        fn align(&self, dir: &Path) -> (Result<Vec<Piece>, SpeechError>, usize) {
            let records = RecordsConfig { path: dir.join("list.jsonl").into(), ..RecordsConfig::default() };
            let clips = Clips::open(&records).expect("clips");
            let long: Vec<(usize, f64)> =
                (0..clips.len()).map(|clip| (clip, clips.seconds(clip).expect("known"))).collect();
            let (asked, interrupt) = (Cell::new(0), Interrupt::default());
            let listener = Loudness {
                fingerprint: self.fingerprint,
                asked: &asked,
                stops_at: self.stops_at,
                interrupt: &interrupt,
            };
            let aligner = Aligner::new(listener, self.folder.clone().ok_or(CacheError::NoHome), &interrupt);
            let pieces = aligner.align(&clips, &long, self.window, false).map(|(pieces, _)| pieces);
            (pieces, asked.get())
        }
    }

    #[test]
    fn a_second_start_finds_the_same_pieces_and_does_not_listen() {
        let dir = recordings();
        let (first, asked) = Start::new(dir.path()).align(dir.path());
        let first = first.expect("aligned");
        let texts: Vec<(usize, &str, bool)> =
            first.iter().map(|piece| (piece.clip, piece.text.as_str(), piece.follows)).collect();
        let expected = [
            (0, "One,", false),
            (0, "two:", true),
            (0, "three!", true),
            (1, "Three", false),
            (1, "four.", false),
            (1, "One.", true),
            (2, "four", false),
            (2, "five", true),
        ];
        assert_eq!((texts.as_slice(), asked), (&expected[..], 9));
        let (again, asked) = Start::new(dir.path()).align(dir.path());
        assert_eq!((again.expect("on record"), asked), (first, 0));
    }

    #[test]
    fn what_the_pieces_depend_on_is_listened_to_again_when_it_changes() {
        let dir = recordings();
        let asked = |start: &Start| start.align(dir.path()).1;
        let start = Start::new(dir.path());
        assert_eq!((asked(&start), asked(&start)), (9, 0));
        let other = Start { fingerprint: "another model", ..Start::new(dir.path()) };
        assert_eq!((asked(&other), asked(&other), asked(&start)), (9, 0, 0));
        let wider = Start { window: 2 * WINDOW, ..Start::new(dir.path()) };
        assert!(asked(&wider) > 0);
        list(dir.path(), "One, two, three!");
        assert_eq!((asked(&start), asked(&start)), (3, 0), "another text of the first");
        write(dir.path(), "c.wav", &[4, 5, 1]);
        assert_eq!((asked(&start), asked(&start)), (3, 0), "a longer third");
    }

    #[test]
    fn a_recording_that_cannot_be_read_stops_the_start_or_is_left_out() {
        let dir = recordings();
        let whole = std::fs::read(dir.path().join("b.wav")).expect("read");
        std::fs::write(dir.path().join("b.wav"), &whole[..whole.len() / 2]).expect("written");
        let error = Start::new(dir.path()).align(dir.path()).0.expect_err("refused").to_string();
        assert!(error.contains("b.wav"), "{error}");
        let records = RecordsConfig { path: dir.path().join("list.jsonl").into(), ..RecordsConfig::default() };
        let clips = Clips::open(&records).expect("clips");
        let (asked, interrupt) = (Cell::new(0), Interrupt::default());
        let listener = Loudness { fingerprint: "a model", asked: &asked, stops_at: 0, interrupt: &interrupt };
        let aligner = Aligner::new(listener, Ok(dir.path().join("cache/aligned")), &interrupt);
        let (pieces, unreadable) =
            aligner.align(&clips, &[(0, 6.0), (1, 8.0), (2, 4.0)], WINDOW, true).expect("aligned");
        assert_eq!(pieces.iter().map(|piece| piece.clip).collect::<Vec<_>>(), [0, 0, 0, 2, 2]);
        assert!(matches!(unreadable.as_slice(), [SpeechError::Align { name, .. }] if name.contains("b.wav")));
    }

    #[test]
    fn a_recording_in_a_language_of_its_own_is_listened_to_in_that() {
        let dir = recordings();
        let row =
            |language: &str| format!(r#"{{"audio": "a.wav", "text": "Eins, zwei, drei", "language": "{language}"}}"#);
        let read = |language: &str| {
            std::fs::write(dir.path().join("list.jsonl"), row(language)).expect("written");
            let (pieces, asked) = Start::new(dir.path()).align(dir.path());
            (pieces.expect("aligned").len(), asked)
        };
        assert_eq!((read("en"), read("de"), read("de")), ((0, 3), (3, 3), (3, 0)));
    }

    #[test]
    fn an_interruption_ends_it_at_the_next_piece_and_the_next_start_goes_on_from_there() {
        let (dir, whole) = (recordings(), recordings());
        let expected = Start::new(whole.path()).align(whole.path()).0.expect("aligned");
        let stopped = Start { stops_at: 5, ..Start::new(dir.path()) };
        let (stopped, asked) = stopped.align(dir.path());
        assert!(matches!(stopped, Err(SpeechError::Interrupted { aligned: 1, of: 3 })), "{stopped:?}");
        assert_eq!(asked, 5);
        let (pieces, asked) = Start::new(dir.path()).align(dir.path());
        assert_eq!((pieces.expect("aligned"), asked), (expected, 6), "the first of three was done");
    }

    #[test]
    fn a_damaged_record_is_made_anew_and_one_that_cannot_be_kept_is_done_without() {
        let dir = recordings();
        let start = Start::new(dir.path());
        let expected = start.align(dir.path()).0.expect("aligned");
        let files: Vec<PathBuf> = std::fs::read_dir(dir.path().join("cache/aligned"))
            .expect("a folder")
            .map(|file| file.expect("a file").path())
            .collect();
        assert_eq!(files.len(), 3);
        for file in &files {
            let half = std::fs::metadata(file).expect("there").len() / 2;
            std::fs::OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(half)).expect("cut");
        }
        for asked in [9, 0] {
            let found = start.align(dir.path());
            assert_eq!((found.0.expect("aligned"), found.1), (expected.clone(), asked));
        }
        // Without any folder, and with a file in place of the folder.
        for folder in [None, Some(dir.path().join("a.wav"))] {
            let start = Start { folder, ..Start::new(dir.path()) };
            for _ in 0..2 {
                let found = start.align(dir.path());
                assert_eq!((found.0.expect("aligned"), found.1), (expected.clone(), 9));
            }
        }
    }
}
