//! Arrows between crates: what Cargo.toml says against what ARCHITECTURE.md says.

use super::finding::{Finding, Rule};
use super::page::{Listed, PAGE};
use super::workspace::Package;
use std::collections::BTreeSet;

/// Where the crates do not depend on each other as listed.
pub fn check(packages: &[Package], listed: &Listed) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let arrows: BTreeSet<&str> = package.arrows().into_iter().collect();
        let Some(wanted) = listed.get(&package.name) else {
            findings.push(Finding::new(Rule::Arrow, &package.name, format!("{PAGE} does not list this crate")));
            continue;
        };
        for arrow in arrows.iter().filter(|arrow| !wanted.contains(**arrow)) {
            let text = format!("its Cargo.toml depends on {arrow}, and {PAGE} has no such arrow");
            findings.push(Finding::new(Rule::Arrow, &package.name, text));
        }
        for arrow in wanted.iter().filter(|arrow| !arrows.contains(arrow.as_str())) {
            let text = format!("{PAGE} has an arrow to {arrow}, on which its Cargo.toml does not depend");
            findings.push(Finding::new(Rule::Arrow, &package.name, text));
        }
    }
    for name in listed.keys().filter(|name| packages.iter().all(|package| package.name != **name)) {
        findings.push(Finding::new(Rule::Arrow, name, format!("{PAGE} lists this crate, and the workspace has none")));
    }
    let circle: Vec<&str> = unordered(packages);
    if !circle.is_empty() {
        let text = "these crates depend on each other in a circle, or on one that does";
        findings.push(Finding::new(Rule::Arrow, circle.join(", "), text));
    }
    findings
}

/// The packages in an order in which each stands after those that it depends on.
pub fn ordered(packages: &[Package]) -> Vec<&Package> {
    let (mut ordered, rest) = sort(packages);
    ordered.extend(rest);
    ordered
}

/// Those that no such order has a place for.
fn unordered(packages: &[Package]) -> Vec<&str> {
    sort(packages).1.into_iter().map(|package| package.name.as_str()).collect()
}

fn sort(packages: &[Package]) -> (Vec<&Package>, Vec<&Package>) {
    let mut ordered: Vec<&Package> = Vec::new();
    let mut rest: Vec<&Package> = packages.iter().collect();
    loop {
        let stands = |name: &str| ordered.iter().any(|package| package.name == name);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|package| package.arrows().into_iter().all(stands));
        if ready.is_empty() {
            return (ordered, waiting);
        }
        ordered.extend(ready);
        rest = waiting;
    }
}
