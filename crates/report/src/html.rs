//! Elements of every page: head, style, cards, two-column tables and figures. A page loads no other files.

use crate::draw::canvas::{FAINT, GRID, INK, colour, hex};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Name of the page in the directory of a run or stage.
pub(crate) const REPORT: &str = "report.html";

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #262626; --faint: #6b6b6b; --line: #dcdcdc; --ground: #fff; --band: #f5f7fa;
  --good: #1a7f4b; --wrong: #fbd9c6; --missing: #dbe7f3; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 1340px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .8rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
a { color: inherit; }
.lead { color: var(--faint); margin: -.6rem 0 1rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .8rem; margin: 0; }
.cards div { background: var(--band); border-radius: 8px; padding: .6rem 1rem; }
dt { color: var(--faint); font-size: .85rem; }
dd { margin: 0; }
.cards dd { font-size: 1.3rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.cards small { display: block; color: var(--faint); font-size: .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .35rem .8rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { background: var(--band); }
tbody th { font-weight: normal; white-space: nowrap; position: sticky; left: 0; background: var(--ground); }
.group { text-align: center; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.best { font-weight: bold; }
td small { display: block; color: var(--faint); font-weight: normal; }
.good { color: var(--good); font-weight: bold; }
.settings td { overflow-wrap: anywhere; min-width: 14rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 1.2rem;
  margin-top: 1.2rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); }
figure { margin: 0; }
figure svg { display: block; width: 100%; max-width: 640px; height: auto; border: 1px solid var(--line); border-radius: 8px; }
figcaption { color: var(--faint); font-size: .9rem; margin-top: .4rem; max-width: 640px; }
.examples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 1.2rem; }
.examples article { background: var(--band); border-radius: 8px; padding: .6rem 1rem; }
.examples h3 { font-size: 1rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
.examples dl { display: grid; grid-template-columns: auto 1fr; gap: .2rem .8rem; margin: 0; align-items: baseline; }
.examples dd { font-family: ui-monospace, monospace; font-size: .92rem; white-space: pre-wrap; overflow-wrap: anywhere; }
ins { background: var(--wrong); text-decoration: none; border-radius: 3px; }
del { background: var(--missing); color: var(--faint); border-radius: 3px; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .6rem; overflow-wrap: anywhere; }
audio { width: 100%; margin-top: .4rem; }
pre { background: var(--band); border-radius: 8px; padding: 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.4; }
summary { cursor: pointer; }
@media (max-width: 600px) { body { padding: 1rem; } th, td { padding: .35rem .5rem; } }
";

const DARK: &str = ":root { --ink: #e4e4e4; --faint: #a0a0a0; --line: #414141; --ground: #1b1c1e; --band: #26282b;
  --good: #62c995; --wrong: #6d3417; --missing: #26415c; }";

/// Returns a complete page.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(dark())) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Returns the style for dark mode. Curves are then on the page's background, in lighter colours. Pictures with text on
/// a coloured background do not change.
fn dark() -> String {
    let mut rules = vec![
        DARK.to_owned(),
        ".curves rect[fill=\"#FFFFFF\"] { fill: var(--band); }".into(),
        format!(".curves [fill=\"{}\"] {{ fill: var(--ink); }}", hex(INK)),
        format!(".curves [stroke=\"{}\"] {{ stroke: var(--ink); }}", hex(INK)),
        format!(".curves [stroke=\"{}\"] {{ stroke: var(--line); }}", hex(GRID)),
    ];
    let lighter = [(colour(0), "#2F86D6"), (FAINT, "#A0A0A0"), (colour(5), "#F07B2E"), (colour(2), "#1DC492")];
    for (ink, instead) in lighter {
        let ink = hex(ink);
        rules.push(format!(".curves [fill=\"{ink}\"] {{ fill: {instead}; }}"));
        rules.push(format!(".curves [stroke=\"{ink}\"] {{ stroke: {instead}; }}"));
    }
    format!("@media (prefers-color-scheme: dark) {{\n{}\n}}\n", rules.join("\n"))
}

/// Returns the key figures of a run: name, value and remark of each.
pub(crate) fn cards(cards: &[(&str, String, String)]) -> Markup {
    html! {
        dl.cards {
            @for (name, value, note) in cards {
                div { dt { (name) } dd { (value) @if !note.is_empty() { small { (note) } } } }
            }
        }
    }
}

/// Returns a table of numbers, whose first column has the rows' names.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        @for (at, name) in head.iter().enumerate() {
                            @if at == 0 { th { (name) } } @else { th.number { (name) } }
                        }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td.number { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a table of keys and values.
pub(crate) fn settings(settings: &[(String, String)]) -> Markup {
    html! {
        div.wide {
            table.settings {
                tbody { @for (key, value) in settings { tr { th scope="row" { (key) } td { (value) } } } }
            }
        }
    }
}

/// Kind of pictures, which decides their layout and their look in dark mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pictures {
    /// Large, with text on a coloured background: the same in dark mode.
    Charts,
    /// Large curves, on a dark background in dark mode.
    Curves,
    /// Small curves, more per row.
    SmallCurves,
}

/// Returns SVG pictures, inserted unescaped, with their captions.
pub(crate) fn figures<'a>(pictures: impl Iterator<Item = (&'a str, &'a str)>, kind: Pictures) -> Markup {
    html! {
        div.pictures.curves[kind != Pictures::Charts].small[kind == Pictures::SmallCurves] {
            @for (svg, caption) in pictures { figure { (PreEscaped(svg)) figcaption { (caption) } } }
        }
    }
}
