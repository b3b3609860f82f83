//! Folders, Parquet files and tar shards.

use super::*;

#[test]
fn folders_of_published_layouts() {
    let folder = Folder::new();
    folder.wav("hf/a.wav", 0.1, 0.1);
    folder.file("hf/metadata.csv", "file_name,transcription\na.wav,hello\n");
    folder.wav("lj/wavs/LJ001-0001.wav", 0.1, 0.1);
    folder.file("lj/metadata.csv", "LJ001-0001|hello|hello\n");
    folder.file("lj/README.txt", "read me");
    folder.wav("cv/clips/x.wav", 0.1, 0.1);
    folder.file("cv/train.tsv", "client_id\tpath\tsentence\tlocale\n1\tx.wav\thello\ten\n");
    folder.wav("plain/a.wav", 0.1, 0.1);
    folder.file("plain/a.txt", "\u{feff}hello\r\n");
    folder.wav("synth/cw-0.wav", 0.1, 0.1);
    folder.file("synth/manifest.jsonl", "{\"audio\": \"cw-0.wav\", \"text\": \"hello\"}\n");
    for name in ["hf", "lj", "cv", "plain", "synth"] {
        let clips = Clips::open(&at(folder.path(name))).unwrap();
        assert_eq!(texts(&clips), ["hello"], "{name}");
        assert_eq!((clips.load(0).unwrap().len(), clips.seconds(0)), (1_600, Some(0.1)), "{name}");
    }
    let all = ["hf", "lj", "cv", "plain", "synth"].map(|name| folder.path(name)).to_vec();
    let clips = Clips::open(&at(all)).unwrap();
    assert_eq!(names(&clips), ["a.wav", "LJ001-0001", "x.wav", "a.wav", "cw-0.wav"]);
}

#[cfg(target_os = "linux")]
#[test]
fn files_whose_names_are_no_text_are_read() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    for (name, text) in [(&b"caf\xe9"[..], "one"), (b"caf\xe8", "two")] {
        let path = |ending: &[u8]| folder.path("").join(std::ffi::OsStr::from_bytes(&[name, ending].concat()));
        write_wav(&path(b".wav"), &[0.1; 1_600]).unwrap();
        std::fs::write(path(b".txt"), text).unwrap();
    }
    let clips = Clips::open(&at(folder.path(""))).unwrap();
    assert_eq!(texts(&clips), ["two", "one"]);
    assert_eq!((clips.load(0).unwrap().len(), clips.clip(0).name.as_str()), (1_600, "caf\u{fffd}.wav"));
}

#[test]
fn texts_may_come_from_the_names_of_files() {
    let folder = Folder::new();
    for name in ["3_anna_1", "4_anna_1", "3_ben_1", "5_carl_1"] {
        folder.wav(&format!("{name}.wav"), 0.1, 0.1);
    }
    let config = at(folder.path(""));
    let error = folder.error(&config);
    assert!(error.contains("its audio file 3_anna_1.wav has no text beside it, a .txt of the same name"), "{error}");
    let named = RecordsConfig { columns: columns([("text", "parts.0".into())]), ..config };
    assert_eq!(texts(&Clips::open(&named).unwrap()), ["3", "3", "4", "5"]);
    let speaker = Some(PartConfig { from: 0.0, to: 0.5, by: Some("parts.1".into()) });
    let rest = Some(PartConfig { from: 0.5, to: 1.0, by: Some("parts.1".into()) });
    let count = |part| match Clips::open(&RecordsConfig { part, ..named.clone() }) {
        Ok(clips) => names(&clips).iter().filter(|name| name.contains("anna")).count(),
        Err(_) => 0,
    };
    let (some, others) = (count(speaker), count(rest));
    assert_eq!(some * others, 0, "anna is in one part");
    assert_eq!(some + others, 2);
}

#[test]
fn folders_that_cannot_be_meant_are_refused_with_what_they_hold() {
    let folder = Folder::new();
    folder.file("none/notes.md", "");
    folder.file("none/deep/a.txt", "");
    assert_eq!(
        folder.error(&at(folder.path("none"))),
        "none: is a folder without a list of audio files, Parquet or tar shards, or audio files with texts; it has deep/, \
         notes.md"
    );
    folder.file("cv/train.tsv", "path\tsentence\n");
    folder.file("cv/test.tsv", "path\tsentence\n");
    assert_eq!(
        folder.error(&at(folder.path("cv"))),
        "cv: is a folder with several parts of a data set: test.tsv, train.tsv; name what belongs to one part"
    );
    folder.file("both/a.tar", "");
    folder.file("both/a.parquet", "");
    assert!(folder.error(&at(folder.path("both"))).contains("several kinds of lists and shards: a.parquet, a.tar"));
    folder.file("two/metadata.csv", "");
    folder.file("two/metadata.jsonl", "");
    assert!(folder.error(&at(folder.path("two"))).contains("metadata.csv, metadata.jsonl; name one of them"));
    folder.file("gz/a.tar.gz", "");
    for path in ["gz", "gz/a.tar.gz"] {
        let error = folder.error(&at(folder.path(path)));
        assert!(error.starts_with("gz/a.tar.gz: is a compressed tar file") && error.contains("gunzip"), "{error}");
    }
    folder.file("saved/state.json", "{}");
    for file in ["saved/data-00000-of-00001.arrow", "splits/dataset_dict.json"] {
        folder.file(file, "");
        let name = file.split('/').next().unwrap();
        let error = folder.error(&at(folder.path(name)));
        assert!(error.starts_with(name) && error.contains("`save_to_disk`") && error.contains("to_parquet"), "{error}");
    }
    let audio = RecordsConfig { format: Format::Audio, ..at(folder.path("none")) };
    assert!(folder.error(&audio).contains("without audio files"));
    assert!(folder.error(&RecordsConfig { format: Format::Conll, ..audio }).contains("are for text"));
}

#[test]
fn parquet_without_bytes_of_audio_is_a_list_of_paths() {
    let folder = two_files();
    folder.file("list.parquet", std::fs::read(fixture("outside.parquet")).unwrap());
    let clips = Clips::open(&at(folder.path("list.parquet"))).unwrap();
    assert_eq!((texts(&clips), clips.seconds(1)), (vec!["a.wav", "b.wav"], Some(1.0)));
    assert_eq!(clips.load(0).unwrap().len(), 48_000);
}

#[test]
fn audio_in_parquet_is_read_by_row() {
    let bytes = RecordsConfig { columns: columns([("audio", "wav".into())]), ..at(fixture("bytes.parquet")) };
    for (config, blocks, segments) in
        [(at(fixture("speech.parquet")), vec![0..3, 3..6], 2), (bytes, std::iter::once(0..6).collect(), 0)]
    {
        // With memory for one page, and with enough for all.
        for memory in [1, DEFAULT_MEMORY] {
            let clips = Clips::open(&config).unwrap().with_memory(memory);
            assert_eq!((clips.len(), clips.blocks()), (6, Some(blocks.as_slice())));
            for index in [5, 0, 3, 1, 5, 2, 0] {
                assert_eq!(clips.clip(index).text, format!("clip {index}"));
                assert_eq!(clips.clip(index).segments.len(), segments);
                let audio = clips.load(index).unwrap();
                assert_eq!(audio.len(), 800 + 160 * index);
                assert!((clips.seconds(index).unwrap() - (0.05 + 0.01 * index as f64)).abs() < 1e-9);
                let peak = audio[200..600].iter().fold(0.0, |peak: f32, sample| peak.max(sample.abs()));
                assert!((peak - 0.1 * (index + 1) as f32).abs() < 0.01, "{index}: {peak}");
            }
        }
    }
    let clips = Clips::open(&at(fixture("speech.parquet"))).unwrap();
    assert_eq!(clips.clip(2).name, "2.flac");
    let error = clips.load(4).unwrap_err().to_string();
    assert!(
        error.ends_with("speech.parquet row 5: has no audio (its cell is null); remove the row from the data"),
        "{error}"
    );
    let problems: Vec<_> = clips.problems().iter().map(|problem| problem.index).collect();
    assert_eq!(problems, [4]);
    let twice = Clips::open(&at(vec![fixture("speech.parquet"); 2])).unwrap();
    assert_eq!(twice.blocks(), Some([0..3, 3..6, 6..9, 9..12].as_slice()));
    let some =
        RecordsConfig { part: Some(PartConfig { from: 0.0, to: 0.5, by: None }), ..at(fixture("speech.parquet")) };
    let some = Clips::open(&some).unwrap();
    assert!((1..6).contains(&some.len()));
    assert_eq!(some.blocks().unwrap().iter().map(|block| block.len()).sum::<usize>(), some.len());
}

#[test]
fn memory_for_parquet_is_bounded_and_shared_by_threads() {
    let config = RecordsConfig { columns: columns([("audio", "wav".into())]), ..at(fixture("bytes.parquet")) };
    // Pages of one clip each, of 1 to 2 kB.
    let clips = Clips::open(&config).unwrap().with_memory(4_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let clips = &clips;
            scope.spawn(move || {
                for index in (0..200).map(|turn| (turn * 7 + thread) % 6) {
                    assert_eq!(clips.load(index).unwrap().len(), 800 + 160 * index);
                    assert!(clips.pages.bytes() <= 4_000, "{}", clips.pages.bytes());
                }
            });
        }
    });
    assert!(clips.pages.bytes() > 1_000, "something is kept");
}

#[test]
fn tar_shards_are_read_in_place() {
    let folder = two_files();
    let (a, b) = (std::fs::read(folder.path("a.wav")).unwrap(), std::fs::read(folder.path("b.wav")).unwrap());
    let long = format!("{}/c", "long".repeat(40));
    let json = br#"{"text": "one, two", "language": "en", "task": "digits", "start": 0.5, "end": 2}"#;
    let first = tar_of(&[("x/a.wav", &a), ("x/a.json", json), ("x/b.txt", b"\n"), ("x/a.cls", b"7"), ("x/b.WAV", &b)]);
    folder.file("set/0.tar", &first);
    folder.file("set/1.tar", tar_of(&[(&format!("{long}.wav"), &b), (&format!("{long}.txt"), b"three\n")]));
    let clips = Clips::open(&at(folder.path("set"))).unwrap();
    assert_eq!(texts(&clips), ["one, two", "", "three"]);
    assert_eq!(names(&clips)[..2], ["0.tar/x/a.wav from 0.5 s", "0.tar/x/b.WAV"]);
    assert_eq!(clips.clip(0).language.as_deref(), Some("en"));
    assert_eq!([0, 1, 2].map(|index| clips.seconds(index)), [Some(1.5), Some(1.0), Some(1.0)]);
    assert_eq!(clips.load(1).unwrap(), load(&folder.path("b.wav")).unwrap());
    assert_eq!(clips.load(0).unwrap(), load_segment(&folder.path("a.wav"), Some(0.5), Some(2.0)).unwrap());
    assert_eq!(clips.blocks().unwrap(), [0..2, 2..3]);
    assert!(clips.problems().is_empty());

    let fails = |bytes: &[u8], part: &str| {
        let error = folder.error(&folder.file("bad.tar", bytes));
        assert!(error.starts_with("bad.tar") && error.contains(part), "{error}");
    };
    fails(&first[..first.len() / 2], "is cut short within its member x/a.wav");
    // Truncated at the end of a member: the rest is complete.
    let end = first.iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(512);
    fails(&first[..end], "was cut off");
    fails(&b"this is no tar file, but text. ".repeat(60), "is it a whole .tar file");
    fails(&tar_of(&[("a.txt", b"x")]), "row 1 has the sample a without audio");
    fails(&tar_of(&[("a.wav", &b)]), "row 1 has the fields audio, __key__; the task needs");
    fails(&tar_of(&[("a.wav", &b), ("a.flac", &b)]), "two audio members, a.wav and a.flac");
    fails(&tar_of(&[("a.wav", &b), ("a.transcript.txt", b"x"), ("a.lang.txt", b"de")]), "two members of text");
    fails(&tar_of(&[("a.wav", &b), ("a.json", b"[1]")]), "member a.json is not a JSON object");
    fails(&tar_of(&[("a.wav", &b), ("a.txt", b"\xff")]), "member a.txt");
    fails(&tar_of(&[("a.wma", b"x"), ("a.txt", b"x")]), "a.wma is audio that cannot be decoded here");
    fails(&tar_of(&[]), "holds no records");
    let broken =
        Clips::open(&folder.file("b.tar", tar_of(&[("a.wav", b"RIFFnothing of the kind"), ("a.txt", b"")]))).unwrap();
    let error = broken.load(0).unwrap_err().to_string();
    assert!(error.contains("b.tar/a.wav: is not audio"), "{error}");
}

/// faster-whisper wrote such times for a third of 24 clips of LJSpeech: places in the window of 30 s that it reads.
#[test]
fn segments_that_end_in_the_silence_after_a_recording_end_with_it() {
    let folder = two_files();
    let segments = r#"[{"start": 0, "end": 0.5, "text": "a"}, {"start": 0.5, "end": 1.5, "text": "b"}]"#;
    let ends = |row: &str| {
        let list = format!("{{\"audio\": \"b.wav\", \"segments\": {segments}{row}}}");
        let clips = Clips::open(&folder.file("m.jsonl", list)).expect("a clip");
        let seconds = clips.seconds(0).expect("known");
        let within = clips.clip(0).segments_within(seconds);
        (seconds, within.iter().map(|segment| segment.end).collect::<Vec<_>>())
    };
    assert_eq!(ends(""), (1.0, vec![0.5, 1.0]));
    assert_eq!(ends(", \"duration\": 1.0"), (1.0, vec![0.5, 1.0]));
    assert_eq!(ends(", \"start\": 0, \"end\": 1.5").1, [0.5, 1.5], "what a list says of a part is checked, not mended");
}
