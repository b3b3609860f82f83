//! Timing: from words to the times at which the key goes down and up, and the shape of the carrier in between.
//!
//! At `wpm` words per minute a unit lasts 1.2/wpm seconds: PARIS and the word gap after it are 50 units, and 50 units
//! 60/wpm seconds. A dit is 1 unit, a dah 3; the gaps are 1 inside a character, 3 between characters, 7 between words.

use super::morse::Symbol;
use std::{f64::consts::PI, ops::Range};

/// Jitter is truncated at this many standard deviations, so that the length of a text is bounded.
pub(super) const JITTER_LIMIT: f64 = 2.5;

/// Gap between characters that run together, in units: slightly more than the 1 inside a character.
const RUN_ON_GAP: f64 = 1.25;

/// Timing of one sender: speed, spacing, jitter and habits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fist {
    /// Speed of the characters, words per minute.
    pub wpm: f64,
    /// Speed of the text, words per minute: lower than `wpm` with Farnsworth spacing.
    pub effective_wpm: f64,
    /// Standard deviation of marks, as a fraction.
    pub mark_jitter: f64,
    /// Standard deviation of gaps, as a fraction.
    pub gap_jitter: f64,
    /// Share of a dit in a dit and its gap.
    pub weighting: f64,
    /// Lengthening of dahs, as a fraction.
    pub swing: f64,
    /// Length of a dah, in dits, and its additional variation compared with a dit.
    pub dah: f64,
    pub dah_jitter: f64,
    /// Gaps between characters and between words, in units.
    pub letter_gap: f64,
    pub word_gap: f64,
    /// Amplitude of the speed's variation, as a fraction; its frequency, and the phase at the start of the clip, from 0
    /// to 1.
    pub sway: f64,
    pub sway_period_s: f64,
    pub sway_phase: f64,
    /// Hesitations: the number of characters before each, and its length in seconds.
    pub hesitations: Vec<(usize, f64)>,
    /// Numbers of characters after which the gap is that of an element.
    pub run_ons: Vec<usize>,
}

impl Fist {
    /// Returns the timing of an electronic keyer.
    pub fn machine(wpm: f64, effective_wpm: f64) -> Self {
        Self {
            wpm,
            effective_wpm,
            mark_jitter: 0.0,
            gap_jitter: 0.0,
            weighting: 0.5,
            swing: 0.0,
            dah: 3.0,
            dah_jitter: 0.0,
            letter_gap: 3.0,
            word_gap: 7.0,
            sway: 0.0,
            sway_period_s: f64::INFINITY,
            sway_phase: 0.0,
            hesitations: Vec::new(),
            run_ons: Vec::new(),
        }
    }

    /// Returns the length of a dit in seconds.
    pub fn unit_s(&self) -> f64 {
        1.2 / self.wpm
    }

    /// Returns the mean length of a unit over a text, in seconds.
    pub fn effective_unit_s(&self) -> f64 {
        1.2 / self.effective_wpm
    }

    /// Returns the factor of every length at `time` seconds.
    fn stretch(&self, time: f64) -> f64 {
        1.0 + self.sway * (2.0 * PI * (time / self.sway_period_s + self.sway_phase)).sin()
    }

    /// Returns the length of the hesitation after this number of characters, in seconds.
    fn hesitation_s(&self, characters: usize) -> f64 {
        self.hesitations.iter().filter(|(after, _)| *after == characters).map(|(_, seconds)| seconds).sum()
    }

    /// Returns the unit of the gaps between characters and words, in seconds, by the ARRL's formula (QEX, April 1990).
    /// Of the 50 units of PARIS 31 belong to characters (37.2/c seconds at speed c) and 19 to gaps, which absorb the
    /// additional time of the slower speed s: (60/s - 37.2/c)/19 seconds each. With s = c that is 22.8/(19c) = 1.2/c.
    fn gap_unit_s(&self) -> f64 {
        (60.0 / self.effective_wpm - 37.2 / self.wpm) / 19.0
    }
}

/// Keyed symbols and their times.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Keyed {
    /// Key-down and key-up of every dit and dah, in seconds.
    pub elements: Vec<[f64; 2]>,
    pub symbols: Vec<KeyedSymbol>,
}

/// A symbol and its times.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyedSymbol {
    pub spelling: String,
    /// Index of its word, from 0.
    pub word: usize,
    /// Its elements, as a range of [`Keyed::elements`].
    elements: Range<usize>,
}

impl Keyed {
    /// Returns the last key-up, in seconds; 0 if nothing was keyed.
    pub fn end(&self) -> f64 {
        self.elements.last().map_or(0.0, |[_, up]| *up)
    }

    /// Returns the first key-down and last key-up of a symbol, in seconds.
    pub fn extent(&self, symbol: &KeyedSymbol) -> [f64; 2] {
        [self.elements[symbol.elements.start][0], self.elements[symbol.elements.end - 1][1]]
    }

    /// Keeps the symbols that are complete within `time`. Every element stays.
    pub fn keep_whole(&mut self, time: Range<f64>) {
        let Self { elements, symbols } = self;
        symbols.retain(|symbol| {
            let (first, last) = (elements[symbol.elements.start][0], elements[symbol.elements.end - 1][1]);
            first >= time.start && last <= time.end
        });
    }

    /// Returns the latest time up to `time` at which a recording may be cut. It is not in a gap inside a symbol,
    /// because the part before it would be another symbol; instead of such a gap it is the middle of the element
    /// before.
    pub fn cut_before(&self, time: f64) -> f64 {
        let torn = self.symbols.iter().find_map(|symbol| {
            let elements = &self.elements[symbol.elements.clone()];
            elements.windows(2).find(|pair| (pair[0][1]..pair[1][0]).contains(&time)).map(|pair| pair[0])
        });
        torn.map_or(time, |[down, up]| (down + up) / 2.0)
    }

    /// Keeps the first words.
    pub fn keep_words(&mut self, words: usize) {
        self.symbols.retain(|symbol| symbol.word < words);
        self.elements.truncate(self.symbols.last().map_or(0, |symbol| symbol.elements.end));
    }

    /// Delays everything.
    pub fn delay(&mut self, seconds: f64) {
        self.elements.iter_mut().flatten().for_each(|time| *time += seconds);
    }
}

/// Minimum share of a mark that jitter leaves: the jitter of dahs, in addition to that of all marks, could remove the
/// mark.
const SHORTEST_MARK: f64 = 0.05;

/// Keys as many whole words as end within `time`, in seconds; if the first word is too long, as many of its whole
/// symbols. `jitter` draws from a normal distribution truncated at [`JITTER_LIMIT`].
pub(super) fn key(words: &[Vec<Symbol>], fist: &Fist, time: Range<f64>, mut jitter: impl FnMut() -> f64) -> Keyed {
    // Weighting w makes a dit 2w units long and takes the difference from the gaps.
    let heavier = (2.0 * fist.weighting - 1.0) * fist.unit_s();
    let mut keyed = Keyed::default();
    let mut now = time.start;
    for (place, word) in words.iter().enumerate() {
        for (at, symbol) in word.iter().enumerate() {
            let first_element = keyed.elements.len();
            for (nth, element) in symbol.code.bytes().enumerate() {
                let gap = match (place, at, nth) {
                    (0, 0, 0) => None,
                    (_, 0, 0) => Some(fist.word_gap * fist.gap_unit_s()),
                    (_, _, 0) if fist.run_ons.contains(&keyed.symbols.len()) => Some(RUN_ON_GAP * fist.unit_s()),
                    (_, _, 0) => Some(fist.letter_gap * fist.gap_unit_s()),
                    _ => Some(fist.unit_s()),
                };
                if let Some(gap) = gap {
                    now += (gap - heavier) * (1.0 + fist.gap_jitter * jitter()) * fist.stretch(now);
                    if nth == 0 {
                        now += fist.hesitation_s(keyed.symbols.len());
                    }
                }
                let mark_jitter = fist.mark_jitter + if element == b'-' { fist.dah_jitter } else { 0.0 };
                let swung = if element == b'.' {
                    1.0
                } else if nth + 1 < symbol.code.len() {
                    fist.dah * (1.0 + fist.swing)
                } else {
                    fist.dah * (1.0 + fist.swing) * (1.0 + fist.swing)
                };
                let down = now;
                let shaken = (1.0 + mark_jitter * jitter()).max(SHORTEST_MARK);
                now += (swung * fist.unit_s() + heavier) * shaken * fist.stretch(now);
                keyed.elements.push([down, now]);
            }
            if now > time.end {
                keyed.elements.truncate(first_element);
                if place > 0 {
                    keyed.keep_words(place);
                }
                return keyed;
            }
            let elements = first_element..keyed.elements.len();
            keyed.symbols.push(KeyedSymbol { spelling: symbol.spelling.clone(), word: place, elements });
        }
    }
    keyed
}

/// Returns the length of a text keyed by a machine, in units, including the word gap after it.
pub(super) fn units(words: &[Vec<Symbol>]) -> f64 {
    let element = |code: &str| code.bytes().map(|e| if e == b'.' { 2.0 } else { 4.0 }).sum::<f64>();
    words.iter().flatten().map(|symbol| element(symbol.code) + 2.0).sum::<f64>() + 4.0 * words.len() as f64
}

/// Returns the carrier's amplitude, 0 to 1, at each of `length` samples, at `rate` samples per second. Edges are raised
/// cosines of `rise_s` around key-down and key-up; elements outside the clip are left out.
pub(super) fn envelope(elements: &[[f64; 2]], rise_s: f64, rate: f64, length: usize) -> Vec<f32> {
    let mut envelope = vec![0.0; length];
    let edge = |from_middle: f64| {
        if rise_s == 0.0 {
            return if from_middle < 0.0 { 0.0 } else { 1.0 };
        }
        0.5 - 0.5 * (PI * (from_middle / rise_s + 0.5).clamp(0.0, 1.0)).cos()
    };
    let sample = |time: f64| (time * rate).ceil().clamp(0.0, length as f64) as usize;
    for &[down, up] in elements {
        let half = rise_s / 2.0;
        // An element may be shorter than its edges; then they overlap, and the shape is their product.
        let risen = sample(down + half).min(sample(up - half));
        let falling = sample(up - half).max(risen);
        for (at, value) in (sample(down - half)..).zip(&mut envelope[sample(down - half)..risen]) {
            *value += edge(at as f64 / rate - down) as f32;
        }
        envelope[risen..falling].fill(1.0);
        for (at, value) in (falling..).zip(&mut envelope[falling..sample(up + half)]) {
            let time = at as f64 / rate;
            *value += (edge(time - down) * edge(up - time)) as f32;
        }
    }
    envelope
}

#[cfg(test)]
mod tests {
    use super::{super::morse::parse, *};

    fn machine(text: &str, wpm: f64, effective_wpm: f64) -> Keyed {
        key(&parse(text).unwrap(), &Fist::machine(wpm, effective_wpm), 0.0..f64::INFINITY, || 0.0)
    }

    fn starts(keyed: &Keyed) -> Vec<f64> {
        keyed.symbols.iter().map(|symbol| keyed.extent(symbol)[0]).collect()
    }

    #[test]
    fn paris_is_fifty_units() {
        let keyed = machine("PARIS PARIS", 20.0, 20.0);
        let dit = 1.2 / 20.0;
        assert!((starts(&keyed)[5] - 50.0 * dit).abs() < 1e-9);
        assert!((keyed.elements[0][1] - dit).abs() < 1e-12);
        assert!((keyed.elements[1][0] - 2.0 * dit).abs() < 1e-12);
        assert!((keyed.elements[1][1] - 5.0 * dit).abs() < 1e-12);
        assert_eq!(units(&parse("PARIS").unwrap()), 50.0);
    }

    #[test]
    fn farnsworth_follows_the_arrl_formula() {
        let (c, s) = (18.0, 5.0);
        let keyed = machine("PARIS PARIS", c, s);
        // The text runs at s words per minute, the characters at c.
        assert!((starts(&keyed)[5] - 60.0 / s).abs() < 1e-9);
        assert!((keyed.elements[0][1] - 1.2 / c).abs() < 1e-12);
        let added = (60.0 * c - 37.2 * s) / (s * c);
        let letter = starts(&keyed)[1] - keyed.extent(&keyed.symbols[0])[1];
        let word = starts(&keyed)[5] - keyed.extent(&keyed.symbols[4])[1];
        assert!((letter - 3.0 * added / 19.0).abs() < 1e-9);
        assert!((word - 7.0 * added / 19.0).abs() < 1e-9);
    }

    #[test]
    fn weighting_moves_time_from_gaps_to_marks() {
        let fist = Fist { weighting: 0.6, ..Fist::machine(20.0, 20.0) };
        let keyed = key(&parse("S").unwrap(), &fist, 0.0..1.0, || 0.0);
        assert!((keyed.elements[0][1] - 1.2 * 0.06).abs() < 1e-12);
        assert!((keyed.elements[1][0] - keyed.elements[0][1] - 0.8 * 0.06).abs() < 1e-12);
    }

    #[test]
    fn jitter_leaves_something_of_every_mark() {
        let fist = Fist { mark_jitter: 0.26, dah_jitter: 0.2, ..Fist::machine(20.0, 20.0) };
        let keyed = key(&parse("TMO").unwrap(), &fist, 0.0..10.0, || -2.5);
        assert_eq!(keyed.elements.len(), 6);
        assert!(keyed.elements.iter().all(|[down, up]| up > down), "{:?}", keyed.elements);
    }

    #[test]
    fn only_whole_words_are_keyed() {
        let words = parse("E PARIS").unwrap();
        let fist = Fist::machine(20.0, 20.0);
        let text = |seconds| -> String {
            key(&words, &fist, 0.0..seconds, || 0.0).symbols.iter().map(|s| s.spelling.as_str()).collect()
        };
        // E and the gap after it are 8 units, PARIS without its gap 43: 51 units of 0.06 s.
        assert_eq!(text(3.07), "EPARIS");
        assert_eq!(text(3.05), "E");
        let long = key(&words[1..], &fist, 0.0..2.2, || 0.0);
        assert_eq!(long.symbols.len(), 4);
        assert_eq!(long.elements.len(), 4 + 2 + 3 + 2);
        assert!(long.end() <= 2.2);
    }

    #[test]
    fn habits_change_dahs_gaps_and_time() {
        let fist =
            Fist { dah: 4.0, letter_gap: 2.0, word_gap: 9.0, hesitations: vec![(1, 0.5)], ..Fist::machine(20.0, 20.0) };
        let keyed = key(&parse("TE E").unwrap(), &fist, 0.0..9.0, || 0.0);
        // A dah of 4 dits of 60 ms, a gap of 2 and the hesitation, a dit, a gap of 9.
        assert!((keyed.elements[0][1] - 0.24).abs() < 1e-9);
        assert!((keyed.elements[1][0] - 0.86).abs() < 1e-9);
        assert!((keyed.elements[2][0] - 0.92 - 0.54).abs() < 1e-9);
        let swaying = Fist { sway: 0.2, sway_phase: 0.25, ..Fist::machine(20.0, 20.0) };
        let keyed = key(&parse("T").unwrap(), &swaying, 0.0..9.0, || 0.0);
        assert!((keyed.elements[0][1] - 0.18 * 1.2).abs() < 1e-9);
    }

    #[test]
    fn only_symbols_of_which_every_element_is_heard_are_whole() {
        let mut keyed = machine("SOS", 20.0, 20.0);
        let elements = keyed.elements.clone();
        // S lasts 5 units, the gap 3, O 11: from 0.48 s to 1.14 s.
        keyed.keep_whole(0.35..1.15);
        assert_eq!(keyed.symbols.iter().map(|symbol| symbol.spelling.as_str()).collect::<String>(), "O");
        assert_eq!(keyed.elements, elements);
        keyed.keep_whole(0.5..1.15);
        assert!(keyed.symbols.is_empty());
    }

    #[test]
    fn a_recording_is_cut_in_elements_and_between_symbols() {
        // The elements of A: 0 to 60 ms and 120 to 300 ms; T begins at 480 ms.
        let keyed = machine("AT", 20.0, 20.0);
        for time in [0.03, 0.2, 0.31, 0.47, 0.5] {
            assert_eq!(keyed.cut_before(time), time);
        }
        assert!((keyed.cut_before(0.09) - 0.03).abs() < 1e-9);
    }

    #[test]
    fn a_symbol_that_runs_on_leaves_the_gap_of_an_element() {
        let keyed =
            key(&parse("ANT").unwrap(), &Fist { run_ons: vec![1], ..Fist::machine(20.0, 20.0) }, 0.0..9.0, || 0.0);
        // A ends at 0.3 s and N lasts 5 units: it begins 1.25 units later, and T 3 units after its end.
        assert!((keyed.elements[2][0] - 0.375).abs() < 1e-9);
        assert!((keyed.elements[4][0] - 0.375 - 8.0 * 0.06).abs() < 1e-9);
    }

    #[test]
    fn edges_are_halfway_up_at_key_down_and_key_up() {
        let envelope = envelope(&[[0.01, 0.02], [0.0205, 0.03]], 0.005, 16_000.0, 640);
        assert!((envelope[160] - 0.5).abs() < 1e-6 && (envelope[480] - 0.5).abs() < 1e-6);
        assert_eq!(envelope[119], 0.0);
        assert_eq!(envelope[201], 1.0);
        assert!(envelope.iter().all(|value| (0.0..=1.0).contains(value)));
    }
}
