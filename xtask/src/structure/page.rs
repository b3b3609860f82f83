//! Arrows between crates, as ARCHITECTURE.md lists them.

use super::error::StructureError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Page with the list.
pub const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "```text arrows";
const END: &str = "```";

/// Crates and what each depends on.
pub type Listed = BTreeMap<String, BTreeSet<String>>;

/// Reads the list of the page in `root`: a line for each crate, `train → ops, store`, and `kernels →` for one that
/// depends on none.
pub fn read(root: &Path) -> Result<Listed, StructureError> {
    let text = std::fs::read_to_string(root.join(PAGE)).map_err(|e| wrong(e.to_string()))?;
    let mut lines = (1..).zip(text.lines()).skip_while(|(_, line)| line.trim() != BEGIN);
    lines.next().ok_or_else(|| wrong(format!("it has no list of arrows, which begins with a line `{BEGIN}`")))?;
    let mut listed = Listed::new();
    for (number, line) in lines.take_while(|(_, line)| line.trim() != END).filter(|(_, line)| !line.trim().is_empty()) {
        let (name, others) = line
            .split_once('→')
            .ok_or_else(|| wrong(format!("line {number} is not an arrow, like `train → ops, store`: `{line}`")))?;
        let others = others.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if listed.insert(name.trim().to_owned(), others).is_some() {
            return Err(wrong(format!("`{}` is listed again in line {number}", name.trim())));
        }
    }
    Ok(listed)
}

fn wrong(reason: String) -> StructureError {
    StructureError::Arrows(format!("`{PAGE}`: {reason}"))
}
