//! Histograms of the router's output: gate entropy, confidence and its calibration.

use super::canvas::{FAINT, INK, TEXT, colour, legend, sheet, style};
use super::lines::Frame;
use crate::error::AnalysisError;
use crate::routing::{Calibration, Histogram, RoutingAnalysis};
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

/// Draws the share of right decisions by confidence, beside the diagonal on which a calibrated confidence lies. Each bar has its number of
/// samples.
pub(crate) fn calibration(calibration: &Calibration) -> Result<String, AnalysisError> {
    let title = format!("Calibration of the confidence: expected error {:.3}", calibration.error);
    sheet(&title, |area| {
        let entries = [("share of right decisions".to_owned(), colour(0)), ("mean confidence".to_owned(), colour(5))];
        let area = legend(area, &entries)?;
        let mut frame = Frame::new((0.0, 1.0), (0.0, 1.12));
        frame.x_name = "Confidence";
        frame.y_name = "Share of right decisions";
        frame.x_ticks = 11;
        frame.draw(&area, |chart| {
            let accuracies: Vec<f64> = calibration.bins.iter().map(|bin| bin.accuracy).collect();
            chart.draw_series(bars(&accuracies, 0.0, 1.0, colour(0)))?;
            chart.draw_series([PathElement::new([(0.0, 0.0), (1.0, 1.0)], FAINT)])?;
            let filled = || calibration.bins.iter().enumerate().filter(|(_, bin)| bin.samples > 0);
            let width = 1.0 / calibration.bins.len() as f64;
            chart.draw_series(filled().map(|(index, bin)| {
                let (start, end) = (width * (index as f64 + 0.1), width * (index as f64 + 0.9));
                PathElement::new([(start, bin.confidence), (end, bin.confidence)], colour(5).stroke_width(2))
            }))?;
            let ink = style(COUNT, INK, HPos::Center, VPos::Bottom);
            chart.draw_series(filled().map(|(index, bin)| {
                let top = bin.accuracy.max(bin.confidence) + 0.01;
                Text::new(count_text(bin.samples), (width * (index as f64 + 0.5), top), ink.clone())
            }))?;
            Ok(())
        })
    })
}

/// Size of the counts above bars, in pixels: five characters are as wide as a bar.
const COUNT: f64 = 8.0;

/// Returns a count in at most four characters.
fn count_text(count: usize) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
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
