//! Groups of samples: metrics by duration or number of words, or by a column of the list that samples come from.

use super::batch::TaskDataset;
use super::evaluation_result::EvaluationResult;
use super::scored::{ScoredSample, ScoredTask};
use crate::{RunError, SampleFacts};
use std::collections::{BTreeMap, BTreeSet};
use undertone_report::{Group, Grouping};

/// Name of the grouping by duration, which every recording has.
const DURATION: &str = "duration";

/// Bounds between durations, in seconds.
const SECONDS: [f64; 5] = [2.0, 5.0, 10.0, 20.0, 30.0];

/// Number of different numbers above which a column of numbers is cut into four groups of about the same size.
const DISTINCT: usize = 8;

/// Group of the samples that do not have the column.
const NOT_GIVEN: &str = "not given";

/// Name of a group and its samples.
type Named = (String, Vec<usize>);

impl EvaluationResult {
    /// Returns the metrics of groups of samples, with a grouping for each task and each of `by`: `duration` of recordings,
    /// `words` of texts, or a column of the list that samples come from, which they must have kept
    /// ([`Selection::keep`](crate::config::Selection::keep)), or what a synthesiser tells.
    ///
    /// # Errors
    /// When no sample has one of them.
    pub fn groups(&self, by: &[String]) -> Result<Vec<Grouping>, RunError> {
        let mut all = Vec::new();
        for by in by {
            let of_tasks = self.scored.iter().filter_map(|task| grouping(task, by)).collect::<Vec<_>>();
            if of_tasks.is_empty() {
                return Err(RunError::NoGroup { by: by.clone(), known: self.known() });
            }
            all.extend(of_tasks);
        }
        Ok(all)
    }

    /// Returns what is known about any sample, for a message.
    fn known(&self) -> String {
        let facts = self.scored.iter().flat_map(|task| &task.samples).map(|sample| &sample.facts);
        let duration = |facts: &SampleFacts| facts.length.map(|_| DURATION);
        let names: BTreeSet<&str> =
            facts.flat_map(|facts| facts.columns.keys().map(String::as_str).chain(duration(facts))).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let mut reason = "name a column of the list that the samples come from".to_owned();
        if !names.is_empty() {
            reason += &format!(", or one of {}", names.join(", "));
        }
        reason
    }

    /// Adds what is known about texts besides their tasks. The samples of recordings have it.
    pub(super) fn describe(&mut self, data: &TaskDataset) {
        for (task, samples) in self.scored.iter_mut().zip(data.tasks()) {
            let Some(texts) = samples.texts() else { continue };
            for sample in &mut task.samples {
                sample.facts.columns.extend(texts.columns(&sample.text.name).cloned().unwrap_or_default());
            }
        }
    }
}

/// Returns the groups of a task; `None` if none of its samples says what they differ in.
fn grouping(task: &ScoredTask, by: &str) -> Option<Grouping> {
    let groups = match by {
        DURATION => by_duration(&task.samples),
        column => by_value(&values(&task.samples, column)),
    };
    let group = |(name, samples): Named| {
        let value =
            |metric: &str| task.metric_of(metric, &mut samples.iter().copied()).filter(|value| value.is_finite());
        let metrics = task.metrics().iter().map(|metric| metric.name.as_str());
        let metrics: BTreeMap<String, f64> =
            metrics.filter_map(|metric| Some((metric.to_owned(), value(metric)?))).collect();
        let intervals = metrics.keys().filter_map(|metric| Some((metric.clone(), task.interval_of(metric, &samples)?)));
        Group { name, samples: samples.len(), intervals: intervals.collect(), metrics }
    };
    let groups: Vec<Group> = groups?.into_iter().map(group).collect();
    Some(Grouping { task: task.name.clone(), by: by.to_owned(), groups })
}

fn values<'a>(samples: &'a [ScoredSample], column: &str) -> Vec<Option<&'a str>> {
    samples.iter().map(|sample| sample.facts.columns.get(column).map(String::as_str)).collect()
}

/// Returns the samples by duration; `None` if they are no recordings.
fn by_duration(samples: &[ScoredSample]) -> Option<Vec<Named>> {
    let seconds: Vec<f64> = samples.iter().map(|sample| sample.facts.seconds()).collect::<Option<_>>()?;
    let place = |seconds: f64| SECONDS.iter().filter(|bound| seconds >= **bound).count();
    let name = |place: usize| match place {
        0 => format!("below {} s", SECONDS[0]),
        place if place == SECONDS.len() => format!("{} s and more", SECONDS[place - 1]),
        place => format!("{} to {} s", SECONDS[place - 1], SECONDS[place]),
    };
    let places: Vec<usize> = seconds.into_iter().map(place).collect();
    Some((0..=SECONDS.len()).filter_map(|at| filled(name(at), &places, |place| *place == at)).collect())
}

/// Returns the samples by their values: many different numbers are cut into four groups. `None` if no sample has a
/// value.
fn by_value(values: &[Option<&str>]) -> Option<Vec<Named>> {
    let given: BTreeSet<&str> = values.iter().copied().flatten().collect();
    if given.is_empty() {
        return None;
    }
    let number = |value: &str| value.parse::<f64>().ok().filter(|number| number.is_finite());
    let numbers: Option<Vec<f64>> = given.iter().copied().map(number).collect();
    let mut groups = match numbers {
        Some(numbers) if numbers.len() > DISTINCT => by_quarter(values.iter().map(|value| value.and_then(number))),
        numbers => {
            let mut names: Vec<&str> = given.into_iter().collect();
            if numbers.is_some() {
                names.sort_by(|a, b| number(a).unwrap_or(f64::NAN).total_cmp(&number(b).unwrap_or(f64::NAN)));
            }
            names.iter().filter_map(|name| filled((*name).to_owned(), values, |value| *value == Some(name))).collect()
        }
    };
    groups.extend(filled(NOT_GIVEN.to_owned(), values, Option::is_none));
    Some(groups)
}

/// Returns the samples in up to four groups of about the same size, by their numbers. Equal numbers are in the same group, and by
/// themselves if they are more than a group has.
fn by_quarter(numbers: impl Iterator<Item = Option<f64>>) -> Vec<Named> {
    let numbers: Vec<Option<f64>> = numbers.collect();
    let mut sorted: Vec<f64> = numbers.iter().copied().flatten().collect();
    sorted.sort_by(f64::total_cmp);
    let (mut bounds, mut start) = (Vec::new(), 0);
    for left in [4, 3, 2] {
        let even = sorted[start + (sorted.len() - start) / left];
        let begins = |number: &f64| if even > sorted[start] { *number < even } else { *number <= even };
        match sorted.partition_point(begins) {
            next if next < sorted.len() => start = next,
            _ => break,
        }
        bounds.push(sorted[start]);
    }
    let quarter = |number: &f64| bounds.iter().filter(|bound| number >= *bound).count();
    let group = |at: usize| {
        let own: Vec<f64> = sorted.iter().copied().filter(|number| quarter(number) == at).collect();
        let name = format!("{} to {}", own.first()?, own.last()?);
        filled(name, &numbers, |number| number.as_ref().is_some_and(|number| quarter(number) == at))
    };
    (0..=bounds.len()).filter_map(group).collect()
}

/// Returns a group of the samples whose value is in it; `None` if there are none.
fn filled<T>(name: String, values: &[T], is_in: impl Fn(&T) -> bool) -> Option<Named> {
    let samples: Vec<usize> = (0..values.len()).filter(|index| is_in(&values[*index])).collect();
    (!samples.is_empty()).then_some((name, samples))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use undertone_tasks::ScoredText;

    fn of(values: &[Option<&str>]) -> Vec<(String, Vec<usize>)> {
        by_value(values).expect("values")
    }

    fn lasting(seconds: f64) -> ScoredSample {
        let text = ScoredText { name: String::new(), reference: String::new(), hypothesis: String::new() };
        ScoredSample {
            text,
            facts: SampleFacts { length: Some((16_000.0 * seconds) as usize), columns: BTreeMap::new() },
        }
    }

    #[test]
    fn values_are_groups_in_their_order() {
        let found = of(&[Some("de"), None, Some("en"), Some("de")]);
        let named = |name: &str, samples: &[usize]| (name.to_owned(), samples.to_vec());
        assert_eq!(found, [named("de", &[0, 3]), named("en", &[2]), named("not given", &[1])]);
        // Few numbers are ordered as numbers.
        assert_eq!(of(&[Some("10"), Some("9")]), [named("9", &[1]), named("10", &[0])]);
        assert_eq!(by_value(&[None, None]), None);
    }

    #[test]
    fn many_numbers_are_cut_into_four() {
        let texts: Vec<String> = (0..12).rev().map(|number| format!("{number}.5")).collect();
        let values: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
        let names: Vec<(String, usize)> =
            of(&values).into_iter().map(|(name, samples)| (name, samples.len())).collect();
        let expected = ["0.5 to 2.5", "3.5 to 5.5", "6.5 to 8.5", "9.5 to 11.5"].map(|name| (name.to_owned(), 3));
        assert_eq!(names, expected);
        // A value that most have is a group of its own.
        let texts: Vec<String> = (0..40).map(|number: i32| (number - 30).max(0).to_string()).collect();
        let values: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
        let names: Vec<(String, usize)> =
            of(&values).into_iter().map(|(name, samples)| (name, samples.len())).collect();
        let expected = [("0 to 0", 31), ("1 to 3", 3), ("4 to 6", 3), ("7 to 9", 3)];
        assert_eq!(names, expected.map(|(name, samples)| (name.to_owned(), samples)));
    }

    #[test]
    fn durations_have_fixed_bounds() {
        let found = by_duration(&[1.9, 2.0, 4.9, 30.0].map(lasting)).expect("recordings");
        let named = |name: &str, samples: &[usize]| (name.to_owned(), samples.to_vec());
        assert_eq!(found, [named("below 2 s", &[0]), named("2 to 5 s", &[1, 2]), named("30 s and more", &[3])]);
        let text = ScoredSample { facts: SampleFacts::default(), ..lasting(1.0) };
        assert_eq!(by_duration(&[text]), None);
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_group(values in prop::collection::vec(prop::option::of("[0-9]{1,2}|[a-c]"), 1..40)) {
            let values: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
            let mut seen: Vec<usize> =
                by_value(&values).into_iter().flatten().flat_map(|(_, samples)| samples).collect();
            seen.sort_unstable();
            let expected = if values.iter().any(Option::is_some) { values.len() } else { 0 };
            prop_assert_eq!(seen, (0..expected).collect::<Vec<_>>());
        }
    }
}
