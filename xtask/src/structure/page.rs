//! What ARCHITECTURE.md lists: the arrows between crates, and the circles of modules that are still there.

use super::error::StructureError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The page.
pub const PAGE: &str = "ARCHITECTURE.md";
/// How its lists begin and end.
const ARROWS: &str = "```text arrows";
const CIRCLES: &str = "```text circles";
const ENDS: &str = "```";
const ARROW: &str = "→";

/// Crates and what each depends on.
pub type Listed = BTreeMap<String, BTreeSet<String>>;

/// The lists of the page.
#[derive(Debug, Default)]
pub struct Page {
    /// One line for each crate, `train → ops, store`, and `kernels →` for one that depends on none.
    pub arrows: Listed,
    /// Crates and the modules of a circle: `train: gradients, optimizer`. A crate may have several lines.
    pub circles: BTreeSet<(String, BTreeSet<String>)>,
}

impl Page {
    /// Reads the page in `root`.
    ///
    /// # Errors
    /// When there is no page, no list of arrows, or a line in a list is no such line.
    pub fn read(root: &Path) -> Result<Self, StructureError> {
        let text = std::fs::read_to_string(root.join(PAGE)).map_err(|e| wrong(e.to_string()))?;
        let mut page = Self::default();
        let lines = list(&text, ARROWS)
            .ok_or_else(|| wrong(format!("it has no list of arrows, which begins with a line `{ARROWS}`")))?;
        for (number, line) in lines {
            let (name, needs) = split(number, line, ARROW, "arrow, like `train → ops, store`")?;
            if page.arrows.insert(name.clone(), needs).is_some() {
                return Err(wrong(format!("`{name}` is listed again in line {number}")));
            }
        }
        for (number, line) in list(&text, CIRCLES).unwrap_or_default() {
            page.circles.insert(split(number, line, ":", "circle, like `train: gradients, optimizer`")?);
        }
        Ok(page)
    }
}

fn wrong(reason: String) -> StructureError {
    StructureError::Arrows(format!("`{PAGE}`: {reason}"))
}

/// The lines of the list that begins with `begins`, with their numbers, but for empty ones.
fn list<'t>(text: &'t str, begins: &str) -> Option<Vec<(usize, &'t str)>> {
    let mut lines = (1..).zip(text.lines()).skip_while(|(_, line)| line.trim() != begins);
    lines.next()?;
    Some(lines.take_while(|(_, line)| line.trim() != ENDS).filter(|(_, line)| !line.trim().is_empty()).collect())
}

/// A line's name and the names after its sign.
fn split(number: usize, line: &str, sign: &str, what: &str) -> Result<(String, BTreeSet<String>), StructureError> {
    let (name, others) = line.split_once(sign).ok_or_else(|| wrong(format!("line {number} is no {what}: `{line}`")))?;
    let others = others.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Ok((name.trim().to_owned(), others))
}
