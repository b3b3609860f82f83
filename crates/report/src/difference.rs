//! Marks the differences between a hypothesis and its reference.

use maud::{Markup, html};
use similar::utils::{diff_chars, diff_words};
use similar::{Algorithm, ChangeTag};

/// Length in characters above which references of several words are compared by words: letters that words have in
/// common by chance are not informative.
const BY_CHARACTERS: usize = 40;

/// Returns `text` with wrong and superfluous parts marked as inserted, and missing parts of `reference` as deleted. In
/// long texts only the wrong words are marked: they would be lost among the missing ones, and the reference is shown
/// beside.
pub(crate) fn marked(reference: &str, text: &str) -> Markup {
    let by_words = reference.chars().count() > BY_CHARACTERS && reference.trim().contains(char::is_whitespace);
    let changes = match by_words {
        true => diff_words(Algorithm::Myers, reference, text),
        false => diff_chars(Algorithm::Myers, reference, text),
    };
    html! {
        @for (tag, part) in changes {
            @match tag {
                ChangeTag::Equal => (part),
                ChangeTag::Insert => ins { (part) },
                ChangeTag::Delete => @if !by_words { del { (part) } },
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
        let expected = "the quick <ins>brawn</ins> fox jumps over the lazy dog again";
        assert_eq!(marked(reference, &text).into_string(), expected);
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
            if reference.len() <= BY_CHARACTERS {
                prop_assert_eq!(without(html, "ins"), reference);
            }
        }
    }
}
