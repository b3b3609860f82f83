//! The normaliser for English.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::clean::{self, pattern};
use super::numbers;

/// Whisper's normaliser for English, by which its word error rates are published.
///
/// On top of what [`BasicNormalizer`](super::BasicNormalizer) does, it drops hesitations, spells out contractions and
/// titles, writes numbers in digits (`twenty five dollars` becomes `$25`) and, given the map of a checkpoint's
/// `normalizer.json`, British spellings the American way.
///
/// Its answers are those of `transformers`' `EnglishTextNormalizer`, oddities included: published error rates were
/// counted with them. They differ for the decimal digits of other scripts, which are left alone here, and for numbers
/// of 39 digits and more, which are not multiplied.
#[derive(Debug, Clone, Default)]
pub struct EnglishNormalizer {
    spellings: HashMap<String, String>,
}

impl EnglishNormalizer {
    /// A normaliser that leaves spellings as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// A normaliser that rewrites whole words by this map.
    pub fn with_spellings(spellings: HashMap<String, String>) -> Self {
        Self { spellings }
    }

    /// A normaliser with the spellings of a `normalizer.json`, as Whisper checkpoints carry it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, NormalizerError> {
        let path = path.as_ref();
        let text = fs::read(path).map_err(|source| NormalizerError::Read { path: path.into(), source })?;
        let spellings =
            serde_json::from_slice(&text).map_err(|source| NormalizerError::Parse { path: path.into(), source })?;
        Ok(Self { spellings })
    }

    /// The normalised text.
    pub fn normalize(&self, text: &str) -> String {
        let text = clean::remove_bracketed(&text.to_lowercase());
        let text = expand(&text);
        let text = clean::remove_symbols_but_of_numbers(&drop_separators(&text));
        let text = numbers::to_digits(&text);
        let words: Vec<&str> = text.split_whitespace().map(|word| self.spelling(word)).collect();
        clean::single_spaces(&drop_stray_symbols(&words.join(" ")))
    }

    fn spelling<'a>(&'a self, word: &'a str) -> &'a str {
        self.spellings.get(word).map_or(word, String::as_str)
    }
}

/// Why a spelling map cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NormalizerError {
    /// The file cannot be read.
    #[error("the spelling map {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not a JSON object of strings.
    #[error("the spelling map {} must be one JSON object of strings, as in a Whisper checkpoint: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
}

/// Contractions that are words of their own.
const CONTRACTIONS: &[(&str, &str)] = &[
    ("ain't", "aint"),
    ("can't", "can not"),
    ("coulda", "could have"),
    ("gonna", "going to"),
    ("gotta", "got to"),
    ("i'ma", "i am going to"),
    ("imma", "i am going to"),
    ("let's", "let us"),
    ("ma'am", "madam"),
    ("shoulda", "should have"),
    ("wanna", "want to"),
    ("won't", "will not"),
    ("woulda", "would have"),
    ("y'all", "you all"),
];

/// Titles; a space is added, for the name may follow the full stop at once.
const TITLES: &[(&str, &str)] = &[
    ("ald", "alderman "),
    ("assoc", "associate "),
    ("asst", "assistant "),
    ("capt", "captain "),
    ("col", "colonel "),
    ("dr", "doctor "),
    ("esq", "esquire "),
    ("gen", "general "),
    ("gov", "governor "),
    ("hon", "honorable "),
    ("jr", "junior "),
    ("lt", "lieutenant "),
    ("mr", "mister "),
    ("mrs", "missus "),
    ("pres", "president "),
    ("prof", "professor "),
    ("rep", "representative "),
    ("rev", "reverend "),
    ("sen", "senator "),
    ("sr", "senior "),
    ("st", "saint "),
];

/// Contracted endings before these participles are perfect tenses; elsewhere `'s` is read as "is", `'d` as "would".
const PERFECTS: &[(&str, &str)] = &[
    ("'d been", " had been"),
    ("'d done", " had done"),
    ("'d gone", " had gone"),
    ("'s been", " has been"),
    ("'s gone", " has gone"),
    ("'s got", " has got"),
];

/// Contracted endings.
const ENDINGS: &[(&str, &str)] = &[
    ("'d", " would"),
    ("'ll", " will"),
    ("'m", " am"),
    ("'re", " are"),
    ("'s", " is"),
    ("'t", " not"),
    ("'ve", " have"),
];

/// Drops hesitations and writes out what is contracted.
fn expand(text: &str) -> String {
    static HESITATIONS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:hmm|mm|mhm|mmm|uh|um)\b"));
    static BEFORE_APOSTROPHE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+'"));
    static WORDS: LazyLock<Table> = LazyLock::new(|| Table::new(r"\b", &[CONTRACTIONS, TITLES]));
    static PERFECT_ENDINGS: LazyLock<Table> = LazyLock::new(|| Table::new("", &[PERFECTS]));
    // Before the other endings: taking it off `i'dn't` leaves one more of them.
    static NEGATION: LazyLock<Regex> = LazyLock::new(|| pattern(r"n't\b"));
    static OTHER_ENDINGS: LazyLock<Table> = LazyLock::new(|| Table::new("", &[ENDINGS]));

    let text = HESITATIONS.replace_all(text, "");
    let text = BEFORE_APOSTROPHE.replace_all(&text, "'");
    let text = PERFECT_ENDINGS.replace(&WORDS.replace(&text));
    OTHER_ENDINGS.replace(&NEGATION.replace_all(&text, " not"))
}

/// Joins digits that commas group, and drops the full stops that are not decimal points.
fn drop_separators(text: &str) -> String {
    static COMMA: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\d),(\d)"));
    static FULL_STOP: LazyLock<Regex> = LazyLock::new(|| pattern(r"\.([^0-9]|$)"));
    FULL_STOP.replace_all(&COMMA.replace_all(text, "${1}${2}"), " ${1}").into_owned()
}

/// Drops the number symbols that stand by no number.
fn drop_stray_symbols(text: &str) -> String {
    static BEFORE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[.$¢€£]([^0-9])"));
    static AFTER: LazyLock<Regex> = LazyLock::new(|| pattern(r"([^0-9])%"));
    AFTER.replace_all(&BEFORE.replace_all(text, " ${1}"), "${1} ").into_owned()
}

/// Several replacements in one pass. They must end where a word ends.
struct Table {
    pattern: Regex,
    replacements: HashMap<&'static str, &'static str>,
}

impl Table {
    fn new(start: &str, entries: &[&[(&'static str, &'static str)]]) -> Self {
        let replacements: HashMap<_, _> = entries.concat().into_iter().collect();
        let keys: Vec<&str> = entries.concat().into_iter().map(|(key, _)| key).collect();
        Self { pattern: pattern(&format!(r"{start}(?:{})\b", keys.join("|"))), replacements }
    }

    fn replace(&self, text: &str) -> String {
        self.pattern.replace_all(text, |found: &Captures| self.replacements[&found[0]]).into_owned()
    }
}
