use super::*;
use burn::tensor::Device;
use std::path::Path;
use undertone_cw::morse;
use undertone_data::audio::write_wav;
use undertone_data::cache::CacheConfig;
use undertone_data::loader::{Dataset, OnBadSample};
use undertone_model::whisper::{GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer};

/// The smallest model, with a window of two seconds.
pub(crate) fn two_seconds() -> WhisperConfig {
    WhisperConfig { max_source_positions: 100, max_target_positions: 56, ..WhisperConfig::new(16, 32, 2, [1, 1]) }
}

/// Returns a model with timestamp tokens that transcribes nothing.
fn whisper() -> PretrainedWhisper {
    let characters: String = morse::alphabet().collect();
    let tokenizer = WhisperTokenizer::of_characters(&characters, &["en"]).expect("a tokenizer");
    let device = Device::flex();
    let mut whisper =
        PretrainedWhisper::init(two_seconds(), tokenizer, GenerationConfig::new(true), &device).expect("a model");
    whisper.config.vocab_size += 1501;
    whisper
}

/// Returns a tokenizer that encodes every text byte by byte, in GPT-2's alphabet of bytes.
fn of_bytes() -> WhisperTokenizer {
    let one = WhisperTokenizer::of_characters("A", &["en"]).expect("a tokenizer");
    let mut file: serde_json::Value = serde_json::from_slice(one.to_bytes()).expect("JSON");
    let printed = |byte: &u8| matches!(*byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    let (printable, others): (Vec<u8>, Vec<u8>) = (0..=u8::MAX).partition(printed);
    let symbols =
        printable.into_iter().map(char::from).chain((0x100..).zip(others).filter_map(|(c, _)| char::from_u32(c)));
    let vocabulary: serde_json::Map<_, _> =
        symbols.enumerate().map(|(id, symbol)| (symbol.to_string(), id.into())).collect();
    file["model"]["vocab"] = vocabulary.into();
    for token in file["added_tokens"].as_array_mut().expect("a list") {
        token["id"] = (token["id"].as_u64().expect("a number") + 255).into();
    }
    WhisperTokenizer::from_bytes(file.to_string().into_bytes()).expect("a tokenizer")
}

/// Creates a folder of recordings, each a tone of the given number of tenths of a second, and a manifest of them.
fn recordings(tenths: &[(&str, usize)], list: &str) -> (tempfile::TempDir, SourceConfig) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, tenths) in tenths {
        let audio: Vec<f32> = (0..tenths * 1600).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
        write_wav(&dir.path().join(name), &audio).expect("written");
    }
    let path = dir.path().join("list.jsonl");
    std::fs::write(&path, list).expect("written");
    (dir, SourceConfig::files(path))
}

fn dataset(experiment: &Experiment, source: &SourceConfig) -> Result<SpeechDataset, SpeechError> {
    SpeechDataset::new(experiment, &[source], &whisper().into(), true, 7)
}

/// Returns tokens as text, with the timestamp tokens in between.
fn spelt(tokens: &[u32]) -> String {
    let whisper = whisper();
    let first = whisper.tokenizer.timestamp_begin().expect("times");
    let spell = |id: &u32| match id.checked_sub(first) {
        Some(steps) => format!("<{:.2}>", f64::from(steps) * 0.02),
        None => whisper.tokenizer.decode(&[*id]),
    };
    tokens.iter().map(spell).collect()
}

const SEGMENTS: &str = r#"{"audio": "long.wav", "segments": [{"start": 0.1, "end": 1.5, "text": "CQ"},
 {"start": 1.7, "end": 2.0, "text": "DE"}, {"start": 2.2, "end": 4.0, "text": "K"}]}"#;

#[test]
fn a_long_recording_is_cut_at_its_segments_and_tells_their_times() {
    let (_dir, source) = recordings(&[("long.wav", 45)], &SEGMENTS.replace('\n', ""));
    let mut experiment = Experiment::default();
    let plain = dataset(&experiment, &source).expect("cut");
    let texts: Vec<String> = (0..plain.len()).map(|i| plain.get(i, 0).expect("a sample").text).collect();
    assert_eq!(texts, ["CQ DE", "K"]);
    assert_eq!(plain.get(0, 0).expect("a sample").audio.samples(), 30_400, "from 0.1 to 2 s");
    assert!((plain.length(1).expect("known") - 1.8).abs() < 1e-9, "from 2.2 to 4 s");

    experiment.data.timestamps = 1.0;
    experiment.data.previous_text = 1.0;
    let timed = dataset(&experiment, &source).expect("cut");
    let first = timed.get(0, 0).expect("a sample");
    assert_eq!(spelt(&first.tokens[first.prompt..]), "<0.00>CQ<1.40><1.60> DE<1.90>");
    let last = timed.get(1, 0).expect("a sample");
    assert_eq!(spelt(&last.tokens[last.prompt..]), "<0.00>K<1.80>");
    let whisper = whisper();
    assert_eq!(last.tokens[0], whisper.tokenizer.start_of_previous().expect("a token"));
    let before = last.tokens.iter().position(|id| *id == whisper.tokenizer.start()).expect("the start");
    assert_eq!(spelt(&last.tokens[1..before]), "CQ DE");
    assert!(!first.tokens[..first.prompt].contains(&last.tokens[0]), "nothing was said before the first");
    let none = whisper.tokenizer.timestamp_begin().expect("times") - 1;
    assert!(!first.tokens.contains(&none) && plain.get(0, 0).expect("a sample").tokens.contains(&none));
}

#[test]
fn half_of_the_samples_tell_times_and_each_epoch_others() {
    let lines: String = (0..40)
        .map(|i| format!("{{\"audio\": \"a.wav\", \"text\": \"E\", \"start\": {}, \"end\": {}}}\n", i, i + 1))
        .collect();
    let (_dir, source) = recordings(&[("a.wav", 400)], &lines);
    let mut experiment = Experiment::default();
    experiment.data.timestamps = 0.5;
    let dataset = dataset(&experiment, &source).expect("recordings");
    let first = whisper().tokenizer.timestamp_begin().expect("times");
    let timed = |epoch: u64| -> Vec<bool> {
        let told = |i| dataset.get(i, epoch).expect("a sample").tokens.iter().any(|id| *id >= first);
        (0..dataset.len()).map(told).collect()
    };
    let (one, two) = (timed(0), timed(1));
    let count = |told: &[bool]| told.iter().filter(|t| **t).count();
    assert!((10..=30).contains(&count(&one)) && (10..=30).contains(&count(&two)), "{one:?} {two:?}");
    assert_ne!(one, two);
    assert_eq!(one, timed(0), "the same again");
}

#[test]
fn a_model_with_a_short_window_tells_the_times_of_its_window() {
    for (times, is_enough) in [(101, true), (100, false)] {
        let mut whisper = whisper();
        whisper.tokenizer = WhisperTokenizer::train(["a"].into_iter(), 256, &["en"], times).expect("a tokenizer");
        (whisper.config.vocab_size, whisper.config.max_source_positions) = (whisper.tokenizer.vocab_size(), 100);
        let speech = SpeechBackbone::from(whisper);
        assert_eq!(speech.tokenizer.timestamp_begin().is_some(), is_enough, "{times}");
    }
}

#[test]
fn long_recordings_without_times_are_refused_with_their_number() {
    let list = r#"{"audio": "a.wav", "text": "E"}
{"audio": "b.wav", "text": "E"}
{"audio": "c.wav", "text": "E"}"#;
    let (_dir, source) = recordings(&[("a.wav", 30), ("b.wav", 10), ("c.wav", 25)], list);
    let error = dataset(&Experiment::default(), &source).err().expect("refused").to_string();
    assert!(error.contains("2 of 3") && error.contains("a.wav") && error.contains("3.00 s"), "{error}");
    assert!(error.contains("data.long_audio=align"), "{error}");
}

#[test]
fn long_recordings_whose_header_tells_no_length_are_refused_before_training_or_aligned() {
    let (dir, source) = recordings(
        &[("a.wav", 10)],
        "{\"audio\": \"long.mp3\", \"text\": \"E\"}\n{\"audio\": \"a.wav\", \"text\": \"E\"}",
    );
    let untold = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/loud-then-quiet.mp3");
    std::fs::copy(untold, dir.path().join("long.mp3")).expect("copied");
    let clips = source.clips().expect("clips");
    assert_eq!((clips.seconds(0), clips.is_untold(0), clips.is_untold(1)), (None, true, false));
    let said = std::cell::RefCell::new(String::new());
    let seconds = lengths(&clips, &[], |sentence| {
        said.replace(sentence.to_owned());
        indicatif::ProgressBar::hidden()
    });
    assert_eq!(seconds[1], Some(1.0));
    assert!(seconds[0].is_some_and(|seconds| (seconds - 12.1).abs() < 0.1), "{seconds:?}");
    assert_eq!(said.into_inner(), "reading 1 recording once for its length (its header does not tell)");
    let error = dataset(&Experiment::default(), &source).err().expect("refused").to_string();
    assert!(error.contains("1 of 2") && error.contains("long.mp3` (12.10 s)"), "{error}");
    // The model transcribes nothing, so all pieces are left out, but it was called.
    let mut experiment = Experiment::default();
    experiment.data.long_audio = LongAudio::Align;
    let model = whisper().into();
    for what in [CacheWhat::Off, CacheWhat::Audio] {
        experiment.data.cache = CacheConfig::of(what, Some(dir.path().join("cache")));
        let aligned = SpeechDataset::new(&experiment, &[&source], &model, true, 7).expect("aligned");
        assert_eq!(aligned.len(), 1);
        let records = std::fs::read_dir(dir.path().join("cache/aligned")).expect("a record").count();
        assert_eq!(records, 1, "the same, whatever the cache keeps");
    }
}

#[test]
fn texts_that_cannot_be_written_are_counted_or_left_out() {
    let bad = "{\"audio\": \"a.wav\", \"text\": \"é\"}\n".repeat(2);
    let good = "{\"audio\": \"a.wav\", \"text\": \"E\"}\n".repeat(8);
    let (_dir, source) = recordings(&[("a.wav", 10)], &(bad + &good));
    let mut experiment = Experiment::default();
    let error = dataset(&experiment, &source).err().expect("refused").to_string();
    assert!(error.contains("2 of 10") && error.contains('é'), "{error}");
    experiment.data.on_bad_sample = OnBadSample::Skip;
    experiment.data.max_bad_share = 0.1;
    assert!(dataset(&experiment, &source).is_err(), "more than a tenth");
    experiment.data.max_bad_share = 0.2;
    assert_eq!(dataset(&experiment, &source).expect("left out").len(), 8);
}

#[test]
fn recordings_without_a_text_are_trained_on_beside_others_and_refused_alone() {
    let (silent, spoken) = ("{\"audio\": \"a.wav\", \"text\": \" \"}\n", "{\"audio\": \"a.wav\", \"text\": \"E\"}\n");
    let experiment = Experiment::default();
    let (_dir, noise) = recordings(&[("a.wav", 10)], &silent.repeat(3));
    let error = dataset(&experiment, &noise).err().expect("refused").to_string();
    assert!(error.contains("none of 3 recordings has a text") && error.contains("`columns`"), "{error}");
    let (_dir, both) = recordings(&[("a.wav", 10)], &(silent.repeat(3) + spoken));
    assert_eq!(dataset(&experiment, &both).expect("some speech").len(), 4);
    // Noise may be a source of its own.
    let mixed = SpeechDataset::new(&experiment, &[&both, &noise], &whisper().into(), true, 7).expect("some speech");
    assert_eq!(mixed.len(), 7);
}

#[test]
fn what_recordings_or_model_cannot_give_is_refused() {
    let (_dir, source) = recordings(&[("a.wav", 10)], r#"{"audio": "a.wav", "text": "E"}"#);
    for key in ["timestamps", "previous_text"] {
        let mut experiment = Experiment::default();
        match key {
            "timestamps" => experiment.data.timestamps = 1.0,
            _ => experiment.data.previous_text = 1.0,
        }
        let error = dataset(&experiment, &source).err().expect("refused").to_string();
        assert!(error.contains(&format!("`data.{key}`")), "{error}");
        // Of several sources one has an effect.
        let (_dir, timed) = recordings(&[("long.wav", 45)], &SEGMENTS.replace('\n', ""));
        let mixed = SpeechDataset::new(&experiment, &[&source, &timed], &whisper().into(), true, 7);
        assert_eq!(mixed.expect("some have times").len(), 3);
    }
}

/// Creates twelve recordings of half a second and more, for packing.
fn packing() -> (tempfile::TempDir, SourceConfig, Experiment) {
    let list: String = (0..12).map(|i| format!("{{\"audio\": \"{}.wav\", \"text\": \"T\"}}\n", i % 3)).collect();
    let (dir, source) = recordings(&[("0.wav", 5), ("1.wav", 6), ("2.wav", 7)], &list);
    let mut experiment = Experiment::default();
    experiment.data.pack = true;
    (dir, source, experiment)
}

#[test]
fn a_model_of_english_alone_is_asked_for_nothing_else() {
    let mut whisper = whisper();
    whisper.generation.is_multilingual = false;
    let source = SourceConfig::default();
    let refused = |key: &str, experiment: &Experiment| {
        let error = SpeechDataset::new(experiment, &[&source], &whisper.clone().into(), true, 7)
            .err()
            .expect("refused")
            .to_string();
        assert!(error.contains(&format!("`data.{key}`")) && error.contains("English"), "{error}");
    };
    let mut experiment = Experiment::default();
    experiment.data.language = "de".into();
    refused("language", &experiment);
    (experiment.data.language, experiment.data.task) = ("en".into(), "translate".into());
    refused("task", &experiment);
}

#[test]
fn a_language_or_task_that_the_model_does_not_have_is_refused_once() {
    let refused = |language: &str, task: &str| {
        let mut experiment = Experiment::default();
        (experiment.data.language, experiment.data.task) = (language.into(), task.into());
        let found = SpeechDataset::new(&experiment, &[&SourceConfig::default()], &whisper().into(), true, 7);
        found.err().expect("refused").to_string()
    };
    let (language, task) = (refused("xx", "transcribe"), refused("en", "sing"));
    assert!(language.contains("`data.language`") && language.contains("<|xx|>"), "{language}");
    assert!(task.contains("`data.task`") && task.contains("<|sing|>"), "{task}");
}

#[test]
fn short_recordings_share_a_window() {
    let (_dir, source, experiment) = packing();
    let packed = dataset(&experiment, &source).expect("packed");
    assert!(packed.len() <= 7, "{} windows for 7.2 s of audio and the gaps", packed.len());
    let mut said = 0;
    for index in 0..packed.len() {
        let sample = packed.get(index, 0).expect("a sample");
        let seconds = sample.audio.samples() as f64 / 16_000.0;
        assert!(seconds <= 2.0 && (packed.length(index).expect("known") - seconds).abs() < 1e-3, "{seconds}");
        said += sample.text.split(' ').count();
    }
    assert_eq!(said, 12);
}

#[test]
fn recordings_that_become_slower_still_fit_the_window_that_they_share() {
    let (_dir, source, mut experiment) = packing();
    (experiment.data.augment.speed.p, experiment.data.augment.speed.range) = (1.0, [0.8, 0.9]);
    let packed = dataset(&experiment, &source).expect("packed");
    assert!(packed.len() < 12, "some share a window");
    for (index, epoch) in (0..packed.len()).flat_map(|index| [(index, 0), (index, 1), (index, 2)]) {
        let sample = packed.get(index, epoch).expect("it fits");
        assert!(sample.audio.samples() <= 32_000);
    }
}

#[test]
fn recordings_share_a_window_only_if_the_decoder_has_room_for_their_texts() {
    // The prompt takes 4 of 56 positions. Timestamps take two more per text, and one less for the prompt.
    for (letters, timestamps, most) in [(25, 0.0, 2), (26, 0.0, 1), (16, 0.0, 3), (16, 0.5, 2), (52, 0.0, 1)] {
        let text = "E".repeat(letters);
        let list: String = (0..12)
            .map(|i| {
                let (start, end) = (f64::from(i), f64::from(i) + 0.3);
                format!("{{\"audio\": \"a.wav\", \"start\": {start}, \"end\": {end}, \"text\": \"{text}\"}}\n")
            })
            .collect();
        let (_dir, source) = recordings(&[("a.wav", 120)], &list);
        let mut experiment = Experiment::default();
        (experiment.data.pack, experiment.data.timestamps) = (true, timestamps);
        let packed = dataset(&experiment, &source).expect("packed");
        let mut texts = Vec::new();
        for (index, epoch) in (0..packed.len()).flat_map(|index| [(index, 0), (index, 1)]) {
            let sample = packed.get(index, epoch).unwrap_or_else(|error| panic!("{letters} letters: {error}"));
            assert!(sample.tokens.len() <= 57, "all but the last take a position");
            texts.push(sample.text.split(' ').count());
        }
        assert_eq!((texts.iter().max(), texts.iter().sum::<usize>()), (Some(&most), 24), "{letters} letters");
        packed.most_demanding().expect("what fits one by one fits together");
    }
}

#[test]
fn texts_of_scripts_without_spaces_are_packed_without() {
    let list: String =
        ["你好。", "世界", "再见"].map(|text| format!("{{\"audio\": \"a.wav\", \"text\": \"{text}\"}}\n")).concat();
    let (_dir, source) = recordings(&[("a.wav", 2)], &list);
    let mut experiment = Experiment::default();
    experiment.data.pack = true;
    let mut whisper = whisper();
    whisper.tokenizer = of_bytes();
    let packed = SpeechDataset::new(&experiment, &[&source], &whisper.clone().into(), true, 7).expect("packed");
    let text = packed.get(0, 0).expect("a sample").text;
    assert!(packed.len() == 1 && text.chars().count() == 7 && !text.contains(' '), "{text}");
}

#[test]
fn a_text_that_only_fits_as_it_is_written_is_not_changed() {
    // Its lower case has one more character, and so one more byte.
    let letters = "\u{130}".repeat(20);
    let (_dir, source) = recordings(&[("a.wav", 2)], &format!("{{\"audio\": \"a.wav\", \"text\": \"{letters}\"}}"));
    let mut experiment = Experiment::default();
    experiment.data.augment.text.lowercase = 1.0;
    let mut whisper = whisper();
    whisper.tokenizer = of_bytes();
    let dataset = SpeechDataset::new(&experiment, &[&source], &whisper.clone().into(), true, 7).expect("a dataset");
    assert_eq!(dataset.get(0, 0).expect("a sample").text, letters);
}

#[test]
fn what_was_said_before_is_told_only_where_it_was_said_before() {
    // An unrelated clip, a text that cannot be encoded, the clip that continues it, and the one that continues this.
    let list = r#"{"audio": "a.wav", "text": "R"}
{"audio": "b.wav", "text": "é", "start": 0, "end": 1}
{"audio": "b.wav", "text": "CQ", "start": 1, "end": 2}
{"audio": "b.wav", "text": "DE", "start": 2, "end": 3}"#;
    let mut experiment = Experiment::default();
    experiment.data.previous_text = 1.0;
    (experiment.data.on_bad_sample, experiment.data.max_bad_share) = (OnBadSample::Skip, 0.5);
    for skipped_first in [false, true] {
        let list = if skipped_first { list.split_once('\n').expect("lines").1 } else { list };
        let (_dir, source) = recordings(&[("a.wav", 10), ("b.wav", 30)], list);
        let dataset = dataset(&experiment, &source).expect("recordings");
        let prompts: Vec<bool> = (0..dataset.len())
            .map(|index| spelt(&dataset.get(index, 0).expect("a sample").tokens).contains("CQ"))
            .collect();
        let told: Vec<usize> = (0..dataset.len()).map(|i| dataset.get(i, 0).expect("a sample").prompt).collect();
        let (last, others) = told.split_last().expect("samples");
        assert!(others.iter().all(|prompt| prompt < last), "{told:?}");
        assert!(prompts.last().is_some_and(|told| *told), "the last is told CQ");
    }
}

#[test]
fn nothing_follows_a_long_recording_that_is_still_to_be_cut() {
    let list = r#"{"audio": "a.wav", "text": "E", "start": 0, "end": 2.5}
{"audio": "a.wav", "text": "T", "start": 2.5, "end": 3}
{"audio": "a.wav", "text": "T", "start": 3, "end": 4}"#;
    let (_dir, source) = recordings(&[("a.wav", 40)], list);
    let clips = source.clips().expect("clips");
    let seconds = lengths(&clips, &[], |_| indicatif::ProgressBar::hidden());
    let division = pieces::divided(&clips, 2.0, &seconds);
    assert_eq!(division.long.len(), 1);
    assert_eq!(division.pieces.iter().map(|piece| piece.follows).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn what_an_encoder_adds_beyond_the_window_is_left_out() {
    for what in [None, Some(CacheWhat::Audio), Some(CacheWhat::Features)] {
        let place = tempfile::tempdir().expect("a directory");
        let mut experiment = Experiment::default();
        if let Some(what) = what {
            experiment.data.cache = CacheConfig::of(what, Some(place.path().to_owned()));
        }
        for (tenths, is_refused) in [(20, false), (21, false), (22, true)] {
            let (_dir, source) = recordings(&[("a.wav", tenths)], r#"{"audio": "a.wav", "text": "E"}"#);
            let found = dataset(&experiment, &source).map(|dataset| dataset.get(0, 0).expect("a sample"));
            assert_eq!(found.is_err(), is_refused, "{what:?}, {tenths} tenths: {:?}", found.err());
            let samples = found.map_or(0, |sample| sample.audio.samples());
            assert!(samples <= 33_760 && (what == Some(CacheWhat::Features) || samples <= 32_000), "{samples}");
        }
    }
}

#[test]
fn what_cannot_be_used_is_left_out_where_that_is_allowed() {
    // A recording that is longer than the window, one that is missing, and segments that are longer than the window.
    let long = r#"{"audio": "long.wav", "text": "K"}"#;
    let missing = r#"{"audio": "missing.wav", "text": "K"}"#;
    let segments = r#"{"audio": "long.wav", "segments": [{"start": 0, "end": 3, "text": "K"}]}"#;
    let good = "{\"audio\": \"a.wav\", \"text\": \"E\"}\n{\"audio\": \"b.wav\", \"text\": \"T\"}\n";
    let broken = r#"{"audio": "a.wav", "#;
    for (bad, named) in [(long, "long.wav"), (missing, "missing.wav"), (segments, "long.wav"), (broken, "line 3")] {
        let (_dir, source) = recordings(&[("a.wav", 10), ("b.wav", 15), ("long.wav", 30)], &format!("{good}{bad}"));
        let mut experiment = Experiment::default();
        let refused = dataset(&experiment, &source).err().expect(bad).to_string();
        assert!(refused.contains(named), "{refused}");
        experiment.data.on_bad_sample = OnBadSample::Skip;
        experiment.data.max_bad_share = 0.4;
        let rest = dataset(&experiment, &source).unwrap_or_else(|error| panic!("{bad}: {error}"));
        let texts: Vec<String> = (0..rest.len()).map(|index| rest.get(index, 0).expect("a sample").text).collect();
        assert_eq!(texts, ["E", "T"], "{bad}");
        experiment.data.max_bad_share = 0.3;
        let refused = dataset(&experiment, &source).err().expect(bad).to_string();
        assert!(refused.contains(named) && refused.contains("1 of 3"), "{refused}");
    }
}

#[test]
fn a_cache_changes_nothing_but_the_rounding_of_features() {
    let (dir, source) = recordings(&[("a.wav", 10)], r#"{"audio": "a.wav", "text": "E"}"#);
    let audio_of = |what: CacheWhat| -> SampleAudio {
        let mut experiment = Experiment::default();
        experiment.data.cache = CacheConfig::of(what, Some(dir.path().join("cache")));
        dataset(&experiment, &source).expect("recordings").get(0, 0).expect("a sample").audio
    };
    let plain = audio_of(CacheWhat::Off);
    assert_eq!(audio_of(CacheWhat::Audio), plain, "16-bit audio, computed");
    std::fs::metadata(dir.path().join("cache")).expect("something was kept");
    assert_eq!(audio_of(CacheWhat::Audio), plain, "and read back");
    let computed = audio_of(CacheWhat::Features);
    assert_eq!(audio_of(CacheWhat::Features), computed);
    assert!(matches!(computed, SampleAudio::Features(_)));
}

#[test]
fn sources_lie_one_behind_the_other() {
    let (_dir, source) = recordings(&[("a.wav", 10)], r#"{"audio": "a.wav", "text": "E"}"#);
    let settings =
        ["wpm=[20,30]", "duration_s=[2,2]", "lead_s=[0.05,0.2]", "tail_s=[0.05,0.1]", "clean=1", "noise_only=0"];
    let settings = settings.map(|setting| format!("data.train.cw.{setting}"));
    let more = ["data.train.samples=3", "data.train.cw.farnsworth.probability=0", "data.train.cw.hand.probability=0"];
    let settings: Vec<String> = settings.into_iter().chain(more.map(str::to_owned)).collect();
    let experiment = Experiment::load(None, &settings).expect("an experiment");
    let made = experiment.data.train.0[0].clone();
    let both = SpeechDataset::new(&experiment, &[&made, &source], &whisper().into(), true, 7).expect("both");
    assert_eq!((both.sizes(), both.len()), (vec![3, 1], 4));
    assert_eq!(both.name(2), "cw 2");
    assert!(both.name(3).contains("a.wav"), "{}", both.name(3));
    assert_eq!(both.get(3, 0).expect("a sample").text, "E");
    let alone = SpeechDataset::new(&experiment, &[&made], &whisper().into(), true, 7).expect("one");
    let audio_of = |dataset: &SpeechDataset| dataset.get(1, 0).expect("a sample").audio;
    assert_eq!(audio_of(&both), audio_of(&alone), "another source beside it changes nothing in the first epoch");
}
