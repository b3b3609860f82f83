use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn parse(name: &str, text: &str) -> Result<Vec<Entry>, ManifestError> {
    let entries = parse::parse(&Path::new("data").join(name), text)?;
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

fn entry(audio: &str, text: &str) -> Entry {
    Entry { audio: audio.into(), text: text.into(), language: None, task: None, start: None, end: None }
}

fn fails(name: &str, text: &str, part: &str) {
    let error = parse(name, text).unwrap_err().to_string();
    assert!(error.contains(part) && error.starts_with(&format!("data/{name}: ")), "{error}");
}

fn full() -> Entry {
    Entry {
        language: Some("en".into()),
        task: Some("digits".into()),
        start: Some(0.5),
        end: Some(2.0),
        ..entry("data/a.wav", "one, two")
    }
}

#[test]
fn jsonl() {
    let text = "\u{feff}{\"audio\": \"a.wav\", \"text\": \"one, two\", \"language\": \"en\", \"task\": \"digits\", \
                \"start\": 0.5, \"end\": 2}\n\n{\"audio_filepath\": \"/b.wav\", \"text\": \"\", \"end\": null}\r\n";
    assert_eq!(parse("m.jsonl", text).unwrap(), [full(), entry("/b.wav", "")]);
}

#[test]
fn csv_and_tsv() {
    let csv = "text,Path,language,task,start,end,speaker\n\"one, two\",a.wav,en,digits,0.5,2,x\nhi,b.wav,,,,,\n";
    assert_eq!(parse("m.csv", csv).unwrap(), [full(), entry("data/b.wav", "hi")]);
    let tsv = "file\ttext\r\na.wav\tsay \"hi\", you\r\n";
    assert_eq!(parse("m.TSV", tsv).unwrap(), [entry("data/a.wav", "say \"hi\", you")]);
    assert_eq!(parse("m.csv", "file|text\na.wav|x, y\n").unwrap(), [entry("data/a.wav", "x, y")]);
    assert_eq!(parse("m.csv", "\"audio\",text\na.wav,a|b\n").unwrap(), [entry("data/a.wav", "a|b")]);
}

#[test]
fn pipes_without_a_header() {
    let text = "a.wav|He said \"no, never\nb.wav|two|2\n";
    assert_eq!(
        parse("metadata.csv", text).unwrap(),
        [entry("data/a.wav", "He said \"no, never"), entry("data/b.wav", "two")]
    );
    fails("metadata.csv", "a.wav|one\njust text\n", "line 2: is not FILE|TRANSCRIPT");
}

#[test]
fn malformed_lines_are_named() {
    let ok = "{\"audio\": \"a.wav\", \"text\": \"x\"}\n";
    fails("m.jsonl", &format!("{ok}{{\"audio\": "), "line 2: column");
    fails("m.jsonl", &format!("{ok}\n{{\"audio\": \"a.wav\"}}"), "line 3: column 18: missing field `text`");
    fails(
        "m.jsonl",
        "{\"audio\": \"a\", \"text\": \"\", \"lang\": \"en\"}",
        "unknown field `lang`, expected one of `audio`, `audio_filepath`, `file`, `path`, `text`, `language`",
    );
    fails("m.jsonl", "{\"audio\": \"a\", \"path\": \"a\", \"text\": \"\"}", "line 1: column 21: duplicate field");
    fails("m.jsonl", "{\"audio\": \"\", \"text\": \"\"}", "the audio path is empty");
    fails("m.csv", "audio,text\na.wav,x\nb.wav,x,y\n", "line 3: has 3 cells where the header has 2");
    fails("m.csv", "audio,text,end\na.wav,x,soon\n", "line 2: \"soon\" is not a number of seconds");
    fails("m.csv", "audio,words\n", "no column named text; it has: audio, words");
    fails("m.csv", "sound,text\n", "no column named audio or path or file or audio_filepath");
    fails("m.txt", "", "name it .jsonl, .csv or .tsv");
}

#[test]
fn segments_are_checked() {
    for (start, end) in [("-1", ""), ("2", "2"), ("2", "1"), ("", "0"), ("nan", ""), ("inf", "")] {
        fails("m.csv", &format!("audio,text,start,end\na,x,,\na,x,{start},{end}\n"), "line 3: the segment from");
    }
}

#[test]
fn loading() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let fails = |path: &Path, check: bool, part: &str| {
        let error = Manifest::load(path, check).unwrap_err().to_string();
        assert!(error.contains(part) && error.starts_with(path.to_str().unwrap()), "{error}");
    };
    fails(&dir.path().join("no.csv"), false, "no such manifest");
    fails(dir.path(), false, "cannot be read");
    for (name, text) in [("e.csv", ""), ("f.csv", "audio,text\n"), ("g.jsonl", "\n \n"), ("h.tsv", "\n")] {
        fails(&file(name, text.as_bytes()), false, "holds no entries");
    }
    fails(&file("l.csv", b"audio,text\na,x\nb,\xff\n"), false, "line 3: is not UTF-8");

    file("a.wav", b"");
    let path = file("m.csv", b"audio,text\na.wav,x\nb.wav,y\n");
    assert_eq!(Manifest::load(&path, false).unwrap().entries.len(), 2);
    fails(&path, true, "line 3: the audio file");
    file("b.wav", b"");
    assert_eq!(Manifest::load(&path, true).unwrap().entries[1].audio, dir.path().join("b.wav"));
}

proptest! {
    #[test]
    fn never_panics(name in "m\\.(jsonl|csv|tsv|txt)", text in "[a-z,|\t\n\r\"{}:.0-9 -]{0,200}|\\PC{0,80}") {
        let _ = parse(&name, &text);
        let _ = parse(&name, &format!("audio,text,start,end\n{text}"));
        let _ = parse(&name, &format!("audio|text|start|end\n{text}"));
    }

    #[test]
    fn any_text_survives_jsonl(text in "\\PC*") {
        let line = serde_json::json!({"audio": "a.wav", "text": text}).to_string();
        prop_assert_eq!(parse("m.jsonl", &line).unwrap(), [entry("data/a.wav", &text)]);
    }
}
