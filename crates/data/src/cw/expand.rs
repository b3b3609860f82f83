//! The task `expand`: phrases of a contact in Q-codes and abbreviations, written in plain English.
//!
//! The rule is the table below, phrase by phrase, with names and numbers as they were sent. Between phrases `=` may be
//! sent; a comma is written, and nothing after a question mark.

use super::{
    CwText, callsign, lists,
    random::{chance, pick, whole},
    task::{LONGEST_TEXT, Message, Room},
};
use rand_chacha::ChaCha8Rng;

/// What is sent and what it means; a word in braces is the same on both sides, drawn anew each time. Only `{wx}`,
/// `{ant}` and `{band}` have meanings of their own.
#[rustfmt::skip]
const PHRASES: &[(&str, &str)] = &[
    // Greetings and thanks
    ("GM {name}", "GOOD MORNING {name}"), ("GA {name}", "GOOD AFTERNOON {name}"), ("GE {name}", "GOOD EVENING {name}"),
    ("GN {name}", "GOOD NIGHT {name}"), ("GE", "GOOD EVENING"), ("GA", "GOOD AFTERNOON"), ("TU", "THANK YOU"),
    ("TNX FER QSO", "THANKS FOR THE CONTACT"), ("TNX FER CALL", "THANKS FOR THE CALL"),
    ("TNX FER RPRT", "THANKS FOR THE REPORT"), ("TNX {name}", "THANKS {name}"), ("DR {name}", "DEAR {name}"),
    ("GL {name}", "GOOD LUCK {name}"), ("GL", "GOOD LUCK"), ("73", "BEST REGARDS"), ("88", "LOVE AND KISSES"),
    ("CUL", "SEE YOU LATER"), ("HPE CUAGN", "I HOPE TO SEE YOU AGAIN"), ("CU {time}Z", "SEE YOU AT {time} UTC"),
    ("EE", "GOODBYE"), ("FB {name}", "FINE BUSINESS {name}"), ("VY FB", "VERY GOOD"),
    ("CONGRATS {name}", "CONGRATULATIONS {name}"),
    // The station
    ("UR RST {rst}", "YOUR REPORT IS {rst}"), ("RST {rst}", "THE REPORT IS {rst}"), ("QTH {city}", "MY LOCATION IS {city}"),
    ("QTH NR {city}", "MY LOCATION IS NEAR {city}"), ("OP {name}", "THE OPERATOR IS {name}"),
    ("NAME {name}", "MY NAME IS {name}"), ("RIG {rig}", "MY RADIO IS A {rig}"), ("PWR {watts}W", "MY POWER IS {watts} WATTS"),
    ("ANT {ant}", "MY ANTENNA IS A {ant}"), ("ANT UP {n}M", "MY ANTENNA IS {n} METERS HIGH"), ("AGE {age}", "I AM {age} YEARS OLD"),
    ("LIC {n} YRS", "LICENSED FOR {n} YEARS"), ("DE {call}", "THIS IS {call}"), ("CFM {n}", "I CONFIRM {n}"),
    // The weather
    ("WX {wx}", "THE WEATHER IS {wx}"), ("WX {wx} ES {wx2}", "THE WEATHER IS {wx} AND {wx2}"),
    ("TEMP {temp}C", "THE TEMPERATURE IS {temp} CELSIUS"), ("TEMP {temp}F", "THE TEMPERATURE IS {temp} FAHRENHEIT"),
    // Q-codes as statements
    ("QRM HR", "THERE IS INTERFERENCE HERE"), ("QRM DE {call}", "THERE IS INTERFERENCE FROM {call}"),
    ("QRN HR", "THERE IS STATIC HERE"), ("QSB", "YOUR SIGNAL IS FADING"), ("QRO {watts}W", "I AM INCREASING POWER TO {watts} WATTS"),
    ("QRP {watts}W", "I AM USING LOW POWER OF {watts} WATTS"), ("QRT", "I AM CLOSING DOWN"), ("QRU", "I HAVE NOTHING MORE FOR YOU"),
    ("QRV {band}", "I AM READY ON {band}"), ("QRX {n} MIN", "WAIT {n} MINUTES"), ("QRL", "I AM BUSY"),
    ("QTR {time}", "THE TIME IS {time}"), ("QSY {khz}", "I AM CHANGING TO {khz} KILOHERTZ"),
    ("QSL VIA BURO", "CONFIRM BY THE BUREAU"), ("QSL VIA {call}", "CONFIRM THROUGH {call}"),
    ("QTC {n}", "I HAVE {n} MESSAGES FOR YOU"), ("CLG {call}", "CALLING {call}"),
    // Requests and questions
    ("PSE QRS", "PLEASE SEND SLOWER"), ("PSE QRQ", "PLEASE SEND FASTER"), ("PSE QSY UP {n}", "PLEASE MOVE UP {n}"),
    ("PSE QSY DWN {n}", "PLEASE MOVE DOWN {n}"), ("PSE QSP {call}", "PLEASE RELAY TO {call}"), ("PSE AGN", "PLEASE REPEAT"),
    ("PSE QSL", "PLEASE CONFIRM"), ("PSE RPT NAME", "PLEASE REPEAT YOUR NAME"), ("HW CPY?", "HOW DO YOU COPY?"),
    ("QTH?", "WHERE ARE YOU?"), ("WX?", "HOW IS THE WEATHER?"), ("QRL?", "IS THIS FREQUENCY BUSY?"), ("QRM?", "IS THERE INTERFERENCE?"),
    ("QRV?", "ARE YOU READY?"), ("QTR?", "WHAT TIME IS IT?"), ("RIG?", "WHAT IS YOUR RADIO?"), ("UR NAME?", "WHAT IS YOUR NAME?"),
    ("QSL?", "DO YOU CONFIRM?"), ("QRU?", "DO YOU HAVE ANYTHING FOR ME?"), ("QRZ?", "WHO IS CALLING ME?"),
    // Conditions
    ("SRI QRM", "SORRY FOR THE INTERFERENCE"), ("SRI NIL", "SORRY NOTHING HEARD"), ("CONDX GUD", "CONDITIONS ARE GOOD"),
    ("CONDX PR", "CONDITIONS ARE POOR"), ("SOLID CPY", "I COPY EVERYTHING"), ("UR SIGS FB", "YOUR SIGNALS ARE FINE"),
    ("WKD {call}", "I WORKED {call}"), ("HRD {call}", "I HEARD {call}"), ("TEST", "THIS IS A CONTEST"), ("LSN UP {n}", "LISTENING UP {n}"),
];

/// Weather as it is sent, and what it means.
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

/// Antennas as they are sent, and what they are.
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

/// Two to five different phrases; two may need more than the wanted length.
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

/// Puts names and numbers into a phrase.
fn fill((code, meaning): (&str, &str), text: &CwText, rng: &mut ChaCha8Rng) -> (String, String) {
    let (mut code, mut meaning) = (code.to_owned(), meaning.to_owned());
    while let Some(slot) = slot(&code) {
        let (sent, meant) = value(&slot, text, rng);
        code = code.replace(&slot, &sent);
        meaning = meaning.replace(&slot, &meant);
    }
    (code, meaning)
}

/// The first slot of a phrase, with its braces.
fn slot(phrase: &str) -> Option<String> {
    let (start, end) = (phrase.find('{')?, phrase.find('}')?);
    Some(phrase[start..=end].to_owned())
}

/// What is sent in a slot, and what it means.
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
        "{khz}" => same(whole(rng, 7000..7040).to_string()),
        "{time}" => same(format!("{:02}{:02}", whole(rng, 0..24), 5 * whole(rng, 0..12))),
        "{temp}" => same(whole(rng, 1..100).to_string()),
        "{age}" => same(whole(rng, 14..95).to_string()),
        "{wx}" | "{wx2}" => pair(pick(rng, WEATHER)),
        "{ant}" => pair(pick(rng, ANTENNAS)),
        "{band}" => {
            let metres = pick(rng, &[10, 12, 15, 17, 20, 30, 40, 80, 160]);
            (format!("{metres}M"), format!("{metres} METERS"))
        }
        // `{n}`
        _ => same(whole(rng, 1..31).to_string()),
    }
}

/// What phrases without slots mean, sent without pauses.
#[cfg(test)]
pub(super) fn meaning(sent: &str) -> Option<String> {
    let of = |code: &str| PHRASES.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning);
    sent.split(' ').map(of).collect::<Option<Vec<_>>>().map(|meanings| meanings.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{super::random, *};
    use crate::cw::morse;
    use std::collections::HashSet;

    #[test]
    fn every_code_has_one_meaning() {
        let codes: HashSet<_> = PHRASES.iter().map(|(code, _)| code).collect();
        assert_eq!(codes.len(), PHRASES.len());
        assert!(codes.len() >= 80, "{}", codes.len());
        for pairs in [WEATHER, ANTENNAS] {
            assert_eq!(pairs.iter().map(|(code, _)| code).collect::<HashSet<_>>().len(), pairs.len());
        }
    }

    #[test]
    fn both_sides_of_a_phrase_have_the_same_slots() {
        const SLOTS: [&str; 15] = [
            "{name}", "{city}", "{call}", "{rig}", "{rst}", "{watts}", "{khz}", "{time}", "{temp}", "{age}", "{wx}",
            "{wx2}", "{ant}", "{band}", "{n}",
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
        let (code, meaning) =
            fill(("WX {wx} ES {wx2}", "{wx} AND {wx2}"), &CwText::default(), &mut random::stream(4, 2));
        let of = |code: &str| WEATHER.iter().find(|(known, _)| *known == code).unwrap().1;
        let words: Vec<_> = code.split(' ').collect();
        assert_eq!(meaning, format!("{} AND {}", of(words[1]), of(words[3])));
    }
}
