//! Marks the differences between a hypothesis and its reference.

use maud::{Markup, html};
use similar::utils::{diff_chars, diff_words};
use similar::{Algorithm, ChangeTag};

/// Length in characters above which references of several words are compared by words: letters that words have in
/// common by chance are not informative.
const BY_CHARACTERS: usize = 40;
/// Most characters of a word on average. Texts without spaces between words have some all the same, between sentences.
const LONGEST_WORDS: usize = 12;

/// Returns `text` with wrong and superfluous parts marked as inserted, and missing parts of `reference` as deleted: words of long texts,
/// characters of others.
pub(crate) fn marked(reference: &str, text: &str) -> Markup {
    let (characters, words) = (reference.chars().count(), reference.split_whitespace().count());
    let by_words = characters > BY_CHARACTERS && words * LONGEST_WORDS >= characters;
    let changes = match by_words {
        true => diff_words(Algorithm::Myers, reference, text),
        false => diff_chars(Algorithm::Myers, reference, text),
    };
    html! {
        @for (tag, part) in changes {
            @match tag {
                ChangeTag::Equal => (part),
                ChangeTag::Insert => ins { (part) },
                ChangeTag::Delete => del { (part) },
            }
        }
        @if reference == text { " " span.good { "✓" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_that_differ_are_marked() {
        assert_eq!(marked("TU 5NN 16", "TU 5N 16").into_string(), "TU 5N<del>N</del> 16");
        assert_eq!(marked("A<B", "A<BC").into_string(), "A&lt;B<ins>C</ins>");
        assert_eq!(marked("CQ", "CQ").into_string(), "CQ <span class=\"good\">✓</span>");
        assert_eq!(marked("", "").into_string(), " <span class=\"good\">✓</span>");
    }

    #[test]
    fn long_texts_are_compared_by_words() {
        let reference = "the quick brown fox jumps over the lazy dog again";
        let text = reference.replace("brown", "brawn");
        let expected = "the quick <del>brown</del><ins>brawn</ins> fox jumps over the lazy dog again";
        assert_eq!(marked(reference, &text).into_string(), expected);
        let lost = "he did say that the patient should take the medicine";
        let whole = lost.replace("did say", "did not say");
        assert!(marked(&whole, lost).into_string().starts_with("he did <del>not"), "a word that turns the meaning");
        let unspaced = "漢字".repeat(30) + " 漢字";
        let found = marked(&unspaced, &unspaced.replacen('字', "子", 1)).into_string();
        assert!(found.starts_with("漢<del>字</del><ins>子</ins>漢字"), "{found}");
    }

    /// Returns a marked text without the marks of one kind and their content.
    fn without(html: &str, mark: &str) -> String {
        let (open, close) = (format!("<{mark}>"), format!("</{mark}>"));
        let mut parts = html.split(&open);
        let mut rest = parts.next().unwrap_or_default().to_owned();
        rest.extend(parts.filter_map(|part| part.split_once(&close)).map(|(_, after)| after.to_owned()));
        rest.replace("<ins>", "").replace("</ins>", "").replace("<del>", "").replace("</del>", "")
    }

    proptest! {
        #[test]
        fn the_marks_give_both_texts_back(reference in "[a-c ]{0,60}", text in "[a-c ]{0,60}") {
            let html = marked(&reference, &text).into_string();
            let html = html.strip_suffix(" <span class=\"good\">✓</span>").unwrap_or(&html);
            prop_assert_eq!(without(html, "del"), text);
            prop_assert_eq!(without(html, "ins"), reference);
        }
    }
}
