//! Stacked areas: shares of a whole over the steps.

use super::canvas::{colour, label, legend, sheet_of};
use super::lines::{Frame, Scale};
use crate::error::AnalysisError;
use plotters::prelude::*;

/// Maximum number of intervals drawn, a few pixels each.
const INTERVALS: usize = 150;

/// A part of the whole: its name, and the index of its colour.
pub(crate) type Part = (&'static str, usize);

/// Shares of the parts between two steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Step before the first one of the interval.
    pub from: u64,
    /// Last step of the interval.
    pub to: u64,
    /// Weight when several intervals are merged: its seconds.
    pub weight: f64,
    /// Shares in the order of the parts; they sum to 1.
    pub shares: Vec<f64>,
}

/// Stacked areas of shares over the steps.
#[derive(Clone, Debug)]
pub(crate) struct Areas<'a> {
    /// Title above the picture.
    pub title: &'a str,
    /// Label of the y axis.
    pub quantity: &'a str,
    /// Parts, from the bottom up.
    pub parts: &'a [Part],
    /// Intervals in the order of their steps.
    pub intervals: &'a [Interval],
    /// Range of the x axis, in steps.
    pub steps: (f64, f64),
    /// Width and height, in pixels.
    pub size: (u32, u32),
}

impl Areas<'_> {
    /// Draws the areas; `None` if there is no interval.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Option<String>, AnalysisError> {
        if self.intervals.is_empty() {
            return Ok(None);
        }
        let bucket = self.intervals.len().div_ceil(INTERVALS);
        let intervals: Vec<Interval> = self.intervals.chunks(bucket).map(joined).collect();
        sheet_of(self.size, self.title, |area| {
            let entries: Vec<_> = self.parts.iter().map(|(name, hue)| (label(name), colour(*hue))).collect();
            let area = legend(area, &entries)?;
            let mut frame = Frame::new(self.steps, (0.0, 1.0));
            frame.x_name = "Step";
            frame.y_name = self.quantity;
            frame.scale = Scale::Percent;
            frame.draw(&area, |chart| {
                let mut below = vec![0.0; intervals.len()];
                for (part, (_, hue)) in self.parts.iter().enumerate() {
                    let above: Vec<f64> = intervals.iter().zip(&below).map(|(it, low)| low + it.shares[part]).collect();
                    let outline = edge(&intervals, &above).chain(edge(&intervals, &below).rev()).collect::<Vec<_>>();
                    chart.draw_series([Polygon::new(outline, colour(*hue).filled())])?;
                    below = above;
                }
                Ok(())
            })
        })
        .map(Some)
    }
}

/// Returns a step curve of the intervals' heights.
fn edge<'a>(intervals: &'a [Interval], heights: &'a [f64]) -> impl DoubleEndedIterator<Item = (f64, f64)> + 'a {
    let stair = |(it, height): (&Interval, &f64)| [(it.from as f64, *height), (it.to as f64, *height)];
    intervals.iter().zip(heights).flat_map(stair)
}

/// Merges adjacent intervals into one, with shares weighted by [`Interval::weight`].
fn joined(intervals: &[Interval]) -> Interval {
    let weight: f64 = intervals.iter().map(|it| it.weight).sum();
    let share = |part: usize| match weight > 0.0 {
        true => intervals.iter().map(|it| it.shares[part] * it.weight / weight).sum(),
        false => intervals[0].shares[part],
    };
    let (from, to) = (intervals[0].from, intervals[intervals.len() - 1].to);
    Interval { from, to, weight, shares: (0..intervals[0].shares.len()).map(share).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: u64, weight: f64, wait: f64) -> Interval {
        Interval { from, to: from + 10, weight, shares: vec![wait, 1.0 - wait] }
    }

    #[test]
    fn neighbours_are_joined_by_their_weight() {
        let joined = joined(&[interval(0, 1.0, 0.5), interval(10, 3.0, 0.1)]);
        assert_eq!((joined.from, joined.to, joined.weight), (0, 20, 4.0));
        assert!((joined.shares[0] - 0.2).abs() < 1e-12 && (joined.shares[1] - 0.8).abs() < 1e-12, "{joined:?}");
    }

    #[test]
    fn each_part_is_an_area_between_its_neighbours() {
        let intervals = [interval(0, 1.0, 0.25), interval(10, 1.0, 0.75)];
        let parts = [("wait", 0), ("work", 1)];
        let areas = Areas {
            title: "Time",
            quantity: "Share",
            parts: &parts,
            intervals: &intervals,
            steps: (0.0, 20.0),
            size: (480, 320),
        };
        let svg = areas.draw().unwrap().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let polygons: Vec<Vec<(i32, i32)>> = document
            .descendants()
            .filter(|node| node.has_tag_name("polygon"))
            .map(|node| {
                let points = node.attribute("points").unwrap().split_whitespace();
                let pair = |text: &str| text.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()));
                points.map(|text| pair(text).unwrap()).collect()
            })
            .collect();
        assert_eq!(polygons.len(), 2);
        // The upper edge of one part is the lower edge of the next.
        let upper = &polygons[0][..4];
        let lower: Vec<_> = polygons[1][4..].iter().rev().copied().collect();
        assert_eq!(upper, lower);
        // The edge is at a quarter, then at three quarters of the height.
        let (ground, top) = (f64::from(polygons[0][7].1), f64::from(polygons[1][0].1));
        let share = |at: usize| (ground - f64::from(upper[at].1)) / (ground - top);
        assert!((share(0) - 0.25).abs() < 0.01 && (share(3) - 0.75).abs() < 0.01, "{polygons:?}");
        assert!(Areas { intervals: &[], ..areas }.draw().unwrap().is_none());
    }
}
