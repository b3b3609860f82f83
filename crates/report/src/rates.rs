//! The page of a search for a learning rate.

use crate::draw::canvas::{INK, SIZE, colour, legend, sheet_of, tick};
use crate::draw::lines::{Frame, value_range};
use crate::error::{AnalysisError, ReportError};
use crate::html::{REPORT, page};
use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use std::path::{Path, PathBuf};
use undertone_metrics::Direction;
use undertone_store::write_atomically;

/// Trials of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct RateCurve {
    /// Optimizer steps of each trial.
    pub steps: u64,
    /// Learning rates in ascending order, each with its validation metric; `None` if training diverged.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A finished search for a learning rate.
#[derive(Clone, Debug, PartialEq)]
pub struct RatePage {
    /// Name of what was trained.
    pub name: String,
    /// Validation metric.
    pub metric: String,
    /// Direction of the metric.
    pub direction: Direction,
    /// Trials by length, the shortest first.
    pub curves: Vec<RateCurve>,
    /// Rate that was chosen.
    pub best: f64,
}

impl RatePage {
    /// Writes `report.html` to a directory, and returns its path.
    ///
    /// # Errors
    /// If the picture cannot be drawn, or the file not be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ReportError> {
        let path = directory.join(REPORT);
        write_atomically(&path, self.html()?.as_bytes())?;
        Ok(path)
    }

    fn html(&self) -> Result<String, ReportError> {
        let title = format!("Learning rates of {}", self.name);
        let picture = self.draw()?;
        let body = html! {
            h1 { (title) }
            p.lead {
                "The best of the longest trials is " strong { (tick(self.best)) }
                ". Each trial is a whole run with warm-up and decay; the better half of each length goes on to the next."
            }
            @if let Some(picture) = picture { div.pictures { figure.curves { (PreEscaped(picture)) } } }
            (self.table())
        };
        Ok(page(&title, &body))
    }

    fn table(&self) -> Markup {
        let mut rates: Vec<f64> = self.curves.iter().flat_map(|curve| &curve.points).map(|(rate, _)| *rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        let cell = |curve: &RateCurve, rate: f64| match curve.points.iter().find(|(tried, _)| *tried == rate) {
            Some((_, Some(value))) => format!("{value:.4}"),
            Some((_, None)) => "diverged".into(),
            None => "–".into(),
        };
        html! {
            div.wide {
                table {
                    thead {
                        tr {
                            th { "Learning rate" }
                            @for curve in &self.curves { th.number { (self.metric) " after " (curve.steps) " steps" } }
                        }
                    }
                    tbody {
                        @for rate in rates {
                            tr.best[rate == self.best] {
                                th scope="row" { (tick(rate)) }
                                @for curve in &self.curves { td.number { (cell(curve, rate)) } }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Draws a curve for each length, over the logarithm of the rate; `None` if training always diverged.
    fn draw(&self) -> Result<Option<String>, AnalysisError> {
        let points = |curve: &RateCurve| -> Vec<(f64, f64)> {
            curve.points.iter().filter_map(|(rate, value)| Some((rate.log10(), (*value)?))).collect()
        };
        let curves: Vec<Vec<(f64, f64)>> = self.curves.iter().map(points).collect();
        let all = || curves.iter().flatten().copied();
        let low = all().map(|(x, _)| x).fold(f64::INFINITY, f64::min);
        let high = all().map(|(x, _)| x).fold(f64::NEG_INFINITY, f64::max);
        if high < low {
            return Ok(None);
        }
        let title = format!("{} ({})", self.metric, self.direction.words());
        sheet_of(SIZE, &title, |area| {
            let entries: Vec<_> =
                (0..).zip(&self.curves).map(|(i, c)| (format!("{} steps", c.steps), colour(i))).collect();
            let area = legend(area, &entries)?;
            let mut frame = Frame::new((low - 0.1, high + 0.1), value_range(all().map(|(_, y)| y), false));
            (frame.x_name, frame.x_is_logarithm) = ("Learning rate", true);
            frame.draw(&area, |chart| {
                for (index, points) in curves.iter().enumerate() {
                    chart.draw_series([PathElement::new(points.clone(), colour(index).stroke_width(2))])?;
                    chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour(index).filled())))?;
                }
                let best = curves
                    .last()
                    .and_then(|points| points.iter().find(|(x, _)| (x - self.best.log10()).abs() < 1e-9).copied());
                chart.draw_series(best.map(|at| Circle::new(at, 7, INK.stroke_width(2))))?;
                Ok(())
            })
        })
        .map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_trial_and_the_choice() {
        let directory = tempfile::tempdir().expect("a directory");
        let short = vec![(1e-4, Some(0.5)), (3.2e-4, Some(0.25)), (1e-3, None)];
        let page = RatePage {
            name: "tweets <a>".into(),
            metric: "cer".into(),
            direction: Direction::Lower,
            curves: vec![
                RateCurve { steps: 25, points: short },
                RateCurve { steps: 50, points: vec![(1e-4, Some(0.4)), (3.2e-4, Some(0.1))] },
            ],
            best: 3.2e-4,
        };
        let path = page.write(directory.path()).expect("written");
        let text = std::fs::read_to_string(path).expect("readable");
        for shown in ["tweets &lt;a&gt;", "diverged", "0.2500", "0.1000", "3.2e-4", "cer after 50 steps", "<svg"] {
            assert!(text.contains(shown), "{shown}");
        }
        let nothing = RatePage { curves: vec![RateCurve { steps: 25, points: vec![(1e-4, None)] }], ..page };
        assert!(nothing.html().expect("drawn").contains("diverged"));
    }
}
