//! The confusion matrix as a heat map.

use super::canvas::{
    Area, Drawn, FAINT, GRID, INK, TEXT, blend, ink_on, label, names_fit, percent, sheet, side_names, style,
    text_width, widest,
};
use crate::error::AnalysisError;
use crate::routing::RoutingAnalysis;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Colour of a cell that holds all samples of its row.
const FULL: RGBColor = RGBColor(8, 64, 129);

/// Draws the true task against the adapter with the largest gate.
pub(crate) fn confusion(analysis: &RoutingAnalysis) -> Result<String, AnalysisError> {
    let title = format!("Routing by task: {} of {} samples right", percent(analysis.accuracy), analysis.samples);
    sheet(&title, |area| {
        let (width, height) = area.dim_in_pixel();
        let scale_width = 64;
        let count = analysis.tasks.len() as f64;
        // Wide enough for the names with their numbers, whether or not the numbers are used.
        let left = 22 + widest(&side_names(&analysis.tasks, true), TEXT - 1.0) + 8;
        let cell = (f64::from(width as i32 - left - scale_width) / count, f64::from(height as i32 - 48) / count);
        let grid = Grid { left, top: 4, cell, analysis };
        grid.draw_cells(area)?;
        grid.draw_names(area)?;
        draw_scale(area, width as i32 - 40, grid.top, height as i32 - 48)
    })
}

struct Grid<'a> {
    left: i32,
    top: i32,
    /// Width and height of a cell, in pixels.
    cell: (f64, f64),
    analysis: &'a RoutingAnalysis,
}

impl Grid<'_> {
    fn draw_cells(&self, area: &Area) -> Drawn {
        let gap = if self.cell.0.min(self.cell.1) > 12.0 { 1 } else { 0 };
        for (row, counts) in self.analysis.confusion.iter().enumerate() {
            let total: usize = counts.iter().sum();
            for (column, &count) in counts.iter().enumerate() {
                let (from, to) = (self.corner(row, column), self.corner(row + 1, column + 1));
                let share = if total == 0 { 0.0 } else { count as f64 / total as f64 };
                let ground = if total == 0 { GRID } else { shade(share) };
                area.draw(&Rectangle::new([from, (to.0 - gap, to.1 - gap)], ground.filled()))?;
                if total > 0 {
                    self.draw_count(area, self.middle(row, column), count, share, ground)?;
                }
            }
            if total == 0 {
                let middle = (self.centre(), self.middle(row, 0).1);
                area.draw_text("no samples", &style(self.font(), FAINT, HPos::Center, VPos::Center), middle)?;
            }
        }
        let count = self.analysis.tasks.len();
        area.draw(&Rectangle::new([(self.left - 1, self.top - 1), self.corner(count, count)], FAINT))
    }

    /// Draws the count above the share if both fit, the count alone if only it fits, else nothing but the shade.
    fn draw_count(&self, area: &Area, middle: (i32, i32), count: usize, share: f64, ground: RGBColor) -> Drawn {
        let (width, height) = self.cell;
        let colour = if count == 0 { blend(FAINT, WHITE, 0.4) } else { ink_on(ground) };
        let text = count.to_string();
        if width < 24.0 || height < 11.0 || text_width(&text, 9.0) + 2.0 > width {
            return Ok(());
        }
        let large = if width >= 48.0 && height >= 34.0 { TEXT } else { 9.0 };
        let at = |y: i32| (middle.0, middle.1 + y);
        if count == 0 || height < 24.0 {
            return area.draw_text(&text, &style(large, colour, HPos::Center, VPos::Center), middle);
        }
        let offset = (large * 0.55).round() as i32;
        area.draw_text(&text, &style(large, colour, HPos::Center, VPos::Center), at(-offset))?;
        area.draw_text(&percent(share), &style(large - 1.0, colour, HPos::Center, VPos::Center), at(offset))
    }

    fn draw_names(&self, area: &Area) -> Drawn {
        let numbered = !names_fit(&self.analysis.tasks, TEXT - 1.0, self.cell.0);
        let right = style(self.font(), INK, HPos::Right, VPos::Center);
        for (row, name) in side_names(&self.analysis.tasks, numbered).iter().enumerate() {
            area.draw_text(name, &right, (self.left - 6, self.middle(row, 0).1))?;
        }
        let bottom = self.corner(self.analysis.tasks.len(), 0).1;
        let size = if self.cell.0 < 16.0 { 8.0 } else { TEXT - 1.0 };
        for (column, name) in self.analysis.tasks.iter().enumerate() {
            let text = if numbered { (column + 1).to_string() } else { label(name) };
            let place = (self.middle(0, column).0, bottom + 6);
            area.draw_text(&text, &style(size, INK, HPos::Center, VPos::Top), place)?;
        }
        let caption = style(TEXT, INK, HPos::Center, VPos::Top);
        area.draw_text("Adapter with the largest gate", &caption, (self.centre(), bottom + 24))?;
        let sideways = style(TEXT, INK, HPos::Center, VPos::Top).transform(FontTransform::Rotate270);
        area.draw_text("True task", &sideways, (0, (self.top + bottom) / 2))
    }

    fn corner(&self, row: usize, column: usize) -> (i32, i32) {
        self.place(row as f64, column as f64)
    }

    fn middle(&self, row: usize, column: usize) -> (i32, i32) {
        self.place(row as f64 + 0.5, column as f64 + 0.5)
    }

    /// Returns the pixel of a position given in cells.
    fn place(&self, row: f64, column: f64) -> (i32, i32) {
        (self.left + (column * self.cell.0).round() as i32, self.top + (row * self.cell.1).round() as i32)
    }

    /// Returns the horizontal centre of the matrix, in pixels.
    fn centre(&self) -> i32 {
        self.place(0.0, self.analysis.tasks.len() as f64 / 2.0).0
    }

    fn font(&self) -> f64 {
        (self.cell.1 * 0.85).clamp(7.0, TEXT - 1.0)
    }
}

/// Draws the colour scale at the right.
fn draw_scale(area: &Area, x: i32, top: i32, height: i32) -> Drawn {
    for y in 0..height {
        let share = 1.0 - f64::from(y) / f64::from(height - 1).max(1.0);
        area.draw(&Rectangle::new([(x - 14, top + y), (x, top + y + 1)], shade(share).filled()))?;
    }
    let text = style(TEXT - 1.0, FAINT, HPos::Left, VPos::Center);
    for share in [0.0, 0.5, 1.0] {
        let y = top + (f64::from(height) * (1.0 - share)).round() as i32;
        area.draw_text(&percent(share), &text, (x + 5, y.clamp(top + 5, top + height - 5)))?;
    }
    Ok(())
}

/// Returns the colour of a share, dark for large ones. The square root makes small shares visible, which are the
/// errors.
fn shade(share: f64) -> RGBColor {
    blend(RGBColor(247, 251, 255), FULL, share.sqrt())
}
