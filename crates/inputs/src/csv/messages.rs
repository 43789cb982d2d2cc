//! Rows as messages ([`gpuvitals_core::message`]) under the file's own names, with the values as the file has them.
//!
//! A cell becomes the number it is, else its text, whatever the catalogue makes of it. Cells without a value, and values
//! that a row of the table would not have, are left out.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::{RowId, Value};
use gpuvitals_core::foreign::{Meaning, meaning};
use gpuvitals_core::time;
use serde_json::{Map, Value as Json};

use super::cell::{ExtraCell, MessageField, plain_number};

/// The messages of the batch under construction: one a row.
#[derive(Debug, Default)]
pub(super) struct Messages {
    rows: Vec<(i64, Map<String, Json>)>,
    places: HashMap<RowId, usize, foldhash::fast::RandomState>,
}

impl Messages {
    /// Begins the message of a row, unless it has one.
    pub(super) fn begin(&mut self, row: RowId, time_ns: i64, fields: &[MessageField]) {
        let Self { rows, places } = self;
        places.entry(row).or_insert_with(|| {
            rows.push((
                time_ns,
                fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            ));
            rows.len() - 1
        });
    }

    /// Sets a field of a row to what a cell holds.
    pub(super) fn put(&mut self, row: RowId, name: &str, cell: &str) {
        self.insert(row, name, value(cell));
    }

    /// Sets a field of a row to a value of the table.
    pub(super) fn put_value(&mut self, row: RowId, name: &str, value: Value) {
        self.insert(row, name, value.to_json());
    }

    /// Sets a field of a row to the number or text that a cell of an unknown column is taken for.
    pub(super) fn put_extra(&mut self, row: RowId, cell: &ExtraCell) {
        let taken = if cell.number.is_some() { value(&cell.text) } else { cell.text.trim().into() };
        // Under this name it would name the row's GPU.
        let name = if meaning(&cell.name) == Meaning::Gpu {
            format!("{}_2", cell.name).into()
        } else {
            Arc::clone(&cell.name)
        };
        self.insert(row, &name, taken);
    }

    fn insert(&mut self, row: RowId, name: &str, value: Json) {
        let place = self.places.get(&row).and_then(|&place| self.rows.get_mut(place));
        if let Some((_, fields)) = place {
            fields.insert(name.to_owned(), value);
        }
    }

    /// The messages so far, in the order of their rows.
    pub(super) fn take(&mut self) -> Vec<Json> {
        self.places.clear();
        let message = |(time_ns, fields)| serde_json::json!({ "timestamp": time::format(time_ns), "fields": Json::Object(fields) });
        self.rows.drain(..).map(message).collect()
    }
}

/// The content of a cell: the number it is, else its text.
fn value(cell: &str) -> Json {
    let text = cell.trim();
    let whole = || text.parse::<i64>().map(Json::from).or_else(|_| text.parse::<u64>().map(Json::from)).ok();
    whole().or_else(|| plain_number(text).map(Json::from)).unwrap_or_else(|| text.into())
}

/// The content of a cell that names something: a number only if the text can be had back from it, so that `007` and
/// `1e3` stay what they are.
pub(super) fn name(cell: &str) -> Json {
    let text = cell.trim();
    text.parse::<i64>()
        .ok()
        .filter(|number| number.to_string() == text)
        .map_or_else(|| text.into(), Json::from)
}
