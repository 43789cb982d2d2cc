//! Every field that the tool lists is read, or `docs/nvidia.md` says why not.

use std::path::Path;

use gpuvitals_sources::dialect::nvidia_smi::parse_query_csv;

use super::files;

/// The names of the fields in the captured lists: a line has one name, or two of one meaning.
fn listed() -> Vec<String> {
    let lists = files("help-query-gpu", ".txt");
    let lines = lists.iter().flat_map(|(_, text)| text.lines());
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Whether a column or the identity of a GPU comes of this field.
fn is_read(field: &str) -> bool {
    let other = if field == "index" { "uuid" } else { "index" };
    let gpu = |cells: &str, fields: &[&str]| parse_query_csv(cells, fields).gpus.pop().unwrap_or_default();
    let nothing = gpu("0\n", &[other]);
    // A number, and one with a point, as a compute capability has it.
    ["0, 1\n", "0, 9.0\n"].into_iter().any(|cells| gpu(cells, &[other, field]) != nothing)
}

/// The fields in the first column of the table of those that are not read; `*` stands for any letters.
fn excused(document: &str) -> Vec<String> {
    let (_, table) = document.split_once("## Fields of nvidia-smi that are not read\n").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|--")).skip(1);
    let cells = rows.take_while(|line| line.starts_with('|')).map(|line| line.split('|').nth(1).unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn is_meant(pattern: &str, field: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| field.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn every_field_is_read_or_the_document_says_why_not() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nvidia.md");
    let excused = excused(&std::fs::read_to_string(document).unwrap());
    let listed = listed();
    assert!(listed.len() > 500, "{}", listed.len());
    let is_excused = |field: &str| excused.iter().any(|pattern| is_meant(pattern, field));
    let (both, neither): (Vec<&String>, Vec<&String>) =
        listed.iter().filter(|field| is_read(field) == is_excused(field)).partition(|field| is_read(field));
    assert!(both.is_empty() && neither.is_empty(), "read and excused: {both:?}; neither: {neither:?}");
    for pattern in &excused {
        assert!(listed.iter().any(|field| is_meant(pattern, field)), "{pattern} is the name of no field");
    }
}
