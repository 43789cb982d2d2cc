//! The row groups of a file being written: rows as they come, or one column after another.
//!
//! A column that is being written has a compressor of some 100 kB, from its first page to the end of the row group. Rows have some
//! ninety columns and up to a quarter of a million rows a group: they are encoded as they come. A rollup has hundreds of columns,
//! and few rows a group: those wait as they are, and then one column after another is encoded and written.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::concat::concat;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

/// Writes row groups.
pub(super) enum GroupWriter<W: Write> {
    /// All columns of some rows at once.
    Rows(ArrowWriter<W>),
    /// One column after another, once the rows of a group are there.
    Columns(ColumnWriter<W>),
}

/// Writes the columns of a row group one after another.
pub(super) struct ColumnWriter<W: Write> {
    file: SerializedFileWriter<W>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// The rows of the group. Of few rows each has twice as many as the next, so there are never many.
    waiting: Vec<WaitingRows>,
}

/// Rows that are not encoded yet.
struct WaitingRows {
    /// Rows of each batch that is in them. They are encoded batch by batch: so pages end where they would without waiting.
    batches: Vec<usize>,
    /// Room that the columns take.
    bytes: usize,
    /// None: no row has a value. Many columns of a rollup are so, and take no room then.
    columns: Vec<Option<ArrayRef>>,
}

impl<W: Write + Send> GroupWriter<W> {
    /// Goes on with a file that has been begun, one column after another.
    ///
    /// # Errors
    /// Never for a file without rows.
    pub(super) fn by_column(begun: ArrowWriter<W>, schema: SchemaRef) -> Result<Self> {
        let (file, columns) = begun.into_serialized_writer()?;
        Ok(Self::Columns(ColumnWriter { file, columns, schema, waiting: Vec::new() }))
    }

    /// Adds rows to the row group.
    ///
    /// # Errors
    /// If they do not fit the file's columns, or the disk refuses.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Self::Rows(writer) => writer.write(rows),
            Self::Columns(writer) => writer.wait(rows),
        }
    }

    /// Ends the row group, if it has rows.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn end_group(&mut self) -> Result<()> {
        match self {
            Self::Rows(writer) => writer.flush(),
            Self::Columns(writer) => writer.end_group(),
        }
    }

    /// Bytes of rows that wait to be encoded.
    pub(super) fn waiting_bytes(&self) -> usize {
        match self {
            Self::Rows(_) => 0,
            Self::Columns(writer) => writer.waiting.iter().map(|rows| rows.bytes).sum(),
        }
    }

    /// Hands all bytes of ended row groups to the output.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::Rows(writer) => writer.sync(),
            Self::Columns(writer) => writer.file.flush(),
        }
    }

    /// The output.
    pub(super) fn inner(&self) -> &W {
        match self {
            Self::Rows(writer) => writer.inner(),
            Self::Columns(writer) => writer.file.inner(),
        }
    }

    /// The output.
    pub(super) fn inner_mut(&mut self) -> &mut W {
        match self {
            Self::Rows(writer) => writer.inner_mut(),
            Self::Columns(writer) => writer.file.inner_mut(),
        }
    }

    /// Adds to what the footer says.
    pub(super) fn append_key_value_metadata(&mut self, pair: KeyValue) {
        match self {
            Self::Rows(writer) => writer.append_key_value_metadata(pair),
            Self::Columns(writer) => writer.file.append_key_value_metadata(pair),
        }
    }

    /// Ends the row group and writes the footer.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_group()?;
        let finished = match self {
            Self::Rows(writer) => writer.finish(),
            Self::Columns(writer) => writer.file.finish(),
        };
        finished.map(drop)
    }
}

impl<W: Write + Send> ColumnWriter<W> {
    /// Adds rows. A few are joined with the few before them: an array takes some hundred bytes however few values it has, and its
    /// texts are those of all rows that were merged with it. A rollup by the day gets a row or two at a time.
    fn wait(&mut self, rows: &RecordBatch) -> Result<()> {
        // So many are encoded at once, whether or not they were joined.
        let few = self.file.properties().write_batch_size();
        let mut rows = WaitingRows::of(rows);
        while let Some(before) = self
            .waiting
            .pop_if(|before| before.rows() <= few && rows.rows() <= few && before.rows() < 2 * rows.rows())
        {
            rows = before.joined(rows, &self.schema)?;
        }
        self.waiting.push(rows);
        Ok(())
    }

    /// Encodes and writes what waits.
    fn end_group(&mut self) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let columns = self.columns.create_column_writers(self.file.flushed_row_groups().len())?;
        let mut group = self.file.next_row_group()?;
        for (place, (field, mut column)) in self.schema.fields().iter().zip(columns).enumerate() {
            for rows in &mut waiting {
                let values = rows.columns.get_mut(place).and_then(Option::take);
                let values = values.unwrap_or_else(|| new_null_array(field.data_type(), rows.rows()));
                let mut start = 0;
                for len in &rows.batches {
                    for leaf in compute_leaves(field, &values.slice(start, *len))? {
                        column.write(&leaf)?;
                    }
                    start += len;
                }
            }
            column.close()?.append_to_row_group(&mut group)?;
        }
        group.close()?;
        Ok(())
    }
}

impl WaitingRows {
    fn of(rows: &RecordBatch) -> Self {
        let columns = rows.columns().iter();
        let columns = columns.map(|column| (column.null_count() < column.len()).then(|| Arc::clone(column)));
        Self::new(vec![rows.num_rows()], columns.collect())
    }

    fn new(batches: Vec<usize>, columns: Vec<Option<ArrayRef>>) -> Self {
        // Of a slice only its own part: the others are of this group, or the next.
        let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_default();
        Self { batches, bytes: columns.iter().flatten().map(bytes).sum(), columns }
    }

    fn rows(&self) -> usize {
        self.batches.iter().sum()
    }

    /// These rows and those that follow them. Of texts those that no row has are left out, where they are many.
    fn joined(self, next: Self, schema: &Schema) -> Result<Self> {
        let (here, there) = (self.rows(), next.rows());
        let pairs = self.columns.into_iter().zip(next.columns).zip(schema.fields());
        let columns = pairs.map(|((first, second), field)| {
            if first.is_none() && second.is_none() {
                return Ok(None);
            }
            let whole = |values: Option<ArrayRef>, rows: usize| {
                values.unwrap_or_else(|| new_null_array(field.data_type(), rows))
            };
            let (first, second) = (whole(first, here), whole(second, there));
            concat(&[first.as_ref(), second.as_ref()]).map(Some)
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        Ok(Self::new([self.batches, next.batches].concat(), columns))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int32Array, Int64Array};
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::WriterProperties;
    use proptest::prelude::*;

    use super::*;

    /// Some rows: their number, and which columns have values.
    #[derive(Debug, Clone, Copy)]
    struct Piece {
        len: i64,
        has_values: bool,
        has_texts: bool,
        ends_group: bool,
    }

    /// Pieces that wait alone, and those that are joined.
    fn pieces() -> impl Strategy<Value = Vec<Piece>> {
        let one = (prop_oneof![1_i64..40, 1_i64..700], any::<bool>(), any::<bool>(), any::<bool>());
        let piece =
            |(len, has_values, has_texts, ends_group)| Piece { len, has_values, has_texts, ends_group };
        prop::collection::vec(one.prop_map(piece), 1..20)
    }

    fn rows(of: Piece) -> RecordBatch {
        let numbers = || 0..of.len;
        let times: Int64Array = numbers().map(Some).collect();
        let value = |at: i64| (of.has_values && at % 7 != 0).then(|| i32::try_from(at % 91).unwrap_or(0));
        let values: Int32Array = numbers().map(value).collect();
        // By the length, so that pieces have their texts in another order.
        let word = |at: i64| if (at + of.len) % 2 == 0 { "even" } else { "odd" };
        let text = |at: i64| (of.has_texts && at % 5 != 0).then(|| word(at));
        let texts: DictionaryArray<Int32Type> = numbers().map(text).collect();
        let none: Int64Array = numbers().map(|_| None::<i64>).collect();
        let columns: [(&str, ArrayRef, bool); 4] = [
            ("time", Arc::new(times), false),
            ("value", Arc::new(values), true),
            ("text", Arc::new(texts), true),
            ("none", Arc::new(none), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    fn begun(schema: &SchemaRef) -> ArrowWriter<Vec<u8>> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_data_page_row_count_limit(300)
            .set_write_batch_size(100);
        ArrowWriter::try_new(Vec::new(), Arc::clone(schema), Some(properties.build())).unwrap()
    }

    fn written(mut writer: GroupWriter<Vec<u8>>, pieces: &[Piece]) -> Vec<u8> {
        for piece in pieces {
            writer.write(&rows(*piece)).unwrap();
            if piece.ends_group {
                writer.end_group().unwrap();
            }
        }
        writer.finish().unwrap();
        writer.sync().unwrap();
        writer.inner().clone()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_bytes_are_those_of_rows_that_are_encoded_as_they_come(pieces in pieces()) {
            let schema = rows(pieces[0]).schema();
            let as_they_come = written(GroupWriter::Rows(begun(&schema)), &pieces);
            let by_column = GroupWriter::by_column(begun(&schema), Arc::clone(&schema)).unwrap();
            let by_column = written(by_column, &pieces);
            prop_assert!(as_they_come == by_column, "{} and {} bytes", as_they_come.len(), by_column.len());
        }
    }

    #[test]
    fn rows_that_wait_are_counted_by_their_own_bytes() {
        let one = rows(Piece { len: 1_000, has_values: true, has_texts: true, ends_group: false });
        let mut writer = GroupWriter::by_column(begun(&one.schema()), one.schema()).unwrap();
        writer.write(&one).unwrap();
        let whole = writer.waiting_bytes();
        // Times, values and codes; the column without a value takes no room.
        assert!((16_000..18_000).contains(&whole), "{whole}");
        writer.end_group().unwrap();
        assert_eq!(writer.waiting_bytes(), 0);
        writer.write(&one.slice(0, 100)).unwrap();
        let part = writer.waiting_bytes();
        assert!((1_600..2_000).contains(&part), "{part}");
    }

    #[test]
    fn a_few_rows_at_a_time_do_not_take_the_texts_of_all_each_time() {
        let words: Vec<String> = (0..500).map(|number| format!("word {number}")).collect();
        let texts: DictionaryArray<Int32Type> = words.iter().map(|word| Some(word.as_str())).collect();
        let all = RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap();
        let mut writer = GroupWriter::by_column(begun(&all.schema()), all.schema()).unwrap();
        for start in (0..498).step_by(6) {
            writer.write(&all.slice(start, 6)).unwrap();
        }
        // Each of the 83 pieces has the 6 kB of all words.
        assert!(writer.waiting_bytes() < 50_000, "{}", writer.waiting_bytes());
    }
}
