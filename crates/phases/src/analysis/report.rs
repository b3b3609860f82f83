//! The page: everything a run has to show, in one file that needs nothing else.

use super::canvas::percent;
use super::{Analysis, MetricsTable, Picture, PictureSection};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #262626; --faint: #6b6b6b; --line: #dcdcdc; --ground: #fff; --band: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --faint: #a0a0a0; --line: #414141; --ground: #1b1c1e; --band: #26282b; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 1340px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .8rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 0; }
.cards div { background: var(--band); border-radius: 8px; padding: .6rem 1rem; min-width: 8rem; }
dt { color: var(--faint); font-size: .85rem; }
dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .35rem .8rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { background: var(--band); }
tbody th { font-weight: normal; white-space: nowrap; position: sticky; left: 0; background: var(--ground); }
.group { text-align: center; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.best { font-weight: bold; }
.settings td { overflow-wrap: anywhere; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 1.2rem;
  margin-top: 1.2rem; }
figure { margin: 0; }
figure svg { display: block; width: 100%; max-width: 640px; height: auto; border: 1px solid var(--line); border-radius: 8px; }
figcaption { color: var(--faint); font-size: .9rem; margin-top: .4rem; max-width: 640px; }
";

/// The report as one HTML page, with its style and [`pictures`](super::pictures) inside; it loads nothing. Sections
/// without content are left out, and all text is escaped; the pictures' SVG goes in as it is.
pub fn report_html(
    title: &str,
    analysis: &Analysis,
    table: &MetricsTable,
    pictures: &[Picture],
    settings: &[(String, String)],
) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (summary(analysis))
                @if table.routers().next().is_some() {
                    h2 { "Metrics by router and task" }
                    (table.markup())
                    (figures(pictures, PictureSection::Metrics))
                }
                h2 { "Routing" }
                (task_table(analysis))
                (figures(pictures, PictureSection::Routing))
                @if pictures.iter().any(|picture| picture.section == PictureSection::Training) {
                    h2 { "Training" }
                    (figures(pictures, PictureSection::Training))
                }
                @if !settings.is_empty() {
                    h2 { "Settings" }
                    div.wide {
                        table.settings {
                            tbody { @for (key, value) in settings { tr { th scope="row" { (key) } td { (value) } } } }
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}

/// The run in five numbers.
fn summary(analysis: &Analysis) -> Markup {
    let cards = [
        ("Test samples", analysis.samples.to_string()),
        ("Tasks", analysis.tasks.len().to_string()),
        ("Routing accuracy", format!("{:.2}%", 100.0 * analysis.accuracy)),
        ("Gate entropy / ln K", format!("{:.3}", analysis.entropy.normalized_mean)),
        ("Load imbalance", format!("{:.3}", analysis.load_imbalance)),
    ];
    html! { dl.cards { @for (name, value) in &cards { div { dt { (name) } dd { (value) } } } } }
}

/// The routing by task; the numbers are those the pictures use where names would not fit.
fn task_table(analysis: &Analysis) -> Markup {
    let share = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{:.2}%", 100.0 * value));
    let ideal = percent(1.0 / analysis.tasks.len() as f64);
    let rows =
        analysis.tasks.iter().zip(analysis.task_samples()).zip(&analysis.task_accuracy).zip(&analysis.task_usage);
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th.number { "#" } th { "Task" } th.number { "Samples" } th.number { "Routed right" }
                        th.number { "Mean gate of its own adapter" }
                        th.number { "Mean gate of this adapter over all samples (even: " (ideal) ")" }
                    }
                }
                tbody {
                    @for (index, (((task, samples), accuracy), usage)) in rows.enumerate() {
                        tr {
                            td.number { (index + 1) }
                            th scope="row" { (task) }
                            td.number { (samples) }
                            td.number { (share(*accuracy)) }
                            td.number { (share(usage.as_ref().and_then(|usage| usage.get(index).copied()))) }
                            td.number { (share(analysis.usage.get(index).copied())) }
                        }
                    }
                }
            }
        }
    }
}

fn figures(pictures: &[Picture], section: PictureSection) -> Markup {
    html! {
        div.pictures {
            @for picture in pictures.iter().filter(|picture| picture.section == section) {
                figure { (PreEscaped(&picture.svg)) figcaption { (picture.caption) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, pictures};
    use super::*;

    fn page(title: &str, settings: &[(String, String)]) -> String {
        let (analysis, table, curves) = (fixture::analysis(3), fixture::table(3), fixture::curves(3));
        let pictures = pictures(&analysis, &table, &curves).unwrap();
        report_html(title, &analysis, &table, &pictures, settings)
    }

    /// The page as XML: HTML's unclosed `meta` aside, it is well-formed.
    fn parsed(page: &str) -> String {
        let body = page.split_once("<body>").unwrap().1.split_once("</body>").unwrap().0;
        format!("<body>{body}</body>")
    }

    #[test]
    fn the_page_holds_headings_tables_pictures_and_settings() {
        let page = page("A run", &[("router.tap".into(), "2".into())]);
        let xml = parsed(&page);
        let document = roxmltree::Document::parse(&xml).unwrap();
        let texts = |tag: &str| -> Vec<String> {
            let text = |node: roxmltree::Node| node.text().unwrap_or("").to_string();
            document.descendants().filter(|node| node.tag_name().name() == tag).map(text).collect()
        };
        assert_eq!(texts("h1"), ["A run"]);
        assert_eq!(texts("h2"), ["Metrics by router and task", "Routing", "Training", "Settings"]);
        assert_eq!((texts("svg").len(), texts("figcaption").len(), texts("table").len()), (8, 8, 3));
        let analysis = fixture::analysis(3);
        assert!(texts("dd").contains(&format!("{:.2}%", 100.0 * analysis.accuracy)));
        assert!(texts("td").contains(&format!("{:.2}%", 100.0 * analysis.task_accuracy[1].unwrap())));
        assert!(texts("th").contains(&"router.tap".to_string()) && texts("td").contains(&"2".to_string()));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = page("A run", &[]);
        for forbidden in ["<script", "<link", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(!page.contains("Settings"));
    }

    #[test]
    fn text_is_escaped() {
        let nasty = "</title><script>alert(\"&\")</script>";
        let page = page(nasty, &[(nasty.into(), nasty.into())]);
        assert!(!page.contains("<script"));
        assert_eq!(page.matches("&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;").count(), 4);
        roxmltree::Document::parse(&parsed(&page)).unwrap();
    }

    #[test]
    fn a_task_without_samples_has_dashes() {
        let mut samples = fixture::samples(2);
        samples.retain(|sample| sample.task == 0);
        let analysis = Analysis::new(fixture::names(2), &samples).unwrap();
        let page = report_html("A run", &analysis, &fixture::table(2), &[], &[]);
        assert!(page.contains(r#"<td class="number">–</td>"#), "{page}");
    }
}
