//! Text form of the report, for a terminal.

use super::report::{DataCheck, Severity, SourceCheck, SplitCheck, Spread};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// Maximum number of list entries shown.
const SHOWN: usize = 12;

impl Display for DataCheck {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match self.window {
            Some(window) => writeln!(f, "for {}, which reads {window:.2} s at once", self.model)?,
            None => writeln!(f, "for {}", self.model)?,
        }
        let rows: Vec<(&SplitCheck, &SourceCheck)> =
            self.splits.iter().flat_map(|split| split.sources.iter().map(move |source| (split, source))).collect();
        let cells = rows.iter().map(|(split, source)| row(split, source, self.window.is_some()));
        writeln!(f)?;
        aligned(f, &std::iter::once(head(self.window.is_some())).chain(cells).collect::<Vec<_>>())?;
        for (split, source) in rows {
            details(f, split, source, self.window.is_some())?;
        }
        let failures: Vec<String> = self.of(Severity::Failure).map(ToString::to_string).collect();
        let leaks = |severity| self.leaks.iter().filter(move |leak| leak.severity == severity).map(ToString::to_string);
        let others = |severity| self.of(severity).map(ToString::to_string).chain(leaks(severity)).collect::<Vec<_>>();
        section(f, "training would fail", &failures)?;
        section(f, "warnings", &others(Severity::Warning))?;
        section(f, "notes", &others(Severity::Note))?;
        if self.problems.is_empty() && self.leaks.is_empty() {
            writeln!(f, "\nnothing is wrong with it")?;
        }
        Ok(())
    }
}

fn head(speech: bool) -> Vec<String> {
    let columns: &[&str] = match speech {
        true => &[
            "split", "source", "samples", "hours", "shortest", "median", "longest", "tokens median", "longest", "room",
        ],
        false => &["split", "source", "records", "read median", "longest", "room", "written median", "longest", "room"],
    };
    columns.iter().map(|column| (*column).to_owned()).collect()
}

fn row(split: &SplitCheck, source: &SourceCheck, speech: bool) -> Vec<String> {
    let of = |spread: &Option<Spread>, value: fn(&Spread) -> f64, unit: &str, digits: usize| {
        spread.as_ref().map_or("-".to_owned(), |spread| format!("{:.digits$}{unit}", value(spread)))
    };
    let mut row = vec![split.name(), source.source.clone(), source.samples.to_string()];
    if speech {
        row.push(source.hours.map_or("-".to_owned(), |hours| format!("{hours:.2}")));
        for value in [|s: &Spread| s.least, |s: &Spread| s.median, |s: &Spread| s.most] {
            row.push(of(&source.seconds, value, " s", 2));
        }
    }
    let tokens = [(&source.tokens, Some(source.token_limit)), (&source.target_tokens, source.target_limit)];
    for (spread, limit) in tokens.into_iter().take(if speech { 1 } else { 2 }) {
        row.extend([of(spread, |s| s.median, "", 0), of(spread, |s| s.most, "", 0)]);
        row.push(limit.map_or("-".to_owned(), |limit| limit.to_string()));
    }
    row
}

/// Writes columns of equal width; the first two are text, the others numbers.
fn aligned(f: &mut Formatter, rows: &[Vec<String>]) -> Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Writes the details that have no column.
fn details(f: &mut Formatter, split: &SplitCheck, source: &SourceCheck, speech: bool) -> Result {
    let (read, written) = if speech { ("tokens", "") } else { ("tokens read", "tokens written") };
    let mut lines: Vec<(&str, String)> = Vec::new();
    lines.extend(source.drawn.map(|drawn| ("drawn", format!("{drawn} samples were made to be looked at"))));
    lines.extend(source.seconds.as_ref().map(|spread| ("seconds", bars(spread))));
    lines.extend(source.tokens.as_ref().map(|spread| (read, bars(spread))));
    lines.extend(source.target_tokens.as_ref().map(|spread| (written, bars(spread))));
    let long = source.long;
    if long.cut > 0 {
        lines.push(("cut", format!("{} recordings longer than the window, into {} pieces", long.cut, long.pieces)));
    }
    if source.unknown_lengths > 0 {
        lines.push(("length", format!("{} recordings cannot be read for theirs", source.unknown_lengths)));
    }
    for (name, counts) in [("languages", &source.languages), ("tasks", &source.tasks), ("labels", &source.labels)] {
        if !counts.is_empty() {
            lines.push((name, listed(counts)));
        }
    }
    if !source.unspellable.is_empty() {
        let shown = source.unspellable.iter().take(SHOWN);
        let shown: Vec<_> = shown.map(|c| format!("{:?} in {} (`{}`)", c.character, c.texts, c.example)).collect();
        lines.push(("unspellable", shown.join(", ") + &more(source.unspellable.len())));
    }
    if let Some(share) = source.unknown_share.filter(|share| *share > 0.0) {
        lines.push(("unknown", format!("{:.2} % of the tokens", 100.0 * share)));
    }
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{}: {}", split.name(), source.source)?;
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().try_for_each(|(name, line)| writeln!(f, "  {name:<width$}  {line}"))
}

/// Returns a histogram in one line.
fn bars(spread: &Spread) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = spread.histogram.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &usize| match count {
        0 => '·',
        count => BARS[(count * BARS.len()).div_ceil(highest) - 1],
    };
    let line: String = spread.histogram.iter().map(bar).collect();
    let (bin, end) = (spread.bin, spread.bin * spread.histogram.len() as f64);
    format!("0 {line} {}  by {}", round(end), round(bin))
}

fn round(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns names, ordered by frequency.
fn listed(counts: &BTreeMap<String, usize>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown: Vec<String> = sorted.iter().take(SHOWN).map(|(name, count)| format!("{name} {count}")).collect();
    shown.join(", ") + &more(counts.len())
}

fn more(count: usize) -> String {
    match count.saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

fn section(f: &mut Formatter, name: &str, lines: &[String]) -> Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{name}:")?;
    lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_a_line_and_nothing_is_a_dot() {
        let spread = Spread::of(vec![0.5, 0.6, 0.7, 0.8, 2.5, 14.9], 1.0).unwrap();
        assert_eq!(bars(&spread), "0 █·▂···········▂ 15  by 1");
    }

    #[test]
    fn the_most_frequent_come_first_and_the_rest_is_counted() {
        let counts: BTreeMap<String, usize> = (0..14).map(|n| (format!("l{n:02}"), n)).collect();
        let text = listed(&counts);
        assert!(text.starts_with("l13 13, l12 12") && text.ends_with("l02 2 and 2 more"), "{text}");
    }
}
