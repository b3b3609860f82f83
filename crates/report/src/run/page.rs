//! The page of a run with tasks: all its results in one self-contained file.

use super::pictures::{Picture, PictureSection};
use crate::draw::canvas::percent;
use crate::evaluation::record::EvaluationRecord;
use crate::html::{self as frame, Pictures};
use crate::routing::RoutingAnalysis;
use crate::table::MetricsTable;
use maud::{Markup, html};

/// Returns the report as one HTML page, with its style and [`pictures`](crate::pictures) inside; it loads nothing.
/// Empty sections are left out. All text is escaped; the SVG of the pictures is inserted unescaped. `links` are the
/// titles and addresses of other pages of the run; `evaluation` is that of the run's newest model.
pub fn report_html(
    title: &str,
    analysis: &RoutingAnalysis,
    table: &MetricsTable,
    pictures: &[Picture],
    settings: &[(String, String)],
    links: &[(String, String)],
    evaluation: Option<&EvaluationRecord>,
) -> String {
    let body = html! {
        h1 { (title) }
        (summary(analysis))
        @if table.routers().next().is_some() {
            h2 { "Metrics by router and task" }
            (table.markup())
            (figures(pictures, PictureSection::Metrics))
        }
        @if let Some(record) = evaluation { (crate::evaluation::page::markup(record)) }
        h2 { "Routing" }
        (task_table(analysis))
        (figures(pictures, PictureSection::Routing))
        @if pictures.iter().any(|picture| picture.section == PictureSection::Training) {
            h2 { "Training" }
            (figures(pictures, PictureSection::Training))
        }
        @if !links.is_empty() {
            h2 { "Stages" }
            ul { @for (name, address) in links { li { a href=(address) { (name) } } } }
        }
        @if !settings.is_empty() {
            h2 { "Settings" }
            (frame::settings(settings))
        }
    };
    frame::page(title, &body)
}

/// Returns the run in a few numbers.
fn summary(analysis: &RoutingAnalysis) -> Markup {
    let mut cards = vec![
        ("Samples", analysis.samples.to_string(), String::new()),
        ("Tasks", analysis.tasks.len().to_string(), String::new()),
        ("Routing accuracy", format!("{:.2}%", 100.0 * analysis.accuracy), String::new()),
        ("Gate entropy / ln K", format!("{:.3}", analysis.entropy.normalized_mean), String::new()),
        ("Load imbalance", format!("{:.3}", analysis.load_imbalance), String::new()),
    ];
    let calibration = analysis.calibration.as_ref();
    cards.extend(calibration.map(|it| ("Calibration error", format!("{:.3}", it.error), String::new())));
    frame::cards(&cards)
}

/// Returns the routing by task; its numbers are those that the pictures use where names would not fit.
fn task_table(analysis: &RoutingAnalysis) -> Markup {
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
    let of_section = pictures.iter().filter(|picture| picture.section == section);
    let drawn = of_section.map(|picture| (picture.svg.as_str(), picture.caption.as_str()));
    frame::figures(drawn, if section == PictureSection::Training { Pictures::Curves } else { Pictures::Charts })
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::pictures::pictures;
    use super::*;

    fn page(title: &str, settings: &[(String, String)]) -> String {
        let (analysis, table, curves) = (fixture::analysis(3), fixture::table(3), fixture::curves(3));
        let pictures = pictures(&analysis, &table, &curves).unwrap();
        report_html(title, &analysis, &table, &pictures, settings, &[], None)
    }

    /// Parses the page as XML; it is well-formed apart from HTML's unclosed `meta`.
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
        assert_eq!((texts("svg").len(), texts("figcaption").len(), texts("table").len()), (9, 9, 3));
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
    fn the_stages_are_linked() {
        let links = [("phase 1, copy & paste".to_owned(), "phase1/copy/report.html".to_owned())];
        let page = report_html("A run", &fixture::analysis(2), &fixture::table(2), &[], &[], &links, None);
        assert!(page.contains(r#"<a href="phase1/copy/report.html">phase 1, copy &amp; paste</a>"#), "{page}");
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
        let analysis = RoutingAnalysis::new(fixture::names(2), &samples).unwrap();
        let page = report_html("A run", &analysis, &fixture::table(2), &[], &[], &[], None);
        assert!(page.contains(r#"<td class="number">–</td>"#), "{page}");
    }
}
