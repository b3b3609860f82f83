//! The pictures: SVG of 640 × 420 pixels, in colours that the colour-blind can tell apart.

use crate::draw::{bars, histogram, lines, matrix};
use crate::error::AnalysisError;
use crate::routing::RoutingAnalysis;
use crate::series::LossCurves;
use crate::table::MetricsTable;

/// Section of the page that a picture belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureSection {
    /// Metrics of the routers.
    Metrics,
    /// Distribution of the gates.
    Routing,
    /// Losses in training.
    Training,
}

/// A picture and its caption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Section that it belongs to.
    pub section: PictureSection,
    /// File name, ending in `.svg`, unique among [`pictures`].
    pub file_name: String,
    /// Caption: a sentence or two on how to read it.
    pub caption: String,
    /// SVG source.
    pub svg: String,
}

impl Picture {
    fn new(section: PictureSection, name: &str, caption: &str, svg: String) -> Self {
        Self { section, file_name: format!("{name}.svg"), caption: caption.into(), svg }
    }
}

/// Draws all pictures: the metrics by task (one picture per primary metric), the routing, the curves of each phase.
/// Empty pictures are left out.
///
/// # Errors
/// If a picture cannot be drawn.
pub fn pictures(
    analysis: &RoutingAnalysis,
    table: &MetricsTable,
    curves: &[LossCurves],
) -> Result<Vec<Picture>, AnalysisError> {
    let mut pictures = metric_pictures(table)?;
    pictures.extend(routing_pictures(analysis)?);
    for (index, phase) in curves.iter().enumerate() {
        pictures.extend(phase_pictures(index + 1, phase)?);
    }
    Ok(pictures)
}

fn metric_pictures(table: &MetricsTable) -> Result<Vec<Picture>, AnalysisError> {
    let mut primaries: Vec<&str> = vec![];
    for column in table.tasks() {
        if !primaries.contains(&column.primary.as_str()) {
            primaries.push(&column.primary);
        }
    }
    let mut pictures = vec![];
    for (index, metric) in primaries.into_iter().enumerate() {
        if let Some(svg) = bars::metric_by_task(table, metric)? {
            let caption = format!(
                "{metric} of each task under each router ({}). A gap is a value that was not measured.",
                table.metric(metric)?.direction.words()
            );
            pictures.push(Picture::new(PictureSection::Metrics, &format!("metrics-{}", index + 1), &caption, svg));
        }
    }
    Ok(pictures)
}

fn routing_pictures(analysis: &RoutingAnalysis) -> Result<Vec<Picture>, AnalysisError> {
    let drawn = [
        (
            "confusion",
            "Samples of each task by the adapter with the largest gate; the shade is the share of the row. A router that \
             is always right fills the diagonal.",
            matrix::confusion(analysis)?,
        ),
        (
            "usage",
            "Mean gate of each adapter over the samples of each task, and over all samples.",
            bars::adapter_usage(analysis)?,
        ),
        (
            "entropy",
            "How the gates spread over the adapters: at 0 a sample goes through one adapter, at 1 through all alike.",
            histogram::gate_entropy(analysis)?,
        ),
        (
            "confidence",
            "Confidence where the largest gate was the task's own adapter and where it was another, each as a share of \
             its own samples. A router that knows when it is wrong keeps the two apart.",
            histogram::confidence(analysis)?,
        ),
    ];
    let calibration = analysis.calibration.as_ref().map(histogram::calibration).transpose()?;
    let calibration = calibration.map(|svg| {
        let caption = "Share of right decisions by confidence, with the number of samples. A confidence that can be trusted has its bars \
                       end at its line.";
        ("calibration", caption, svg)
    });
    let picture =
        |(name, caption, svg): (&str, &str, String)| Picture::new(PictureSection::Routing, name, caption, svg);
    Ok(drawn.into_iter().chain(calibration).map(picture).collect())
}

fn phase_pictures(number: usize, phase: &LossCurves) -> Result<Vec<Picture>, AnalysisError> {
    let mut pictures = vec![];
    if let Some(svg) = lines::losses(phase)? {
        let caption = format!(
            "Loss over the steps: {}. Faint lines are the values, bold ones their running mean; gaps were not finite.",
            phase.phase
        );
        pictures.push(Picture::new(PictureSection::Training, &format!("loss-{number}"), &caption, svg));
    }
    if let Some(svg) = lines::temperature(phase)? {
        let caption = format!("Temperature of the router's softmax: {}. Lower is sharper.", phase.phase);
        pictures.push(Picture::new(PictureSection::Training, &format!("temperature-{number}"), &caption, svg));
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::series::Series;
    use crate::table::{Metric, TaskColumn};
    use proptest::prelude::*;
    use undertone_metrics::Direction;

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let text = |node: roxmltree::Node| node.text().unwrap_or("").trim().to_string();
        document.descendants().filter(|node| node.has_tag_name("text")).map(text).collect()
    }

    fn drawn(tasks: usize) -> Vec<Picture> {
        pictures(&fixture::analysis(tasks), &fixture::table(tasks), &fixture::curves(tasks)).unwrap()
    }

    fn svg_of(pictures: &[Picture], file_name: &str) -> String {
        pictures.iter().find(|picture| picture.file_name == file_name).unwrap().svg.clone()
    }

    #[test]
    fn every_picture_is_well_formed_whatever_the_number_of_tasks() {
        for tasks in [1, 2, 5, 8, 12, 32] {
            let pictures = drawn(tasks);
            let files: std::collections::HashSet<_> = pictures.iter().map(|it| it.file_name.clone()).collect();
            for picture in pictures {
                let document = roxmltree::Document::parse(&picture.svg).unwrap();
                assert_eq!(document.root_element().attribute("viewBox"), Some("0 0 640 420"));
            }
            assert_eq!(files.len(), 9);
        }
    }

    /// Returns a text and its box on the sheet: left, top, right, bottom.
    fn text_box(node: &roxmltree::Node) -> (String, [f64; 4]) {
        let number = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let (text, size) = (node.text().unwrap_or("").trim().to_string(), number("font-size"));
        assert!(size >= 7.0, "`{text}` is {size} pixels high");
        let (width, height) = (crate::draw::canvas::text_width(&text, size), 0.9 * size);
        let along = match node.attribute("text-anchor") {
            Some("middle") => -width / 2.0,
            Some("end") => -width,
            _ => 0.0,
        };
        let across = match node.attribute("dy") {
            Some("0.76em") => 0.0,
            Some("0.5ex") => -height / 2.0,
            _ => -height,
        };
        let (x, y) = (number("x"), number("y"));
        let place = match node.attribute("transform") {
            None => [x + along, y + across, x + along + width, y + across + height],
            // A quarter turn against the clock: along is up, across is to the right.
            Some(turn) if turn.starts_with("rotate(270") => {
                [x + across, y - along - width, x + across + height, y - along]
            }
            Some(other) => panic!("{other}"),
        };
        (text, place)
    }

    #[test]
    fn text_stays_on_the_sheet_and_apart() {
        for picture in [1, 2, 5, 6, 8, 12, 20, 32].into_iter().flat_map(drawn) {
            let document = roxmltree::Document::parse(&picture.svg).unwrap();
            let texts = document.descendants().filter(|node| node.has_tag_name("text"));
            // The estimate of the width is an upper one, so one pixel of overlap is allowed.
            let boxes: Vec<_> = texts.map(|node| text_box(&node)).collect();
            for (index, (text, [left, top, right, bottom])) in boxes.iter().enumerate() {
                let inside = *left >= 0.0 && *top >= 0.0 && *right <= 640.0 && *bottom <= 420.0;
                assert!(inside, "{}: `{text}` is at {left}, {top}, {right}, {bottom}", picture.file_name);
                for (other, [l, t, r, b]) in &boxes[..index] {
                    let apart = left + 1.0 > *r || l + 1.0 > *right || top + 1.0 > *b || t + 1.0 > *bottom;
                    assert!(apart, "{}: `{text}` is drawn over `{other}`", picture.file_name);
                }
            }
        }
    }

    #[test]
    fn the_confusion_matrix_shows_counts_and_shares_of_the_row() {
        let analysis = fixture::analysis(5);
        let texts = texts(&svg_of(&drawn(5), "confusion.svg"));
        let row = &analysis.confusion[2];
        assert!(texts.contains(&row[2].to_string()), "{texts:?}");
        let share = row[2] as f64 / row.iter().sum::<usize>() as f64;
        assert!(texts.contains(&crate::draw::canvas::percent(share)), "{texts:?}");
        assert!(texts.contains(&"3 contest-pileup-3".to_string()), "{texts:?}");
    }

    #[test]
    fn far_more_tasks_than_fit_are_still_drawn() {
        let pictures = drawn(100);
        for picture in &pictures {
            roxmltree::Document::parse(&picture.svg).unwrap();
        }
        // The legend of a hundred losses ends with the number of those it leaves out.
        assert!(texts(&svg_of(&pictures, "loss-1.svg")).iter().any(|text| text.ends_with(" more")));
    }

    #[test]
    fn names_are_escaped() {
        let mut analysis = fixture::analysis(2);
        analysis.tasks[0] = "<&\"'>\u{1}".into();
        let pictures = pictures(&analysis, &fixture::table(2), &[]).unwrap();
        let svg = svg_of(&pictures, "confusion.svg");
        assert!(svg.contains("&lt;&amp;") && !svg.contains("<&"), "{svg}");
        assert!(texts(&svg).contains(&"<&\"'>\u{fffd}".to_string()));
    }

    #[test]
    fn a_task_without_samples_says_so() {
        let mut samples = fixture::samples(3);
        samples.retain(|sample| sample.task != 1);
        let analysis = RoutingAnalysis::new(fixture::names(3), &samples).unwrap();
        let pictures = routing_pictures(&analysis).unwrap();
        for name in ["confusion.svg", "usage.svg"] {
            assert!(texts(&svg_of(&pictures, name)).contains(&"no samples".to_string()), "{name}");
        }
    }

    #[test]
    fn what_has_nothing_to_show_is_left_out() {
        let table = MetricsTable::new(vec![], vec![]).unwrap();
        let silent = LossCurves {
            phase: "router".into(),
            losses: vec![Series { name: "loss".into(), points: vec![(0, f64::NAN)] }],
            temperature: vec![],
        };
        let pictures = pictures(&fixture::analysis(2), &table, &[silent]).unwrap();
        assert!(pictures.iter().all(|picture| picture.section == PictureSection::Routing));
        assert_eq!(pictures.len(), 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_names_and_values_give_well_formed_pictures(
            name in "\\PC{0,24}|[\\x00-\\x1f<>&\"']{0,8}",
            values in prop::collection::vec((0u64..1 << 40, prop::num::f64::ANY), 0..40),
        ) {
            let mut analysis = fixture::analysis(2);
            analysis.tasks[1] = name.clone();
            let metric = Metric { name: name.clone(), direction: Direction::Lower };
            let column = TaskColumn { task: name.clone(), primary: name.clone() };
            let mut table = MetricsTable::new(vec![metric], vec![column]).unwrap();
            for (router, (_, value)) in values.iter().enumerate() {
                table.record(&router.to_string(), &name, &name, *value).unwrap();
            }
            let losses = vec![Series { name: name.clone(), points: values.clone() }];
            let curves = [LossCurves { phase: name, losses, temperature: values }];
            for picture in pictures(&analysis, &table, &curves).unwrap() {
                prop_assert!(roxmltree::Document::parse(&picture.svg).is_ok(), "{}", picture.svg);
            }
        }
    }
}
