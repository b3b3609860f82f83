//! English words that are parts of numbers.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Role of a word in a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Word {
    Zero,
    /// One to nineteen.
    Ones(u128),
    /// `twos`, `second`.
    OnesEnd(u128, &'static str),
    Tens(u128),
    /// `twenties`, `twentieth`.
    TensEnd(u128, &'static str),
    Multiplier(u128),
    /// `thousands`, `thousandth`.
    MultiplierEnd(u128, &'static str),
    /// Symbol before its number.
    Sign(char),
    /// Symbol after its number.
    Currency(char),
    Per,
    Percent,
    And,
    /// `double` and `triple`.
    Repeat(usize),
    Point,
}

impl Word {
    /// Returns whether the word can follow a decimal point.
    pub fn is_decimal(self) -> bool {
        matches!(self, Self::Zero | Self::Ones(_) | Self::Tens(_))
    }
}

/// Returns the role of this word in a number, if any.
pub(super) fn word(text: &str) -> Option<Word> {
    static WORDS: LazyLock<HashMap<String, Word>> = LazyLock::new(vocabulary);
    WORDS.get(text).copied()
}

/// From 1 on.
const ONES: [&str; 19] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
];
/// From 20 on.
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
/// By powers of a thousand.
const MULTIPLIERS: [&str; 11] = [
    "thousand", "million", "billion", "trillion", "quadrillion", "quintillion", "sextillion", "septillion",
    "octillion", "nonillion", "decillion",
];

fn vocabulary() -> HashMap<String, Word> {
    let mut words = HashMap::new();
    let mut add = |text: &str, word| {
        words.insert(text.to_string(), word);
    };
    for zero in ["o", "oh", "zero"] {
        add(zero, Word::Zero);
    }
    add("zeroth", Word::OnesEnd(0, "th"));
    for (value, name) in (1..).zip(ONES) {
        add(name, Word::Ones(value));
        let plural = if name == "six" { "sixes".to_string() } else { format!("{name}s") };
        add(&plural, Word::OnesEnd(value, "s"));
        match name {
            "one" => add("first", Word::OnesEnd(value, "st")),
            "two" => add("second", Word::OnesEnd(value, "nd")),
            "three" => add("third", Word::OnesEnd(value, "rd")),
            "five" => add("fifth", Word::OnesEnd(value, "th")),
            "twelve" => add("twelfth", Word::OnesEnd(value, "th")),
            "eight" => add("eighth", Word::OnesEnd(value, "th")),
            // The reference contains `nineth` and not `ninth`.
            _ => add(&format!("{name}th"), Word::OnesEnd(value, "th")),
        }
    }
    for (value, name) in (20..).step_by(10).zip(TENS) {
        let stem = name.trim_end_matches('y');
        add(name, Word::Tens(value));
        add(&format!("{stem}ies"), Word::TensEnd(value, "s"));
        add(&format!("{stem}ieth"), Word::TensEnd(value, "th"));
    }
    let powers = (1..).zip(MULTIPLIERS).map(|(power, name)| (1000u128.pow(power), name));
    for (value, name) in powers.chain([(100, "hundred")]) {
        add(name, Word::Multiplier(value));
        add(&format!("{name}s"), Word::MultiplierEnd(value, "s"));
        add(&format!("{name}th"), Word::MultiplierEnd(value, "th"));
    }
    for (name, sign) in [("minus", '-'), ("negative", '-'), ("plus", '+'), ("positive", '+')] {
        add(name, Word::Sign(sign));
    }
    for (name, symbol) in [("pound", '£'), ("euro", '€'), ("dollar", '$'), ("cent", '¢')] {
        add(name, Word::Currency(symbol));
        add(&format!("{name}s"), Word::Currency(symbol));
    }
    add("per", Word::Per);
    add("percent", Word::Percent);
    add("and", Word::And);
    add("double", Word::Repeat(2));
    add("triple", Word::Repeat(3));
    add("point", Word::Point);
    words
}
