use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use undertone_testing::shared;

use super::*;
use crate::audio::{load, load_segment, write_wav};
use crate::cut::TimedText;
use crate::records::{Column, Format, PartConfig, RecordsConfig, Share};
use crate::testing::{Folder, at};

mod folders;
mod times;
mod transcripts;

impl Folder {
    /// Writes a WAV of this many seconds at a level that distinguishes it from others.
    fn wav(&self, name: &str, seconds: f64, level: f32) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_wav(&path, &vec![level; (seconds * 16_000.0) as usize]).unwrap();
    }

    /// Returns the error without the folder's name.
    #[track_caller]
    fn error(&self, config: &RecordsConfig) -> String {
        let error = Clips::open(config).unwrap_err().to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }

    #[track_caller]
    fn fails(&self, name: &str, text: &str, part: &str) {
        let error = self.error(&self.file(name, text));
        assert!(error.starts_with(name) && error.contains(part), "{error}");
    }
}

fn columns<const N: usize>(pairs: [(&str, Column); N]) -> BTreeMap<String, Column> {
    pairs.into_iter().map(|(field, column)| (field.to_owned(), column)).collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clips/fixtures").join(name)
}

fn texts(clips: &Clips) -> Vec<&str> {
    (0..clips.len()).map(|index| clips.clip(index).text.as_str()).collect()
}

fn names(clips: &Clips) -> Vec<&str> {
    (0..clips.len()).map(|index| clips.clip(index).name.as_str()).collect()
}

/// Checks the two clips that every list of the tests below has.
#[track_caller]
fn check_full(clips: &Clips) {
    assert_eq!(texts(clips), ["one, two", ""]);
    let (a, b) = (clips.clip(0), clips.clip(1));
    assert_eq!(
        (a.language.as_deref(), a.task.as_deref(), a.start, a.end),
        (Some("en"), Some("digits"), Some(0.5), Some(2.0))
    );
    assert_eq!((b.language.as_deref(), b.task.as_deref(), b.start, b.end), (None, None, None, None));
    assert_eq!((clips.seconds(0), clips.seconds(1)), (Some(1.5), Some(1.0)));
    assert_eq!((clips.load(0).unwrap().len(), clips.load(1).unwrap().len()), (24_000, 16_000));
    assert!((clips.load(1).unwrap()[0] - 0.25).abs() < 1e-4);
    assert!(clips.blocks().is_none());
}

fn two_files() -> Folder {
    let folder = Folder::new();
    folder.wav("a.wav", 3.0, 0.5);
    folder.wav("b.wav", 1.0, 0.25);
    folder
}

#[test]
fn lists_of_every_format_say_the_same() {
    let folder = two_files();
    let absolute = folder.path("b.wav").display().to_string();
    let jsonl = format!(
        "\u{feff}{{\"audio\": \"a.wav\", \"text\": \"one, two\", \"language\": \"en\", \"task\": \"digits\", \"start\": \
         0.5, \"end\": 2}}\n\n{{\"audio_filepath\": \"{absolute}\", \"text\": \"\", \"end\": null}}\r\n"
    );
    check_full(&Clips::open(&folder.file("m.jsonl", jsonl)).unwrap());
    let json = r#"[{"file_name": "a.wav", "transcription": "one, two", "language": "en", "task": "digits", "offset": 0.5,
        "duration": 1.5, "speaker": 7}, {"file": "b.wav", "sentence": "", "duration": 0.25}]"#;
    check_full(&Clips::open(&folder.file("m.json", json)).unwrap());
    let csv = "text,Path,language,task,start,end,speaker\n\"one, two\",a.wav,en,digits,0.5,2,x\n,b.wav,,,,,\n";
    check_full(&Clips::open(&folder.file("m.csv", csv)).unwrap());
    let lasting = "text,path,language,task,start,duration\n\"one, two\",a.wav,en,digits,0.5,1.5\n,b.wav,,,,0.25\n";
    check_full(&Clips::open(&folder.file("m.csv", lasting)).unwrap());
    let tsv = "file\ttext\tlanguage\ttask\tstart\tend\r\na.wav\tone, two\ten\tdigits\t0.5\t2\r\nb.wav\t\t\t\t\t\r\n";
    check_full(&Clips::open(&folder.file("m.TSV", tsv)).unwrap());
    let pipes = "file|text|language|task|start|end\na.wav|one, two|en|digits|0.5|2\nb.wav|||||\n";
    check_full(&Clips::open(&folder.file("m.csv", pipes)).unwrap());
    let mapped = RecordsConfig {
        columns: columns([
            ("audio", "sound.file".into()),
            ("text", "said.0".into()),
            ("start", "at.0".into()),
            ("end", "at.1".into()),
            ("language", "lang".into()),
            ("task", "kind".into()),
        ]),
        ..folder.file(
            "n.jsonl",
            "{\"sound\": {\"file\": \"a.wav\"}, \"said\": [\"one, two\"], \"at\": [0.5, 2], \"lang\": \"en\", \"kind\": \
             \"digits\"}\n{\"sound\": {\"file\": \"b.wav\"}, \"said\": [\"\"], \"at\": [null, null], \"lang\": null, \
             \"kind\": \"\"}",
        )
    };
    check_full(&Clips::open(&mapped).unwrap());
}

#[test]
fn columns_that_are_kept_are_found_in_every_format() {
    let folder = two_files();
    let kept = |file: RecordsConfig, keep: &[&str]| {
        let keep = keep.iter().map(|name| (*name).to_owned()).collect();
        let clips = Clips::open(&RecordsConfig { keep, ..file }).unwrap();
        [0, 1].map(|clip| clips.clip(clip).origin.columns().into_iter().collect::<Vec<_>>())
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let csv = "audio,text,Speaker,language\na.wav,one,anna,en\nb.wav,two, ,\n";
    let expected = [vec![pair("language", "en"), pair("speaker", "anna")], vec![]];
    assert_eq!(kept(folder.file("m.csv", csv), &["speaker", "language"]), expected);
    let jsonl = "{\"audio\": \"a.wav\", \"text\": \"one\", \"at\": {\"snr\": 12.5}}\n\
                 {\"audio\": \"b.wav\", \"text\": \"two\", \"at\": {\"snr\": null}}\n";
    assert_eq!(kept(folder.file("m.jsonl", jsonl), &["at.snr"]), [vec![pair("at.snr", "12.5")], vec![]]);
    let renamed = RecordsConfig {
        columns: columns([("language", "lang".into())]),
        ..folder.file("m.csv", "audio,text,lang\na.wav,one,de\nb.wav,two,en\n")
    };
    assert_eq!(kept(renamed, &["language"]), [vec![pair("language", "de")], vec![pair("language", "en")]]);
    assert_eq!(kept(folder.file("m.csv", csv), &[]), [vec![], vec![]]);
}

#[test]
fn quotes_and_pipes_belong_to_the_text_where_they_mean_nothing() {
    let folder = two_files();
    let read = |name: &str, text: &str| {
        let clips = Clips::open(&folder.file(name, text)).unwrap();
        texts(&clips).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(read("m.tsv", "file\ttext\na.wav\tsay \"hi\", you\n"), ["say \"hi\", you"]);
    assert_eq!(read("m.csv", "\"audio\",text\na.wav,a|b\n"), ["a|b"]);
    assert_eq!(read("m.csv", "a.wav|He said \"no, never\nb.wav|two|2\n"), ["He said \"no, never", "two"]);
    let normalised = RecordsConfig {
        columns: columns([("text", 2.into())]),
        ..folder.file("m.csv", "a.wav|Dr. A|Doctor A\nb.wav|2|two\n")
    };
    assert_eq!(texts(&Clips::open(&normalised).unwrap()), ["Doctor A", "two"]);
    folder.fails("m.csv", "a.wav|one\njust text\n", "line 2 is not FILE|TRANSCRIPT");
    folder.fails("m.csv", "file|text\na.wav|one|1\n", "line 2 has 3 cells where the header has 2");
}

#[test]
fn faults_of_lists_are_named_with_their_line() {
    let folder = two_files();
    let ok = "{\"audio\": \"a.wav\", \"text\": \"x\"}\n";
    folder.fails("m.jsonl", &format!("{ok}{{\"audio\": "), "line 2 is not JSON at column");
    let error = folder.error(&folder.file("m.jsonl", format!("{ok}\n{{\"audio\": \"a.wav\"}}")));
    assert_eq!(
        error,
        "m.jsonl line 3 has the fields audio; the task needs audio (or audio_filepath, file_name, file, path) and text \
         (or sentence, transcription, transcript): map them under `columns`"
    );
    folder.fails("m.jsonl", "{\"audio\": \"a.wav\", \"text\": null}", "line 1 has null in text");
    folder.fails("m.jsonl", "{\"audio\": null, \"text\": \"\"}", "line 1 has null in audio");
    folder.fails("m.jsonl", "{\"audio\": \"a.wav\", \"path\": \"b\", \"text\": \"\"}", "has both `audio` and `path`");
    folder.fails("m.jsonl", "{\"audio\": \" \", \"text\": \"\"}", "line 1 has an empty path");
    folder.fails("m.csv", "audio,text\na.wav,x\nb.wav,x,y\n", "line 3 has 3 cells where the first row has 2");
    folder.fails("m.csv", "audio,text,end\na.wav,x,soon\n", "line 2 has \"soon\" as its end, which is not a number");
    folder.fails("m.csv", "audio,words\na.wav,x\n", "line 2 has the columns audio, words; the task needs audio");
    folder.fails("m.csv", "audio,text\na.wav,x\nc.wav,y\n", "line 3: the audio file c.wav does not exist");
    folder.fails("m.txt", "", "the extension tells no format");
    folder.fails("a.wav", "", "is an audio file: name the list");
    folder.fails("m.jsonl", "\n", "holds no records");
    let error = folder.error(&at(folder.path("no.csv")));
    assert_eq!(error, "no.csv: there is no such file of records; check the path");
    let error = folder.error(&RecordsConfig { target_path: Some("b".into()), ..at(folder.path("a.wav")) });
    assert!(error.contains("`target_path`"), "{error}");
}

#[test]
fn a_name_that_is_nearly_one_of_ours_is_refused_unless_columns_are_given() {
    let folder = two_files();
    for (name, means) in [
        ("strat", "start"),
        ("Ends", "end"),
        ("lang", "language"),
        ("ofset", "offset"),
        ("begin", "start"),
        ("tasc", "task"),
        ("taskname", "task"),
    ] {
        let line = format!("{{\"audio\": \"a.wav\", \"text\": \"\", \"{name}\": 1}}");
        folder.fails("m.jsonl", &line, &format!("line 1 has `{name}`, which may mean `{means}`"));
        let given = RecordsConfig { columns: columns([("text", "text".into())]), ..at(folder.path("m.jsonl")) };
        assert_eq!(Clips::open(&given).unwrap().clip(0).start, None);
        folder.fails("m.csv", &format!("audio,text,{name}\na.wav,x,1\n"), &format!("may mean `{means}`"));
    }
    // Common Voice's column for the parts of its data.
    folder.file("cv.tsv", "path\tsentence\tlocale\tsegment\na.wav\tx\ten\tBenchmark\nb.wav\ty\ten\t\n");
    let clips = Clips::open(&at(folder.path("cv.tsv"))).unwrap();
    assert_eq!((clips.len(), clips.clip(0).language.as_deref()), (2, Some("en")));
    let segments = "{\"audio\": \"a.wav\", \"text\": \"\", \"segment\": [{\"start\": 0, \"end\": 1, \"text\": \"x\"}]}";
    folder.fails("m.jsonl", segments, "which may mean `segments`");
    let others =
        "{\"audio\": \"a.wav\", \"text\": \"\", \"id\": 3, \"speaker\": \"x\", \"style\": 1, \"mask\": 1, \"tag\": 0}";
    assert_eq!(Clips::open(&folder.file("m.jsonl", others.replace("\"mask\": 1, ", ""))).unwrap().len(), 1);
}

#[test]
fn segments_are_parsed_and_checked() {
    let folder = two_files();
    let line = |segments: &str, more: &str| format!("{{\"audio\": \"a.wav\", \"segments\": {segments}{more}}}");
    let good = r#"[{"id": 0, "start": 0.0, "end": 1.5, "text": " one"}, {"start": 1.495, "end": 2, "text": " two"}]"#;
    let clips = Clips::open(&folder.file("m.jsonl", line(good, ""))).unwrap();
    let clip = clips.clip(0);
    assert_eq!((clip.text.as_str(), clip.segments.len()), ("one two", 2));
    assert_eq!(clip.segments[1], TimedText { start: 1.495, end: 2.0, text: " two".into() });
    let by_column = r#"{"start": [0, 1.495], "end": [1.5, 2], "text": [" one", " two"], "id": [0, 1]}"#;
    let columns = Clips::open(&folder.file("c.jsonl", line(by_column, ""))).unwrap();
    assert_eq!(columns.clip(0).segments, clip.segments);
    let part = clips.load_between(0, Some(clip.segments[1].start), Some(clip.segments[1].end)).unwrap();
    assert_eq!(part.len(), 8_080);
    let csv = format!("audio,text,segments\na.wav,x,\"{}\"\nb.wav,y,\n", good.replace('"', "\"\""));
    let clips = Clips::open(&folder.file("m.csv", csv)).unwrap();
    assert_eq!((clips.clip(0).segments.len(), clips.clip(1).segments.len()), (2, 0));

    let fails = |segments: &str, more: &str, part: &str| folder.fails("m.jsonl", &line(segments, more), part);
    let one = |start: f64, end: f64| format!("{{\"start\": {start}, \"end\": {end}, \"text\": \"\"}}");
    fails(&format!("[{}, {}]", one(0.0, 1.0), one(0.9, 2.0)), "", "segment 2 from 0.9 s to 2 s");
    fails(&format!("[{}, {}]", one(1.0, 2.0), one(0.0, 1.0)), "", "segment 2 from 0 s");
    fails(&format!("[{}]", one(1.0, 1.0).replace("\"\"", "\"x\"")), "", "segment 1 from 1 s to 1 s, which is empty");
    let silent = format!("[{}, {}]", one(1.0, 1.0), one(1.0, 2.0));
    let clips = Clips::open(&folder.file("s.jsonl", line(&silent, ""))).unwrap();
    assert_eq!(clips.clip(0).segments.len(), 1, "Whisper writes empty ones where it has nothing to write");
    fails(&format!("[{}]", one(0.0, 2.0)), ", \"start\": 0.5", "segment 1");
    fails(&format!("[{}]", one(0.0, 2.0)), ", \"end\": 1.5", "ends after the clip");
    fails("[{\"start\": 0, \"text\": \"\"}]", "", "has no {start, end, text} in segment 1");
    fails(r#"{"start": [0], "end": ["1"], "text": ["x"]}"#, "", "has no {start, end, text} in segment 1");
    fails("7", "", "a number in segments, where the task needs a list of {start, end, text}");
    for uneven in [r#"{"start": [0, 1], "end": [1], "text": ["x"]}"#, r#"{"start": [0], "text": ["x"]}"#] {
        fails(uneven, "", "an object in segments, where the task needs a list of {start, end, text}, or equally long");
    }
    fails("[]", "", "the task needs audio");
}

#[test]
fn shares_of_a_list_have_no_recording_in_common() {
    let folder = Folder::new();
    for name in 0..30 {
        folder.wav(&format!("{name}.wav"), 0.5, 0.1);
    }
    // Five clips of each file, in the order of their times, not of their files.
    let lines: String = (0..150)
        .map(|n| {
            format!("{{\"file\": \"{}.wav\", \"text\": \"{n}\", \"start\": {}, \"by\": {}}}\n", n % 30, n / 30, n % 7)
        })
        .collect();
    let config = folder.file("m.jsonl", lines.replace("\"start\": ", "\"start\": 0.0"));
    assert_eq!(texts(&Clips::open(&RecordsConfig { limit: Some(3), ..config.clone() }).unwrap()), ["0", "1", "2"]);
    let cut = |config: &RecordsConfig, from, to| {
        let clips =
            Clips::open(&RecordsConfig { share: Some(Share { from, to, by: None }), ..config.clone() }).unwrap();
        texts(&clips).iter().map(|text| text.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    let apart = |config: &RecordsConfig, all: usize, group: u32| {
        let (train, valid) = (cut(config, 0.0, 0.8), cut(config, 0.8, 1.0));
        assert_eq!(train.len() + valid.len(), all);
        assert!(train.iter().all(|n| valid.iter().all(|m| n % group != m % group)), "{train:?} {valid:?}");
    };
    apart(&config, 150, 30);
    // Also of a part that divides rows, and by the column that a part goes by where it has one.
    let part = Some(PartConfig { to: 0.5, ..Default::default() });
    let half = RecordsConfig { part, ..config.clone() };
    apart(&half, Clips::open(&half).unwrap().len(), 30);
    let part = Some(PartConfig { by: Some("by".into()), ..Default::default() });
    apart(&RecordsConfig { part, ..config.clone() }, 150, 7);
    let sliver = RecordsConfig { share: Some(Share { from: 1.0 - 1e-4, to: 1.0, by: None }), ..config };
    assert_eq!(
        folder.error(&sliver),
        "m.jsonl: none of its 150 records falls into a share of 0.01 %; make it larger, or give each split files of its own"
    );
    // Rows that contain their audio are recordings of their own, independent of their names.
    let clips = |from, to| {
        let share = Some(Share { from, to, by: None });
        Clips::open(&RecordsConfig { share, ..at(fixture("speech.parquet")) }).map_or(0, |clips| clips.len())
    };
    assert_eq!(clips(0.0, 0.5) + clips(0.5, 1.0), clips(0.0, 1.0));
    assert!(clips(0.0, 0.5) > 0 && clips(0.5, 1.0) > 0);
}

#[test]
fn a_column_or_name_that_is_used_is_there_once() {
    let folder = two_files();
    folder.fails("m.csv", "path,sentence,path\na.wav,x,b.wav\n", "line 1 has several columns called `path`, 0 and 2");
    folder.fails("m.tsv", "audio\tText\ttext\na.wav\tx\ty\n", "line 1 has several columns called `text`, 1 and 2");
    folder.fails("m.csv", "audio|text|audio\na|x|b\n", "line 1 has several columns called `audio`, 0 and 2");
    folder.fails("m.jsonl", r#"{"audio": "a.wav", "text": "x", "end": 1, "end": 2}"#, "line 1 has `end` twice");
    let mut mapped = folder.file("m.csv", "audio,Text,TEXT\na.wav,x,y\n");
    mapped.columns.insert("text".into(), "text".into());
    let error = Clips::open(&mapped).unwrap_err().to_string();
    assert!(error.contains("several columns called `text`, 1 and 2"), "{error}");
    let fine = folder.file("m.csv", "audio,text,note,note,,\na.wav,x,1,2,3,4\n");
    assert_eq!(Clips::open(&fine).unwrap().len(), 1);
}

#[test]
fn lines_that_cannot_be_read_are_left_out_but_not_what_an_open_quote_hides() {
    let folder = two_files();
    let (clips, problems) = Clips::open_usable(&folder.file("m.csv", "audio,text\na.wav,x\na.wav\nb.wav,y\n")).unwrap();
    assert_eq!((clips.len(), problems.len()), (2, 1));
    assert!(problems[0].to_string().contains("line 3 has 1 cells"), "{}", problems[0]);
    let hidden = Clips::open_usable(&folder.file("m.csv", "audio,text\na.wav,x\na.wav,\"y\nb.wav,z\n"));
    assert!(hidden.unwrap_err().to_string().contains("a quote that is never closed"));
    let none = Clips::open_usable(&folder.file("m.jsonl", "{\"audio\"\n")).unwrap_err().to_string();
    assert!(none.contains("line 1"), "{none}");
}

#[test]
fn keys_change_with_the_file_and_the_place_in_it() {
    let folder = two_files();
    let config = folder
        .file("m.csv", "audio,text,start,end\na.wav,x,,\na.wav,other text,,\na.wav,x,1,\na.wav,x,,1\nb.wav,x,,\n");
    let keys = || {
        let clips = Clips::open(&config).unwrap();
        (0..clips.len()).map(|index| clips.key(index)).collect::<Vec<_>>()
    };
    let before = keys();
    assert_eq!(before, keys());
    assert_eq!(before[0], before[1], "the text is no matter of the audio");
    assert_eq!(before.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    folder.wav("b.wav", 2.0, 0.25);
    assert_eq!(keys()[..4], before[..4]);
    assert_ne!(keys()[4], before[4]);
    let clips = Clips::open(&at(fixture("speech.parquet"))).unwrap();
    assert_ne!(clips.key(0), clips.key(1));
}

#[test]
fn problems_are_found_in_headers() {
    let folder = two_files();
    folder.file("empty.wav", "");
    folder.file("text.wav", "hello, this is no audio. ".repeat(40));
    folder.file("zero.flac", std::fs::read(folder.path("b.wav")).unwrap());
    let list = "audio,text,start,end\nb.wav,ok,,\nb.wav,rounding,0.5,1.009\nb.wav,past,0.5,1.52\nb.wav,outside,1,\n\
                empty.wav,x,,\ntext.wav,x,,\nzero.flac,named wrongly,,\n";
    let clips = Clips::open(&folder.file("m.csv", list)).unwrap();
    let found: Vec<_> = clips.problems().iter().map(|problem| (problem.index, problem.error.to_string())).collect();
    assert_eq!(found.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2, 3, 4, 5]);
    for ((index, error), part) in found.iter().zip(["lasts 1.00 s", "outside the file", "zero samples", "not audio"]) {
        assert!(error.contains(part), "{error}");
        assert_eq!(clips.load(*index).unwrap_err().to_string(), *error, "loading says the same");
    }
    assert_eq!(clips.load(6).unwrap().len(), 16_000);
    for (start, end, problems) in [(0, 1.5, 0), (0, 31.5, 1), (1, 1.5, 1)] {
        let segment = format!("{{\"start\": {start}, \"end\": {end}, \"text\": \"x\"}}");
        let list = folder.file("s.jsonl", format!("{{\"audio\": \"b.wav\", \"segments\": [{segment}]}}"));
        assert_eq!(Clips::open(&list).unwrap().problems().len(), problems, "{start} {end}");
    }
}

#[test]
fn real_recordings_open() {
    let (Some(speech), Some(fsdd)) = (shared("data/speech-en"), shared("data/fsdd")) else { return };
    let speech = Clips::open(&at(speech)).unwrap();
    assert_eq!((speech.len(), speech.problems().len()), (29, 0));
    let fsdd = RecordsConfig { columns: columns([("text", "parts.0".into())]), ..at(fsdd) };
    let fsdd = Clips::open(&fsdd).unwrap();
    assert_eq!((fsdd.len(), fsdd.problems().len()), (1000, 0));
    for clips in [&speech, &fsdd] {
        for index in 0..clips.len().min(40) {
            let (audio, seconds) = (clips.load(index).unwrap(), clips.seconds(index).unwrap());
            assert!((audio.len() as f64 / 16_000.0 - seconds).abs() < 1e-3);
        }
    }
}

/// A tar file of members.
fn tar_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

proptest! {
    #[test]
    fn nothing_in_a_list_makes_the_reader_panic(
        name in "m\\.(jsonl|json|csv|tsv)",
        text in "[a-z,|\t\n\r\"{}:.0-9 -]{0,200}|\\PC{0,80}",
    ) {
        let folder = Folder::new();
        let _ = Clips::open(&folder.file(&name, &text));
        let _ = Clips::open(&folder.file(&name, format!("audio,text,start,end\n{text}")));
        let _ = Clips::open(&folder.file(&name, format!("audio|text|start|end\n{text}")));
        let _ = Clips::open(&folder.file(&name, format!("{{\"audio\": \"m.csv\", \"segments\": [{{\"{text}\": 1}}]}}")));
    }

    #[test]
    fn any_text_survives(text in "\\PC*") {
        let folder = Folder::new();
        folder.wav("a.wav", 0.01, 0.1);
        let line = serde_json::json!({"audio": "a.wav", "text": text}).to_string();
        let clips = Clips::open(&folder.file("m.jsonl", line)).unwrap();
        prop_assert_eq!(&clips.clip(0).text, &text);
    }
}

proptest! {
    // Every case decodes the audio of a whole shard.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_shard_is_an_error_at_most(name in "speech\\.parquet|bytes\\.parquet|a\\.tar", at_share in 0.0..1.0, byte in any::<u8>()) {
        let folder = Folder::new();
        let mut bytes = match name.as_str() {
            "a.tar" => tar_of(&[("a.wav", &[7; 600]), ("a.txt", b"x"), ("b.wav", &[7; 600]), ("b.txt", b"y")]),
            name => std::fs::read(fixture(name)).unwrap(),
        };
        let at = (at_share * bytes.len() as f64) as usize;
        bytes[at] = byte;
        let mut config = folder.file(&name, bytes);
        if name == "bytes.parquet" {
            config.columns = columns([("audio", "wav".into())]);
        }
        match Clips::open(&config) {
            Ok(clips) => for index in 0..clips.len() {
                let _ = (clips.load(index), clips.seconds(index));
            },
            Err(error) => prop_assert!(error.to_string().contains(&name), "{}", error),
        }
    }
}
