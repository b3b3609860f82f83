//! The Morse table: all symbols that can be keyed, and their spelling in a transcript.
//!
//! Several procedural signals share their code with a punctuation mark, and a transcript must not depend on which one
//! the sender meant. So one code has one spelling: BT is `=`, AR is `+`, and only the prosigns without a character of
//! their own are written out: `<SK>`, `<KN>` (the code some tables give to an opening bracket), `<AS>` and `<BK>`. In
//! input, `<BT>` and `<AR>` are accepted and become `=` and `+`.

/// All single characters with their codes. The space is not included, because it is a gap.
const CHARACTERS: [(char, &str); 44] = [
    ('A', ".-"),
    ('B', "-..."),
    ('C', "-.-."),
    ('D', "-.."),
    ('E', "."),
    ('F', "..-."),
    ('G', "--."),
    ('H', "...."),
    ('I', ".."),
    ('J', ".---"),
    ('K', "-.-"),
    ('L', ".-.."),
    ('M', "--"),
    ('N', "-."),
    ('O', "---"),
    ('P', ".--."),
    ('Q', "--.-"),
    ('R', ".-."),
    ('S', "..."),
    ('T', "-"),
    ('U', "..-"),
    ('V', "...-"),
    ('W', ".--"),
    ('X', "-..-"),
    ('Y', "-.--"),
    ('Z', "--.."),
    ('0', "-----"),
    ('1', ".----"),
    ('2', "..---"),
    ('3', "...--"),
    ('4', "....-"),
    ('5', "....."),
    ('6', "-...."),
    ('7', "--..."),
    ('8', "---.."),
    ('9', "----."),
    ('.', ".-.-.-"),
    (',', "--..--"),
    ('?', "..--.."),
    ('/', "-..-."),
    ('=', "-...-"),
    ('-', "-....-"),
    ('+', ".-.-."),
    ('@', ".--.-."),
];

/// Prosigns that are written out in a transcript, and their codes.
const PROSIGNS: [(&str, &str); 4] = [("<SK>", "...-.-"), ("<KN>", "-.--."), ("<AS>", ".-..."), ("<BK>", "-...-.-")];

/// Other spellings that [`parse`] accepts.
const ALIASES: [(&str, char); 2] = [("<BT>", '='), ("<AR>", '+')];

/// Returns the code of a character, `.` for a dit and `-` for a dah; lower case counts as upper. `None` for anything
/// that cannot be keyed alone, including the space and the brackets of a prosign.
pub fn code(character: char) -> Option<&'static str> {
    let upper = character.to_ascii_uppercase();
    CHARACTERS.iter().find(|(known, _)| *known == upper).map(|(_, code)| *code)
}

/// Returns the code of a prosign, given as in a transcript: `prosign("<SK>")`.
pub fn prosign(spelling: &str) -> Option<&'static str> {
    PROSIGNS.iter().find(|(known, _)| *known == spelling).map(|(_, code)| *code)
}

/// Returns the spelling of a code in a transcript: the inverse of [`code`] and [`prosign`].
pub fn spelling(code: &str) -> Option<String> {
    let character = CHARACTERS.iter().find(|(_, known)| *known == code).map(|(character, _)| character.to_string());
    character.or_else(|| PROSIGNS.iter().find(|(_, known)| *known == code).map(|(name, _)| (*name).to_owned()))
}

/// Returns every character of a transcript: the space, those with a code, and the brackets around a prosign. This is
/// the vocabulary of a character tokenizer, in an order that will not change.
pub fn alphabet() -> impl Iterator<Item = char> {
    std::iter::once(' ').chain(CHARACTERS.iter().map(|(character, _)| *character)).chain(['<', '>'])
}

/// Returns the characters that can be keyed alone, in the order of [`alphabet`].
pub fn characters() -> impl Iterator<Item = char> {
    CHARACTERS.iter().map(|(character, _)| *character)
}

/// Returns the prosigns as in a transcript: `<SK>`, `<KN>`, `<AS>`, `<BK>`.
pub fn prosigns() -> impl Iterator<Item = &'static str> {
    PROSIGNS.iter().map(|(spelling, _)| *spelling)
}

/// Unit that is sent between two letter gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Spelling in a transcript: a character, or a prosign such as `<SK>`.
    pub spelling: String,
    /// `.` for a dit and `-` for a dah.
    pub code: &'static str,
}

/// Parses a transcript into words of symbols. Lower case counts as upper, white space of any length separates words,
/// and `<BT>` and `<AR>` become `=` and `+`. The error is the first piece that cannot be keyed.
pub fn parse(text: &str) -> Result<Vec<Vec<Symbol>>, String> {
    text.split_whitespace().map(|word| parse_word(&word.to_ascii_uppercase())).collect()
}

fn parse_word(word: &str) -> Result<Vec<Symbol>, String> {
    pieces(word).map(|piece| symbol(piece).ok_or_else(|| piece.to_owned())).collect()
}

/// Returns the parts of a word that are keyed together: its characters, and prosigns in brackets.
pub(super) fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = if first == '<' { rest.find('>').map_or(rest.len(), |at| at + 1) } else { first.len_utf8() };
        let (piece, tail) = rest.split_at(length);
        rest = tail;
        Some(piece)
    })
}

/// Returns the symbol of a [piece](pieces) of a word; `None` if it cannot be keyed.
pub(super) fn symbol(piece: &str) -> Option<Symbol> {
    let first = piece.chars().next()?;
    if let Some(code) = prosign(piece) {
        return Some(Symbol { spelling: piece.to_owned(), code });
    }
    let character = ALIASES.iter().find(|(alias, _)| *alias == piece).map_or(first, |(_, character)| *character);
    code(character).map(|code| Symbol { spelling: character.to_string(), code })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn one_code_has_one_spelling() {
        let codes: HashSet<_> =
            CHARACTERS.iter().map(|(_, code)| code).chain(PROSIGNS.iter().map(|(_, c)| c)).collect();
        assert_eq!(codes.len(), CHARACTERS.len() + PROSIGNS.len());
        for character in characters() {
            assert_eq!(spelling(code(character).unwrap()).unwrap(), character.to_string());
        }
        for name in prosigns() {
            assert_eq!(spelling(prosign(name).unwrap()).unwrap(), name);
        }
    }

    #[test]
    fn the_alphabet_has_no_duplicates() {
        assert_eq!(alphabet().collect::<HashSet<_>>().len(), alphabet().count());
        assert_eq!(alphabet().count(), 47);
    }

    #[test]
    fn text_is_normalised_on_the_way_in() {
        let words = parse(" tnx <bt>  k3<AR><sk> ").unwrap();
        let text: Vec<String> = words.iter().map(|w| w.iter().map(|s| s.spelling.as_str()).collect()).collect();
        assert_eq!(text, ["TNX", "=", "K3+<SK>"]);
        assert_eq!(words[2][3].code, "...-.-");
    }

    #[test]
    fn what_cannot_be_keyed_is_named() {
        assert_eq!(parse("A! B"), Err("!".to_owned()));
        assert_eq!(parse("A <XX>"), Err("<XX>".to_owned()));
        assert_eq!(parse("A <SK"), Err("<SK".to_owned()));
        assert_eq!(parse("Ä"), Err("Ä".to_owned()));
    }
}
