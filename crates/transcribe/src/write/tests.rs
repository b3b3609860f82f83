use super::*;
use crate::transcript::{DetectedLanguage, Segment, Word};

fn transcript(words: bool) -> Transcript {
    let word = |text: &str, start, end| Word { text: text.into(), start, end, probability: 0.5 };
    let segment = |text: &str, samples, words| Segment {
        samples,
        characters: text.chars().map(|character| (character, 0.5)).collect(),
        begins_word: true,
        words,
        ..Segment::default()
    };
    let first = if words {
        vec![word(" Salt", 0.5, 1.0), word(" & <pepper>", 1.0, 1.5), word(" --> yes.", 4.0, 4.25)]
    } else {
        Vec::new()
    };
    Transcript {
        language: Some(DetectedLanguage { code: "en".into(), probability: Some(0.75) }),
        samples: 64_000_000,
        segments: vec![
            segment("Salt & <pepper> --> yes.", 8_000..80_000, first),
            segment("A\tB", 57_600_000..57_616_000, Vec::new()),
        ],
    }
}

#[test]
fn subtitles_are_as_players_read_them() {
    let layout = Layout::default();
    assert_eq!(
        Format::Srt.write(&transcript(true), &layout),
        "1\n00:00:00,500 --> 00:00:01,500\nSalt & <pepper>\n\n2\n00:00:04,000 --> 00:00:04,250\n-> yes.\n\n\
         3\n01:00:00,000 --> 01:00:01,000\nA B\n\n"
    );
    assert_eq!(
        Format::Vtt.write(&transcript(true), &layout),
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\nSalt &amp; &lt;pepper&gt;\n\n00:00:04.000 --> 00:00:04.250\n--&gt; yes.\n\n\
         01:00:00.000 --> 01:00:01.000\nA B\n\n"
    );
    let narrow = Layout { line: 8, lines: 1, ..Layout::default() };
    let file = Format::Srt.write(&transcript(false), &narrow);
    assert!(file.lines().filter(|line| !line.contains("-->")).all(|line| line.chars().count() <= 8), "{file}");
}

#[test]
fn tables_and_texts_have_a_line_for_each_segment_and_recording() {
    let layout = Layout::default();
    assert_eq!(
        Format::Tsv.write(&transcript(false), &layout),
        "start\tend\ttext\n500\t5000\tSalt & <pepper> --> yes.\n3600000\t3601000\tA B\n"
    );
    assert_eq!(Format::Text.write(&transcript(false), &layout), "Salt & <pepper> --> yes. A\tB\n");
    let doubtful = Layout { least_confidence: 0.6, ..Layout::default() };
    assert_eq!(Format::Text.write(&transcript(false), &doubtful), "____ _ ________ ___ ____ ___\n");
    let subtitles = Format::Srt.write(&transcript(true), &doubtful);
    assert!(subtitles.contains("\n____ _ ________\n") && subtitles.contains("\n___ ____\n"), "{subtitles}");
}

#[test]
fn json_has_the_keys_of_openai_whisper() {
    let object: serde_json::Value =
        serde_json::from_str(&Format::Json.write(&transcript(true), &Layout::default())).expect("JSON");
    assert_eq!((object["language"].as_str(), object["duration"].as_f64()), (Some("en"), Some(4000.0)));
    let segment = &object["segments"][0];
    assert_eq!((segment["start"].as_f64(), segment["end"].as_f64()), (Some(0.5), Some(5.0)));
    assert_eq!(segment["words"][1]["word"], " & <pepper>");
    assert!(segment.get("avg_logprob").is_some() && segment.get("no_speech_prob").is_none());
    let named = Format::Jsonl.write_named("a.wav", &transcript(true), &Layout::default());
    assert!(named.trim_end().lines().count() == 1 && named.contains(r#""audio":"a.wav""#), "{named}");
}
