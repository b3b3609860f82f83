//! Metrics of generated texts.

use crate::{Answer, BoxError, KindMetric, ScoredText, Target, TaskScore, TextSample};
use std::ops::AddAssign;
use undertone_metrics::registry::{self, RunningScore};
use undertone_metrics::{Bleu, ErrorRate, Rouge, SampleScores, bleu, cer, rouge, wer};

/// Reference text of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenTarget {
    /// Source text, if the input is text.
    pub source: String,
    /// Tokens of the reference, between the start and the end token.
    pub tokens: Vec<u32>,
    /// The reference as text.
    pub text: String,
}

/// Creates a sample for scoring the transcript of a recording like a text; it has no tokens, because the speech model
/// has its own tokenizer.
pub fn spoken(name: &str, text: &str) -> TextSample {
    let target = WrittenTarget { source: String::new(), tokens: Vec::new(), text: text.to_owned() };
    TextSample { name: name.to_owned(), text: "".into(), ids: vec![], type_ids: vec![], target: Target::new(target, 0) }
}

impl WrittenTarget {
    pub(super) fn target(self) -> Target {
        let tokens = self.tokens.len();
        Target::new(self, tokens.saturating_sub(1)).with_written(tokens)
    }
}

pub(super) const METRICS: [KindMetric; 7] = [
    KindMetric::lower("cer"),
    KindMetric::lower("wer"),
    KindMetric::higher("exact"),
    KindMetric::higher("rouge1"),
    KindMetric::higher("rouge2"),
    KindMetric::higher("rouge_l"),
    KindMetric::higher("bleu"),
];

/// Registered metrics of texts besides the built-in ones.
pub(super) fn registered() -> Vec<KindMetric> {
    let own = |name: &str| METRICS.iter().any(|metric| metric.name == name);
    let others = registry::names().into_iter().filter(|name| !own(name)).filter_map(registry::lookup);
    others.map(|metric| KindMetric { name: metric.name, direction: metric.direction }).collect()
}

/// Scores of the text metrics.
#[derive(Debug, Default)]
pub(super) struct WrittenScore {
    texts: SampleScores<TextCounts>,
    /// Whether ROUGE and BLEU are requested.
    overlap: bool,
    /// Requested registered metrics, by name.
    registered: Vec<(&'static str, RunningScore)>,
    /// References and hypotheses, if a registered metric is requested.
    pairs: Vec<(String, String)>,
}

/// Counts of one text, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct TextCounts {
    characters: ErrorRate,
    words: ErrorRate,
    exact: usize,
    texts: usize,
    rouge: Rouge,
    bleu: Bleu,
}

impl TextCounts {
    fn of(reference: &str, hypothesis: &str, overlap: bool) -> Self {
        let (rouge, bleu) = match overlap {
            true => (rouge(reference, hypothesis), bleu(&[reference], hypothesis)),
            false => Default::default(),
        };
        let (characters, words) = (cer(reference, hypothesis), wer(reference, hypothesis));
        Self { characters, words, exact: usize::from(reference.trim() == hypothesis.trim()), texts: 1, rouge, bleu }
    }

    fn metric(&self, name: &str) -> Option<f64> {
        match name {
            "cer" => self.characters.rate(),
            "wer" => self.words.rate(),
            "exact" => (self.texts > 0).then(|| self.exact as f64 / self.texts as f64),
            "rouge1" => self.rouge.rouge1().map(|score| score.f1),
            "rouge2" => self.rouge.rouge2().map(|score| score.f1),
            "rouge_l" => self.rouge.rouge_l().map(|score| score.f1),
            "bleu" => self.bleu.score(),
            _ => None,
        }
    }
}

impl AddAssign for TextCounts {
    fn add_assign(&mut self, other: Self) {
        self.characters += other.characters;
        self.words += other.words;
        self.exact += other.exact;
        self.texts += other.texts;
        self.rouge += other.rouge;
        self.bleu += other.bleu;
    }
}

impl WrittenScore {
    pub fn new(metrics: &[String]) -> Self {
        let overlap = metrics.iter().any(|metric| metric.starts_with("rouge") || metric == "bleu");
        let asked = registered().into_iter().filter(|metric| metrics.iter().any(|asked| asked == metric.name));
        let registered = asked.filter_map(|metric| Some((metric.name, registry::lookup(metric.name)?.start())));
        Self { overlap, registered: registered.collect(), ..Default::default() }
    }

    fn registered(&self, name: &str) -> Option<&RunningScore> {
        self.registered.iter().find(|(registered, _)| *registered == name).map(|(_, score)| score)
    }
}

impl TaskScore for WrittenScore {
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        let reference = &sample.target.get::<WrittenTarget>()?.text;
        let hypothesis = answer.map_or("", Answer::as_str);
        self.texts.add(TextCounts::of(reference, hypothesis, self.overlap));
        self.registered.iter_mut().for_each(|(_, score)| score.add(reference, hypothesis));
        let (reference, hypothesis) = (reference.clone(), hypothesis.to_owned());
        if !self.registered.is_empty() {
            self.pairs.push((reference.clone(), hypothesis.clone()));
        }
        Ok(Some(ScoredText { name: sample.name.clone(), reference, hypothesis }))
    }

    fn metric(&self, name: &str) -> Option<f64> {
        match self.registered(name) {
            Some(score) => score.value(),
            None => self.texts.sum().metric(name),
        }
    }

    fn samples(&self) -> usize {
        self.texts.len()
    }

    fn metric_of(&self, name: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        if self.registered(name).is_none() {
            return self.texts.sum_of(samples).metric(name);
        }
        // The sum of a registered metric is its own, so that each text is scored again.
        let mut score = registry::lookup(name)?.start();
        samples.map(|index| &self.pairs[index]).for_each(|(reference, hypothesis)| score.add(reference, hypothesis));
        score.value()
    }

    fn errors(&self, name: &str) -> Option<ErrorRate> {
        match name {
            "cer" => Some(self.texts.sum().characters),
            "wer" => Some(self.texts.sum().words),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seq2seqConfig;
    use super::*;
    use crate::testing::assert_costs_what_samples_cost;
    use crate::{HeadConfig, Score};
    use undertone_metrics::registry::TextMetric;
    use undertone_metrics::{Direction, bootstrap, direction_of};

    #[test]
    fn a_batch_costs_what_its_samples_cost_by_themselves() {
        let head = HeadConfig::new(Seq2seqConfig { layers: 1, heads: 2, ffn: 16, ..Default::default() });
        let target = |tokens: &[u32]| -> Target {
            WrittenTarget { source: String::new(), tokens: tokens.to_vec(), text: String::new() }.target()
        };
        assert_costs_what_samples_cost(&head, [target(&[1, 7, 8, 9, 2]), target(&[1, 10, 2])]);
    }

    /// Half of the texts are right: each drawn corpus of 40 has a rate of errors around that.
    #[test]
    fn metrics_have_intervals_around_their_values() {
        let mut score = Score::new(&HeadConfig::default(), &["cer".into(), "exact".into(), "bleu".into()]);
        for text in ["one two three four", "five six seven eight"].repeat(20) {
            let answer = if text.starts_with("one") { text } else { "five six seven nine" };
            score.add(&spoken("a", text), Some(&Answer::text(answer))).expect("scored");
        }
        let interval_of = |metric| bootstrap(score.samples(), |drawn| score.metric_of(metric, drawn));
        for metric in ["cer", "wer", "exact", "bleu"] {
            let (value, interval) = (score.metric(metric), interval_of(metric).expect(metric));
            assert!(interval.low < value && value < interval.high, "{metric}: {value} in {interval:?}");
        }
        assert_eq!((interval_of("rouge1").is_some(), interval_of("unknown")), (true, None));
    }

    #[test]
    fn some_of_the_samples_are_scored_by_themselves() {
        let mut score = Score::new(&HeadConfig::default(), &["cer".into()]);
        for (text, answer) in [("CQ DX", "CQ DX"), ("ABCDE", "ABCDX"), ("DE K", "DE")] {
            score.add(&spoken("a", text), Some(&Answer::text(answer))).expect("scored");
        }
        let of = |name: &str, samples: &[usize]| score.metric_of(name, &mut samples.iter().copied());
        assert_eq!(score.samples(), 3);
        assert_eq!((of("cer", &[0]), of("cer", &[1]), of("exact", &[0, 1])), (Some(0.0), Some(0.2), Some(0.5)));
        assert_eq!(TextCounts::of(" a b", "a b ", false).exact, 1, "white space at the ends is no error");
        assert_eq!(of("exact", &[1, 0, 0]), Some(2.0 / 3.0), "one that is given twice counts twice");
        assert_eq!((of("cer", &[]), of("unknown", &[0])), (None, None));
        assert_eq!(of("cer", &[0, 1, 2]), Some(score.metric("cer")));
        let words = score.errors("wer").expect("words");
        assert_eq!(
            (words.hits(), words.edits.substitutions, words.edits.deletions, words.edits.insertions),
            (3, 1, 1, 0)
        );
        assert_eq!(score.errors("cer").expect("characters").length, 14);
        assert!(score.errors("exact").is_none());
    }

    #[test]
    fn errors_are_lower_when_better() {
        let mut score = Score::new(&HeadConfig::default(), &["cer".into(), "rouge1".into()]);
        score.add(&spoken("a", "CQ DX"), Some(&Answer::text("CQ DX"))).expect("scored");
        score.add(&spoken("b", "ABCDE"), Some(&Answer::text("ABCDX"))).expect("scored");
        assert_eq!((score.metric("cer"), score.metric("wer"), score.metric("exact")), (0.1, 1.0 / 3.0, 0.5));
        assert_eq!((score.error("cer"), score.error("exact")), (0.1, 0.5));
        assert_eq!((score.metric("rouge1"), score.error("rouge1")), (0.5, 0.5));
    }

    #[test]
    fn every_metric_of_a_head_has_a_direction_and_one_without_makes_no_error() {
        for name in crate::names() {
            let head: HeadConfig = serde_json::from_value(serde_json::json!({"type": name})).expect("a head");
            for metric in head.metrics() {
                assert_eq!(direction_of(metric.name), Some(metric.direction), "{}", metric.name);
            }
        }
        let mut score = Score::new(&HeadConfig::default(), &["cer".into()]);
        score.add(&spoken("a", "CQ DX"), Some(&Answer::text("CQ DX"))).expect("scored");
        assert!(score.error("brier").is_nan());
    }

    /// Share of empty hypotheses.
    #[derive(Clone, Debug, Default)]
    struct Silence {
        silent: usize,
        texts: usize,
    }

    impl TextMetric for Silence {
        const NAME: &str = "silence";
        const DIRECTION: Direction = Direction::Lower;

        fn add(&mut self, _: &str, hypothesis: &str) {
            self.silent += usize::from(hypothesis.is_empty());
            self.texts += 1;
        }

        fn value(&self) -> Option<f64> {
            (self.texts > 0).then(|| self.silent as f64 / self.texts as f64)
        }
    }

    #[test]
    fn a_registered_metric_is_counted_where_it_is_asked_for() {
        registry::register::<Silence>().expect("registered");
        let head = HeadConfig::default();
        assert!(head.registered_metrics().contains(&KindMetric::lower("silence")));
        assert!(head.registered_metrics().iter().all(|metric| !METRICS.contains(metric)), "those are its own");
        for (asked, expected) in [("silence", Some(0.5)), ("cer", None)] {
            let mut score = Score::new(&head, &[asked.into()]);
            score.add(&spoken("a", "CQ DX"), Some(&Answer::text("CQ"))).expect("scored");
            score.add(&spoken("b", "CQ DX"), None).expect("scored");
            let found = score.metric("silence");
            assert_eq!((!found.is_nan()).then_some(found), expected, "{asked}");
        }
    }
}
