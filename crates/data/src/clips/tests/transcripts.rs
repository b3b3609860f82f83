//! Lists of names with texts, and trees of audio.

use super::*;

#[test]
fn librispeech_is_read_by_its_lists() {
    let folder = Folder::new();
    for (list, name) in
        [("19/198/19-198", "19-198-0000"), ("19/227/19-227", "19-227-0001"), ("26/495/26-495", "26-495-0000")]
    {
        folder.wav(&format!("ls/train-clean-100/{}/{name}.wav", Path::new(list).parent().unwrap().display()), 0.1, 0.1);
        folder.file(&format!("ls/train-clean-100/{list}.trans.txt"), format!("{name} TEXT OF {name}\n"));
    }
    let clips = Clips::open(&at(folder.path("ls/train-clean-100"))).unwrap();
    assert_eq!(texts(&clips), ["TEXT OF 19-198-0000", "TEXT OF 19-227-0001", "TEXT OF 26-495-0000"]);
    assert_eq!((names(&clips)[1], clips.load(1).unwrap().len()), ("19-227-0001", 1_600));
    // One part alone, by its root, and a chapter or its list by itself.
    for (path, count) in
        [("ls", 3), ("ls/train-clean-100/19/227", 1), ("ls/train-clean-100/26/495/26-495.trans.txt", 1)]
    {
        assert_eq!(Clips::open(&at(folder.path(path))).unwrap().len(), count, "{path}");
    }
    // The speaker is the first part of the name, so that one of two has both recordings of the first, or none.
    let half = |from: f64, to: f64| {
        let part = Some(PartConfig { from, to, by: Some("parts.0".into()) });
        let clips = Clips::open(&RecordsConfig { part, ..at(folder.path("ls")) });
        clips.map_or(Vec::new(), |clips| names(&clips).iter().map(|name| name[..2].to_owned()).collect())
    };
    let halves = [half(0.0, 0.5), half(0.5, 1.0)];
    let of_first = halves.each_ref().map(|half| half.iter().filter(|speaker| *speaker == "19").count());
    assert!(of_first == [2, 0] || of_first == [0, 2], "{halves:?}");
    assert_eq!(halves.concat().len(), 3);

    folder.file("ls/dev-clean/84/121123/84-121123.trans.txt", "84-121123-0000 GO\n");
    assert_eq!(
        folder.error(&at(folder.path("ls"))),
        "ls: is a folder with several parts of a data set: dev-clean, train-clean-100; name what belongs to one part"
    );
    assert_eq!(
        folder.error(&at(folder.path("ls/dev-clean"))),
        "ls/dev-clean/84/121123/84-121123.trans.txt line 1: the audio file ls/dev-clean/84/121123/84-121123-0000 does not \
         exist; relative paths start at the folder of the list"
    );
}

#[test]
fn a_list_of_transcripts_finds_audio_below_its_folder() {
    let folder = Folder::new();
    folder.wav("mls/train/audio/10/123/10_123_000001.wav", 0.1, 0.1);
    folder.file("mls/train/transcripts.txt", "10_123_000001\tein Satz\n");
    folder.file("mls/train/segments.txt", "10_123_000001\thttp://example.org\t1\t2\n");
    folder.file("mls/list.txt", "\u{feff}10_123_000001.wav   mit Namen\r\n\r\n10_123_000001\r\n");
    let clips = Clips::open(&at(folder.path("mls/train"))).unwrap();
    assert_eq!((texts(&clips), clips.seconds(0)), (vec!["ein Satz"], Some(0.1)));
    let named = RecordsConfig { format: Format::Transcripts, ..at(folder.path("mls/list.txt")) };
    assert_eq!(texts(&Clips::open(&named).unwrap()), ["mit Namen", ""]);
    let error = folder.error(&RecordsConfig { format: Format::Auto, ..named });
    assert!(error.contains("the extension tells no format"), "{error}");
}

#[test]
fn a_name_that_several_files_have_is_refused() {
    let folder = Folder::new();
    for (name, level) in [("a/1.wav", 0.1), ("b/1.wav", 0.2), ("b/2.wav", 0.3), ("2.wav", 0.4)] {
        folder.wav(&format!("set/{name}"), 0.1, level);
    }
    let read = |text: &str| RecordsConfig { format: Format::Transcripts, ..folder.file("set/list.txt", text) };
    let clips = Clips::open(&read("a/1.wav first\nb/1.wav second\n2 own\n")).unwrap();
    let levels: Vec<f32> = (0..3).map(|index| clips.load(index).unwrap()[800]).collect();
    assert!(levels.iter().zip([0.1, 0.2, 0.4]).all(|(found, level)| (found - level).abs() < 1e-3), "{levels:?}");
    let error = folder.error(&read("1 which\n"));
    assert_eq!(error, "set/list.txt line 1 has the name 1, which several files have; give their paths");
}

#[test]
fn lists_of_transcripts_beside_others_are_not_taken_for_them() {
    let folder = Folder::new();
    folder.wav("own/a.wav", 0.1, 0.1);
    folder.file("own/a.txt", "beside it");
    folder.file("own/transcripts.txt", "a in the list\n");
    assert_eq!(texts(&Clips::open(&at(folder.path("own"))).unwrap()), ["beside it"]);
    folder.file("own/manifest.jsonl", "{\"audio\": \"a.wav\", \"text\": \"in the manifest\"}\n");
    let error = folder.error(&at(folder.path("own")));
    assert!(error.contains("several kinds of lists and shards: manifest.jsonl, transcripts.txt"), "{error}");
    folder.file("two/train.trans.txt", "a one\n");
    folder.file("two/test.trans.txt", "a one\n");
    for format in [Format::Auto, Format::Transcripts] {
        let error = folder.error(&RecordsConfig { format, ..at(folder.path("two")) });
        assert!(error.contains("several parts"), "{error}");
    }
}

#[test]
fn kaldi_says_where_the_audio_of_each_name_is() {
    let folder = Folder::new();
    folder.wav("audio/call.wav", 3.0, 0.1);
    folder.wav("data/other.wav", 1.0, 0.1);
    let call = folder.path("audio/call.wav").display().to_string();
    folder.file("data/wav.scp", format!("call-1 {call}\nother other.wav\npiped sph2pipe -f wav x.sph |\n"));
    folder.file("data/segments", "a-call-1 call-1 0.5 1.25\nb-call-1 call-1 2 -1\n");
    folder.file("data/utt2spk", "a-call-1 a\nb-call-1 b\nother a\n");
    folder.file("data/text", "a-call-1 first words\nb-call-1 the rest\nother alone\n");
    let keep = vec!["speaker".to_owned()];
    let clips = Clips::open(&RecordsConfig { keep, ..at(folder.path("data")) }).unwrap();
    assert_eq!(texts(&clips), ["first words", "the rest", "alone"]);
    assert_eq!([0, 1, 2].map(|index| clips.seconds(index)), [Some(0.75), Some(1.0), Some(1.0)]);
    assert_eq!(clips.load(0).unwrap().len(), 12_000);
    assert_eq!([0, 1, 2].map(|index| clips.clip(index).origin.columns()["speaker"].clone()), ["a", "b", "a"]);
    assert_eq!(Clips::open(&at(folder.path("data/text"))).unwrap().len(), 3);
    // Below the data directory are its parts.
    for file in ["text", "wav.scp"] {
        folder.file(&format!("data/split2/1/{file}"), "other other.wav\n");
    }
    assert_eq!(Clips::open(&at(folder.path(""))).unwrap().len(), 3);

    folder.file("data/text", "piped words\n");
    let error = folder.error(&at(folder.path("data")));
    assert!(error.starts_with("data/wav.scp line 3 is a command, and Undertone runs none"), "{error}");
    folder.file("data/segments", "a-call-1 call-1 0.5\n");
    folder.file("data/text", "a-call-1 words\n");
    let error = folder.error(&at(folder.path("data")));
    assert!(
        error.starts_with("data/segments line 1 is not a segment: a line is `NAME RECORDING START END`"),
        "{error}"
    );
    folder.file("data/text", "gone words\n");
    let error = folder.error(&at(folder.path("data")));
    assert!(error.starts_with("data/text line 1: the audio file data/gone does not exist"), "{error}");
}

#[test]
fn trees_of_audio_with_texts_are_read_as_one() {
    let folder = Folder::new();
    for name in ["84/121/84_121_1", "84/122/84_122_1", "90/1/90_1_1"] {
        folder.wav(&format!("tts/train-clean/{name}.wav"), 0.1, 0.1);
        folder.file(&format!("tts/train-clean/{name}.original.txt"), "as printed");
        folder.file(&format!("tts/train-clean/{name}.normalized.txt"), format!("text of {name}\n"));
        folder.file(&format!("tts/train-clean/{}.trans.tsv", &name[..5]), "");
    }
    let clips = Clips::open(&at(folder.path("tts/train-clean"))).unwrap();
    assert_eq!(texts(&clips), ["text of 84/121/84_121_1", "text of 84/122/84_122_1", "text of 90/1/90_1_1"]);
    assert_eq!((names(&clips)[0], clips.load(2).unwrap().len()), ("84/121/84_121_1.wav", 1_600));
    // The name of a recording is no split.
    folder.wav("names/a/test_1.wav", 0.1, 0.1);
    folder.file("names/a/test_1.txt", "one");
    folder.wav("names/a/2.wav", 0.1, 0.1);
    folder.file("names/a/2.txt", "two");
    assert_eq!(texts(&Clips::open(&at(folder.path("names"))).unwrap()), ["two", "one"]);
    folder.wav("tts/dev-clean/1/2/1_2_3.wav", 0.1, 0.1);
    folder.file("tts/dev-clean/1/2/1_2_3.txt", "a text");
    assert_eq!(texts(&Clips::open(&at(folder.path("tts/dev-clean"))).unwrap()), ["a text"]);
    std::fs::remove_dir_all(folder.path("names")).unwrap();
    for path in ["tts", ""] {
        for format in [Format::Auto, Format::Audio] {
            let error = folder.error(&RecordsConfig { format, ..at(folder.path(path)) });
            assert!(error.contains("several parts of a data set: dev-clean, train-clean"), "{error}");
        }
    }
    // Without a text anywhere it is no data set, unless the names are the texts.
    folder.wav("bare/yes/1.wav", 0.1, 0.1);
    assert!(folder.error(&at(folder.path("bare"))).contains("is a folder without a list of audio files"));
    let named = |column: &str| RecordsConfig { columns: columns([("text", column.into())]), ..at(folder.path("bare")) };
    assert_eq!(texts(&Clips::open(&named("name")).unwrap()), ["1"]);
    assert!(folder.error(&named("sentence")).contains("is a folder without a list of audio files"));
}

#[test]
fn a_split_has_a_folder_of_its_own() {
    let folder = Folder::new();
    folder.wav("de_de/audio/train/12.wav", 0.1, 0.1);
    let list = folder.file("de_de/train.tsv", "1\t12.wav\tRoh.\troh\n");
    let config = RecordsConfig {
        columns: columns([("audio", Column::Number(1)), ("text", Column::Number(2))]),
        header: Some(false),
        ..list
    };
    assert_eq!(texts(&Clips::open(&config).unwrap()), ["Roh."]);
}
