//! The task `log`: a contest over with an exchange, with a line of the log as the label.
//!
//! The rule, which does not depend on the contest:
//!
//! 1. The call is the one after DE, or else the only one. It comes first; calls are removed from the rest.
//! 2. The report, 599 in any cut form, comes next. Words of procedure (DE before a call, TU, R, TEST, a closing K) are
//!    removed, and a word sent twice in a row counts once.
//! 3. States, provinces and sections stay as they are, and so do K and KW for the power, classes (1D), and precedences.
//! 4. A word of figures and cut numbers becomes figures. Without a report (Field Day, Sweepstakes) only T and N are cut
//!    numbers; with one also A, U, V, E and D.
//! 5. A number after NR, or before a precedence, is a serial number and padded to three figures; any other of one or
//!    two figures is a zone (or a check) and padded to two; longer ones and those with W stay as they are.
//!
//! To make the rule valid, a serial number below 100 is sent with its zeros or after NR, and a power below 100 with W.

use super::{
    CwSource, CwText, callsign,
    callsign::Operator,
    contest,
    lists::HOMES,
    message::{Message, Room},
};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, weighted, whole};

const TRIES: usize = 40;

/// Digits that are sent as cut numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    No,
    Usual,
    All,
}

/// Letters sent for digits, the two usual ones first.
const CUT_NUMBERS: [(char, char); 7] =
    [('T', '0'), ('N', '9'), ('A', '1'), ('U', '2'), ('V', '3'), ('E', '5'), ('D', '8')];

const PRECEDENCES: [&str; 6] = ["Q", "A", "B", "U", "M", "S"];

/// Words that are sent around an exchange and are not part of it.
const PROCEDURE: [&str; 12] = ["TU", "R", "RR", "QSL", "UR", "TEST", "FD", "SS", "WPX", "CQ", "BK", "<BK>"];

/// Returns an over that fits and whose label by the rule is the intended one.
pub(super) fn compose(source: CwSource, text: &CwText, room: &Room<'_>, rng: &mut ChaCha8Rng) -> Option<Message> {
    (0..TRIES).find_map(|_| {
        let cut = match chance(rng, text.cut_numbers) {
            false => Cut::No,
            true => pick(rng, &[Cut::Usual, Cut::Usual, Cut::All]),
        };
        let contact = Contact::draw(source, cut, text, rng);
        let message = Message { sent: contact.over(rng), written: contact.line() };
        let read = line(&message.sent).is_some_and(|line| line == message.written);
        (read && room.seconds(&message.sent) <= room.longest_s).then_some(message)
    })
}

/// Content of one station's over.
struct Contact {
    contest: &'static str,
    call: String,
    them: String,
    /// Exchange as sent.
    sent: Vec<String>,
    /// Exchange as logged.
    logged: Vec<String>,
}

impl Contact {
    fn draw(source: CwSource, cut: Cut, text: &CwText, rng: &mut ChaCha8Rng) -> Self {
        let me = match source {
            CwSource::Sweepstakes => callsign::north_american(rng),
            CwSource::FieldDay if chance(rng, 0.97) => callsign::north_american(rng),
            CwSource::ArrlDx if chance(rng, 0.5) => callsign::mainland(rng),
            CwSource::FieldDay | CwSource::ArrlDx => callsign::overseas(rng),
            _ => callsign::any(rng),
        };
        let call = callsign::portable(&me.call, text.portable / 4.0, rng);
        let report = [(shorten("599", cut), "599".to_owned())];
        let same = |word: &str| (word.to_owned(), word.to_owned());
        let (contest, exchange): (_, Vec<(String, String)>) = match source {
            CwSource::Cqwpx => ("WPX", report.into_iter().chain(serial(cut, rng)).collect()),
            CwSource::ArrlDx => ("TEST", report.into_iter().chain([state_or_power(&me, cut, rng)]).collect()),
            CwSource::FieldDay => ("FD", vec![same(&contest::field_day_class(rng)), same(contest::section(&me, rng))]),
            CwSource::Sweepstakes => ("SS", sweepstakes(&me, &call, cut, rng)),
            _ => ("TEST", report.into_iter().chain([zone(&me, cut, rng)]).collect()),
        };
        let (sent, logged): (Vec<_>, Vec<_>) = exchange.into_iter().unzip();
        let logged = logged.into_iter().filter(|word| !word.is_empty()).collect();
        Self { contest, call, them: callsign::any(rng).call, sent, logged }
    }

    fn over(&self, rng: &mut ChaCha8Rng) -> String {
        let Self { contest, call, them, sent, .. } = self;
        let exchange = sent.join(" ");
        if sent.contains(call) {
            return match whole(rng, 0..6) {
                0 | 1 => exchange,
                2 => format!("R {exchange}"),
                3 => format!("DE {call} {exchange}"),
                4 => format!("{them} DE {call} {exchange}"),
                _ => format!("{exchange} TU"),
            };
        }
        let last = sent.last().map_or("", String::as_str);
        match weighted(rng, [4.0, 3.0, 3.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0].into_iter()) {
            0 => format!("{call} {exchange}"),
            1 => format!("DE {call} {exchange}"),
            2 => format!("DE {call} {exchange} K"),
            3 => format!("R {call} {exchange}"),
            4 => format!("TU {call} {exchange}"),
            5 => format!("{them} DE {call} {exchange}"),
            6 => format!("DE {call} {call} {exchange} K"),
            7 => format!("{call} UR {exchange}"),
            8 => format!("{exchange} DE {call}"),
            9 => format!("{call} {exchange} {last}"),
            10 => format!("{call} {exchange} <BK>"),
            11 => format!("{call} {exchange} {contest}"),
            12 => format!("QSL {call} {exchange} TU"),
            _ => format!("R {exchange} TU DE {call}"),
        }
    }

    fn line(&self) -> String {
        format!("{} {}", self.call, self.logged.join(" "))
    }
}

/// CQ zone.
fn zone(me: &Operator, cut: Cut, rng: &mut ChaCha8Rng) -> (String, String) {
    let logged = format!("{:02}", me.zone);
    let sent = if chance(rng, 0.5) { me.zone.to_string() } else { logged.clone() };
    (shorten(&sent, cut), logged)
}

/// Serial number, preceded by the word NR if it has fewer than three digits, and sometimes if it has not.
fn serial(cut: Cut, rng: &mut ChaCha8Rng) -> Vec<(String, String)> {
    let number = contest::serial_number(rng);
    let logged = format!("{number:03}");
    if chance(rng, 0.3) {
        vec![("NR".to_owned(), String::new()), (shorten(&number.to_string(), cut), logged)]
    } else {
        vec![(shorten(&logged, cut), logged)]
    }
}

fn state_or_power(me: &Operator, cut: Cut, rng: &mut ChaCha8Rng) -> (String, String) {
    let word = match me.home {
        Some(home) => home.state,
        None => pick(rng, &["5W", "50W", "100", "100", "100", "200", "400", "500", "1000", "1500", "K", "KW"]),
    };
    let sent = if me.home.is_none() { shorten(word, cut) } else { word.to_owned() };
    (sent, word.to_owned())
}

fn sweepstakes(me: &Operator, call: &str, cut: Cut, rng: &mut ChaCha8Rng) -> Vec<(String, String)> {
    let number = if chance(rng, 0.7) { whole(rng, 1..300) } else { whole(rng, 300..1500) };
    let cut = if cut == Cut::No { Cut::No } else { Cut::Usual };
    let same = |word: &str| (word.to_owned(), word.to_owned());
    let mut exchange = if chance(rng, 0.3) { vec![("NR".to_owned(), String::new())] } else { Vec::new() };
    exchange.extend([
        (shorten(&number.to_string(), cut), format!("{number:03}")),
        same(pick(rng, &["Q", "A", "A", "A", "B", "B", "U", "M", "S"])),
        // The call in the middle is at the start of the line.
        (call.to_owned(), String::new()),
        same(&format!("{:02}", (1948 + whole(rng, 0..77)) % 100)),
        same(contest::section(me, rng)),
    ]);
    exchange
}

fn shorten(figures: &str, cut: Cut) -> String {
    let letters = match cut {
        Cut::No => &[][..],
        Cut::Usual => &CUT_NUMBERS[..2],
        Cut::All => &CUT_NUMBERS[..],
    };
    let letter = |figure| letters.iter().find(|(_, of)| *of == figure).map_or(figure, |(letter, _)| *letter);
    figures.chars().map(letter).collect()
}

/// Returns the log line of a sent text, by the rule above; `None` if there is nothing to log.
fn line(sent: &str) -> Option<String> {
    let words: Vec<&str> = sent.split(' ').collect();
    let is_call = |place: usize| words.get(place).is_some_and(|word| callsign::is_callsign(word));
    let named = (0..words.len()).find(|place| words[*place] == "DE" && is_call(place + 1)).map(|place| place + 1);
    let call = words[named.or_else(|| (0..words.len()).find(|place| is_call(*place)))?];
    let mut rest: Vec<&str> = (0..words.len())
        .filter(|place| !(is_call(*place) || words[*place] == "DE" && is_call(place + 1)))
        .map(|place| words[place])
        .filter(|word| !PROCEDURE.contains(word))
        .collect();
    rest.dedup();
    let report = rest.iter().position(|word| figures(word, &CUT_NUMBERS).as_deref() == Some("599"));
    let letters = if report.is_some() { &CUT_NUMBERS[..] } else { &CUT_NUMBERS[..2] };
    let mut line = vec![call.to_owned()];
    line.extend(report.map(|_| "599".to_owned()));
    for (place, word) in rest.iter().enumerate() {
        let after = |other| place > 0 && rest[place - 1] == other;
        let closing = *word == "K" && report.is_none_or(|report| place != report + 1);
        if Some(place) == report || *word == "NR" || closing {
            continue;
        }
        let before_precedence = report.is_none() && rest.get(place + 1).is_some_and(|next| PRECEDENCES.contains(next));
        line.push(logged(word, letters, after("NR") || before_precedence));
    }
    (line.len() > 2).then(|| line.join(" "))
}

fn logged(word: &str, letters: &[(char, char)], serial: bool) -> String {
    if HOMES.iter().any(|home| home.state == word || home.sections.contains(&word)) {
        return word.to_owned();
    }
    match (figures(word, letters), word.strip_suffix('W').and_then(|power| figures(power, letters))) {
        (Some(number), _) if serial => format!("{number:0>3}"),
        (Some(number), _) => format!("{number:0>2}"),
        (None, Some(watts)) => format!("{watts}W"),
        (None, None) => word.to_owned(),
    }
}

/// Converts a word of digits and cut numbers to digits.
fn figures(word: &str, letters: &[(char, char)]) -> Option<String> {
    let figure = |character: char| match character {
        '0'..='9' => Some(character),
        _ => letters.iter().find(|(letter, _)| *letter == character).map(|(_, figure)| *figure),
    };
    word.chars().map(figure).collect::<Option<String>>().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_reads_what_is_on_the_air() {
        for (sent, written) in [
            ("DE K1ABC 5NN T4 K", "K1ABC 599 04"),
            ("K1ABC DE DL1XYZ ENN A4 A4", "DL1XYZ 599 14"),
            ("DL1XYZ 5NN K K", "DL1XYZ 599 K"),
            ("DL1XYZ 5NN ATT <BK>", "DL1XYZ 599 100"),
            ("DE K3AB 599 DE K", "K3AB 599 DE"),
            ("K4AB 5NN TN", "K4AB 599 TN"),
            ("R 5NN NR 7 TU DE OK1AA", "OK1AA 599 007"),
            ("OK1AA 5NN 1T23 WPX", "OK1AA 599 1023"),
            ("GM4AAA 5NN 5TW", "GM4AAA 599 50W"),
            ("W1AW 1D CT FD", "W1AW 1D CT"),
            ("R NR 1T A K1ABC 72 EMA", "K1ABC 010 A 72 EMA"),
        ] {
            assert_eq!(line(sent).as_deref(), Some(written), "{sent}");
        }
        assert_eq!(line("CQ TEST K1ABC"), None);
        assert_eq!(line("5NN T4"), None);
    }
}
