//! The part of a page that shows an evaluation.

use super::record::{Compared, Comparison, ErrorCounts, EvaluationRecord, Group, Grouping, MetricScore, WorstSample};
use crate::difference::marked;
use crate::html::table;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{Markup, html};
use std::collections::BTreeMap;
use undertone_metrics::{Direction, Interval, direction_of};

/// Returns the sections of an evaluation.
pub(crate) fn markup(record: &EvaluationRecord) -> Markup {
    let samples: usize = record.samples.values().sum();
    html! {
        h2 { "Evaluation" }
        p.lead {
            (samples) " samples of " (record.data)
            @if let Some(step) = record.step { ", by the model of step " (step) }
            ". In brackets 95 % intervals, by the bootstrap over samples."
        }
        (metrics(&record.metrics))
        @for remark in &record.remarks { p.lead { (remark) } }
        @if !record.errors.is_empty() { (errors(&record.errors)) }
        @if let Some(comparison) = &record.comparison { (self::comparison(comparison)) }
        @for grouping in &record.groups { (groups(grouping)) }
        @if !record.worst.is_empty() { (worst(&record.worst)) }
    }
}

/// Returns an interval for a table.
pub(crate) fn interval(interval: Interval) -> String {
    format!("[{:.4}, {:.4}]", interval.low, interval.high)
}

/// Returns a metric's name with its direction, if it has one.
pub(crate) fn title(metric: &str, direction: Option<Direction>) -> String {
    direction.map_or(metric.to_owned(), |direction| format!("{metric} {}", direction.arrow()))
}

fn metrics(metrics: &[MetricScore]) -> Markup {
    let row = |score: &MetricScore| {
        let value = score.value.map_or("n/a".into(), |value| format!("{value:.4}"));
        vec![title(&score.metric, score.direction), value, score.interval.map_or("–".into(), interval)]
    };
    table(&["Metric", "Value", "95 % interval"], &metrics.iter().map(row).collect::<Vec<_>>())
}

fn errors(errors: &BTreeMap<String, ErrorCounts>) -> Markup {
    let row = |(metric, counts): (&String, &ErrorCounts)| {
        let ErrorCounts { hits, substitutions, deletions, insertions } = counts;
        let counts = [hits, substitutions, deletions, insertions].map(ToString::to_string);
        [vec![metric.clone()], counts.into()].concat()
    };
    let head = ["Error rate", "Hits", "Substitutions", "Deletions", "Insertions"];
    html! { h3 { "Errors" } (table(&head, &errors.iter().map(row).collect::<Vec<_>>())) }
}

fn comparison(comparison: &Comparison) -> Markup {
    let row = |(metric, compared): (&String, &Compared)| {
        let Compared { value, difference, significance } = *compared;
        vec![
            title(metric, direction_of(metric)),
            format!("{:.4}", value + difference),
            format!("{value:.4}"),
            format!("{difference:+.4}"),
            significance.map_or("–".into(), |found| interval(found.interval)),
            significance.map_or("–".into(), |found| format!("{:.3}", found.p_value)),
        ]
    };
    let head = ["Metric", "This model", &comparison.with, "Difference", "95 % interval", "p"];
    html! {
        h3 { "Against " (comparison.with) }
        p.lead {
            "The same samples. Difference: this model minus the other one, with its 95 % interval and p-value, by the \
             paired bootstrap."
        }
        (table(&head, &comparison.metrics.iter().map(row).collect::<Vec<_>>()))
    }
}

fn groups(grouping: &Grouping) -> Markup {
    let Grouping { task, by, groups } = grouping;
    let names: Vec<&str> = grouping.metrics().collect();
    let titles: Vec<String> = names.iter().map(|name| title(name, direction_of(name))).collect();
    let head: Vec<&str> = [by.as_str(), "Samples"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let row = |group: &Group| {
        let values = names.iter().map(|name| group.text(name)).collect();
        [vec![group.name.clone(), group.samples.to_string()], values].concat()
    };
    html! {
        h3 { @if !task.is_empty() { (task) ": by " } @else { "By " } (by) }
        (table(&head, &groups.iter().map(row).collect::<Vec<_>>()))
    }
}

fn worst(samples: &[WorstSample]) -> Markup {
    let silent = samples.iter().filter(|sample| sample.seconds.is_some() && sample.audio.is_none()).count();
    html! {
        h2 { "Worst samples" }
        p.lead {
            "The " (samples.len()) " samples with the most errors, the worst first: " ins { "wrong or too much" } ", "
            del { "missing" } "."
            @if silent > 0 { " Of " (silent) " the audio is left out: the page would be too large, or the cache holds features alone." }
        }
        div.examples {
            @for sample in samples {
                article {
                    h3 { @if !sample.task.is_empty() { (sample.task) " " } (sample.name) }
                    dl {
                        dt { "errors" }
                        dd {
                            (sample.errors)
                            @if let Some(seconds) = sample.seconds { " in " (format!("{seconds:.1}")) " s" }
                        }
                        dt { "should be" } dd { (sample.reference) }
                        dt { "is" } dd { (marked(&sample.reference, &sample.hypothesis)) }
                    }
                    @if let Some(wav) = &sample.audio {
                        audio controls="" preload="none"
                            src=(format!("data:audio/wav;base64,{}", BASE64_STANDARD.encode(wav))) {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::Significance;
    use super::*;

    /// A record with everything in it.
    pub fn record() -> EvaluationRecord {
        let interval = Interval { low: 0.125, high: 0.5 };
        let group = |name: &str, metrics: &[(&str, f64)]| Group {
            name: name.into(),
            samples: 3,
            metrics: metrics.iter().map(|(metric, value)| ((*metric).to_owned(), *value)).collect(),
            intervals: [("cer".to_owned(), interval)].into(),
        };
        let significance = Some(Significance { interval: Interval { low: -0.5, high: -0.25 }, p_value: 0.0625 });
        let compared = |significance| Compared { value: 0.75, difference: -0.5, significance };
        let sample = |name: &str, audio: Option<&[u8]>| WorstSample {
            task: String::new(),
            name: name.into(),
            reference: "CQ DX".into(),
            hypothesis: "CQ DE <b>".into(),
            errors: 5,
            seconds: Some(1.5),
            audio: audio.map(<[u8]>::to_vec),
        };
        EvaluationRecord {
            data: "the test data".into(),
            step: Some(24),
            samples: [(String::new(), 6)].into(),
            metrics: vec![
                MetricScore {
                    metric: "cer".into(),
                    direction: Some(Direction::Lower),
                    value: Some(0.25),
                    interval: Some(interval),
                },
                MetricScore { metric: "brier".into(), direction: None, value: None, interval: None },
            ],
            errors: [("cer".to_owned(), ErrorCounts { hits: 71, substitutions: 72, deletions: 73, insertions: 74 })]
                .into(),
            groups: vec![Grouping {
                task: String::new(),
                by: "speaker".into(),
                groups: vec![group("anna & bob", &[("cer", 0.25), ("wer", 0.5)]), group("carl", &[("cer", 0.375)])],
            }],
            comparison: Some(Comparison {
                with: "base".into(),
                metrics: [("cer".to_owned(), compared(significance)), ("loss".to_owned(), compared(None))].into(),
            }),
            worst: vec![sample("a.wav", Some(b"RIFF")), sample("b.wav", None)],
            remarks: vec!["Not <so>.".into()],
        }
    }

    #[test]
    fn everything_is_shown_and_escaped() {
        let html = markup(&record()).into_string();
        let body = format!("<body>{html}</body>");
        let document = roxmltree::Document::parse(&body).expect("XML");
        let cells: Vec<&str> =
            document.descendants().filter(|node| node.has_tag_name("td")).filter_map(|node| node.text()).collect();
        let expected = [
            "0.2500", "[0.1250, 0.5000]", "n/a", "–", "71", "72", "73", "74", "0.2500", "0.7500", "-0.5000",
            "[-0.5000, -0.2500]", "0.062", "0.2500", "0.7500", "-0.5000", "–", "–", "3", "0.2500 [0.1250, 0.5000]",
            "0.5000", "3", "0.3750 [0.1250, 0.5000]", "–",
        ];
        assert_eq!(cells, expected);
        assert!(html.contains("anna &amp; bob") && html.contains("Not &lt;so&gt;.") && !html.contains("<b>"), "{html}");
        assert!(html.contains("6 samples of the test data, by the model of step 24"), "{html}");
    }

    #[test]
    fn the_worst_samples_have_their_audio_in_the_page_and_their_errors_marked() {
        let html = markup(&record()).into_string();
        let players: Vec<&str> = html.split("<audio").skip(1).collect();
        assert_eq!(players.len(), 1);
        assert!(players[0].contains(r#"src="data:audio/wav;base64,UklGRg==""#), "{html}");
        assert!(html.contains("Of 1 the audio is left out"), "{html}");
        assert!(html.contains("<ins>") && html.contains("5 in 1.5 s"), "{html}");
        let nothing = markup(&EvaluationRecord::default()).into_string();
        assert!(!nothing.contains("Worst samples") && !nothing.contains("<h3>"), "{nothing}");
    }
}
