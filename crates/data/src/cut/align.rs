//! Alignment of two sequences with the fewest insertions, deletions and substitutions.

/// Maximum number of cells of a table that is computed as a whole, one byte each.
const TABLE: usize = 1 << 20;

/// Returns the pairs of equal elements, by their indices, in an alignment of least cost.
///
/// The time is that of the standard table, the memory only that of its rows: Hirschberg's algorithm (Communications of
/// the ACM 18, 1975), down to halves whose tables are small. Two transcripts of 30,000 words take less than 2 MB.
pub(super) fn matches(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    align(a, b, 0, 0, &mut pairs);
    pairs
}

/// Returns the number of insertions, deletions and substitutions between two sequences.
pub(super) fn distance(a: &[u32], b: &[u32]) -> usize {
    last_row(a.iter(), b.iter())[b.len()] as usize
}

fn align(a: &[u32], b: &[u32], from_a: usize, from_b: usize, pairs: &mut Vec<(usize, usize)>) {
    // A common beginning and end are aligned in some optimal alignment.
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    pairs.extend((0..head).map(|n| (from_a + n, from_b + n)));
    let (a, b, from_a, from_b) = (&a[head..], &b[head..], from_a + head, from_b + head);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - tail], &b[..b.len() - tail]);

    if a.is_empty() || b.is_empty() {
        // There are no more elements in common.
    } else if let [only] = a {
        pairs.extend(b.iter().position(|other| other == only).map(|at| (from_a, from_b + at)));
    } else if a.len().saturating_mul(b.len()) <= TABLE {
        pairs.extend(trace(a, b).into_iter().map(|(at_a, at_b)| (from_a + at_a, from_b + at_b)));
    } else {
        let half = a.len() / 2;
        let (before, after) =
            rayon::join(|| last_row(a[..half].iter(), b.iter()), || last_row(a[half..].iter().rev(), b.iter().rev()));
        let cost = |at: &usize| before[*at] + after[b.len() - *at];
        let at = (0..=b.len()).min_by_key(cost).unwrap_or_default();
        align(&a[..half], &b[..at], from_a, from_b, pairs);
        align(&a[half..], &b[at..], from_a + half, from_b + at, pairs);
    }
    pairs.extend((0..tail).map(|n| (from_a + a.len() + n, from_b + b.len() + n)));
}

/// Returns the costs of aligning all of `a` with each prefix of `b`.
fn last_row<'a>(
    a: impl ExactSizeIterator<Item = &'a u32>,
    b: impl ExactSizeIterator<Item = &'a u32> + Clone,
) -> Vec<u32> {
    let mut row: Vec<u32> = (0..=b.len() as u32).collect();
    for element in a {
        let mut diagonal = row[0];
        row[0] += 1;
        let mut left = row[0];
        for (above, other) in row[1..].iter_mut().zip(b.clone()) {
            left = (diagonal + u32::from(element != other)).min(left + 1).min(*above + 1);
            diagonal = std::mem::replace(above, left);
        }
    }
    row
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Diagonal,
    Up,
    Left,
}

/// Returns the matches from a table with the way back from each cell.
fn trace(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let mut steps = vec![Step::Left; (a.len() + 1) * width];
    let mut row: Vec<u32> = (0..width as u32).collect();
    for (i, element) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] += 1;
        let steps = &mut steps[(i + 1) * width..(i + 2) * width];
        steps[0] = Step::Up;
        for (j, other) in b.iter().enumerate() {
            let straight = diagonal + u32::from(element != other);
            let (up, left) = (row[j + 1] + 1, row[j] + 1);
            (diagonal, row[j + 1], steps[j + 1]) = if straight <= up.min(left) {
                (row[j + 1], straight, Step::Diagonal)
            } else if up <= left {
                (row[j + 1], up, Step::Up)
            } else {
                (row[j + 1], left, Step::Left)
            };
        }
    }
    let (mut i, mut j) = (a.len(), b.len());
    let mut pairs = Vec::new();
    while i > 0 && j > 0 {
        match steps[i * width + j] {
            Step::Diagonal => {
                (i, j) = (i - 1, j - 1);
                if a[i] == b[j] {
                    pairs.push((i, j));
                }
            }
            Step::Up => i -= 1,
            Step::Left => j -= 1,
        }
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Minimum cost of an alignment with these matches: between two of them, the longer of both gaps.
    fn cost(pairs: &[(usize, usize)], a: usize, b: usize) -> usize {
        let ends = pairs.iter().map(|(i, j)| (i + 1, j + 1)).chain([(a + 1, b + 1)]);
        let mut last = (0, 0);
        let mut cost = 0;
        for (i, j) in ends {
            cost += (i - last.0 - 1).max(j - last.1 - 1);
            last = (i, j);
        }
        cost
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        let word = |text: &str| text.chars().map(u32::from).collect::<Vec<_>>();
        assert_eq!(distance(&word("kitten"), &word("sitting")), 3);
        assert_eq!(distance(&word(""), &word("abc")), 3);
        assert_eq!(distance(&word("abc"), &word("")), 3);
        assert_eq!(matches(&word("kitten"), &word("sitting")), [(1, 1), (2, 2), (3, 3), (5, 5)]);
    }

    #[test]
    fn halves_cost_what_the_whole_costs() {
        // Long enough to be halved twice; every seventh element differs, every eleventh is missing.
        let a: Vec<u32> = (0..4000u32).map(|n| n.wrapping_mul(2_654_435_761) >> 27).collect();
        let b: Vec<u32> = a
            .iter()
            .enumerate()
            .filter(|(n, _)| n % 11 != 0)
            .map(|(n, x)| if n % 7 == 0 { x + 100 } else { *x })
            .collect();
        let pairs = matches(&a, &b);
        assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        assert!(pairs.iter().all(|(i, j)| a[*i] == b[*j]));
        assert_eq!(cost(&pairs, a.len(), b.len()), distance(&a, &b));
    }

    proptest! {
        #[test]
        fn matches_belong_to_an_alignment_of_least_cost(
            a in prop::collection::vec(0u32..5, 0..40),
            b in prop::collection::vec(0u32..5, 0..40),
        ) {
            let pairs = matches(&a, &b);
            prop_assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
            prop_assert!(pairs.iter().all(|(i, j)| a[*i] == b[*j]));
            prop_assert_eq!(cost(&pairs, a.len(), b.len()), distance(&a, &b));
        }
    }
}
