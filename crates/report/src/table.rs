//! Comparison of routers: the metrics of each router on each task.

use crate::error::AnalysisError;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use undertone_metrics::{Direction, Interval};

/// Maximum number of columns in the terminal; wider tables are transposed.
const WIDEST_MARKDOWN: usize = 8;

/// A metric and its direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Name of the metric.
    pub name: String,
    /// Whether lower or higher values are better.
    pub direction: Direction,
}

/// Column of a task in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskColumn {
    /// Name of the task.
    pub task: String,
    /// Primary metric of the task.
    pub primary: String,
}

/// Metrics by router (learned, oracle, uniform, …) and task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsTable {
    metrics: Vec<Metric>,
    tasks: Vec<TaskColumn>,
    rows: Vec<Row>,
}

/// Values of one router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    router: String,
    /// Value by task and metric; `None` for a measured value that is not finite.
    cells: BTreeMap<String, BTreeMap<String, Option<f64>>>,
    /// Confidence intervals by task and metric. Absent from older tables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    intervals: BTreeMap<String, BTreeMap<String, Interval>>,
}

impl MetricsTable {
    /// Creates a table without rows.
    ///
    /// # Errors
    /// If a task's primary metric is not among `metrics`.
    pub fn new(metrics: Vec<Metric>, tasks: Vec<TaskColumn>) -> Result<Self, AnalysisError> {
        let table = Self { metrics, tasks, rows: vec![] };
        for task in &table.tasks {
            table.metric(&task.primary)?;
        }
        Ok(table)
    }

    /// Records the value of `metric` for `router` on `task`; routers keep the order in which they first appear. A value
    /// that is not finite is kept and shown as "n/a".
    ///
    /// # Errors
    /// If the table has no such task or metric.
    pub fn record(&mut self, router: &str, task: &str, metric: &str, value: f64) -> Result<(), AnalysisError> {
        self.metric(metric)?;
        if !self.tasks.iter().any(|column| column.task == task) {
            let known = self.tasks.iter().map(|column| column.task.as_str()).collect::<Vec<_>>().join(", ");
            return Err(AnalysisError::Unknown { kind: "task", name: task.into(), known });
        }
        let index = self.rows.iter().position(|row| row.router == router).unwrap_or_else(|| {
            self.rows.push(Row { router: router.into(), cells: BTreeMap::new(), intervals: BTreeMap::new() });
            self.rows.len() - 1
        });
        let cells = self.rows[index].cells.entry(task.into()).or_default();
        cells.insert(metric.into(), value.is_finite().then_some(value));
        Ok(())
    }

    /// Adds the confidence interval of a value that is [recorded](Self::record); of others there is none.
    pub fn record_interval(&mut self, router: &str, task: &str, metric: &str, interval: Interval) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.router == router)
            && row.get(task, metric).is_some()
        {
            row.intervals.entry(task.into()).or_default().insert(metric.into(), interval);
        }
    }

    /// Returns the metric of that name.
    ///
    /// # Errors
    /// If the table has no such metric.
    pub fn metric(&self, name: &str) -> Result<&Metric, AnalysisError> {
        self.metrics.iter().find(|metric| metric.name == name).ok_or_else(|| {
            let known = self.metrics.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>().join(", ");
            AnalysisError::Unknown { kind: "metric", name: name.into(), known }
        })
    }

    /// Returns the names of the routers, in order.
    pub fn routers(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.router.as_str())
    }

    /// Returns the tasks, in order.
    pub fn tasks(&self) -> &[TaskColumn] {
        &self.tasks
    }

    /// Returns the value of a router on a task; `None` if it was not measured or is not finite.
    pub fn value(&self, router: &str, task: &str, metric: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.router == router)?.get(task, metric).flatten()
    }

    /// Returns the mean of the tasks' primary metrics. `None` if one is missing, or if lower is better for some and
    /// higher for others, because such a mean would be meaningless.
    pub fn mean(&self, router: &str) -> Option<f64> {
        self.mean_direction()?;
        let row = self.rows.iter().find(|row| row.router == router)?;
        let sum = self.tasks.iter().map(|column| row.get(&column.task, &column.primary).flatten()).sum::<Option<f64>>();
        sum.map(|sum| sum / self.tasks.len() as f64)
    }

    /// Returns the table as Markdown: one row per router, or one per task and metric if that would be too wide for a
    /// terminal. The best value of each column is bold.
    pub fn markdown(&self) -> String {
        let columns = self.columns();
        let mut grid = vec![vec!["Router".to_string()]];
        grid[0].extend(columns.iter().map(|column| format!("{}: {}", column.group, column.metric).replace('|', "\\|")));
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = vec![row.router.replace('|', "\\|")];
            line.extend(columns.iter().map(|column| {
                let text = column.text(index);
                let text = if column.is_best(index) { format!("**{text}**") } else { text };
                column.interval(index).map_or(text.clone(), |interval| format!("{text} {interval}"))
            }));
            grid.push(line);
        }
        let wide = columns.iter().map(|column| if column.has_intervals() { 2 } else { 1 }).sum::<usize>();
        if wide > WIDEST_MARKDOWN {
            grid = (0..=columns.len()).map(|column| grid.iter().map(|line| line[column].clone()).collect()).collect();
            grid[0][0] = "Task".into();
        }
        markdown_grid(&grid)
    }

    /// Returns the table as HTML, one row per router; the best value of each column is bold. All text is escaped.
    pub fn html(&self) -> String {
        self.markup().into_string()
    }

    pub(crate) fn markup(&self) -> Markup {
        let columns = self.columns();
        html! {
            div.wide {
                table {
                    thead {
                        tr {
                            th rowspan="2" { "Router" }
                            @for group in columns.chunk_by(|left, right| left.group == right.group) {
                                th.group colspan=(group.len()) { (group[0].group) }
                            }
                        }
                        tr { @for column in &columns { th.number { (column.metric) } } }
                    }
                    tbody {
                        @for (index, row) in self.rows.iter().enumerate() {
                            tr {
                                th scope="row" { (row.router) }
                                @for column in &columns {
                                    td.number.best[column.is_best(index)] {
                                        (column.text(index))
                                        @if let Some(interval) = column.interval(index) { small { (interval) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the direction of the primary metrics, if they all have the same.
    fn mean_direction(&self) -> Option<Direction> {
        let mut directions = self.tasks.iter().map(|column| self.metric(&column.primary).ok().map(|it| it.direction));
        let first = directions.next()??;
        directions.all(|direction| direction == Some(first)).then_some(first)
    }

    /// Returns the mean, then one column per task and metric that any router has, each task's primary metric first.
    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![];
        if let Some(direction) = self.mean_direction() {
            let values = self.rows.iter().map(|row| self.mean(&row.router).map(Some)).collect();
            columns.push(Column::new("all tasks", "mean", direction, values, vec![None; self.rows.len()]));
        }
        for TaskColumn { task, primary } in &self.tasks {
            let mut metrics: Vec<&Metric> = self.metrics.iter().collect();
            metrics.sort_by_key(|metric| metric.name != *primary);
            for Metric { name, direction } in metrics {
                let values: Vec<_> = self.rows.iter().map(|row| row.get(task, name)).collect();
                if values.iter().any(Option::is_some) {
                    let intervals = self.rows.iter().map(|row| row.intervals.get(task)?.get(name).copied()).collect();
                    columns.push(Column::new(task, name, *direction, values, intervals));
                }
            }
        }
        columns
    }
}

impl Row {
    fn get(&self, task: &str, metric: &str) -> Option<Option<f64>> {
        self.cells.get(task)?.get(metric).copied()
    }
}

/// A column as it is shown: for each row, whether it was measured and whether it is finite.
struct Column {
    /// Name of the task, or a label for all of them.
    group: String,
    /// Name of the metric, with its direction.
    metric: String,
    values: Vec<Option<Option<f64>>>,
    intervals: Vec<Option<Interval>>,
    best: Option<f64>,
    decimals: usize,
}

impl Column {
    fn new(
        group: &str,
        metric: &str,
        direction: Direction,
        values: Vec<Option<Option<f64>>>,
        intervals: Vec<Option<Interval>>,
    ) -> Self {
        let finite: Vec<f64> = values.iter().copied().flatten().flatten().collect();
        let best = finite.iter().copied().reduce(match direction {
            Direction::Lower => f64::min,
            Direction::Higher => f64::max,
        });
        let largest = finite.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let decimals = if largest < 10.0 { 4 } else { 2 };
        let metric = format!("{metric} {}", direction.arrow());
        Self { group: group.into(), metric, values, intervals, best, decimals }
    }

    fn has_intervals(&self) -> bool {
        self.intervals.iter().any(Option::is_some)
    }

    /// Returns the confidence interval of a row's value as text, if there is one.
    fn interval(&self, row: usize) -> Option<String> {
        let Interval { low, high } = self.intervals[row]?;
        Some(format!("[{low:.*}, {high:.*}]", self.decimals, self.decimals))
    }

    fn text(&self, row: usize) -> String {
        match self.values[row] {
            Some(Some(value)) => format!("{value:.*}", self.decimals),
            Some(None) => "n/a".into(),
            None => "–".into(),
        }
    }

    /// Whether the row is the best of several.
    fn is_best(&self, row: usize) -> bool {
        self.values.len() > 1 && self.best.is_some() && self.values[row].flatten() == self.best
    }
}

/// Returns rows of cells as Markdown, with columns padded so that they align in a terminal.
pub(crate) fn markdown_grid(grid: &[Vec<String>]) -> String {
    let columns = grid[0].len();
    let widths: Vec<usize> =
        (0..columns).map(|column| grid.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, line) in grid.iter().enumerate() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            text += &if column == 0 { format!("| {cell:<width$} ") } else { format!("| {cell:>width$} ") };
        }
        text += "|\n";
        if index == 0 {
            for (column, &width) in widths.iter().enumerate() {
                text += &if column == 0 {
                    format!("|{}", "-".repeat(width + 2))
                } else {
                    format!("|{}:", "-".repeat(width + 1))
                };
            }
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, direction: Direction) -> Metric {
        Metric { name: name.into(), direction }
    }

    fn column(task: &str, primary: &str) -> TaskColumn {
        TaskColumn { task: task.into(), primary: primary.into() }
    }

    fn table() -> MetricsTable {
        let metrics = vec![metric("wer", Direction::Lower), metric("cer", Direction::Lower)];
        let mut table = MetricsTable::new(metrics, vec![column("clean", "cer"), column("noisy", "wer")]).unwrap();
        for (router, task, name, value) in [
            ("learned", "clean", "cer", 0.1),
            ("learned", "clean", "wer", 0.2),
            ("learned", "noisy", "wer", 0.3),
            ("uniform", "clean", "cer", 0.4),
            ("uniform", "noisy", "wer", f64::NAN),
        ] {
            table.record(router, task, name, value).unwrap();
        }
        table
    }

    #[test]
    fn the_mean_is_over_the_primary_metrics() {
        let table = table();
        assert_eq!(table.mean("learned"), Some(0.2));
        assert_eq!(table.mean("uniform"), None);
        assert_eq!(table.mean("oracle"), None);
        assert_eq!(table.value("learned", "clean", "wer"), Some(0.2));
        assert_eq!(table.value("uniform", "noisy", "wer"), None);
    }

    #[test]
    fn metrics_of_both_directions_have_no_mean() {
        let metrics = vec![metric("wer", Direction::Lower), metric("accuracy", Direction::Higher)];
        let mut table = MetricsTable::new(metrics, vec![column("a", "wer"), column("b", "accuracy")]).unwrap();
        table.record("learned", "a", "wer", 0.5).unwrap();
        table.record("learned", "b", "accuracy", 0.5).unwrap();
        assert_eq!(table.mean("learned"), None);
        assert!(!table.markdown().contains("mean"));
    }

    #[test]
    fn markdown_aligns_and_sets_the_best_in_bold() {
        let expected = "\
| Router  | all tasks: mean ↓ | clean: cer ↓ | clean: wer ↓ | noisy: wer ↓ |
|---------|------------------:|-------------:|-------------:|-------------:|
| learned |        **0.2000** |   **0.1000** |   **0.2000** |   **0.3000** |
| uniform |                 – |       0.4000 |            – |          n/a |
";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn intervals_are_shown_beside_their_values() {
        let mut table = table();
        table.record_interval("learned", "clean", "cer", Interval { low: 0.05, high: 0.15 });
        table.record_interval("oracle", "clean", "cer", Interval { low: 0.0, high: 1.0 });
        assert!(table.markdown().contains("| **0.1000** [0.0500, 0.1500] |"), "{}", table.markdown());
        assert!(table.html().contains("0.1000<small>[0.0500, 0.1500]</small>"), "{}", table.html());
        assert!(!table.markdown().contains("oracle"), "an interval without a value is none");
        let json = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<MetricsTable>(&json).unwrap(), table);
    }

    #[test]
    fn a_wide_table_is_turned_in_the_terminal() {
        let tasks = (0..9).map(|task| column(&format!("t{task}"), "accuracy")).collect();
        let mut table = MetricsTable::new(vec![metric("accuracy", Direction::Higher)], tasks).unwrap();
        for task in 0..9 {
            table.record("a|b", &format!("t{task}"), "accuracy", 90.0).unwrap();
        }
        let markdown = table.markdown();
        assert!(markdown.starts_with("| Task              |  a\\|b |\n"), "{markdown}");
        assert!(markdown.contains("| t8: accuracy ↑    | 90.00 |\n"), "{markdown}");
    }

    #[test]
    fn higher_is_better_where_the_metric_says_so() {
        let mut table =
            MetricsTable::new(vec![metric("f1", Direction::Higher)], vec![column("tags <b>", "f1")]).unwrap();
        table.record("low", "tags <b>", "f1", 0.25).unwrap();
        table.record("high & up", "tags <b>", "f1", 0.75).unwrap();
        let html = table.html();
        assert!(
            html.contains(r#"<th class="group" colspan="1">tags &lt;b&gt;</th>"#) && html.contains("high &amp; up"),
            "{html}"
        );
        assert!(html.contains(r#"<td class="number best">0.7500</td>"#), "{html}");
        assert!(html.contains(r#"<td class="number">0.2500</td>"#), "{html}");
        roxmltree::Document::parse(&html).unwrap();
    }

    #[test]
    fn an_unknown_task_or_metric_is_refused_with_what_there_is() {
        let error = table().record("learned", "clear", "cer", 0.1).unwrap_err().to_string();
        assert_eq!(error, "the metrics table has no task `clear`: it has clean, noisy");
        let error = table().record("learned", "clean", "bleu", 0.1).unwrap_err().to_string();
        assert_eq!(error, "the metrics table has no metric `bleu`: it has wer, cer");
        assert!(MetricsTable::new(vec![], vec![column("a", "wer")]).is_err());
    }

    #[test]
    fn json_gives_the_same_table_back() {
        let table = table();
        let json = serde_json::to_string(&table).unwrap();
        assert!(json.contains(r#""direction":"lower""#) && json.contains(r#""wer":null"#), "{json}");
        assert_eq!(serde_json::from_str::<MetricsTable>(&json).unwrap(), table);
    }
}
