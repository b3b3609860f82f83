//! How long a training step of several ranks takes, reckoned.
//!
//! A step is what a rank computes by itself and, on top of it, the sums of `bytes` of gradients:
//!
//! ```text
//! step = computing + host · bytes + 2 (n - 1) / n · bytes / bandwidth + exchanges · latency
//! ```
//!
//! The second term is the way of the gradients to the host and back, the third what passes a rank's link, the fourth the messages
//! that nobody can save: two exchanges for each sum and each word that ranks say to each other.

/// A bucket of gradients, as in training.
const BUCKET_BYTES: f64 = 25e6;
/// Exchanges of a step besides those of its sums: batches, the forward passes' end, the backward passes', the parts' numbers,
/// totals and sizes, two each.
const WORDS: f64 = 12.0;

/// A step of some ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How many ranks.
    pub ranks: usize,
    /// Bytes of gradients.
    pub bytes: f64,
    /// Seconds that a step takes on each of them by itself, all at the same time.
    pub alone: f64,
}

/// Between the ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds for each byte on the way between gradients and host, both ways together.
    pub host: f64,
    /// Bytes a second that leave a rank.
    pub bandwidth: f64,
    /// Seconds for each exchange.
    pub latency: f64,
}

impl Setting {
    /// Times of the bytes that pass the link, and exchanges.
    fn shares(&self) -> [f64; 2] {
        let n = self.ranks as f64;
        let buckets = (self.bytes / BUCKET_BYTES).ceil().max(1.0);
        if self.ranks < 2 { [0.0, 0.0] } else { [2.0 * (n - 1.0) / n, WORDS + 2.0 * buckets] }
    }
}

impl Link {
    /// Seconds of a step.
    pub fn step(&self, setting: &Setting) -> f64 {
        let [passed, exchanges] = setting.shares();
        let host = if setting.ranks < 2 { 0.0 } else { self.host * setting.bytes };
        setting.alone + host + passed * setting.bytes / self.bandwidth + exchanges * self.latency
    }

    /// The link with which these settings took as long as they took: least squares of the relative errors.
    pub fn fitted(measured: &[(Setting, f64)]) -> Option<Self> {
        let rows: Vec<([f64; 3], f64)> = measured
            .iter()
            .filter(|(setting, _)| setting.ranks > 1)
            .map(|(setting, step)| {
                let [passed, exchanges] = setting.shares();
                let row = [setting.bytes, passed * setting.bytes, exchanges].map(|term| term / step);
                (row, (step - setting.alone) / step)
            })
            .collect();
        // Of several sets of terms that explain all, the one that explains it best with no term below 0.
        let sets: [&[usize]; 7] = [&[0, 1, 2], &[0, 1], &[1, 2], &[0, 2], &[1], &[0], &[2]];
        let fits = sets.iter().filter_map(|set| {
            let found = least_squares(&rows, set)?;
            let error: f64 = rows
                .iter()
                .map(|(row, due)| (row.iter().zip(&found).map(|(x, y)| x * y).sum::<f64>() - due).powi(2))
                .sum();
            (rows.len() >= set.len() && found.iter().all(|term| *term >= 0.0)).then_some((error, found))
        });
        let (_, [host, per_byte, latency]) = fits.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Self { host, bandwidth: per_byte.recip(), latency })
    }
}

/// The terms of `set` with which the rows are nearest to what is due; the others are 0.
fn least_squares(rows: &[([f64; 3], f64)], set: &[usize]) -> Option<[f64; 3]> {
    let n = set.len();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for (row, due) in rows {
        for (i, a) in set.iter().enumerate() {
            for (j, b) in set.iter().enumerate() {
                matrix[i][j] += row[*a] * row[*b];
            }
            matrix[i][n] += row[*a] * due;
        }
    }
    // Terms are of very different sizes: bytes, and exchanges.
    let scales: Vec<f64> = (0..n).map(|i| matrix[i][i].sqrt()).collect();
    if scales.contains(&0.0) {
        return None;
    }
    for i in 0..n {
        for j in 0..n {
            matrix[i][j] /= scales[i] * scales[j];
        }
        matrix[i][n] /= scales[i];
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|a, b| matrix[*a][i].abs().total_cmp(&matrix[*b][i].abs()))?;
        matrix.swap(i, pivot);
        if matrix[i][i].abs() < 1e-9 {
            return None;
        }
        let row = matrix[i].clone();
        for (_, other) in matrix.iter_mut().enumerate().filter(|(k, _)| *k != i) {
            let factor = other[i] / row[i];
            other.iter_mut().zip(&row).for_each(|(value, own)| *value -= factor * own);
        }
    }
    let mut found = [0.0; 3];
    for (i, term) in set.iter().enumerate() {
        found[*term] = matrix[i][n] / matrix[i][i] / scales[i];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { host: 2e-9, bandwidth: 1e9, latency: 1e-4 };

    fn setting(ranks: usize, bytes: f64) -> Setting {
        Setting { ranks, bytes, alone: 0.5 }
    }

    #[test]
    fn a_step_is_computing_and_what_passes_the_link() {
        assert_eq!(LINK.step(&setting(1, 1e8)), 0.5);
        // Two ranks: 0.2 s to the host and back, 0.1 s on the link, 12 + 2 · 4 exchanges.
        assert!((LINK.step(&setting(2, 1e8)) - (0.5 + 0.2 + 0.1 + 20.0 * 1e-4)).abs() < 1e-12);
        assert!((LINK.step(&setting(4, 1e8)) - (0.5 + 0.2 + 0.15 + 20.0 * 1e-4)).abs() < 1e-12);
    }

    #[test]
    fn what_was_measured_is_found_again() {
        let settings = [(2, 1e8), (4, 1e8), (2, 1e6), (1, 1e8)].map(|(ranks, bytes)| setting(ranks, bytes));
        let measured = settings.map(|setting| (setting, LINK.step(&setting)));
        let found = Link::fitted(&measured).expect("a link");
        for setting in [setting(3, 5e7), setting(64, 1e9)] {
            assert!((found.step(&setting) / LINK.step(&setting) - 1.0).abs() < 1e-6);
        }
        assert_eq!(Link::fitted(&measured[3..]), None, "one rank says nothing of a link");
    }

    #[test]
    fn no_term_is_below_nothing() {
        // Faster with more ranks: no link is.
        let measured = [(setting(2, 1e8), 0.9), (setting(4, 1e8), 0.7), (setting(8, 1e8), 0.6)];
        let found = Link::fitted(&measured).expect("a link");
        assert!(found.host >= 0.0 && found.bandwidth > 0.0 && found.latency >= 0.0, "{found:?}");
    }
}
