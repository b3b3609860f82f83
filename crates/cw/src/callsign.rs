//! Callsigns as assigned by the administrations of the world (ITU Radio Regulations, Appendix 42, and the national
//! plans for amateurs), and their locations: CQ zone, state or province, ARRL section.

use super::lists::{ANTENNAS, AREAS, Area, HOMES, Home};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, weighted, whole};

/// A licensed operator.
pub(super) struct Operator {
    pub call: String,
    /// CQ zone, 1 to 40.
    pub zone: u8,
    /// Location in the United States or Canada.
    pub home: Option<&'static Home>,
}

/// Draws an operator from anywhere; 35 % of them are from the United States or Canada.
pub(super) fn any(rng: &mut ChaCha8Rng) -> Operator {
    if chance(rng, 0.35) { north_american(rng) } else { overseas(rng) }
}

/// Draws one from a state of the United States, a province of Canada, Alaska, Hawaii or Puerto Rico.
pub(super) fn north_american(rng: &mut ChaCha8Rng) -> Operator {
    let home = &HOMES[weighted(rng, HOMES.iter().map(|home| f32::from(home.weight)))];
    let call = match home.prefixes {
        [] => united_states(home.district, rng),
        prefixes => format!("{}{}", pick(rng, prefixes), suffix(2, 3, rng)),
    };
    Operator { call, zone: home.zone, home: Some(home) }
}

/// Draws one from a state or province that counts as one in the ARRL's DX contest, so not from an island or Alaska.
pub(super) fn mainland(rng: &mut ChaCha8Rng) -> Operator {
    loop {
        let operator = north_american(rng);
        if operator.home.is_some_and(|home| !home.state.is_empty()) {
            return operator;
        }
    }
}

/// Draws one from elsewhere.
pub(super) fn overseas(rng: &mut ChaCha8Rng) -> Operator {
    let Area { prefixes, digits, letters: (least, most), zone, .. } =
        AREAS[weighted(rng, AREAS.iter().map(|area| f32::from(area.weight)))];
    let digit = pick(rng, digits.as_bytes()) as char;
    let call = format!("{}{digit}{}", pick(rng, prefixes), suffix(least, most, rng));
    Operator { call, zone, home: None }
}

/// Prefixes of countries in which foreign operators are guests.
const ABROAD: [&str; 10] = ["F", "DL", "EA8", "OE", "I", "ON", "SM", "W4", "VP5", "HB9"];

/// Returns the call as sent away from home, with the given probability.
pub(super) fn portable(call: &str, probability: f32, rng: &mut ChaCha8Rng) -> String {
    if !chance(rng, probability) {
        return call.to_owned();
    }
    match weighted(rng, [40.0, 20.0, 20.0, 5.0, 15.0].into_iter()) {
        0 => format!("{call}/P"),
        1 => format!("{call}/M"),
        2 => format!("{call}/QRP"),
        3 => format!("{call}/MM"),
        _ => match call.as_bytes()[0] {
            b'A' | b'K' | b'N' | b'W' | b'V' => format!("{call}/{}", whole(rng, 0..10)),
            _ => format!("{}/{call}", pick(rng, &ABROAD)),
        },
    }
}

/// Returns whether a word is a call as made by this module, at home or away. G5RV is excluded: it is an antenna named
/// after its inventor's call.
pub(super) fn is_callsign(word: &str) -> bool {
    if ANTENNAS.contains(&word) {
        return false;
    }
    match word.split_once('/') {
        None => is_home_call(word),
        Some((call, "P" | "M" | "MM" | "QRP" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9")) => {
            is_home_call(call)
        }
        Some((abroad, call)) => ABROAD.contains(&abroad) && is_home_call(call),
    }
}

fn is_home_call(word: &str) -> bool {
    let letters = |suffix: &str, least: usize, most: usize| {
        (least..=most).contains(&suffix.len()) && suffix.chars().all(|c| c.is_ascii_uppercase())
    };
    let of_area = AREAS.iter().any(|area| {
        area.prefixes.iter().filter_map(|prefix| word.strip_prefix(prefix)).any(|rest| {
            rest.starts_with(|digit| area.digits.contains(digit)) && letters(&rest[1..], area.letters.0, area.letters.1)
        })
    });
    let of_home = HOMES.iter().flat_map(|home| home.prefixes).filter_map(|prefix| word.strip_prefix(prefix));
    let of_district = || {
        let (prefix, suffix) = word.split_at(word.find(|c: char| c.is_ascii_digit()).unwrap_or(0));
        let least = match prefix.as_bytes() {
            [b'K' | b'N' | b'W'] => 2,
            [b'K' | b'N' | b'W', second] if second.is_ascii_uppercase() => 1,
            [b'A', b'A'..=b'K'] => 1,
            _ => return false,
        };
        letters(&suffix[1..], least, 3)
    };
    of_area || of_home.into_iter().any(|suffix| letters(suffix, 2, 3)) || of_district()
}

/// Returns a call of one of the ten districts, in the FCC's formats. KL, KH, KP and similar prefixes belong to Alaska
/// and the islands, and a suffix that starts with X to experiments.
fn united_states(district: char, rng: &mut ChaCha8Rng) -> String {
    let single = |rng: &mut ChaCha8Rng| pick(rng, &["K", "N", "W"]).to_owned();
    let double = |rng: &mut ChaCha8Rng| match pick(rng, b"AKNWKWKW") {
        b'A' => format!("A{}", pick(rng, b"ABCDEFGIJK") as char),
        first => format!("{}{}", first as char, pick(rng, b"ABCDEFGIJKMNOQRSTUVWXYZ") as char),
    };
    let (prefix, letters) = match weighted(rng, [15.0, 30.0, 5.0, 15.0, 35.0].into_iter()) {
        0 => (single(rng), 2),
        1 => (single(rng), 3),
        2 => (double(rng), 1),
        3 => (double(rng), 2),
        // Three letters after two are only assigned with K and W.
        _ => (format!("{}{}", pick(rng, &["K", "W"]), pick(rng, b"ABCDEFGIJKMNOQRSTUVWXYZ") as char), 3),
    };
    loop {
        let suffix = suffix(letters, letters, rng);
        if !suffix.starts_with('X') {
            return format!("{prefix}{district}{suffix}");
        }
    }
}

/// Returns letters that end a call. None starts with Q: QRA to QUZ would be Q-codes.
fn suffix(least: usize, most: usize, rng: &mut ChaCha8Rng) -> String {
    let first = pick(rng, b"ABCDEFGHIJKLMNOPRSTUVWXYZ") as char;
    let rest = whole(rng, least..=most) - 1;
    std::iter::once(first).chain((0..rest).map(|_| (b'A' + whole(rng, 0..26) as u8) as char)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::random;

    #[test]
    fn calls_look_like_calls() {
        let rng = &mut random::stream(1, 1);
        for _ in 0..5000 {
            let Operator { call, zone, .. } = any(rng);
            assert!((3..=7).contains(&call.len()), "{call}");
            assert!((1..=40).contains(&zone));
            let tail = call.rsplit(|c: char| c.is_ascii_digit()).next().unwrap();
            assert!((1..=3).contains(&tail.len()) && tail.len() + 2 <= call.len(), "{call}");
            assert!(call.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()), "{call}");
        }
    }

    #[test]
    fn calls_are_told_from_other_words() {
        let rng = &mut random::stream(1, 3);
        for _ in 0..20_000 {
            let call = any(rng).call;
            assert!(is_callsign(&call), "{call}");
            let call = portable(&call, 1.0, rng);
            assert!(is_callsign(&call), "{call}");
        }
        use super::super::lists::{ABBREVIATIONS, CITIES, NAMES, QUESTIONS, RIGS, WEATHER, WORDS};
        for list in [WORDS, ABBREVIATIONS, QUESTIONS, NAMES, CITIES, RIGS, ANTENNAS, WEATHER] {
            for word in list.iter().flat_map(|piece| piece.split(' ')) {
                assert!(!is_callsign(word), "{word}");
            }
        }
        for number in 0..4000 {
            let (short, long) = (number.to_string(), format!("{number:03}"));
            for word in [short, long] {
                let cut = word.replace('9', "N").replace('0', "T");
                assert!(![word, cut].iter().any(|word| is_callsign(word)), "{number}");
            }
        }
        for word in ["", "/", "K1", "5NN", "1D", "K1?", "DL1ABC/", "/P", "1TTW", "20M", "559", "<SK>", "QRZ?", "Ä1AA"]
        {
            assert!(!is_callsign(word), "{word}");
        }
    }

    #[test]
    fn portable_calls_have_a_stroke() {
        let rng = &mut random::stream(1, 2);
        assert_eq!(portable("DL1ABC", 0.0, rng), "DL1ABC");
        for _ in 0..100 {
            assert_eq!(portable("DL1ABC", 1.0, rng).matches('/').count(), 1);
        }
    }
}
