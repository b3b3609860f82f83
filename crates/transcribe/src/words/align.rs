//! Alignment of tokens with audio by dynamic time warping of attention weights.

/// Attention of the tokens of a sequence to the audio, `[heads, tokens, frames]`, with frames of 20 ms.
pub(crate) struct Attention<'a> {
    /// The weights, head by head and token by token.
    pub weights: &'a [f32],
    pub heads: usize,
    pub tokens: usize,
    pub frames: usize,
}

/// Width of the median filter over time, in frames.
const MEDIAN: usize = 7;

impl Attention<'_> {
    /// Returns the frame at which each token of `first..last` begins, by attention to the first `frames` frames.
    ///
    /// As in openai-whisper: each head's weights are normalised over the tokens, smoothed over time, and averaged over the
    /// heads; the path with the most weight on which time and tokens do not go back assigns each frame to a token.
    pub fn starts(&self, first: usize, last: usize, frames: usize) -> Vec<usize> {
        let frames = frames.min(self.frames);
        if last <= first || frames == 0 {
            return vec![0; last.saturating_sub(first)];
        }
        let mut mean = vec![0.0_f32; (last - first) * frames];
        for head in self.weights.chunks_exact(self.tokens * self.frames).take(self.heads) {
            let weights = self.normalised(head, frames);
            let rows = weights.chunks_exact(frames).skip(first).zip(mean.chunks_exact_mut(frames));
            rows.for_each(|(row, sum)| sum.iter_mut().zip(median(row)).for_each(|(sum, weight)| *sum += weight));
        }
        starts(&mean, frames)
    }

    /// Returns a head's weights of the first frames: their sum over the frames is 1, and then their mean over the tokens 0 and
    /// the variance 1.
    fn normalised(&self, head: &[f32], frames: usize) -> Vec<f32> {
        let mut weights = Vec::with_capacity(self.tokens * frames);
        for row in head.chunks_exact(self.frames) {
            let sum: f32 = row[..frames].iter().sum();
            weights.extend(row[..frames].iter().map(|weight| weight / sum.max(f32::MIN_POSITIVE)));
        }
        for frame in 0..frames {
            let column = || weights.iter().skip(frame).step_by(frames);
            let mean = column().sum::<f32>() / self.tokens as f32;
            let variance = column().map(|weight| (weight - mean).powi(2)).sum::<f32>() / self.tokens as f32;
            let scale = 1.0 / variance.sqrt().max(f32::MIN_POSITIVE);
            weights.iter_mut().skip(frame).step_by(frames).for_each(|weight| *weight = (*weight - mean) * scale);
        }
        weights
    }
}

/// Median of each element and its neighbours; beyond its ends the row is mirrored.
fn median(row: &[f32]) -> impl Iterator<Item = f32> + '_ {
    let (half, last) = (MEDIAN / 2, row.len() as isize - 1);
    (0..row.len() as isize).map(move |at| {
        let mut around: [f32; MEDIAN] = std::array::from_fn(|offset| {
            let place = (at + offset as isize - half as isize).abs();
            row[if place > last { (2 * last - place).max(0) } else { place } as usize]
        });
        around.sort_unstable_by(f32::total_cmp);
        around[half]
    })
}

/// Returns the column at which the path through `weights`, `[rows, columns]`, reaches each row. The path leads from the first
/// element to the last one, goes down, right or both at each step, and has the largest sum.
fn starts(weights: &[f32], columns: usize) -> Vec<usize> {
    let rows = weights.len() / columns;
    // Cost of the best path to each element, in a frame of infinite ones.
    let width = columns + 1;
    let mut cost = vec![f32::INFINITY; (rows + 1) * width];
    let mut from = vec![Step::Right; (rows + 1) * width];
    cost[0] = 0.0;
    for row in 1..=rows {
        for column in 1..=columns {
            let (diagonal, above, left) = (
                cost[(row - 1) * width + column - 1],
                cost[(row - 1) * width + column],
                cost[row * width + column - 1],
            );
            let (best, step) = if diagonal < above && diagonal < left {
                (diagonal, Step::Both)
            } else if above < diagonal && above < left {
                (above, Step::Down)
            } else {
                (left, Step::Right)
            };
            cost[row * width + column] = best - weights[(row - 1) * columns + column - 1];
            from[row * width + column] = step;
        }
    }
    let mut starts = vec![0; rows];
    let (mut row, mut column) = (rows, columns);
    while row > 0 && column > 0 {
        starts[row - 1] = column - 1;
        match from[row * width + column] {
            Step::Both => (row, column) = (row - 1, column - 1),
            Step::Down => row -= 1,
            Step::Right => column -= 1,
        }
    }
    starts
}

#[derive(Clone, Copy)]
enum Step {
    Down,
    Right,
    Both,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_begin_where_their_weights_begin() {
        let weights = [[3.0, 3.0, -1.0, -1.0, -1.0], [-1.0, -1.0, 3.0, -1.0, -1.0], [-1.0, -1.0, -1.0, 3.0, 3.0]];
        assert_eq!(starts(&weights.concat(), 5), [0, 2, 3]);
    }

    #[test]
    fn a_median_ignores_what_is_alone() {
        let mut row = vec![0.0; 20];
        row[5] = 9.0;
        row[12..17].fill(1.0);
        let smooth: Vec<f32> = median(&row).collect();
        assert_eq!(smooth[5], 0.0);
        assert_eq!(smooth[14], 1.0);
        assert_eq!(median(&[4.0]).collect::<Vec<_>>(), [4.0]);
    }

    /// Largest sum of all paths, by trying them.
    fn best(weights: &[f32], columns: usize, row: usize, column: usize) -> f32 {
        let own = weights[row * columns + column];
        let mut before = Vec::new();
        if row > 0 {
            before.push(best(weights, columns, row - 1, column));
        }
        if column > 0 {
            before.push(best(weights, columns, row, column - 1));
        }
        if row > 0 && column > 0 {
            before.push(best(weights, columns, row - 1, column - 1));
        }
        own + before.into_iter().fold(f32::NEG_INFINITY, f32::max).max(if row + column == 0 {
            0.0
        } else {
            f32::NEG_INFINITY
        })
    }

    proptest! {
        #[test]
        fn the_path_has_the_largest_sum(weights in prop::collection::vec(-3.0_f32..3.0, 12)) {
            let found = starts(&weights, 4);
            prop_assert!(found.is_sorted() && found[0] == 0, "{found:?}");
            // The best path that reaches the rows at these columns: between them it goes right, then down or across.
            let mut sum = f32::NEG_INFINITY;
            for first in found[1].saturating_sub(1)..=found[1] {
                for second in found[2].saturating_sub(1)..=found[2] {
                    if second < found[1] {
                        continue;
                    }
                    let rows = [0..=first, found[1]..=second, found[2]..=3];
                    let total = rows.into_iter().enumerate().map(|(row, columns)| columns.map(|column| weights[row * 4 + column]).sum::<f32>());
                    sum = sum.max(total.sum());
                }
            }
            prop_assert!((sum - best(&weights, 4, 2, 3)).abs() < 1e-4, "{found:?}: {sum}");
        }
    }
}
