//! Registry of the kinds of tasks that YAML can name.

use crate::kinds::{classify::ClassifyConfig, seq2seq::Seq2seqConfig, span::SpanConfig, tag::TagConfig};
use crate::{HeadConfig, TaskKind};
use serde::de::DeserializeOwned;
use undertone_registry::typed::ConfigType;
use undertone_registry::{NameTaken, Registry, typed_config};

/// Registers a kind under its name: from then on, `head: {type: name, …}` is parsed as this kind. Registering a kind
/// again has no effect.
///
/// # Errors
/// When another kind has the name.
pub fn register<K: TaskKind + DeserializeOwned + Default>() -> Result<(), NameTaken> {
    KINDS.register(kind::<K>())
}

/// Names of all kinds: the built-in ones, then others in the order of registration.
pub fn names() -> Vec<&'static str> {
    KINDS.all().iter().map(|kind| kind.name).collect()
}

static KINDS: Registry<ConfigType<HeadConfig>> = Registry::new("kind of task", || {
    vec![kind::<Seq2seqConfig>(), kind::<ClassifyConfig>(), kind::<SpanConfig>(), kind::<TagConfig>()]
});

fn kind<K: TaskKind + DeserializeOwned + Default>() -> ConfigType<HeadConfig> {
    ConfigType::of::<K>(K::default().name(), K::schema)
}

typed_config!(HeadConfig, TaskKind, KINDS, "Head", |name| String::deserialize(name).map_err(|error| error.to_string()));

impl Default for HeadConfig {
    fn default() -> Self {
        Self::new(Seq2seqConfig::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::classify::ClassifyConfig;
    use crate::kinds::span::SpanConfig;
    use serde_json::json;

    fn head(json: serde_json::Value) -> Result<HeadConfig, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_head_is_written_as_it_is_read_with_its_type_first() {
        let span = SpanConfig { null_score_diff_threshold: Some(0.1), ..Default::default() };
        let text = serde_json::to_string(&HeadConfig::new(span.clone())).expect("written");
        let expected = r#"{"type":"span","max_length":384,"doc_stride":128,"n_best":20,"max_answer_length":30,"null_score_diff_threshold":0.1,"dropout":0.0}"#;
        assert_eq!(text, expected);
        let found: HeadConfig = serde_json::from_str(&text).expect("read");
        assert_eq!((found.name(), found.downcast_ref::<SpanConfig>()), ("span", Some(&span)));
        assert_ne!(found, HeadConfig::default());
        // The type may come last, and missing keys have their defaults.
        let found = head(json!({"labels": ["a", "b"], "type": "classify"})).expect("read");
        let labels = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(found.downcast_ref::<ClassifyConfig>(), Some(&ClassifyConfig { labels, ..Default::default() }));
    }

    #[test]
    fn what_is_no_head_is_refused_by_name() {
        for (json, expected) in [
            (
                json!({"type": "classification"}),
                "unknown variant `classification`, expected one of `seq2seq`, `classify`, `span`, `tag`",
            ),
            (json!({"labels": []}), "missing field `type`"),
            (
                json!({"type": "tag", "max": 3}),
                "`max`: there is no such key; the keys here are labels, max_length, dropout",
            ),
            (
                json!({"type": "tag", "max_length": "long"}),
                "`max_length`: invalid type: found string \"long\", expected usize",
            ),
            (json!({"type": "tag", "max_length": -1}), "`max_length`: invalid value signed int `-1`, expected usize"),
            (json!({"type": "tag", "type2": null}), "`type2`: there is no such key"),
            (json!({"type": 3}), "invalid type: integer `3`, expected a string"),
            (json!("tag"), "invalid type: string \"tag\""),
        ] {
            let error = head(json.clone()).expect_err("refused");
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
