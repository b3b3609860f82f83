//! The page of a training run.

use super::pictures::{Figure, best, learning, machine};
use super::records::{RunRecords, root};
use crate::difference::marked;
use crate::error::ReportError;
use crate::evaluation::page as evaluation;
use crate::html::{self as frame, REPORT};
use crate::series::clock;
use maud::{Markup, html};
use std::collections::BTreeSet;
use std::path::{Component, Path};
use undertone_metrics::direction_of;
use undertone_train::{Environment, ExampleChange, Summary};

/// Returns the report of the run in `directory`.
pub(crate) fn html(directory: &Path, records: &RunRecords) -> Result<String, ReportError> {
    let (learning, machine) = (learning(records)?, machine(records)?);
    let summary = records.summary.as_ref();
    let title = title(directory);
    let examples = summary.map(|summary| summary.examples.as_slice()).unwrap_or_default();
    let body = html! {
        h1 { (title) }
        p.lead { (state(records)) @if let Some(address) = whole_run(directory) { " · " a href=(address) { "the whole run" } } }
        @if let Some(summary) = summary {
            (frame::cards(&cards(summary, records)))
            (metrics(summary))
        }
        @if let Some(record) = &records.evaluation { (evaluation::markup(record)) }
        h2 { "Learning" }
        (figures(&learning))
        @if !machine.is_empty() {
            h2 { "Time and machine" }
            (figures(&machine))
        }
        @if !examples.is_empty() {
            h2 { "Examples" }
            p.lead { "Validation samples as the model read them: " ins { "wrong or too much" } ", " del { "missing" } "." }
            (self::examples(examples))
        }
        @if !records.sessions.is_empty() {
            h2 { "Environment" }
            (environment(&records.sessions))
        }
        @if let Some(yaml) = &records.configuration {
            h2 { "Configuration" }
            details { summary { "config.yaml, with every default" } pre { (yaml) } }
        }
    };
    Ok(frame::page(&title, &body))
}

/// Returns the run's name; for a stage also its place in the run.
fn title(directory: &Path) -> String {
    let whole = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let root = root(&whole).unwrap_or(&whole);
    let above = root.parent().unwrap_or(Path::new(""));
    let parts = whole.strip_prefix(above).unwrap_or(&whole).components();
    let names: Vec<_> = parts.map(|part: Component| part.as_os_str().to_string_lossy().into_owned()).collect();
    names.join(" · ")
}

/// Returns the path of the report of the whole run, relative to the stage.
fn whole_run(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let root = root(&directory)?;
    let depth = directory.strip_prefix(root).ok()?.components().count();
    (depth > 0 && root.join(REPORT).exists()).then(|| "../".repeat(depth) + REPORT)
}

fn state(records: &RunRecords) -> String {
    let last = records.steps().1;
    match &records.summary {
        Some(summary) if summary.completed => format!("Finished after {} steps", summary.steps),
        Some(summary) => format!("Interrupted after {} steps", summary.steps),
        None => format!("Not ended: still running, or killed; logged up to step {last}"),
    }
}

fn cards(summary: &Summary, records: &RunRecords) -> Vec<(&'static str, String, String)> {
    let parameters = summary.parameters;
    let mut cards = vec![
        ("Steps", summary.steps.to_string(), String::new()),
        ("Samples", summary.samples.to_string(), String::new()),
        ("Time", clock(summary.seconds), "evaluations included".into()),
        ("Samples/s", format!("{:.1}", summary.samples_per_second), "of training steps".into()),
        ("Trained", count(parameters.trainable), format!("of {} parameters", count(parameters.total))),
    ];
    if let Some((metric, (step, value))) = best(records) {
        cards.push(("Best", format!("{value:.4}"), format!("{metric}, step {step}")));
    }
    if let Some(bytes) = summary.peak_memory_bytes {
        cards.push(("Peak memory", memory(bytes), String::new()));
    }
    cards.push(("Data wait", format!("{:.1} %", 100.0 * summary.data_wait), "of training steps".into()));
    cards
}

/// Returns a table of every metric before and after training.
fn metrics(summary: &Summary) -> Markup {
    // A metric without a value, as of a validation that wrote nothing, is only in `before`.
    let names: BTreeSet<&String> = summary.before.keys().chain(summary.after.keys()).collect();
    let row = |name: &String| {
        let after = summary.after.get(name).copied();
        let before = summary.before.get(name).copied();
        // Older summaries do not contain the direction.
        let direction = summary.directions.get(name).copied().or_else(|| direction_of(name));
        let better = match (direction, before, after) {
            (Some(direction), Some(before), Some(after)) => direction.is_better(after, before),
            _ => false,
        };
        let title = evaluation::title(name, direction);
        let interval = summary.intervals.get(name).map_or_else(String::new, |interval| evaluation::interval(*interval));
        let value = |value: Option<f64>, none: &str| value.map_or(none.to_owned(), |value| format!("{value:.4}"));
        (title, value(before, "–"), value(after, "n/a"), interval, better)
    };
    let intervals = !summary.intervals.is_empty();
    html! {
        @if !names.is_empty() {
            h2 { "Validation" }
            div.wide {
                table {
                    thead {
                        tr {
                            th { "Metric" } th.number { "Before" } th.number { "After" }
                            @if intervals { th.number { "95 % interval" } }
                        }
                    }
                    tbody {
                        @for (name, before, after, interval, better) in names.into_iter().map(row) {
                            tr {
                                th scope="row" { (name) } td.number { (before) } td.number.good[better] { (after) }
                                @if intervals { td.number { (interval) } }
                            }
                        }
                    }
                }
            }
            @for remark in &summary.remarks { p.lead { (remark) } }
        }
    }
}

fn examples(examples: &[ExampleChange]) -> Markup {
    html! {
        div.examples {
            @for ExampleChange { name, reference, before, after } in examples {
                article {
                    h3 { (name) }
                    dl {
                        dt { "should be" } dd { (reference) }
                        @if let Some(before) = before { dt { "before" } dd { (marked(reference, before)) } }
                        dt { "after" } dd { (marked(reference, after)) }
                    }
                }
            }
        }
    }
}

/// Returns a table with a column for each environment: consecutive sessions in the same environment share one.
fn environment(sessions: &[Environment]) -> Markup {
    let groups: Vec<&[Environment]> = sessions.chunk_by(|a, b| constant(a) == constant(b)).collect();
    let say = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let revision = |it: &Environment| match (&it.revision, it.modified) {
        (Some(revision), Some(true)) => format!("{revision}, modified"),
        (Some(revision), _) => revision.clone(),
        (None, _) => "unknown".into(),
    };
    type Row<'a> = (&'static str, Box<dyn Fn(&Environment) -> String + 'a>);
    let rows: [Row; 9] = [
        ("Undertone", Box::new(|it| it.undertone.clone())),
        ("Revision", Box::new(revision)),
        ("Burn", Box::new(|it| format!("{}, with {}", it.burn, it.backends.join(", ")))),
        ("Compiler", Box::new(|it| it.rustc.clone())),
        ("Device", Box::new(|it| it.device.clone())),
        ("Processor", Box::new(|it| format!("{}, {} cores", say(&it.cpu), it.cores))),
        ("Memory", Box::new(|it| it.memory_bytes.map_or("unknown".into(), memory))),
        ("Graphics cards", Box::new(|it| if it.gpus.is_empty() { "none found".into() } else { it.gpus.join(", ") })),
        ("System", Box::new(|it| it.os.clone())),
    ];
    html! {
        div.wide {
            table.settings {
                tbody {
                    @for (key, value) in &rows {
                        tr { th scope="row" { (key) } @for group in &groups { td { (value(&group[0])) } } }
                    }
                    tr {
                        th scope="row" { "Sessions" }
                        @for group in &groups {
                            td {
                                @for it in *group {
                                    div { (it.started) " from step " (it.step) ": " code { (it.command.join(" ")) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the fields that are the same for all sessions in one environment.
fn constant(session: &Environment) -> Environment {
    Environment { started: String::new(), step: 0, command: Vec::new(), ..session.clone() }
}

fn figures(figures: &[Figure]) -> Markup {
    frame::figures(
        figures.iter().map(|figure| (figure.svg.as_str(), figure.caption.as_str())),
        frame::Pictures::SmallCurves,
    )
}

/// Formats bytes as MiB or GiB.
fn memory(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Formats a number of parameters with about three digits.
fn count(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1} k", number as f64 / 1e3),
        _ => format!("{:.2} M", number as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::{write_report, write_reports};

    const METRICS: &str = r#"{"step":0,"split":"valid","cer":0.5}
{"step":10,"split":"train","loss":2.5,"text":2.0,"<b>":0.5,"lr":0.001,"grad_norm":3.0}
{"step":20,"split":"train","loss":1.5,"text":1.25,"<b>":0.25,"last_loss":1.25,"lr":0.0005,"grad_norm":2.0}
{"step":20,"split":"valid","cer":0.25}
"#;
    const PERFORMANCE: &str = r#"{"step":10,"steps":10,"seconds":4.0,"samples_per_second":20.0,"time":{"data_wait":0.1,"transfer":0.0,"forward":0.3,"backward":0.5,"optimizer":0.06,"other":0.04},"hardware":{"cpu":0.9,"process_cpu":0.8,"memory_bytes":268435456,"memory_total_bytes":8589934592,"gpus":[{"name":"H200","utilization":0.7,"memory_bytes":1073741824}]}}
{"step":20,"steps":10,"seconds":4.0,"samples_per_second":21.0,"time":{"data_wait":0.3,"transfer":0.0,"forward":0.2,"backward":0.4,"optimizer":0.06,"other":0.04}}
"#;
    const SUMMARY: &str = r#"{"name":"tiny","completed":true,"steps":20,"samples":160,"parameters":{"trainable":1433406,"total":1484606},"seconds":3723.4,"samples_per_second":20.5,"data_wait":0.2,"peak_memory_bytes":268435456,"before":{"cer":0.5},"after":{"cer":0.25},"best":[0.25,20],"examples":[{"name":"cw <0>","reference":"KD2KV","before":"KD2TE","after":"KD2KV"}]}"#;

    fn write(directory: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(directory).expect("made");
        for (name, text) in files {
            std::fs::write(directory.join(name), text).expect("written");
        }
    }

    /// Returns the report of a directory, and its body as XML.
    fn report(directory: &Path) -> (String, String) {
        let page = std::fs::read_to_string(write_report(directory).expect("a report")).expect("read");
        let body = page.split_once("<body>").expect("a body").1.split_once("</body>").expect("an end").0;
        let body = format!("<body>{body}</body>");
        (page, body)
    }

    fn texts(body: &str, tag: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(body).expect("XML");
        let text = |node: roxmltree::Node| {
            node.descendants().filter(|it| it.is_text()).filter_map(|it| it.text()).collect::<String>()
        };
        document.descendants().filter(|node| node.has_tag_name(tag)).map(text).collect()
    }

    #[test]
    fn a_run_is_shown_with_all_that_there_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = dir.path().join("tiny");
        let sessions = r#"{"sessions":[
            {"started":"2026-11-21T18:38:16Z","cpu":"EPYC","cores":2,"revision":"abc","modified":true,"command":["train"]},
            {"started":"2026-11-21T19:38:16Z","step":10,"cpu":"EPYC","cores":2,"revision":"abc","modified":true},
            {"started":"2026-11-22T18:38:16Z","step":15,"cpu":"Xeon","cores":8,"gpus":["H200"]}]}"#;
        let config = "seed: 42\nrun:\n  name: tiny # <&>\n";
        write(
            &run,
            &[
                ("metrics.jsonl", METRICS),
                ("performance.jsonl", PERFORMANCE),
                ("summary.json", SUMMARY),
                ("config.yaml", config),
                ("environment.json", sessions),
            ],
        );
        let (page, body) = report(&run);
        assert_eq!(texts(&body, "h1"), ["tiny"]);
        let headings = texts(&body, "h2");
        let expected = ["Validation", "Learning", "Time and machine", "Examples", "Environment", "Configuration"];
        assert_eq!(headings, expected);
        let drawn: Vec<String> =
            texts(&body, "svg").iter().map(|svg| svg.trim().lines().next().unwrap_or("").into()).collect();
        let expected = [
            "Training loss", "Terms of the loss", "Validation: cer", "Learning rate", "Gradient norm",
            "Time of a training step", "Throughput", "Memory", "Utilisation",
        ];
        assert_eq!(drawn, expected);
        assert!(texts(&body, "figcaption")[5].contains("backward 45.0 %, forward 25.0 %, data wait 20.0 %"), "{body}");
        let cards = texts(&body, "dd");
        for card in
            ["1:02:03", "1.43 Mof 1.48 M parameters", "0.2500cer, step 20", "256 MiB", "20.0 %of training steps"]
        {
            assert!(cards.iter().any(|text| text.contains(card)), "{card}: {cards:?}");
        }
        assert_eq!(texts(&body, "pre"), [config]);
        assert!(!body.contains("last_loss"), "the loss of one step is no term");
        // Three sessions in two environments.
        assert!(body.contains("<td>EPYC, 2 cores</td><td>Xeon, 8 cores</td>"), "{body}");
        assert!(body.contains("<td>abc, modified</td><td>unknown</td>"), "{body}");
        assert!(body.contains("2026-11-21T19:38:16Z from step 10"), "{body}");
        // The page loads nothing, and all text is escaped.
        for forbidden in ["<script", "<link", "src=", "url(", "@import", "<b>", "cw <0>"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(!page.contains("href="), "a plain run has nowhere to lead to");
    }

    #[test]
    fn the_moving_average_has_curves_and_a_metric_without_a_value_a_row() {
        let dir = tempfile::tempdir().expect("a directory");
        let averaged = METRICS.replace(r#""split":"valid","cer""#, r#""split":"valid_ema","cer""#);
        let summary = SUMMARY.replace(r#""before":{"cer":0.5}"#, r#""before":{"cer":0.5,"bleu":0.25}"#);
        let metrics = format!("{METRICS}{averaged}");
        write(dir.path(), &[("metrics.jsonl", &metrics), ("summary.json", &summary)]);
        let (_, body) = report(dir.path());
        let drawn = texts(&body, "svg");
        let cer = drawn.iter().find(|svg| svg.contains("Validation: cer")).expect("a picture");
        assert!(cer.contains("moving average") && cer.contains("weights"), "{cer}");
        assert!(body.contains(r#"bleu ↑</th><td class="number">0.2500</td><td class="number">n/a</td>"#), "{body}");
    }

    #[test]
    fn a_metric_of_which_nobody_knows_which_way_it_is_better_is_not_called_better() {
        let row = |after: &str, directions: &str| {
            let summary: Summary = serde_json::from_str(&SUMMARY.replace(
                r#""before":{"cer":0.5},"after":{"cer":0.25}"#,
                &format!(r#""before":{{{after}0.5}},"after":{{{after}0.75}},"directions":{{{directions}}},"remarks":["Not <so>."]"#),
            ))
            .expect("a summary");
            metrics(&summary).into_string()
        };
        let (better, table) = ("number good", row(r#""brier":"#, ""));
        assert!(
            table.contains(">brier</th>") && !table.contains(better) && table.contains("Not &lt;so&gt;."),
            "{table}"
        );
        for (table, title, good) in [
            (row(r#""brier":"#, r#""brier":"higher""#), "brier ↑", true),
            (row(r#""copy.cer":"#, ""), "copy.cer ↓", false),
            (row(r#""copy.f1":"#, ""), "copy.f1 ↑", true),
        ] {
            assert!(table.contains(&format!(">{title}</th>")) && table.contains(better) == good, "{table}");
        }
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), &[("metrics.jsonl", METRICS)]);
        let (_, body) = report(dir.path());
        assert_eq!(texts(&body, "h2"), ["Learning"]);
        assert_eq!(texts(&body, "p"), ["Not ended: still running, or killed; logged up to step 20"]);
        assert_eq!(texts(&body, "svg").len(), 5);
        write(dir.path(), &[("metrics.jsonl", "")]);
        assert!(texts(&report(dir.path()).1, "svg").is_empty());
    }

    #[test]
    fn a_stage_leads_to_the_whole_run_and_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let (run, stage) = (dir.path().join("run"), dir.path().join("run/phase1/copy"));
        write(&stage, &[("metrics.jsonl", METRICS), ("summary.json", &SUMMARY.replace("true", "false"))]);
        write(&run, &[("config.yaml", "run: {name: run}\n")]);
        let (page, body) = report(&stage);
        assert_eq!(texts(&body, "h1"), ["run · phase1 · copy"]);
        assert_eq!(texts(&body, "p")[0], "Interrupted after 20 steps");
        assert!(body.contains("<pre>run: {name: run}"), "the run's configuration is the stage's");
        assert!(!page.contains("href="));
        write(&run, &[(REPORT, "")]);
        assert!(report(&stage).0.contains(r#"<a href="../../report.html">the whole run</a>"#));
    }

    #[test]
    fn a_directory_without_a_run_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = write_report(dir.path()).expect_err("no run");
        assert!(error.is_bad_input() && error.to_string().contains("holds no run"), "{error}");
        assert!(write_reports(dir.path(), || Err("not asked".into())).expect_err("no run").is_bad_input());
        write(dir.path(), &[("config.yaml", "seed: 1\n")]);
        assert!(write_reports(dir.path(), || Err("not asked".into())).expect_err("nothing trained").is_bad_input());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([59.6, 61.0, 3723.0].map(clock), ["1:00", "1:01", "1:02:03"]);
        assert_eq!([999, 12_345, 1_433_406].map(count), ["999", "12.3 k", "1.43 M"]);
        assert_eq!([1 << 20, 3 << 29].map(memory), ["1 MiB", "1.5 GiB"]);
    }
}
