//! Division of tokens into words.

use undertone_model::whisper::WhisperTokenizer;

/// Tokens of a word: its text, and how many tokens it has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WordTokens {
    pub text: String,
    pub tokens: usize,
}

/// Languages that are written without spaces between words.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// Punctuation that belongs to the word after it, and to the word before it.
const BEFORE: &str = "\"'“¿([{-";
const AFTER: &str = "\"'.。,，!！?？:：”)]}、";

/// Divides tokens into words. A word begins with a space, and punctuation is a word of its own. In a language without spaces,
/// each character or token of several is a word.
pub(crate) fn split(tokenizer: &WhisperTokenizer, tokens: &[u32], language: Option<&str>) -> Vec<WordTokens> {
    let mut words: Vec<WordTokens> = Vec::new();
    let spaced = !language.is_some_and(|code| WITHOUT_SPACES.contains(&code));
    for unit in characters(tokenizer, tokens) {
        let punctuation = unit.text.trim();
        let begins = !spaced
            || unit.text.starts_with(' ')
            || punctuation.chars().count() == 1 && punctuation.chars().all(|c| c.is_ascii_punctuation());
        match words.last_mut() {
            Some(word) if !begins => {
                word.text.push_str(&unit.text);
                word.tokens += unit.tokens;
            }
            _ => words.push(unit),
        }
    }
    words
}

/// Joins tokens until their bytes are whole characters.
fn characters(tokenizer: &WhisperTokenizer, tokens: &[u32]) -> Vec<WordTokens> {
    let mut units = Vec::new();
    let (mut bytes, mut count) = (Vec::new(), 0);
    let unit = |bytes: &[u8], tokens| WordTokens { text: String::from_utf8_lossy(bytes).into_owned(), tokens };
    let is_broken = |bytes: &[u8]| std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some());
    for (index, token) in tokens.iter().enumerate() {
        let own = tokenizer.token_bytes(*token).unwrap_or_default();
        // Bytes that the next ones do not make whole are a character of their own.
        if count > 0 && is_broken(&[&bytes[..], &own].concat()) {
            units.push(unit(&bytes, count));
            (bytes, count) = (Vec::new(), 0);
        }
        bytes.extend(own);
        count += 1;
        if std::str::from_utf8(&bytes).is_ok() || is_broken(&bytes) || index + 1 == tokens.len() {
            units.push(unit(&bytes, count));
            (bytes, count) = (Vec::new(), 0);
        }
    }
    units
}

/// Returns for each word whether its text joins the word after it (an opening quotation mark) or the one before it (a full
/// stop).
pub(crate) fn joins(word: &str) -> Join {
    let mark = word.trim();
    if mark.is_empty() || mark.chars().count() > 1 {
        return Join::Neither;
    }
    if word.starts_with(' ') && BEFORE.contains(mark) {
        Join::Next
    } else if !word.starts_with(' ') && AFTER.contains(mark) {
        Join::Previous
    } else {
        Join::Neither
    }
}

/// Word that punctuation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Next,
    Previous,
    Neither,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> WhisperTokenizer {
        let texts = ["Hello, world. (So) it's 道路"].repeat(9);
        WhisperTokenizer::train(texts.into_iter(), 270, &["en", "zh"], 0).expect("a tokenizer")
    }

    fn words(text: &str, language: &str) -> Vec<String> {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode(text).expect("tokens");
        let words = split(&tokenizer, &tokens, Some(language));
        assert_eq!(words.iter().map(|word| word.tokens).sum::<usize>(), tokens.len());
        words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_begin_with_spaces_and_punctuation_is_alone() {
        assert_eq!(words(" Hello, world.", "en"), [" Hello", ",", " world", "."]);
        assert_eq!(words(" 道路", "en"), [" 道路"]);
        assert_eq!(words("道路", "zh"), ["道", "路"]);
    }

    #[test]
    fn a_byte_that_no_character_has_is_a_character_of_its_own() {
        let tokenizer = tokenizer();
        let broken = (0..256).find(|id| tokenizer.token_bytes(*id) == Some(vec![0xe9])).expect("a byte");
        let [before, after] = [" Hello", " world."].map(|text| tokenizer.encode(text).expect("tokens"));
        let tokens = [&before[..], &[broken], &after].concat();
        let words = split(&tokenizer, &tokens, Some("en"));
        assert_eq!(words.iter().map(|word| word.tokens).sum::<usize>(), tokens.len());
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, [" Hello\u{fffd}", " world", "."]);
    }

    #[test]
    fn punctuation_joins_the_word_it_belongs_to() {
        assert_eq!(joins(" ("), Join::Next);
        assert_eq!(joins(")"), Join::Previous);
        assert_eq!(joins("."), Join::Previous);
        assert_eq!(joins(" so"), Join::Neither);
        assert_eq!(joins(" "), Join::Neither);
    }
}
