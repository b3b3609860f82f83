//! Histograms of the router's output: gate entropy and confidence.

use super::canvas::{FAINT, INK, TEXT, colour, legend, sheet, style};
use super::lines::Frame;
use crate::error::AnalysisError;
use crate::routing::{Histogram, RoutingAnalysis};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Draws the number of samples by normalised entropy, with the mean.
pub(crate) fn gate_entropy(analysis: &RoutingAnalysis) -> Result<String, AnalysisError> {
    let entropy = &analysis.entropy;
    let count = analysis.tasks.len();
    let title = format!("Gate entropy: mean {:.3} nats, at most ln {count} = {:.3}", entropy.mean, (count as f64).ln());
    sheet(&title, |area| {
        let top = entropy.histogram.counts.iter().copied().max().unwrap_or(0).max(5) as f64 * 1.12;
        let mut frame = Frame::new((0.0, 1.0), (0.0, top));
        frame.x_name = "Entropy / ln K (0 is one adapter, 1 is all alike)";
        frame.y_name = "Samples";
        frame.x_ticks = 11;
        frame.draw(area, |chart| {
            let heights: Vec<f64> = entropy.histogram.counts.iter().map(|&count| count as f64).collect();
            chart.draw_series(bars(&heights, 0.0, 1.0, colour(0)))?;
            let mean = entropy.normalized_mean;
            chart.draw_series([PathElement::new([(mean, 0.0), (mean, top)], colour(5).stroke_width(2))])?;
            let text = format!("mean {mean:.3}");
            let (side, place) = if mean > 0.7 { (HPos::Right, mean - 0.01) } else { (HPos::Left, mean + 0.01) };
            let ink = style(TEXT, INK, side, VPos::Top);
            chart.draw_series([Text::new(text, (place, top * 0.985), ink)])?;
            Ok(())
        })
    })
}

/// Draws the confidence of right and of wrong decisions, each as a share of its own samples.
pub(crate) fn confidence(analysis: &RoutingAnalysis) -> Result<String, AnalysisError> {
    let confidence = &analysis.confidence;
    sheet("Confidence of the router, right and wrong", |area| {
        let entry = |what: &str, histogram: &Histogram, mean: Option<f64>| match mean {
            Some(mean) => format!("{what} (n = {}): mean {mean:.3}", histogram.total()),
            None => format!("{what}: no samples"),
        };
        let entries = [
            (entry("right", &confidence.right, confidence.mean_right), colour(0)),
            (entry("wrong", &confidence.wrong, confidence.mean_wrong), colour(5)),
        ];
        let area = legend(area, &entries)?;
        let (right, wrong) = (shares(&confidence.right), shares(&confidence.wrong));
        let top = right.iter().chain(&wrong).copied().fold(1.0, f64::max) * 1.08;
        let mut frame = Frame::new((0.0, 1.0), (0.0, top));
        frame.x_name = "Confidence";
        frame.y_name = "Share of samples (%)";
        frame.x_ticks = 11;
        frame.draw(&area, |chart| {
            chart.draw_series(bars(&right, 0.0, 0.5, colour(0)))?;
            chart.draw_series(bars(&wrong, 0.5, 1.0, colour(5)))?;
            chart.draw_series([PathElement::new([(0.0, 0.0), (1.0, 0.0)], FAINT)])?;
            Ok(())
        })
    })
}

/// Returns the histogram in percent of its samples.
fn shares(histogram: &Histogram) -> Vec<f64> {
    let total = histogram.total().max(1) as f64;
    histogram.counts.iter().map(|&count| 100.0 * count as f64 / total).collect()
}

/// Returns a bar per bin over 0..=1, from `start` to `end` of the bin's width, with a small gap.
fn bars(heights: &[f64], start: f64, end: f64, fill: RGBColor) -> Vec<Rectangle<(f64, f64)>> {
    let width = 1.0 / heights.len() as f64;
    let edge = |bin: usize, share: f64| width * (bin as f64 + 0.04 + share * 0.92);
    let bar = |(bin, &height): (usize, &f64)| {
        (height > 0.0).then(|| Rectangle::new([(edge(bin, start), 0.0), (edge(bin, end), height)], fill.filled()))
    };
    heights.iter().enumerate().filter_map(bar).collect()
}
