//! Which rows a question is about, as the condition of a statement.

use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::history::{RowPlace, RowsQuery, Selector};
use tokio_postgres::GenericClient;

use crate::error::PostgresError;
use crate::names::{Names, selected};

/// Rows of some GPUs, or all, in a range of time with both ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) gpus: &'a [Arc<str>],
    pub(crate) selector: &'a Selector,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
}

/// The condition for rows of a table that is called `e`, with the lists of numbers that are its parameters.
pub(crate) struct Condition {
    pub(crate) sql: String,
    pub(crate) numbers: Vec<Vec<i32>>,
}

impl Condition {
    /// None if there can be no row.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn of(
        client: &impl GenericClient,
        names: &Names,
        Scope { gpus, selector, start_ns, end_ns }: Scope<'_>,
    ) -> Result<Option<Self>, PostgresError> {
        let mut sql = format!("WHERE e.timestamp_ns BETWEEN {start_ns} AND {end_ns}");
        let mut numbers = Vec::new();
        if !gpus.is_empty() {
            numbers.push(names.known_subjects(client, gpus).await?);
            sql += " AND e.subject_id = ANY($1)";
        }
        if !selector.is_empty() {
            numbers.push(selected(client, selector).await?);
            // A join: with many identities it is faster than a list, which version 13 compares one by one.
            sql = format!("{sql} AND e.identity_id IN (SELECT unnest(${}::int4[]))", numbers.len());
        }
        let is_possible = numbers.iter().all(|numbers| !numbers.is_empty());
        Ok(is_possible.then_some(Self { sql, numbers }))
    }
}

/// The key of a row but its time, in the order of answers. The subject is `s`.
pub(crate) fn key(table: Table) -> Vec<String> {
    let rest = table.key().map(|column| match column.column_type {
        None => format!("e.{} COLLATE \"C\"", column.name),
        Some(_) => format!("e.{}", column.name),
    });
    std::iter::once("s.name COLLATE \"C\"".to_owned()).chain(rest).collect()
}

/// The condition for rows behind a place, with its parameters, which come after so many others.
pub(crate) fn behind(query: &RowsQuery, after: &RowPlace, others: usize) -> (String, Vec<String>) {
    // The texts as `RowKeys::whole` puts them together.
    let mut given = after.key.split('\0').map(str::to_owned);
    let types = std::iter::once(None).chain(query.table.key().map(|column| column.column_type));
    let (mut places, mut texts) = (Vec::new(), Vec::new());
    for (column_type, place) in types.zip(others + 1..) {
        let text = given.next().unwrap_or_default();
        // Numbers of a key are whole.
        let (cast, text) = match column_type {
            None => ("", text),
            Some(_) => ("::int8", text.parse().unwrap_or(i64::MIN).to_string()),
        };
        places.push(format!("${place}::text{cast}"));
        texts.push(text);
    }
    let (time_ns, key) = (after.timestamp_ns, key(query.table).join(", "));
    let (later, until) = if query.newest_first { ("<", "<=") } else { (">", ">=") };
    let sql = format!(
        " AND e.timestamp_ns {until} {time_ns} AND (e.timestamp_ns {later} {time_ns} OR ({key}) > ({}))",
        places.join(", ")
    );
    (sql, texts)
}
