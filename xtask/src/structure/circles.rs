//! Circles: files of a crate that need each other, directly or through others, and modules right below its root that do.

use super::modules::{Target, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which files need which others, and the names for which they do. Files are called by their place in [`Tree::files`].
type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// The arrows between the files of a tree. `mod x;` is none, nor is a `pub use` of what is in a module below.
fn arrows(tree: &Tree) -> Arrows {
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

/// A circle.
#[derive(Debug)]
pub struct Circle {
    /// The files, or the modules right below the root.
    pub names: Vec<String>,
    /// The arrows that make it, a line for each.
    pub arrows: String,
}

/// The circles of files. `show` makes a file's path short.
pub fn of_files(tree: &Tree, show: impl Fn(&Path) -> String) -> Vec<Circle> {
    let arrows = arrows(tree);
    let shown = |file: usize| show(&tree.files[file]);
    let circle = |circle: &Vec<usize>| Circle {
        names: circle.iter().map(|file| shown(*file)).collect(),
        arrows: lines(&arrows, &shown, |from, to| circle.contains(&from) && circle.contains(&to)),
    };
    circles(tree.files.len(), arrows.keys().copied()).iter().map(circle).collect()
}

/// The circles of modules right below the root, whatever files they are made of; the root is one by itself. Those that have
/// a circle of files in them are left out: it comes first.
pub fn of_modules(tree: &Tree, show: impl Fn(&Path) -> String) -> Vec<Circle> {
    let arrows = arrows(tree);
    let module = |file: usize| {
        let path = tree.modules.iter().find(|module| module.file == file).and_then(|module| module.path.first());
        path.map_or("the root", String::as_str)
    };
    let names: BTreeSet<&str> = (0..tree.files.len()).map(module).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let place = |file: usize| names.partition_point(|name| *name < module(file));
    let between = arrows.keys().map(|(from, to)| (place(*from), place(*to))).filter(|(from, to)| from != to);
    let of_files = circles(tree.files.len(), arrows.keys().copied());
    let mut found = circles(names.len(), between);
    found.retain(|circle| {
        let across = |files: &Vec<usize>| files.iter().map(|file| place(*file)).collect::<BTreeSet<_>>();
        !of_files.iter().map(across).any(|modules| modules.len() > 1 && modules.iter().all(|at| circle.contains(at)))
    });
    let circle = |circle: &Vec<usize>| Circle {
        names: circle.iter().map(|at| names[*at].to_owned()).collect(),
        arrows: lines(&arrows, &|file| show(&tree.files[file]), |from, to| {
            let (from, to) = (place(from), place(to));
            from != to && circle.contains(&from) && circle.contains(&to)
        }),
    };
    found.iter().map(circle).collect()
}

/// The arrows between files of which `are_in` holds, each in a line.
fn lines(arrows: &Arrows, shown: &impl Fn(usize) -> String, are_in: impl Fn(usize, usize) -> bool) -> String {
    let of = arrows.iter().filter(|((from, to), _)| are_in(*from, *to));
    let line = |((from, to), names): (&(usize, usize), &BTreeSet<String>)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("\n  {} → {}: {}", shown(*from), shown(*to), names.join(", "))
    };
    of.map(line).collect()
}

/// The sets of more than one in which each leads to each other, sorted.
fn circles(count: usize, arrows: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let arrows: BTreeSet<(usize, usize)> = arrows.collect();
    let nexts = |from: usize| arrows.range((from, 0)..=(from, usize::MAX)).map(|(_, to)| *to);
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
