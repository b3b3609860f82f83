use std::collections::HashMap;
use std::io::Write;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Fixture {
    spellings: HashMap<String, String>,
    sentences: Vec<Sentence>,
    /// British and American in turn.
    pairs: Vec<English>,
}

#[derive(Deserialize)]
struct English {
    text: String,
    spelled: String,
    english: String,
}

#[derive(Deserialize)]
struct Sentence {
    text: String,
    spelled: String,
    english: String,
    basic: String,
    plain: String,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../../tests/fixtures/normalizer.json")).unwrap()
}

#[test]
fn british_and_american_are_normalised_as_by_transformers_to_the_same() {
    let fixture = fixture();
    assert!(fixture.sentences.len() + fixture.pairs.len() >= 1000 && fixture.spellings.len() >= 500);
    let (spelled, english) = (EnglishNormalizer::with_spellings(fixture.spellings), EnglishNormalizer::new());
    for English { text, spelled: with, english: without } in &fixture.pairs {
        assert_eq!((&spelled.normalize(text), &english.normalize(text)), (with, without), "{text}");
    }
    let (mut same, mut apart) = (0, 0);
    for pair in fixture.pairs.chunks_exact(2) {
        same += usize::from(spelled.normalize(&pair[0].text) == spelled.normalize(&pair[1].text));
        apart += usize::from(english.normalize(&pair[0].text) != english.normalize(&pair[1].text));
    }
    assert_eq!((same, apart), (400, 400), "of 400 pairs");
}

#[test]
fn answers_are_those_of_transformers() {
    let fixture = fixture();
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
