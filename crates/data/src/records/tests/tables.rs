//! Tables as written by other programs: line ends, separators, the case of names.

use super::*;

fn read(config: &RecordsConfig) -> Result<Vec<(String, Place)>, RecordsError> {
    let records = ClassifyRecord::read(config, &labels(&["0", "1"]))?;
    Ok(records.into_iter().map(|record| (record.text, record.origin.place)).collect())
}

#[test]
fn lines_are_counted_whatever_ends_them() {
    let folder = Folder::new();
    for bom in ["", "\u{feff}"] {
        for end in ["\n", "\r\n"] {
            let lines = ["text,label", "a,0", "", "\"b", "", "c\",1", "d,0", "e,2", ""];
            let text = format!("{bom}{}", lines.join(end));
            let whole = folder.file("a.csv", text.replace("e,2", "e,1"));
            let places: Vec<Place> = read(&whole).unwrap().into_iter().map(|(_, place)| place).collect();
            assert_eq!(places, [2, 4, 7, 8].map(Place::Line), "{bom:?} {end:?}");
            let message = error(&folder, read(&folder.file("b.csv", &text)));
            assert!(message.starts_with("b.csv line 8 has the label `2`"), "{end:?}: {message}");
            let cells = text.replace("e,2", "e");
            let message = error(&folder, read(&folder.file("c.csv", cells)));
            assert!(message.starts_with("c.csv line 8 has 1 cells"), "{end:?}: {message}");
            let mut bytes = text.into_bytes();
            let at = bytes.iter().position(|byte| *byte == b'e').map(|_| bytes.len() - end.len() - 3).unwrap();
            bytes[at] = 0xff;
            let message = error(&folder, read(&folder.file("d.csv", bytes)));
            assert!(message.starts_with("d.csv line 8 is not UTF-8"), "{end:?}: {message}");
        }
    }
    let open = "text,label\r\na,0\r\nb,\"1\r\nc,0\r\n";
    let message = error(&folder, read(&folder.file("e.csv", open)));
    assert!(message.starts_with("e.csv line 3 opens a quote"), "{message}");
}

#[test]
fn json_column_by_column_is_a_table() {
    let folder = Folder::new();
    let texts = |config: &RecordsConfig| -> Vec<(String, usize)> {
        let records = ClassifyRecord::read(config, &labels(&["0", "1"])).unwrap();
        records.into_iter().map(|record| (record.text, record.label)).collect()
    };
    let expected = [("a".to_owned(), 0), ("b".to_owned(), 1)];
    // By pandas' `to_json()`, of rows that were selected, and by `json.dump` of a dictionary of lists.
    let pandas = r#"{"text":{"2":"a","10":"b"},"label":{"2":0,"10":1}}"#;
    assert_eq!(texts(&folder.file("a.json", pandas)), expected);
    let lists = r#"{"text": ["a", "b"], "label": [0, 1]}"#;
    assert_eq!(texts(&folder.file("b.json", lists)), expected);
    assert_eq!(texts(&folder.file("c.json", lists.replace(", \"l", ",\n\"l"))), expected);
    let tagged =
        |content: &str| TagRecord::read(&folder.file("t.json", content), &labels(&["O", "B-X"])).unwrap().len();
    assert_eq!(tagged(r#"{"words": [["a", "b"], ["c"]], "tags": [[0, 1], [0]]}"#), 2);
    assert_eq!(tagged(r#"{"words": ["a", "b"], "tags": [0, 1]}"#), 1, "the lists of one sentence");
    // Names that are no numbers of rows are fields.
    let nested =
        mapped(folder.file("n.json", r#"{"t": {"en": "a", "de": "b"}}"#), [("source", "t.en"), ("target", "t.de")]);
    assert_eq!(PairRecord::read(&nested).unwrap().len(), 1);
    let twice = folder.file("d.json", r#"{"text": {"0": "a", "0": "b"}, "label": {"0": 1}}"#);
    let message = error(&folder, ClassifyRecord::read(&twice, &labels(&["0", "1"])));
    assert!(message.contains("has `text.0` twice"), "{message}");
}

#[test]
fn columns_that_are_not_named_are_not_guessed_among_others() {
    let folder = Folder::new();
    let pairs = |config: &RecordsConfig| -> Result<Vec<String>, RecordsError> {
        Ok(PairRecord::read(config)?.into_iter().map(|record| record.source).collect())
    };
    let file = folder.file("a.csv", "id,article,highlights\n1,long,short\n");
    let refused = error(&folder, pairs(&file));
    assert!(refused.contains("a.csv line 1 has 3 columns") && refused.contains("`article`"), "{refused}");
    assert!(refused.contains("`columns`") && refused.contains("`header: false`"), "{refused}");
    let named = mapped(file.clone(), [("source", "article"), ("target", "highlights")]);
    assert_eq!(pairs(&named).unwrap(), ["long"]);
    let by_number = mapped(file.clone(), [("source", 1), ("target", 2)]);
    assert_eq!(pairs(&RecordsConfig { header: Some(true), ..by_number }).unwrap(), ["long"]);
    assert_eq!(pairs(&RecordsConfig { header: Some(false), ..file }).unwrap(), ["id", "1"]);
    assert_eq!(
        pairs(&folder.file("b.tsv", "guten Tag\tgood day\n")).unwrap(),
        ["guten Tag"],
        "as many columns as fields"
    );
}

#[test]
fn alternatives_of_a_target_are_not_joined() {
    let folder = Folder::new();
    let file = folder.file("a.jsonl", r#"{"source": ["a", "b"], "target": ["x", "y"]}"#);
    let refused = error(&folder, PairRecord::read(&file));
    assert!(refused.contains("a list in target") && refused.contains("target.0"), "{refused}");
    let first = PairRecord::read(&mapped(file, [("target", "target.0")])).unwrap();
    assert_eq!((first[0].source.as_str(), first[0].target.as_str()), ("a b", "x"));
}

#[test]
fn names_of_columns_are_read_in_upper_and_lower_case() {
    let folder = Folder::new();
    let texts = |name: &str, content: &str| -> Vec<String> {
        read(&folder.file(name, content)).unwrap().into_iter().map(|(text, _)| text).collect()
    };
    assert_eq!(texts("a.csv", "Text,Label\na,0\n"), ["a"]);
    assert_eq!(texts("a.tsv", "LABEL\tTEXT\n1\ta\n"), ["a"]);
    assert_eq!(texts("a.jsonl", "{\"Text\": \"a\", \"Label\": 0}"), ["a"]);
    // The exact spelling takes precedence.
    assert_eq!(texts("b.csv", "Text,text,label\nx,a,0\n"), ["a"]);
    let twice = error(&folder, read(&folder.file("c.csv", "Text,TEXT,label\nx,a,0\n")));
    assert!(twice.contains("several columns called `Text`, 0 and 1"), "{twice}");
}

#[test]
fn semicolons_separate_where_commas_do_not() {
    let folder = Folder::new();
    let texts = |content: &str| -> Vec<String> {
        read(&folder.file("a.csv", content)).unwrap().into_iter().map(|(text, _)| text).collect()
    };
    assert_eq!(texts("Text;Label\r\n\"1,5; or so\";1\r\nplain;0\r\n"), ["1,5; or so", "plain"]);
    assert_eq!(texts("a;0\nb, c;1\n"), ["a", "b, c"]);
    // Tabs do as well, with quotes as in CSV.
    assert_eq!(texts("Text\tLabel\n\"a\tb\"\t1\nplain, so\t0\n"), ["a\tb", "plain, so"]);
    assert_eq!(texts("a\t0\n"), ["a"]);
    // Commas take precedence as separators.
    assert_eq!(texts("text,label\na;b,0\n"), ["a;b"]);
    assert_eq!(texts("a;b,0\n"), ["a;b"]);
    let headed = RecordsConfig { header: Some(true), ..folder.file("b.csv", "text;label\na;0\n") };
    assert_eq!(read(&headed).unwrap()[0], ("a".to_owned(), Place::Line(2)));
}

#[test]
fn quotes_between_tabs_are_text_but_for_those_of_a_program_for_csv() {
    let folder = Folder::new();
    let text = |cell: &str| -> String {
        read(&folder.file("a.tsv", format!("text\tlabel\n{cell}\t0\n"))).expect("a table").remove(0).0
    };
    // What pandas' `to_csv(sep="\t")` and the lists of Common Voice before version 5 have.
    assert_eq!(text(r#""She said ""no"" to me.""#), r#"She said "no" to me."#);
    assert_eq!(text(r#""""Quoted.""""#), r#""Quoted.""#);
    // What later ones have.
    for raw in [r#""No," she said, "not now.""#, r#""All of it.""#, r#"5" of ""rain"""#, r#"""#, r#""""#, r#""a"b"c""#]
    {
        assert_eq!(text(raw), raw);
    }
}

#[test]
fn labels_in_upper_and_lower_case_are_the_same_unless_both_are_given() {
    let folder = Folder::new();
    let config = folder.file("a.csv", "text,label\na,Positive\nb,NEGATIVE\nc,1\n");
    assert_eq!(classes(&config), counted([("a", 1), ("b", 0), ("c", 1)]));
    let index = |set: &[&str], classes: Option<&[&str]>, value: serde_json::Value| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let classes = classes.map(owned);
        let origin = || Origin::line(&std::sync::Arc::from(std::path::Path::new("a")), 1);
        super::super::fields::index_of(&owned(set), classes.as_deref(), &value, "label", origin).ok().flatten()
    };
    assert_eq!(index(&["o", "O"], None, "O".into()), Some(1));
    assert_eq!(index(&["ok", "OK"], None, "Ok".into()), None);
    // Numbers of a column whose classes have names in the file.
    let names: &[&str] = &["positive", "negative", "neutral"];
    assert_eq!(index(&["Negative", "Neutral", "Positive"], Some(names), 0.into()), Some(2));
    assert_eq!(index(&["bad", "so-so", "good"], Some(names), 0.into()), Some(0), "with a warning");
}

#[test]
fn an_array_with_the_extension_of_lines_is_read() {
    let folder = Folder::new();
    let expected = counted([("a", 1), ("b", 0)]);
    let array = "[\n {\"text\": \"a\", \"label\": 1},\n {\"text\": \"b\", \"label\": 0}\n]\n";
    assert_eq!(classes(&folder.file("a.jsonl", array)), expected);
    assert_eq!(classes(&folder.file("b.jsonl", array.replace('\n', ""))), expected);
    assert_eq!(classes(&folder.file("c.jsonl", "[\"a\", 1]\n[\"b\", 0]\n")), expected);
}

#[test]
fn files_that_gzip_has_compressed_are_read() {
    use std::io::Write;
    let folder = Folder::new();
    let expected = counted([("a", 1), ("b", 0)]);
    let zipped = |text: &str| {
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        file.write_all(text.as_bytes()).expect("compressed");
        file.finish().expect("compressed")
    };
    let [csv, jsonl] =
        ["text,label\na,1\nb,0\n", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 0}\n"].map(zipped);
    assert_eq!(classes(&folder.file("a.csv.gz", &csv)), expected);
    assert_eq!(classes(&folder.file("parts/a.jsonl.gz", &jsonl)), expected);
    assert_eq!(classes(&at(folder.path("parts"))), expected);
    // The content says it, not the name.
    assert_eq!(classes(&folder.file("a.csv", &csv)), expected);
    let error =
        |name: &str, bytes: &[u8]| InputRecord::read(&folder.file(name, bytes)).expect_err("refused").to_string();
    assert!(
        error("a.tsv.gz", &csv[..csv.len() / 2]).contains("a.tsv.gz"),
        "{}",
        error("a.tsv.gz", &csv[..csv.len() / 2])
    );
    assert!(error("a.gz", &csv).contains("extension"), "{}", error("a.gz", &csv));
    assert!(error("a.parquet.gz", &csv).contains("extension"), "{}", error("a.parquet.gz", &csv));
}
