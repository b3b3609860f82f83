//! Overs of contest contacts, by the rules of each contest and the usual practice on the air.

use super::{
    CwText,
    callsign::{self, Operator},
};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, weighted, whole};

/// Report and CQ zone.
pub(super) fn cqww(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let me = callsign::any(rng);
    let cut = chance(rng, text.cut_numbers);
    let zone = if chance(rng, 0.5) { me.zone.to_string() } else { format!("{:02}", me.zone) };
    let exchange = vec![report(cut), shorten(zone, cut)];
    over(&me, "TEST", exchange, text, rng)
}

/// Report, then the state or province of those who have one, and the power of all others.
pub(super) fn arrl_dx(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let cut = chance(rng, text.cut_numbers);
    let me = if chance(rng, 0.5) { callsign::mainland(rng) } else { callsign::overseas(rng) };
    let sent = match me.home {
        Some(home) => home.state.to_owned(),
        None => {
            let power = pick(rng, &["5", "50", "100", "100", "100", "200", "400", "500", "1000", "1500", "K", "KW"]);
            shorten(power.to_owned(), cut)
        }
    };
    over(&me, "TEST", vec![report(cut), sent], text, rng)
}

/// Report and serial number.
pub(super) fn cqwpx(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let me = callsign::any(rng);
    let cut = chance(rng, text.cut_numbers);
    let exchange = vec![report(cut), serial(cut, rng)];
    over(&me, pick(rng, &["TEST", "TEST", "WPX"]), exchange, text, rng)
}

/// Class (transmitters and A to F) and section.
pub(super) fn field_day(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let me = if chance(rng, 0.97) { callsign::north_american(rng) } else { callsign::overseas(rng) };
    let exchange = vec![field_day_class(rng), section(&me, rng).to_owned()];
    over(&me, "FD", exchange, text, rng)
}

/// Transmitters and A to F.
pub(super) fn field_day_class(rng: &mut ChaCha8Rng) -> String {
    let transmitters = 1 + weighted(rng, [40.0, 20.0, 15.0, 8.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0].into_iter());
    let letter = match transmitters {
        1 => pick(rng, &["A", "B", "C", "D", "D", "E", "E"]),
        2 => pick(rng, &["A", "A", "B", "F"]),
        _ => pick(rng, &["A", "A", "A", "F"]),
    };
    format!("{transmitters}{letter}")
}

/// Serial number, precedence, callsign, check (the year of the first licence) and section.
pub(super) fn sweepstakes(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let me = callsign::north_american(rng);
    let cut = chance(rng, text.cut_numbers);
    let number = if chance(rng, 0.7) { whole(rng, 1..300) } else { whole(rng, 300..1500) };
    let mut exchange = if chance(rng, 0.3) { vec!["NR".to_owned()] } else { Vec::new() };
    exchange.extend([
        shorten(number.to_string(), cut),
        pick(rng, &["Q", "A", "A", "A", "B", "B", "U", "M", "S"]).to_owned(),
        me.call.clone(),
        format!("{:02}", (1948 + whole(rng, 0..77)) % 100),
        section(&me, rng).to_owned(),
    ]);
    over(&me, "SS", exchange, text, rng)
}

/// Returns the section; stations outside the United States and Canada send DX instead.
pub(super) fn section(operator: &Operator, rng: &mut ChaCha8Rng) -> &'static str {
    operator.home.map_or("DX", |home| pick(rng, home.sections))
}

/// Returns one over of a contact in which `me` sends `exchange`, running (calling CQ) or answering.
fn over(me: &Operator, contest: &str, exchange: Vec<String>, text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let call = callsign::portable(&me.call, text.portable / 4.0, rng);
    let them = callsign::any(rng).call;
    let exchange = exchange.join(" ");
    let over = match weighted(rng, [3.0, 2.0, 1.0, 1.0, 2.0, 8.0, 5.0, 3.0, 4.0, 2.0, 1.0, 1.0, 1.0].into_iter()) {
        0 => format!("CQ {contest} {call} {call} {contest}"),
        1 => format!("{contest} {call} {contest}"),
        2 => format!("CQ CQ {contest} DE {call} {call} K"),
        3 => format!("CQ {contest} {call}"),
        4 => call,
        5 => format!("{them} {exchange}"),
        6 => exchange,
        7 => format!("{} {exchange}", pick(rng, &["TU", "R", "QSL", "RR"])),
        8 => format!("TU {call} {contest}"),
        9 => format!("{them} TU {call}"),
        10 => format!("{}?", pick(rng, &["NR", "AGN", "CL", &them[..2], "QRZ", "CALL"])),
        11 => format!("DE {call} {call}"),
        _ => format!("{call} QRZ?"),
    };
    over.split(' ').map(str::to_owned).collect()
}

fn report(cut: bool) -> String {
    shorten("599".to_owned(), cut)
}

/// Draws a serial number with the usual distribution: most stations in a log have a low one.
pub(super) fn serial_number(rng: &mut ChaCha8Rng) -> usize {
    let most = pick(rng, &[30, 100, 300, 1000, 3000]);
    whole(rng, 1..=most)
}

fn serial(cut: bool, rng: &mut ChaCha8Rng) -> String {
    let number = serial_number(rng);
    shorten(if chance(rng, 0.5) { format!("{number:03}") } else { number.to_string() }, cut)
}

/// Replaces digits by cut numbers: N for 9, T for 0.
fn shorten(digits: String, cut: bool) -> String {
    if cut { digits.replace('9', "N").replace('0', "T") } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use undertone_data::random;

    #[test]
    fn cut_numbers_are_an_option() {
        assert_eq!(shorten("599".into(), true), "5NN");
        assert_eq!(shorten("1090".into(), true), "1TNT");
        assert_eq!(shorten("1090".into(), false), "1090");
        let rng = &mut random::stream(3, 1);
        let plain = CwText { cut_numbers: 0.0, ..CwText::default() };
        for _ in 0..300 {
            assert!(!cqwpx(&plain, rng).contains(&"5NN".to_owned()));
        }
    }

    #[test]
    fn all_85_sections_are_heard() {
        let rng = &mut random::stream(3, 2);
        let heard: BTreeSet<_> = (0..20_000).map(|_| section(&callsign::north_american(rng), rng)).collect();
        assert_eq!(heard.len(), 71 + 14);
    }
}
