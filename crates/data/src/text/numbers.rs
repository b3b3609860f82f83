//! Conversion of English numbers in words to digits.
//!
//! `twenty twenty four` becomes `2024`, `one point five million dollars` becomes `$1500000`, `double oh seven` becomes
//! `007`. The text is read word by word, with one unfinished number as state ([`Reader`]).

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::clean::pattern;
use super::vocabulary::{Word, word};

/// Converts the numbers of a text to digits. The text must be in lower case and without punctuation.
pub(super) fn to_digits(text: &str) -> String {
    let text = separate(&halves(text));
    let words: Vec<&str> = text.split_whitespace().collect();
    polish(&Reader::read(&words).join(" "))
}

/// Converts `two and a half` to `two point five`.
fn halves(text: &str) -> String {
    static HALF: LazyLock<Regex> = LazyLock::new(|| pattern(r"\band\s+a\s+half\b"));
    let segments: Vec<&str> = HALF.split(text).collect();
    let mut parts = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        // With nothing before it, the half itself is removed too, as in the reference.
        let Some(last) = segment.split_whitespace().last() else { continue };
        parts.push(*segment);
        if index + 1 < segments.len() {
            let number = word(last).is_some_and(|word| word.is_decimal() || matches!(word, Word::Multiplier(_)));
            parts.push(if number { "point five" } else { "and a half" });
        }
    }
    parts.join(" ")
}

/// Inserts a space between digits and letters, unless the letters form an ordinal (`3rd`) or a plural (`1960s`).
fn separate(text: &str) -> String {
    static LETTER_DIGIT: LazyLock<Regex> = LazyLock::new(|| pattern("([a-z])([0-9])"));
    static DIGIT_LETTER: LazyLock<Regex> = LazyLock::new(|| pattern("([0-9])([a-z])"));
    static SUFFIX: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9])\s+(st|nd|rd|th|s)\b"));
    let text = LETTER_DIGIT.replace_all(text, "${1} ${2}");
    let text = DIGIT_LETTER.replace_all(&text, "${1} ${2}");
    SUFFIX.replace_all(&text, "${1}${2}").into_owned()
}

/// Converts `$2 and ¢7` to `$2.07`, `$0.07` to `¢7`, and a lone `1` to `one`, which is easier to read.
fn polish(text: &str) -> String {
    static WITH_CENTS: LazyLock<Regex> = LazyLock::new(|| pattern(r"([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b"));
    static CENTS_ONLY: LazyLock<Regex> = LazyLock::new(|| pattern(r"[€£$]0.([0-9]{1,2})\b"));
    static ONE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b1(s?)\b"));
    let text = WITH_CENTS.replace_all(text, |m: &Captures| format!("{}{}.{:0>2}", &m[1], &m[2], &m[3]));
    let text = CENTS_ONLY.replace_all(&text, |m: &Captures| match m[1].trim_start_matches('0') {
        "" => "¢0".to_string(),
        cents => format!("¢{cents}"),
    });
    ONE.replace_all(&text, "one${1}").into_owned()
}

/// An unfinished number.
enum Value {
    /// An amount, to which a smaller one may be added: `twenty` and then `four`.
    Amount(u128),
    /// Digits one after the other: `oh four`, `nineteen eighty`, `1.5`.
    Digits(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Amount(amount) => amount.to_string(),
            Self::Digits(digits) => digits.clone(),
        }
    }

    /// Returns the number times the multiplier; none if it is not whole, not a number (`1.2.3`) or beyond `u128`.
    fn times(&self, multiplier: u128) -> Option<u128> {
        match self {
            // In `two thousand five hundred`, only what follows the thousands is multiplied.
            Self::Amount(amount) => {
                let rest = amount % 1000;
                rest.checked_mul(multiplier)?.checked_add(amount - rest)
            }
            Self::Digits(digits) => {
                let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
                let unscaled = amount(&format!("{whole}{decimals}"))?;
                let scale = 10u128.checked_pow(u32::try_from(decimals.chars().count()).ok()?)?;
                let product = unscaled.checked_mul(multiplier)?;
                (product % scale == 0).then(|| product / scale)
            }
        }
    }
}

/// State of the word-by-word conversion. Every word goes to `out`, to the unfinished number, or to its sign.
#[derive(Default)]
struct Reader {
    out: Vec<String>,
    value: Option<Value>,
    prefix: Option<char>,
}

impl Reader {
    fn read(words: &[&str]) -> Vec<String> {
        let mut reader = Self::default();
        let mut index = 0;
        while index < words.len() {
            let previous = index.checked_sub(1).and_then(|previous| word(words[previous]));
            let next = words.get(index + 1).copied();
            index += reader.step(previous, words[index], next);
        }
        reader.flush();
        reader.out
    }

    /// Reads one word, and returns the number of words used: two if the word only has a meaning together with the next.
    fn step(&mut self, previous: Option<Word>, current: &str, next: Option<&str>) -> usize {
        if self.numeral(current) {
            return 1;
        }
        let Some(kind) = word(current) else {
            self.flush_and_emit(current);
            return 1;
        };
        let next_word = next.and_then(word);
        let number_follows = next_word.is_some() || next.is_some_and(is_numeral);
        match kind {
            Word::Zero => self.value = Some(Value::Digits(self.digits() + "0")),
            Word::Ones(ones) => self.value = Some(self.with_ones(ones, previous)),
            Word::Tens(tens) => self.value = Some(self.with_tens(tens)),
            Word::OnesEnd(ones, suffix) => self.emit(&(self.with_ones(ones, previous).text() + suffix)),
            Word::TensEnd(tens, suffix) => self.emit(&(self.with_tens(tens).text() + suffix)),
            Word::Multiplier(multiplier) => {
                let amount = self.times_or_flush(multiplier);
                self.value = Some(Value::Amount(amount));
            }
            Word::MultiplierEnd(multiplier, suffix) => {
                let amount = self.times_or_flush(multiplier);
                self.emit(&format!("{amount}{suffix}"));
            }
            Word::Sign(sign) => {
                self.flush();
                if number_follows {
                    self.prefix = Some(sign);
                } else {
                    self.emit(current);
                }
            }
            Word::Currency(symbol) if self.value.is_some() => {
                self.prefix = Some(symbol);
                self.flush();
            }
            Word::Percent => self.percent(current),
            Word::Per if self.value.is_some() && next == Some("cent") => {
                self.percent(current);
                return 2;
            }
            Word::Repeat(times) => match next_word {
                Some(Word::Zero) => return self.repeat("0", times),
                Some(Word::Ones(ones)) => return self.repeat(&ones.to_string(), times),
                _ => self.flush_and_emit(current),
            },
            // `two hundred and five` is one number.
            Word::And if number_follows && matches!(previous, Some(Word::Multiplier(_))) => {}
            Word::Point if next_word.is_some_and(Word::is_decimal) || next.is_some_and(is_numeral) => {
                self.value = Some(Value::Digits(self.digits() + "."));
            }
            // Before a word like `hundred`, the reference drops the point.
            Word::Point if number_follows => {}
            Word::Currency(_) | Word::Per | Word::And | Word::Point => self.flush_and_emit(current),
        }
        1
    }

    /// Reads a number that is already in digits, perhaps with a symbol before it.
    fn numeral(&mut self, current: &str) -> bool {
        let symbol = current.chars().next().filter(|first| "-+£€$¢".contains(*first));
        let number = symbol.map_or(current, |symbol| &current[symbol.len_utf8()..]);
        if !is_numeral(number) {
            return false;
        }
        if let Some(Value::Digits(digits)) = &mut self.value
            && digits.ends_with('.')
        {
            digits.push_str(current);
            return true;
        }
        self.flush();
        self.prefix = symbol.or(self.prefix);
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let amount = if decimals.chars().all(|digit| digit_of(digit) == Some(0)) { amount(whole) } else { None };
        self.value = Some(amount.map_or_else(|| Value::Digits(number.to_string()), Value::Amount));
        true
    }

    fn with_ones(&self, ones: u128, previous: Option<Word>) -> Value {
        match &self.value {
            // In `nineteen eighty four`, the four replaces the zero.
            Some(Value::Digits(digits)) if ones < 10 && matches!(previous, Some(Word::Tens(_))) => {
                let mut digits = digits.clone();
                digits.pop();
                Value::Digits(format!("{digits}{ones}"))
            }
            Some(value) if matches!(previous, Some(Word::Ones(_))) => Value::Digits(format!("{}{ones}", value.text())),
            _ => self.plus(ones, if ones < 10 { 10 } else { 100 }),
        }
    }

    fn with_tens(&self, tens: u128) -> Value {
        self.plus(tens, 100)
    }

    /// Adds if the amount has room for it, that is, if it is a multiple of `room`; otherwise concatenates the digits.
    fn plus(&self, amount: u128, room: u128) -> Value {
        match &self.value {
            None => Value::Amount(amount),
            Some(Value::Amount(before)) if before % room == 0 && before.checked_add(amount).is_some() => {
                Value::Amount(before + amount)
            }
            Some(before) => Value::Digits(format!("{}{amount}", before.text())),
        }
    }

    /// Returns the number so far times the multiplier; if that fails, outputs the number and returns the multiplier
    /// alone.
    fn times_or_flush(&mut self, multiplier: u128) -> u128 {
        let product = self.value.as_ref().and_then(|value| value.times(multiplier));
        product.unwrap_or_else(|| {
            self.flush();
            multiplier
        })
    }

    fn repeat(&mut self, digits: &str, times: usize) -> usize {
        self.value = Some(Value::Digits(self.digits() + &digits.repeat(times)));
        2
    }

    fn percent(&mut self, current: &str) {
        match &self.value {
            Some(value) => self.emit(&(value.text() + "%")),
            None => self.emit(current),
        }
    }

    /// Returns the digits of the number so far; the amount zero has none.
    fn digits(&self) -> String {
        match &self.value {
            None | Some(Value::Amount(0)) => String::new(),
            Some(value) => value.text(),
        }
    }

    fn flush_and_emit(&mut self, text: &str) {
        self.flush();
        self.emit(text);
    }

    /// Outputs the unfinished number.
    fn flush(&mut self) {
        if let Some(value) = &self.value {
            self.emit(&value.text());
        }
    }

    /// Outputs a text, after the sign or currency if there is one, and resets the state.
    fn emit(&mut self, text: &str) {
        let prefix = self.prefix.take();
        self.value = None;
        self.out.push(prefix.map_or_else(String::new, String::from) + text);
    }
}

/// Returns whether the text consists of digits of any script, perhaps with decimals.
fn is_numeral(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.chars().all(|digit| digit_of(digit).is_some());
    match text.split_once('.') {
        Some((whole, decimals)) => digits(whole) && digits(decimals),
        None => digits(text),
    }
}

/// Returns the whole number of these digits; none if there are no digits, or more than `u128` holds.
fn amount(digits: &str) -> Option<u128> {
    let digits: Option<String> = digits.chars().map(|digit| char::from_digit(digit_of(digit)?, 10)).collect();
    digits?.parse().ok()
}

/// Returns the value of a decimal digit of any script.
fn digit_of(character: char) -> Option<u32> {
    static DIGIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\p{Nd}$"));
    let is_digit = |character: char| DIGIT.is_match(character.encode_utf8(&mut [0; 4]));
    if character.is_ascii() || !is_digit(character) {
        return character.to_digit(10);
    }
    // In Unicode digits are in runs from 0 to 9, one or several in sequence.
    let before = (0..u32::from(character)).rev().map_while(char::from_u32).take_while(|character| is_digit(*character));
    Some(before.count() as u32 % 10)
}
