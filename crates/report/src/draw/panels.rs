//! Histograms side by side, two per row.

use super::canvas::{Area, Drawn, FAINT, INK, TEXT, colour, fitted, sheet_of, style, tick};
use super::lines::Frame;
use crate::error::AnalysisError;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// One histogram.
pub struct Panel {
    /// Title above it; empty if the panel beside it shows the title for both.
    pub title: String,
    /// Label of the x axis: the quantity that is counted.
    pub axis: &'static str,
    /// Bin width; the first bin begins at 0.
    pub bin: f64,
    /// Count of each bin; a panel without bins draws nothing.
    pub counts: Vec<usize>,
    /// Limit that no value should exceed; drawn if it is near.
    pub limit: Option<f64>,
}

/// Width of a picture, and height of each row of it, in pixels.
const WIDTH: u32 = 900;
const ROW: u32 = 240;
/// Height of the overall title, in pixels.
const HEAD: u32 = 48;
/// A limit is near if it is at most this many times the largest value.
const NEAR: f64 = 2.0;

/// Draws rows of two histograms each as one SVG.
///
/// # Errors
/// If drawing fails.
pub fn panels(title: &str, rows: &[[Panel; 2]]) -> Result<String, AnalysisError> {
    let size = (WIDTH, HEAD + ROW * rows.len().max(1) as u32);
    sheet_of(size, title, |area| {
        if rows.is_empty() {
            return Ok(());
        }
        for (area, row) in area.split_evenly((rows.len(), 1)).iter().zip(rows) {
            let (head, body) = area.split_vertically(24);
            let room = f64::from(head.dim_in_pixel().0) - 20.0;
            let title = fitted(&row[0].title, TEXT, room);
            head.draw_text(&title, &style(TEXT, INK, HPos::Left, VPos::Center), (4, 14))?;
            for (area, panel) in body.split_evenly((1, 2)).iter().zip(row) {
                if panel.counts.iter().any(|count| *count > 0) {
                    panel.draw(area)?;
                }
            }
        }
        Ok(())
    })
}

impl Panel {
    fn draw(&self, area: &Area) -> Drawn {
        let end = self.bin * self.counts.len() as f64;
        let limit = self.limit.filter(|limit| *limit <= NEAR * end);
        let right = limit.map_or(end, |limit| end.max(limit * 1.04));
        let top = self.counts.iter().copied().max().unwrap_or(0).max(5) as f64 * 1.08;
        let mut frame = Frame::new((0.0, right), (0.0, top));
        (frame.x_name, frame.y_name) = (self.axis, "Samples");
        frame.draw(area, |chart| {
            let bars = self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bin, count)| {
                let edge = |share: f64| self.bin * (bin as f64 + 0.04 + share * 0.92);
                Rectangle::new([(edge(0.0), 0.0), (edge(1.0), *count as f64)], colour(0).filled())
            });
            chart.draw_series(bars)?;
            chart.draw_series([PathElement::new([(0.0, 0.0), (right, 0.0)], FAINT)])?;
            if let Some(limit) = limit {
                chart.draw_series([PathElement::new([(limit, 0.0), (limit, top)], colour(5).stroke_width(2))])?;
                let ink = style(TEXT - 1.0, INK, HPos::Right, VPos::Top);
                let text = format!("at most {}", tick(limit));
                chart.draw_series([Text::new(text, (limit - right * 0.01, top * 0.985), ink)])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(title: &str, counts: &[usize], limit: Option<f64>) -> Panel {
        Panel { title: title.into(), axis: "Seconds", bin: 2.0, counts: counts.into(), limit }
    }

    #[test]
    fn rows_are_drawn_below_each_other_and_far_limits_are_not() {
        let rows = [
            [panel("train: <a>", &[3, 0, 9], Some(7.0)), panel("", &[1], Some(400.0))],
            [panel("valid: b", &[], None), panel("", &[2], None)],
        ];
        let svg = panels("Data", &rows).expect("drawn");
        let document = roxmltree::Document::parse(&svg).expect("XML");
        assert_eq!(document.root_element().attribute("viewBox"), Some("0 0 900 528"));
        let texts: Vec<&str> =
            document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text()).collect();
        let has = |wanted: &str| texts.iter().any(|text| text.trim() == wanted);
        assert!(has("train: <a>") && has("valid: b") && has("at most 7") && !has("at most 400"), "{texts:?}");
        assert!(panels("Data", &[]).is_ok());
    }
}
