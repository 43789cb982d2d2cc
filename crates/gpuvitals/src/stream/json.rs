//! Rows as the JSON messages that anyone may read and write: `{"timestamp", "fields": {name: value, …}}`.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef};
use gpuvitals_core::batch::{MetricColumn, Value, text_at};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Batch, IdentityColumn, time};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The rows of a batch as an array of messages.
///
/// # Errors
/// What the writer of JSON says; none is known.
pub(super) fn document(batch: &Batch) -> Result<Vec<u8>, serde_json::Error> {
    let columns = Columns::of(batch);
    let messages: Vec<Message<'_>> = batch
        .timestamps()
        .iter()
        .enumerate()
        .map(|(row, &time_ns)| Message {
            timestamp: time::format(time_ns),
            fields: Fields { columns: &columns, row },
        })
        .collect();
    serde_json::to_vec(&messages)
}

#[derive(Serialize)]
struct Message<'a> {
    timestamp: String,
    fields: Fields<'a>,
}

struct Columns<'a> {
    identity: Vec<(&'static str, &'a arrow_array::DictionaryArray<Int32Type>)>,
    index: Option<&'a arrow_array::Int32Array>,
    metrics: Vec<(&'static str, MetricColumn<'a>)>,
    extras: Vec<(&'a str, &'a ArrayRef)>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let texts = IdentityColumn::ALL.into_iter();
        Self {
            identity: texts.filter_map(|c| Some((c.name(), batch.identity_column(c)?))).collect(),
            index: batch.records().column_by_name(INDEX_COLUMN).and_then(|c| c.as_primitive_opt()),
            metrics: batch.metrics().map(|(id, column)| (id.metric().column, column)).collect(),
            extras: batch.extras().collect(),
        }
    }
}

/// Identity and values of one row; what it has not is left out.
struct Fields<'a> {
    columns: &'a Columns<'a>,
    row: usize,
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (columns, row) = (self.columns, self.row);
        let mut fields = serializer.serialize_map(None)?;
        for (name, texts) in &columns.identity {
            if let Some(text) = text_at(texts, row) {
                fields.serialize_entry(name, text)?;
            }
        }
        if let Some(index) = columns.index.filter(|index| index.is_valid(row)) {
            fields.serialize_entry(INDEX_COLUMN, &index.value(row))?;
        }
        for (name, column) in &columns.metrics {
            match column.value(row) {
                None => {}
                Some(Value::Int(value)) => fields.serialize_entry(name, &value)?,
                Some(Value::Float32(value)) => fields.serialize_entry(name, &value)?,
                Some(Value::Float(value)) => fields.serialize_entry(name, &value)?,
            }
        }
        for (name, column) in &columns.extras {
            if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
                if numbers.is_valid(row) {
                    fields.serialize_entry(name, &numbers.value(row))?;
                }
            } else if let Some(text) = column.as_dictionary_opt().and_then(|texts| text_at(texts, row)) {
                fields.serialize_entry(name, text)?;
            }
        }
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::ports::{Poll, Source};
    use gpuvitals_core::{Origin, message};
    use gpuvitals_sources::csv::{CsvConfig, CsvInput, CsvSource};

    use super::*;

    #[test]
    fn rows_come_back_from_json_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows = "timestamp,gpu_id,host,modelname,temperature,power_draw,fan_noise,label\n\
                    2026-01-01T00:00:00Z,0,node-a,NVIDIA H100,51,301.25,0.5,left\n\
                    2026-01-01T00:00:00.5Z,gpu_7,node-b,,,17,,\n";
        std::fs::write(&path, rows).unwrap();
        let mut source = CsvSource::open(CsvInput::from(path.as_path()), CsvConfig::default(), 0).unwrap();
        let Ok(Poll::Ready(batch)) = source.poll(i64::MAX / 2) else { panic!("two rows") };

        let document = document(&batch).unwrap();
        let back = message::parse(&document, Origin::default(), 1).unwrap();
        assert!(back.refused.is_empty() && back.invalid.is_empty(), "{back:?}");
        let back = back.batch.unwrap();
        assert_eq!(back.timestamps(), batch.timestamps());
        for row in 0..batch.rows() {
            assert_eq!(back.identity(row), batch.identity(row));
            for (id, column) in batch.metrics() {
                let came = back.metric(id).and_then(|column| column.value(row));
                assert_eq!(came.map(Value::as_f64), column.value(row).map(Value::as_f64), "{id:?}");
            }
        }
        let names = |batch: &Batch| batch.extras().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&back), names(&batch));
        assert_eq!(names(&back), ["fan_noise", "label"]);
    }
}
