//! Optimizer step of Adafactor: a matrix's second moments from the means of its rows and of its columns.

use rayon::prelude::*;

use crate::adamw::sum_of_squares;
use crate::simd::{simd_fn, sum_by};

/// Maximum number of pieces of whole rows of a matrix, because each piece holds sums of all columns.
const PIECES: usize = 32;

/// Minimum number of elements of a piece, if there are that many.
const PIECE: usize = 1 << 14;

/// One step of Adafactor (Shazeer and Stern, 2018) with transformers' arithmetic, with an external learning rate.
///
/// The mean square of element `[i, j]` is approximated by `rowsᵢ · columnsⱼ / mean(rows)`. It is exact for a matrix of
/// one row, and a vector is such a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Adafactor {
    /// Learning rate: the upper bound of the root mean square of a parameter's update, before `clip_threshold` and
    /// `scale`.
    pub learning_rate: f32,
    /// Decay of the running mean of updates, if one is kept.
    pub beta1: f32,
    /// Decay of the means of squared gradients at this step: 0 at the first.
    pub beta2: f32,
    /// `1 - beta2`, to f32's last digit.
    pub add2: f32,
    /// Added to every squared gradient.
    pub epsilon: f32,
    /// Maximum root mean square of a parameter's update, in units of the learning rate.
    pub clip_threshold: f32,
    /// Lower bound of the parameter's root mean square when the learning rate is multiplied by it; `None` for no such
    /// scaling.
    pub scale: Option<f32>,
    /// Weight decay, in units of the learning rate.
    pub weight_decay: f32,
    /// Factor of the gradient, for clipping by norm and accumulation: 1 for neither.
    pub gradient_scale: f32,
}

/// Running means of `batch` gradients of `[rows, columns]`, zero before the first step.
#[derive(Debug)]
pub struct Means<'a> {
    /// Means of the squared gradients of each row, `[batch, rows]`.
    pub rows: &'a mut [f32],
    /// Means of the squared gradients of each column, `[batch, columns]`.
    pub columns: &'a mut [f32],
    /// Means of the updates, as long as the parameter; empty for none.
    pub changes: &'a mut [f32],
}

impl Adafactor {
    /// Updates `parameter`, of `[batch, rows, columns]`, and its means, in three passes over memory.
    ///
    /// # Panics
    /// If a length does not fit the shape.
    pub fn update(
        &self,
        [batch, rows, columns]: [usize; 3],
        parameter: &mut [f32],
        means: Means<'_>,
        gradient: &[f32],
    ) {
        let n = batch * rows * columns;
        assert_eq!([parameter.len(), gradient.len()], [n; 2], "a parameter and a gradient of the shape");
        let sums = [means.rows.len(), means.columns.len()];
        assert_eq!(sums, [batch * rows, batch * columns], "means of rows and columns");
        assert!([0, n].contains(&means.changes.len()), "means of all changes, or of none");
        if n == 0 {
            return;
        }
        let matrix = rows * columns;
        let each = means.rows.par_chunks_mut(rows).zip(means.columns.par_chunks_mut(columns));
        each.zip(gradient.par_chunks(matrix)).for_each(|((rows, columns), gradient)| {
            self.follow(rows, columns, gradient);
        });
        let (by_row, by_column) = factors(means.rows, means.columns, rows, columns);
        let change = Change {
            shape: [rows, columns],
            by_row: &by_row,
            by_column: &by_column,
            gradient,
            scale: self.gradient_scale,
        };
        let rms = (change.squared_norm() / n as f64).sqrt();
        let scale = self.scale.map_or(1.0, |least| (sum_of_squares(parameter) / n as f64).sqrt().max(f64::from(least)));
        let rate = f64::from(self.learning_rate) * scale;
        let shortened = rate / (rms / f64::from(self.clip_threshold)).max(1.0);
        let kept = (1.0 - rate * f64::from(self.weight_decay)) as f32;
        self.apply(&change, shortened as f32, kept, parameter, means.changes);
    }

    /// Updates the means of one matrix's rows and columns with its squared gradient.
    fn follow(&self, rows: &mut [f32], columns: &mut [f32], gradient: &[f32]) {
        let (height, width) = (rows.len(), columns.len());
        let height_of_piece = piece(height, width);
        let pieces = rows.par_chunks_mut(height_of_piece).zip(gradient.par_chunks(height_of_piece * width));
        let sums: Vec<Vec<f32>> = pieces
            .map(|(rows, gradient)| {
                let mut sums = vec![0.0; width];
                for (row, gradient) in rows.iter_mut().zip(gradient.chunks(width)) {
                    let mean = squared_norm(self.gradient_scale, gradient, &mut sums) / width as f32;
                    *row = *row * self.beta2 + (mean + self.epsilon) * self.add2;
                }
                sums
            })
            .collect();
        for (j, column) in columns.iter_mut().enumerate() {
            let sum: f64 = sums.iter().map(|sums| f64::from(sums[j])).sum();
            *column = *column * self.beta2 + ((sum / height as f64) as f32 + self.epsilon) * self.add2;
        }
    }

    fn apply(&self, change: &Change<'_>, rate: f32, kept: f32, parameter: &mut [f32], changes: &mut [f32]) {
        let [_, columns] = change.shape;
        let lines = piece(change.by_row.len(), columns);
        let pieces = parameter.par_chunks_mut(lines * columns).enumerate();
        if changes.is_empty() {
            pieces.for_each(|(piece, parameter)| {
                for (i, parameter) in parameter.chunks_mut(columns).enumerate() {
                    let (by_row, by_column, gradient) = change.line(piece * lines + i);
                    move_line(parameter, gradient, by_column, by_row * rate, kept);
                }
            });
            return;
        }
        let add1 = (1.0 - f64::from(self.beta1)) as f32;
        pieces.zip(changes.par_chunks_mut(lines * columns)).for_each(|((piece, parameter), changes)| {
            let both = parameter.chunks_mut(columns).zip(changes.chunks_mut(columns));
            for (i, (parameter, changes)) in both.enumerate() {
                let (by_row, by_column, gradient) = change.line(piece * lines + i);
                move_line_by_mean(parameter, changes, gradient, by_column, by_row * rate * add1, [kept, self.beta1]);
            }
        });
    }
}

/// Number of rows of a piece.
fn piece(rows: usize, columns: usize) -> usize {
    rows.div_ceil(PIECES).max(PIECE.div_ceil(columns))
}

/// Factors of the gradient by row and by column: the inverse roots of the means, those of rows relative to their
/// matrix's mean.
fn factors(rows: &[f32], columns: &[f32], height: usize, width: usize) -> (Vec<f32>, Vec<f32>) {
    debug_assert_eq!(rows.len() / height, columns.len() / width);
    let mut by_row = Vec::with_capacity(rows.len());
    for rows in rows.chunks(height) {
        let mean = rows.iter().copied().map(f64::from).sum::<f64>() / height as f64;
        by_row.extend(rows.iter().map(|row| (mean / f64::from(*row)).sqrt() as f32));
    }
    (by_row, columns.iter().map(|column| column.sqrt().recip()).collect())
}

/// Update by a gradient before clipping, by line: a row of one of the matrices.
struct Change<'a> {
    /// Rows and columns of each matrix.
    shape: [usize; 2],
    by_row: &'a [f32],
    by_column: &'a [f32],
    gradient: &'a [f32],
    scale: f32,
}

impl Change<'_> {
    /// Factor, column factors, and gradient of a line.
    fn line(&self, line: usize) -> (f32, &[f32], &[f32]) {
        let [rows, columns] = self.shape;
        let by_column = &self.by_column[line / rows * columns..][..columns];
        (self.by_row[line] * self.scale, by_column, &self.gradient[line * columns..][..columns])
    }

    /// Squared norm of the update.
    fn squared_norm(&self) -> f64 {
        let lines = self.by_row.len();
        let height = piece(lines, self.shape[1]);
        let pieces: Vec<f64> = (0..lines.div_ceil(height))
            .into_par_iter()
            .map(|piece| {
                let lines = piece * height..lines.min((piece + 1) * height);
                lines
                    .map(|line| {
                        let (by_row, by_column, gradient) = self.line(line);
                        f64::from(line_squares(by_row, by_column, gradient))
                    })
                    .sum()
            })
            .collect();
        pieces.into_iter().sum()
    }
}

simd_fn! {
    /// Squared norm of a row; each square is also added to its column's sum.
    fn squared_norm<S>(scale: f32, gradient: &[f32], columns: &mut [f32]) -> f32 {
        for (column, g) in columns.iter_mut().zip(gradient) {
            let g = g * scale;
            *column = S::fma(g, g, *column);
        }
        sum_by(gradient.len(), |i| {
            let g = gradient[i] * scale;
            g * g
        })
    }
}

simd_fn! {
    fn line_squares<S>(by_row: f32, by_column: &[f32], gradient: &[f32]) -> f32 {
        let n = gradient.len().min(by_column.len());
        sum_by(n, |i| {
            let change = gradient[i] * by_row * by_column[i];
            change * change
        })
    }
}

simd_fn! {
    fn move_line<S>(parameter: &mut [f32], gradient: &[f32], by_column: &[f32], by_row: f32, kept: f32) {
        for ((p, g), c) in parameter.iter_mut().zip(gradient).zip(by_column) {
            *p = S::fma(*p, kept, -(g * by_row * c));
        }
    }
}

simd_fn! {
    fn move_line_by_mean<S>(
        parameter: &mut [f32],
        changes: &mut [f32],
        gradient: &[f32],
        by_column: &[f32],
        by_row: f32,
        kept: [f32; 2],
    ) {
        let [kept, beta1] = kept;
        for (((p, m), g), c) in parameter.iter_mut().zip(changes).zip(gradient).zip(by_column) {
            *m = S::fma(*m, beta1, g * by_row * c);
            *p = S::fma(*p, kept, -*m);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, on_threads, random, wide};
    use proptest::prelude::*;

    /// The paper's step 4 as transformers implements it, in f64; the state is rows, columns and changes.
    fn exact(a: &Adafactor, shape: [usize; 3], p: &mut [f64], state: &mut [Vec<f64>; 3], gradient: &[f32]) {
        let [batch, rows, columns] = shape;
        let n = p.len() as f64;
        let [row_means, column_means, changes] = state;
        let g: Vec<f64> = gradient.iter().map(|g| f64::from(*g) * f64::from(a.gradient_scale)).collect();
        let square = |b: usize, i: usize, j: usize| g[(b * rows + i) * columns + j].powi(2) + f64::from(a.epsilon);
        let (keep, add) = (f64::from(a.beta2), f64::from(a.add2));
        let mut update = vec![0.0; p.len()];
        for b in 0..batch {
            let r = &mut row_means[b * rows..][..rows];
            let c = &mut column_means[b * columns..][..columns];
            for (i, r) in r.iter_mut().enumerate() {
                *r = keep * *r + add * (0..columns).map(|j| square(b, i, j)).sum::<f64>() / columns as f64;
            }
            for (j, c) in c.iter_mut().enumerate() {
                *c = keep * *c + add * (0..rows).map(|i| square(b, i, j)).sum::<f64>() / rows as f64;
            }
            let mean = r.iter().sum::<f64>() / rows as f64;
            for (i, r) in r.iter().enumerate() {
                for (j, c) in c.iter().enumerate() {
                    let at = (b * rows + i) * columns + j;
                    update[at] = g[at] / (r / mean * c).sqrt();
                }
            }
        }
        let rms = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / n).sqrt();
        let rate = f64::from(a.learning_rate) * a.scale.map_or(1.0, |least| rms(p).max(f64::from(least)));
        let shortened = rate / (rms(&update) / f64::from(a.clip_threshold)).max(1.0);
        for (at, p) in p.iter_mut().enumerate() {
            let mut change = update[at] * shortened;
            if !changes.is_empty() {
                changes[at] = f64::from(a.beta1) * changes[at] + (1.0 - f64::from(a.beta1)) * change;
                change = changes[at];
            }
            *p = *p * (1.0 - rate * f64::from(a.weight_decay)) - change;
        }
    }

    fn rule(step: u64) -> Adafactor {
        let add2 = (step as f64).powf(-0.8);
        Adafactor {
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: (1.0 - add2) as f32,
            add2: add2 as f32,
            epsilon: 1e-30,
            clip_threshold: 1.0,
            scale: None,
            weight_decay: 0.1,
            gradient_scale: 0.7,
        }
    }

    /// The parameter and its means after `steps` of random gradients, every third of which has ten times the norm.
    fn trained(shape: [usize; 3], steps: u64, mean: bool, scale: Option<f32>) -> [Vec<f32>; 4] {
        let [batch, rows, columns] = shape;
        let n = shape.iter().product();
        let (mut p, mut r, mut c) = (random(n, 1), vec![0.0; batch * rows], vec![0.0; batch * columns]);
        let mut m = vec![0.0; if mean { n } else { 0 }];
        for step in 1..=steps {
            let means = Means { rows: &mut r, columns: &mut c, changes: &mut m };
            Adafactor { scale, ..rule(step) }.update(shape, &mut p, means, &gradient(n, step));
        }
        [p, r, c, m]
    }

    fn gradient(n: usize, step: u64) -> Vec<f32> {
        random(n, 100 + step).into_iter().map(|g| if step.is_multiple_of(3) { 10.0 * g } else { g }).collect()
    }

    proptest! {
        #[test]
        fn steps_are_the_papers(
            batch in 1_usize..4, rows in 1_usize..40, columns in 1_usize..70, mean: bool, scaled: bool,
        ) {
            let (shape, n) = ([batch, rows, columns], batch * rows * columns);
            let scale = scaled.then_some(1e-3);
            let mut p = wide(&random(n, 1));
            let mut state = [vec![0.0; batch * rows], vec![0.0; batch * columns], vec![0.0; if mean { n } else { 0 }]];
            for step in 1..=7 {
                exact(&Adafactor { scale, ..rule(step) }, shape, &mut p, &mut state, &gradient(n, step));
            }
            let [found, r, c, m] = trained(shape, 7, mean, scale);
            assert_close(&found, &p, 2e-6);
            assert_close(&r, &state[0], 1e-5);
            assert_close(&c, &state[1], 1e-5);
            assert_close(&m, &state[2], 2e-6);
        }
    }

    #[test]
    fn large_matrices_are_summed_piece_by_piece() {
        let shape = [1, 700, 130];
        let mut p = wide(&random(700 * 130, 1));
        let mut state = [vec![0.0; 700], vec![0.0; 130], Vec::new()];
        for step in 1..=3 {
            exact(&rule(step), shape, &mut p, &mut state, &gradient(700 * 130, step));
        }
        assert_close(&trained(shape, 3, false, None)[0], &p, 2e-6);
    }

    #[test]
    fn a_vectors_first_step_is_the_learning_rate_towards_the_gradients_sign() {
        let mut p = [1.0, 1.0, 1.0, 1.0];
        let means = Means { rows: &mut [0.0], columns: &mut [0.0; 4], changes: &mut [] };
        Adafactor { weight_decay: 0.0, ..rule(1) }.update([1, 1, 4], &mut p, means, &[3.0, -20.0, 0.1, 0.0]);
        assert_close(&p, &[0.99, 1.01, 0.99, 1.0], 1e-6);
    }

    #[test]
    fn nothing_is_a_step_too() {
        rule(1).update([1, 0, 3], &mut [], Means { rows: &mut [], columns: &mut [0.0; 3], changes: &mut [] }, &[]);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let (one, three) =
            on_threads(|| [trained([1, 700, 130], 2, true, Some(1e-3)), trained([50, 40, 3], 2, false, None)]);
        assert_eq!(one, three);
    }

    #[test]
    #[should_panic(expected = "means of rows and columns")]
    fn means_of_another_shape_are_refused() {
        rule(1).update(
            [1, 2, 3],
            &mut [0.0; 6],
            Means { rows: &mut [0.0; 3], columns: &mut [0.0; 2], changes: &mut [] },
            &[0.0; 6],
        );
    }
}
