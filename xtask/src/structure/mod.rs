//! `cargo xtask structure`: whether the workspace is built as ARCHITECTURE.md says.
//!
//! It asks `cargo metadata` for crates, reads sources for their modules, builds nothing, and takes a second. What is there for tests alone (`#[cfg(test)]`,
//! the package `tests`, dev-dependencies) may do what other code may not, but for its files' lengths.

mod backends;
mod circles;
mod crates;
mod error;
mod finding;
mod modules;
mod page;
mod reader;
mod table;
#[cfg(test)]
mod tests;
mod words;
mod workspace;

use circles::Circle;
use error::StructureError;
use finding::{Finding, Rule};
use modules::Tree;
use page::PAGE;
use std::path::{Path, PathBuf};
use table::Row;
use undertone_cli::{Failure, note, output};
use workspace::Package;

#[derive(clap::Args)]
pub struct Args {
    /// The workspace to look at
    #[arg(long, value_name = "DIR", default_value_os_t = repository())]
    root: PathBuf,
}

impl Default for Args {
    fn default() -> Self {
        Self { root: repository() }
    }
}

/// The lines that a source may have.
const LONGEST: usize = 500;

/// This repository.
fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap_or(root)
}

/// What is known of a workspace.
#[derive(Debug)]
struct Structure {
    /// A row for each package, those that others depend on first.
    rows: Vec<Row>,
    findings: Vec<Finding>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let structure = look(&args.root).map_err(|e| Failure::Machine(e.to_string()))?;
    let Structure { rows, findings } = &structure;
    let told = output::text(table::table(rows));
    findings.iter().for_each(|finding| note!("{finding}"));
    match findings.len() {
        0 => told,
        1 => Err(Failure::Machine("the structure has 1 fault, listed above".into())),
        count => Err(Failure::Machine(format!("the structure has {count} faults, listed above"))),
    }
}

/// Reads the workspace in `root` and checks every rule.
fn look(root: &Path) -> Result<Structure, StructureError> {
    let packages = workspace::packages(root)?;
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let show = &|file: &Path| file.strip_prefix(&root).unwrap_or(file).display().to_string();
    let mut findings = Vec::new();
    match page::read(&root) {
        Ok(listed) => findings.extend(crates::check(&packages, &listed)),
        Err(error) => findings.push(Finding::new(Rule::Arrow, PAGE, error)),
    }
    let mut rows = Vec::new();
    for package in crates::ordered(&packages) {
        let mut row = lengths(package, show, &mut findings)?;
        findings.extend(backends::check_manifest(package, &show(&package.folder.join("Cargo.toml"))));
        for file in package.roots.iter().filter(|_| !package.is_tests()) {
            let tree = reader::read(file)?;
            findings.extend(backends::check_code(package, &tree, show));
            findings.extend(check_words(package, &tree, show)?);
            row.circles += check_circles(package, &tree, show, &mut findings);
        }
        rows.push(row);
    }
    Ok(Structure { rows, findings })
}

/// Finds words that the package may not say.
fn check_words(package: &Package, tree: &Tree, show: impl Fn(&Path) -> String) -> Result<Vec<Finding>, StructureError> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let source = std::fs::read_to_string(file).map_err(|e| StructureError::of(file, e))?;
        findings.extend(words::check(&package.name, &show(file), &source));
    }
    Ok(findings)
}

/// Finds the circles of files and those of modules, and returns how many there are.
fn check_circles(package: &Package, tree: &Tree, show: impl Fn(&Path) -> String, findings: &mut Vec<Finding>) -> usize {
    let (files, modules) = (circles::of_files(tree, &show), circles::of_modules(tree, &show));
    for Circle { names, arrows } in &files {
        let text = format!("these files need each other:{arrows}");
        findings.push(Finding::new(Rule::Circle, names.join(", "), text));
    }
    for Circle { names, arrows } in &modules {
        let place = format!("{}: {}", package.name, names.join(", "));
        findings.push(Finding::new(Rule::Circle, place, format!("these modules need each other:{arrows}")));
    }
    files.len() + modules.len()
}

/// Counts the lines of a package's sources, its tests' too, and finds those that are too long.
fn lengths(
    package: &Package,
    show: &impl Fn(&Path) -> String,
    findings: &mut Vec<Finding>,
) -> Result<Row, StructureError> {
    let needs = package.arrows().into_iter().map(str::to_owned).collect();
    let mut row = Row { name: package.name.clone(), files: 0, lines: 0, longest: 0, circles: 0, needs };
    for file in sources(&package.folder)? {
        let text = std::fs::read_to_string(&file).map_err(|e| StructureError::of(&file, e))?;
        let lines = text.lines().count();
        row.files += 1;
        row.lines += lines;
        row.longest = row.longest.max(lines);
        if lines > LONGEST {
            let text = format!("{lines} lines, and {LONGEST} are enough for one file: split it");
            findings.push(Finding::new(Rule::Length, show(&file), text));
        }
    }
    Ok(row)
}

/// Every Rust source below `folder`, sorted; not those of packages within it, nor what is built.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, StructureError> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).map_err(|e| StructureError::of(&dir, e))? {
            let path = entry.map_err(|e| StructureError::of(&dir, e))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && name != "target" && !path.join("Cargo.toml").is_file() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
