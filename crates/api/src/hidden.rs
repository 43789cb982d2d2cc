//! Users as numbers, where `api.hide_users` is set.
//!
//! Names of users are in two columns: `job_user` of `jobs`, and `holder` of `gpu_usage`. They become numbers where the gateway takes rows
//! from its history, so that no path of the gateway can show a name. Labels of jobs may be names, too: rows have those alone that the
//! settings show (`jobs.labels`).

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, ArrayRef, DictionaryArray, RecordBatch, StringArray, new_null_array};
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Change, Changes, Fleet, History, HistoryStats, Part, QueryError,
    RowPlace, Rows, RowsQuery, TakeRows,
};
use gpuvitals_core::ports::Answer;
use gpuvitals_core::usage::{GpuUse, UseQuery, kept_labels};
use gpuvitals_core::{Batch, Health, Table, causes};

/// The columns with names.
const USER: &str = "job_user";
const HOLDER: &str = "holder";
const LABELS: &str = "labels";
/// What a holder begins with that is a user.
const USER_HOLDER: &str = "user:";
/// Most rows of one instant among which a place is looked for.
const PLACES_MAX: usize = 200_000;
/// No number of a user on a host is as large.
const MADE_FROM: u64 = 1 << 32;

/// What is shown for the name of a user: a number that this name has everywhere and always. It is not that on the host, which hooks tell of
/// some jobs and nobody of a process: one person would be two. A name that is a number already stays.
fn shown_user(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        name.to_owned()
    } else {
        made_number(name).to_string()
    }
}

/// A number of a name, above all numbers of users on hosts: FNV-1a, cut so that JSON can have it.
fn made_number(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    MADE_FROM + (name.bytes().fold(0xcbf2_9ce4_8422_2325, step) >> 16)
}

/// A history whose users are numbers.
#[derive(Debug)]
pub(crate) struct HiddenUsers {
    history: Arc<dyn History>,
    labels: ShownLabels,
}

/// Keys of the labels that are shown.
type ShownLabels = Arc<[Arc<str>]>;

impl HiddenUsers {
    /// Over a history with names. Labels with these keys are shown.
    pub(crate) fn of(history: Arc<dyn History>, labels: ShownLabels) -> Self {
        Self { history, labels }
    }

    async fn shown(&self, mut query: RowsQuery) -> Result<Part<Rows>, QueryError> {
        if let Some(after) = query.after.take() {
            query.after = Some(self.own_place(&query, after).await?);
        }
        let Part { answer: Rows { batch, total }, missing } = self.history.rows(query).await?;
        let batch = batch.as_ref().map(|batch| hidden(batch, &self.labels)).transpose()?;
        Ok(Part { answer: Rows { batch, total }, missing })
    }

    /// A place as the history knows it. Its key may have a holder's number: then its row is looked for by its time. A key of no row is
    /// cut before the name: where rows with a made-up name would stand tells of the names that there are.
    async fn own_place(&self, query: &RowsQuery, shown: RowPlace) -> Result<RowPlace, QueryError> {
        let named_at = shown.key.find(USER_HOLDER).filter(|_| query.table == Table::GpuUsage);
        let Some(without_name) = named_at.and_then(|at| shown.key.get(..at + USER_HOLDER.len())) else {
            return Ok(shown);
        };
        let nowhere = RowPlace { timestamp_ns: shown.timestamp_ns, key: Arc::from(without_name) };
        let at_its_time = RowsQuery {
            start_ns: Some(shown.timestamp_ns),
            end_ns: Some(shown.timestamp_ns),
            metrics: Some(Vec::new()),
            limit: PLACES_MAX,
            offset: 0,
            with_total: false,
            ..query.clone()
        };
        let Part { answer: own, .. } = self.history.rows(at_its_time).await?;
        let Some(batch) = &own.batch else { return Ok(nowhere) };
        let keys = RowKeys::whole(hidden(batch, &self.labels)?.records(), Table::GpuUsage)
            .map_err(QueryError::failed)?;
        let is_it = |id: &u32| keys.keys.get(*id as usize) == Some(&shown.key);
        let row = keys.ids.iter().position(is_it);
        match row.and_then(|row| own.place(row)) {
            Some(place) => Ok(place),
            // It may be among the others: with no place of its own, whoever turns pages would be given the same page again and again.
            None if batch.rows() >= PLACES_MAX => {
                let max = PLACES_MAX as u64;
                Err(QueryError::TooManyRows { rows: max.saturating_add(1), max })
            }
            None => Ok(nowhere),
        }
    }
}

impl History for HiddenUsers {
    fn version(&self) -> u64 {
        self.history.version()
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        self.history.fleet()
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        if has_users(query.table) { Box::pin(self.shown(query)) } else { self.history.rows(query) }
    }

    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        if !has_users(query.table) {
            return self.history.sweep(query, take);
        }
        let labels = Arc::clone(&self.labels);
        self.history.sweep(query, Arc::new(move |batch: &Batch| take(&hidden(batch, &labels)?)))
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        self.history.buckets(query)
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        self.history.usage(query)
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(HiddenChanges { changes: self.history.changes(), labels: Arc::clone(&self.labels) })
    }

    fn health(&self) -> Health {
        self.history.health()
    }

    fn stats(&self) -> HistoryStats {
        self.history.stats()
    }
}

/// Changes whose users are numbers.
struct HiddenChanges {
    changes: Box<dyn Changes>,
    labels: ShownLabels,
}

impl Changes for HiddenChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async move {
            Some(match self.changes.next().await? {
                Change::Rows(rows) => {
                    Change::Rows(rows.iter().filter_map(|batch| shown_batch(batch, &self.labels)).collect())
                }
                missed @ Change::Missed(_) => missed,
            })
        })
    }
}

/// A batch without names of users; none if they cannot be hidden, which would be a defect.
fn shown_batch(batch: &Batch, labels: &[Arc<str>]) -> Option<Batch> {
    if !has_users(batch.table()) {
        return Some(batch.clone());
    }
    let shown = hidden(batch, labels);
    shown.inspect_err(|error| tracing::warn!(reason = causes(error), "rows with users are not shown")).ok()
}

fn has_users(table: Table) -> bool {
    matches!(table, Table::Jobs | Table::GpuUsage)
}

/// The same rows with numbers for the names of users, and with these labels alone: the one place where the others are hidden.
fn hidden(batch: &Batch, labels: &[Arc<str>]) -> Result<Batch, QueryError> {
    let shown_holder = |holder: &str| match holder.strip_prefix(USER_HOLDER) {
        Some(name) => format!("{USER_HOLDER}{}", shown_user(name)),
        None => holder.to_owned(),
    };
    let schema = batch.schema();
    let all = schema.fields().iter().zip(batch.records().columns());
    let arrays = all.map(|(field, array)| match (batch.table(), field.name().as_str()) {
        (Table::Jobs, USER) => with_texts(array, shown_user),
        (Table::Jobs, LABELS) => with_labels(array, labels),
        (Table::GpuUsage, HOLDER) => with_texts(array, shown_holder),
        _ => Arc::clone(array),
    });
    let arrays: Vec<ArrayRef> = arrays.collect();
    let records = RecordBatch::try_new(schema, arrays).map_err(QueryError::failed)?;
    let rows = Batch::new(batch.table(), records, batch.origin().clone(), batch.sequence());
    Ok(rows.map_err(QueryError::failed)?.with_absences(batch.absences().to_vec()))
}

/// A column with these texts for its own: each text once, however many rows have it.
fn with_texts(array: &ArrayRef, shown: impl Fn(&str) -> String) -> ArrayRef {
    let Some((texts, own)) = texts_of(array) else {
        return new_null_array(array.data_type(), array.len());
    };
    let shown: StringArray = own.iter().map(|text| text.map(&shown)).collect();
    Arc::new(texts.with_values(Arc::new(shown)))
}

/// A column of labels with those of these keys; a row that has none of them has none.
fn with_labels(array: &ArrayRef, keys: &[Arc<str>]) -> ArrayRef {
    let Some((texts, own)) = texts_of(array) else {
        return new_null_array(array.data_type(), array.len());
    };
    let kept: Vec<Option<String>> = own.iter().map(|text| kept_labels(text?, keys)).collect();
    let of_row = |key: Option<i32>| kept.get(usize::try_from(key?).ok()?)?.as_deref();
    Arc::new(texts.keys().iter().map(of_row).collect::<DictionaryArray<Int32Type>>())
}

/// A column of texts: their numbers by row, and the texts.
fn texts_of(array: &ArrayRef) -> Option<(&DictionaryArray<Int32Type>, &StringArray)> {
    let texts = array.as_dictionary_opt::<Int32Type>()?;
    Some((texts, texts.values().as_string_opt::<i32>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_always_the_same_number_and_that_of_no_user_of_a_host() {
        assert_eq!(shown_user("4711"), "4711");
        let made: u64 = shown_user("kim").parse().unwrap();
        assert_eq!(made.to_string(), shown_user("kim"));
        assert!((MADE_FROM..1 << 53).contains(&made), "{made}");
        assert_ne!(shown_user("kim"), shown_user("kin"));
    }
}
