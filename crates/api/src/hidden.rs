//! Users as numbers, where `api.hide_users` is set.
//!
//! Names of users are in two columns: `job_user` of `jobs`, and `holder` of `gpu_usage`. They become numbers where the gateway takes rows
//! from its history, so that no path of the gateway can show a name.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, ArrayRef, DictionaryArray, RecordBatch, new_null_array};
use arrow_schema::{FieldRef, Schema};
use gpuvitals_core::batch::{RowKeys, Value, numbers, text_at};
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Change, Changes, Fleet, History, HistoryStats, Part, QueryError,
    RowPlace, Rows, RowsQuery,
};
use gpuvitals_core::ports::Answer;
use gpuvitals_core::usage::{GpuUse, UseQuery};
use gpuvitals_core::{Batch, Health, Table, causes};

/// The columns with names.
const USER: &str = "job_user";
const HOLDER: &str = "holder";
/// The user's number on the host, where it is known.
const UID: &str = "uid";
/// What a holder begins with that is a user.
const USER_HOLDER: &str = "user:";
/// Most rows of one instant among which a place is looked for.
const PLACES_MAX: usize = 200_000;
/// No number of a user on a host is as large.
const MADE_FROM: u64 = 1 << 32;

/// What is shown for the name of a user: the number on the host, or else one that this name has everywhere and always. A name that is a
/// number already stays.
fn shown_user(name: &str, uid: Option<i64>) -> String {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.to_owned();
    }
    uid.map_or_else(|| made_number(name).to_string(), |uid| uid.to_string())
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
}

impl HiddenUsers {
    /// Over a history with names.
    pub(crate) fn of(history: Arc<dyn History>) -> Self {
        Self { history }
    }

    async fn shown(&self, mut query: RowsQuery) -> Result<Part<Rows>, QueryError> {
        if let Some(after) = query.after.take() {
            query.after = Some(self.own_place(&query, after).await?);
        }
        let names = |wanted: &[String], name: &str| wanted.iter().any(|column| column == name);
        let wanted = query.metrics.as_mut().filter(|wanted| names(wanted, USER) && !names(wanted, UID));
        // It is read beside the name, and not shown unless it was asked for.
        let hides_uid = query.table == Table::Jobs && wanted.is_some();
        if let Some(wanted) = wanted.filter(|_| hides_uid) {
            wanted.push(UID.to_owned());
        }
        let Part { answer: Rows { batch, total }, missing } = self.history.rows(query).await?;
        let mut batch = batch.as_ref().map(hidden).transpose()?;
        if hides_uid && let Some(with_uid) = &batch {
            let rest = rebuilt(with_uid, |name, array| (name != UID).then(|| Arc::clone(array)))?;
            batch = Some(rest);
        }
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
        let keys = RowKeys::whole(hidden(batch)?.records(), Table::GpuUsage).map_err(QueryError::failed)?;
        let is_it = |id: &u32| keys.keys.get(*id as usize) == Some(&shown.key);
        let row = keys.ids.iter().position(is_it);
        Ok(row.and_then(|row| own.place(row)).unwrap_or(nowhere))
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

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        self.history.buckets(query)
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        self.history.usage(query)
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(HiddenChanges(self.history.changes()))
    }

    fn health(&self) -> Health {
        self.history.health()
    }

    fn stats(&self) -> HistoryStats {
        self.history.stats()
    }
}

/// Changes whose users are numbers.
struct HiddenChanges(Box<dyn Changes>);

impl Changes for HiddenChanges {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async move {
            Some(match self.0.next().await? {
                Change::Rows(rows) => Change::Rows(rows.iter().filter_map(shown_batch).collect()),
                missed @ Change::Missed(_) => missed,
            })
        })
    }
}

/// A batch without names of users; none if they cannot be hidden, which would be a defect.
fn shown_batch(batch: &Batch) -> Option<Batch> {
    if !has_users(batch.table()) {
        return Some(batch.clone());
    }
    let shown = hidden(batch);
    shown.inspect_err(|error| tracing::warn!(reason = causes(error), "rows with users are not shown")).ok()
}

fn has_users(table: Table) -> bool {
    matches!(table, Table::Jobs | Table::GpuUsage)
}

/// The same rows with numbers for the names of users: the one place where these are hidden.
fn hidden(batch: &Batch) -> Result<Batch, QueryError> {
    let uids = batch.records().column_by_name(UID).and_then(numbers);
    let uid = |row: usize| match uids?.value(row)? {
        Value::Int(uid) => Some(uid),
        Value::Float32(_) | Value::Float(_) => None,
    };
    let shown_holder = |_: usize, holder: &str| match holder.strip_prefix(USER_HOLDER) {
        Some(name) => format!("{USER_HOLDER}{}", shown_user(name, None)),
        None => holder.to_owned(),
    };
    rebuilt(batch, |name, array| {
        Some(match (batch.table(), name) {
            (Table::Jobs, USER) => with_texts(array, |row, name| shown_user(name, uid(row))),
            (Table::GpuUsage, HOLDER) => with_texts(array, shown_holder),
            _ => Arc::clone(array),
        })
    })
}

/// A column with these texts for its own.
fn with_texts(array: &ArrayRef, shown: impl Fn(usize, &str) -> String) -> ArrayRef {
    let Some(texts) = array.as_dictionary_opt::<Int32Type>() else {
        return new_null_array(array.data_type(), array.len());
    };
    let shown = (0..texts.len()).map(|row| text_at(texts, row).map(|text| shown(row, text)));
    let shown: Vec<Option<String>> = shown.collect();
    let shown: DictionaryArray<Int32Type> = shown.iter().map(Option::as_deref).collect();
    Arc::new(shown)
}

/// The same rows with other columns; none: without the column.
fn rebuilt(batch: &Batch, column: impl Fn(&str, &ArrayRef) -> Option<ArrayRef>) -> Result<Batch, QueryError> {
    let schema = batch.schema();
    let all = schema.fields().iter().zip(batch.records().columns());
    let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) =
        all.filter_map(|(field, array)| Some((Arc::clone(field), column(field.name(), array)?))).unzip();
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let records = RecordBatch::try_new(Arc::new(schema), arrays).map_err(QueryError::failed)?;
    let rows = Batch::new(batch.table(), records, batch.origin().clone(), batch.sequence());
    Ok(rows.map_err(QueryError::failed)?.with_absences(batch.absences().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_the_number_on_the_host_or_one_that_no_user_of_a_host_has() {
        assert_eq!(shown_user("kim", Some(1_001)), "1001");
        assert_eq!(shown_user("4711", None), "4711");
        let made: u64 = shown_user("kim", None).parse().unwrap();
        assert_eq!(made.to_string(), shown_user("kim", None), "it is always the same");
        assert!((MADE_FROM..1 << 53).contains(&made), "{made}");
        assert_ne!(shown_user("kim", None), shown_user("kin", None));
    }
}
