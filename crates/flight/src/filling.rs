//! The files of an incident, filled from a ring: with what it has at first, and with what it has more by the end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use gpuvitals_core::clock::Moment;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Table, time};
use gpuvitals_log::{Fresh, create_file, read_beside, read_beside_from};

use crate::error::FlightError;
use crate::facts::Facts;
use crate::folder::ABOUT;
use crate::incident::{FlightIncident, FlightSpan, INCIDENT_SCHEMA};
use crate::line::FlightLine;
use crate::order::Order;
use crate::place;
use crate::processes::Processes;
use crate::ring::{self, RingItem};
use crate::tables::{IncidentFile, IncidentTable};

/// Tables that become files.
const TABLES: [Table; 2] = [Table::GpuEvents, Table::SystemEvents];
/// Most bytes of a text file, about: ten thousands of lines of the kernel.
const LINES_LEN_MAX: usize = 8 << 20;

/// The files of an incident that are not whole yet.
#[derive(Debug)]
pub(crate) struct Filling {
    ring: PathBuf,
    part: PathBuf,
    span: (i64, i64),
    tables: Vec<(Table, Box<dyn IncidentTable>)>,
    facts: Facts,
    processes: Processes,
    lines: KernelText,
    /// The segment and the number of the last record that was looked at.
    last: (u64, u64),
}

/// Lines of the kernel, as the text of a file.
#[derive(Debug, Default)]
struct KernelText {
    text: String,
    count: u64,
}

impl KernelText {
    fn add(&mut self, lines: &[FlightLine]) {
        for line in lines {
            if self.text.len() >= LINES_LEN_MAX {
                break;
            }
            self.text.push_str(&line.written());
            self.count += 1;
        }
    }

    /// Writes the file, if there is anything.
    fn put(&self, path: &Path) -> Result<(), FlightError> {
        if self.count == 0 { Ok(()) } else { put_file(path, self.text.as_bytes()) }
    }
}

impl Filling {
    /// Begins the files in a folder that is empty, with the columns that the ring has now.
    pub(crate) fn begin(order: &Order, part: &Path) -> Result<Self, FlightError> {
        let ring = place::ring(&order.directory);
        let span = (order.asked.from_ns, order.asked.to_ns);
        let mut tables = Vec::new();
        for table in TABLES {
            let rows = ring::rows(read_beside(&ring)?, table, span);
            let file = IncidentFile { table, folder: part, facts: said(order) };
            tables.push((table, (order.files.begin)(file, Box::new(rows))?));
        }
        Ok(Self {
            ring,
            part: part.to_owned(),
            span,
            tables,
            facts: Facts::around(order.trigger.at_ns),
            processes: Processes::default(),
            lines: KernelText::default(),
            last: (0, 0),
        })
    }

    /// Takes what the ring has more by now.
    ///
    /// # Errors
    /// If it cannot be read or written, or rows have columns that the files lack; nothing can go on then.
    pub(crate) fn go_on(&mut self) -> Result<(), FlightError> {
        let (segment, number) = self.last;
        for record in read_beside_from(&self.ring, segment)? {
            let record = record?;
            if record.sequence <= number {
                continue;
            }
            self.last = (record.place.segment(), record.sequence);
            match ring::item(&record, self.span)? {
                Some(RingItem::Rows(batch)) => self.add(&batch)?,
                Some(RingItem::Lines(lines)) => self.lines.add(&lines),
                None => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, batch: &Batch) -> Result<(), FlightError> {
        self.processes.add(batch);
        let of_table = self.tables.iter_mut().find(|(table, _)| *table == batch.table());
        let Some((_, file)) = of_table else { return Ok(()) };
        if !file.takes(batch) {
            return Err(FlightError::NewColumns);
        }
        file.add(batch)?;
        self.facts.add(batch);
        Ok(())
    }

    /// Hands to the disk what there is, so that little is left to do at the end.
    pub(crate) fn settle(&mut self) -> Result<(), FlightError> {
        for (_, file) in &mut self.tables {
            file.settle()?;
        }
        Ok(())
    }

    /// Ends the files, and writes `incident.json`.
    pub(crate) fn end(self, order: &Order) -> Result<FlightIncident, FlightError> {
        let Self { part, tables, facts, processes, lines, .. } = self;
        let mut rows = BTreeMap::new();
        for (table, file) in tables {
            rows.insert(table.name().to_owned(), file.put()?);
        }
        let path = part.join("processes.json");
        let text = processes.json().map_err(|source| FlightError::Json { path: path.clone(), source })?;
        put_file(&path, &text)?;
        lines.put(&part.join("kernel.log"))?;
        let had = facts.span();
        let (gpus, read_errors) = facts.into_parts();
        let now = Moment::now();
        let incident = FlightIncident {
            schema: INCIDENT_SCHEMA,
            id: order.id.clone(),
            node: order.node.clone(),
            boot_id: order.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            trigger: order.trigger.clone(),
            triggers: order.triggers,
            others: order.others.clone(),
            asked: order.asked,
            had,
            rows,
            rows_lost: order.rows_lost,
            written_ns: now.wall_ns,
            written_monotonic_ns: now.mono_ns,
            offset: "not known".to_owned(),
            gpus,
            read_errors,
            kernel_lines: lines.count,
            kernel_log: order.kernel_log.clone(),
        };
        put_about(&part, &incident)?;
        Ok(incident)
    }
}

/// Writes a file that was not there.
fn put_file(path: &Path, text: &[u8]) -> Result<(), FlightError> {
    let mut file = create_file(path).map_err(FlightError::io("create", path))?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(FlightError::io("write", path))
}

/// What the files of rows say of themselves, as those of a recording.
fn said(order: &Order) -> Vec<(&'static str, String)> {
    let FlightSpan { from_ns, .. } = order.asked;
    vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("node", order.node.clone()),
        ("started_ns", from_ns.to_string()),
        ("started", time::format(from_ns - from_ns.rem_euclid(SECOND_NS))),
        ("ended", "incident".to_owned()),
        ("incident", order.id.clone()),
    ]
}

/// Writes `incident.json` of a folder anew, whole or not at all.
pub(crate) fn put_about(folder: &Path, incident: &FlightIncident) -> Result<(), FlightError> {
    let path = folder.join(ABOUT);
    let text = serde_json::to_vec_pretty(incident)
        .map_err(|source| FlightError::Json { path: path.clone(), source })?;
    let fresh = Fresh::create(&path).map_err(FlightError::io("create", &path))?;
    fresh.file().write_all(&text).map_err(FlightError::io("write", &path))?;
    fresh.put().map_err(FlightError::io("write", &path))?;
    Ok(())
}
