//! What was found, as plain values.

use crate::SourceConfig;
use serde::Serialize;
use std::collections::BTreeMap;

/// What an experiment's data is like, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataCheck {
    /// The model that the data was looked at for.
    pub model: String,
    /// What that hears at once, in seconds; none where it reads text.
    pub window: Option<f64>,
    /// Every split; in a run with tasks, of every task.
    pub splits: Vec<SplitCheck>,
    /// What is in two splits at once.
    pub leaks: Vec<Leak>,
    /// What is wrong, failures first.
    pub problems: Vec<Problem>,
}

/// A split's sources.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitCheck {
    /// The task, in a run that has some.
    pub task: Option<String>,
    /// `train`, `valid` or `test`.
    pub split: String,
    /// One, or several that are mixed.
    pub sources: Vec<SourceCheck>,
}

/// What a source has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceCheck {
    /// Its file, folder or name.
    pub source: String,
    /// Recordings, records, or samples that a synthesiser makes per epoch.
    pub samples: usize,
    /// How many were made to be looked at, where samples are synthesised: the numbers are theirs.
    pub drawn: Option<usize>,
    /// How many were decoded, where they are recordings and audio was to be looked at.
    pub heard: Option<usize>,
    /// Hours of audio; about, where samples are synthesised.
    pub hours: Option<f64>,
    /// How long samples are, in seconds.
    pub seconds: Option<Spread>,
    /// Recordings whose length is not known, for they cannot be read.
    pub unknown_lengths: usize,
    /// Recordings longer than the window.
    pub long: Long,
    /// Tokens of what is to be written, prompt included, of speech; of what is read, of text.
    pub tokens: Option<Spread>,
    /// How many there may be.
    pub token_limit: usize,
    /// Tokens of what is to be written by a task on text.
    pub target_tokens: Option<Spread>,
    /// How many there may be.
    pub target_limit: Option<usize>,
    /// Samples without text.
    pub empty_texts: usize,
    /// Samples by language, where they have one.
    pub languages: BTreeMap<String, usize>,
    /// Samples by what Whisper is to do, where they say so.
    pub tasks: BTreeMap<String, usize>,
    /// Samples by label, or words by tag.
    pub labels: BTreeMap<String, usize>,
    /// Characters that the tokenizer cannot spell, most frequent first.
    pub unspellable: Vec<Unspellable>,
    /// The share of tokens that stand for something unknown, of text.
    pub unknown_share: Option<f64>,
}

impl SourceCheck {
    /// Of a source that nothing is known of yet.
    pub(super) fn of(source: &SourceConfig, token_limit: usize) -> Self {
        Self {
            source: source.to_string(),
            samples: 0,
            drawn: None,
            heard: None,
            hours: None,
            seconds: None,
            unknown_lengths: 0,
            long: Long::default(),
            tokens: None,
            token_limit,
            target_tokens: None,
            target_limit: None,
            empty_texts: 0,
            languages: BTreeMap::new(),
            tasks: BTreeMap::new(),
            labels: BTreeMap::new(),
            unspellable: Vec::new(),
            unknown_share: None,
        }
    }
}

/// Recordings longer than the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Long {
    /// Those that are cut where the times of their text say.
    pub cut: usize,
    /// What they are cut into.
    pub pieces: usize,
    /// Those without such times.
    pub without_times: usize,
}

/// A character that cannot be spelt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unspellable {
    /// It.
    pub character: char,
    /// Texts that have it.
    pub texts: usize,
    /// The first sample whose text has it.
    pub example: String,
}

/// How numbers are spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: usize,
    /// Their sum.
    pub total: f64,
    /// The least.
    pub least: f64,
    /// The middle one.
    pub median: f64,
    /// The most.
    pub most: f64,
    /// Width of a bin of the histogram; the first begins at 0.
    pub bin: f64,
    /// How many fall into each bin.
    pub histogram: Vec<usize>,
}

/// Bins of a histogram, about.
const BINS: f64 = 15.0;

impl Spread {
    /// Of numbers that are at least 0; none of none. Bins are 1, 2 or 5 wide, times a power of ten, and at least `finest`.
    pub(super) fn of(mut values: Vec<f64>, finest: f64) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let wanted = (most / BINS).max(finest);
        let power = 10_f64.powf(wanted.log10().floor());
        let bin = [1.0, 2.0, 5.0].into_iter().map(|step| step * power).find(|bin| *bin >= wanted * (1.0 - 1e-9));
        let bin = bin.unwrap_or(10.0 * power);
        // What lies on the last edge belongs to the bin before it.
        let bins = ((most / bin).ceil() as usize).max(1);
        let mut histogram = vec![0; bins];
        for value in &values {
            histogram[((value / bin) as usize).min(bins - 1)] += 1;
        }
        let (count, total, median) = (values.len(), values.iter().sum(), values[values.len() / 2]);
        Some(Self { count, total, least, median, most, bin, histogram })
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Training would not begin, or would stop.
    Failure,
    /// It would go on, and learn something that it should not.
    Warning,
    /// It may well be meant.
    Note,
}

/// Something that is wrong with samples of a split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub kind: ProblemKind,
    /// The split, and its task.
    pub place: String,
    /// How many samples it concerns.
    pub count: usize,
    /// Of how many.
    pub of: usize,
    /// The first of them, each with what there is to say about it.
    pub examples: Vec<String>,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A source cannot be opened at all.
    Source,
    /// Rows of a list that say nothing usable, or name audio that does not exist.
    Rows,
    /// Audio that cannot be read.
    Unreadable,
    /// Clips or segments that lie outside of their file.
    OutsideFile,
    /// Audio longer than the window, without times for its text.
    TooLong,
    /// Times of a text that cannot be used.
    Segments,
    /// Texts with more tokens than the decoder has positions.
    LongText,
    /// Texts with characters that the tokenizer cannot spell.
    Unspellable,
    /// Texts with control tokens in them.
    Control,
    /// Languages or tasks that the vocabulary has no token for.
    NoToken,
    /// Languages other than English, for a model of English alone.
    EnglishOnly,
    /// Something else that training refuses.
    Refused,
    /// Audio in which nothing is heard.
    Silent,
    /// Audio in which hardly anything is heard.
    Quiet,
    /// Audio that was too loud for its recorder.
    Clipped,
    /// Audio whose samples are floats far beyond full scale.
    Divided,
    /// Text that nobody says in so little time.
    Crowded,
    /// The same audio, or text, several times in one split.
    Duplicate,
    /// Recordings longer than the window that the model will have to be asked about.
    Aligned,
    /// Samples without text.
    Empty,
    /// Texts of which a part is cut off before they are read.
    CutInput,
    /// Answers of which a part is cut off, or that are found nowhere.
    CutTarget,
    /// Tokens that stand for something unknown.
    Unknown,
    /// Labels without a sample to be learnt from.
    NoSample,
}

impl ProblemKind {
    /// What the samples do, and what to do about it.
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
            Self::Aligned => ("recordings longer than the window will be cut by what the model hears in them", ""),
            Self::Empty => ("samples have no text", ""),
            Self::CutInput => ("inputs are cut to the head's length", ""),
            Self::CutTarget => ("answers are cut, or lie in no window", "give the head more room"),
            Self::Unknown => ("tokens of the input are unknown to the vocabulary", ""),
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

/// What two splits have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leak {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub kind: LeakKind,
    /// The task, in a run that has some.
    pub task: Option<String>,
    /// The two splits.
    pub splits: [String; 2],
    /// How many samples of the second split are in the first.
    pub count: usize,
    /// Of how many.
    pub of: usize,
    /// The first of them, each with one it is the same as.
    pub examples: Vec<String>,
}

/// What two splits can have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakKind {
    /// Audio, sample by sample.
    Audio,
    /// A recording, of which each has a part, or the same.
    Recording,
    /// A text of some length, with audio that is as long.
    TextAndLength,
    /// What is read, of text.
    Input,
    /// A passage, or one text of a pair.
    Passage,
    /// Texts of speech alone.
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

/// As much as a line has room for.
fn examples(examples: &[String], count: usize) -> String {
    let shown = &examples[..examples.len().min(SHOWN)];
    match (shown.is_empty(), count.saturating_sub(shown.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", shown.join(", ")),
        (false, more) => format!(": {} and {more} more", shown.join(", ")),
    }
}

/// Examples that a line has room for.
const SHOWN: usize = 3;

impl DataCheck {
    /// Whether training would not begin, or would stop.
    pub fn fails(&self) -> bool {
        self.of(Severity::Failure).next().is_some()
    }

    /// Problems that are so bad.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }

    /// Everything as JSON, and under `fails` whether training would.
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
