//! Collects problems as they are found.

use super::report::{Problem, ProblemKind, Severity};

/// Maximum number of samples named per problem.
pub(super) const EXAMPLES: usize = 10;

/// All problems found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    problems: Vec<Problem>,
}

impl Found {
    /// Adds one problem with all these samples, out of `of`; adds nothing if there are no samples.
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

    /// Like [`Found::add`], for samples that have only been counted.
    pub fn add_unnamed(&mut self, severity: Severity, kind: ProblemKind, place: &str, of: usize, count: usize) {
        if count > 0 {
            let (place, examples) = (place.to_owned(), Vec::new());
            self.problems.push(Problem { severity, kind, place, count, of, examples });
        }
    }

    /// Whether training would fail because of the problems found in a split so far.
    pub fn fails_at(&self, place: &str) -> bool {
        let at = |problem: &&Problem| problem.place.starts_with(place) && problem.severity == Severity::Failure;
        self.problems.iter().any(|problem| at(&problem))
    }

    /// Returns the problems, failures first, those of the same severity in the order of the splits.
    pub fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| problem.severity);
        self.problems
    }
}
