//! SQuAD's own layout: articles, which have paragraphs, which have questions.

use serde_json::{Map, Value};

/// Returns a record for each question: the question's own fields, the paragraph's `context` and the article's `title`.
/// `None` if the items are no articles with paragraphs.
///
/// SQuAD (Rajpurkar et al., 2016) and those that took its layout for other languages publish
/// `{"data": [{"title": …, "paragraphs": [{"context": …, "qas": [{"question": …, "answers": …}, …]}, …]}, …]}`.
pub(super) fn questions(items: &[Value]) -> Option<Vec<Value>> {
    let mut records = Vec::new();
    for article in items {
        for paragraph in article.get("paragraphs")?.as_array()? {
            for question in paragraph.get("qas")?.as_array()? {
                let around = [("title", article.get("title")), ("context", paragraph.get("context"))];
                let around = around.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.clone())));
                records.push(Value::Object(around.chain(question.as_object()?.clone()).collect::<Map<_, _>>()));
            }
        }
    }
    Some(records)
}
