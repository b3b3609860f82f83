//! Registry of metrics by the names in configurations and logs.
//!
//! A metric of texts is a type that implements [`TextMetric`] and one line that registers it:
//!
//! ```
//! use undertone_metrics::registry::{self, TextMetric};
//! use undertone_metrics::{Direction, direction_of};
//!
//! /// How much longer what was written is than what was to be written, in characters per text.
//! #[derive(Debug, Default)]
//! struct Surplus {
//!     characters: f64,
//!     texts: usize,
//! }
//!
//! impl TextMetric for Surplus {
//!     const NAME: &str = "surplus";
//!     const DIRECTION: Direction = Direction::Lower;
//!
//!     fn add(&mut self, reference: &str, hypothesis: &str) {
//!         self.characters += hypothesis.chars().count() as f64 - reference.chars().count() as f64;
//!         self.texts += 1;
//!     }
//!
//!     fn value(&self) -> Option<f64> {
//!         (self.texts > 0).then(|| self.characters / self.texts as f64)
//!     }
//! }
//!
//! registry::register::<Surplus>()?;
//! let mut score = registry::lookup("surplus").expect("it was registered").start();
//! score.add("CQ", "CQ CQ");
//! assert_eq!((score.value(), direction_of("surplus")), (Some(3.0), Some(Direction::Lower)));
//! # Ok::<(), registry::RegistryError>(())
//! ```

use crate::{Bleu, Direction, ErrorRate, Hallucination, Rouge, bleu, cer, rouge, wer};
use std::fmt::Debug;
use undertone_registry::typed::Typed;
use undertone_registry::{NameTaken, Registry};

/// A metric over pairs of texts, summed over an evaluation set. Its default is the empty sum.
pub trait TextMetric: Debug + Default + Send + Sync + 'static {
    /// Name in configurations and logs, without a dot: a dot separates a task from its metric.
    const NAME: &str;
    /// Direction in which it improves.
    const DIRECTION: Direction;

    /// Adds a pair of reference and hypothesis.
    fn add(&mut self, reference: &str, hypothesis: &str);

    /// Value over all texts so far; `None` if there is nothing to measure.
    fn value(&self) -> Option<f64>;
}

/// A registered metric: creates scores and states the direction.
#[derive(Clone, Copy, Debug)]
pub struct RegisteredMetric {
    /// Name in configurations and logs.
    pub name: &'static str,
    /// Direction in which it improves.
    pub direction: Direction,
    start: fn() -> Box<dyn AnyTextMetric>,
}

impl RegisteredMetric {
    fn of<M: TextMetric>() -> Typed<Self> {
        Typed::new::<M>(M::NAME, Self { name: M::NAME, direction: M::DIRECTION, start: || Box::new(M::default()) })
    }

    /// Creates an empty score.
    pub fn start(&self) -> RunningScore {
        RunningScore((self.start)())
    }
}

/// Running score of a metric over texts, whatever the metric's type.
#[derive(Debug)]
pub struct RunningScore(Box<dyn AnyTextMetric>);

impl RunningScore {
    /// Adds a pair of reference and hypothesis.
    pub fn add(&mut self, reference: &str, hypothesis: &str) {
        self.0.add(reference, hypothesis);
    }

    /// Value over all texts so far; `None` if there is nothing to measure.
    pub fn value(&self) -> Option<f64> {
        self.0.value()
    }
}

/// [`TextMetric`] as a trait object.
trait AnyTextMetric: Debug + Send + Sync {
    fn add(&mut self, reference: &str, hypothesis: &str);
    fn value(&self) -> Option<f64>;
}

impl<M: TextMetric> AnyTextMetric for M {
    fn add(&mut self, reference: &str, hypothesis: &str) {
        TextMetric::add(self, reference, hypothesis);
    }

    fn value(&self) -> Option<f64> {
        TextMetric::value(self)
    }
}

/// Reason why a metric cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is invalid.
    #[error("a metric cannot be called `{0}`: give `TextMetric::NAME` some letters and no dot or space")]
    Name(&'static str),
    /// Another metric has the name.
    #[error(transparent)]
    Taken(#[from] NameTaken),
}

static METRICS: Registry<Typed<RegisteredMetric>> = Registry::new("metric", || {
    vec![
        RegisteredMetric::of::<CharacterErrors>(),
        RegisteredMetric::of::<WordErrors>(),
        RegisteredMetric::of::<ExactTexts>(),
        RegisteredMetric::of::<Rouge1>(),
        RegisteredMetric::of::<Rouge2>(),
        RegisteredMetric::of::<RougeL>(),
        RegisteredMetric::of::<Bleu>(),
    ]
});

/// Registers a metric by its name in this process. Registering the same type again has no effect.
///
/// # Errors
/// When the name is invalid, or another metric's.
pub fn register<M: TextMetric>() -> Result<(), RegistryError> {
    if M::NAME.is_empty() || M::NAME.contains(|c: char| c == '.' || c.is_whitespace()) {
        return Err(RegistryError::Name(M::NAME));
    }
    if OTHERS.iter().any(|(known, _)| *known == M::NAME) {
        return Err(NameTaken { what: "metric", name: M::NAME.to_owned() }.into());
    }
    Ok(METRICS.register(RegisteredMetric::of::<M>())?)
}

/// Returns the text metric of that name, built in or registered.
pub fn lookup(name: &str) -> Option<RegisteredMetric> {
    METRICS.get(name).ok().map(|metric| metric.with)
}

/// Names of all text metrics, for messages: built-in ones, then registered ones.
pub fn names() -> Vec<&'static str> {
    METRICS.all().into_iter().map(|metric| metric.name).collect()
}

/// Direction in which a metric improves, for example `cer`, or `task.cer` of one task; `None` for an unknown name,
/// because a guess could select the worst model.
pub fn direction_of(metric: &str) -> Option<Direction> {
    let name = metric.rsplit('.').next().unwrap_or(metric);
    let other = || OTHERS.iter().find(|(known, _)| *known == name).map(|(_, direction)| *direction);
    lookup(name).map(|metric| metric.direction).or_else(other)
}

/// Directions of metrics of other things than texts, and of losses, by their names in logs: those that Undertone
/// computes, and other common ones.
const OTHERS: [(&str, Direction); 10] = [
    ("loss", Direction::Lower),
    ("error", Direction::Lower),
    ("perplexity", Direction::Lower),
    (Hallucination::NAME, Direction::Lower),
    ("accuracy", Direction::Higher),
    ("routing_accuracy", Direction::Higher),
    ("macro_f1", Direction::Higher),
    ("f1", Direction::Higher),
    ("entity_f1", Direction::Higher),
    ("exact_match", Direction::Higher),
];

/// Share of texts that equal their reference exactly, apart from white space at both ends.
#[derive(Clone, Copy, Debug, Default)]
struct ExactTexts {
    exact: usize,
    texts: usize,
}

impl TextMetric for ExactTexts {
    const NAME: &str = "exact";
    const DIRECTION: Direction = Direction::Higher;

    fn add(&mut self, reference: &str, hypothesis: &str) {
        self.exact += usize::from(reference.trim() == hypothesis.trim());
        self.texts += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.texts > 0).then(|| self.exact as f64 / self.texts as f64)
    }
}

impl TextMetric for Bleu {
    const NAME: &str = "bleu";
    const DIRECTION: Direction = Direction::Higher;

    fn add(&mut self, reference: &str, hypothesis: &str) {
        *self += bleu(&[reference], hypothesis);
    }

    fn value(&self) -> Option<f64> {
        self.score()
    }
}

/// Defines a metric that is one value of a sum over texts.
macro_rules! figure_of_a_sum {
    ($type:ident($sum:ty): $name:literal, $direction:ident, $of:expr, $value:expr) => {
        #[derive(Debug, Default)]
        struct $type($sum);

        impl TextMetric for $type {
            const NAME: &str = $name;
            const DIRECTION: Direction = Direction::$direction;

            fn add(&mut self, reference: &str, hypothesis: &str) {
                self.0 += $of(reference, hypothesis);
            }

            fn value(&self) -> Option<f64> {
                $value(&self.0)
            }
        }
    };
}

figure_of_a_sum!(CharacterErrors(ErrorRate): "cer", Lower, cer, ErrorRate::rate);
figure_of_a_sum!(WordErrors(ErrorRate): "wer", Lower, wer, ErrorRate::rate);
figure_of_a_sum!(Rouge1(Rouge): "rouge1", Higher, rouge, |sum: &Rouge| sum.rouge1().map(|score| score.f1));
figure_of_a_sum!(Rouge2(Rouge): "rouge2", Higher, rouge, |sum: &Rouge| sum.rouge2().map(|score| score.f1));
figure_of_a_sum!(RougeL(Rouge): "rouge_l", Higher, rouge, |sum: &Rouge| sum.rouge_l().map(|score| score.f1));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_no_direction() {
        assert_eq!(direction_of("cer"), Some(Direction::Lower));
        assert_eq!(direction_of("copy-fast.bleu"), Some(Direction::Higher));
        assert_eq!(direction_of("hallucinated_words_per_minute"), Some(Direction::Lower));
        assert_eq!((direction_of("brier"), direction_of(""), direction_of("cer.mine")), (None, None, None));
    }

    #[test]
    fn every_built_in_metric_is_that_of_its_function() {
        let pairs =
            [("CQ DX DE K1ABC", "CQ DX DE K1ABC"), ("ABCDE F", "ABCDX F"), ("", "UH"), ("TEST DE N0XX", "TEST")];
        let errors: [ErrorRate; 2] = [cer, wer].map(|of| pairs.iter().map(|(r, h)| of(r, h)).sum());
        let overlap: Rouge = pairs.iter().map(|(r, h)| rouge(r, h)).sum();
        let n_grams: Bleu = pairs.iter().map(|(r, h)| bleu(&[*r], h)).sum();
        let f1 = |score: Option<crate::Score>| score.map(|score| score.f1);
        let expected = [
            ("cer", errors[0].rate(), Direction::Lower),
            ("wer", errors[1].rate(), Direction::Lower),
            ("exact", Some(0.25), Direction::Higher),
            ("rouge1", f1(overlap.rouge1()), Direction::Higher),
            ("rouge2", f1(overlap.rouge2()), Direction::Higher),
            ("rouge_l", f1(overlap.rouge_l()), Direction::Higher),
            ("bleu", n_grams.score(), Direction::Higher),
        ];
        assert_eq!(names()[..expected.len()], expected.map(|(name, ..)| name));
        for (name, value, direction) in expected {
            let metric = lookup(name).expect(name);
            let mut score = metric.start();
            assert_eq!(score.value(), None, "{name} of no text");
            pairs.iter().for_each(|(reference, hypothesis)| score.add(reference, hypothesis));
            assert_eq!((score.value(), metric.direction), (value, direction), "{name}");
        }
    }

    /// Number of empty texts.
    #[derive(Debug, Default)]
    struct Silent(usize);

    impl TextMetric for Silent {
        const NAME: &str = "silent";
        const DIRECTION: Direction = Direction::Lower;

        fn add(&mut self, _: &str, hypothesis: &str) {
            self.0 += usize::from(hypothesis.is_empty());
        }

        fn value(&self) -> Option<f64> {
            Some(self.0 as f64)
        }
    }

    /// Defines a metric with an invalid name.
    macro_rules! called {
        ($type:ident, $name:literal) => {
            #[derive(Debug, Default)]
            struct $type;

            impl TextMetric for $type {
                const NAME: &str = $name;
                const DIRECTION: Direction = Direction::Higher;

                fn add(&mut self, _: &str, _: &str) {}

                fn value(&self) -> Option<f64> {
                    None
                }
            }
        };
    }

    called!(AnotherSilent, "silent");
    called!(AnotherLoss, "loss");
    called!(AnotherWer, "wer");
    called!(Dotted, "a.b");
    called!(Nameless, "");

    #[test]
    fn a_metric_of_ones_own_is_known_by_its_name() {
        assert_eq!(register::<Silent>(), Ok(()));
        assert_eq!(register::<Silent>(), Ok(()), "once more changes nothing");
        assert!(names().iter().filter(|name| **name == "silent").count() == 1 && names().contains(&"cer"));
        assert_eq!(
            (direction_of("silent"), direction_of("task.silent")),
            (Some(Direction::Lower), Some(Direction::Lower))
        );
        let mut score = lookup("silent").expect("registered").start();
        [("a", ""), ("b", "b")].iter().for_each(|(reference, hypothesis)| score.add(reference, hypothesis));
        assert_eq!(score.value(), Some(1.0));
        let taken = register::<AnotherSilent>().expect_err("taken").to_string();
        assert_eq!(taken, "a metric named `silent` is already registered: choose another name");
        assert!(register::<AnotherLoss>().is_err() && register::<AnotherWer>().is_err());
        assert_eq!(register::<Dotted>(), Err(RegistryError::Name("a.b")));
        assert_eq!(register::<Nameless>(), Err(RegistryError::Name("")));
        assert_eq!(direction_of("silent"), Some(Direction::Lower), "what was refused changes nothing");
    }
}
