//! What tests of several modules make up.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use gpuvitals_core::wire::pack;
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::create_file;

use crate::error::FlightError;
use crate::job_window::WindowPieces;
use crate::tables::{IncidentFile, IncidentFiles, IncidentRows, IncidentTable};

/// Files of rows in the form in which nodes send them.
pub(crate) const PIECES: IncidentFiles = IncidentFiles {
    begin: |IncidentFile { table, folder, .. }, rows| begin(path_of(folder, table), rows),
    read: |folder| Ok(read(folder)),
};

#[derive(Debug)]
struct Pieces {
    path: PathBuf,
    file: File,
    columns: BTreeSet<String>,
    rows: u64,
}

fn path_of(folder: &Path, table: Table) -> PathBuf {
    folder.join(format!("{}.pieces", table.name()))
}

fn columns_of(batch: &Batch) -> BTreeSet<String> {
    batch.schema().fields().iter().map(|field| field.name().clone()).collect()
}

fn begin(path: PathBuf, rows: IncidentRows) -> Result<Box<dyn IncidentTable>, FlightError> {
    let mut columns = BTreeSet::new();
    for batch in rows {
        columns.extend(columns_of(&batch?));
    }
    let file = create_file(&path).map_err(FlightError::io("create", &path))?;
    Ok(Box::new(Pieces { path, file, columns, rows: 0 }))
}

/// First GPUs, then the host.
fn read(folder: &Path) -> IncidentRows {
    let tables = [Table::GpuEvents, Table::SystemEvents].into_iter();
    let pieces: Vec<_> = tables.map(|table| WindowPieces::open(&path_of(folder, table)).unwrap()).collect();
    Box::new(pieces.into_iter().flatten().map(|batch| Ok(batch.unwrap())))
}

impl IncidentTable for Pieces {
    fn takes(&self, batch: &Batch) -> bool {
        columns_of(batch).is_subset(&self.columns)
    }

    fn add(&mut self, batch: &Batch) -> Result<(), FlightError> {
        let mut packed = Vec::new();
        pack(batch, &mut packed)?;
        let len = u32::try_from(packed.len()).unwrap().to_le_bytes();
        let piece = [len.as_slice(), &packed].concat();
        self.rows += batch.rows() as u64;
        self.file.write_all(&piece).map_err(FlightError::io("write", &self.path))
    }

    fn settle(&mut self) -> Result<(), FlightError> {
        self.file.sync_data().map_err(FlightError::io("sync", &self.path))
    }

    fn put(self: Box<Self>) -> Result<u64, FlightError> {
        self.file.sync_all().map_err(FlightError::io("sync", &self.path))?;
        Ok(self.rows)
    }
}
