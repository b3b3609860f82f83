//! What a task's answers are made by, as YAML says it.

use crate::content::Content;
use crate::kinds::seq2seq::Seq2seqConfig;
use crate::{TaskKind, registry};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;

/// What a task's answers are made by: `head: {type: classify, labels: [negative, positive]}`. It is a [`TaskKind`] of
/// whatever type is registered under the name.
#[derive(Clone)]
pub struct HeadConfig(Arc<dyn TaskKind>);

impl HeadConfig {
    /// Of a kind that is configured in code.
    pub fn new<K: TaskKind>(kind: K) -> Self {
        Self(Arc::new(kind))
    }

    pub(crate) fn of(kind: Arc<dyn TaskKind>) -> Self {
        Self(kind)
    }

    /// The kind, if it is of this type.
    pub fn downcast_ref<K: TaskKind>(&self) -> Option<&K> {
        self.0.as_any().downcast_ref()
    }

    /// Whether it makes sense on a backbone of text or of speech; if not, why.
    ///
    /// # Errors
    /// Names the key.
    pub fn validate(&self, text: bool) -> Result<(), String> {
        let checked = if text { self.0.validate() } else { self.0.validate_on_speech() };
        checked.map_err(|reason| format!("`head`: {reason}"))
    }

    /// Whether it fits a text backbone with states `d_model` wide that has positions for `longest` tokens; if not, why.
    ///
    /// # Errors
    /// Names the key.
    pub fn fits(&self, d_model: usize, longest: usize) -> Result<(), String> {
        self.0.fits(d_model)?;
        let (key, length) = (self.max_input_key(), self.max_input());
        if length > longest {
            return Err(format!(
                "`{key}` is {length}, and the backbone has positions for {longest} tokens: give at most that"
            ));
        }
        Ok(())
    }
}

impl Default for HeadConfig {
    fn default() -> Self {
        Self::new(Seq2seqConfig::default())
    }
}

impl Deref for HeadConfig {
    type Target = dyn TaskKind;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for HeadConfig {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other.0.as_any())
    }
}

impl Debug for HeadConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for HeadConfig {
    /// The name as `type`, then the kind's own keys.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a> {
            #[serde(rename = "type")]
            name: &'static str,
            #[serde(flatten)]
            kind: Erased<'a>,
        }

        struct Erased<'a>(&'a dyn TaskKind);

        impl Serialize for Erased<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                erased_serde::serialize(self.0, serializer)
            }
        }

        Named { name: self.name(), kind: Erased(&*self.0) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HeadConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, keys) = Content::deserialize(deserializer)?.tagged("type").map_err(|error| error.of())?;
        registry::read(&name, keys).map_err(|error| error.of())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::classify::ClassifyConfig;
    use crate::kinds::span::SpanConfig;
    use serde_json::json;

    fn read(json: serde_json::Value) -> Result<HeadConfig, String> {
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
        // The type may come last, and what is not said is default.
        let found = read(json!({"labels": ["a", "b"], "type": "classify"})).expect("read");
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
                "unknown field `max`, expected one of `labels`, `max_length`, `dropout`",
            ),
            (json!({"type": "tag", "max_length": "long"}), "invalid type: string \"long\", expected usize"),
            (json!({"type": "tag", "max_length": -1}), "invalid value: integer `-1`, expected usize"),
            (json!({"type": "tag", "type2": null}), "unknown field `type2`"),
            (json!({"type": 3}), "invalid type: integer `3`, expected a string"),
            (json!("tag"), "invalid type: string \"tag\""),
        ] {
            let error = read(json.clone()).expect_err("refused");
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
