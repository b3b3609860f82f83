//! The task `callsigns`: pile-ups, contacts and contests, with the calls alone as the label.
//!
//! The rule: write every word that is a complete callsign, including the parts around its stroke, unless it equals the
//! last one written. Parts of calls (`K1?`), cut numbers and the names of rigs are no calls.

use super::{
    CwSource, CwText, callsign, lists,
    message::{LONGEST_TEXT, Message, Room},
    text,
};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, whole};

/// Number of attempts to draw a first over, and to draw another one after it.
const FIRST_TRIES: usize = 40;
const MORE_TRIES: usize = 4;

/// Returns whole overs up to the wanted length, the first of which contains a call.
pub(super) fn compose(source: CwSource, text: &CwText, room: &Room<'_>, rng: &mut ChaCha8Rng) -> Option<Message> {
    let mut said: Option<Message> = None;
    let mut tries = FIRST_TRIES;
    while tries > 0 {
        tries -= 1;
        let over = over(source, text, rng).join(" ");
        let sent = said.as_ref().map_or(over.clone(), |said| format!("{} {over}", said.sent));
        let written = heard(&sent);
        let limit_s = if said.is_some() { room.wanted_s } else { room.longest_s };
        let fits = !written.is_empty() && written.len() <= LONGEST_TEXT && room.seconds(&sent) <= limit_s;
        if fits {
            said = Some(Message { sent, written });
            tries = MORE_TRIES;
        }
    }
    said.filter(|said| said.sent != said.written)
}

/// Returns the callsigns in the sent text.
fn heard(sent: &str) -> String {
    let mut calls: Vec<&str> = sent.split(' ').filter(|word| callsign::is_callsign(word)).collect();
    calls.dedup();
    calls.join(" ")
}

fn over(source: CwSource, text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    // The overs of a contact are long; half of the time the end of one or a break is sent instead.
    if source != CwSource::Callsigns && (source != CwSource::Qso || chance(rng, 0.5)) {
        return text::over(source, text, rng);
    }
    let mut call = || callsign::portable(&callsign::any(rng).call, text.portable, rng);
    let (a, b) = (call(), call());
    if source == CwSource::Qso {
        let over = match whole(rng, 0..12) {
            0 => format!("DE {a} <KN>"),
            1 => format!("DE {a} K"),
            2 => format!("73 DE {a}"),
            3 => format!("R DE {a}"),
            4 => format!("{} {a}", pick(rng, &["GM", "GA", "GE", "TNX", "TU", "HI", "CL", "QRL?"])),
            5 => format!("CQ DE {a}"),
            6 => format!("{a} <SK>"),
            7 => format!("HW? {a}"),
            8 => format!("{a} DE {b} <KN>"),
            9 => format!("+ {a} DE {b} K"),
            10 => format!("<AS> {a}"),
            _ => format!("{} DE {a}", pick(rng, lists::NAMES)),
        };
        return over.split(' ').map(str::to_owned).collect();
    }
    let over = match whole(rng, 0..20) {
        0 => a,
        1 | 2 => format!("DE {a}"),
        3 | 4 => format!("{a} {a}"),
        5 => format!("{a} K"),
        6 => format!("DE {a} {a} K"),
        7 => format!("QRZ? {a}"),
        8 => format!("{a} UP"),
        9 => format!("TU {a}"),
        10 => format!("PSE {a} AGN"),
        11 => format!("{a} UR {}", pick(rng, &["5NN", "599", "579", "559"])),
        12 => format!("R {a} TU"),
        13 => format!("{a} DE {b}"),
        14 => format!("CQ DX DE {a} UP {}", whole(rng, 1..6)),
        15 => format!("{a} ES {b}"),
        16 => format!("ONLY {a}"),
        17 => format!("SRI {a} QRX"),
        18 => format!("NOT {a} = {b}"),
        _ => format!("{a} QSL TU DE {b}"),
    };
    over.split(' ').map(str::to_owned).collect()
}
