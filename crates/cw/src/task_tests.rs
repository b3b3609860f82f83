//! Checks of each task's label by readers that know only the sent text.

use super::{
    tests::{any_config, plain},
    *,
};
use crate::radio::Interference;
use proptest::prelude::*;
use rayon::prelude::*;
use regex::Regex;
use std::collections::HashSet;

const TASKS: [CwTask; 5] = [CwTask::Copy, CwTask::Callsigns, CwTask::Log, CwTask::Expand, CwTask::Traffic];

const SOURCES: [&str; 7] = ["callsigns", "qso", "cqww", "arrl_dx", "cqwpx", "field_day", "sweepstakes"];

fn text(weights: &[&str]) -> CwText {
    let weights: Vec<String> = weights.iter().map(|name| format!("{name:?}: 1")).collect();
    serde_json::from_str(&format!("{{{}}}", weights.join(","))).unwrap()
}

/// Clips as they are used for training: a few seconds, fast enough for a message.
fn config(task: CwTask) -> CwConfig {
    let text = match task {
        CwTask::Callsigns => text(&SOURCES),
        CwTask::Log => text(&["cqww", "arrl_dx", "cqwpx", "field_day"]),
        _ => CwText::default(),
    };
    let hand = CwHand { probability: 0.5, ..CwHand::default() };
    CwConfig { task, text, hand, duration_s: [5.0, 7.0], wpm: [25.0, 30.0], ..plain() }
}

fn clips(config: CwConfig, seed: u64, count: u64) -> impl Iterator<Item = CwSample> {
    let synth = CwSynth::new(config, seed).unwrap();
    (0..count).map(move |index| synth.sample(index))
}

/// The clips of a task at several lengths, seeds and speeds.
fn all_clips(task: CwTask) -> impl Iterator<Item = CwSample> {
    [[5.0, 7.0], [12.0, 20.0], [25.0, 40.0]].into_iter().zip([1, 2, 3]).flat_map(move |(duration_s, seed)| {
        let mut config = CwConfig { duration_s, ..config(task) };
        if task == CwTask::Log && seed > 1 {
            config.text.sweepstakes = 1.0;
        }
        clips(config, seed, 200)
    })
}

/// Returns the calls by their form: at most two characters, a digit and one to three letters, with or without a stroke.
/// A word directly after a report or NR is a number, even if its cut numbers have the form of a call.
fn calls<'a>(sent: &'a str, cut: &str) -> Vec<&'a str> {
    let shape = r"^([A-Z]{1,2}\d?/|HB9/|EA8/|VP5/)?([A-Z]{1,2}|\d[A-Z]|[A-Z]\d)\d[A-Z]{1,3}(/[A-Z0-9]{1,3})?$";
    let shape = Regex::new(shape).unwrap();
    let number = Regex::new(&format!("^[0-9{cut}]{{1,4}}$")).unwrap();
    let before_number = Regex::new("^([5E][9N][9N]|NR)$").unwrap();
    let mut words: Vec<&str> = sent.split(' ').collect();
    words.dedup();
    let numbers = words
        .iter()
        .skip(1)
        .zip(&words)
        .filter(|(word, before)| number.is_match(word) && before_number.is_match(before));
    let numbers: HashSet<&str> = numbers.map(|(word, _)| *word).collect();
    // K3S, a transceiver, and G5RV, an antenna, have the shape of a call.
    words.retain(|word| shape.is_match(word) && !numbers.contains(word) && !["K3S", "G5RV"].contains(word));
    words.dedup();
    words
}

#[test]
fn copy_draws_what_it_always_drew() {
    let known = [
        ("SS TU WS8WHF", 88227, 230.720337),
        ("I0X", 69329, -676.063784),
        ("KK1MPW", 93711, 354.890322),
        ("CQ TEST", 80939, -299.820552),
        ("QSL 599 LB", 119201, -296.067616),
        ("TEST 5NN 13", 123762, -143.310028),
    ];
    let synth = CwSynth::new(CwConfig::default(), 42).unwrap();
    for (index, (sent, length, sum)) in known.into_iter().enumerate() {
        let clip = synth.sample(index as u64);
        assert_eq!((clip.text.as_str(), clip.sent.as_str(), clip.audio.len()), (sent, sent, length));
        // Weights that any other audio would miss; another mathematics library may round the last bit differently.
        let weighted = |(n, x): (usize, &f32)| f64::from(*x) * f64::from((n * 7919 % 101) as u32);
        let measured: f64 = clip.audio.iter().enumerate().map(weighted).sum();
        assert!((measured - sum).abs() < 1e-3, "clip {index}: {measured}");
    }
}

#[test]
fn every_task_keeps_to_alphabet_length_and_clip() {
    let alphabet: HashSet<char> = morse::alphabet().collect();
    for task in TASKS.into_iter().skip(1) {
        for clip in all_clips(task) {
            let said = format!("{task}: {} -> {}", clip.sent, clip.text);
            assert!(!clip.text.is_empty() && clip.text.len() <= 100, "{said}");
            assert!(clip.text.chars().all(|c| alphabet.contains(&c)), "{said}");
            assert!(clip.text.split(' ').all(|word| !word.is_empty()), "{said}");
            assert_eq!(clip.marks.iter().map(|mark| mark.character).collect::<String>(), clip.sent);
            let seconds = clip.audio.len() as f32 / 16_000.0;
            assert!(clip.marks[0].start > 0.0 && clip.marks.last().unwrap().end < seconds, "{said}");
        }
    }
}

#[test]
fn callsigns_are_those_that_were_sent() {
    let mut several = 0;
    for clip in all_clips(CwTask::Callsigns) {
        let calls = calls(&clip.sent, "TN");
        assert_eq!(calls.join(" "), clip.text, "{}", clip.sent);
        assert_ne!(clip.sent, clip.text);
        several += usize::from(calls.len() > 1);
    }
    assert!(several > 100, "{several}");
}

/// Reads the line with regular expressions; the synthesiser reads it word by word.
fn logged(sent: &str) -> String {
    let calls = calls(sent, "TNAUVED");
    let after_de = Regex::new(r"(?:^| )DE (\S*\d\S*)").unwrap();
    let call = after_de.captures(sent).map_or(calls[0], |found| found.get(1).unwrap().as_str());
    let mut rest: String = format!(" {sent} ").replace(' ', "  ");
    for gone in calls.iter().flat_map(|call| [format!(" DE  {call} "), format!(" {call} ")]) {
        rest = rest.replace(&gone, "");
    }
    let procedure = Regex::new(r" (TU|R|RR|QSL|UR|TEST|FD|SS|WPX|CQ|<?BK>?) ").unwrap();
    let rest = procedure.replace_all(&rest, "").into_owned();
    let has_report = Regex::new(r" [5E][9N][9N] ").unwrap().is_match(&rest);
    let mut words: Vec<&str> = rest.split_whitespace().collect();
    words.dedup();
    let mut line = vec![call.to_owned()];
    let states: HashSet<&str> =
        lists::HOMES.iter().flat_map(|home| home.sections.iter().copied().chain([home.state])).collect();
    for (at, word) in words.iter().enumerate() {
        let number = Regex::new(if has_report { r"^[0-9TNAUVED]+(W?)$" } else { r"^[0-9TN]+(W?)$" }).unwrap();
        let first = at == usize::from(words[0] == "NR");
        if states.contains(word) || *word == "KW" {
            line.push((*word).to_owned());
        } else if *word == "NR" || (*word == "K" && !(has_report && at == 1)) {
        } else if number.is_match(word) {
            let figures: String = word
                .chars()
                .map(|c| "TAUV4E67DN".find(c).map_or(c, |figure| char::from(b'0' + figure as u8)))
                .collect();
            let serial = (!has_report && first) || (at > 0 && words[at - 1] == "NR");
            line.push(if serial { format!("{figures:0>3}") } else { format!("{figures:0>2}") });
        } else {
            line.push((*word).to_owned());
        }
    }
    line.join(" ")
}

#[test]
fn a_log_line_can_be_read_from_what_was_sent() {
    let mut cut = 0;
    for clip in all_clips(CwTask::Log) {
        assert_eq!(logged(&clip.sent), clip.text, "{}", clip.sent);
        assert!(clip.text.split(' ').count() >= 3, "{}", clip.text);
        cut += usize::from(clip.sent.contains("NN"));
    }
    assert!(cut > 100, "{cut}");
}

#[test]
fn expansions_are_longer_and_seldom_the_same() {
    let mut texts = HashSet::new();
    let mut count = 0;
    for clip in all_clips(CwTask::Expand) {
        assert!(clip.text.len() > clip.sent.len(), "{} -> {}", clip.sent, clip.text);
        assert!((2..=5).contains(&clip.text.split([',', '?']).filter(|phrase| !phrase.is_empty()).count()));
        texts.insert(clip.text);
        count += 1;
    }
    assert!(texts.len() * 100 > count * 95, "{} of {count}", texts.len());
}

#[test]
fn one_sent_message_has_one_expansion() {
    let mut known = std::collections::HashMap::new();
    let short = CwConfig { duration_s: [4.0, 4.5], wpm: [30.0, 30.0], ..config(CwTask::Expand) };
    for clip in clips(short, 4, 500) {
        let text = known.entry(clip.sent.clone()).or_insert_with(|| clip.text.clone());
        assert_eq!(*text, clip.text, "{}", clip.sent);
    }
}

#[test]
fn traffic_names_its_prosigns() {
    let mut whole = 0;
    for clip in all_clips(CwTask::Traffic) {
        assert!(!clip.text.contains(['=', '+']), "{}", clip.text);
        assert_eq!(clip.text.replace("<BT>", "=").replace("<AR>", "+"), clip.sent);
        whole += usize::from(clip.text.starts_with("NR ") && clip.text.matches("<BT>").count() == 2);
    }
    assert!(whole > 100, "{whole}");
}

#[test]
fn the_last_resort_follows_the_rules_too() {
    let messages = |task, source: &str| {
        let source = serde_json::from_str(&format!("{source:?}")).unwrap();
        let plain = CwText { cut_numbers: 0.0, ..CwText::default() };
        [compose::shortest(task, source, &plain), compose::shortest(task, source, &CwText::default())].concat()
    };
    for source in SOURCES {
        for message in messages(CwTask::Callsigns, source) {
            assert_eq!(calls(&message.sent, "TN"), [message.written]);
        }
    }
    for source in &SOURCES[2..] {
        for message in messages(CwTask::Log, source) {
            assert_eq!(logged(&message.sent), message.written);
        }
    }
    for message in messages(CwTask::Expand, "phrases") {
        assert!(expand::meaning(&message.sent).is_some_and(|meaning| meaning == message.written), "{message:?}");
    }
}

#[test]
fn a_clip_depends_on_seed_and_index_alone() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let bits =
        |clip: CwSample| (clip.audio.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), clip.text, clip.sent, clip.info);
    for config in TASKS.map(config).into_iter().chain([CwConfig::default()]) {
        let [synth, again, other] = [11, 11, 12].map(|seed| CwSynth::new(config.clone(), seed).unwrap());
        let in_order: Vec<_> = (0..32).map(|index| bits(synth.sample(index))).collect();
        let mut backwards: Vec<_> =
            pool.install(|| (0..32u32).into_par_iter().rev().map(|index| bits(again.sample(index.into()))).collect());
        backwards.reverse();
        assert!(in_order == backwards, "{}", config.task);
        assert_ne!(in_order[0].2, in_order[1].2);
        assert!(in_order[0].0 != in_order[1].0 && in_order[0].0 != bits(other.sample(0)).0, "{}", config.task);
    }
}

#[test]
fn nobody_sends_in_a_noise_only_clip() {
    let qrm = Interference { probability: 1.0, ..Interference::default() };
    for task in TASKS {
        let clip = clips(CwConfig { noise_only: 1.0, qrm: qrm.clone(), ..config(task) }, 1, 1).next().unwrap();
        assert!(clip.text.is_empty() && clip.sent.is_empty() && clip.marks.is_empty());
        assert!(clip.info.source.is_none() && clip.info.qrm.is_empty());
        assert!(clip.audio.iter().any(|x| x.abs() > 0.01));
    }
}

#[test]
fn what_means_nothing_to_a_task_is_refused() {
    let refusal = |config: CwConfig| config.validate().unwrap_err().to_string();
    let with = |task, text| CwConfig { text, ..config(task) };
    let said = refusal(with(CwTask::Log, text(&["cqww", "words"])));
    assert!(said.starts_with("text.words, 1, says nothing about the task `log`"), "{said}");
    let said = refusal(with(CwTask::Expand, text(&["cqww"])));
    assert!(said.starts_with("text.cqww, 1, says nothing about the task `expand`"), "{said}");
    let said = refusal(with(CwTask::Traffic, CwText { fixed: vec!["CQ".into()], ..CwText::default() }));
    assert!(said.starts_with("text.fixed says nothing about the task `traffic`"), "{said}");
    let said = refusal(with(CwTask::Callsigns, CwText { group_length: [2, 3], ..text(&["qso"]) }));
    assert!(said.starts_with("text.group_length says nothing"), "{said}");
    let said = refusal(with(CwTask::Log, CwText { words: 0.0, fixed: Vec::new(), ..text(&[]) }));
    assert!(said.contains("every weight under text is 0"), "{said}");
    let said = refusal(with(CwTask::Log, text(&["words"])));
    assert!(said.starts_with("text.words, 1, says nothing"), "{said}");
}

#[test]
fn a_clip_too_short_for_any_message_is_refused() {
    for task in TASKS.into_iter().skip(1) {
        let said = CwConfig { duration_s: [1.2, 1.5], ..config(task) }.validate().unwrap_err().to_string();
        assert!(said.starts_with(&format!("the shortest message of the task `{task}`")), "{said}");
    }
    let sweepstakes = CwConfig { text: text(&["cqww", "sweepstakes"]), ..config(CwTask::Log) };
    let said = sweepstakes.validate().unwrap_err().to_string();
    assert!(said.contains("from text.sweepstakes") && said.ends_with("or give text.sweepstakes no weight"), "{said}");
}

#[test]
fn a_task_has_one_name() {
    for task in TASKS {
        let name = format!("\"{task}\"");
        assert_eq!(serde_json::from_str::<CwTask>(&name).unwrap(), task);
        assert_eq!(serde_json::to_string(&task).unwrap(), name);
    }
    assert_eq!(CwTask::default(), CwTask::Copy);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_global_rejects: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_accepted_config_sends_whole_messages(any in any_config(), task in 1usize..5, longest in 8.0..20.0f32, seed: u64) {
        let task = TASKS[task];
        let config = CwConfig { task, text: config(task).text, duration_s: [any.duration_s[0].min(longest), longest], ..any };
        prop_assume!(config.validate().is_ok());
        let [shortest, longest] = config.duration_s.map(|seconds| f64::from(seconds) * 16_000.0);
        let clip = CwSynth::new(config, seed).unwrap().sample(0);
        prop_assert!((shortest - 1.0..=longest + 1.0).contains(&(clip.audio.len() as f64)));
        prop_assert_eq!(clip.text.is_empty(), clip.info.source.is_none());
        prop_assert!(clip.text.len() <= 100);
        let seconds = clip.audio.len() as f32 / 16_000.0;
        prop_assert!(clip.marks.iter().all(|mark| 0.0 <= mark.start && mark.start < mark.end && mark.end <= seconds));
        match task {
            CwTask::Log if !clip.text.is_empty() => prop_assert_eq!(logged(&clip.sent), clip.text),
            CwTask::Traffic => prop_assert_eq!(clip.text.replace("<BT>", "=").replace("<AR>", "+"), clip.sent),
            _ => {}
        }
    }
}
