//! Incidents of the flight recorder as recordings: their rows are Parquet, as the recorder writes it.

use std::path::Path;

use gpuvitals_core::Batch;
use gpuvitals_flight::{FlightError, IncidentFile, IncidentFiles, IncidentRows, IncidentTable};
use gpuvitals_record::{Data, OpenTableFile, RecordError, SeenColumns, TableFile};

/// Files of Parquet.
pub(crate) const PARQUET: IncidentFiles = IncidentFiles { begin, read };

/// Such a file, which takes rows.
#[derive(Debug)]
struct ParquetTable(OpenTableFile);

impl IncidentTable for ParquetTable {
    fn takes(&self, batch: &Batch) -> bool {
        self.0.takes(batch)
    }

    fn add(&mut self, batch: &Batch) -> Result<(), FlightError> {
        self.0.add(batch).map_err(failed)
    }

    fn settle(&mut self) -> Result<(), FlightError> {
        self.0.settle().map_err(failed)
    }

    fn put(self: Box<Self>) -> Result<u64, FlightError> {
        self.0.put().map_err(failed)
    }
}

fn begin(file: IncidentFile<'_>, rows: IncidentRows) -> Result<Box<dyn IncidentTable>, FlightError> {
    let IncidentFile { table, folder, facts } = file;
    let mut columns = SeenColumns::of(table);
    for batch in rows {
        columns.add(&batch?);
    }
    let target = folder.join(format!("{}.parquet", table.name()));
    let begun = TableFile { table, target: &target, facts }.begin(&columns).map_err(failed)?;
    Ok(Box::new(ParquetTable(begun)))
}

fn read(folder: &Path) -> Result<IncidentRows, FlightError> {
    let rows = Data::open(folder).map_err(failed)?;
    Ok(Box::new(rows.map(|batch| batch.map_err(failed))))
}

fn failed(error: RecordError) -> FlightError {
    FlightError::File(Box::new(error))
}
