//! Tables for people.

use serde_json::Value;

/// A value of an answer as it stands in a table.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        // Texts of foreign columns may hold what a terminal obeys.
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        other => other.to_string(),
    }
}

/// Rows in columns as wide as their widest cell.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|row| row.get(c)).map(|t| t.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}
