//! Selection of records: parts, limits, folders, and invalid configurations.

use super::*;

#[test]
fn configurations_that_cannot_be_meant_are_refused() {
    let config = |yaml: serde_json::Value| serde_json::from_value::<RecordsConfig>(yaml);
    let base = serde_json::json!({
        "path": "a.csv", "format": "csv", "columns": {"text": "s", "label": 1}, "header": true, "limit": 5,
        "part": {"to": 0.8, "by": "title"},
    });
    let good = config(base.clone()).unwrap();
    assert_eq!((good.columns["label"].clone(), good.part.clone().unwrap().from), (Column::Number(1), 0.0));
    assert_eq!(config(serde_json::to_value(&good).unwrap()).unwrap(), good);
    good.validate().unwrap();
    for (key, value, part) in [
        ("path", "".into(), "`path` is empty"),
        ("path", serde_json::json!([]), "`path` is empty"),
        ("path", serde_json::json!(["a.csv", ""]), "`path` is empty"),
        ("limit", 0.into(), "`limit` is 0"),
        ("format", "jsonl".into(), "`header` is for"),
        ("format", "text".into(), "`target_path` is missing"),
        ("target_path", "b.csv".into(), "`target_path` is for"),
        ("part", serde_json::json!({"from": 0.5, "to": 0.5}), "`part` is from 0.5 to 0.5"),
        ("part", serde_json::json!({"to": 1.5}), "make 0 <= from < to <= 1"),
    ] {
        let mut changed = base.clone();
        changed[key] = value;
        let message = config(changed).unwrap().validate().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let unknown = config(serde_json::json!({"file": "a.csv"})).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `file`"), "{unknown}");
    let mistyped = config(serde_json::json!({"path": 7})).unwrap_err().to_string();
    assert!(mistyped.contains("a path, or a list of paths"), "{mistyped}");
    let text = config(serde_json::json!({"path": ["a.txt", "b.txt"], "target_path": "c.txt"})).unwrap();
    assert!(text.validate().unwrap_err().to_string().contains("`format: text` reads two"));
    let list = config(serde_json::json!({"path": ["a.csv", "b.jsonl"], "header": true})).unwrap();
    assert!(list.validate().unwrap_err().to_string().contains("`header` is for"));
}

#[test]
fn parts_keep_groups_together_and_cover_the_file() {
    let folder = Folder::new();
    let lines = |range: std::ops::Range<usize>| -> String {
        range
            .map(|n| format!("{{\"source\": \"{n}\", \"target\": \"\", \"meta\": {{\"title\": \"T{}\"}}}}\n", n % 17))
            .collect()
    };
    let part = |name: &str, text: &str, from: f64, to: f64| {
        let part = Some(PartConfig { from, to, by: Some("meta.title".into()) });
        let pairs = pairs(&RecordsConfig { part, ..folder.file(name, text) });
        pairs.into_iter().map(|(number, _)| number.parse::<usize>().unwrap()).collect::<Vec<_>>()
    };
    let text = lines(0..170);
    let (train, test) = (part("a.jsonl", &text, 0.0, 0.7), part("a.jsonl", &text, 0.7, 1.0));
    let groups = |numbers: &[usize]| numbers.iter().map(|n| n % 17).collect::<std::collections::BTreeSet<_>>();
    assert!(groups(&train).is_disjoint(&groups(&test)) && !test.is_empty());
    assert_eq!((train.len() + test.len(), train.len()), (170, 10 * groups(&train).len()));
    // The same articles in a file that begins elsewhere and goes on longer.
    let longer = part("b.jsonl", &lines(50..400), 0.0, 0.7);
    assert_eq!(groups(&longer), groups(&train));
}

#[test]
fn limits_and_empty_parts() {
    let folder = Folder::new();
    let config = folder.file("a.tsv", (0..50).map(|n| format!("{n}\tx\n")).collect::<String>());
    let with = |limit, part| RecordsConfig { limit, part, ..config.clone() };
    let half = Some(PartConfig { from: 0.5, ..Default::default() });
    let all = pairs(&with(None, half.clone()));
    assert!((10..40).contains(&all.len()), "{}", all.len());
    assert_eq!(pairs(&with(Some(3), half)), all[..3], "a limit counts records of the part");
    assert_eq!(pairs(&with(Some(100), None)).len(), 50);
    let sliver = Some(PartConfig { from: 0.0, to: 1e-9, by: None });
    assert_eq!(
        error(&folder, PairRecord::read(&with(None, sliver))),
        "a.tsv: none of its 50 records is in the part from 0 to 0.000000001; widen it"
    );
    let by = Some(PartConfig { by: Some("title".into()), ..Default::default() });
    assert_eq!(
        error(&folder, PairRecord::read(&with(None, by))),
        "a.tsv line 1 has 2 columns without names; the task needs title, by which it is cut: map them under `columns`"
    );
}

#[test]
fn a_share_keeps_together_what_shares_its_passage() {
    let folder = Folder::new();
    let question = |n: usize| {
        let (passage, article) = (n % 40, n % 8);
        format!(
            "{{\"question\": \"q{n}\", \"context\": \"p{passage}\", \"answers\": [], \"article\": \"a{article}\"}}\n"
        )
    };
    let config = folder.file("a.jsonl", (0..400).map(question).collect::<String>());
    let passages = |from: f64, to: f64, by: Option<&str>| -> Vec<String> {
        let share = Some(Share { from, to, by: by.map(Column::from) });
        let records = SpanRecord::read(&RecordsConfig { share, ..config.clone() }).unwrap();
        records.into_iter().map(|record| record.context).collect()
    };
    let (train, valid) = (passages(0.0, 0.8, None), passages(0.8, 1.0, None));
    assert_eq!(train.len() + valid.len(), 400);
    assert!(!valid.is_empty() && valid.iter().all(|passage| !train.contains(passage)), "{valid:?}");
    assert!(passages(0.8, 1.0, Some("question")).iter().any(|passage| train.contains(passage)));
    let article = |passage: &String| passage[1..].parse::<usize>().unwrap() % 8;
    let (train, valid) = (passages(0.0, 0.7, Some("article")), passages(0.7, 1.0, Some("article")));
    assert!(!valid.is_empty() && valid.iter().all(|v| train.iter().all(|t| article(t) != article(v))));
    let share = Some(Share { from: 0.0, to: 0.5, by: Some("speaker".into()) });
    assert_eq!(
        error(&folder, SpanRecord::read(&RecordsConfig { share, ..config })),
        "a.jsonl line 1 has the fields question, context, answers, article; the task needs speaker, by which it is cut: \
         map them under `columns`"
    );
}

#[test]
fn the_same_text_is_on_one_side_of_a_share() {
    let folder = Folder::new();
    let share = |from, to| Some(Share { from, to, by: None });
    let config = folder.file("a.jsonl", numbered(0..50).repeat(2));
    let side = |from, to| pairs(&RecordsConfig { share: share(from, to), ..config.clone() });
    let (train, valid) = (side(0.0, 0.7), side(0.7, 1.0));
    assert!(train.len() + valid.len() == 100 && !valid.is_empty());
    assert!(valid.iter().all(|pair| !train.contains(pair)));
}

/// A JSON line with a pair of texts for every number.
fn numbered(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|n| format!("{{\"source\": \"{n}\", \"target\": \"\"}}\n")).collect()
}

#[test]
fn a_folder_is_read_as_if_its_files_were_one() {
    let folder = Folder::new();
    let whole = folder.file("whole.jsonl", numbered(0..200));
    for (name, numbers) in [("b.ndjson", 90..91), ("c.jsonl", 91..200), ("a.JSONL", 0..90)] {
        folder.file(&format!("train/{name}"), numbered(numbers));
    }
    folder.file("train/aa.jsonl", "\n");
    for other in ["README.md", ".a.csv", "old.d/z.jsonl", "deep.jsonl/z.jsonl"] {
        folder.file(&format!("train/{other}"), numbered(500..501));
    }
    let shards = at(folder.path("train"));
    let list = at(["a.JSONL", "b.ndjson", "c.jsonl"].map(|name| folder.path("train").join(name)).to_vec());
    let part = Some(PartConfig { from: 0.2, to: 0.9, by: None });
    for (limit, part) in [(None, None), (Some(91), None), (Some(60), part.clone()), (None, part)] {
        let read = |config: &RecordsConfig| pairs(&RecordsConfig { limit, part: part.clone(), ..config.clone() });
        let expected = read(&whole);
        assert_eq!((read(&shards), read(&list)), (expected.clone(), expected));
    }
    let records = PairRecord::read(&shards).unwrap();
    assert_eq!(records[89].origin.to_string(), format!("{} line 90", folder.path("train/a.JSONL").display()));
    assert_eq!(records[91].origin.to_string(), format!("{} line 1", folder.path("train/c.jsonl").display()));
    let twice = at(vec![folder.path("whole.jsonl"), folder.path("train")]);
    assert_eq!(pairs(&twice).len(), 400);
    folder.file("train/b.ndjson", "\n7\n");
    assert!(error(&folder, PairRecord::read(&shards)).starts_with("train/b.ndjson line 2 is not a JSON object"));
    assert_eq!(pairs(&RecordsConfig { limit: Some(90), ..shards }).len(), 90, "what is not needed is not read");
}

#[test]
fn every_table_of_a_folder_has_its_header_and_records_without_names_are_numbered_through() {
    let folder = Folder::new();
    folder.file("csv/1.csv", "text,label\na,1\n");
    folder.file("csv/2.csv", "label,text\n0,b\n");
    assert_eq!(classes(&at(folder.path("csv"))), counted([("a", 1), ("b", 0)]));
    for name in ["qa/1.jsonl", "qa/2.jsonl"] {
        folder.file(name, r#"{"question": "q", "context": "c", "answers": []}"#);
    }
    let ids: Vec<_> = SpanRecord::read(&at(folder.path("qa"))).unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(ids, ["1", "2"]);
}

#[test]
fn a_folder_that_cannot_be_meant_is_named() {
    let folder = Folder::new();
    let fails = |config: RecordsConfig| error(&folder, PairRecord::read(&config));
    folder.file("set/README.md", "");
    let set = at(folder.path("set"));
    assert_eq!(
        fails(set.clone()),
        "set: is a folder without files of records (.jsonl, .ndjson, .json, .csv, .tsv, .conll, .bio, .iob2, \
         .parquet); name one that has some"
    );
    folder.file("set/info.json", "{}");
    folder.file("set/b.csv", "source,target\none,eins\n");
    assert_eq!(
        fails(set.clone()),
        "set: is a folder with files of several formats, such as b.csv and info.json; say under `format` which to read"
    );
    assert_eq!(pairs(&RecordsConfig { format: Format::Csv, ..set.clone() }), owned([("one", "eins")]));
    assert_eq!(
        fails(RecordsConfig { format: Format::Parquet, ..set.clone() }),
        "set: is a folder without files of records (.parquet); name one that has some"
    );
    folder.file("saved/data-00000-of-00001.arrow", "");
    folder.file("saved/state.json", "{}");
    let message = fails(at(folder.path("saved")));
    assert!(
        message.starts_with("saved: cannot be read: it is what `save_to_disk`") && message.contains("to_parquet"),
        "{message}"
    );
    let text = RecordsConfig { target_path: Some(folder.path("set")), ..set.clone() };
    assert_eq!(fails(text), "set is a folder: `format: text` reads two files, line by line");
    folder.file("json/info.json", "[]");
    let json = at(folder.path("json"));
    assert_eq!(fails(json.clone()), "json: holds no records; give a file that has some");
    assert!(fails(RecordsConfig { header: Some(true), ..json }).contains("`header` is for"));
    let missing = at(vec![folder.path("json"), folder.path("no")]);
    assert_eq!(fails(missing), "no: there is no such file of records; check the path");
    let empty = at(vec![folder.path("json"), folder.path("json/info.json")]);
    assert_eq!(fails(empty), "json and 1 more: holds no records; give a file that has some");
}

#[test]
fn published_data_sets_read_whole() {
    let Some(path) = shared("data/squad/squad_36_articles.jsonl") else { return };
    let squad = at(path);
    assert_eq!(SpanRecord::read(&squad).unwrap().len(), 4309);
    let part = |from, to| Some(PartConfig { from, to, by: Some("title".into()) });
    let cut = |from, to| SpanRecord::read(&RecordsConfig { part: part(from, to), ..squad.clone() }).unwrap().len();
    assert_eq!(cut(0.0, 0.6) + cut(0.6, 0.8) + cut(0.8, 1.0), 4309);

    let data = |path: &str| shared(&format!("data/{path}")).unwrap();
    let config = |path: &str| at(data(path));
    let sst2 = |config: &RecordsConfig| classes(config).len();
    assert_eq!((sst2(&config("sst2/train.tsv")), sst2(&config("sst2/dev.tsv"))), (6920, 872));
    assert_eq!(sst2(&mapped(config("sst2/dynamo_train_glue_sst2.jsonl"), [("text", "sentence")])), 7000);

    let summaries = |name: &str, target| pairs(&mapped(config(name), [("target", target)]));
    let train = summaries("summarization/scitldr_A_train.jsonl", "target");
    assert_eq!(train.len(), 1992);
    assert_eq!(train, summaries("summarization/scitldr_A_train.jsonl", "target.0"), "one summary each");
    assert_eq!(summaries("summarization/scitldr_A_dev.jsonl", "target.0").len(), 619);

    let mbpp = mapped(config("codegen/mbpp_prompt_train_valid.jsonl"), [("source", "text"), ("target", "code")]);
    assert_eq!(pairs(&mbpp).len(), 474);
    let conala = mapped(config("codegen/conala-train.json"), [("source", "intent"), ("target", "snippet")]);
    assert_eq!(pairs(&conala).len(), 2378);

    let two = |path: &str, target: &str| RecordsConfig { target_path: Some(data(target)), ..config(path) };
    assert_eq!(pairs(&two("translation/train.en", "translation/train.de")).len(), 29_000);
    assert_eq!(pairs(&two("translation/val.en", "translation/val.de")).len(), 1014);
    for (name, names, count) in [
        ("emotion_train", &["anger", "joy", "optimism", "sadness"][..], 3257),
        ("emotion_val", &["anger", "joy", "optimism", "sadness"], 374),
        ("irony_train", &["non_irony", "irony"], 2862),
        ("irony_val", &["non_irony", "irony"], 955),
        ("sentiment_val", &["negative", "neutral", "positive"], 2000),
    ] {
        let file = |kind: &str| format!("tweets/tweeteval/{name}_{kind}.txt");
        let records = ClassifyRecord::read(&two(&file("text"), &file("labels")), &labels(names)).unwrap();
        assert_eq!(records.len(), count, "{name}");
    }

    let wnut = config("tweets/wnut17train.conll");
    let tags = tag_set(&wnut).unwrap();
    assert_eq!((tags.len(), tags[1].as_str()), (13, "B-corporation"));
    let words = |config| -> (usize, usize) {
        let records = TagRecord::read(&config, &tags).unwrap();
        (records.len(), records.iter().map(|record| record.words.len()).sum())
    };
    assert_eq!((words(wnut), words(config("tweets/emerging.dev.conll"))), ((3394, 62_730), (1009, 15_733)));
}
