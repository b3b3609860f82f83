//! Problems, as they are found.

use super::report::{Problem, ProblemKind, Severity};

/// Samples that are named for each problem.
pub(super) const EXAMPLES: usize = 10;

/// All that has been found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    problems: Vec<Problem>,
}

impl Found {
    /// One problem of all these samples, of so many that there are; none if there are none.
    pub fn add(
        &mut self,
        severity: Severity,
        kind: ProblemKind,
        place: &str,
        of: usize,
        samples: impl IntoIterator<Item = String>,
    ) {
        let mut samples = samples.into_iter();
        let examples: Vec<String> = samples.by_ref().take(EXAMPLES).collect();
        let count = examples.len() + samples.count();
        if count > 0 {
            self.problems.push(Problem { severity, kind, place: place.to_owned(), count, of, examples });
        }
    }

    /// As [`Found::add`], of samples that have only been counted.
    pub fn add_unnamed(&mut self, severity: Severity, kind: ProblemKind, place: &str, of: usize, count: usize) {
        if count > 0 {
            let (place, examples) = (place.to_owned(), Vec::new());
            self.problems.push(Problem { severity, kind, place, count, of, examples });
        }
    }

    /// Whether training fails by what is known of a split.
    pub fn fails_at(&self, place: &str) -> bool {
        let at = |problem: &&Problem| problem.place.starts_with(place) && problem.severity == Severity::Failure;
        self.problems.iter().any(|problem| at(&problem))
    }

    /// Failures first, each kind in the order of the splits.
    pub fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| problem.severity);
        self.problems
    }
}
