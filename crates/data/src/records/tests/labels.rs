//! Labels and tags that are numbers, and those that are given by index.

use super::*;

fn read(folder: &Folder, values: &[&str], set: &[&str]) -> Result<Vec<usize>, RecordsError> {
    let lines = values.iter().map(|value| format!("{{\"text\": \"a\", \"label\": {value}}}\n"));
    let records = ClassifyRecord::read(&folder.file("a.jsonl", lines.collect::<String>()), &labels(set))?;
    Ok(records.into_iter().map(|record| record.label).collect())
}

#[test]
fn a_number_is_a_name_where_names_are_numbers() {
    let folder = Folder::new();
    let stars = ["1", "2", "3", "4", "5"];
    assert_eq!(read(&folder, &["1", "\"5\""], &stars).unwrap(), [0, 4]);
    for unknown in ["0", "6", "\"0\"", "true"] {
        let message = error(&folder, read(&folder, &["1", unknown], &stars));
        let label = unknown.trim_matches('"');
        assert_eq!(
            message,
            format!(
                "a.jsonl line 2 has the label `{label}`, which is none of the task's: 1, 2, 3, 4, 5 (some of these are \
                 numbers, so a number is a name here and no place in the list: name them as the data does)"
            )
        );
    }
    // One number among them is enough, however it is written.
    for set in [["none", "1"], ["-1", "one"], ["0.5", "half"], ["few", " 3 "]] {
        assert!(error(&folder, read(&folder, &["0"], &set)).contains("no place in the list"), "{set:?}");
    }
    assert_eq!(read(&folder, &["0", "1"], &["nan", "inf"]).unwrap(), [0, 1], "words, not numbers");
}

#[test]
fn whole_numbers_may_be_written_as_floats() {
    let folder = Folder::new();
    assert_eq!(read(&folder, &["1.0", "\"0.0\""], &["no", "yes"]).unwrap(), [1, 0]);
    assert_eq!(read(&folder, &["5.0", "1"], &["1", "5"]).unwrap(), [1, 0]);
    assert_eq!(read(&folder, &["1.0"], &["1", "1.0"]).unwrap(), [1], "a name of its own");
    assert!(error(&folder, read(&folder, &["1.5"], &["no", "yes"])).contains("`1.5`"));
}

#[test]
fn records_that_cannot_be_used_are_left_out_up_to_a_share() {
    let folder = Folder::new();
    let lines = (0..10).map(|n| format!("{{\"text\": \"{n}\", \"label\": {}}}\n", if n == 3 { -1 } else { 0 }));
    let file = folder.file("a.jsonl", lines.chain(["{\"text\": null, \"label\": 0}".to_owned()]).collect::<String>());
    let read = |skip| ClassifyRecord::read(&RecordsConfig { skip, ..file.clone() }, &labels(&["no", "yes"]));
    assert!(error(&folder, read(None)).contains("line 4 has the label `-1`"));
    let texts: Vec<String> = read(Some(0.2)).unwrap().into_iter().map(|record| record.text).collect();
    assert_eq!(texts.join(" "), "0 1 2 4 5 6 7 8 9");
    let refused = error(&folder, read(Some(0.1)));
    assert!(
        refused.contains("2 of 11 records") && refused.contains("`max_bad_share`") && refused.contains("`-1`"),
        "{refused}"
    );
}

#[test]
fn truth_is_the_names_0_and_1_or_the_first_two_places() {
    let folder = Folder::new();
    assert_eq!(read(&folder, &["true", "false"], &["1", "0"]).unwrap(), [0, 1]);
    assert_eq!(read(&folder, &["true", "false"], &["0", "1", "2"]).unwrap(), [1, 0]);
    assert_eq!(read(&folder, &["true", "false"], &["no", "yes"]).unwrap(), [1, 0]);
    assert!(error(&folder, read(&folder, &["true"], &["1", "2"])).contains("the label `true`"));
}

#[test]
fn tags_that_are_numbers_are_names_too() {
    let folder = Folder::new();
    let file = |tag: u8| folder.file("a.conll", format!("Rome\t1\nfell\t{tag}\n"));
    let set = labels(&["1", "2"]);
    assert_eq!(TagRecord::read(&file(2), &set).unwrap()[0].tags, [0, 1]);
    let message = error(&folder, TagRecord::read(&file(0), &set));
    assert!(message.starts_with("a.conll line 2 has the tag `0`, which is none of the task's: 1, 2"), "{message}");
}

#[test]
fn numbers_of_classes_that_parquet_names_are_these_names() {
    let path = fixture("classes.parquet");
    let labels = |names: [&str; 2]| {
        let records = ClassifyRecord::read(&at(path.clone()), &names.map(str::to_owned))?;
        Ok::<_, RecordsError>(records.iter().map(|record| record.label).collect::<Vec<_>>())
    };
    assert_eq!(labels(["neg", "pos"]).unwrap(), [0, 1]);
    assert_eq!(labels(["pos", "neg"]).unwrap(), [1, 0], "the order of the task's labels is its own");
    assert_eq!(labels(["negative", "positive"]).unwrap(), [0, 1], "names of another kind are by number");
    let error = labels(["pos", "neutral"]).unwrap_err().to_string();
    assert!(error.contains("row 1 has the label `neg`, which is none of the task's: pos, neutral"), "{error}");

    let config = mapped(at(path), [("words", "tokens"), ("tags", "ner_tags")]);
    assert_eq!(tag_set(&config).unwrap(), ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]);
    let tags = TagRecord::read(&config, &["O", "B-LOC", "B-PER"].map(str::to_owned)).unwrap();
    assert_eq!(tags.iter().map(|record| record.tags.clone()).collect::<Vec<_>>(), [vec![0, 1], vec![2]]);
}
