//! Report of the check, as plain values.

use crate::SourceConfig;
use serde::Serialize;
use std::collections::BTreeMap;

/// Properties of an experiment's data, and problems with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataCheck {
    /// Model that the data was checked for.
    pub model: String,
    /// Window of the model, in seconds; `None` for a text model.
    pub window: Option<f64>,
    /// Every split; in a run with tasks, of every task.
    pub splits: Vec<SplitCheck>,
    /// Samples that two splits have in common.
    pub leaks: Vec<Leak>,
    /// Problems, failures first.
    pub problems: Vec<Problem>,
}

/// Sources of a split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitCheck {
    /// Task, in a run with tasks.
    pub task: Option<String>,
    /// `train`, `valid` or `test`.
    pub split: String,
    /// Sources; several if they are mixed.
    pub sources: Vec<SourceCheck>,
}

/// Properties of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceCheck {
    /// File, folder or name of the source.
    pub source: String,
    /// Number of recordings, of records, or of samples that a synthesiser makes per epoch.
    pub samples: usize,
    /// Number of samples made for the check, if they are synthesised; the statistics are of these.
    pub drawn: Option<usize>,
    /// Number of recordings decoded, if decoding was requested.
    pub decoded: Option<usize>,
    /// Hours of audio; an estimate if samples are synthesised.
    pub hours: Option<f64>,
    /// Durations of the samples, in seconds.
    pub seconds: Option<Spread>,
    /// Number of recordings of unknown duration, because they cannot be read.
    pub unknown_lengths: usize,
    /// Recordings longer than the window.
    pub long: Long,
    /// Number of tokens: of the target with prompt for speech, of the input for text.
    pub tokens: Option<Spread>,
    /// Maximum number of these tokens.
    pub token_limit: usize,
    /// Number of target tokens of a task on text.
    pub target_tokens: Option<Spread>,
    /// Maximum number of target tokens.
    pub target_limit: Option<usize>,
    /// Number of samples without text.
    pub empty_texts: usize,
    /// Number of samples by language, if they have one.
    pub languages: BTreeMap<String, usize>,
    /// Number of samples by Whisper task (transcribe or translate), if they have one.
    pub tasks: BTreeMap<String, usize>,
    /// Number of samples by label, or of words by tag.
    pub labels: BTreeMap<String, usize>,
    /// Characters that the tokenizer cannot encode, most frequent first.
    pub unspellable: Vec<Unspellable>,
    /// Share of unknown tokens, for text.
    pub unknown_share: Option<f64>,
}

impl SourceCheck {
    /// Returns the entry of a source that has not been examined yet.
    pub(super) fn of(source: &SourceConfig, token_limit: usize) -> Self {
        Self { source: source.to_string(), token_limit, ..Self::default() }
    }
}

/// Recordings longer than the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Long {
    /// Number of recordings that are cut at the times of their text.
    pub cut: usize,
    /// Number of pieces that these are cut into.
    pub pieces: usize,
    /// Number of recordings without such times.
    pub without_times: usize,
}

/// A character that the tokenizer cannot encode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unspellable {
    /// The character.
    pub character: char,
    /// Number of texts that contain it.
    pub texts: usize,
    /// Name of the first sample whose text contains it.
    pub example: String,
}

/// Distribution of numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Sum of the values.
    pub total: f64,
    /// Smallest value.
    pub least: f64,
    /// Median.
    pub median: f64,
    /// Largest value.
    pub most: f64,
    /// Bin width of the histogram; the first bin begins at 0.
    pub bin: f64,
    /// Number of values in each bin.
    pub histogram: Vec<usize>,
}

/// Approximate number of bins of a histogram.
const BINS: f64 = 15.0;

impl Spread {
    /// Returns the distribution of values that are at least 0; `None` without values. Bins are 1, 2 or 5 wide, times a
    /// power of ten, and at least `finest`.
    pub(super) fn of(mut values: Vec<f64>, finest: f64) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let wanted = (most / BINS).max(finest);
        let power = 10_f64.powf(wanted.log10().floor());
        let bin = [1.0, 2.0, 5.0].into_iter().map(|step| step * power).find(|bin| *bin >= wanted * (1.0 - 1e-9));
        let bin = bin.unwrap_or(10.0 * power);
        // A value on the last edge belongs to the bin before it.
        let bins = ((most / bin).ceil() as usize).max(1);
        let mut histogram = vec![0; bins];
        for value in &values {
            histogram[((value / bin) as usize).min(bins - 1)] += 1;
        }
        let (count, total, median) = (values.len(), values.iter().sum(), values[values.len() / 2]);
        Some(Self { count, total, least, median, most, bin, histogram })
    }
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Training would not start, or would stop.
    Failure,
    /// Training would run, but learn something unintended.
    Warning,
    /// Possibly intended.
    Note,
}

/// A problem with samples of a split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Split, with its task.
    pub place: String,
    /// Number of samples affected.
    pub count: usize,
    /// Number of samples examined.
    pub of: usize,
    /// First affected samples, each with a remark.
    pub examples: Vec<String>,
}

/// Kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A source cannot be opened at all.
    Source,
    /// Rows of a list without usable content, or that name audio that does not exist.
    Rows,
    /// Audio that cannot be read.
    Unreadable,
    /// Clips or segments outside their file.
    OutsideFile,
    /// Audio longer than the window, without times for its text.
    TooLong,
    /// Segment times of a text that cannot be used.
    Segments,
    /// Texts with more tokens than the decoder has positions.
    LongText,
    /// Texts with characters that the tokenizer cannot encode.
    Unspellable,
    /// Texts that contain control tokens.
    Control,
    /// Languages or tasks that the vocabulary has no token for.
    NoToken,
    /// Languages other than English, for an English-only model.
    EnglishOnly,
    /// Other errors with which training refuses samples.
    Refused,
    /// Silent audio.
    Silent,
    /// Very quiet audio.
    Quiet,
    /// Clipped audio.
    Clipped,
    /// Audio whose samples are floats far beyond full scale.
    Divided,
    /// Text that is too long to be spoken in the duration of its audio.
    Crowded,
    /// Audio or text that occurs several times in one split.
    Duplicate,
    /// Recordings longer than the window, which the model will have to align.
    Aligned,
    /// Samples without text.
    Empty,
    /// Texts that are truncated in the input.
    CutInput,
    /// Answers that are truncated, or that do not occur in the input.
    CutTarget,
    /// Unknown tokens.
    Unknown,
    /// Labels without training samples.
    NoSample,
    /// Records of one word, where words are tagged in their sentence.
    OneWord,
}

impl ProblemKind {
    /// Returns what is wrong with the samples, and the remedy.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Source => ("source cannot be opened", ""),
            Self::Rows => ("rows cannot be used", "correct or remove them"),
            Self::Unreadable => ("recordings cannot be read", "replace or remove them"),
            Self::OutsideFile => ("clips lie outside of their files", "correct their times"),
            Self::TooLong => (
                "recordings are longer than the window and have no times for their text",
                "cut them, give segments, or set data.long_audio=align",
            ),
            Self::Segments => ("recordings have segments that cannot be used", "correct their times"),
            Self::LongText => ("texts are too long for the decoder", "shorten or split them"),
            Self::Unspellable => ("texts have characters that the tokenizer cannot spell", "replace these characters"),
            Self::Control => ("texts contain control tokens", "remove these"),
            Self::NoToken => ("samples name a language or task that the model has no token for", "correct it"),
            Self::EnglishOnly => {
                ("samples are in a language other than English, which alone the model knows", "take another model")
            }
            Self::Refused => ("split is refused by training", ""),
            Self::Silent => ("recordings are silent", "remove them, unless their text is empty"),
            Self::Quiet => ("recordings are hardly audible", "make them louder, or remove them"),
            Self::Clipped => ("recordings are clipped", "record them again, if that can be done"),
            Self::Divided => (
                "recordings have floats far beyond full scale and are divided",
                "write them as 16-bit WAV, if that is not their scale",
            ),
            Self::Crowded => ("texts are too long for their audio", "see whether they belong together"),
            Self::Duplicate => ("samples repeat another one of this split", "remove them, unless they are meant"),
            Self::Aligned => ("recordings longer than the window will be cut by what the model reads in them", ""),
            Self::Empty => ("samples have no text", ""),
            Self::CutInput => ("inputs are cut to the head's length", ""),
            Self::CutTarget => ("answers are cut, or lie in no window", "give the head more room"),
            Self::Unknown => ("tokens of the input are unknown to the vocabulary", ""),
            Self::OneWord => (
                "records have one word, which is read as a sentence of its own",
                "write the words of a sentence into one row, or use CoNLL files with blank lines between sentences",
            ),
            Self::NoSample => ("labels have no sample", "remove them from the head, or give samples"),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, remedy) = self.kind.words();
        let Self { place, count, of, .. } = self;
        write!(f, "{place}: {count} of {of} {what}{}", examples(&self.examples, *count))?;
        if remedy.is_empty() { Ok(()) } else { write!(f, "; {remedy}") }
    }
}

/// Samples that two splits have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leak {
    /// Severity.
    pub severity: Severity,
    /// Kind of the leak.
    pub kind: LeakKind,
    /// Task, in a run with tasks.
    pub task: Option<String>,
    /// Names of the two splits.
    pub splits: [String; 2],
    /// Number of samples of the second split that are in the first.
    pub count: usize,
    /// Number of samples of the second split.
    pub of: usize,
    /// First such samples, each with one that it equals.
    pub examples: Vec<String>,
}

/// Kind of a leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakKind {
    /// Identical audio.
    Audio,
    /// The same recording, or parts of it.
    Recording,
    /// The same text, of some length, with audio of the same duration.
    TextAndLength,
    /// The same input text.
    Input,
    /// The same passage, or one text of a pair.
    Passage,
    /// The same text of speech, without more in common.
    Text,
}

impl std::fmt::Display for Leak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.kind {
            LeakKind::Audio => "have the same audio as",
            LeakKind::Recording => "are from the same recordings as",
            LeakKind::TextAndLength => "have the text and the length of",
            LeakKind::Input => "have the same input as",
            LeakKind::Passage => "share a passage, or one text of a pair, with",
            LeakKind::Text => "say the same as",
        };
        let [first, second] = &self.splits;
        let task = self.task.as_ref().map_or(String::new(), |task| format!("{task}/"));
        let Self { count, of, .. } = self;
        let examples = examples(&self.examples, *count);
        write!(f, "{task}{second}: {count} of {of} samples {what} samples of {task}{first}{examples}")
    }
}

/// Returns as many examples as a line has room for.
fn examples(examples: &[String], count: usize) -> String {
    let shown = &examples[..examples.len().min(SHOWN)];
    match (shown.is_empty(), count.saturating_sub(shown.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", shown.join(", ")),
        (false, more) => format!(": {} and {more} more", shown.join(", ")),
    }
}

/// Maximum number of examples per line.
const SHOWN: usize = 3;

impl DataCheck {
    /// Whether training would not start, or would stop.
    pub fn fails(&self) -> bool {
        self.of(Severity::Failure).next().is_some()
    }

    /// Returns the problems of a severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }

    /// Returns the report as JSON, with [`Self::fails`] under `fails`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(self).unwrap_or_default();
        json["fails"] = self.fails().into();
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_spread_has_round_bins() {
        let spread = Spread::of(vec![3.0, 0.5, 9.9, 10.0], 0.1).unwrap();
        assert_eq!((spread.least, spread.median, spread.most, spread.total), (0.5, 9.9, 10.0, 23.4));
        assert_eq!((spread.bin, spread.histogram), (1.0, vec![1, 0, 0, 1, 0, 0, 0, 0, 0, 2]));
        assert_eq!(Spread::of(vec![], 1.0), None);
        let one = Spread::of(vec![0.0], 1.0).unwrap();
        assert_eq!((one.bin, one.histogram), (1.0, vec![1]));
    }

    #[test]
    fn a_problem_is_a_sentence_that_ends_in_the_way_out() {
        let problem = Problem {
            severity: Severity::Failure,
            kind: ProblemKind::LongText,
            place: "train".into(),
            count: 40,
            of: 100,
            examples: vec!["`a` (57 tokens)".into(), "`b` (60 tokens)".into()],
        };
        assert_eq!(
            problem.to_string(),
            "train: 40 of 100 texts are too long for the decoder: `a` (57 tokens), `b` (60 tokens) and 38 more; shorten \
             or split them"
        );
    }

    proptest! {
        #[test]
        fn every_value_falls_into_a_bin(values in prop::collection::vec(0.0f64..1e5, 1..50)) {
            let spread = Spread::of(values.clone(), 0.1).unwrap();
            prop_assert_eq!(spread.histogram.iter().sum::<usize>(), values.len());
            prop_assert!(spread.histogram.len() <= 16 && *spread.histogram.last().unwrap() > 0);
            prop_assert!(spread.histogram.len() as f64 * spread.bin >= spread.most);
        }
    }
}
