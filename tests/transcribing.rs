//! `transcribe` on files and folders: what it writes where, and what it does when one of them cannot be read.

use undertone_tests::{Place, json_lines, wav, write_model};

/// A place with recordings of Morse code in a folder, one of them broken, and an untrained model.
fn place() -> Place {
    let place = Place::default();
    write_model(&place.path("model"));
    std::fs::create_dir_all(place.path("in/deep")).expect("a folder");
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ebook2cw");
    for (from, to) in [("clip00.mp3", "in/b.mp3"), ("clip05.mp3", "in/deep/c.mp3")] {
        std::fs::copy(fixtures.join(from), place.path(to)).expect("copied");
    }
    place.write("in/a.wav", "no audio at all");
    place.write("in/notes.txt", "not to be transcribed");
    place
}

#[test]
fn a_folder_is_transcribed_though_one_file_cannot_be_read() {
    let place = place();
    let outcome = place.run(&["transcribe", "--format", "srt", "--output-dir", "out", "in"]);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(2), ""), "{outcome:?}");
    let said = outcome.stderr.lines().filter(|line| line.starts_with("error:")).collect::<Vec<_>>();
    assert!(said.len() == 2 && said[0].contains("a.wav") && said[1].contains("1 of 3"), "{outcome:?}");
    for name in ["out/b.srt", "out/deep/c.srt"] {
        let file = place.text(name);
        assert!(file.starts_with("1\n00:00:0") && file.contains(" --> "), "{file}");
    }
    assert!(!place.path("out/a.srt").exists() && !place.path("out/notes.srt").exists());

    let lines = place.run(&["transcribe", "--format", "jsonl", "in/b.mp3", "in/deep"]).succeeded().stdout;
    let objects = json_lines(&lines);
    assert_eq!(
        objects.iter().map(|object| object["audio"].as_str()).collect::<Vec<_>>(),
        [Some("in/b.mp3"), Some("in/deep/c.mp3")]
    );
    let text = place.run(&["transcribe", "in/b.mp3"]).succeeded().stdout;
    assert_eq!(objects[0]["text"].as_str(), Some(text.trim_end()));
    let table = place.run(&["transcribe", "--format", "tsv", "in/b.mp3"]).succeeded().stdout;
    assert!(table.starts_with("start\tend\ttext\n0\t"), "{table}");
}

#[test]
fn what_was_read_of_a_recording_that_is_cut_short_is_written() {
    let place = place();
    let clip = undertone::data::audio::load(&place.path("in/b.mp3")).expect("a clip");
    undertone::data::audio::write_wav(&place.path("whole.wav"), &clip).expect("written");
    let whole = place.run(&["transcribe", "whole.wav"]).succeeded().stdout;
    let bytes = place.bytes("whole.wav");
    std::fs::write(place.path("cut.wav"), &bytes[..bytes.len() * 3 / 4]).expect("written");
    let cut = place.run(&["transcribe", "cut.wav"]);
    let begin: String = whole.chars().take(4).collect();
    assert!(cut.status == Some(2) && cut.stdout.starts_with(&begin) && cut.stdout.len() < whole.len(), "{cut:?}");
    assert!(cut.stderr.contains("cut short") && cut.stderr.contains("transcribed up to"), "{cut:?}");
    assert!(cut.stderr.contains("words per minute"), "{cut:?}");
    let all = place.run(&["transcribe", "--all", "cut.wav"]);
    assert!(
        all.status == Some(2) && all.stdout.contains(" Hz\t") && all.stderr.contains("transcribed up to"),
        "{all:?}"
    );
}

/// A band: clips of ebook2cw at their pitches, with their start in seconds and their level, in white noise.
fn band(clips: &[(&str, f32, f32)]) -> Vec<f32> {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ebook2cw");
    let mut noise = 1_u32;
    let mut audio: Vec<f32> = (0..20 * 16_000)
        .map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            0.02 * (noise as f32 / u32::MAX as f32 - 0.5)
        })
        .collect();
    for (clip, start, level) in clips {
        let keyed = undertone::data::audio::load(&fixtures.join(clip)).expect("a clip");
        for (sample, keyed) in audio[(start * 16_000.0) as usize..].iter_mut().zip(keyed) {
            *sample += level * keyed;
        }
    }
    audio
}

#[test]
fn every_station_of_a_band_is_read_by_itself() {
    let place = Place::default();
    let stations = [
        ("clip09.mp3", 0.5, 0.3, 450.0, 21.0, "RIG IS 100 WATTS"),
        ("clip00.mp3", 2.0, 0.1, 600.0, 20.0, "CQ CQ DE OK1XYZ"),
        ("clip07.mp3", 1.0, 0.2, 750.0, 16.0, "PSE QRS OM"),
        ("clip08.mp3", 3.0, 0.05, 900.0, 26.0, "JA1ZLO DE ZL2BC K"),
    ];
    let audio = band(&stations.map(|(clip, start, level, ..)| (clip, start, level)));
    undertone::data::audio::write_wav(&place.path("band.wav"), &audio).expect("written");
    let text = place.run(&["transcribe", "--all", "band.wav"]).succeeded().stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.iter().map(|cells| cells[4]).collect::<Vec<_>>(), stations.map(|station| station.5), "{text}");
    let json = place.run(&["transcribe", "--all", "--format", "json", "band.wav"]).succeeded().json();
    for ((_, start, _, pitch_hz, wpm, text), found) in
        stations.iter().zip(json["stations"].as_array().expect("stations"))
    {
        let near = |key: &str, value: f64, most: f64| {
            let number = found[key].as_f64().expect("a number");
            assert!((number - value).abs() <= most, "{key} of {found}");
        };
        near("pitch_hz", *pitch_hz, 4.0);
        near("wpm", *wpm, 2.0);
        near("start", f64::from(*start), 0.6);
        assert_eq!(found["text"], *text);
        assert!(found["segments"][0]["start"].as_f64() >= found["start"].as_f64(), "{found}");
    }
    assert_eq!(json["duration"].as_f64(), Some(20.0));
    // Noise alone has no station.
    undertone::data::audio::write_wav(&place.path("noise.wav"), &band(&[])).expect("written");
    let lines = place.run(&["transcribe", "--all", "--format", "jsonl", "noise.wav", "band.wav"]).succeeded().stdout;
    let lines = json_lines(&lines);
    assert_eq!((&lines[0]["audio"], &lines[0]["stations"]), (&"noise.wav".into(), &serde_json::json!([])));
    assert_eq!(lines[1]["stations"], json["stations"]);
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_read() {
    let place = place();
    std::fs::create_dir(place.path("empty")).expect("a folder");
    place.write("b.wav", wav(&[0.1; 1600]));
    for (args, culprits) in [
        (&["--format", "srt", "in"][..], &["srt", "--output-dir"][..]),
        (&["--output-dir", "out", "in/b.mp3", "b.wav"], &["in/b.mp3", "b.wav", "same output"]),
        (&["--output-dir", "b.wav", "in/b.mp3"], &["`--output-dir b.wav` is not a folder"]),
        (&["--words", "--format", "json", "in/b.mp3"], &["`cw`", "words"]),
        (&["--words", "in/b.mp3"], &["--words", "json"]),
        (&["--segmentation", "pauses", "in/b.mp3"], &["`cw`", "--segmentation"]),
        (&["--seed", "3", "in/b.mp3"], &["`cw`", "seed"]),
        (&["--segmentation", "timestamps", "in/b.mp3"], &["`cw`", "timestamps"]),
        (&["--timestamps", "--format", "srt", "in/b.mp3"], &["--timestamps", "txt"]),
        (&["--temperatures", "0,-1", "in/b.mp3"], &["temperatures"]),
        (&["--batch-size", "0", "in/b.mp3"], &["batch size"]),
        (&["--batch-size", "99999999999", "in/b.mp3"], &["batch size", "4096"]),
        (&["-", "in/b.mp3"], &["standard input"]),
        (&["--no-context", "in/b.mp3"], &["--no-context", "timestamps"]),
        (&["--segmentation", "pauses", "--vad-threshold", "0.4", "in/b.mp3"], &["--vad-threshold", "vad"]),
        (&["--patience", "2", "in/b.mp3"], &["patience", "beams"]),
        (&["--best-of", "3", "--temperatures", "0", "in/b.mp3"], &["--best-of", "temperatures"]),
        (&["--batch-size", "2", "--segmentation", "timestamps", "in/b.mp3"], &["--batch-size"]),
        (&["--batch-size", "2", "-"], &["--batch-size"]),
        (&["--model", "model", "--window", "0.1", "in/b.mp3"], &["0.1 s", "1 to 2 seconds"]),
        (&["--model", "model", "--window", "longest", "--segmentation", "timestamps", "in/b.mp3"], &["window"]),
        (&["--window", "longest", "in/b.mp3"], &["`cw`", "window"]),
        (&["--no-speech-threshold", "0.3", "in/b.mp3"], &["`cw`", "thresholds"]),
        (&["--prefix", "CQ", "-"], &["standard input", "--prefix"]),
        (&["--all", "-"], &["--all", "`-`"]),
        (&["--all", "--timestamps", "in/b.mp3"], &["--all", "--timestamps"]),
        (&["--all", "--format", "srt", "in/b.mp3"], &["--all", "json"]),
        (&["--line-length", "20", "in/b.mp3"], &["--line-length", "srt"]),
        (&["empty"], &["`empty`", "no audio files"]),
        (&["none.wav"], &["`none.wav`"]),
        (&["--model", "model", "--language", "xx", "b.wav"], &["<|xx|>"]),
    ] {
        let before = place.tree();
        place.run(&[&["transcribe"], args].concat()).assert_refusal(culprits);
        assert_eq!(place.tree(), before, "{args:?}");
    }
}
