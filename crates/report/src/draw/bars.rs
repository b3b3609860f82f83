//! Bar charts: the usage of each adapter, and the metrics of each router.

use super::canvas::{
    Area, Drawn, FAINT, GRID, HUES, INK, TEXT, colour, ink_on, label, legend, names_fit, percent, sheet, side_names,
    style, text_width, widest,
};
use super::lines::{Frame, LEFT, RIGHT, value_range};
use crate::error::AnalysisError;
use crate::routing::RoutingAnalysis;
use crate::table::MetricsTable;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Draws the mean gates as stacked bars: one bar per true task, and one for all samples. The mark beside a task's name
/// has the colour of its adapter.
pub(crate) fn adapter_usage(analysis: &RoutingAnalysis) -> Result<String, AnalysisError> {
    sheet("Adapter usage by task", |area| {
        // With more tasks than the palette has hues, the segments carry numbers.
        let numbered = analysis.tasks.len() > HUES;
        let (width, height) = area.dim_in_pixel();
        let mut names = side_names(&analysis.tasks, numbered);
        names.push("all samples".into());
        let left = widest(&names, TEXT - 1.0) + 24;
        let bottom = height as i32 - 38;
        let row = f64::from(bottom) / names.len() as f64;
        let bars = Bars { left, width: width as i32 - left - 20, numbered };
        bars.draw_axis(area, bottom)?;
        let rows = analysis.task_usage.iter().map(Option::as_ref).chain([Some(&analysis.usage)]);
        let size = (row * 0.85).clamp(7.0, TEXT - 1.0);
        let (inset, mark) = ((row * 0.12).min(5.0), (row * 0.3).min(5.5));
        for (index, (name, usage)) in names.iter().zip(rows).enumerate() {
            let y = |share: f64, shift: f64| ((index as f64 + share) * row + shift).round() as i32;
            let middle = y(0.5, 0.0);
            area.draw_text(name, &style(size, INK, HPos::Right, VPos::Center), (left - 22, middle))?;
            if index < analysis.tasks.len() {
                let corners = [(left - 17, y(0.5, -mark)), (left - 6, y(0.5, mark))];
                area.draw(&Rectangle::new(corners, colour(index).filled()))?;
            }
            match usage {
                Some(shares) => bars.draw_shares(area, shares, (y(0.0, inset), y(1.0, -inset)))?,
                None => {
                    area.draw_text("no samples", &style(size, FAINT, HPos::Left, VPos::Center), (left + 6, middle))?
                }
            }
        }
        Ok(())
    })
}

struct Bars {
    left: i32,
    width: i32,
    numbered: bool,
}

impl Bars {
    fn draw_axis(&self, area: &Area, bottom: i32) -> Drawn {
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let x = self.x(share);
            area.draw(&PathElement::new([(x, 0), (x, bottom + 3)], GRID))?;
            area.draw_text(&percent(share), &style(TEXT - 1.0, INK, HPos::Center, VPos::Top), (x, bottom + 6))?;
        }
        let middle = (self.x(0.5), bottom + 22);
        area.draw_text(
            "Mean gate of each adapter (marked with its colour at the left)",
            &style(TEXT, INK, HPos::Center, VPos::Top),
            middle,
        )
    }

    fn draw_shares(&self, area: &Area, shares: &[f64], (top, bottom): (i32, i32)) -> Drawn {
        let mut start = 0.0;
        for (adapter, share) in shares.iter().enumerate() {
            let (from, to) = (self.x(start), self.x(start + share));
            start += share;
            if to <= from {
                continue;
            }
            let fill = colour(adapter);
            area.draw(&Rectangle::new([(from, top), (to, bottom)], fill.filled()))?;
            if to - from > 4 {
                area.draw(&PathElement::new([(to, top), (to, bottom)], WHITE))?;
            }
            let text = if self.numbered { (adapter + 1).to_string() } else { percent(*share) };
            let size = f64::from(bottom - top).min(TEXT - 1.0);
            if size >= 7.0 && text_width(&text, size) + 4.0 < f64::from(to - from) {
                let at = ((from + to) / 2, (top + bottom) / 2);
                area.draw_text(&text, &style(size, ink_on(fill), HPos::Center, VPos::Center), at)?;
            }
        }
        Ok(())
    }

    fn x(&self, share: f64) -> i32 {
        self.left + (f64::from(self.width) * share).round() as i32
    }
}

/// Draws grouped bars: tasks along the axis, one bar per router. Tasks without a value are left out; `None` if no task
/// is left.
pub(crate) fn metric_by_task(table: &MetricsTable, metric: &str) -> Result<Option<String>, AnalysisError> {
    let routers: Vec<&str> = table.routers().collect();
    let values =
        |task: &str| -> Vec<Option<f64>> { routers.iter().map(|router| table.value(router, task, metric)).collect() };
    let groups: Vec<(&str, Vec<Option<f64>>)> = table
        .tasks()
        .iter()
        .map(|column| (column.task.as_str(), values(&column.task)))
        .filter(|(_, values)| values.iter().any(Option::is_some))
        .collect();
    if groups.is_empty() {
        return Ok(None);
    }
    let title = format!("{metric} by task and router ({})", table.metric(metric)?.direction.words());
    sheet(&title, |area| {
        let y_name = label(metric);
        let entries: Vec<_> = routers.iter().enumerate().map(|(index, name)| (label(name), colour(index))).collect();
        let area = legend(area, &entries)?;
        let measured = groups.iter().flat_map(|(_, values)| values.iter().flatten().copied());
        let names: Vec<String> = groups.iter().map(|(task, _)| label(task)).collect();
        let (width, height) = area.dim_in_pixel();
        let step = f64::from(width as i32 - LEFT - RIGHT) / groups.len() as f64;
        let level = names_fit(&names, TEXT - 1.0, step);
        let bottom = if level { 26 } else { widest(&names, TEXT - 1.0) + 12 };
        let mut frame = Frame::new((0.0, groups.len() as f64), value_range(measured, true));
        frame.y_name = &y_name;
        frame.x_ticks = 0;
        frame.bottom = bottom;
        frame.draw(&area, |chart| {
            for (index, (_, values)) in groups.iter().enumerate() {
                chart.draw_series(group_bars(index, values))?;
            }
            chart.draw_series([PathElement::new([(0.0, 0.0), (groups.len() as f64, 0.0)], FAINT)])?;
            Ok(())
        })?;
        for (index, name) in names.iter().enumerate() {
            let at = (LEFT + (step * (index as f64 + 0.5)).round() as i32, height as i32 - bottom + 7);
            let text = match level {
                true => style(TEXT - 1.0, INK, HPos::Center, VPos::Top),
                false => style((step * 0.8).clamp(7.0, TEXT - 1.0), INK, HPos::Right, VPos::Center)
                    .transform(FontTransform::Rotate270),
            };
            area.draw_text(name, &text, at)?;
        }
        Ok(())
    })
    .map(Some)
}

/// Returns the bars of one group, from 0, in the middle eight tenths of its place.
fn group_bars(group: usize, values: &[Option<f64>]) -> Vec<Rectangle<(f64, f64)>> {
    let width = 0.8 / values.len() as f64;
    let bar = |(router, value): (usize, &Option<f64>)| {
        let from = group as f64 + 0.1 + width * router as f64;
        value.map(|value| Rectangle::new([(from, 0.0), (from + width * 0.94, value)], colour(router).filled()))
    };
    values.iter().enumerate().filter_map(bar).collect()
}
