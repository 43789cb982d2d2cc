//! Which rows of a row group can be in the time of a scope, by the page index.

use std::ops::Range;

use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use super::scope::Scope;

/// Those of the wanted rows (ascending ranges) whose pages may have times in scope; all of them without a page index.
pub(crate) fn in_time(
    metadata: &ParquetMetaData,
    row_group: usize,
    wanted: Vec<Range<usize>>,
    scope: &Scope,
) -> Vec<Range<usize>> {
    let Some(index) = metadata.page_index().map(AsRef::as_ref) else { return wanted };
    let leaf = |name: &str| {
        let columns = metadata.file_metadata().schema_descr().columns();
        columns.iter().position(|column| column.path().parts().first().is_some_and(|part| part == name))
    };
    if let Some(column) = leaf(TIMESTAMP_COLUMN)
        && let Some(ColumnIndexMetaData::INT64(pages)) = index.column_index(row_group, column)
        && let Some(places) = index.page_locations(row_group, column)
    {
        let bounds = pages.min_values_iter().zip(pages.max_values_iter());
        let meets = bounds.map(|bounds| match bounds {
            (Some(&min), Some(&max)) => scope.meets_times(min, max),
            _ => true,
        });
        return both(&wanted, &page_rows(places, meets));
    }
    wanted
}

/// Rows of the pages that meet; the last page goes on without end.
fn page_rows(pages: &[PageLocation], meets: impl Iterator<Item = bool>) -> Vec<Range<usize>> {
    let first = |page: usize| {
        let first = pages.get(page).and_then(|page| usize::try_from(page.first_row_index).ok());
        first.unwrap_or(usize::MAX)
    };
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (page, _) in meets.enumerate().filter(|(_, meets)| *meets) {
        push(&mut ranges, first(page)..first(page + 1));
    }
    ranges
}

/// Appends a range, joined to the last one if it follows.
pub(crate) fn push(ranges: &mut Vec<Range<usize>>, next: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end >= next.start => last.end = last.end.max(next.end),
        _ if next.is_empty() => {}
        _ => ranges.push(next),
    }
}

/// Rows that are in both.
pub(crate) fn both(a: &[Range<usize>], b: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    let mut ranges = Vec::new();
    while let (Some(x), Some(y)) = (left.peek(), right.peek()) {
        push(&mut ranges, x.start.max(y.start)..x.end.min(y.end).max(x.start.max(y.start)));
        if x.end <= y.end {
            left.next()
        } else {
            right.next()
        };
    }
    ranges
}
