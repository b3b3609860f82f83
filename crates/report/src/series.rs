//! Values that training logged, step by step.

/// Name under which the router's temperature is logged if it changes.
pub const GUMBEL_TEMPERATURE: &str = "gumbel_temperature";

/// Values of one quantity over the steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Step and value, in the order of the steps. A value that is not finite leaves a gap.
    pub points: Vec<(u64, f64)>,
}

/// Losses of one phase of training, and the temperature of its gates if it changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossCurves {
    /// Name of the phase.
    pub phase: String,
    /// Losses by name: of the splits, the tasks and the terms.
    pub losses: Vec<Series>,
    /// Temperature of the gates by step; empty if it is constant.
    pub temperature: Vec<(u64, f64)>,
}

impl Series {
    /// Returns the series in at most `count` points per unbroken stretch. Neighbours are averaged, because more points
    /// than pixels would only make the file large. A stretch ends at a value that is not finite.
    pub fn stretches(&self, count: usize) -> Vec<Vec<(f64, f64)>> {
        let bucket = self.points.len().div_ceil(count).max(1);
        self.points
            .split(|(_, value)| !value.is_finite())
            .filter(|stretch| !stretch.is_empty())
            .map(|stretch| stretch.chunks(bucket).map(mean_point).collect())
            .collect()
    }
}

/// Returns the mean of each point and up to `reach` neighbours on either side, fewer at the ends. The window is
/// centred, so that the curve does not lag behind the values.
pub(crate) fn running_mean(points: &[(f64, f64)], reach: usize) -> Vec<(f64, f64)> {
    let mean = |at: usize| {
        let near = &points[at.saturating_sub(reach)..(at + reach + 1).min(points.len())];
        near.iter().map(|(_, value)| value / near.len() as f64).sum()
    };
    points.iter().enumerate().map(|(at, (step, _))| (*step, mean(at))).collect()
}

fn mean_point(points: &[(u64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let step = points.iter().map(|(step, _)| *step as f64).sum::<f64>() / count;
    (step, points.iter().map(|(_, value)| value / count).sum())
}

/// Formats seconds as `1:02:03`.
pub(crate) fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        Series { name: "loss".into(), points: (0..).step_by(10).zip(values.iter().copied()).collect() }
    }

    #[test]
    fn a_short_series_stays_as_it_is() {
        assert_eq!(series(&[3.0, 1.0]).stretches(100), [[(0.0, 3.0), (10.0, 1.0)]]);
        assert!(series(&[]).stretches(100).is_empty());
    }

    #[test]
    fn a_long_series_averages_neighbours() {
        assert_eq!(series(&[4.0, 2.0, 1.0, 3.0, 8.0]).stretches(3), [[(5.0, 3.0), (25.0, 2.0), (40.0, 8.0)]]);
    }

    #[test]
    fn a_running_mean_lies_in_the_middle() {
        let points = [(0.0, 6.0), (10.0, 3.0), (20.0, 3.0), (30.0, 9.0)];
        assert_eq!(running_mean(&points, 1), [(0.0, 4.5), (10.0, 4.0), (20.0, 5.0), (30.0, 6.0)]);
        assert_eq!(running_mean(&points, 0), points);
        assert!(running_mean(&[], 3).is_empty());
    }

    #[test]
    fn a_value_that_is_not_finite_leaves_a_gap() {
        let stretches = series(&[2.0, f64::NAN, f64::INFINITY, 1.0, 0.5]).stretches(100);
        assert_eq!(stretches, [vec![(0.0, 2.0)], vec![(30.0, 1.0), (40.0, 0.5)]]);
    }
}
