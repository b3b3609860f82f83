//! Basics of every picture: a white sheet with a title, text that fits, distinguishable colours, a legend.

use crate::error::AnalysisError;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Drawing area.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Result of drawing.
pub(crate) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// Width and height of a picture that stands alone, in pixels.
pub(crate) const SIZE: (u32, u32) = (640, 420);
/// Size of ordinary text, in pixels.
pub(crate) const TEXT: f64 = 12.0;
/// Maximum length of a drawn name, in characters.
const LONGEST_NAME: usize = 18;
/// Height of a line of the legend.
const LEGEND_LINE: i32 = 17;
/// Maximum number of lines of a legend, so that half of the picture is left for the chart.
const LEGEND_LINES: i32 = 10;

/// Colour of text and axes.
pub(crate) const INK: RGBColor = RGBColor(38, 38, 38);
/// Colour of less important text.
pub(crate) const FAINT: RGBColor = RGBColor(110, 110, 110);
/// Colour of grid lines and of empty cells.
pub(crate) const GRID: RGBColor = RGBColor(226, 226, 226);

/// The colours of Okabe and Ito (2008), which remain distinct to the colour-blind; black is softened, and the yellow,
/// weak on white, comes last.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(110, 110, 110),
    RGBColor(240, 228, 66),
];

/// Number of hues in the palette.
pub(crate) const HUES: usize = PALETTE.len();

/// Returns the colour of the `index`th of several items: the palette, then its hues darker, paler and paler still.
pub(crate) fn colour(index: usize) -> RGBColor {
    let hue = PALETTE[index % HUES];
    match index / HUES % 4 {
        0 => hue,
        1 => blend(hue, BLACK, 0.45),
        2 => blend(hue, WHITE, 0.55),
        _ => blend(hue, WHITE, 0.78),
    }
}

/// Returns the colour at `share` of the way from one colour to another.
pub(crate) fn blend(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8;
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

/// Returns white or ink, whichever is more readable on `ground` (by the luma of ITU-R BT.601).
pub(crate) fn ink_on(ground: RGBColor) -> RGBColor {
    let luma = 0.299 * f64::from(ground.0) + 0.587 * f64::from(ground.1) + 0.114 * f64::from(ground.2);
    if luma < 140.0 { WHITE } else { INK }
}

/// Draws a picture under its title and returns the SVG.
pub(crate) fn sheet(title: &str, draw: impl FnOnce(&Area) -> Drawn) -> Result<String, AnalysisError> {
    sheet_of(SIZE, title, draw)
}

/// Like [`sheet`], with another size.
pub(crate) fn sheet_of(
    size: (u32, u32),
    title: &str,
    draw: impl FnOnce(&Area) -> Drawn,
) -> Result<String, AnalysisError> {
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        (|| {
            root.fill(&WHITE)?;
            let (head, body) = root.margin(8, 8, 10, 14).split_vertically(26);
            let mut bold = style(15.0, INK, HPos::Left, VPos::Center);
            bold.font = bold.font.style(FontStyle::Bold);
            head.draw_text(&fitted(title, 15.0, f64::from(size.0) - 40.0), &bold, (0, 10))?;
            draw(&body)?;
            root.present()
        })()
    };
    drawn.map_err(|error| AnalysisError::Picture(error.to_string()))?;
    Ok(svg)
}

/// Returns a colour in SVG notation.
pub(crate) fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Returns a style for text `size` pixels high, anchored at a corner or side. The library's unit is 1/1.24 pixel.
pub(crate) fn style(size: f64, colour: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let font = ("sans-serif", size * 1.24).into_font();
    TextStyle { font, color: colour.to_backend_color(), pos: Pos::new(horizontal, vertical) }
}

/// Returns the width of a text in pixels, an upper estimate, because the reader's fonts are unknown: 0.6 em a character
/// (DejaVu Sans, a wide face, has 0.58 on average) and a full em from Hangul and the ideographs on.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(width_in_ems).sum::<f64>() * size
}

fn width_in_ems(c: char) -> f64 {
    if c >= '\u{1100}' && !('\u{2000}'..'\u{2e80}').contains(&c) { 1.0 } else { 0.6 }
}

/// Returns the text without characters that XML forbids.
fn clean(text: &str) -> String {
    let forbidden = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if forbidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns a name for drawing, truncated if it is too long.
pub(crate) fn label(name: &str) -> String {
    let clean = clean(name);
    if clean.chars().count() <= LONGEST_NAME {
        return clean;
    }
    clean.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}

/// Returns a text truncated to `width` pixels.
pub(crate) fn fitted(text: &str, size: f64, width: f64) -> String {
    let text = clean(text);
    if text_width(&text, size) <= width {
        return text;
    }
    let mut used = 0.0;
    let fits = |c: &char| {
        used += width_in_ems(*c);
        used * size <= width - size
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Whether all names, each drawn in `width` pixels, stay clear of each other.
pub(crate) fn names_fit(names: &[String], size: f64, width: f64) -> bool {
    names.iter().all(|name| text_width(&label(name), size) + 4.0 <= width)
}

/// Returns the names of tasks for the left side, with their numbers if other labels use these.
pub(crate) fn side_names(names: &[String], numbered: bool) -> Vec<String> {
    let numbered_name = |(index, name): (usize, &String)| match numbered {
        true => format!("{} {}", index + 1, label(name)),
        false => label(name),
    };
    names.iter().enumerate().map(numbered_name).collect()
}

/// Returns the width of the widest text, in pixels.
pub(crate) fn widest(texts: &[String], size: f64) -> i32 {
    texts.iter().map(|text| text_width(text, size)).fold(0.0, f64::max).ceil() as i32
}

/// Draws a legend along the bottom, in as many lines as it needs and as there is room for. Returns the area above it.
pub(crate) fn legend<'a>(area: &Area<'a>, entries: &[(String, RGBColor)]) -> Drawn<Area<'a>> {
    let (width, height) = area.dim_in_pixel();
    let mut places = vec![];
    let (mut x, mut line) = (0, 0);
    for (text, _) in entries {
        let needed = 16 + text_width(text, TEXT - 1.0).ceil() as i32 + 12;
        if x > 0 && x + needed > width as i32 {
            (x, line) = (0, line + 1);
        }
        if line == LEGEND_LINES {
            line -= 1;
            break;
        }
        places.push((x, line * LEGEND_LINE));
        x += needed;
    }
    let lines = if entries.is_empty() { 0 } else { line + 1 };
    let (above, below) = area.split_vertically(height as i32 - lines * LEGEND_LINE - 6);
    let hidden = entries.len() - places.len();
    for (index, ((text, colour), &(x, y))) in entries.iter().zip(&places).enumerate() {
        let ink = style(TEXT - 1.0, INK, HPos::Left, VPos::Center);
        if hidden > 0 && index + 1 == places.len() {
            below.draw_text(&format!("and {} more", hidden + 1), &ink, (x, y + 13))?;
            break;
        }
        below.draw(&Rectangle::new([(x, y + 8), (x + 11, y + 19)], colour.filled()))?;
        below.draw_text(text, &ink, (x + 16, y + 13))?;
    }
    Ok(above)
}

/// Formats a number for an axis, with no more digits than it needs.
pub(crate) fn tick(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if magnitude < 1e-15 => "0".into(),
        _ if (1e-3..1e6).contains(&magnitude) => without_zeros(&format!("{value:.4}")).into(),
        _ => {
            let text = format!("{value:.2e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{power}", without_zeros(digits))
        }
    }
}

fn without_zeros(decimals: &str) -> &str {
    decimals.trim_end_matches('0').trim_end_matches('.')
}

/// Formats a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    match share {
        _ if share > 0.0 && share <= 0.005 => "<1%".into(),
        _ if (0.995..1.0).contains(&share) => ">99%".into(),
        _ => format!("{:.0}%", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn thirty_two_colours_are_distinct() {
        let colours: HashSet<_> = (0..32).map(|index| (colour(index).0, colour(index).1, colour(index).2)).collect();
        assert_eq!(colours.len(), 32);
    }

    #[test]
    fn ink_is_dark_on_light_and_light_on_dark() {
        assert_eq!((ink_on(WHITE), ink_on(PALETTE[0]), ink_on(PALETTE[7])), (INK, WHITE, INK));
        assert_eq!(blend(BLACK, WHITE, 0.2), RGBColor(51, 51, 51));
    }

    #[test]
    fn names_fit_where_they_stay_apart() {
        let names = ["short".to_string(), "sixteen letters!".into()];
        assert!(names_fit(&names, 10.0, 101.0));
        assert!(!names_fit(&names, 10.0, 99.0));
        assert_eq!(side_names(&names, true), ["1 short", "2 sixteen letters!"]);
        assert_eq!(side_names(&names, false), names);
    }

    #[test]
    fn labels_are_cut_and_hold_nothing_that_xml_forbids() {
        assert_eq!(label("a name of twenty chars"), "a name of twenty …");
        assert_eq!(label("bell\u{7}"), "bell\u{fffd}");
        assert_eq!(fitted("a long title", 10.0, 40.0), "a lon…");
        let begun = std::time::Instant::now();
        assert_eq!(fitted(&"a".repeat(1_000_000), 10.0, 40.0), "aaaaa…");
        assert!(begun.elapsed().as_secs() < 5, "each character is measured once");
    }

    #[test]
    fn numbers_have_no_more_digits_than_they_need() {
        let ticks = [0.0, 0.25, 3.0, 1200.0, -0.5, 2e-5, 1.5e6, 0.30000000000000004].map(tick);
        assert_eq!(ticks, ["0", "0.25", "3", "1200", "-0.5", "2e-5", "1.5e6", "0.3"]);
        assert_eq!([0.0, 0.005, 0.5, 0.999, 1.0].map(percent), ["0%", "<1%", "50%", ">99%", "100%"]);
    }
}
