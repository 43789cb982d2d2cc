//! Helpers of the CSV source's tests.

use std::io::Cursor;

use gpuvitals_core::batch::text_at;
use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_core::{Batch, IdentityColumn, time};
use gpuvitals_inputs::csv::{CsvInput, CsvSource, Hints};
use gpuvitals_inputs::replay::ReplayConfig;

pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// 2026-11-20T12:00:00Z.
pub(crate) const NOW: i64 = 1_795_176_000 * SECOND_NS;

pub(crate) fn config() -> ReplayConfig {
    let hints = Hints { timezone: Some(time::Zone::utc()), ..Hints::default() };
    ReplayConfig { hints, ..ReplayConfig::default() }
}

pub(crate) fn reader(bytes: Vec<u8>) -> CsvInput {
    CsvInput::Reader { name: "rows.csv".to_owned(), reader: Box::new(Cursor::new(bytes)) }
}

pub(crate) fn open(text: &str) -> CsvSource {
    CsvSource::open(reader(text.as_bytes().to_vec()), config(), NOW).unwrap()
}

/// Calls after which a test no longer waits for the end of its input.
pub(crate) const POLLS_MAX: usize = 1_000_000;

/// Every batch up to the end.
pub(crate) fn drain(source: &mut CsvSource) -> Vec<Batch> {
    let mut batches = Vec::new();
    for _ in 0..POLLS_MAX {
        match source.poll(NOW).unwrap() {
            Poll::Ready(batch) => batches.push(batch),
            Poll::NotBefore(_) => {}
            Poll::End => return batches,
        }
    }
    panic!("the end of the input never came");
}

pub(crate) fn reports(source: &mut CsvSource) -> Vec<String> {
    source.drain_reports().iter().map(ToString::to_string).collect()
}

/// Each row as `time key metric=value … identity=text … extra=value …`.
pub(crate) fn rows(batches: &[Batch]) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        for row in 0..batch.rows() {
            let identity = batch.identity(row);
            let whose = identity.key().unwrap_or_else(|| "host".into());
            let mut parts = vec![time::format(batch.timestamps()[row]), whose.to_string()];
            let mut metrics: Vec<String> = batch
                .metrics()
                .filter_map(|(id, c)| Some(format!("{}={}", id.metric().column, c.value(row)?.to_json())))
                .map(|text| text.strip_suffix(".0").unwrap_or(&text).to_owned())
                .collect();
            metrics.sort();
            parts.extend(metrics);
            let mut texts: Vec<String> = IdentityColumn::ALL
                .into_iter()
                .filter(|c| *c != IdentityColumn::Uuid)
                .filter_map(|c| Some(format!("{}={}", c.name(), identity.get(c)?)))
                .chain(identity.index.map(|i| format!("gpu={i}")))
                .collect();
            texts.sort();
            parts.extend(texts);
            let mut extras: Vec<String> = batch
                .extras()
                .filter_map(|(name, array)| Some(format!("{name}={}", extra(array, row)?)))
                .collect();
            extras.sort();
            parts.extend(extras);
            all.push(parts.join(" "));
        }
    }
    all
}

fn extra(array: &arrow_array::ArrayRef, row: usize) -> Option<String> {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    if let Some(texts) = array.as_dictionary_opt() {
        return text_at(texts, row).map(str::to_owned);
    }
    let numbers = array.as_primitive_opt::<arrow_array::types::Float64Type>()?;
    numbers.is_valid(row).then(|| numbers.value(row).to_string())
}
