//! Texts to send: words, groups, callsigns and ordinary contacts. Contests are in `contest`.

use super::{CwSource, CwTask, CwText, callsign, contest, english, keying, lists, morse};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::{chance, pick, weighted, whole};

/// Draws a kind of text that the task uses.
pub(super) fn draw_source(task: CwTask, text: &CwText, rng: &mut ChaCha8Rng) -> CwSource {
    if let Some(own) = task.own_source() {
        return own;
    }
    if !text.fixed.is_empty() {
        return CwSource::Fixed;
    }
    let weights = text.weights();
    let drawn = weights.iter().map(|(source, _, weight)| if task.draws_from(*source) { *weight } else { 0.0 });
    weights[weighted(rng, drawn)].0
}

/// Texts for a clip in which not even the first character of a drawn text fits:
/// [`CwConfig::validate`](super::CwConfig::validate) checks that each of these does.
pub(super) const SHORTEST: [&str; 2] = ["E", "T"];

/// Number of attempts to draw another over if the next word would not fit.
const TRIES: usize = 4;

/// Returns a text that fills this number of units as well as possible; its last words may be beyond them. Contacts and
/// contests start as often in the middle of an over as at its start, as recordings do. Otherwise short clips would
/// never contain the end of an exchange.
pub(super) fn fill(source: CwSource, text: &CwText, units: f64, rng: &mut ChaCha8Rng) -> String {
    let length = |words: &[String]| morse::parse(&words.join(" ")).map_or(units, |words| keying::units(&words));
    let mut words: Vec<String> = Vec::new();
    let mut filled = 0.0;
    let mut misses = 0;
    while misses < TRIES {
        let mut over = over(source, text, rng);
        if words.is_empty() && chance(rng, 0.5) {
            over.drain(..whole(rng, 0..over.len()));
        }
        // The gap after the last word, 7 units, may be outside.
        if filled + length(&over[..1]) > units + 7.0 {
            misses += 1;
            if misses < TRIES || !words.is_empty() {
                continue;
            }
        }
        filled += length(&over);
        words.append(&mut over);
    }
    words.join(" ")
}

/// Returns one over of a sender, as words; never empty.
pub(super) fn over(source: CwSource, text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    match source {
        CwSource::Words | CwSource::Fixed | CwSource::Phrases | CwSource::Radiogram => vec![word(rng)],
        CwSource::Groups => vec![group(text.group_length, rng)],
        CwSource::Callsigns => vec![callsign::portable(&callsign::any(rng).call, text.portable, rng)],
        CwSource::Qso => qso(text, rng),
        CwSource::Cqww => contest::cqww(text, rng),
        CwSource::ArrlDx => contest::arrl_dx(text, rng),
        CwSource::Cqwpx => contest::cqwpx(text, rng),
        CwSource::FieldDay => contest::field_day(text, rng),
        CwSource::Sweepstakes => contest::sweepstakes(text, rng),
        CwSource::Beacons => beacon(text, rng),
        CwSource::Numbers => numbers(rng),
        CwSource::Scatter => vec![scatter(rng)],
        CwSource::Sentences => english::sentence(rng),
    }
}

fn word(rng: &mut ChaCha8Rng) -> String {
    let english = |rng: &mut ChaCha8Rng| pick(rng, lists::WORDS);
    match weighted(rng, [62.0, 24.0, 4.0, 3.0, 2.0, 2.0, 2.0, 1.0].into_iter()) {
        0 => {
            let mark = if chance(rng, 0.12) { pick(rng, &[",", ",", ".", ".", "?"]) } else { "" };
            format!("{}{mark}", english(rng))
        }
        1 => pick(rng, lists::ABBREVIATIONS).to_owned(),
        2 => format!("{}?", pick(rng, lists::QUESTIONS)),
        3 => pick(rng, &["=", "=", "=", "+", "<SK>", "<KN>", "<AS>", "<BK>"]).to_owned(),
        4 => format!("{}-{}", english(rng), english(rng)),
        5 => whole(rng, 0..10_000).to_string(),
        6 => format!("{}.{}", whole(rng, 0..60), whole(rng, 0..1000)),
        _ => format!("{}@{}", pick(rng, lists::NAMES), pick(rng, &["ARRL.NET", "QSL.NET", "DARC.DE", "RSGB.ORG"])),
    }
}

fn group([least, most]: [usize; 2], rng: &mut ChaCha8Rng) -> String {
    let all: Vec<char> = morse::characters().collect();
    let of: Vec<char> = match whole(rng, 0..4) {
        0 => all.into_iter().filter(char::is_ascii_uppercase).collect(),
        1 => all.into_iter().filter(char::is_ascii_digit).collect(),
        2 => all.into_iter().filter(char::is_ascii_alphanumeric).collect(),
        _ => all,
    };
    (0..whole(rng, least..=most)).map(|_| pick(rng, &of)).collect()
}

/// Returns the text of a beacon, twice or three times.
fn beacon(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let call = callsign::portable(&callsign::any(rng).call, text.portable, rng);
    let call = if chance(rng, 0.5) { format!("{call}/B") } else { call };
    let letter = |rng: &mut ChaCha8Rng, last: u8| char::from(whole(rng, usize::from(b'A')..=usize::from(last)) as u8);
    // A Maidenhead locator, with or without its subsquare: FN31 or FN31PR.
    let square = format!("{}{}{:02}", letter(rng, b'R'), letter(rng, b'R'), whole(rng, 0..100));
    let square = if chance(rng, 0.4) { format!("{square}{}{}", letter(rng, b'X'), letter(rng, b'X')) } else { square };
    let watts = pick(rng, &["1W", "2W", "5W", "10W", "50W", "100W", "100MW", "500MW"]);
    let sent = match whole(rng, 0..6) {
        0 => format!("VVV DE {call} {square}"),
        1 => format!("VVV VVV DE {call} {call} LOC {square} PWR {watts}"),
        2 => format!("HI HI DE {call} BEACON {square}"),
        3 => format!("{call} {square} {watts}"),
        4 => format!("DE {call} {call} {square} <SK>"),
        _ => format!("{call} BEACON {square} ANT {} {watts} +", pick(rng, lists::ANTENNAS)),
    };
    let times = whole(rng, 2..=3);
    vec![sent; times].iter().flat_map(|sent| sent.split(' ')).map(str::to_owned).collect()
}

/// Returns groups of five figures, a frequency, a time, a date, a sum, or a serial number.
fn numbers(rng: &mut ChaCha8Rng) -> Vec<String> {
    let mut number = |most: usize| whole(rng, 0..most);
    let text = match number(6) {
        0 | 1 => format!("{:05} {:05} {:05}", number(100_000), number(100_000), number(100_000)),
        2 => format!("{}.{}", 1 + number(30), number(1000)),
        3 => format!("{:02}{:02}Z", number(24), number(60)),
        4 => format!("{}-{}-{}", 1 + number(12), 1 + number(31), 1900 + number(130)),
        _ => format!("NR {}", 1 + number(2000)),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Returns one to eight symbols, including prosigns, uniformly distributed, so that none can be guessed from the
/// others.
fn scatter(rng: &mut ChaCha8Rng) -> String {
    let symbols: Vec<String> =
        morse::characters().map(String::from).chain(morse::prosigns().map(String::from)).collect();
    (0..whole(rng, 1..=8)).map(|_| symbols[whole(rng, 0..symbols.len())].as_str()).collect()
}

/// Returns one over of an ordinary contact.
fn qso(text: &CwText, rng: &mut ChaCha8Rng) -> Vec<String> {
    let me = callsign::portable(&callsign::any(rng).call, text.portable, rng);
    let them = callsign::any(rng).call;
    let name = pick(rng, lists::NAMES);
    let city = pick(rng, lists::CITIES);
    let greeting = pick(rng, &["GM", "GA", "GE"]);
    let report = format!("{}{}9", whole(rng, 3..=5), whole(rng, 3..=9));
    let watts = pick(rng, &["5", "10", "50", "100", "100", "200", "400", "1000"]);
    let rig = pick(rng, lists::RIGS);
    let antenna = pick(rng, lists::ANTENNAS);
    let height = whole(rng, 3..30);
    let weather = pick(rng, lists::WEATHER);
    let degrees = whole(rng, 0..36);
    let over = match whole(rng, 0..12) {
        0 => format!("CQ CQ CQ DE {me} {me} K"),
        1 => format!("CQ CQ DE {me} {me} PSE K"),
        2 => format!("{them} DE {me} {me} K"),
        3 => format!("{them} DE {me} = {greeting} OM ES TNX FER CALL = UR RST {report} {report}"),
        4 => format!("= NAME {name} {name} = QTH {city} {city} = HW CPY? + {them} DE {me} <KN>"),
        5 => format!("R R {greeting} DR {name} TNX FER RPRT = RIG {rig} PWR {watts}W = ANT {antenna} UP {height}M"),
        6 => format!("= WX {weather} TEMP {degrees}C = AGE {} = HAM {} YRS", whole(rng, 14..90), whole(rng, 1..60)),
        7 => format!("OK {name} = ALL OK = NW QRU = TNX QSO 73 ES GL + {them} DE {me} <SK>"),
        8 => format!("R FB {name} = QSL VIA BURO = 73 73 <SK> {them} DE {me} E E"),
        9 => format!("<BK> UR {report} {report} IN {city}, NAME {name} <BK>"),
        10 => format!("PSE <AS> QRM = UR NAME? {them} DE {me} <KN>"),
        _ => format!("QRL? QRL? DE {me}"),
    };
    over.split(' ').map(str::to_owned).collect()
}
