//! The normaliser for English.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, io};

use regex::Regex;

use super::clean::{self, pattern};
use super::numbers;

/// Whisper's normaliser for English, with which its word error rates are published.
///
/// In addition to the steps of [`BasicNormalizer`](super::BasicNormalizer), it removes hesitations, spells out
/// contractions and titles and writes numbers in digits (`twenty five dollars` becomes `$25`). With the map of a
/// checkpoint's `normalizer.json` it converts British spellings to American ones.
///
/// Its results are those of `transformers`' `EnglishTextNormalizer`, oddities included, because published error rates
/// were computed with them. They differ for numbers of 39 digits and more, which are not multiplied.
#[derive(Debug, Clone, Default)]
pub struct EnglishNormalizer {
    spellings: HashMap<String, String>,
}

impl EnglishNormalizer {
    /// Returns a normaliser that leaves spellings as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a normaliser that replaces whole words by this map.
    pub fn with_spellings(spellings: HashMap<String, String>) -> Self {
        Self { spellings }
    }

    /// Returns a normaliser with the spellings of a `normalizer.json`, which Whisper checkpoints contain.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, NormalizerError> {
        let path = path.as_ref();
        let text = fs::read(path).map_err(|source| NormalizerError::Read { path: path.into(), source })?;
        Self::from_json(path, &text)
    }

    /// As [`from_file`](Self::from_file), from the file's content; error messages name `path`.
    pub fn from_json(path: impl AsRef<Path>, json: &[u8]) -> Result<Self, NormalizerError> {
        let wrong = |source| NormalizerError::Parse { path: path.as_ref().into(), source };
        Ok(Self { spellings: serde_json::from_slice(json).map_err(wrong)? })
    }

    /// Returns whether it replaces any spellings.
    pub fn has_spellings(&self) -> bool {
        !self.spellings.is_empty()
    }

    /// Returns the normalised text.
    pub fn normalize(&self, text: &str) -> String {
        let text = clean::remove_bracketed(&clean::lowercase(text));
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

/// Error of a spelling map that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NormalizerError {
    /// The file cannot be read.
    #[error("the spelling map {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a JSON object of strings.
    #[error("the spelling map {} must be one JSON object of strings, as in a Whisper checkpoint: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Error of the parser, with line and column.
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

/// Titles; a space is added, because the name may follow the full stop directly.
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

/// Contracted endings before these participles are perfect tenses; elsewhere `'s` is expanded to "is", `'d` to "would".
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

/// Sounds of hesitation, which are removed before a comparison.
const HESITATIONS: &[(&str, &str)] = &[("hmm", ""), ("mm", ""), ("mhm", ""), ("mmm", ""), ("uh", ""), ("um", "")];

/// Removes hesitations and expands contractions.
fn expand(text: &str) -> String {
    static SILENT: LazyLock<Table> = LazyLock::new(|| Table::of_words(&[HESITATIONS]));
    static BEFORE_APOSTROPHE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+'"));
    static WORDS: LazyLock<Table> = LazyLock::new(|| Table::of_words(&[CONTRACTIONS, TITLES]));
    static PERFECT_ENDINGS: LazyLock<Table> = LazyLock::new(|| Table::of_endings(&[PERFECTS]));
    // Before the other endings: removing it from `i'dn't` leaves another one.
    static NEGATION: LazyLock<Table> = LazyLock::new(|| Table::of_endings(&[&[("n't", " not")]]));
    static OTHER_ENDINGS: LazyLock<Table> = LazyLock::new(|| Table::of_endings(&[ENDINGS]));

    let text = SILENT.replace(text);
    let text = BEFORE_APOSTROPHE.replace_all(&text, "'");
    let text = PERFECT_ENDINGS.replace(&WORDS.replace(&text));
    OTHER_ENDINGS.replace(&NEGATION.replace(&text))
}

/// Joins digits that are grouped by commas, and removes full stops that are not decimal points.
fn drop_separators(text: &str) -> String {
    static COMMA: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\d),(\d)"));
    static FULL_STOP: LazyLock<Regex> = LazyLock::new(|| pattern(r"\.([^0-9]|$)"));
    FULL_STOP.replace_all(&COMMA.replace_all(text, "${1}${2}"), " ${1}").into_owned()
}

/// Removes number symbols that are not next to a number.
fn drop_stray_symbols(text: &str) -> String {
    static BEFORE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[.$¢€£]([^0-9])"));
    static AFTER: LazyLock<Regex> = LazyLock::new(|| pattern(r"([^0-9])%"));
    AFTER.replace_all(&BEFORE.replace_all(text, " ${1}"), "${1} ").into_owned()
}

/// Several replacements of words or of their endings, in one pass.
struct Table {
    pattern: Regex,
    replacements: HashMap<&'static str, &'static str>,
    /// Whether the key must begin the word.
    whole: bool,
}

impl Table {
    fn of_words(entries: &[&[(&'static str, &'static str)]]) -> Self {
        Self { whole: true, ..Self::of_endings(entries) }
    }

    fn of_endings(entries: &[&[(&'static str, &'static str)]]) -> Self {
        let replacements: HashMap<_, _> = entries.concat().into_iter().collect();
        let mut keys: Vec<&str> = replacements.keys().copied().collect();
        // The longest first: a key that another one starts with would match within the longer word.
        keys.sort_by_key(|key| (Reverse(key.len()), *key));
        Self { pattern: pattern(&keys.join("|")), replacements, whole: false }
    }

    /// Word boundaries are those of Python's `\b`: `²` is part of a word and a combining accent is not. The `\b` of
    /// Rust's `regex` treats both the other way round.
    fn replace(&self, text: &str) -> String {
        let (mut out, mut done, mut from) = (String::with_capacity(text.len()), 0, 0);
        while let Some(found) = self.pattern.find_at(text, from) {
            let begins = !self.whole || !text[..found.start()].chars().next_back().is_some_and(is_of_a_word);
            if begins && !text[found.end()..].chars().next().is_some_and(is_of_a_word) {
                out += &text[done..found.start()];
                out += self.replacements[found.as_str()];
                (done, from) = (found.end(), found.end());
            } else {
                // All keys begin with a character of one byte.
                from = found.start() + 1;
            }
        }
        out + &text[done..]
    }
}

fn is_of_a_word(character: char) -> bool {
    static OF_A_WORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\p{L}\p{N}_]$"));
    character.is_ascii_alphanumeric()
        || (!character.is_ascii_whitespace() && OF_A_WORD.is_match(character.encode_utf8(&mut [0; 4])))
}
