//! Columns that the catalogue does not know: which names of them the store takes, from whom, and of what type they are.
//!
//! Rows in memory and in files of one hour are joined, and every joined row has room for all of them. So there is room for
//! [`NAMES_MAX`] names, and for [`NAMES_OF_ONE_MAX`] from one node or file. A name that no row has had for a day makes room.
//! A column without room is left out, and its row is kept.
//!
//! A column is of the type of its first value, in every file. Later numbers in a column of text are spelled out. Later texts of a
//! column of numbers stand in one beside it, whose name ends in [`TEXTS`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, ArrayRef, DictionaryArray, Float64Array, RecordBatch};
use foldhash::fast::RandomState;
use gpuvitals_core::batch::{is_unknown, text_at};
use gpuvitals_core::merge::as_text;
use gpuvitals_core::time::{DAY_NS, MINUTE_NS};
use gpuvitals_core::{Batch, IdentityColumn, Table};
use serde::{Deserialize, Serialize};

/// Most names of unknown columns at a time.
pub(crate) const NAMES_MAX: usize = 512;
/// Most names that one node or file brings.
pub(crate) const NAMES_OF_ONE_MAX: usize = 128;
/// Names whose types are remembered, in use or not.
const TYPES_MAX: usize = 8_192;
/// End of the name of the texts beside a column of numbers.
const TEXTS: &str = "_text";
/// Longest name of a column.
const NAME_LEN_MAX: usize = 128;
/// For so long after the last column that was left out the health says whose it was.
const TOLD_NS: i64 = 5 * MINUTE_NS;
/// Nodes and files with columns that were left out: those that are remembered, and those that are named.
const OWNERS_MAX: usize = 64;
const OWNERS_NAMED: usize = 3;

/// Types of the columns of a store that the catalogue does not know.
pub(crate) type ForeignTypes = BTreeMap<String, ForeignType>;

/// Type of such a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ForeignType {
    Number,
    Text,
}

impl ForeignType {
    fn of(column: &ArrayRef) -> Self {
        if column.as_dictionary_opt::<Int32Type>().is_some() { Self::Text } else { Self::Number }
    }
}

/// The names that are taken now.
#[derive(Debug, Default)]
pub(crate) struct ForeignColumns {
    names: HashMap<Arc<str>, ForeignName, RandomState>,
    types: ForeignTypes,
    /// By the node or file, a column of it that was left out.
    left_out: BTreeMap<Arc<str>, LeftOut>,
}

#[derive(Debug)]
struct ForeignName {
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
    /// With the types of the columns that the store has.
    pub(crate) fn with_types(types: ForeignTypes) -> Self {
        Self { types, ..Self::default() }
    }

    /// The types of all columns that the store has.
    pub(crate) fn types(&self) -> &ForeignTypes {
        &self.types
    }

    /// The batch with its columns in the types of the store and without those for which there is no room, and the number of
    /// values that these had.
    pub(crate) fn admit(&mut self, batch: Batch, now_ns: i64) -> (Batch, u64) {
        let mut dropped: HashSet<Arc<str>> = HashSet::new();
        let (batch, mut values) = self.retyped(batch, now_ns);
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
                self.names.insert(name.into(), ForeignName { owner, used_ns: now_ns });
                self.learn(name, column);
                continue;
            }
            values += count(column);
            self.note(owner, name, now_ns);
            dropped.insert(name.into());
        }
        if dropped.is_empty() {
            (batch, values)
        } else {
            (batch.without_foreign(|name| dropped.contains(name)), values)
        }
    }

    /// The batch with its columns in the types of the store, and the number of values that have no place.
    fn retyped(&mut self, batch: Batch, now_ns: i64) -> (Batch, u64) {
        let table = batch.table();
        let is_other = |(name, column): &(&str, &ArrayRef)| {
            let known = self.types.get(*name);
            known.is_some_and(|known| *known != ForeignType::of(column)) && is_unknown(table, name)
        };
        if !batch.extras().any(|extra| is_other(&extra)) {
            return (batch, 0);
        }
        let (mut columns, mut left_out, mut homeless) = (Vec::new(), 0, Vec::new());
        for (name, column) in batch.extras().filter(is_other) {
            if let Some(texts) = column.as_dictionary_opt::<Int32Type>() {
                let (numbers, texts) = parted(texts);
                columns.push((name.to_owned(), numbers));
                let beside = format!("{name}{TEXTS}");
                let has_place = beside.len() <= NAME_LEN_MAX
                    && self.types.get(&beside) != Some(&ForeignType::Number)
                    && is_unknown(table, &beside)
                    && batch.extras().all(|(other, _)| other != beside);
                if has_place {
                    columns.push((beside, texts));
                } else if count(&texts) > 0 {
                    left_out += count(&texts);
                    homeless.push((beside, first_value(&texts)));
                }
            } else if let Some(texts) = as_text(column) {
                columns.push((name.to_owned(), texts));
            }
        }
        for (name, row) in homeless {
            let owner = row.and_then(|row| owner(batch.records(), row));
            self.note(owner.unwrap_or_else(|| Arc::clone(&batch.origin().node)), &name, now_ns);
        }
        (batch.with_foreign(columns), left_out)
    }

    /// The type of a column is that of its first value. Of too many, those whose names are out of use are forgotten.
    fn learn(&mut self, name: &str, column: &ArrayRef) {
        if self.types.contains_key(name) {
            return;
        }
        if self.types.len() >= TYPES_MAX {
            self.types.retain(|name, _| self.names.contains_key(name.as_str()));
        }
        self.types.insert(name.to_owned(), ForeignType::of(column));
    }

    /// Takes the names in rows that were admitted before.
    pub(crate) fn recall(&mut self, table: Table, records: &RecordBatch, now_ns: i64) {
        for (field, column) in records.schema_ref().fields().iter().zip(records.columns()) {
            if is_unknown(table, field.name())
                && let Some(first) = first_value(column)
            {
                let owner = owner(records, first).unwrap_or_default();
                self.names
                    .entry(field.name().as_str().into())
                    .or_insert(ForeignName { owner, used_ns: now_ns });
                self.learn(field.name(), column);
            }
        }
    }

    fn has_room(&mut self, owner: &Arc<str>, now_ns: i64) -> bool {
        let is_full = |names: &HashMap<_, ForeignName, _>| {
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

fn count(column: &ArrayRef) -> u64 {
    u64::try_from(column.len() - column.null_count()).unwrap_or(u64::MAX)
}

/// The numbers among texts, and the other texts.
fn parted(texts: &DictionaryArray<Int32Type>) -> (ArrayRef, ArrayRef) {
    let number = |text: &str| text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    let all = || (0..texts.len()).map(|row| text_at(texts, row));
    let numbers: Float64Array = all().map(|text| text.and_then(number)).collect();
    let others: DictionaryArray<Int32Type> =
        all().map(|text| text.filter(|text| number(text).is_none())).collect();
    (Arc::new(numbers), Arc::new(others))
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

    /// A batch of a row for each value of one column: a number or a text.
    fn slots(values: &[&str]) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        for (time, value) in (1..).zip(values) {
            let row = builder.row(time, identity);
            match value.parse::<f64>() {
                Ok(number) => builder.set_extra(row, "slot", number).unwrap(),
                Err(_) => builder.set_extra_text(row, "slot", value).unwrap(),
            }
        }
        builder.finish(Origin::default(), 0).unwrap()
    }

    /// What a batch has in its foreign columns, by name.
    fn columns(batch: &Batch) -> Vec<(String, Vec<Option<String>>)> {
        let of = |column: &ArrayRef| {
            if let Some(texts) = column.as_dictionary_opt::<Int32Type>() {
                return (0..texts.len()).map(|row| Some(format!("{:?}", text_at(texts, row)?))).collect();
            }
            let numbers = column.as_primitive::<arrow_array::types::Float64Type>();
            numbers.iter().map(|number| number.map(|number| number.to_string())).collect()
        };
        batch.extras().map(|(name, column)| (name.to_owned(), of(column))).collect()
    }

    #[test]
    fn a_column_has_the_type_of_its_first_value_for_ever() {
        let some = |texts: &[&str]| -> Vec<Option<String>> {
            texts.iter().map(|text| Some(*text).filter(|text| !text.is_empty()).map(str::to_owned)).collect()
        };
        let mut foreign = ForeignColumns::default();
        foreign.admit(slots(&["7", "1.5"]), 1);
        // A day without rows makes room, but the files stay.
        let mut reopened = ForeignColumns::with_types(foreign.types.clone());
        for foreign in [&mut foreign, &mut reopened] {
            let (batch, left_out) = foreign.admit(slots(&["8", "upper"]), 3 * DAY_NS);
            let expected =
                [("slot".into(), some(&["8", ""])), ("slot_text".into(), some(&["", "\"upper\""]))];
            assert_eq!((columns(&batch), left_out), (expected.into(), 0));
        }
        // There is no place for texts beside numbers if another column has their name.
        let mut foreign = ForeignColumns::default();
        foreign.admit(slots(&["7"]), 1);
        foreign.types.insert("slot_text".to_owned(), ForeignType::Number);
        let (batch, left_out) = foreign.admit(slots(&["8", "upper"]), 2);
        assert_eq!((columns(&batch), left_out), ([("slot".into(), some(&["8", ""]))].into(), 1));
        assert!(foreign.words(3).unwrap().contains("such as \"slot_text\""));
        let mut foreign = ForeignColumns::default();
        foreign.admit(slots(&["upper"]), 1);
        let (batch, left_out) = foreign.admit(slots(&["8", "1.5"]), 1);
        assert_eq!((columns(&batch), left_out), ([("slot".into(), some(&["\"8\"", "\"1.5\""]))].into(), 0));
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
