//! The crates as a table.

/// A package in the table.
#[derive(Debug)]
pub struct Row {
    pub name: String,
    /// Sources, and the lines of all and of the longest.
    pub files: usize,
    pub lines: usize,
    pub longest: usize,
    /// Sets of files, or of modules right below the root, that need each other.
    pub circles: usize,
    /// The packages of the workspace that it depends on.
    pub needs: Vec<String>,
}

/// One line for each package, and one for all.
pub fn table(rows: &[Row]) -> String {
    let line = |name: &str, files: usize, lines: usize, longest: usize, circles: usize, needs: &str| {
        let line = format!("{name:<12}  {files:>5}  {lines:>6}  {longest:>7}  {circles:>7}  {needs}");
        format!("{}\n", line.trim_end())
    };
    let mut text = format!("{:<12}  files   lines  longest  circles  depends on\n", "crate");
    for row in rows {
        text += &line(&row.name, row.files, row.lines, row.longest, row.circles, &row.needs.join(", "));
    }
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum();
    let longest = rows.iter().map(|row| row.longest).max().unwrap_or(0);
    text + &line("all", sum(|row| row.files), sum(|row| row.lines), longest, sum(|row| row.circles), "")
}
