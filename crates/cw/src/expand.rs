//! The task `expand`: phrases of a contact in Q-codes and abbreviations, with plain English as the label.
//!
//! The rule is the table below, phrase by phrase, with names and numbers as they were sent. Between phrases `=` may be
//! sent; the label has a comma there, or nothing after a question mark.

use super::{
    CwText, callsign, lists,
    message::{LONGEST_TEXT, Message, Room},
};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, whole};

/// Phrases as sent, and their meanings. A word in braces is the same on both sides, drawn anew each time; only `{wx}`
/// and `{ant}` have meanings of their own.
#[rustfmt::skip]
const PHRASES: &[(&str, &str)] = &[
    // Greetings and thanks
    ("GM {name}", "GOOD MORNING {name}"), ("GA {name}", "GOOD AFTERNOON {name}"), ("GE {name}", "GOOD EVENING {name}"),
    ("TNX FER QSO", "THANKS FOR THE CONTACT"), ("TNX FER CALL", "THANKS FOR THE CALL"), ("TNX {name}", "THANKS {name}"),
    ("TU", "THANK YOU"), ("GL {name}", "GOOD LUCK {name}"), ("73", "BEST REGARDS"), ("CUL", "SEE YOU LATER"),
    ("FB {name}", "FINE BUSINESS {name}"), ("DE {call}", "THIS IS {call}"),
    // The station
    ("UR RST {rst}", "YOUR REPORT IS {rst}"), ("QTH {city}", "MY LOCATION IS {city}"), ("NAME {name}", "MY NAME IS {name}"),
    ("RIG {rig}", "MY RADIO IS A {rig}"), ("PWR {watts}W", "MY POWER IS {watts} WATTS"), ("ANT {ant}", "MY ANTENNA IS A {ant}"),
    ("AGE {age}", "I AM {age} YEARS OLD"),
    // The weather
    ("WX {wx}", "THE WEATHER IS {wx}"), ("TEMP {temp}C", "THE TEMPERATURE IS {temp} CELSIUS"),
    // Q-codes as statements
    ("QRM HR", "THERE IS INTERFERENCE HERE"), ("QRN HR", "THERE IS STATIC HERE"), ("QSB", "YOUR SIGNAL IS FADING"),
    ("QRP {watts}W", "I AM USING LOW POWER OF {watts} WATTS"), ("QRT", "I AM CLOSING DOWN"),
    ("QRU", "I HAVE NOTHING MORE FOR YOU"), ("QRX {n} MIN", "WAIT {n} MINUTES"), ("QTR {time}", "THE TIME IS {time}"),
    ("QSL VIA BURO", "CONFIRM BY THE BUREAU"),
    // Requests and questions
    ("PSE QRS", "PLEASE SEND SLOWER"), ("PSE QSY UP {n}", "PLEASE MOVE UP {n}"), ("PSE AGN", "PLEASE REPEAT"),
    ("PSE RPT NAME", "PLEASE REPEAT YOUR NAME"), ("HW CPY?", "HOW DO YOU COPY?"), ("QTH?", "WHERE ARE YOU?"),
    ("QRL?", "IS THIS FREQUENCY BUSY?"), ("QRV?", "ARE YOU READY?"), ("WX?", "HOW IS THE WEATHER?"),
    ("UR NAME?", "WHAT IS YOUR NAME?"),
    // Conditions
    ("CONDX GUD", "CONDITIONS ARE GOOD"), ("SOLID CPY", "I COPY EVERYTHING"), ("UR SIGS FB", "YOUR SIGNALS ARE FINE"),
];

/// Weather as sent, and its meaning.
const WEATHER: &[(&str, &str)] = &[
    ("SUNNY", "SUNNY"),
    ("CLDY", "CLOUDY"),
    ("RAINY", "RAINY"),
    ("WET", "WET"),
    ("FB", "FINE"),
    ("COLD", "COLD"),
    ("HOT", "HOT"),
    ("WINDY", "WINDY"),
    ("FOGGY", "FOGGY"),
    ("CLR", "CLEAR"),
    ("WRM", "WARM"),
    ("DRY", "DRY"),
];

/// Antennas as sent, and their meanings.
const ANTENNAS: &[(&str, &str)] = &[
    ("DIPOLE", "DIPOLE"),
    ("DPL", "DIPOLE"),
    ("VERT", "VERTICAL"),
    ("GP", "GROUND PLANE"),
    ("LW", "LONG WIRE"),
    ("YAGI", "YAGI"),
    ("INV V", "INVERTED V"),
    ("LOOP", "LOOP"),
    ("QUAD", "QUAD"),
];

const MESSAGE_TRIES: usize = 8;
const PHRASE_TRIES: usize = 24;

/// Returns two to five different phrases; two may need more than the wanted length.
pub(super) fn compose(text: &CwText, room: &Room<'_>, rng: &mut ChaCha8Rng) -> Option<Message> {
    (0..MESSAGE_TRIES).find_map(|_| {
        let wanted = whole(rng, 2..=5);
        let pause = if chance(rng, 0.5) { " = " } else { " " };
        let (mut used, mut sent, mut written) = (Vec::new(), String::new(), String::new());
        for _ in 0..PHRASE_TRIES {
            let index = whole(rng, 0..PHRASES.len());
            let (code, meaning) = fill(PHRASES[index], text, rng);
            let longer = join(&sent, pause, &code);
            let meaning = join(&written, if written.ends_with('?') { " " } else { ", " }, &meaning);
            let limit_s = if used.len() < 2 { room.longest_s } else { room.wanted_s };
            if used.contains(&index) || meaning.len() > LONGEST_TEXT || room.seconds(&longer) > limit_s {
                continue;
            }
            used.push(index);
            (sent, written) = (longer, meaning);
            if used.len() == wanted {
                break;
            }
        }
        (used.len() >= 2).then_some(Message { sent, written })
    })
}

fn join(before: &str, between: &str, after: &str) -> String {
    if before.is_empty() { after.to_owned() } else { format!("{before}{between}{after}") }
}

/// Inserts names and numbers into a phrase.
fn fill((code, meaning): (&str, &str), text: &CwText, rng: &mut ChaCha8Rng) -> (String, String) {
    let (mut code, mut meaning) = (code.to_owned(), meaning.to_owned());
    while let Some(slot) = slot(&code) {
        let (sent, meant) = value(&slot, text, rng);
        code = code.replace(&slot, &sent);
        meaning = meaning.replace(&slot, &meant);
    }
    (code, meaning)
}

/// Returns the first slot of a phrase, with its braces.
fn slot(phrase: &str) -> Option<String> {
    let (start, end) = (phrase.find('{')?, phrase.find('}')?);
    Some(phrase[start..=end].to_owned())
}

/// Returns the text that is sent in a slot, and its meaning.
fn value(slot: &str, text: &CwText, rng: &mut ChaCha8Rng) -> (String, String) {
    let pair = |(sent, meant): (&str, &str)| (sent.to_owned(), meant.to_owned());
    let same = |value: String| (value.clone(), value);
    match slot {
        "{name}" => same(pick(rng, lists::NAMES).to_owned()),
        "{city}" => same(pick(rng, lists::CITIES).to_owned()),
        "{call}" => same(callsign::portable(&callsign::any(rng).call, text.portable, rng)),
        "{rig}" => same(pick(rng, lists::RIGS).to_owned()),
        "{rst}" => same(format!("{}{}9", whole(rng, 3..=5), whole(rng, 3..=9))),
        "{watts}" => same(pick(rng, &["1", "2", "5", "10", "20", "50", "75", "100", "200", "400", "500"]).to_owned()),
        "{time}" => same(format!("{:02}{:02}", whole(rng, 0..24), 5 * whole(rng, 0..12))),
        "{temp}" => same(whole(rng, 1..100).to_string()),
        "{age}" => same(whole(rng, 14..95).to_string()),
        "{wx}" => pair(pick(rng, WEATHER)),
        "{ant}" => pair(pick(rng, ANTENNAS)),
        // `{n}`
        _ => same(whole(rng, 1..31).to_string()),
    }
}

/// Returns the meaning of phrases without slots, sent without pauses.
#[cfg(test)]
pub(super) fn meaning(sent: &str) -> Option<String> {
    let of = |code: &str| PHRASES.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning);
    sent.split(' ').map(of).collect::<Option<Vec<_>>>().map(|meanings| meanings.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::morse;
    use std::collections::HashSet;
    use undertone_data::random;

    #[test]
    fn every_code_has_one_meaning() {
        let codes: HashSet<_> = PHRASES.iter().map(|(code, _)| code).collect();
        assert_eq!(codes.len(), PHRASES.len());
        assert!(codes.len() >= 40, "{}", codes.len());
        for pairs in [WEATHER, ANTENNAS] {
            assert_eq!(pairs.iter().map(|(code, _)| code).collect::<HashSet<_>>().len(), pairs.len());
        }
    }

    #[test]
    fn both_sides_of_a_phrase_have_the_same_slots() {
        const SLOTS: [&str; 12] = [
            "{name}", "{city}", "{call}", "{rig}", "{rst}", "{watts}", "{time}", "{temp}", "{age}", "{wx}", "{ant}",
            "{n}",
        ];
        let text = CwText::default();
        let rng = &mut random::stream(4, 1);
        for phrase in PHRASES {
            for slot in SLOTS {
                assert_eq!(phrase.0.contains(slot), phrase.1.contains(slot), "{phrase:?}");
            }
            for _ in 0..50 {
                let (code, meaning) = fill(*phrase, &text, rng);
                assert!(!code.contains(['{', '}']) && !meaning.contains(['{', '}']), "{code}: {meaning}");
                assert!(morse::parse(&code).is_ok() && morse::parse(&meaning).is_ok(), "{code}: {meaning}");
            }
        }
    }

    #[test]
    fn meanings_are_those_of_the_table() {
        let (code, meaning) = fill(("WX {wx}", "IT IS {wx}"), &CwText::default(), &mut random::stream(4, 2));
        let of = |code: &str| WEATHER.iter().find(|(known, _)| *known == code).unwrap().1;
        assert_eq!(meaning, format!("IT IS {}", of(code.trim_start_matches("WX "))));
    }
}
