//! Porter's stemmer with the extensions of NLTK.
//!
//! M. F. Porter, "An algorithm for suffix stripping", Program 14.3 (1980), with Porter's own later changes and those of
//! NLTK's `PorterStemmer` in its default mode `NLTK_EXTENSIONS`, which are pointed out below.

/// Returns the stem of an ASCII word in lower case. Digits count as consonants.
pub(super) fn stem(word: &str) -> String {
    if let Some(stem) = irregular(word) {
        return stem.to_owned();
    }
    if word.len() <= 2 {
        return word.to_owned();
    }
    let steps = [plural, past_and_participle, final_y, double_suffix, single_suffix, last_suffix, final_e, final_ll];
    steps.iter().fold(word.to_owned(), |word, step| step(&word).unwrap_or(word))
}

/// NLTK's table of words for which the rules fail.
fn irregular(word: &str) -> Option<&'static str> {
    Some(match word {
        "sky" | "skies" => "sky",
        "dying" => "die",
        "lying" => "lie",
        "tying" => "tie",
        "news" => "news",
        "inning" | "innings" => "inning",
        "outing" | "outings" => "outing",
        "canning" | "cannings" => "canning",
        "howe" => "howe",
        "proceed" => "proceed",
        "exceed" => "exceed",
        "succeed" => "succeed",
        _ => return None,
    })
}

/// Step 1a. NLTK keeps the `e` of `dies`.
fn plural(word: &str) -> Option<String> {
    if word.len() == 4 && word.ends_with("ies") {
        return Some(word[..3].to_owned());
    }
    replace_first(word, &[("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")], |_| true)
}

/// Step 1b. NLTK treats `-ied` as step 1a treats `-ies`.
fn past_and_participle(word: &str) -> Option<String> {
    if let Some(stem) = word.strip_suffix("ied") {
        return Some(stem.to_owned() + if word.len() == 4 { "ie" } else { "i" });
    }
    if let Some(stem) = word.strip_suffix("eed") {
        return (measure(stem) > 0).then(|| stem.to_owned() + "ee");
    }
    let has_vowel = |stem: &&str| consonants(stem).contains(&false);
    let stem = ["ed", "ing"].iter().find_map(|suffix| word.strip_suffix(suffix).filter(has_vowel))?;
    let undoubled = || stem[..stem.len() - 1].to_owned();
    Some(if ["at", "bl", "iz"].iter().any(|end| stem.ends_with(end)) {
        stem.to_owned() + "e"
    } else if ends_in_double_consonant(stem) {
        if stem.ends_with(['l', 's', 'z']) { stem.to_owned() } else { undoubled() }
    } else if measure(stem) == 1 && ends_short(stem) {
        stem.to_owned() + "e"
    } else {
        stem.to_owned()
    })
}

/// Step 1c. Before the `y`, NLTK requires a consonant that is not the whole stem, and Porter a vowel.
fn final_y(word: &str) -> Option<String> {
    let stem = word.strip_suffix('y')?;
    (stem.len() > 1 && consonants(stem).last() == Some(&true)).then(|| stem.to_owned() + "i")
}

/// Step 2. NLTK tries `-alli` first and continues with its result, and adds `-fulli` and `-logi`.
fn double_suffix(word: &str) -> Option<String> {
    const RULES: [(&str, &str); 21] = [
        ("ational", "ate"),
        ("tional", "tion"),
        ("enci", "ence"),
        ("anci", "ance"),
        ("izer", "ize"),
        ("bli", "ble"),
        ("alli", "al"),
        ("entli", "ent"),
        ("eli", "e"),
        ("ousli", "ous"),
        ("ization", "ize"),
        ("ation", "ate"),
        ("ator", "ate"),
        ("alism", "al"),
        ("iveness", "ive"),
        ("fulness", "ful"),
        ("ousness", "ous"),
        ("aliti", "al"),
        ("iviti", "ive"),
        ("biliti", "ble"),
        ("fulli", "ful"),
    ];
    if let Some(stem) = word.strip_suffix("alli")
        && measure(stem) > 0
    {
        let shorter = stem.to_owned() + "al";
        return Some(double_suffix(&shorter).unwrap_or(shorter));
    }
    // The measure includes the `l`, so that `geologi` and `theologi` are treated as `archaeologi` is.
    if let Some(stem) = word.strip_suffix("ogi").filter(|stem| stem.ends_with('l')) {
        return (measure(stem) > 0).then(|| stem.to_owned() + "og");
    }
    replace_first(word, &RULES, |stem| measure(stem) > 0)
}

/// Step 3.
fn single_suffix(word: &str) -> Option<String> {
    const RULES: [(&str, &str); 7] =
        [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];
    replace_first(word, &RULES, |stem| measure(stem) > 0)
}

/// Step 4.
fn last_suffix(word: &str) -> Option<String> {
    const SUFFIXES: [&str; 19] = [
        "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
        "iti", "ous", "ive", "ize",
    ];
    let suffix = SUFFIXES.iter().find(|suffix| word.ends_with(**suffix))?;
    let stem = &word[..word.len() - suffix.len()];
    (measure(stem) > 1 && (*suffix != "ion" || stem.ends_with(['s', 't']))).then(|| stem.to_owned())
}

/// Step 5a.
fn final_e(word: &str) -> Option<String> {
    let stem = word.strip_suffix('e')?;
    let removable = measure(stem) > 1 || (measure(stem) == 1 && !ends_short(stem));
    removable.then(|| stem.to_owned())
}

/// Step 5b.
fn final_ll(word: &str) -> Option<String> {
    let stem = word.strip_suffix('l').filter(|stem| stem.ends_with('l'))?;
    (measure(stem) > 1).then(|| stem.to_owned())
}

/// Applies the first rule whose suffix the word has, if the stem allows it. No later rule is tried if it does not.
fn replace_first(word: &str, rules: &[(&str, &str)], allowed: impl Fn(&str) -> bool) -> Option<String> {
    let (stem, replacement) =
        rules.iter().find_map(|(suffix, replacement)| Some((word.strip_suffix(suffix)?, replacement)))?;
    allowed(stem).then(|| stem.to_owned() + replacement)
}

/// Whether each letter is a consonant: all but a, e, i, o, u and a `y` after a consonant.
fn consonants(word: &str) -> Vec<bool> {
    let mut flags: Vec<bool> = Vec::with_capacity(word.len());
    for letter in word.bytes() {
        let consonant = match letter {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => flags.last() != Some(&true),
            _ => true,
        };
        flags.push(consonant);
    }
    flags
}

/// Porter's measure: the number of times that a consonant follows a vowel.
fn measure(word: &str) -> usize {
    consonants(word).windows(2).filter(|pair| matches!(pair, [false, true])).count()
}

/// Porter's *d.
fn ends_in_double_consonant(word: &str) -> bool {
    let twice = matches!(word.as_bytes(), [.., a, b] if a == b);
    twice && consonants(word).last() == Some(&true)
}

/// Porter's *o: consonant, vowel and a consonant other than w, x and y. NLTK adds words that consist of a vowel and any
/// consonant.
fn ends_short(word: &str) -> bool {
    match consonants(word).as_slice() {
        [false, true] => true,
        [.., true, false, true] => !word.ends_with(['w', 'x', 'y']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stems_are_those_of_nltk() {
        let stems: BTreeMap<String, String> =
            serde_json::from_str(include_str!("../tests/fixtures/porter.json")).unwrap();
        assert!(stems.len() > 3000);
        for (word, expected) in stems {
            assert_eq!(stem(&word), expected, "the stem of {word}");
        }
    }

    proptest! {
        #[test]
        fn a_stem_is_part_of_the_word_but_for_its_end(word in "[a-z0-9]{1,12}") {
            let stem = stem(&word);
            prop_assert!(!stem.is_empty() && stem.len() <= word.len() + 1);
            // Every step keeps the first letter.
            prop_assert_eq!(&stem[..1], &word[..1]);
        }
    }
}
