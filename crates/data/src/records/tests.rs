use std::fmt::Debug;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use undertone_testing::shared;

use super::*;
use crate::testing::{Folder, at};

mod answers;
mod labels;
mod selection;
mod tables;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/records/fixtures").join(name)
}

fn mapped<C: Into<Column>>(
    config: RecordsConfig,
    columns: impl IntoIterator<Item = (&'static str, C)>,
) -> RecordsConfig {
    let columns = columns.into_iter().map(|(field, column)| (field.to_owned(), column.into())).collect();
    RecordsConfig { columns, ..config }
}

fn labels(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn classes(config: &RecordsConfig) -> Vec<(String, usize)> {
    let records = ClassifyRecord::read(config, &labels(&["negative", "positive"])).unwrap();
    records.into_iter().map(|record| (record.text, record.label)).collect()
}

fn pairs(config: &RecordsConfig) -> Vec<(String, String)> {
    PairRecord::read(config).unwrap().into_iter().map(|pair| (pair.source, pair.target)).collect()
}

/// Returns the error without the folder's name.
#[track_caller]
fn error<T: Debug>(folder: &Folder, result: Result<T, RecordsError>) -> String {
    result.unwrap_err().to_string().replace(&format!("{}/", folder.0.path().display()), "")
}

fn owned<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(a, b)| (a.into(), b.into())).into()
}

fn counted<const N: usize>(pairs: [(&str, usize); N]) -> Vec<(String, usize)> {
    pairs.map(|(text, label)| (text.into(), label)).into()
}

#[test]
fn json_lines_with_labels_by_name_and_by_number() {
    let folder = Folder::new();
    let text = "\u{feff}{\"text\": \"a\", \"label\": 1}\r\n \n{\"label\": \"negative\", \"text\": \"b\", \"idx\": 3}\n\
                {\"text\": \"c\", \"label\": true}\n{\"text\": [\"d\", \"e\"], \"label\": \" 0 \"}";
    let config = folder.file("a.jsonl", text);
    assert_eq!(classes(&config), counted([("a", 1), ("b", 0), ("c", 1), ("d e", 0)]));
    let records = ClassifyRecord::read(&config, &labels(&["1", "negative", "true", "0"])).unwrap();
    let found: Vec<_> = records.iter().map(|record| (record.label, record.origin.place)).collect();
    assert_eq!(found, [(0, Place::Line(1)), (1, Place::Line(3)), (2, Place::Line(4)), (3, Place::Line(5))]);
    assert_eq!(records[1].origin.to_string(), format!("{} line 3", config.path));
}

#[test]
fn pairs_of_texts_are_optional_unless_they_are_mapped() {
    let folder = Folder::new();
    let config = folder
        .file("a.jsonl", "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": 0}\n{\"text\": \"a\", \"label\": 0}");
    let read = |config: &RecordsConfig| ClassifyRecord::read(config, &labels(&["no"]));
    let found: Vec<_> = read(&config).unwrap().into_iter().map(|record| record.text_pair).collect();
    assert_eq!(found, [Some("b".into()), None]);
    let message = error(&folder, read(&mapped(config, [("text_pair", "hypothesis")])));
    assert_eq!(
        message,
        "a.jsonl line 1 has the fields text, text_pair, label; the task needs text_pair (as `hypothesis`): map them \
         under `columns`"
    );
}

#[test]
fn json_arrays_alone_or_in_an_object() {
    let folder = Folder::new();
    let items = "[\n {\"source\": \"one\",\n  \"target\": \"eins\"}, [\"two\", \"zwei\"]]";
    let expected = owned([("one", "eins"), ("two", "zwei")]);
    assert_eq!(pairs(&folder.file("a.json", items)), expected);
    let config = folder.file("b.json", format!("{{\"version\": \"1.1\", \"data\": {items}}}"));
    assert_eq!(pairs(&config), expected);
    assert_eq!(PairRecord::read(&config).unwrap()[1].origin.place, Place::Row(2));
    let lines = "{\"source\": \"one\", \"target\": \"eins\"}\n[\"two\", \"zwei\"]\n";
    assert_eq!(pairs(&folder.file("lines.json", lines)), expected, "the extension does not tell lines from arrays");

    let fails = |text: &str| error(&folder, PairRecord::read(&folder.file("c.json", text)));
    assert!(fails("{\"a\": [], \"b\": []}").contains("the fields a, b; just one must be an array"));
    assert!(fails("[1").starts_with("c.json line 2 is not JSON"), "{}", fails("[1"));
    assert!(fails("7").contains("begins neither an array"));
    assert!(fails("[7]").contains("c.json row 1 is not a JSON object"));
    assert!(fails(" \n").contains("holds no records") && fails("[]").contains("holds no records"));
}

#[test]
fn dotted_paths_reach_into_objects_and_lists() {
    let folder = Folder::new();
    let text = r#"{"translation": {"en": "one", "x.y": "dots"}, "a.b": {"c": "deep"}, "list": ["p", {"q": "r"}]}"#;
    let config = folder.file("a.jsonl", text);
    let at =
        |source: &'static str, target: &'static str| mapped(config.clone(), [("source", source), ("target", target)]);
    assert_eq!(pairs(&at("translation.en", "translation.x.y")), owned([("one", "dots")]));
    assert_eq!(pairs(&at("list.0", "list.1.q")), owned([("p", "r")]));
    let message = error(&folder, PairRecord::read(&at("a.b", "list.2")));
    assert!(message.contains("an object in source (as `a.b`), where the task needs text"), "{message}");
    let message = error(&folder, PairRecord::read(&at("list.0", "list.2")));
    assert!(message.contains("source (as `list.0`) and target (as `list.2`)"), "{message}");
}

#[test]
fn tables_have_headers_where_a_name_says_so() {
    let folder = Folder::new();
    let expected = counted([("say \"hi\", you", 1), ("b", 0)]);
    let quoted = "\u{feff}label, text\n1,\"say \"\"hi\"\", you\"\n0,b\n";
    assert_eq!(classes(&folder.file("a.csv", quoted)), expected);
    assert_eq!(classes(&folder.file("a.tsv", "say \"hi\", you\t1\r\nb\tnegative\r\n")), expected);
    let config = mapped(
        folder.file("b.tsv", "sentence\tgold\nsay \"hi\", you\t1\nb\t0\n"),
        [("text", "sentence"), ("label", "gold")],
    );
    assert_eq!(classes(&config), expected);
    let config = mapped(folder.file("c.tsv", "1\tx\tsay \"hi\", you\n0\tx\tb\n"), [("text", 2), ("label", 0)]);
    assert_eq!(classes(&config), expected);
    let headed =
        RecordsConfig { header: Some(true), ..mapped(folder.file("d.csv", "x,y\na,1\n"), [("text", 0), ("label", 1)]) };
    assert_eq!(classes(&headed), counted([("a", 1)]));
    let unheaded = RecordsConfig { header: Some(false), ..folder.file("e.csv", "text,1\nlabel,0\n") };
    assert_eq!(classes(&unheaded), counted([("text", 1), ("label", 0)]));
}

#[test]
fn faults_of_tables_are_named() {
    let folder = Folder::new();
    let fails =
        |name: &str, text: &[u8]| error(&folder, ClassifyRecord::read(&folder.file(name, text), &labels(&["x"])));
    assert!(fails("a.csv", b"text,label\na,x\nb\n").starts_with("a.csv line 3 has 1 cells where the first row has 2"));
    for open in ["text,label\na,x\nb,\"y\nc,x\n", "text,label\na,x\nb,\"y\nc,x", "text,label\na,x\n\"b,y"] {
        let said = fails("a.csv", open.as_bytes());
        assert!(said.starts_with("a.csv line 3 opens a quote that is never closed"), "{said}");
    }
    assert!(fails("a.csv", b"text,label\na,x\n\xff,x\n").starts_with("a.csv line 3 is not UTF-8"));
    assert!(fails("a.csv", b"\xff,x\n").starts_with("a.csv line 1 is not UTF-8"));
    assert!(
        fails("a.csv", b"text,gold\na,x\n")
            .contains("line 2 has the columns text, gold; the task needs text and label")
    );
    assert!(fails("a.tsv", b"alone\n").contains("line 1 has one column without a name; the task needs text and label"));
    for text in ["", "\n", "text,label\n"] {
        assert_eq!(fails("a.csv", text.as_bytes()), "a.csv: holds no records; give a file that has some");
    }
}

#[test]
fn a_column_that_is_used_is_there_once() {
    let folder = Folder::new();
    let read = |config: &RecordsConfig| ClassifyRecord::read(config, &labels(&["0", "1"]));
    let twice = folder.file("a.csv", "text,label,text,note,note\na,0,b,x,y\n");
    assert_eq!(
        error(&folder, read(&twice)),
        "a.csv line 1 has several columns called `text`, 0 and 2 (from 0); rename all but one, or say which by its \
         number, as `columns: {text: 0}`"
    );
    assert_eq!(
        read(&mapped(twice.clone(), [("text", 2)])).unwrap()[0].text,
        "b",
        "others may be called what they like"
    );
    let by = Some(PartConfig { by: Some("note".into()), ..Default::default() });
    let message = error(&folder, read(&RecordsConfig { part: by, ..mapped(twice, [("text", 2)]) }));
    assert!(message.contains("`note`, 3 and 4 (from 0)") && message.contains("`part: {by: 3}`"), "{message}");
    let named = mapped(folder.file("b.tsv", "s\ts\tlabel\t\t\na\tb\t0\t\t\n"), [("text", "s")]);
    assert!(error(&folder, read(&named)).starts_with("b.tsv line 1 has several columns called `s`, 0 and 1"));
}

#[test]
fn a_name_that_is_used_is_once_in_an_object() {
    let folder = Folder::new();
    let twice = r#"{"text": "a", "label": 0, "text": "b", "x": 1, "x": 2}"#;
    let read = |config: &RecordsConfig| ClassifyRecord::read(config, &labels(&["0", "1"]));
    for (name, content, place) in [
        ("a.jsonl", format!("{{\"text\": \"a\", \"label\": 1}}\n{twice}\n"), "a.jsonl line 2"),
        ("a.json", format!("[{{\"text\": \"a\", \"label\": 1}}, {twice}]"), "a.json row 2"),
        ("b.json", format!("{{\"n\": 2, \"data\": [{twice}]}}"), "b.json row 1"),
    ] {
        let config = folder.file(name, content);
        assert_eq!(error(&folder, read(&config)), format!("{place} has `text` twice; keep one of them"));
    }
    let unused = folder.file("b.jsonl", twice.replacen("\"text\"", "\"other\"", 1));
    assert_eq!(read(&unused).unwrap()[0].text, "b");
    let nested = r#"{"t": {"en": "a", "de": "b", "en": "c"}, "label": 0}"#;
    let nested = |column| read(&mapped(folder.file("n.jsonl", nested), [("text", column)]));
    assert_eq!(error(&folder, nested("t.en")), "n.jsonl line 1 has `t.en` twice; keep one of them");
    assert_eq!(nested("t.de").unwrap()[0].text, "b");
    let message = error(&folder, read(&folder.file("c.json", r#"{"data": [], "data": [1]}"#)));
    assert!(message.contains("c.json line 1 begins an object that has `data` twice"), "{message}");
}

#[test]
fn a_file_of_another_task_is_refused_with_its_fields() {
    let folder = Folder::new();
    let config = folder.file("xsum.jsonl", "{\"sentence\": \"s\", \"label\": 0, \"idx\": 1}\n");
    assert_eq!(
        error(&folder, PairRecord::read(&config)),
        "xsum.jsonl line 1 has the fields sentence, label, idx; the task needs source and target: map them under \
         `columns`"
    );
    assert!(
        error(&folder, PairRecord::read(&mapped(config, [("text", "sentence")])))
            .contains("`columns` has `text`: the task has source, target")
    );
}

#[test]
fn labels_outside_the_set_are_named_with_it() {
    let folder = Folder::new();
    let read = |label: &str| {
        let config = folder.file("a.jsonl", format!("\n{{\"text\": \"a\", \"label\": {label}}}"));
        error(&folder, ClassifyRecord::read(&config, &labels(&["negative", "positive"])))
    };
    assert_eq!(
        read("\"neutral\""),
        "a.jsonl line 2 has the label `neutral`, which is none of the task's: negative, positive (or their numbers \
         from 0)"
    );
    assert!(read("2").contains("the label `2`") && read("-1").contains("the label `-1`"));
    assert!(read("null").contains("null in label, where the task needs a label's name or number"));
    let config = folder.file("a.jsonl", "");
    for (set, part) in [(labels(&[]), "no labels"), (labels(&["a", "b", "a"]), "`a` is given twice")] {
        assert!(error(&folder, ClassifyRecord::read(&config, &set)).contains(part));
    }
}

#[test]
fn two_plain_files_belong_together_line_by_line() {
    let folder = Folder::new();
    let both = |source: &str, target: &str| {
        folder.file("b.txt", target);
        RecordsConfig { target_path: Some(folder.path("b.txt")), ..folder.file("a.txt", source) }
    };
    // U+2028 separates lines for Unicode, and is part of a text here.
    assert_eq!(
        pairs(&both("one\u{2028}x\r\n\ntwo ", "eins\n\nzwei\n")),
        owned([("one\u{2028}x", "eins"), ("", ""), ("two ", "zwei")])
    );
    assert_eq!(classes(&both("a\nb\n", "1\nnegative")), counted([("a", 1), ("b", 0)]));
    assert_eq!(
        error(&folder, PairRecord::read(&RecordsConfig { limit: Some(1), ..both("1\n2\n3\n", "1\n2\n") })),
        "a.txt has 3 lines and b.txt has 2: line n of one must belong to line n of the other"
    );
    let missing = RecordsConfig { target_path: Some(folder.path("no.txt")), ..both("1", "1") };
    assert_eq!(error(&folder, PairRecord::read(&missing)), "no.txt: there is no such file of records; check the path");
}

#[test]
fn conll_sentences_end_at_blank_lines() {
    let folder = Folder::new();
    let text =
        "-DOCSTART-\tO\n\nRome\tB-place\nfell\tO\n\t \n\nIn New\tO\r\nYork\tI-place\r\n-DOCSTART- -X- O O\nend\tO";
    let config = folder.file("a.conll", text);
    let tags = tag_set(&config).unwrap();
    assert_eq!(tags, ["O", "B-place", "I-place"]);
    let records = TagRecord::read(&config, &tags).unwrap();
    let found: Vec<_> =
        records.iter().map(|record| (record.words.join("|"), record.tags.clone(), record.origin.place)).collect();
    let expected = [("Rome|fell", vec![1, 0], 3), ("In New|York", vec![0, 2], 7), ("end", vec![0], 10)];
    assert_eq!(found, expected.map(|(words, tags, line)| (words.to_owned(), tags, Place::Line(line))));

    let four = folder.file("b.conll", "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n");
    assert_eq!(TagRecord::read(&four, &labels(&["O", "B-ORG"])).unwrap()[0].tags, [1, 0], "the last column is the tag");
    let chunks = mapped(four, [("tags", 2)]);
    assert_eq!(tag_set(&chunks).unwrap(), ["O", "B-NP", "I-NP", "B-VP", "I-VP"]);

    // Comments of CoNLL-U and MultiCoNER, a word that looks like one, and a space that does not break.
    let text = "# sent_id = 1\n# text = a b\nRome B-place\nfell O\n\n# id 7 domain=en\n# O\n2\u{a0}000 O\n\n# O\nend O\n\n# O\n";
    let records = TagRecord::read(&folder.file("e.conll", text), &tags).unwrap();
    let found: Vec<_> = records.iter().map(|record| record.words.join("|")).collect();
    assert_eq!(found, ["Rome|fell", "#|2\u{a0}000", "#|end", "#"]);

    let fails = |text: &str| error(&folder, TagRecord::read(&folder.file("c.conll", text), &labels(&["O"])));
    assert!(
        fails("a\tO\n\na\tO\nb\tB-x\n").starts_with("c.conll line 4 has the tag `B-x`, which is none of the task's: O")
    );
    assert!(fails("a\tO\nb\n").starts_with("c.conll line 2 has a word without a tag"));
    assert!(fails("a\tO\nb\tx\tO\n").starts_with("c.conll line 2 has 3 columns where the sentence began with 2"));
    assert!(fails("\n \n-DOCSTART- O\n").contains("holds no records"));
    let message = error(&folder, tag_set(&folder.file("d.conll", "a\tO\nb\tNOUN\n")));
    assert!(message.starts_with("d.conll line 2 has the tag \"NOUN\", which is not in BIO notation"), "{message}");
}

#[test]
fn tags_in_json_are_lists_or_words() {
    let folder = Folder::new();
    let text = "{\"tokens\": [\"Rome\", \"fell\"], \"ner\": [1, \"O\"]}\n{\"tokens\": \"it fell\", \"ner\": \"O O\"}\n";
    let config = mapped(folder.file("a.jsonl", text), [("words", "tokens"), ("tags", "ner")]);
    let found: Vec<_> = TagRecord::read(&config, &labels(&["O", "B-x"]))
        .unwrap()
        .into_iter()
        .map(|record| (record.words.len(), record.tags))
        .collect();
    assert_eq!(found, [(2, vec![1, 0]), (2, vec![0, 0])]);
    assert!(error(&folder, tag_set(&config)).contains("the tag 1, which is not in BIO notation"));
    let fails = |text: &str| error(&folder, TagRecord::read(&folder.file("b.jsonl", text), &labels(&["O"])));
    assert!(fails(r#"{"words": ["a"], "tags": []}"#).contains("has 1 words and 0 tags"));
    assert!(
        fails(r#"{"words": [1], "tags": [0]}"#).contains("a number in words, where the task needs a list of texts")
    );
    assert!(fails(r#"{"words": 1, "tags": [0]}"#).contains("a number in words, where the task needs a list"));
    assert!(fails(r#"{"words": ["a"], "tags": [[0]]}"#).contains("a list in tags, where the task needs a tag's name"));
}

#[test]
fn a_single_record_on_a_line_is_one() {
    let folder = Folder::new();
    let records =
        ClassifyRecord::read(&folder.file("a.json", r#"{"text": "fine", "label": "good"}"#), &["good".into()]).unwrap();
    assert_eq!(records[0].text, "fine");
}

#[test]
fn given_names_of_columns_are_found_in_upper_and_lower_case() {
    let folder = Folder::new();
    for (name, text) in
        [("a.csv", "Sentence,Label\nfine,good\n"), ("a.jsonl", r#"{"Sentence": "fine", "Label": "good"}"#)]
    {
        let mut config = folder.file(name, text);
        config.columns.insert("text".into(), Column::Name("sentence".into()));
        assert_eq!(ClassifyRecord::read(&config, &["good".into()]).unwrap()[0].text, "fine", "{name}");
    }
}

#[test]
fn a_field_that_is_null_under_columns_is_not_read() {
    let folder = Folder::new();
    let config = folder.file("a.jsonl", r#"{"id": [1], "question": "q", "context": "c", "answers": []}"#);
    assert!(error(&folder, SpanRecord::read(&config)).contains("a list in id"));
    let without = |field: &str| {
        let columns = [(field.to_owned(), Column::Absent)].into();
        SpanRecord::read(&RecordsConfig { columns, ..config.clone() })
    };
    assert_eq!(without("id").unwrap()[0].id, "1");
    assert!(error(&folder, without("context")).contains("`context: null`"));
    assert_eq!(serde_json::from_str::<Column>("null").unwrap(), Column::Absent);
}

#[test]
fn parquet_of_every_compression() {
    let folder = Folder::new();
    let squad = SpanRecord::read(&at(fixture("squad.parquet"))).unwrap();
    let answer = |text: &str, start| Answer { text: text.into(), start };
    assert_eq!((squad[0].id.as_str(), squad[0].question.as_str()), ("a", "Was?"));
    assert_eq!(squad[0].answers, [answer("🦁", 9), answer("Löwe 🦁", 4)]);
    assert_eq!((squad[1].answers.len(), squad[1].origin.place), (0, Place::Row(2)));

    let tags = mapped(at(fixture("tags.parquet")), [("words", "tokens"), ("tags", "ner_tags")]);
    let tags = TagRecord::read(&tags, &labels(&["O", "B-x"])).unwrap();
    assert_eq!((tags[0].words.join(" "), &tags[0].tags, tags[1].words.len()), ("Rome fell".into(), &vec![1, 0], 0));

    let translation =
        mapped(at(fixture("translation.parquet")), [("source", "translation.de"), ("target", "translation.en")]);
    assert_eq!(pairs(&translation), owned([("eins", "one"), ("zwei", "two")]));

    let config = mapped(at(fixture("classify.parquet")), [("text", "sentence")]);
    assert_eq!(classes(&RecordsConfig { limit: Some(1), ..config.clone() }), counted([("good", 1)]));
    let message = ClassifyRecord::read(&config, &labels(&["a", "b"])).unwrap_err().to_string();
    assert!(message.contains("classify.parquet row 2 has null in text (as `sentence`)"), "{message}");

    let whole = std::fs::read(fixture("squad.parquet")).unwrap();
    for bytes in [&whole[..whole.len() / 2], b"PAR1", b""] {
        let message = error(&folder, SpanRecord::read(&folder.file("cut.parquet", bytes)));
        assert!(message.starts_with("cut.parquet: cannot be read: "), "{message}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = Folder::new();
    let fails = |config: RecordsConfig| error(&folder, PairRecord::read(&config));
    for name in ["no.jsonl", "no"] {
        let expected = format!("{name}: there is no such file of records; check the path");
        assert_eq!(fails(at(folder.path(name))), expected);
    }
    assert!(fails(folder.file("a.txt", "")).starts_with("a.txt: the extension tells no format"));
    assert!(
        fails(folder.file("a.jsonl", b"{\"source\": \"1\", \"target\": \"1\"}\n\"\xff\"\n"))
            .starts_with("a.jsonl line 2 is not UTF-8")
    );
    assert!(fails(folder.file("b.json", b"[\n\"\xff\"]")).starts_with("b.json line 2 is not UTF-8"));
    assert!(fails(folder.file("c.jsonl", b"[\n")).starts_with("c.jsonl line 1 is not JSON at column"));
    assert!(fails(folder.file("d.jsonl", b"7")).starts_with("d.jsonl line 1 is not a JSON object"));
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(
        name in "a\\.(jsonl|json|csv|tsv|conll)",
        text in "[a-z,|\t\n\r\"{}\\[\\]:.0-9 -]{0,120}|\\PC{0,60}|(\\[?\\{\"(text|label|words|tags|source|target|answers)\":(\"a\"|1|null|\\[\"a\"\\])\\}[,\n\\]]){0,4}",
    ) {
        let folder = Folder::new();
        let config = folder.file(&name, text);
        let names = labels(&["a", "b"]);
        let _ = (ClassifyRecord::read(&config, &names), SpanRecord::read(&config), TagRecord::read(&config, &names));
        let _ = (PairRecord::read(&config), tag_set(&config));
    }

    #[test]
    fn a_damaged_parquet_file_is_an_error_at_most(at in 0.0..1.0, byte in any::<u8>()) {
        let path = fixture("squad.parquet");
        let mut bytes = std::fs::read(path).unwrap();
        let at = (at * bytes.len() as f64) as usize;
        bytes[at] = byte;
        let folder = Folder::new();
        if let Err(error) = SpanRecord::read(&folder.file("a.parquet", bytes)) {
            prop_assert!(error.to_string().contains("a.parquet"), "{}", error);
        }
    }

    #[test]
    fn any_text_survives_json_and_csv(source in "\\PC*", target in "[\\PC\n\"]{0,20}") {
        let folder = Folder::new();
        let expected = vec![(source.clone(), target.clone())];
        let object = serde_json::json!({"source": source, "target": target});
        prop_assert_eq!(pairs(&folder.file("a.jsonl", object.to_string())), expected.clone());
        prop_assert_eq!(pairs(&folder.file("a.json", format!("[{object:#}]"))), expected.clone());
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(["target", "source"]).unwrap();
        csv.write_record([&target, &source]).unwrap();
        prop_assert_eq!(pairs(&folder.file("a.csv", csv.into_inner().unwrap())), expected);
    }

    #[test]
    fn any_words_survive_conll(sentences in prop::collection::vec(prop::collection::vec("[a-zé🦁.]{1,5}", 1..5), 1..5)) {
        let text: String = sentences.iter().map(|words| words.iter().map(|word| format!("{word}\tO\n")).collect::<String>() + "\n").collect();
        let records = TagRecord::read(&Folder::new().file("a.conll", text), &labels(&["O"])).unwrap();
        let found: Vec<_> = records.into_iter().map(|record| record.words).collect();
        prop_assert_eq!(found, sentences);
    }
}
