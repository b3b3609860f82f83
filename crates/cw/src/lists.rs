//! Building blocks of texts. Everything here is in [`super::morse::alphabet`], which a test checks.

/// A call area outside the United States and Canada.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub prefixes: &'static [&'static str],
    /// Digits that may follow the prefix.
    pub digits: &'static str,
    /// Minimum and maximum number of letters after the digit.
    pub letters: (usize, usize),
    /// CQ zone.
    pub zone: u8,
    /// Frequency on the air, relative to the others.
    pub weight: u8,
}

const fn area(
    prefixes: &'static [&'static str],
    digits: &'static str,
    letters: (usize, usize),
    zone: u8,
    weight: u8,
) -> Area {
    Area { prefixes, digits, letters, zone, weight }
}

const ALL: &str = "0123456789";

#[rustfmt::skip]
pub(super) const AREAS: &[Area] = &[
    // Europe
    area(&["DL", "DJ", "DK", "DF"], ALL, (2, 3), 14, 20), area(&["DD", "DG", "DH", "DM"], ALL, (2, 3), 14, 8),
    area(&["DO"], "123456789", (2, 3), 14, 3),
    area(&["G"], "345678", (2, 3), 14, 10), area(&["G"], "0124678", (3, 3), 14, 6), area(&["M"], "013567", (3, 3), 14, 8),
    area(&["2E"], "01", (3, 3), 14, 2), area(&["GM", "MM", "GW", "MW", "GI", "MI"], "034", (3, 3), 14, 5),
    area(&["GD", "GJ", "GU", "MD", "MJ", "MU"], "034", (3, 3), 14, 1), area(&["EI"], "2345679", (2, 2), 14, 3),
    area(&["F"], "568", (2, 3), 14, 7), area(&["F"], "14", (3, 3), 14, 4), area(&["TK"], "5", (2, 2), 15, 1),
    area(&["I"], "0123456789", (3, 3), 15, 5), area(&["IK", "IZ"], ALL, (3, 3), 15, 10), area(&["IU", "IW"], ALL, (3, 3), 15, 4),
    area(&["IT"], "9", (3, 3), 15, 2), area(&["IS"], "0", (3, 3), 15, 1),
    area(&["EA", "EB", "EC"], "123457", (1, 3), 14, 10), area(&["EA"], "6", (2, 3), 14, 1), area(&["EA"], "8", (2, 3), 33, 3),
    area(&["EA"], "9", (2, 3), 33, 1), area(&["CT"], "127", (3, 3), 14, 3), area(&["CU"], "2348", (2, 3), 14, 1),
    area(&["CT"], "3", (2, 3), 33, 1), area(&["PA", "PD", "PE"], "0123456789", (1, 3), 14, 6), area(&["PB", "PC"], ALL, (1, 3), 14, 1),
    area(&["ON", "OR", "OT"], "4567", (2, 3), 14, 4), area(&["LX"], "1", (2, 3), 14, 1), area(&["HB"], "9", (2, 3), 14, 4),
    area(&["HB"], "0", (2, 3), 14, 1), area(&["OE"], "123456789", (2, 3), 15, 4), area(&["OK", "OL"], "123456789", (1, 3), 15, 6),
    area(&["OM"], ALL, (1, 3), 15, 3), area(&["HA", "HG"], ALL, (1, 3), 15, 4), area(&["SP", "SQ"], "123456789", (2, 3), 15, 8),
    area(&["SN", "SO", "3Z"], "123456789", (1, 2), 15, 1), area(&["YO"], "23456789", (2, 3), 20, 4), area(&["LZ"], "1234569", (1, 3), 20, 4),
    area(&["YU", "YT"], "123456789", (1, 3), 15, 3), area(&["9A"], "123456789", (1, 3), 15, 3), area(&["S5"], ALL, (1, 3), 15, 4),
    area(&["E7"], "0123456789", (1, 3), 15, 1), area(&["Z3"], "1236", (1, 3), 15, 1), area(&["4O"], "1346", (1, 3), 15, 1),
    area(&["ZA"], "1", (1, 3), 15, 1), area(&["Z6"], "1", (2, 2), 15, 1), area(&["SV", "SW"], "1234678", (2, 3), 20, 3),
    area(&["SV"], "59", (2, 3), 20, 1), area(&["TA"], "123456789", (1, 3), 20, 1), area(&["OH"], "12345678", (2, 3), 15, 5),
    area(&["OH"], "0", (1, 3), 15, 1), area(&["SM", "SA"], "01234567", (2, 3), 14, 6), area(&["SE", "SK"], "0123567", (1, 2), 14, 1),
    area(&["LA", "LB"], "123456789", (1, 3), 14, 4), area(&["JW"], "1579", (2, 3), 40, 1), area(&["OZ"], "123456789", (2, 3), 14, 3),
    area(&["OU", "5P"], "123579", (1, 2), 14, 1), area(&["OY"], "1369", (1, 2), 14, 1), area(&["TF"], "1238", (2, 3), 40, 1),
    area(&["ES"], "0123456789", (2, 3), 15, 2), area(&["YL"], "123", (2, 3), 15, 2), area(&["LY"], "12345", (1, 3), 15, 3),
    area(&["UR", "UT", "UX", "US"], "0123456789", (2, 3), 16, 8), area(&["UW", "UY", "UZ"], ALL, (2, 3), 16, 3),
    area(&["EU", "EW"], "1234678", (2, 3), 16, 3), area(&["ER"], "1235", (1, 3), 16, 1),
    area(&["UA", "RA", "RN"], "1346", (2, 3), 16, 8), area(&["R"], "123467", (1, 3), 16, 4), area(&["UA"], "2", (2, 3), 15, 1),
    area(&["UA", "RA", "R"], "9", (2, 3), 17, 4), area(&["UA", "RA", "R"], "0", (2, 3), 18, 1), area(&["UA", "RA", "R"], "0", (2, 3), 19, 1), area(&["9H"], "13", (2, 3), 15, 1),
    area(&["T7"], "7", (1, 2), 15, 1), area(&["3A"], "2", (2, 2), 14, 1), area(&["C3"], "1", (2, 2), 14, 1), area(&["ZB"], "2", (2, 2), 14, 1),
    // Asia
    area(&["JA", "JH", "JR", "JE"], "123456789", (2, 3), 25, 12), area(&["JF", "JG", "JI", "JJ"], "1236", (3, 3), 25, 5),
    area(&["JA"], "0", (2, 3), 25, 1), area(&["7K", "7L", "7N"], "1234", (3, 3), 25, 1), area(&["HL", "DS"], "12345", (2, 3), 25, 2),
    area(&["BA", "BD", "BG", "BH"], "12345678", (2, 3), 24, 3), area(&["BY"], "1457", (2, 3), 24, 1), area(&["BV", "BX"], "2346", (2, 3), 24, 1),
    area(&["VR"], "2", (2, 3), 24, 1), area(&["VU"], "23", (2, 3), 22, 2), area(&["4S"], "7", (2, 3), 22, 1),
    area(&["HS", "E2"], "0123456789", (2, 3), 26, 1), area(&["XV"], "19", (2, 3), 26, 1), area(&["9M"], "24", (2, 3), 28, 1),
    area(&["9M"], "68", (2, 3), 28, 1), area(&["9V"], "1", (2, 2), 28, 1), area(&["YB", "YC"], "0123456789", (2, 3), 28, 2),
    area(&["DU"], "123479", (2, 3), 27, 1), area(&["JT"], "1", (1, 3), 23, 1), area(&["4X", "4Z"], "145", (2, 3), 20, 2),
    area(&["5B"], "4", (2, 3), 20, 1), area(&["OD"], "5", (2, 3), 20, 1), area(&["YK"], "1", (2, 2), 20, 1), area(&["JY"], "59", (2, 2), 20, 1),
    area(&["A4", "A6", "A7"], "1", (2, 2), 21, 1), area(&["A9"], "2", (2, 3), 21, 1), area(&["9K"], "2", (2, 2), 21, 1),
    area(&["HZ", "7Z"], "1", (2, 3), 21, 1), area(&["EK"], "36", (2, 3), 21, 1), area(&["4L"], "1268", (1, 2), 21, 1),
    area(&["4J", "4K"], "369", (1, 2), 21, 1), area(&["EP"], "2345", (2, 3), 21, 1), area(&["UN"], "1234567", (1, 3), 17, 2),
    area(&["UK"], "789", (1, 2), 17, 1), area(&["EX"], "28", (1, 3), 17, 1), area(&["EY"], "8", (2, 2), 17, 1),
    // Africa
    area(&["ZS"], "123456", (1, 3), 38, 2), area(&["V5"], "1", (2, 3), 38, 1), area(&["Z2"], "1", (2, 2), 38, 1), area(&["A2"], "25", (2, 2), 38, 1),
    area(&["CN"], "8", (2, 2), 33, 1), area(&["7X"], "2345", (2, 3), 33, 1), area(&["3V"], "8", (2, 2), 33, 1), area(&["SU"], "19", (2, 2), 34, 1),
    area(&["5A"], "1", (1, 2), 34, 1), area(&["D4"], "4", (2, 2), 35, 1), area(&["6W"], "17", (2, 2), 35, 1), area(&["TU"], "25", (2, 2), 35, 1),
    area(&["9G"], "15", (2, 2), 35, 1), area(&["5N"], "079", (2, 3), 35, 1), area(&["TR"], "8", (2, 2), 36, 1), area(&["TJ"], "1", (2, 2), 36, 1),
    area(&["9J"], "2", (2, 2), 36, 1), area(&["ET"], "3", (2, 2), 37, 1), area(&["5H"], "3", (2, 2), 37, 1),
    area(&["5Z"], "4", (2, 2), 37, 1), area(&["5X"], "17", (1, 2), 37, 1), area(&["FR"], "145", (2, 2), 39, 1),
    area(&["3B"], "8", (2, 2), 39, 1), area(&["5R"], "8", (2, 2), 39, 1), area(&["S7"], "9", (2, 2), 39, 1),
    // Central and South America
    area(&["XE", "XF"], "123", (1, 3), 6, 2), area(&["TG"], "9", (2, 3), 7, 1), area(&["TI"], "258", (2, 3), 7, 1), area(&["YN"], "259", (1, 3), 7, 1),
    area(&["HP"], "123", (2, 3), 7, 1), area(&["YS"], "1", (2, 3), 7, 1), area(&["HR"], "1259", (2, 3), 7, 1),
    area(&["CO", "CM"], "235678", (2, 3), 8, 2), area(&["HI"], "348", (2, 3), 8, 1), area(&["6Y"], "5", (2, 2), 8, 1), area(&["8P"], "6", (2, 2), 8, 1),
    area(&["ZF"], "12", (2, 2), 8, 1), area(&["VP"], "5", (2, 3), 8, 1), area(&["VP"], "9", (1, 2), 5, 1),
    area(&["FG", "FM"], "45", (2, 2), 8, 1),
    area(&["PJ"], "2", (1, 2), 9, 1), area(&["PJ"], "4", (1, 2), 9, 1), area(&["P4"], "0", (1, 2), 9, 1), area(&["9Y", "9Z"], "4", (1, 2), 9, 1),
    area(&["YV", "YY"], "124567", (2, 3), 9, 1), area(&["HK"], "134567", (2, 3), 9, 1), area(&["FY"], "5", (2, 2), 9, 1), area(&["8R"], "1", (1, 2), 9, 1),
    area(&["HC"], "125", (2, 3), 10, 1), area(&["OA"], "1456", (2, 3), 10, 1), area(&["CP"], "146", (2, 3), 10, 1),
    area(&["PY", "PP", "PU"], "123456789", (2, 3), 11, 5), area(&["PT", "ZV", "ZW"], "257", (1, 2), 11, 1), area(&["ZP"], "569", (2, 3), 11, 1),
    area(&["CE"], "12346", (2, 3), 12, 1), area(&["LU"], "123456789", (2, 3), 13, 4), area(&["LW", "LO"], "157", (1, 3), 13, 1), area(&["CX"], "1234679", (2, 3), 13, 1),
    // Pacific
    area(&["VK"], "123457", (2, 3), 30, 3), area(&["VK"], "68", (2, 3), 29, 1), area(&["ZL"], "1234", (1, 3), 32, 3), area(&["YJ"], "0", (2, 2), 32, 1),
    area(&["FK"], "148", (2, 2), 32, 1), area(&["FO"], "58", (2, 2), 32, 1), area(&["3D"], "2", (2, 2), 32, 1), area(&["P2"], "9", (2, 2), 28, 1),
    area(&["H4"], "4", (2, 2), 28, 1), area(&["KH"], "2", (1, 2), 27, 1), area(&["T8"], "8", (2, 2), 27, 1), area(&["V7"], "3", (2, 2), 31, 1),
];

/// A state, province or territory of the United States or Canada.
pub(super) struct Home {
    /// Digit of its United States call district.
    pub district: char,
    /// Prefixes, digit included, if it has its own.
    pub prefixes: &'static [&'static str],
    /// Abbreviation that it sends in the ARRL's DX contest; empty if it counts as DX.
    pub state: &'static str,
    /// ARRL and RAC sections.
    pub sections: &'static [&'static str],
    /// CQ zone.
    pub zone: u8,
    /// Frequency on the air, relative to the others.
    pub weight: u8,
}

const fn us(district: char, state: &'static str, sections: &'static [&'static str], zone: u8, weight: u8) -> Home {
    Home { district, prefixes: &[], state, sections, zone, weight }
}

const fn own(
    prefixes: &'static [&'static str],
    state: &'static str,
    sections: &'static [&'static str],
    zone: u8,
    weight: u8,
) -> Home {
    Home { district: '0', prefixes, state, sections, zone, weight }
}

#[rustfmt::skip]
pub(super) const HOMES: &[Home] = &[
    us('1', "CT", &["CT"], 5, 4), us('1', "MA", &["EMA", "WMA"], 5, 6), us('1', "ME", &["ME"], 5, 2), us('1', "NH", &["NH"], 5, 4),
    us('1', "RI", &["RI"], 5, 2), us('1', "VT", &["VT"], 5, 2),
    us('2', "NJ", &["NNJ", "SNJ"], 5, 5), us('2', "NY", &["ENY", "NLI", "NNY", "WNY"], 5, 6),
    us('3', "DE", &["DE"], 5, 2), us('3', "MD", &["MDC"], 5, 5), us('3', "DC", &["MDC"], 5, 1), us('3', "PA", &["EPA", "WPA"], 5, 7),
    us('4', "AL", &["AL"], 4, 3), us('4', "FL", &["NFL", "SFL", "WCF"], 5, 6), us('4', "GA", &["GA"], 5, 4), us('4', "KY", &["KY"], 4, 2),
    us('4', "NC", &["NC"], 5, 5), us('4', "SC", &["SC"], 5, 2), us('4', "TN", &["TN"], 4, 4), us('4', "VA", &["VA"], 5, 6),
    us('5', "AR", &["AR"], 4, 2), us('5', "LA", &["LA"], 4, 2), us('5', "MS", &["MS"], 4, 1), us('5', "NM", &["NM"], 4, 2),
    us('5', "OK", &["OK"], 4, 2), us('5', "TX", &["NTX", "STX", "WTX"], 4, 7),
    us('6', "CA", &["EB", "LAX", "ORG", "SB", "SCV", "SDG", "SF", "SJV", "SV"], 3, 10),
    us('7', "AZ", &["AZ"], 3, 4), us('7', "ID", &["ID"], 3, 2), us('7', "MT", &["MT"], 4, 2), us('7', "NV", &["NV"], 3, 2),
    us('7', "OR", &["OR"], 3, 3), us('7', "UT", &["UT"], 3, 2), us('7', "WA", &["EWA", "WWA"], 3, 5), us('7', "WY", &["WY"], 4, 1),
    us('8', "MI", &["MI"], 4, 4), us('8', "OH", &["OH"], 4, 6), us('8', "WV", &["WV"], 5, 1),
    us('9', "IL", &["IL"], 4, 5), us('9', "IN", &["IN"], 4, 3), us('9', "WI", &["WI"], 4, 4),
    us('0', "CO", &["CO"], 4, 4), us('0', "IA", &["IA"], 4, 2), us('0', "KS", &["KS"], 4, 2), us('0', "MN", &["MN"], 4, 4),
    us('0', "MO", &["MO"], 4, 3), us('0', "ND", &["ND"], 4, 1), us('0', "NE", &["NE"], 4, 1), us('0', "SD", &["SD"], 4, 1),
    own(&["KL7", "AL7", "NL7", "WL7", "KL5"], "", &["AK"], 1, 1), own(&["KH6", "AH6", "NH6", "WH6", "KH7"], "", &["PAC"], 31, 1),
    own(&["KP4", "NP4", "WP4", "NP3"], "", &["PR"], 8, 1), own(&["KP2", "NP2", "WP2"], "", &["VI"], 8, 1),
    own(&["VE1", "VA1"], "NS", &["NS"], 5, 2), own(&["VE2", "VA2"], "QC", &["QC"], 5, 2),
    own(&["VE3", "VA3"], "ON", &["GH", "ONE", "ONN", "ONS"], 4, 6), own(&["VE4", "VA4"], "MB", &["MB"], 4, 1),
    own(&["VE5", "VA5"], "SK", &["SK"], 4, 1), own(&["VE6", "VA6"], "AB", &["AB"], 4, 2), own(&["VE7", "VA7"], "BC", &["BC"], 3, 2),
    own(&["VE8"], "NT", &["TER"], 1, 1), own(&["VE9"], "NB", &["NB"], 5, 1), own(&["VO1"], "NF", &["NL"], 5, 1),
    own(&["VO2"], "LB", &["NL"], 2, 1), own(&["VY1"], "YT", &["TER"], 1, 1), own(&["VY2"], "PE", &["PE"], 5, 1), own(&["VY0"], "NU", &["TER"], 2, 1),
];

/// Common English words.
#[rustfmt::skip]
pub(super) const WORDS: &[&str] = &[
    "THE", "OF", "AND", "TO", "IN", "A", "IS", "THAT", "FOR", "IT", "AS", "WAS", "WITH", "BE", "BY", "ON", "NOT", "HE",
    "I", "THIS", "ARE", "OR", "HIS", "FROM", "AT", "WHICH", "BUT", "HAVE", "AN", "HAD", "THEY", "YOU", "WERE", "THEIR",
    "ONE", "ALL", "WE", "CAN", "HER", "HAS", "THERE", "BEEN", "IF", "MORE", "WHEN", "WILL", "WOULD", "WHO", "SO", "NO",
    "SHE", "OTHER", "ITS", "MAY", "THESE", "WHAT", "THEM", "THAN", "SOME", "HIM", "TIME", "INTO", "ONLY", "DO", "SUCH",
    "MY", "NEW", "ABOUT", "OUT", "ALSO", "TWO", "ANY", "UP", "FIRST", "COULD", "OUR", "THEN", "MOST", "SEE", "ME",
    "SHOULD", "AFTER", "SAID", "YOUR", "VERY", "BETWEEN", "MADE", "MANY", "OVER", "LIKE", "THOSE", "DID", "NOW", "EVEN",
    "WELL", "WHERE", "MUST", "PEOPLE", "THROUGH", "HOW", "SAME", "WORK", "BEING", "BECAUSE", "MAN", "LIFE", "BEFORE",
    "EACH", "MUCH", "UNDER", "YEARS", "WAY", "GREAT", "STATE", "BOTH", "USE", "UPON", "OWN", "USED", "HOWEVER", "US",
    "PART", "GOOD", "WORLD", "MAKE", "THREE", "WHILE", "LONG", "DAY", "WITHOUT", "JUST", "MEN", "GENERAL", "DURING",
    "ANOTHER", "LITTLE", "FOUND", "HERE", "SYSTEM", "DOES", "DOWN", "NUMBER", "CASE", "AGAINST", "MIGHT", "STILL",
    "BACK", "RIGHT", "KNOW", "PLACE", "EVERY", "TOO", "HIGH", "OLD", "DIFFERENT", "STATES", "TAKE", "YEAR", "POWER",
    "SINCE", "GIVEN", "GOD", "NEVER", "SOCIAL", "ORDER", "WATER", "THUS", "FORM", "WITHIN", "SMALL", "SHALL", "PUBLIC",
    "LARGE", "LAW", "COME", "LESS", "CHILDREN", "WAR", "POINT", "CALLED", "AMERICAN", "AGAIN", "OFTEN", "GO", "FEW",
    "AMONG", "IMPORTANT", "END", "GET", "HOUSE", "SECOND", "THOUGH", "PRESENT", "EXAMPLE", "HIMSELF", "WOMEN", "LAST",
    "SAY", "LEFT", "FACT", "OFF", "SET", "PER", "YET", "HAND", "CAME", "DEVELOPMENT", "THOUGHT", "ALWAYS", "FAR",
    "INTEREST", "GOVERNMENT", "THING", "HEAD", "PROCESS", "BETTER", "WHOLE", "NIGHT", "SCHOOL", "COUNTRY", "UNTIL",
    "SIDE", "FOUR", "HOME", "ALMOST", "EYES", "LEVEL", "BODY", "NAME", "GROUP", "PERHAPS", "CHANGE", "SEVERAL", "ONCE",
    "MEANS", "ALREADY", "BOOK", "FATHER", "THINGS", "WENT", "BEST", "WORDS", "FIND", "MONEY", "RATHER", "BUSINESS",
    "TOGETHER", "LAND", "OPEN", "AIR", "FULL", "CLOSE", "WEEK", "FIVE", "CITY", "LINE", "TURN", "MOVE", "LIGHT", "HOLD",
    "NEAR", "FREE", "MUSIC", "RIVER", "SEA", "MOUNTAIN", "STORM", "WIND", "SUMMER", "WINTER", "SPRING", "AUTUMN", "MORNING",
    "EVENING", "TODAY", "TOMORROW", "RADIO", "SIGNAL", "CODE", "KEY", "TOWER", "WIRE", "CURRENT", "VOLTAGE", "FILTER",
    "NOISE", "BAND", "TONE", "SPEED", "LETTER", "MESSAGE", "STATION", "ISLAND", "HARBOR", "SHIP", "CAPTAIN", "NORTH",
    "SOUTH", "EAST", "WEST", "WEATHER", "CLOUD", "RAIN", "SNOW", "SUN", "MOON", "STAR", "BIRD", "HORSE", "DOG", "CAT",
    "TREE", "FOREST", "GARDEN", "FLOWER", "BREAD", "COFFEE", "TABLE", "CHAIR", "WINDOW", "DOOR", "KITCHEN", "STREET",
    "BRIDGE", "TRAIN", "TRAVEL", "JOURNEY", "DISTANCE", "QUICK", "BROWN", "FOX", "JUMPS", "LAZY", "QUIET", "QUESTION",
    "ANSWER", "FRIEND", "MOTHER", "BROTHER", "SISTER", "FAMILY", "DOCTOR", "TEACHER", "STUDENT", "ENGINE", "MACHINE",
    "PAPER", "PENCIL", "PICTURE", "NUMBERS", "HUNDRED", "THOUSAND", "MILLION", "ZERO", "SIX", "SEVEN", "EIGHT", "NINE",
    "TEN", "JAZZ", "ZONE", "ZEBRA", "EXPECT", "EXACT", "MIXED", "BOX", "SIXTY", "QUARTER", "QUITE", "EQUAL", "REQUEST",
    "SQUARE", "JOIN", "JUDGE", "JOB", "OBJECT", "PROJECT", "MAJOR", "ENJOY", "VOICE", "VALUE", "DRIVE", "GAVE", "LIVE",
    "HEAVY", "SILVER", "GOLD", "COPPER", "IRON", "STEEL", "GLASS", "BLUE", "GREEN", "RED", "WHITE", "BLACK", "YELLOW",
    "ACROSS", "ANSWERED", "BEHIND", "BELOW", "BEYOND", "BUILD", "CARRY", "CATCH", "CENTER", "CIRCLE", "CLIMB", "COAST",
    "CORNER", "DANGER", "DEEP", "DESERT", "EARTH", "EIGHTY", "EMPTY", "FIELD", "FINGER", "FIRE", "FOLLOW", "FROZEN",
    "GUESS", "HAPPY", "HILL", "HOPE", "ICE", "JUNE", "JULY", "KNIFE", "LAKE", "LISTEN", "MARKET", "METAL", "NOON",
    "OCEAN", "ORANGE", "PLANE", "QUEEN", "QUIZ", "READY", "ROAD", "SAIL", "SILENT", "SOUND", "STONE", "SWITCH", "THIRTY",
    "TWENTY", "VALLEY", "VILLAGE", "WAVE", "WHEEL", "WIRELESS", "WOOD", "WRITE", "YOUNG",
];

/// Common abbreviations, and Q-codes as statements.
#[rustfmt::skip]
pub(super) const ABBREVIATIONS: &[&str] = &[
    "CQ", "DE", "K", "R", "TNX", "TKS", "FER", "UR", "RST", "599", "579", "559", "339", "ES", "OM", "YL", "XYL", "DR",
    "HR", "NR", "NW", "HW", "CPY", "PSE", "AGN", "BK", "FB", "GM", "GA", "GE", "GN", "GD", "GL", "GB", "GUD", "73", "88",
    "HI", "HPE", "CUL", "CUAGN", "SRI", "VY", "VIA", "WX", "RIG", "ANT", "PWR", "ABT", "ADR", "AM", "BCNU", "BURO", "CFM",
    "CK", "CL", "CLG", "CONDX", "CUD", "DX", "EL", "ERE", "FM", "FREQ", "HQ", "INFO", "KHZ", "MHZ", "LID", "LOG", "LSN",
    "LW", "MNI", "MSG", "NIL", "OB", "OC", "OP", "OT", "PKT", "PWR", "RCVR", "RPT", "RX", "SASE", "SED", "SEZ", "SIG",
    "SIGS", "SKED", "SOTA", "POTA", "SSB", "STN", "SUM", "TEMP", "TEST", "TFC", "TMW", "TT", "TU", "TX", "TXT", "UFB",
    "URS", "VERT", "VFB", "VFO", "WID", "WKD", "WKG", "WL", "WUD", "XCVR", "XMTR", "YAGI", "DIPOLE", "LOOP", "5NN",
    "QRL", "QRM", "QRN", "QRO", "QRP", "QRQ", "QRS", "QRT", "QRU", "QRV", "QRX", "QRZ", "QSB", "QSK", "QSL", "QSO",
    "QSP", "QST", "QSX", "QSY", "QTC", "QTH", "QTR", "40M", "20M", "80M", "160M", "15M", "10M", "CW",
];

/// Abbreviations and Q-codes that are sent as questions.
pub(super) const QUESTIONS: &[&str] = &[
    "QRL", "QRM", "QRS", "QRU", "QRV", "QRZ", "QSB", "QSL", "QSO", "QSY", "QTH", "QTR", "HW", "HW CPY", "NAME", "NR",
    "AGN", "CALL", "WX", "RIG",
];

/// Names of operators.
#[rustfmt::skip]
pub(super) const NAMES: &[&str] = &[
    "JOHN", "BOB", "BILL", "JIM", "TOM", "DAVE", "MIKE", "RICH", "RON", "DON", "KEN", "GARY", "STEVE", "PAUL", "MARK",
    "ED", "AL", "JACK", "FRED", "RAY", "JOE", "CHAS", "GEO", "LARRY", "PETE", "RALPH", "ART", "WALT", "BARRY", "HANS",
    "KLAUS", "UWE", "WOLF", "FRANZ", "JAN", "PIET", "LARS", "OLE", "SVEN", "PEKKA", "JUHA", "IVAN", "SERGE", "VLAD",
    "OLEG", "IGOR", "YURI", "ALEX", "MARIO", "GINO", "LUIGI", "PAOLO", "JOSE", "JUAN", "PEDRO", "MANUEL", "LUIS", "CARLOS",
    "PIERRE", "JEAN", "MICHEL", "YVES", "TARO", "HIRO", "KEN", "AKI", "YOSHI", "ANN", "MARY", "SUE", "EVA", "INGE",
    "MARIA", "LINDA", "NANCY", "JANE", "ZOLI", "LACI", "JANOS", "MILAN", "TOMAZ", "PAVEL", "JIRI", "MAREK", "ANDY",
];

/// Places of operators.
#[rustfmt::skip]
pub(super) const CITIES: &[&str] = &[
    "BOSTON", "DENVER", "DALLAS", "MIAMI", "SEATTLE", "CHICAGO", "OMAHA", "TULSA", "TUCSON", "FRESNO", "BOISE", "TAMPA",
    "ALBANY", "DAYTON", "RALEIGH", "MEMPHIS", "TORONTO", "OTTAWA", "HALIFAX", "CALGARY", "LONDON", "LEEDS", "YORK",
    "BRISTOL", "CARDIFF", "GLASGOW", "DUBLIN", "PARIS", "LYON", "LILLE", "BERLIN", "HAMBURG", "MUNICH", "KOELN", "BREMEN",
    "LEIPZIG", "VIENNA", "GRAZ", "ZURICH", "BERN", "ROMA", "MILANO", "TORINO", "NAPOLI", "MADRID", "SEVILLA", "LISBON",
    "PORTO", "OSLO", "BERGEN", "MALMO", "UPPSALA", "HELSINKI", "TURKU", "TALLINN", "RIGA", "VILNIUS", "WARSAW", "KRAKOW",
    "PRAGUE", "BRNO", "ZAGREB", "SPLIT", "BELGRADE", "SOFIA", "VARNA", "ATHENS", "KYIV", "LVIV", "ODESA", "MINSK", "MOSCOW",
    "TOKYO", "OSAKA", "KYOTO", "SAPPORO", "SEOUL", "PERTH", "SYDNEY", "AUCKLAND", "LIMA", "QUITO", "RIO", "SANTOS",
];

/// Transceivers.
pub(super) const RIGS: &[&str] = &[
    "K2", "K3", "K3S", "K4", "KX2", "KX3", "IC7300", "IC7610", "IC705", "IC718", "FT891", "FT817", "FT1000", "FT991",
    "FTDX10", "TS590", "TS480", "TS890", "TS520", "TS2000", "HW101", "ARGONAUT", "QCX", "HB TX", "FLEX", "T4XC",
];

/// Antennas.
pub(super) const ANTENNAS: &[&str] = &[
    "DIPOLE", "VERT", "GP", "LW", "LOOP", "YAGI", "3 EL YAGI", "HEX BEAM", "G5RV", "EFHW", "INV V", "DOUBLET", "ZEPP",
    "QUAD", "INV L", "MAG LOOP",
];

/// Weather.
pub(super) const WEATHER: &[&str] =
    &["SUNNY", "CLDY", "RAIN", "SNOW", "FINE", "COLD", "HOT", "WINDY", "FOG", "CLEAR", "WET", "NICE", "STORM"];

#[cfg(test)]
mod tests {
    use super::{super::morse, *};
    use std::collections::HashSet;

    #[test]
    fn everything_can_be_keyed() {
        for list in [WORDS, ABBREVIATIONS, QUESTIONS, NAMES, CITIES, RIGS, ANTENNAS, WEATHER] {
            for piece in list {
                assert!(morse::parse(piece).is_ok_and(|words| !words.is_empty()), "{piece}");
            }
        }
        assert!(WORDS.len() > 400, "{}", WORDS.len());
    }

    #[test]
    fn areas_are_complete() {
        for area in AREAS {
            let (least, most) = area.letters;
            assert!(1 <= least && least <= most && most <= 3, "{:?}", area.prefixes);
            assert!(!area.digits.is_empty() && area.digits.chars().all(|c| c.is_ascii_digit()), "{:?}", area.prefixes);
            assert!(area.weight > 0 && (1..=40).contains(&area.zone), "{:?}", area.prefixes);
        }
        let zones: HashSet<u8> = AREAS.iter().map(|area| area.zone).chain(HOMES.iter().map(|home| home.zone)).collect();
        assert!((1..=40).all(|zone| zones.contains(&zone)));
    }
}
