//! Names of linear maps, as `target_modules` has them.

use regex::Regex;

/// Linear maps that an adapter is for, written as in PEFT: `all-linear`, the end of a path, or a regular expression for whole
/// paths.
#[derive(Clone, Debug)]
pub struct Target(Kind);

#[derive(Clone, Debug)]
enum Kind {
    All,
    Name(String),
    Pattern(Regex),
}

/// Target that names every linear map.
const ALL_LINEAR: &str = "all-linear";

/// Characters that no name of a map has.
const OF_PATTERNS: &[char] = &['*', '+', '?', '|', '(', ')', '[', ']', '{', '}', '^', '$', '\\'];

/// What paths in transformers' models begin with, before those of the maps here.
const MODELS: [&str; 4] = ["model.", "bert.", "roberta.", "distilbert."];

impl Target {
    /// Reads a target.
    ///
    /// # Errors
    /// When it has characters of a regular expression and is none.
    pub fn parse(written: &str) -> Result<Self, String> {
        Ok(Self(match written {
            ALL_LINEAR => Kind::All,
            pattern if pattern.contains(OF_PATTERNS) => Kind::Pattern(whole(pattern)?),
            name => Kind::Name(name.to_owned()),
        }))
    }

    /// Returns whether it names the map with this path: by the last part of the path or any longer suffix, or by the whole
    /// path in transformers' model, which begins with `model.` in Whisper. `intermediate` and `output` name the two maps of
    /// BERT's feed-forward layers, whose own name is `dense`.
    pub fn names(&self, path: &str) -> bool {
        let ends = |end: &str| path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        let mut models = MODELS.into_iter();
        match &self.0 {
            Kind::All => true,
            Kind::Pattern(pattern) => {
                pattern.is_match(path) || models.any(|model| pattern.is_match(&format!("{model}{path}")))
            }
            Kind::Name(name) => match name.as_str() {
                "output" => ends("output.dense") && !ends("attention.output.dense"),
                "intermediate" => ends("intermediate.dense"),
                name => ends(name) || models.any(|model| name.strip_prefix(model) == Some(path)),
            },
        }
    }
}

/// Returns a regular expression for a whole path.
fn whole(pattern: &str) -> Result<Regex, String> {
    let refused = || format!("`target_modules` has `{pattern}`, which is neither a name nor a regular expression");
    // By itself first: `a)|(b` is one only between the parentheses that are put around it.
    let parsed = Regex::new(pattern).and_then(|_| Regex::new(&format!("^(?:{pattern})$")));
    parsed.map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::{ALL_LINEAR, Target};

    fn names(path: &str, target: &str) -> bool {
        Target::parse(target).expect("a target").names(path)
    }

    #[test]
    fn targets_match_whole_names_at_the_end_of_a_path() {
        let path = "encoder.layers.0.self_attn.q_proj";
        assert!(names(path, "q_proj") && names(path, "self_attn.q_proj") && names(path, path));
        assert!(names(path, ALL_LINEAR) && names(path, &format!("model.{path}")));
        assert!(!names(path, "proj") && !names(path, "attn.q_proj") && !names(path, "k_proj"));
    }

    #[test]
    fn the_feed_forward_layers_of_bert_have_names_of_their_own() {
        let [attention, inner, outer] =
            ["attention.output.dense", "intermediate.dense", "output.dense"].map(|n| format!("encoder.layer.3.{n}"));
        assert!([&attention, &inner, &outer].iter().all(|path| names(path, "dense")));
        assert!(names(&inner, "intermediate") && !names(&outer, "intermediate"));
        assert!(names(&outer, "output") && !names(&attention, "output") && !names(&inner, "output"));
    }

    #[test]
    fn regular_expressions_are_for_whole_paths() {
        let path = |stack: &str, map: &str| format!("{stack}.layers.3.{map}");
        let pattern = ".*decoder.*(self_attn|encoder_attn).*(q_proj|v_proj)$";
        assert!(names(&path("decoder", "self_attn.q_proj"), pattern));
        assert!(names(&path("decoder", "encoder_attn.v_proj"), pattern));
        assert!(!names(&path("encoder", "self_attn.q_proj"), pattern));
        assert!(!names(&path("decoder", "self_attn.k_proj"), pattern));
        // `re.fullmatch`, as PEFT does, of the name that transformers gives the map, too.
        assert!(!names(&path("decoder", "self_attn.q_proj"), "(self_attn|encoder_attn)"));
        assert!(names(&path("decoder", "fc1"), r"model\.decoder\.layers\.[0-3]\.fc[12]"));
        assert!(!names(&path("decoder", "fc1"), r"model\.decoder\.layers\.[0-2]\.fc[12]"));
        assert!(names("encoder.layer.1.output.dense", r"roberta\.encoder\.layer\.\d+\.output\.dense"));
        assert!(!names(&path("decoder", "fc1"), "fc1|fc2"), "the path is longer");
    }

    #[test]
    fn what_is_no_regular_expression_is_named() {
        for pattern in [".*(q_proj", "a)|(b", "*"] {
            let refused = Target::parse(pattern).expect_err("refused");
            assert!(refused.contains(&format!("has `{pattern}`, which is neither")), "{refused}");
        }
    }
}
