//! Score of kinds whose only metric is a mean over samples.

use crate::{Answer, BoxError, ScoredText, TaskScore, TextSample};
use std::fmt::{Debug, Display};

/// Score that is the mean over samples of a number, such as the absolute error of an answer: for a kind with one metric (others have no
/// value), targets of type `T` and answers of type `A`.
///
/// ```
/// use undertone_tasks::{Answer, MeanScore, Target, TaskScore, TextSample};
///
/// let mut score = MeanScore::new("mean_absolute_error", |target: &f32, answer: Option<&f32>| match answer {
///     Some(answer) => f64::from((target - answer).abs()),
///     None => 1.0,
/// });
/// let target = Target::new(0.5f32, 1);
/// let sample = TextSample { name: "line 1".into(), text: "a text".into(), ids: vec![], type_ids: vec![], target };
/// score.add(&sample, Some(&Answer::value(0.25f32)))?;
/// assert_eq!(score.metric("mean_absolute_error"), Some(0.25));
/// assert_eq!(score.metric("accuracy"), None);
/// # Ok::<(), undertone_tasks::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MeanScore<T, A> {
    metric: &'static str,
    of_sample: fn(&T, Option<&A>) -> f64,
    values: Vec<f64>,
}

impl<T, A> MeanScore<T, A> {
    /// Creates an empty score of the kind's `metric`. `of_sample` returns the number for a target and an answer; there is no answer if
    /// the router sent the sample to another task's head.
    pub fn new(metric: &'static str, of_sample: fn(&T, Option<&A>) -> f64) -> Self {
        Self { metric, of_sample, values: Vec::new() }
    }
}

impl<T, A> TaskScore for MeanScore<T, A>
where
    T: Display + Debug + 'static,
    A: Display + Debug + Send + Sync + 'static,
{
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        let (target, answer) = (sample.target.get::<T>()?, answer.and_then(Answer::get::<A>));
        self.values.push((self.of_sample)(target, answer));
        let hypothesis = answer.map_or(String::new(), A::to_string);
        Ok(Some(ScoredText { name: sample.name.clone(), reference: target.to_string(), hypothesis }))
    }

    fn metric(&self, name: &str) -> Option<f64> {
        self.metric_of(name, &mut (0..self.values.len()))
    }

    fn samples(&self) -> usize {
        self.values.len()
    }

    fn metric_of(&self, name: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        if name != self.metric {
            return None;
        }
        mean(samples.map(|index| self.values[index]))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
