//! Curves over the steps, and the frame of axes that curves and bars share.

use super::canvas::{Area, Drawn, FAINT, GRID, HUES, INK, SIZE, TEXT, colour, label, legend, sheet_of, style, tick};
use crate::error::AnalysisError;
use crate::series::{LossCurves, Series, running_mean};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Maximum number of points drawn per curve: a little fewer than its pixels.
const POINTS: usize = 400;
/// Ratio of the largest to the smallest loss above which the axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 50.0;
/// Minimum number of points of a noisy curve that is smoothed.
const SMOOTHED_FROM: usize = 10;
/// Maximum number of points of a curve that shows each of them.
const DOTTED_TO: usize = 25;
/// Opacity of the values beneath their running mean.
const FAINTNESS: f64 = 0.45;

/// Pixels left of the axes of a frame and right of them.
pub(crate) const LEFT: i32 = 58;
pub(crate) const RIGHT: i32 = 8;

/// A chart with a linear x axis.
pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, ValueAxis>>;

/// Curves of one quantity over the steps.
#[derive(Clone, Debug)]
pub(crate) struct Curves<'a> {
    /// Title above the picture.
    pub title: &'a str,
    /// Label of the y axis; empty if the title names the quantity.
    pub quantity: &'a str,
    /// Curves; one without a name is left out of the legend.
    pub series: &'a [Series],
    /// Scale of the y axis. By default it is logarithmic if positive values are far apart, else linear.
    pub scale: Option<Scale>,
    /// Whether values fluctuate so much that a running mean is more informative; the values are then faint beneath it.
    pub noisy: bool,
    /// Whether a linear y axis begins at 0.
    pub from_zero: bool,
    /// Point marked with a ring.
    pub best: Option<(u64, f64)>,
    /// Range of the x axis in steps, if it is not that of the curves.
    pub steps: Option<(f64, f64)>,
    /// Width and height, in pixels.
    pub size: (u32, u32),
}

impl<'a> Curves<'a> {
    /// Returns curves that are not noisy, on an automatically scaled axis, in a picture of the usual size.
    pub fn new(title: &'a str, quantity: &'a str, series: &'a [Series]) -> Self {
        Self {
            title,
            quantity,
            series,
            scale: None,
            noisy: false,
            from_zero: false,
            best: None,
            steps: None,
            size: SIZE,
        }
    }

    /// Draws the curves; `None` if there is no finite value.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Option<String>, AnalysisError> {
        let stretches: Vec<Vec<Vec<(f64, f64)>>> = self.series.iter().map(|series| series.stretches(POINTS)).collect();
        let points = || stretches.iter().flatten().flatten().copied();
        if points().next().is_none() {
            return Ok(None);
        }
        let fitting = || if is_wide(points().map(|(_, value)| value)) { Scale::Logarithmic } else { Scale::Linear };
        let scale = self.scale.unwrap_or_else(fitting);
        let logarithmic = scale == Scale::Logarithmic;
        let height = |value: f64| if logarithmic { value.log10() } else { value };
        let y_name = match (logarithmic, self.quantity) {
            (false, quantity) => quantity.to_string(),
            (true, "") => "logarithmic".to_string(),
            (true, quantity) => format!("{quantity} (logarithmic)"),
        };
        let steps = self.series.iter().flat_map(|series| &series.points).map(|(step, _)| *step as f64);
        let many = self.series.len() > HUES;
        sheet_of(self.size, self.title, |area| {
            let entry = |(index, series): (usize, &Series)| (label(&series.name), colour(index));
            let named = self.series.iter().enumerate().filter(|(_, it)| !it.name.is_empty());
            let area = legend(area, &named.map(entry).collect::<Vec<_>>())?;
            let x = self.steps.unwrap_or_else(|| span(steps));
            let mut frame =
                Frame::new(x, value_range(points().map(|(_, value)| height(value)), self.from_zero && !logarithmic));
            frame.x_name = "Step";
            frame.y_name = &y_name;
            frame.scale = scale;
            frame.draw(&area, |chart| {
                let path = |points: &[(f64, f64)]| -> Vec<_> {
                    points.iter().map(|&(step, value)| (step, height(value))).collect()
                };
                for (index, stretches) in stretches.iter().enumerate() {
                    let ink = colour(index);
                    for stretch in stretches {
                        let smooth = self.noisy && stretch.len() >= SMOOTHED_FROM;
                        let bold = match smooth {
                            true => running_mean(stretch, (stretch.len() / 20).max(2)),
                            false => stretch.clone(),
                        };
                        // With many curves the faint values would only hide the others.
                        if smooth && !many {
                            chart.draw_series([PathElement::new(path(stretch), ink.mix(FAINTNESS).stroke_width(1))])?;
                        }
                        let width = if many { 1 } else { 2 };
                        chart.draw_series([PathElement::new(path(&bold), ink.stroke_width(width))])?;
                        if stretch.len() <= DOTTED_TO && !smooth {
                            chart.draw_series(path(stretch).into_iter().map(|at| Circle::new(at, 3, ink.filled())))?;
                        }
                    }
                }
                let best = self.best.map(|(step, value)| (step as f64, height(value)));
                chart.draw_series(best.map(|at| Circle::new(at, 7, INK.stroke_width(2))))?;
                Ok(())
            })
        })
        .map(Some)
    }
}

/// Draws the losses of a phase; `None` if there is no finite value.
pub(crate) fn losses(phase: &LossCurves) -> Result<Option<String>, AnalysisError> {
    let title = format!("Loss: {}", phase.phase);
    Curves { noisy: true, ..Curves::new(&title, "Loss", &phase.losses) }.draw()
}

/// Draws the temperature of the router's softmax; `None` if there is none.
pub(crate) fn temperature(phase: &LossCurves) -> Result<Option<String>, AnalysisError> {
    let title = format!("Router temperature: {}", phase.phase);
    let series = [Series { name: String::new(), points: phase.temperature.clone() }];
    Curves::new(&title, "Temperature", &series).draw()
}

/// Whether positive values span so wide a range that only a logarithmic axis shows them.
fn is_wide(values: impl Iterator<Item = f64> + Clone) -> bool {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    low > 0.0 && values.fold(0.0, f64::max) / low > LOGARITHMIC_FROM
}

/// Returns the range from the least to the largest value, never empty.
fn span(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if high > low { (low, high) } else { (low, low + 1.0) }
}

/// Returns a range with a margin that contains all values, and 0 if bars stand on it.
pub(crate) fn value_range(values: impl Iterator<Item = f64>, with_zero: bool) -> (f64, f64) {
    let start = if with_zero { (0.0, 0.0) } else { (f64::INFINITY, f64::NEG_INFINITY) };
    let (low, high) = values.fold(start, |(low, high), value| (low.min(value), high.max(value)));
    // A larger range could not be divided into ticks.
    let (low, high) = (low.clamp(-1e300, 1e300), high.clamp(-1e300, 1e300));
    let magnitude = low.abs().max(high.abs());
    let air = if high > low { (high - low) * 0.05 } else { (magnitude * 0.05).max(0.5) };
    // Nor could a range between neighbouring floats.
    let air = air.max(magnitude * 1e-9).max(1e-12);
    let below = if with_zero && low == 0.0 { 0.0 } else { low - air };
    let above = if with_zero && high == 0.0 && low < 0.0 { 0.0 } else { high + air };
    (below, above)
}

/// Positions of the ticks of the y axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// At round values.
    Linear,
    /// At powers of ten, and at 2 and 5 times each if they are few. The values are logarithms to base 10.
    Logarithmic,
    /// At round percentages.
    Percent,
}

/// A y axis with the ticks of its scale.
pub(crate) struct ValueAxis {
    coordinate: RangedCoordf64,
    scale: Scale,
}

impl ValueAxis {
    fn new((low, high): (f64, f64), scale: Scale) -> Self {
        Self { coordinate: (low..high).into(), scale }
    }

    fn ticks(&self) -> Vec<f64> {
        if let Scale::Linear | Scale::Percent = self.scale {
            return self.coordinate.key_points(7);
        }
        let range = self.range();
        let (first, last) = (range.start.floor() as i32, range.end.ceil() as i32);
        let digits: &[f64] = if last - first <= 4 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (last - first) as usize / 8 + 1;
        let powers = (first..=last).step_by(every).map(f64::from);
        let ticks = powers.flat_map(|power| digits.iter().map(move |digit| power + digit.log10()));
        ticks.filter(|tick| range.contains(tick)).collect()
    }
}

impl Ranged for ValueAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        // Outside the axis the library would compute pixels that overflow an integer.
        let range = self.range();
        self.coordinate.map(&value.clamp(range.start, range.end), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { vec![] } else { self.ticks() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.coordinate.range()
    }
}

impl ValueFormatter<f64> for ValueAxis {
    fn format(value: &f64) -> String {
        tick(*value)
    }

    fn format_ext(&self, value: &f64) -> String {
        match self.scale {
            Scale::Linear => tick(*value),
            Scale::Logarithmic => tick(10f64.powf(*value)),
            Scale::Percent => format!("{}%", tick(value * 100.0)),
        }
    }
}

/// Axes, their names and the grid.
pub(crate) struct Frame<'n> {
    pub x: (f64, f64),
    pub y: (f64, f64),
    pub x_name: &'n str,
    pub y_name: &'n str,
    pub scale: Scale,
    /// Whether x is a logarithm to base 10, of which the ticks show the numbers.
    pub x_is_logarithm: bool,
    /// Approximate number of ticks along x; 0 leaves the axis to the caller.
    pub x_ticks: usize,
    /// Pixels below the axes.
    pub bottom: i32,
}

impl<'n> Frame<'n> {
    /// Returns axes without names over these ranges.
    pub fn new(x: (f64, f64), y: (f64, f64)) -> Self {
        Self { x, y, x_name: "", y_name: "", scale: Scale::Linear, x_is_logarithm: false, x_ticks: 8, bottom: 40 }
    }

    /// Draws the axes, and calls `draw` for their content.
    pub fn draw(&self, area: &Area, draw: impl FnOnce(&mut Chart) -> Drawn) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin_top(4)
            .margin_right(RIGHT)
            .x_label_area_size(self.bottom)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(self.x.0..self.x.1, ValueAxis::new(self.y, self.scale))?;
        let mut mesh = chart.configure_mesh();
        if !self.x_name.is_empty() {
            mesh.x_desc(self.x_name);
        }
        mesh.disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_labels(self.x_ticks)
            .y_desc(self.y_name)
            .x_label_formatter(&|value| tick(if self.x_is_logarithm { 10_f64.powf(*value) } else { *value }))
            .label_style(style(TEXT - 1.0, INK, HPos::Center, VPos::Center))
            .axis_desc_style(style(TEXT, INK, HPos::Center, VPos::Center))
            .draw()?;
        draw(&mut chart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_all_values_and_are_never_empty() {
        assert_eq!(value_range([0.0, 2.0].into_iter(), true), (0.0, 2.1));
        assert_eq!(value_range([1.0, 2.0].into_iter(), false), (0.95, 2.05));
        assert_eq!(value_range([-2.0, -1.0].into_iter(), true), (-2.1, 0.0));
        assert_eq!(value_range([3.0].into_iter(), false), (2.5, 3.5));
        assert_eq!(value_range([0.0].into_iter(), true), (0.0, 0.5));
        assert_eq!(span([7.0, 7.0].into_iter()), (7.0, 8.0));
    }

    #[test]
    fn only_positive_values_far_apart_are_drawn_on_a_logarithmic_axis() {
        assert!(is_wide([0.01, 1.0].into_iter()));
        assert!(!is_wide([0.1, 1.0].into_iter()));
        assert!(!is_wide([0.0, 1000.0].into_iter()));
    }

    #[test]
    fn a_logarithmic_axis_has_its_ticks_at_round_values() {
        let texts = |low, high| {
            let axis = ValueAxis::new((low, high), Scale::Logarithmic);
            axis.ticks().iter().map(|tick| axis.format_ext(tick)).collect::<Vec<_>>()
        };
        assert_eq!(texts(-1.8, 0.4), ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(texts(-3.2, 2.1), ["0.001", "0.01", "0.1", "1", "10", "100"]);
        assert!(texts(-300.0, 300.0).len() < 10);
    }
}
