//! Words that a crate does not say: what a kind from outside is called.

use super::finding::{Finding, Rule};

/// Crates that know no kind of source, each of which comes through a registry.
const CRATES: [&str; 4] = ["data", "model", "phases", "train"];

/// Beginnings of words of the source that comes with Undertone, in lower case.
const PARTS: [&str; 1] = ["morse"];

/// Its name, as a word of its own.
const NAMES: [&str; 1] = ["cw"];

/// Names of files, which have to be said.
const ALLOWED: [&str; 1] = ["whisper-nano-cw"];

/// Returns the lines of a crate's source that say a word that it may not. Code for tests may say everything.
pub fn check(package: &str, file: &str, source: &str) -> Vec<Finding> {
    if !CRATES.contains(&package) {
        return Vec::new();
    }
    let lines = without_tests(source).into_iter();
    let said = lines.filter_map(|(number, line)| Some((number, forbidden(line)?)));
    said.map(|(number, word)| {
        Finding::new(Rule::Word, format!("{file}:{number}"), format!("`{word}`, which a kind from outside brings"))
    })
    .collect()
}

/// Returns the first forbidden word of a line.
fn forbidden(line: &str) -> Option<String> {
    let line = ALLOWED.iter().fold(line.to_lowercase(), |line, name| line.replace(name, ""));
    let mut words = line.split(|c: char| !c.is_alphanumeric());
    words.find(|word| NAMES.contains(word) || PARTS.iter().any(|part| word.contains(part))).map(str::to_owned)
}

/// Returns the numbered lines of a source that are not for tests: without what follows `#[cfg(test)]`, up to the end of
/// its item.
fn without_tests(source: &str) -> Vec<(usize, &str)> {
    let (mut kept, mut lines) = (Vec::new(), (1..).zip(source.lines()));
    while let Some((number, line)) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push((number, line));
            continue;
        }
        let mut open = 0;
        for (_, line) in lines.by_ref() {
            let count = |brackets: [char; 3]| line.matches(brackets).count() as isize;
            open += count(['{', '(', '[']) - count(['}', ')', ']']);
            if open <= 0 && line.trim_end().ends_with(['}', ';']) {
                break;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_outside_of_tests() {
        let source = "use undertone_cw::x;\n// Reads Morse.\n#[cfg(test)]\nmod tests {\n    // cw\n    f();\n}\nlet a = \"whisper-nano-cw\";\nfn is_morse() {}\n#[cfg(test)]\nuse cw;\nlet cwm = \"cw\";\n";
        let found: Vec<String> = check("data", "a.rs", source).iter().map(|found| found.place.clone()).collect();
        assert_eq!(found, ["a.rs:1", "a.rs:2", "a.rs:9", "a.rs:12"]);
        assert!(check("cw", "a.rs", source).is_empty());
    }
}
