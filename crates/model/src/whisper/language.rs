//! Languages of Whisper by their names.

use std::borrow::Cow;

/// Codes of OpenAI's vocabulary in the order of their tokens, and English names of the languages, as OpenAI, transformers and
/// published data sets spell them. A language with several names stands there with each of them.
#[rustfmt::skip]
const NAMES: [(&str, &str); 118] = [
    ("en", "english"), ("zh", "chinese"), ("zh", "mandarin"), ("zh", "mandarin chinese"), ("de", "german"),
    ("es", "spanish"), ("es", "castilian"), ("ru", "russian"), ("ko", "korean"), ("fr", "french"), ("ja", "japanese"),
    ("pt", "portuguese"), ("tr", "turkish"), ("pl", "polish"), ("ca", "catalan"), ("ca", "valencian"), ("nl", "dutch"),
    ("nl", "flemish"), ("ar", "arabic"), ("sv", "swedish"), ("it", "italian"), ("id", "indonesian"), ("hi", "hindi"),
    ("fi", "finnish"), ("vi", "vietnamese"), ("he", "hebrew"), ("uk", "ukrainian"), ("el", "greek"), ("ms", "malay"),
    ("cs", "czech"), ("ro", "romanian"), ("ro", "moldavian"), ("ro", "moldovan"), ("da", "danish"), ("hu", "hungarian"),
    ("ta", "tamil"), ("no", "norwegian"), ("no", "nb"), ("th", "thai"), ("ur", "urdu"), ("hr", "croatian"),
    ("bg", "bulgarian"), ("lt", "lithuanian"), ("la", "latin"), ("mi", "maori"), ("ml", "malayalam"), ("cy", "welsh"),
    ("sk", "slovak"), ("te", "telugu"), ("fa", "persian"), ("lv", "latvian"), ("bn", "bengali"), ("sr", "serbian"),
    ("az", "azerbaijani"), ("sl", "slovenian"), ("kn", "kannada"), ("et", "estonian"), ("mk", "macedonian"),
    ("br", "breton"), ("eu", "basque"), ("is", "icelandic"), ("hy", "armenian"), ("ne", "nepali"), ("mn", "mongolian"),
    ("bs", "bosnian"), ("kk", "kazakh"), ("sq", "albanian"), ("sw", "swahili"), ("gl", "galician"), ("mr", "marathi"),
    ("pa", "punjabi"), ("pa", "panjabi"), ("si", "sinhala"), ("si", "sinhalese"), ("km", "khmer"), ("sn", "shona"),
    ("yo", "yoruba"), ("so", "somali"), ("af", "afrikaans"), ("oc", "occitan"), ("ka", "georgian"),
    ("be", "belarusian"), ("tg", "tajik"), ("sd", "sindhi"), ("gu", "gujarati"), ("am", "amharic"), ("yi", "yiddish"),
    ("lo", "lao"), ("uz", "uzbek"), ("fo", "faroese"), ("ht", "haitian creole"), ("ht", "haitian"), ("ps", "pashto"),
    ("ps", "pushto"), ("tk", "turkmen"), ("nn", "nynorsk"), ("mt", "maltese"), ("sa", "sanskrit"),
    ("lb", "luxembourgish"), ("lb", "letzeburgesch"), ("my", "myanmar"), ("my", "burmese"), ("bo", "tibetan"),
    ("tl", "tagalog"), ("tl", "filipino"), ("tl", "fil"), ("mg", "malagasy"), ("as", "assamese"), ("tt", "tatar"),
    ("haw", "hawaiian"), ("ln", "lingala"), ("ha", "hausa"), ("ba", "bashkir"), ("jw", "javanese"), ("jw", "jv"),
    ("su", "sundanese"), ("yue", "cantonese"), ("yue", "cantonese chinese"),
];

/// Returns the code of a language that is given as a code (`de`), with a region (`de-DE`), by its English name (`German`), or as
/// Whisper's token (`<|de|>`), in any case. What is none of these is returned in lower case: a model may have languages of its own.
pub fn language_code(language: &str) -> Cow<'_, str> {
    let given = language.trim().trim_matches(['<', '|', '>']).to_lowercase();
    if given.len() < 4 && given.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Cow::Owned(given);
    }
    let named = |name: &str| named(name).map(Cow::Borrowed);
    let without_region = || {
        let (code, _) = given.split_once(['-', '_'])?;
        let known = NAMES.iter().find(|(known, _)| *known == code).map(|(code, _)| Cow::Borrowed(*code));
        known.or_else(|| named(code))
    };
    named(&given).or_else(without_region).unwrap_or(Cow::Owned(given))
}

/// Codes of OpenAI's languages in the order of their tokens. Cantonese, the last, is new in large-v3.
pub fn language_codes() -> Vec<&'static str> {
    let mut codes: Vec<&str> = NAMES.iter().map(|(code, _)| *code).collect();
    codes.dedup();
    codes
}

/// Returns the code of a language by a name that is none of OpenAI's codes.
pub(super) fn named(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_found_by_code_region_name_and_token() {
        for (given, code) in [
            ("de", "de"),
            ("DE", "de"),
            ("de-DE", "de"),
            ("zh_TW", "zh"),
            ("nb-NO", "no"),
            ("nb", "nb"),
            ("German", "de"),
            ("hindi", "hi"),
            ("Haitian Creole", "ht"),
            (" <|yue|> ", "yue"),
            ("tlh", "tlh"),
            ("tlh-x", "tlh-x"),
        ] {
            assert_eq!(language_code(given), code, "{given}");
        }
    }
}
