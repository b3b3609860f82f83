//! Questions with their answers.

use super::*;

#[test]
fn answers_come_in_two_forms_and_may_be_absent() {
    let folder = Folder::new();
    let record = |answers: &str| format!(r#"{{"id": 7, "question": "q", "context": "né 🦁 x", "answers": {answers}}}"#);
    let read = |answers: &str| {
        let records = SpanRecord::read(&folder.file("a.jsonl", record(answers)));
        records.map(|records| records.into_iter().map(|record| record.answers).next().unwrap())
    };
    let lion = vec![Answer { text: "🦁 x".into(), start: 3 }];
    assert_eq!(read(r#"{"text": ["🦁 x"], "answer_start": [3]}"#).unwrap(), lion);
    assert_eq!(read(r#"{"text": "🦁 x", "answer_start": 3}"#).unwrap(), lion);
    assert_eq!(read(r#"[{"text": "🦁 x", "answer_start": 3}, {"text": "né", "answer_start": 0}]"#).unwrap().len(), 2);
    for none in [r#"{"text": [], "answer_start": []}"#, "[]", "null"] {
        assert_eq!(read(none).unwrap(), []);
    }
    assert!(error(&folder, read(r#"{"text": ["x"], "answer_start": [5, 6]}"#)).contains("an object in answers, where"));
    assert!(error(&folder, read(r#"{"text": ["x"], "answer_start": [-5]}"#)).contains("an object in answers, where"));
    assert!(error(&folder, read(r#"{"text": [""], "answer_start": [5]}"#)).contains("line 1 has an empty answer"));
    for (start, found) in [(7, "where there is `` "), (8, "where there is ``"), (4, "where there is ` `")] {
        let message = error(&folder, read(&format!(r#"{{"text": ["🦁"], "answer_start": [{start}]}}"#)));
        let expected =
            format!("a.jsonl line 1 has the answer `🦁` at character {start} of the context, {}", found.trim_end());
        assert!(message.starts_with(&expected), "{message}");
    }
    let ids = SpanRecord::read(
        &folder.file("b.jsonl", format!("{}\n{}", record("[]"), record("[]").replace("\"id\": 7, ", ""))),
    );
    assert_eq!(ids.unwrap().into_iter().map(|record| record.id).collect::<Vec<_>>(), ["7", "2"]);
}

#[test]
fn answers_in_a_table_are_json() {
    let folder = Folder::new();
    let table =
        "question,context,answers\nq,a b,\"{\"\"text\"\": [\"\"b\"\"], \"\"answer_start\"\": [2]}\"\nq,a b,[]\n";
    let records = SpanRecord::read(&folder.file("a.csv", table)).unwrap();
    assert_eq!(records[0].answers, [Answer { text: "b".into(), start: 2 }]);
    assert_eq!(records[1].answers, []);
}

#[test]
fn articles_of_squad_are_a_record_for_each_question() {
    let folder = Folder::new();
    let paragraph = |context: &str, qas: &str| format!(r#"{{"context": "{context}", "qas": [{qas}]}}"#);
    let one =
        r#"{"id": "a", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}], "is_impossible": false}"#;
    let none = r#"{"id": "b", "question": "Why?", "answers": [], "is_impossible": true}"#;
    let article = |title: &str, paragraphs: &[String]| {
        format!(r#"{{"title": "{title}", "paragraphs": [{}]}}"#, paragraphs.join(","))
    };
    let articles = [
        article("One", &[paragraph("Ada wrote.", &format!("{one},{none}")), paragraph("Ada read.", one)]),
        article("Two", &[paragraph("Ada slept.", one)]),
    ];
    let config = folder.file("dev-v2.0.json", format!(r#"{{"version": "v2.0", "data": [{}]}}"#, articles.join(",")));
    let found = SpanRecord::read(&config).unwrap();
    let seen: Vec<_> = found.iter().map(|r| (r.id.as_str(), r.context.as_str(), r.answers.len())).collect();
    let expected = [("a", "Ada wrote.", 1), ("b", "Ada wrote.", 0), ("a", "Ada read.", 1), ("a", "Ada slept.", 1)];
    assert_eq!(seen, expected);
    assert_eq!(found[3].origin.place, Place::Row(4));
    let by = Some("title".into());
    let part = |from, to| Some(PartConfig { from, to, by: by.clone() });
    let counts = [(0.0, 0.5), (0.5, 1.0)].map(|(from, to)| {
        SpanRecord::read(&RecordsConfig { part: part(from, to), ..config.clone() }).map_or(0, |records| records.len())
    });
    assert!([[0, 4], [1, 3], [3, 1], [4, 0]].contains(&counts), "articles are divided, and not questions: {counts:?}");
    let twice = article("One", &[paragraph("Ada wrote.", &one.replace("\"id\"", "\"question\": \"x\", \"id\""))]);
    let message = error(&folder, SpanRecord::read(&folder.file("twice.json", format!("[{twice}]"))));
    assert!(message.contains("question` twice"), "{message}");
}
