//! Which rows are selected, and which series each belongs to.
//!
//! Texts are compared once for each code of a dictionary, not for each row.

use std::collections::HashMap;
use std::sync::Arc;

use crate::IdentityColumn;
use crate::history::{Aggregate, BucketQuery, GroupColumn, GroupName, Selector};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch};
use foldhash::fast::RandomState;

use crate::batch::RowKeys;
use crate::merge::as_text;

/// Label of rows that no series has.
const NOBODY: u32 = u32::MAX;

/// What tells one series from the others.
#[derive(Debug, Clone)]
pub struct Label {
    /// What its rows have in common.
    pub group: GroupName,
    /// The GPU, if its track is asked for.
    pub gpu: Option<Arc<str>>,
}

/// Which series each row belongs to.
#[derive(Debug)]
pub struct RowLabels {
    /// Per row an index into `names`, or beyond them if the row is not selected; none: all rows belong to the first.
    pub ids: Option<Vec<u32>>,
    /// Two may be the same.
    pub names: Vec<Label>,
}

/// A text of each row.
struct Codes {
    /// Per row an index into `texts`; none: all rows have the first.
    ids: Option<Vec<u32>>,
    texts: Vec<Option<Arc<str>>>,
}

impl Codes {
    fn of_keys(keys: &RowKeys) -> Self {
        Self { ids: Some(keys.ids.clone()), texts: keys.keys.iter().cloned().map(Some).collect() }
    }

    fn of(records: &RecordBatch, column: IdentityColumn) -> Self {
        let text = records.column_by_name(column.name()).and_then(as_text);
        let dictionary = text.as_ref().and_then(|array| array.as_dictionary_opt::<Int32Type>());
        let Some((keys, values)) =
            dictionary.and_then(|array| Some((array.keys(), array.values().as_string_opt::<i32>()?)))
        else {
            return Self { ids: None, texts: vec![None] };
        };
        let mut texts: Vec<Option<Arc<str>>> = values.iter().map(|text| text.map(Arc::from)).collect();
        let null = u32::try_from(texts.len()).unwrap_or(NOBODY);
        texts.push(None);
        let id = |key: Option<i32>| key.and_then(|key| u32::try_from(key).ok()).unwrap_or(null);
        let ids = if keys.null_count() == 0 {
            keys.values().iter().map(|&key| id(Some(key))).collect()
        } else {
            keys.iter().map(id).collect()
        };
        Self { ids: Some(ids), texts }
    }

    fn at(&self, row: usize) -> u32 {
        self.ids.as_ref().map_or(0, |ids| ids.get(row).copied().unwrap_or(NOBODY))
    }

    fn text(&self, code: u32) -> Option<Arc<str>> {
        self.texts.get(code as usize).cloned().flatten()
    }
}

/// The identity columns that a selector tests.
pub fn columns(selector: &Selector) -> impl Iterator<Item = &'static str> {
    selector.matchers().iter().map(|matcher| matcher.column.name())
}

/// The series of each row. `keys` are needed if a group or a track is a GPU's.
pub fn labels(records: &RecordBatch, query: &BucketQuery, keys: RowKeys) -> RowLabels {
    let is_tracked = query.aggregates.iter().copied().any(Aggregate::needs_tracks);
    if query.group_by == [GroupColumn::Gpu] && !is_tracked && query.selector.is_empty() {
        let of_key = |key| Label { group: Arc::from([Some(key)]), gpu: None };
        return RowLabels { ids: Some(keys.ids), names: keys.keys.into_iter().map(of_key).collect() };
    }
    let of_group = |column: &GroupColumn| match column {
        GroupColumn::Gpu => Codes::of_keys(&keys),
        GroupColumn::Identity(column) => Codes::of(records, *column),
    };
    let mut columns: Vec<Codes> = query.group_by.iter().map(of_group).collect();
    let groups = columns.len();
    columns.extend(is_tracked.then(|| Codes::of_keys(&keys)));
    let label = |codes: &[u32]| {
        let mut texts = columns.iter().zip(codes).map(|(column, code)| column.text(*code));
        let group = texts.by_ref().take(groups).collect();
        Label { group, gpu: texts.next().flatten() }
    };
    let selected = selected(records, &query.selector);
    match (columns.as_slice(), &selected) {
        ([], None) => return RowLabels { ids: None, names: vec![label(&[])] },
        ([only], None) => {
            let codes = (0..).take(only.texts.len());
            let names = codes.map(|code| label(&[code])).collect();
            return RowLabels { ids: columns.into_iter().next().and_then(|only| only.ids), names };
        }
        _ => {}
    }
    let is_selected = |row: usize| selected.as_ref().is_none_or(|rows| rows.get(row) == Some(&true));
    let (mut names, mut known) = (Vec::new(), HashMap::<Vec<u32>, u32, RandomState>::default());
    let mut ids: Vec<u32> = Vec::with_capacity(records.num_rows());
    // The codes of the last row that was selected, and its label: rows side by side mostly have the same.
    let (mut last, mut last_id) = (Vec::new(), NOBODY);
    for row in 0..records.num_rows() {
        if !is_selected(row) {
            ids.push(NOBODY);
            continue;
        }
        if last_id == NOBODY || columns.iter().zip(&last).any(|(column, code)| column.at(row) != *code) {
            last = columns.iter().map(|column| column.at(row)).collect();
            last_id = *known.entry(last.clone()).or_insert_with(|| {
                names.push(label(&last));
                u32::try_from(names.len() - 1).unwrap_or(NOBODY)
            });
        }
        ids.push(last_id);
    }
    RowLabels { ids: Some(ids), names }
}

/// Whether each row is selected; none: all are.
fn selected(records: &RecordBatch, selector: &Selector) -> Option<Vec<bool>> {
    let mut selected = (!selector.is_empty()).then(|| vec![true; records.num_rows()])?;
    for matcher in selector.matchers() {
        let codes = Codes::of(records, matcher.column);
        let holds: Vec<bool> = codes.texts.iter().map(|text| matcher.test.holds(text.as_deref())).collect();
        for (row, selected) in selected.iter_mut().enumerate() {
            *selected &= holds.get(codes.at(row) as usize) == Some(&true);
        }
    }
    Some(selected)
}

/// What each row, a part of a row that is not merged yet, says about each test of a selector: a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SelectorVerdict {
    /// Whether it has a text.
    known: u32,
    /// Whether that passes.
    passed: u32,
}

impl SelectorVerdict {
    /// Of a row without a text.
    pub fn of_null(selector: &Selector) -> Self {
        let mut verdict = Self::default();
        for (bit, matcher) in selector.matchers().iter().enumerate() {
            verdict.passed |= u32::from(matcher.test.holds(None)) << bit;
        }
        verdict
    }

    /// Of each row; none without a test.
    pub fn of_rows(records: &RecordBatch, selector: &Selector) -> Option<Vec<Self>> {
        let mut verdicts = (!selector.is_empty()).then(|| vec![Self::default(); records.num_rows()])?;
        for (bit, matcher) in selector.matchers().iter().enumerate() {
            let codes = Codes::of(records, matcher.column);
            let of_code = |text: &Option<Arc<str>>| Self {
                known: u32::from(text.is_some()) << bit,
                passed: u32::from(matcher.test.holds(text.as_deref())) << bit,
            };
            let of_codes: Vec<Self> = codes.texts.iter().map(of_code).collect();
            for (row, verdict) in verdicts.iter_mut().enumerate() {
                let one = of_codes.get(codes.at(row) as usize).copied().unwrap_or_default();
                verdict.known |= one.known;
                verdict.passed |= one.passed;
            }
        }
        Some(verdicts)
    }

    /// With what a later arrival says.
    pub fn then(self, later: Self) -> Self {
        let passed = (self.passed & !later.known) | (later.passed & later.known);
        Self { known: self.known | later.known, passed }
    }

    /// Whether all tests are passed.
    pub fn selects(self, selector: &Selector) -> bool {
        self.passed.count_ones() as usize == selector.matchers().len()
    }
}
