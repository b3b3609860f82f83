//! The modules of a library or a binary: the files they are in, the names they define, and the paths they write; and
//! where a path leads.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// All modules of a target. The first is its root.
#[derive(Debug, Default)]
pub struct Tree {
    pub modules: Vec<Module>,
    /// The files, each once, in the order in which they are read.
    pub files: Vec<PathBuf>,
}

/// A module: a file, or a part of one in braces.
#[derive(Debug)]
pub struct Module {
    /// The names that lead to it from the root.
    pub path: Vec<String>,
    pub parent: Option<usize>,
    /// Its file in [`Tree::files`].
    pub file: usize,
    /// Items by name. A module and a function may share one.
    pub items: BTreeMap<String, Vec<Item>>,
    /// Glob imports.
    pub globs: Vec<Vec<String>>,
    /// The paths in its code.
    pub mentions: Vec<Mention>,
    /// The features that its code depends on.
    pub features: Vec<String>,
}

/// Definition of a name.
#[derive(Clone, Debug)]
pub enum Item {
    /// Something that this module defines.
    Defined,
    Module(usize),
    /// What `use` has given a name.
    Import(Vec<String>),
}

/// A path that code writes.
#[derive(Clone, Debug)]
pub struct Mention {
    pub path: Vec<String>,
    /// Whether it is a `use` that others can see: names of a module below are offered, not needed, by it.
    pub is_reexport: bool,
}

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To something that this file defines.
    File(usize),
    Module(usize),
    /// Out of the crate; the path with every `use` on the way resolved.
    Outside(Vec<String>),
    /// To nothing that was found: what a macro makes, or a variant of something imported.
    Unknown,
}

/// A path is followed through so many `use` and modules.
const FAR: usize = 24;
/// An import of all names costs as much as so many: modules that import each other's names lead on for ever.
const GLOB: usize = 8;

impl Tree {
    /// Adds a module without content.
    pub fn add(&mut self, file: usize, parent: Option<usize>, path: Vec<String>) -> usize {
        self.modules.push(Module {
            path,
            parent,
            file,
            items: BTreeMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
            features: Vec::new(),
        });
        self.modules.len() - 1
    }

    /// Where `path`, written in `module`, leads.
    pub fn resolve(&self, module: usize, path: &[String]) -> Target {
        self.follow(module, path, None, 0)
    }

    /// Whether `file` is that of a module below the file in which `module` is.
    pub fn is_below(&self, file: usize, module: usize) -> bool {
        let path = |file: usize| self.modules.iter().find(|first| first.file == file).map(|first| &first.path);
        path(file)
            .zip(path(self.modules[module].file))
            .is_some_and(|(below, above)| below.len() > above.len() && below.starts_with(above))
    }

    /// As [`Self::resolve`]. `own` is the name that the `use` with this path gives: `use foo::foo` does not mean itself.
    fn follow(&self, module: usize, path: &[String], own: Option<&str>, far: usize) -> Target {
        let mut at = module;
        let mut rest = path;
        while let Some((first, more)) = rest.split_first() {
            at = match first.as_str() {
                "crate" => 0,
                "self" => at,
                "super" => match self.modules[at].parent {
                    Some(parent) => parent,
                    None => return Target::Unknown,
                },
                _ => break,
            };
            rest = more;
        }
        let Some(first) = rest.first() else { return Target::Module(at) };
        if rest.len() < path.len() {
            return self.within(at, rest, None, far);
        }
        match self.within(at, rest, own.filter(|own| own == first), far) {
            Target::Unknown => Target::Outside(path.to_vec()),
            found => found,
        }
    }

    /// Where a path leads whose first name is one of `module`'s.
    fn within(&self, module: usize, path: &[String], own: Option<&str>, far: usize) -> Target {
        let Some((first, rest)) = path.split_first() else { return Target::Module(module) };
        if far > FAR {
            return Target::Unknown;
        }
        let here = &self.modules[module];
        // Of a module and a function of one name the path's next name decides.
        let mut named: Vec<&Item> = here.items.get(first).into_iter().flatten().collect();
        named.sort_by_key(|item| matches!(item, Item::Module(_)) == rest.is_empty());
        for item in named {
            let found = match item {
                Item::Defined => Target::File(here.file),
                Item::Module(child) => self.within(*child, rest, None, far + 1),
                Item::Import(_) if own.is_some() => Target::Unknown,
                Item::Import(import) => self.follow(module, &[import, rest].concat(), Some(first), far + 1),
            };
            if found != Target::Unknown {
                return found;
            }
        }
        for glob in &here.globs {
            if let Target::Module(of) = self.follow(module, glob, None, far + GLOB)
                && of != module
            {
                match self.within(of, path, None, far + GLOB) {
                    Target::Unknown | Target::Outside(_) => {}
                    found => return found,
                }
            }
        }
        Target::Unknown
    }
}
