//! The page of models between a tuned one and the one that its training began with.

use crate::draw::canvas::{Drawn, INK, SIZE, TEXT, colour, sheet_of, style, tick};
use crate::draw::lines::{Chart, Frame, value_range};
use crate::error::{AnalysisError, ReportError};
use crate::html::{page, table};
use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::path::{Path, PathBuf};
use undertone_metrics::Direction;
use undertone_store::write_atomically;

/// Name of the page in the directory of a run.
const PAGE: &str = "blend.html";

/// A model between two others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlendPoint {
    /// Share of the model that the training began with.
    pub share: f64,
    /// Metric on the data of the task.
    pub task: f64,
    /// Metric on general data, if there is any.
    pub general: Option<f64>,
}

/// Evaluated models between two others.
#[derive(Clone, Debug, PartialEq)]
pub struct BlendPage {
    /// Name of the run.
    pub name: String,
    /// Metric of both kinds of data.
    pub metric: String,
    /// Direction of the metric.
    pub direction: Direction,
    /// Name of the general data, if there is any.
    pub general: Option<String>,
    /// Models by share.
    pub points: Vec<BlendPoint>,
}

impl BlendPage {
    /// Writes `blend.html` to a directory, and returns its path.
    ///
    /// # Errors
    /// If the picture cannot be drawn, or the file not be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ReportError> {
        let path = directory.join(PAGE);
        write_atomically(&path, self.html()?.as_bytes())?;
        Ok(path)
    }

    fn html(&self) -> Result<String, ReportError> {
        let title = format!("{} and the model that it began with", self.name);
        let picture = self.draw()?;
        let body = html! {
            h1 { (title) }
            p.lead {
                "Weights between the two models. A share of 0 is the tuned model, a share of 1 the one that its training began with. "
                (self.metric) ": " (self.direction.words()) "."
            }
            @if let Some(picture) = picture { div.pictures { figure.curves { (PreEscaped(picture)) } } }
            (self.table())
        };
        Ok(page(&title, &body))
    }

    fn table(&self) -> Markup {
        let task = format!("{} of the task", self.metric);
        let general = self.general.as_ref().map(|general| format!("{} of {general}", self.metric));
        let head: Vec<&str> = ["Share", &task].into_iter().chain(general.as_deref()).collect();
        let row = |point: &BlendPoint| {
            let general = point.general.map(|general| format!("{general:.4}"));
            [point.share.to_string(), format!("{:.4}", point.task)].into_iter().chain(general).collect()
        };
        table(&head, &self.points.iter().map(row).collect::<Vec<_>>())
    }

    /// Draws one metric over the other, with the shares beside the points; without general data the metric over the share.
    /// `None` if there is no number to draw.
    fn draw(&self) -> Result<Option<String>, AnalysisError> {
        let place = |point: &BlendPoint| match self.general {
            Some(_) => point.general.map(|general| (point.task, general)),
            None => Some((point.share, point.task)),
        };
        let located: Vec<(f64, (f64, f64))> =
            self.points.iter().filter_map(|point| Some((point.share, place(point)?))).collect();
        let finite = |(_, (x, y)): &(f64, (f64, f64))| x.is_finite() && y.is_finite();
        let located: Vec<(f64, (f64, f64))> = located.into_iter().filter(finite).collect();
        if located.is_empty() {
            return Ok(None);
        }
        let (task, general) = (format!("{} of the task", self.metric), format!("{} of general data", self.metric));
        let (x_name, y_name) = match self.general {
            Some(_) => (task.as_str(), general.as_str()),
            None => ("Share of the model that the training began with", task.as_str()),
        };
        let range = |of: fn(&(f64, f64)) -> f64| value_range(located.iter().map(|(_, at)| of(at)), false);
        let mut frame = Frame::new(range(|at| at.0), range(|at| at.1));
        (frame.x_name, frame.y_name) = (x_name, y_name);
        sheet_of(SIZE, &format!("{} ({})", self.metric, self.direction.words()), |area| {
            frame.draw(area, |chart| draw_points(chart, &located))
        })
        .map(Some)
    }
}

fn draw_points(chart: &mut Chart, located: &[(f64, (f64, f64))]) -> Drawn {
    let path: Vec<(f64, f64)> = located.iter().map(|(_, at)| *at).collect();
    chart.draw_series([PathElement::new(path, colour(0).stroke_width(2))])?;
    chart.draw_series(located.iter().map(|(_, at)| Circle::new(*at, 4, colour(0).filled())))?;
    let ink = || style(TEXT - 1.0, INK, HPos::Left, VPos::Bottom);
    chart.draw_series(
        located.iter().map(|(share, at)| EmptyElement::at(*at) + Text::new(tick(*share), (6, -4), ink())),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_share_with_and_without_general_data() {
        let directory = tempfile::tempdir().expect("a directory");
        let point = |share, task, general| BlendPoint { share, task, general };
        let both = BlendPage {
            name: "contest".into(),
            metric: "cer".into(),
            direction: Direction::Lower,
            general: Some("general.csv".into()),
            points: vec![point(0.0, 0.1, Some(0.4)), point(0.25, 0.125, Some(0.2)), point(1.0, 0.5, Some(0.15))],
        };
        let text = std::fs::read_to_string(both.write(directory.path()).expect("written")).expect("readable");
        for shown in ["general.csv", "0.1250", "0.1500", "<svg", "0.25", "lower is better"] {
            assert!(text.contains(shown), "{shown}");
        }
        let points = vec![point(0.0, 0.1, None), point(1.0, f64::NAN, None)];
        let alone = BlendPage { general: None, points, ..both };
        let text = alone.html().expect("drawn");
        assert!(text.contains("<svg") && !text.contains("general"), "{text}");
        let nothing = BlendPage { points: vec![point(0.0, f64::NAN, None)], ..alone };
        assert!(!nothing.html().expect("a page").contains("<svg"));
    }
}
