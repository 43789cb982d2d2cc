//! The newest rows of a GPU, and the bytes that they take.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::ArrayRef;
use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::history::ExtraValue;
use gpuvitals_core::{Batch, Identity, IdentityColumn, MetricId};

/// Bytes of a row beside its values and its identity, with its place in the map.
const ROW_BYTES: usize = 160;
/// Bytes of an identity beside its texts, with its place in the map.
const IDENTITY_BYTES: usize = 300;
/// Bytes of a shared text beside its characters.
const TEXT_BYTES: usize = 24;

/// The newest rows of a GPU.
#[derive(Debug, Default)]
pub(super) struct GpuRows {
    /// The rows, by the time of each.
    pub(super) rows: BTreeMap<i64, Arc<Row>>,
    /// Of the rows and the identities.
    pub(super) bytes: usize,
    /// The identities of the rows, with the number of rows of each.
    pub(super) identities: HashMap<Arc<Identity>, usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) identity: Arc<Identity>,
    pub(super) values: Vec<(MetricId, Value)>,
    pub(super) extras: Vec<(Arc<str>, ExtraValue)>,
}

/// The columns of a batch, looked up once.
pub(super) struct Columns<'a> {
    metrics: Vec<(MetricId, MetricColumn<'a>)>,
    extras: Vec<(Arc<str>, &'a ArrayRef)>,
}

impl GpuRows {
    /// Adds a row, or what it adds to the row of that time.
    pub(super) fn add(&mut self, time_ns: i64, row: Row) {
        let mut row = match self.rows.remove(&time_ns) {
            None => row,
            Some(known) => {
                self.release(&known);
                let mut known = Arc::unwrap_or_clone(known);
                known.merge(row);
                known
            }
        };
        self.bytes += row.bytes();
        row.identity = self.share(row.identity);
        self.rows.insert(time_ns, Arc::new(row));
    }

    /// Drops the oldest rows beyond the bounds, but never the newest.
    pub(super) fn trim(&mut self, rows_max: usize, bytes_max: usize) {
        while self.rows.len() > 1
            && (self.rows.len() > rows_max || self.bytes > bytes_max)
            && let Some((_, row)) = self.rows.pop_first()
        {
            self.release(&row);
        }
    }

    /// The identity for one more row.
    fn share(&mut self, identity: Arc<Identity>) -> Arc<Identity> {
        let mut rows = match self.identities.entry(identity) {
            Entry::Occupied(rows) => rows,
            Entry::Vacant(free) => {
                self.bytes += identity_bytes(free.key());
                free.insert_entry(0)
            }
        };
        *rows.get_mut() += 1;
        Arc::clone(rows.key())
    }

    /// Counts a row that was taken out, and its identity if it was the last row of it, no more.
    fn release(&mut self, row: &Row) {
        self.bytes -= row.bytes();
        if let Entry::Occupied(mut rows) = self.identities.entry(Arc::clone(&row.identity)) {
            *rows.get_mut() -= 1;
            if *rows.get() == 0 {
                rows.remove();
                self.bytes -= identity_bytes(&row.identity);
            }
        }
    }
}

fn identity_bytes(identity: &Identity) -> usize {
    let texts = IdentityColumn::ALL.iter().filter_map(|column| identity.get(*column));
    IDENTITY_BYTES + texts.map(|text| TEXT_BYTES + text.len()).sum::<usize>()
}

impl<'a> Columns<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let extras = batch.extras().map(|(name, column)| (name.into(), column));
        Self { metrics: batch.metrics().collect(), extras: extras.collect() }
    }

    pub(super) fn row(&self, batch: &Batch, row: usize) -> Row {
        let values = self.metrics.iter().filter_map(|(id, column)| Some((*id, column.value(row)?)));
        let extras = self.extras.iter();
        let extras =
            extras.filter_map(|(name, column)| Some((Arc::clone(name), ExtraValue::of(column, row)?)));
        let (mut values, mut extras): (Vec<_>, Vec<_>) = (values.collect(), extras.collect());
        values.shrink_to_fit();
        extras.shrink_to_fit();
        Row { identity: Arc::new(batch.identity(row)), values, extras }
    }
}

impl Row {
    /// Takes over the values of a later arrival with the same key: what it lacks stays.
    fn merge(&mut self, later: Self) {
        if self.identity != later.identity {
            let mut identity = (*self.identity).clone();
            for column in IdentityColumn::ALL {
                if let Some(text) = later.identity.get(column) {
                    // It comes from an identity.
                    let _taken = identity.set(column, text);
                }
            }
            identity.index = later.identity.index.or(identity.index);
            self.identity = Arc::new(identity);
        }
        replace(&mut self.values, later.values);
        replace(&mut self.extras, later.extras);
    }

    /// Without the identity, which rows share. Names are counted for each row: only rows of one batch share them.
    fn bytes(&self) -> usize {
        let texts = self.extras.iter().map(|(name, value)| match value {
            ExtraValue::Number(_) => TEXT_BYTES + name.len(),
            ExtraValue::Text(text) => TEXT_BYTES + name.len() + TEXT_BYTES + text.len(),
        });
        ROW_BYTES
            + size_of_val(self.values.as_slice())
            + size_of_val(self.extras.as_slice())
            + texts.sum::<usize>()
    }
}

fn replace<K: PartialEq, V>(values: &mut Vec<(K, V)>, later: Vec<(K, V)>) {
    for (name, value) in later {
        match values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => values.push((name, value)),
        }
    }
    values.shrink_to_fit();
}
