use std::collections::HashMap;
use std::io::Write;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Fixture {
    spellings: HashMap<String, String>,
    sentences: Vec<Sentence>,
}

#[derive(Deserialize)]
struct Sentence {
    text: String,
    spelled: String,
    english: String,
    basic: String,
    plain: String,
}

#[test]
fn answers_are_those_of_transformers() {
    let fixture: Fixture = serde_json::from_str(include_str!("../../tests/fixtures/normalizer.json")).unwrap();
    assert!(fixture.sentences.len() >= 150 && fixture.spellings.len() >= 20);
    let spelled = EnglishNormalizer::with_spellings(fixture.spellings);
    let english = EnglishNormalizer::new();
    let basic = BasicNormalizer::default();
    let plain = BasicNormalizer { remove_diacritics: true };
    let wrong: Vec<String> = fixture
        .sentences
        .iter()
        .flat_map(|sentence| {
            let text = &sentence.text;
            [
                ("spelled", text, spelled.normalize(text), &sentence.spelled),
                ("english", text, english.normalize(text), &sentence.english),
                ("basic", text, basic.normalize(text), &sentence.basic),
                ("plain", text, plain.normalize(text), &sentence.plain),
            ]
        })
        .filter(|(_, _, found, expected)| found != *expected)
        .map(|(kind, text, found, expected)| format!("{kind} {text:?}: {found:?}, not {expected:?}"))
        .collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn spellings_come_from_a_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, r#"{{"colour": "color"}}"#).unwrap();
    let normalizer = EnglishNormalizer::from_file(file.path()).unwrap();
    assert_eq!(normalizer.normalize("Colours, colour!"), "colours color");

    write!(file, "]").unwrap();
    let error = EnglishNormalizer::from_file(file.path()).unwrap_err().to_string();
    assert!(error.contains("must be one JSON object") && error.contains("line 1"), "{error}");
    let error = EnglishNormalizer::from_file("nowhere/normalizer.json").unwrap_err().to_string();
    assert!(error.contains("nowhere/normalizer.json"), "{error}");
}

#[test]
fn numbers_without_end_do_not_overflow() {
    let english = EnglishNormalizer::new();
    let digits = "9".repeat(60);
    assert_eq!(english.normalize(&digits), digits);
    assert_eq!(english.normalize(&format!("{digits} million")), format!("{digits} 1000000"));
    english.normalize(&format!("{} and five", "340282366920938463463374607431768211455 decillion ".repeat(3)));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), words in "([0-9.$%]{0,3}(twenty|oh|point|double|hundred|) ?){0,9}") {
        for text in [text, words] {
            EnglishNormalizer::new().normalize(&text);
            BasicNormalizer::default().normalize(&text);
        }
    }
}
