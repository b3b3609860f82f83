//! Plain English, as in chats between operators: sentences of a small grammar over common words, and sequences of words
//! drawn by their frequency, which contain more words than the grammar has.

use super::lists;
use std::sync::LazyLock;

use rand_chacha::ChaCha8Rng;
use undertone_data::random::{between, chance, pick, weighted, whole};

/// The 3000 most common English words, in descending order of frequency in encyclopedia articles, film reviews,
/// captions of pictures and tweets together.
static VOCABULARY: LazyLock<Vec<String>> =
    LazyLock::new(|| include_str!("vocabulary.txt").lines().map(str::to_ascii_uppercase).collect());

/// Returns one sentence, as words; two in five are words in random order.
pub(super) fn sentence(rng: &mut ChaCha8Rng) -> Vec<String> {
    if chance(rng, 0.4) {
        return (0..whole(rng, 3..=8)).map(|_| common(rng).to_owned()).collect();
    }
    let question = chance(rng, 0.12);
    let mut text = if question { ask(rng) } else { state(rng) };
    if !question && chance(rng, 0.3) {
        let joined = pick(rng, &["AND", "BUT", "SO", "BECAUSE", "AND THEN", "WHEN", "IF", "WHILE", "THOUGH", "ES"]);
        let comma = if chance(rng, 0.2) { "," } else { "" };
        text = format!("{text}{comma} {joined} {}", state(rng));
    }
    if chance(rng, 0.15) {
        text = format!("{} {text}", pick(rng, OPENERS));
    }
    let end = match (question, weighted(rng, [5.0, 3.0, 2.0].into_iter())) {
        (_, 0) => "",
        (true, _) => "?",
        (false, 1) => " =",
        (false, _) => ".",
    };
    format!("{text}{end}").split(' ').map(str::to_owned).collect()
}

/// Returns a word of the vocabulary. With u uniform and n words, word n·u² has a probability that falls with the square
/// root of its rank: flatter than in English, so that rare words occur, too.
fn common(rng: &mut ChaCha8Rng) -> &'static str {
    let uniform = f64::from(between(rng, [0.0, 1.0]));
    &VOCABULARY[((uniform * uniform * VOCABULARY.len() as f64) as usize).min(VOCABULARY.len() - 1)]
}

fn state(rng: &mut ChaCha8Rng) -> String {
    match whole(rng, 0..8) {
        0 | 1 => {
            let (subject, (_, past, _)) = (subject(rng), pick(rng, VERBS));
            format!("{subject} {past} {}{}", thing(rng), place(rng))
        }
        2 => {
            let (who, helper, (verb, _, _)) = (pick(rng, PEOPLE), pick(rng, HELPERS), pick(rng, VERBS));
            format!("{who} {helper} {verb} {}{}", thing(rng), time(rng))
        }
        3 => format!("{} {} {}{}", thing(rng), pick(rng, &["IS", "WAS"]), quality(rng), place(rng)),
        4 => {
            let ((who, is), (_, _, doing)) = (pick(rng, BEINGS), pick(rng, VERBS));
            format!("{who} {is} {doing} {}{}", thing(rng), time(rng))
        }
        5 => {
            let verb = pick(rng, &["IS", "WAS"]);
            format!("THERE {verb} {}{}{}", article(&phrase(rng)), place(rng), time(rng))
        }
        6 => {
            let (who, (verb, past, _)) = (pick(rng, PEOPLE), pick(rng, MOTIONS));
            let verb = if chance(rng, 0.5) { past.to_owned() } else { format!("{} {verb}", pick(rng, HELPERS)) };
            format!("{who} {verb}{}{}", place(rng), time(rng))
        }
        _ => format!(
            "{} {} {} {}",
            pick(rng, &["I", "I", "WE", "THEY", "YOU"]),
            pick(rng, VIEWS),
            thing(rng),
            pick(rng, &["IS FINE", "IS GOOD", "WORKS WELL", "NEEDS WORK", "WAS BAD", "HELPS A LOT", "IS ON THE AIR"])
        ),
    }
}

fn ask(rng: &mut ChaCha8Rng) -> String {
    let ((verb, _, doing), word) = (pick(rng, VERBS), pick(rng, &["WHAT", "WHY", "WHEN", "HOW", "WHERE"]));
    match whole(rng, 0..4) {
        0 => format!("DO YOU {verb} {}", thing(rng)),
        1 => format!("{word} DID YOU {verb} {}", thing(rng)),
        2 => format!("ARE YOU {doing} {}", thing(rng)),
        _ => format!("IS {} {}", thing(rng), quality(rng)),
    }
}

fn subject(rng: &mut ChaCha8Rng) -> String {
    match whole(rng, 0..6) {
        0 => pick(rng, lists::NAMES).to_owned(),
        1 => format!("{} {}", pick(rng, &["MY", "HIS", "OUR", "THE"]), pick(rng, FOLK)),
        _ => pick(rng, PEOPLE).to_owned(),
    }
}

fn phrase(rng: &mut ChaCha8Rng) -> String {
    let adjective = if chance(rng, 0.4) { format!("{} ", pick(rng, ADJECTIVES)) } else { String::new() };
    format!("{adjective}{}", pick(rng, NOUNS))
}

fn article(phrase: &str) -> String {
    format!("{} {phrase}", if phrase.starts_with(['A', 'E', 'I', 'O']) { "AN" } else { "A" })
}

fn thing(rng: &mut ChaCha8Rng) -> String {
    let phrase = phrase(rng);
    match whole(rng, 0..10) {
        0..=3 => format!("THE {phrase}"),
        4 | 5 => format!("{} {phrase}", pick(rng, &["MY", "MY", "YOUR", "HIS", "HER", "OUR", "THEIR", "THIS", "THAT"])),
        6 => format!(
            "{} OF THE {phrase}",
            pick(rng, &["ALL", "PART", "SOME", "MOST", "THE END", "THE REST", "ONE", "BOTH ENDS"])
        ),
        _ => article(&phrase),
    }
}

fn quality(rng: &mut ChaCha8Rng) -> String {
    let degree = if chance(rng, 0.5) { pick(rng, DEGREES) } else { "" };
    format!("{degree}{}", pick(rng, ADJECTIVES))
}

/// Returns a place with a space before it, or an empty text.
fn place(rng: &mut ChaCha8Rng) -> String {
    match whole(rng, 0..5) {
        0 | 1 => format!(" {} THE {}", pick(rng, PREPOSITIONS), pick(rng, NOUNS)),
        2 => format!(" {} {}", pick(rng, &["IN", "NEAR", "FROM", "TO"]), pick(rng, lists::CITIES)),
        _ => String::new(),
    }
}

/// Returns a time with a space before it, or an empty text.
fn time(rng: &mut ChaCha8Rng) -> String {
    if chance(rng, 0.4) { format!(" {}", pick(rng, TIMES)) } else { String::new() }
}

#[rustfmt::skip]
const OPENERS: &[&str] = &[
    "WELL", "OK", "YES", "NO", "R", "FB", "NOW", "ANYWAY", "OF COURSE", "I THINK", "I HOPE", "I GUESS", "YOU KNOW",
    "SORRY", "HI HI", "TODAY", "ALSO", "MAYBE", "BY THE WAY", "LAST NIGHT", "THIS MORNING", "ALRIGHT",
];

const PEOPLE: &[&str] = &["I", "I", "I", "I", "YOU", "YOU", "WE", "WE", "THEY", "HE", "SHE"];
#[rustfmt::skip]
const BEINGS: &[(&str, &str)] = &[
    ("I", "AM"), ("I", "WAS"), ("YOU", "ARE"), ("WE", "ARE"), ("WE", "WERE"), ("THEY", "ARE"), ("THEY", "WERE"),
    ("HE", "IS"), ("SHE", "WAS"), ("IM", "STILL"),
];
#[rustfmt::skip]
const FOLK: &[&str] = &[
    "WIFE", "XYL", "BROTHER", "SISTER", "SON", "DAUGHTER", "FATHER", "MOTHER", "FRIEND", "FRIENDS", "NEIGHBOR",
    "DOCTOR", "BOSS", "KIDS", "GIRLS", "BOYS", "FAMILY", "CREW", "CLUB", "OPERATOR", "PEOPLE", "OTHER GUYS", "DOG",
    "CAT", "UNCLE", "GRANDSON",
];
#[rustfmt::skip]
const HELPERS: &[&str] = &[
    "WILL", "WILL", "CAN", "COULD", "WOULD", "SHOULD", "MUST", "MAY", "MIGHT", "DID NOT", "DIDNT", "DONT", "CANT",
    "WONT", "HAVE TO", "WANT TO", "USED TO", "TRIED TO", "HOPE TO", "NEED TO", "WILL NEVER", "CAN EASILY", "HAD TO",
];
const VIEWS: &[&str] =
    &["THINK", "BELIEVE", "HOPE", "KNOW", "SAID", "HEARD", "SAID THAT", "KNOW THAT", "FOUND THAT", "GUESS"];
#[rustfmt::skip]
const DEGREES: &[&str] = &[
    "VERY ", "TOO ", "SO ", "QUITE ", "REALLY ", "RATHER ", "NOT ", "ALMOST ", "STILL ", "JUST ", "NOW ", "PRETTY ",
    "MUCH TOO ", "ALWAYS ", "NEVER ", "MOSTLY ", "ONLY ",
];
#[rustfmt::skip]
const PREPOSITIONS: &[&str] = &[
    "IN", "ON", "AT", "UNDER", "OVER", "BEHIND", "NEAR", "WITH", "WITHOUT", "FROM", "TO", "INTO", "BY", "FOR",
    "THROUGH", "BEFORE", "AFTER", "ACROSS", "AROUND", "OUTSIDE", "INSIDE", "BETWEEN", "AGAINST", "BELOW", "ABOVE",
    "PAST", "OUT OF",
];
#[rustfmt::skip]
const TIMES: &[&str] = &[
    "TODAY", "TOMORROW", "YESTERDAY", "TONIGHT", "LAST WEEK", "NEXT WEEK", "NEXT SUNDAY", "ON SATURDAY", "ON MONDAY",
    "IN JUNE", "THIS MORNING", "AROUND NOON", "EVERY DAY", "ALL DAY", "AGAIN", "NOW", "SOON", "LATER", "FOR YEARS",
    "TWICE", "AT NIGHT", "IN THE EVENING", "FOR A WHILE", "SINCE 1987", "AT 0730", "A MONTH AGO", "THESE DAYS",
    "IN AN HOUR", "FOR 20 YEARS",
];

/// Transitive verbs: present, past, and progressive.
#[rustfmt::skip]
const VERBS: &[(&str, &str, &str)] = &[
    ("HEAR", "HEARD", "HEARING"), ("BUILD", "BUILT", "BUILDING"), ("FIX", "FIXED", "FIXING"),
    ("BUY", "BOUGHT", "BUYING"), ("SELL", "SOLD", "SELLING"), ("MAKE", "MADE", "MAKING"), ("FIND", "FOUND", "FINDING"),
    ("LOSE", "LOST", "LOSING"), ("TAKE", "TOOK", "TAKING"), ("GIVE", "GAVE", "GIVING"), ("SEE", "SAW", "SEEING"),
    ("USE", "USED", "USING"), ("MOVE", "MOVED", "MOVING"), ("TURN", "TURNED", "TURNING"),
    ("CHECK", "CHECKED", "CHECKING"), ("TRY", "TRIED", "TRYING"), ("LOVE", "LOVED", "LOVING"),
    ("LIKE", "LIKED", "ENJOYING"), ("WATCH", "WATCHED", "WATCHING"), ("READ", "READ", "READING"),
    ("WRITE", "WROTE", "WRITING"), ("SEND", "SENT", "SENDING"), ("COPY", "COPIED", "COPYING"),
    ("CALL", "CALLED", "CALLING"), ("WORK", "WORKED", "WORKING"), ("PAINT", "PAINTED", "PAINTING"),
    ("CLEAN", "CLEANED", "CLEANING"), ("CARRY", "CARRIED", "CARRYING"), ("BREAK", "BROKE", "BREAKING"),
    ("CUT", "CUT", "CUTTING"), ("HOLD", "HELD", "HOLDING"), ("OPEN", "OPENED", "OPENING"),
    ("CLOSE", "CLOSED", "CLOSING"), ("RAISE", "RAISED", "RAISING"), ("LOWER", "LOWERED", "LOWERING"),
    ("TEST", "TESTED", "TESTING"), ("PULL", "PULLED", "PULLING"), ("PUSH", "PUSHED", "PUSHING"),
    ("EAT", "ATE", "EATING"), ("COOK", "COOKED", "COOKING"), ("DRIVE", "DROVE", "DRIVING"), ("KEEP", "KEPT", "KEEPING"),
    ("LEAVE", "LEFT", "LEAVING"), ("BRING", "BROUGHT", "BRINGING"), ("SHOW", "SHOWED", "SHOWING"),
    ("TELL", "TOLD", "TELLING"), ("ASK", "ASKED", "ASKING"), ("HELP", "HELPED", "HELPING"),
    ("KNOW", "KNEW", "LEARNING"), ("FEEL", "FELT", "FEELING"), ("CHANGE", "CHANGED", "CHANGING"),
    ("REPLACE", "REPLACED", "REPLACING"), ("PUT UP", "PUT UP", "PUTTING UP"), ("LOOK FOR", "LOOKED FOR", "LOOKING FOR"),
    ("PLUG IN", "PLUGGED IN", "PLUGGING IN"), ("WAIT FOR", "WAITED FOR", "WAITING FOR"),
    ("TALK ABOUT", "TALKED ABOUT", "TALKING ABOUT"), ("LISTEN TO", "LISTENED TO", "LISTENING TO"),
    ("PAY FOR", "PAID FOR", "PAYING FOR"), ("THINK OF", "THOUGHT OF", "THINKING OF"),
    ("PICK UP", "PICKED UP", "PICKING UP"), ("GET", "GOT", "GETTING"), ("DRAW", "DREW", "DRAWING"),
    ("CATCH", "CAUGHT", "CATCHING"), ("FEED", "FED", "FEEDING"), ("WASH", "WASHED", "WASHING"),
    ("CROSS", "CROSSED", "CROSSING"), ("MEET", "MET", "MEETING"), ("VISIT", "VISITED", "VISITING"),
    ("PLAN", "PLANNED", "PLANNING"), ("START", "STARTED", "STARTING"), ("STOP", "STOPPED", "STOPPING"),
    ("REMEMBER", "REMEMBERED", "REMEMBERING"), ("TUNE", "TUNED", "TUNING"), ("CHARGE", "CHARGED", "CHARGING"),
    ("LOAD", "LOADED", "LOADING"),
];
/// Intransitive verbs.
#[rustfmt::skip]
const MOTIONS: &[(&str, &str, &str)] = &[
    ("GO", "WENT", "GOING"), ("COME", "CAME", "COMING"), ("STAY", "STAYED", "STAYING"), ("LIVE", "LIVED", "LIVING"),
    ("WALK", "WALKED", "WALKING"), ("RUN", "RAN", "RUNNING"), ("SLEEP", "SLEPT", "SLEEPING"), ("SIT", "SAT", "SITTING"),
    ("STAND", "STOOD", "STANDING"), ("TRAVEL", "TRAVELED", "TRAVELING"), ("RETURN", "RETURNED", "RETURNING"),
    ("FLY", "FLEW", "FLYING"), ("PLAY", "PLAYED", "PLAYING"), ("WAIT", "WAITED", "WAITING"),
    ("CAMP", "CAMPED", "CAMPING"), ("OPERATE", "OPERATED", "OPERATING"), ("RETIRE", "RETIRED", "RETIRING"),
    ("SWIM", "SWAM", "SWIMMING"), ("SING", "SANG", "SINGING"), ("FALL", "FELL", "FALLING"),
];
#[rustfmt::skip]
const ADJECTIVES: &[&str] = &[
    "NEW", "OLD", "GOOD", "BAD", "BIG", "SMALL", "LONG", "SHORT", "HIGH", "LOW", "HOT", "COLD", "WARM", "WET", "DRY",
    "NICE", "FINE", "GREAT", "POOR", "EARLY", "LATE", "FAST", "SLOW", "LOUD", "QUIET", "WEAK", "STRONG", "CLEAR",
    "DARK", "BRIGHT", "HEAVY", "LIGHT", "FULL", "EMPTY", "OPEN", "EASY", "HARD", "CHEAP", "SIMPLE", "SERIOUS", "READY",
    "BUSY", "FREE", "HAPPY", "TIRED", "YOUNG", "RED", "BLUE", "GREEN", "BLACK", "WHITE", "BROWN", "YELLOW", "WOODEN",
    "LOCAL", "DIFFERENT", "SAME", "OTHER", "NEXT", "LAST", "FIRST", "SECOND", "BROKEN", "USEFUL", "USUAL", "REAL",
    "WHOLE", "HUGE", "TINY", "WIDE", "NARROW", "DEEP", "SOFT", "SHARP", "ROUND", "FLAT", "EXTRA", "PORTABLE",
    "VERTICAL", "NOISY", "SUNNY", "WINDY", "STEADY", "LOOSE", "SAFE", "FRESH", "FAMOUS", "AMAZING", "EXCELLENT",
    "TERRIBLE", "POSSIBLE", "IMPORTANT", "QUICK", "LAZY",
];
#[rustfmt::skip]
const NOUNS: &[&str] = &[
    "TIME", "YEAR", "DAY", "NIGHT", "MORNING", "EVENING", "WEEK", "MONTH", "SUMMER", "WINTER", "SPRING", "FALL",
    "WEEKEND", "HOUSE", "HOME", "ROOM", "DOOR", "WINDOW", "ROOF", "TOWER", "TREE", "GARDEN", "YARD", "FIELD", "FARM",
    "HILL", "MOUNTAIN", "RIVER", "LAKE", "SEA", "BEACH", "ISLAND", "COAST", "FOREST", "ROAD", "STREET", "BRIDGE",
    "TOWN", "CITY", "COUNTRY", "STATE", "WORLD", "CAR", "TRUCK", "BOAT", "TRAIN", "PLANE", "BIKE", "ENGINE",
    "BATTERY", "MOTOR", "WHEEL", "RADIO", "RIG", "ANTENNA", "DIPOLE", "BEAM", "KEY", "PADDLE", "BUG",
    "KEYER", "KEY BOARD", "COMPUTER", "PHONE", "RECEIVER", "TRANSMITTER", "AMPLIFIER", "TUBE", "FILTER", "CABLE",
    "COAX", "WIRE", "POWER", "POWER SUPPLY", "SWITCH", "METER", "SPEAKER", "HEADPHONES", "MICROPHONE", "SIGNAL",
    "NOISE", "BAND", "FREQUENCY", "STATION", "REPEATER", "BEACON", "CONTEST", "NET", "LOG", "CARD", "CODE", "MESSAGE",
    "WORD", "LETTER", "NUMBER", "NAME", "CALL", "REPORT", "QUESTION", "ANSWER", "STORY", "BOOK", "PAPER", "PICTURE",
    "MUSIC", "SONG", "SCHOOL", "CLASS", "TEACHER", "STUDENT", "JOB", "SHOP", "STORE", "OFFICE", "COMPANY", "MONEY",
    "PRICE", "BILL", "FOOD", "BREAD", "COFFEE", "TEA", "BEER", "WATER", "MILK", "BREAKFAST", "LUNCH", "DINNER", "CAKE",
    "FISH", "BIRD", "HORSE", "COW", "DOG", "CAT", "WEATHER", "RAIN", "SNOW", "WIND", "STORM", "SEASON",
    "CLOUD", "SUN", "MOON", "STAR", "SKY", "FIRE", "LIGHT", "HEAT", "ICE", "AIR", "GROUND", "STONE", "WOOD", "IRON",
    "COPPER", "GLASS", "BOX", "BAG", "TABLE", "CHAIR", "BED", "DESK", "CLOCK", "KNIFE", "TOOL", "HAMMER", "SCREW",
    "PAINT", "WALL", "FLOOR", "KITCHEN", "GARAGE", "SHACK", "BASEMENT", "ATTIC", "HAND", "HEAD", "EYE", "EAR", "FOOT",
    "HEART", "BACK", "MAN", "WOMAN", "CHILD", "FAMILY", "FRIEND", "DOCTOR", "PARTY", "GAME", "TEAM", "TRIP", "VACATION",
    "HOTEL", "CAMP", "MAP", "PLACE", "CORNER", "SIDE", "END", "START", "MIDDLE", "TOP", "PART", "PIECE", "KIND",
    "THING", "IDEA", "PLAN", "PROBLEM", "TROUBLE", "CHANCE", "LUCK", "HELP", "WORK", "PROJECT", "KIT", "CIRCUIT",
    "CHIP", "SCREEN", "PROGRAM", "FILE", "TEST", "RESULT", "LIST", "LINE", "CONVERSATION", "GENERATOR", "TRANSFORMER",
    "CONDENSER", "OSCILLATOR", "VACUUM", "QUARTZ", "JACKET", "ZOO", "INDEX",
];

#[cfg(test)]
mod tests {
    use super::{super::morse, *};
    use undertone_data::random;

    #[test]
    fn sentences_can_be_keyed_and_are_seldom_the_same() {
        let rng = &mut random::stream(1, 2);
        let sentences: std::collections::HashSet<String> = (0..2000).map(|_| sentence(rng).join(" ")).collect();
        assert!(sentences.len() > 1990, "{}", sentences.len());
        for sentence in &sentences {
            assert!(morse::parse(sentence).is_ok() && sentence.split(' ').all(|word| !word.is_empty()), "{sentence:?}");
        }
        let words: std::collections::HashSet<&str> =
            sentences.iter().flat_map(|sentence| sentence.split(' ')).collect();
        assert!(words.len() > 1800, "{}", words.len());
    }

    #[test]
    fn the_vocabulary_can_be_keyed_and_has_no_word_twice() {
        let different: std::collections::HashSet<&String> = VOCABULARY.iter().collect();
        assert_eq!(different.len(), VOCABULARY.len());
        assert!(VOCABULARY.iter().all(|word| word.bytes().all(|letter| letter.is_ascii_uppercase())));
    }
}
