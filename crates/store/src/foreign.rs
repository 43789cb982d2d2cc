//! Columns that the catalogue does not know: which names of them the store takes, and from whom.
//!
//! Rows in memory and in files of one hour are joined, and every joined row has room for all of them. So there is room for
//! [`NAMES_MAX`] names, and for [`NAMES_OF_ONE_MAX`] from one node or file. A name that no row has had for a day makes room.
//! A column without room is left out, and its row is kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use foldhash::fast::RandomState;
use gpuvitals_core::batch::{is_unknown, text_at};
use gpuvitals_core::time::{DAY_NS, MINUTE_NS};
use gpuvitals_core::{Batch, IdentityColumn, Table};

/// Most names of unknown columns at a time.
pub(crate) const NAMES_MAX: usize = 512;
/// Most names that one node or file brings.
pub(crate) const NAMES_OF_ONE_MAX: usize = 128;
/// For so long after the last column that was left out the health says whose it was.
const TOLD_NS: i64 = 5 * MINUTE_NS;
/// Nodes and files with columns that were left out: those that are remembered, and those that are named.
const OWNERS_MAX: usize = 64;
const OWNERS_NAMED: usize = 3;

/// The names that are taken now.
#[derive(Debug, Default)]
pub(crate) struct ForeignColumns {
    names: HashMap<Arc<str>, Name, RandomState>,
    /// By the node or file, a column of it that was left out.
    left_out: BTreeMap<Arc<str>, LeftOut>,
}

#[derive(Debug)]
struct Name {
    /// The node or file that brought it.
    owner: Arc<str>,
    /// When a row last had it, nanoseconds UTC since 1970.
    used_ns: i64,
}

#[derive(Debug)]
struct LeftOut {
    column: Arc<str>,
    /// When a column of it was left out last.
    at_ns: i64,
}

impl ForeignColumns {
    /// The batch without the columns for which there is no room, and the number of values that they had.
    pub(crate) fn admit(&mut self, batch: Batch, now_ns: i64) -> (Batch, u64) {
        let mut dropped: HashSet<Arc<str>> = HashSet::new();
        let mut values = 0;
        let table = batch.table();
        for (name, column) in batch.extras().filter(|(name, _)| is_unknown(table, name)) {
            let Some(first) = first_value(column) else {
                dropped.insert(name.into());
                continue;
            };
            if let Some(known) = self.names.get_mut(name) {
                known.used_ns = now_ns;
                continue;
            }
            let owner = owner(batch.records(), first).unwrap_or_else(|| Arc::clone(&batch.origin().node));
            if self.has_room(&owner, now_ns) {
                self.names.insert(name.into(), Name { owner, used_ns: now_ns });
                continue;
            }
            values += u64::try_from(column.len() - column.null_count()).unwrap_or(u64::MAX);
            self.note(owner, name, now_ns);
            dropped.insert(name.into());
        }
        if dropped.is_empty() {
            (batch, 0)
        } else {
            (batch.without_foreign(|name| dropped.contains(name)), values)
        }
    }

    /// Takes the names in rows that were admitted before.
    pub(crate) fn recall(&mut self, table: Table, records: &RecordBatch, now_ns: i64) {
        for (field, column) in records.schema_ref().fields().iter().zip(records.columns()) {
            if is_unknown(table, field.name())
                && let Some(first) = first_value(column)
            {
                let owner = owner(records, first).unwrap_or_default();
                self.names.entry(field.name().as_str().into()).or_insert(Name { owner, used_ns: now_ns });
            }
        }
    }

    fn has_room(&mut self, owner: &Arc<str>, now_ns: i64) -> bool {
        let is_full = |names: &HashMap<_, Name, _>| {
            names.len() >= NAMES_MAX
                || names.values().filter(|name| name.owner == *owner).count() >= NAMES_OF_ONE_MAX
        };
        if is_full(&self.names) {
            self.names.retain(|_, name| now_ns.saturating_sub(name.used_ns) < DAY_NS);
        }
        !is_full(&self.names)
    }

    fn note(&mut self, owner: Arc<str>, column: &str, now_ns: i64) {
        if let Some(known) = self.left_out.get_mut(&owner) {
            known.at_ns = now_ns;
        } else if self.left_out.len() < OWNERS_MAX {
            self.left_out.insert(owner, LeftOut { column: column.into(), at_ns: now_ns });
        }
    }

    /// Whose columns are left out these minutes, in words; none if no column is.
    pub(crate) fn words(&mut self, now_ns: i64) -> Option<String> {
        self.left_out.retain(|_, left_out| now_ns.saturating_sub(left_out.at_ns) < TOLD_NS);
        if self.left_out.is_empty() {
            return None;
        }
        let owners: Vec<&str> = self.left_out.keys().map(AsRef::as_ref).take(OWNERS_NAMED).collect();
        let mut words = format!("columns of {}", owners.join(", "));
        if self.left_out.len() > owners.len() {
            // A string takes everything.
            let _written = write!(words, " and {} more", self.left_out.len() - owners.len());
        }
        let column = self.left_out.values().next().map_or("", |left_out| left_out.column.as_ref());
        let _written = write!(
            words,
            " are left out, such as {column:?}: a store takes {NAMES_MAX} names that the catalogue does not know, \
             {NAMES_OF_ONE_MAX} of one node or file; a name that no row had for a day makes room"
        );
        Some(words)
    }
}

/// The first row with a value.
fn first_value(column: &ArrayRef) -> Option<usize> {
    (0..column.len()).find(|row| column.is_valid(*row))
}

/// The node of a row.
fn owner(records: &RecordBatch, row: usize) -> Option<Arc<str>> {
    let nodes = records.column_by_name(IdentityColumn::Node.name())?;
    text_at(nodes.as_dictionary_opt::<Int32Type>()?, row).filter(|node| !node.is_empty()).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{BatchBuilder, Identity, Origin};

    use super::*;

    /// A row of a node with these unknown columns.
    fn batch(node: &str, columns: std::ops::Range<usize>) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap();
        let identity = builder.intern(&identity.with(IdentityColumn::Node, node).unwrap());
        let row = builder.row(1, identity);
        for column in columns {
            builder.set_extra(row, &format!("column {column}"), 1.0).unwrap();
        }
        builder.finish(Origin::default(), 0).unwrap()
    }

    fn taken(foreign: &mut ForeignColumns, batch: Batch, now_ns: i64) -> (usize, u64) {
        let (batch, left_out) = foreign.admit(batch, now_ns);
        assert_eq!(batch.rows(), 1);
        (batch.extras().count(), left_out)
    }

    #[test]
    fn one_node_takes_a_quarter_of_the_names_and_the_others_find_room() {
        let mut foreign = ForeignColumns::default();
        assert_eq!(taken(&mut foreign, batch("greedy", 0..100), 1), (100, 0));
        assert_eq!(taken(&mut foreign, batch("greedy", 100..200), 1), (28, 72));
        assert_eq!(taken(&mut foreign, batch("other", 200..300), 1), (100, 0));
        assert_eq!(taken(&mut foreign, batch("other", 0..1), 1), (1, 0), "a known name is anybody's");
        let words = foreign.words(2).unwrap();
        assert!(words.starts_with("columns of greedy are left out, such as \"column 1"), "{words}");
        assert_eq!(foreign.words(1 + TOLD_NS), None);
    }

    #[test]
    fn a_name_that_no_row_had_for_a_day_makes_room() {
        let mut foreign = ForeignColumns::default();
        for node in 0..5 {
            let start = node * 120;
            taken(&mut foreign, batch(&format!("node-{node}"), start..start + 120), 1);
        }
        assert_eq!(foreign.names.len(), NAMES_MAX);
        // Of these the first are still in use.
        assert_eq!(taken(&mut foreign, batch("node-0", 0..100), DAY_NS), (100, 0));
        assert_eq!(taken(&mut foreign, batch("late", 600..700), DAY_NS), (0, 100));
        assert_eq!(taken(&mut foreign, batch("late", 600..700), 1 + DAY_NS), (100, 0));
        assert_eq!(foreign.names.len(), 200);
    }
}
