//! The task `traffic`: formal messages as the ARRL's National Traffic System sends them, and the traffic between
//! operators about them.
//!
//! A message is its number, precedence, station of origin, check (number of words in the text), place, time and date of
//! filing, then `=`, the text, `=`, the signature and `+`, and perhaps N (no more to follow), B (more to follow) or
//! `<KN>`. In short clips the preamble is short. In shorter ones, one operator only tells the other how many messages
//! there are, or that one was received.
//!
//! The rule: write every character, but the procedural signals by their names: `=` is `<BT>` and `+` is `<AR>`; `<SK>`,
//! `<KN>`, `<AS>` and `<BK>` are the same in any transcript. A full stop inside a text is sent as the word X, as is
//! usual on the key, and stays X; a question mark there is sent as QUERY.

use super::{
    callsign, lists,
    message::{LONGEST_TEXT, Message, Room},
};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, weighted, whole};

/// Texts of radiograms, with the slots `{city}`, `{name}`, `{n}` and `{day}`.
#[rustfmt::skip]
const SENTENCES: &[&str] = &[
    "ARRIVED SAFE", "ALL WELL", "ARRIVE {city} {day}", "LEAVING {city} {day}", "SEND {n} BLANKETS", "NEED WATER",
    "MEET {name} AT NOON", "MANY HAPPY RETURNS", "WEATHER FINE", "LOVE TO ALL", "ROAD CLOSED", "BRIDGE OUT",
    "POWER RESTORED", "PLEASE CALL {name}", "QUERY STATUS", "ARL FIFTY ONE", "ARL FORTY SIX", "ARL ONE", "NO INJURIES",
    "SHELTER OPEN", "{n} VOLUNTEERS NEEDED", "WILL WRITE SOON", "GREETINGS FROM {city}", "HAPPY BIRTHDAY {name}",
    "MEETING {day} NOON", "SUPPLIES LOW", "TRAIN LATE", "SEE YOU {day}", "WIRE REPLY", "GET WELL SOON", "NEED DOCTOR",
    "WATER SAFE", "ROAD OPEN", "COME HOME", "NO NEWS", "FUEL LOW", "NET TONIGHT", "ALL SAFE AT {city}",
];

const DAYS: &[&str] = &["MONDAY", "TUESDAY", "FRIDAY", "SUNDAY", "TODAY", "TONIGHT", "SOON"];

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// Number of attempts for each kind of message before a shorter one is tried.
const TRIES: usize = 8;
const SHORT_TRIES: usize = 40;

/// Returns the longest kind of message that fits, sometimes a shorter one.
pub(super) fn compose(room: &Room<'_>, rng: &mut ChaCha8Rng) -> Option<Message> {
    let first = weighted(rng, [4.0, 2.0, 2.0, 1.0, 0.5].into_iter());
    for preamble in first..4 {
        for _ in 0..TRIES {
            let message = message(&radiogram(preamble, rng));
            if fits(&message, room.wanted_s, room) {
                return Some(message);
            }
        }
    }
    let mut short = (0..SHORT_TRIES).map(|_| message(&between_operators(rng)));
    short.find(|message| fits(message, room.longest_s, room))
}

fn fits(message: &Message, limit_s: f64, room: &Room<'_>) -> bool {
    message.written.len() <= LONGEST_TEXT && room.seconds(&message.sent) <= limit_s
}

fn message(sent: &str) -> Message {
    Message { sent: sent.to_owned(), written: sent.replace('=', "<BT>").replace('+', "<AR>") }
}

/// Returns a message whose preamble is complete (0), without place, time and date (1), only number and precedence (2),
/// or absent (3), as in a book of messages with one preamble for all.
fn radiogram(preamble: usize, rng: &mut ChaCha8Rng) -> String {
    let (text, words) = body(rng);
    let signature = match whole(rng, 0..6) {
        0 => callsign::north_american(rng).call,
        1 => format!("{} {}", pick(rng, lists::NAMES), callsign::north_american(rng).call),
        _ => pick(rng, lists::NAMES).to_owned(),
    };
    let number = number(rng);
    let precedence = pick(rng, &["R", "R", "R", "R", "W", "P", "EMERGENCY"]);
    let head = match preamble {
        0 => {
            let (origin, city) = (callsign::north_american(rng).call, pick(rng, lists::CITIES));
            let filed = format!("{:02}{:02}Z", whole(rng, 0..24), whole(rng, 0..60));
            let date = format!("{} {}", pick(rng, MONTHS), whole(rng, 1..29));
            format!("NR {number} {precedence} {origin} {words} {city} {filed} {date} = ")
        }
        1 => format!("NR {number} {precedence} {} {words} = ", callsign::north_american(rng).call),
        2 => format!("NR {number} {precedence} = "),
        _ => "= ".to_owned(),
    };
    let end = pick(rng, &["+", "+", "+", "+ N", "+ B", "+ <KN>", "+ <SK>"]);
    format!("{head}{text} = {signature} {end}")
}

/// Returns one to three sentences separated by X, or groups of five; with the number of words.
fn body(rng: &mut ChaCha8Rng) -> (String, usize) {
    let text = if chance(rng, 0.15) {
        let groups = whole(rng, 1..6);
        let letter = |rng: &mut ChaCha8Rng| (b'A' + whole(rng, 0..26) as u8) as char;
        let group = |rng: &mut ChaCha8Rng| (0..5).map(|_| letter(rng)).collect::<String>();
        (0..groups).map(|_| group(rng)).collect::<Vec<_>>().join(" ")
    } else {
        let sentences = 1 + weighted(rng, [5.0, 3.0, 2.0].into_iter());
        (0..sentences).map(|_| sentence(rng)).collect::<Vec<_>>().join(" X ")
    };
    let words = text.split(' ').count();
    (text, words)
}

fn sentence(rng: &mut ChaCha8Rng) -> String {
    pick(rng, SENTENCES)
        .replace("{city}", pick(rng, lists::CITIES))
        .replace("{name}", pick(rng, lists::NAMES))
        .replace("{day}", pick(rng, DAYS))
        .replace("{n}", &whole(rng, 2..24).to_string())
}

fn number(rng: &mut ChaCha8Rng) -> usize {
    let most = pick(rng, &[10, 100, 1000]);
    whole(rng, 1..most)
}

/// Returns a remark of the operators about messages.
fn between_operators(rng: &mut ChaCha8Rng) -> String {
    let number = number(rng);
    let end = pick(rng, &["+", "+", "+", "+ K", "+ <KN>", "<KN>", "<SK>", "<BK>"]);
    let word = pick(rng, &["OK", "NIL", "HELP", "SAFE", "COME", "WAIT", "ALL WELL", "NO NEWS", "ROAD OPEN"]);
    match whole(rng, 0..14) {
        0 => format!("QTC {} {end}", whole(rng, 1..30)),
        1 => format!("R NR {number} {end}"),
        2 => format!("QSL {number} {end}"),
        3 => format!("NR {number} + {}", pick(rng, &["N", "B", "<KN>"])),
        4 => format!("<AS> {} {end}", whole(rng, 1..20)),
        5 => format!("<BK> NR {number} {end}"),
        6 => format!("CK {} {end}", whole(rng, 2..30)),
        7 => format!("QRU {end}"),
        8 => format!("RPT {number} {end}"),
        9 => format!("= {word} = {} +", pick(rng, lists::NAMES)),
        10 => format!("WA {word} {end}"),
        11 => format!("= {word} +"),
        12 => format!("NR {number} = {word} +"),
        _ => format!("NR {number} {end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::random;

    #[test]
    fn the_check_counts_the_words_of_the_text() {
        let rng = &mut random::stream(5, 1);
        for _ in 0..500 {
            let sent = radiogram(1, rng);
            let (head, rest) = sent.split_once(" = ").unwrap();
            let (text, signature) = rest.split_once(" = ").unwrap();
            let check: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
            assert_eq!(check, text.split(' ').count(), "{sent}");
            assert!(signature.contains('+'), "{sent}");
        }
    }

    #[test]
    fn prosigns_are_written_by_name() {
        let message = message("NR 1 R = ALL WELL X NO NEWS = BOB + <KN>");
        assert_eq!(message.written, "NR 1 R <BT> ALL WELL X NO NEWS <BT> BOB <AR> <KN>");
    }
}
