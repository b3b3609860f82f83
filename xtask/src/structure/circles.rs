//! Circles: files of a crate that need each other, directly or through others.

use super::modules::{Target, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Which files need which others, and the names for which they do. Files are called by their place in [`Tree::files`].
pub type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// The arrows between the files of a tree. `mod x;` is none, nor is a `pub use` of what is in a module below.
pub fn arrows(tree: &Tree) -> Arrows {
    let mut arrows = Arrows::new();
    for (index, module) in tree.modules.iter().enumerate() {
        for mention in &module.mentions {
            let (path, name) = match mention.path.split_last() {
                Some((last, rest)) if last == "*" => (rest, "*"),
                // The type, where its variant or function is named.
                Some((last, _)) => {
                    let mut types = mention.path.iter().rev().filter(|name| name.starts_with(char::is_uppercase));
                    (&mention.path[..], types.next_back().unwrap_or(last).as_str())
                }
                None => continue,
            };
            let file = match tree.resolve(index, path) {
                Target::File(file) => file,
                // All names of a module: whichever are used, they are its.
                Target::Module(found) if name == "*" => tree.modules[found].file,
                _ => continue,
            };
            if file != module.file && !(mention.is_reexport && tree.is_below(file, index)) {
                arrows.entry((module.file, file)).or_default().insert(name.to_owned());
            }
        }
    }
    arrows
}

/// The sets of more than one file in which each leads to each other, sorted.
pub fn circles(count: usize, arrows: &Arrows) -> Vec<Vec<usize>> {
    let nexts = |from: usize| arrows.range((from, 0)..=(from, usize::MAX)).map(|((_, to), _)| *to);
    let reached: Vec<BTreeSet<usize>> = (0..count)
        .map(|start| {
            let mut reached = BTreeSet::new();
            let mut open = vec![start];
            while let Some(from) = open.pop() {
                open.extend(nexts(from).filter(|to| reached.insert(*to)));
            }
            reached
        })
        .collect();
    let mut circles: Vec<Vec<usize>> = Vec::new();
    for file in 0..count {
        if circles.iter().any(|circle| circle.contains(&file)) {
            continue;
        }
        let circle: Vec<usize> =
            reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}
