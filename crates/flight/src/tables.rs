//! What the rows of an incident become: files, in a form that whoever starts the recorder chooses. This crate knows none.

use std::fmt::Debug;
use std::path::Path;

use gpuvitals_core::{Batch, Table};

use crate::error::FlightError;

/// Batches, one after the other.
pub type IncidentRows = Box<dyn Iterator<Item = Result<Batch, FlightError>>>;

/// A file of an incident: the rows of a table.
#[derive(Debug, Clone)]
pub struct IncidentFile<'a> {
    /// Of its rows: GPUs or the host.
    pub table: Table,
    /// The folder of the incident.
    pub folder: &'a Path,
    /// What the file says of itself, as pairs.
    pub facts: Vec<(&'static str, String)>,
}

/// A file of an incident that takes rows. Dropped before it is put to its place, it leaves nothing.
pub trait IncidentTable: Debug {
    /// Whether it has all columns of some rows.
    fn takes(&self, batch: &Batch) -> bool;

    /// Adds rows of which it has all columns.
    ///
    /// # Errors
    /// If they cannot be written.
    fn add(&mut self, batch: &Batch) -> Result<(), FlightError>;

    /// Hands to the disk what it has so far, so that little is left to do at its end.
    ///
    /// # Errors
    /// If it cannot be written.
    fn settle(&mut self) -> Result<(), FlightError>;

    /// Puts it to its place, whole and synced. Answers the number of rows.
    ///
    /// # Errors
    /// If it cannot be written.
    fn put(self: Box<Self>) -> Result<u64, FlightError>;
}

/// How files of incidents are written and read back.
#[derive(Debug, Clone, Copy)]
pub struct IncidentFiles {
    /// Begins a file with the columns of these rows. They are not added yet.
    pub begin: fn(IncidentFile<'_>, IncidentRows) -> Result<Box<dyn IncidentTable>, FlightError>,
    /// The rows of all files in the folder of an incident.
    pub read: fn(&Path) -> Result<IncidentRows, FlightError>,
}
