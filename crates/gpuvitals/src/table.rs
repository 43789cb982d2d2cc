//! Tables for people.

use std::io::IsTerminal;

use serde_json::Value;

/// A value of an answer, as text for a table.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        // Texts of foreign columns may contain terminal escapes.
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        other => other.to_string(),
    }
}

/// Rows in columns as wide as their widest cell.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    with_numbers(rows, usize::MAX)
}

/// The same, with the columns from `first` on right-aligned: numbers.
pub(crate) fn with_numbers(rows: &[Vec<String>], first: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|row| row.get(c)).map(|t| t.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let padded = |(at, (cell, width)): (usize, (&String, &usize))| {
            if at < first { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(padded).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// Width of the terminal on standard output, from `COLUMNS` if it is set; none for a pipe or file.
pub(crate) fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let set = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    set.or_else(|| Some(crossterm::terminal::size().ok()?.0.into())).filter(|width| *width > 0)
}

/// A text whose lines are cut at `width` columns; a line at the end reports this.
pub(crate) fn fitted(text: String, width: Option<usize>) -> String {
    let Some(width) = width.filter(|width| text.lines().any(|line| line.chars().count() > *width)) else {
        return text;
    };
    let cut = |line: &str| match line.char_indices().nth(width) {
        None => format!("{line}\n"),
        Some(_) => format!("{}…\n", line.chars().take(width.saturating_sub(1)).collect::<String>()),
    };
    let lines: String = text.lines().map(cut).collect();
    lines + "… lines are cut to the terminal; a pipe (| cat) or --json shows them whole\n"
}
