//! Writes incidents: rows of a ring become a folder of files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use gpuvitals_core::clock::Moment;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{Batch, Table, time};
use gpuvitals_log::{Fresh, create_file, make_directory, read_beside, sync_directory};
use gpuvitals_record::TableFile;

use crate::error::FlightError;
use crate::facts::Facts;
use crate::folder::{ABOUT, FlightFolder, PART};
use crate::incident::{FlightIncident, FlightSpan, INCIDENT_SCHEMA};
use crate::line::FlightLine;
use crate::owner::as_owner;
use crate::place;
use crate::processes::Processes;
use crate::reads::FlightRead;
use crate::ring::{self, RingNote};
use crate::trigger::FlightTrigger;

/// Tables that become Parquet files.
const TABLES: [Table; 2] = [Table::GpuEvents, Table::SystemEvents];
/// Tries to read a ring whose agent removes old rows meanwhile.
const TRIES: u32 = 3;
/// Most bytes of such a file, about: ten thousands of lines of the kernel.
const NOTES_LEN_MAX: usize = 8 << 20;

/// What an incident is to be.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Directory of the ring.
    pub(crate) directory: PathBuf,
    pub(crate) id: String,
    pub(crate) node: String,
    pub(crate) trigger: FlightTrigger,
    pub(crate) others: Vec<FlightTrigger>,
    pub(crate) triggers: u64,
    pub(crate) asked: FlightSpan,
    pub(crate) rows_lost: Option<u64>,
    /// Most incidents; the oldest go. None: those of the agent are not the writer's to remove.
    pub(crate) keep: Option<usize>,
    /// Where the kernel's lines are from, or why there are none.
    pub(crate) kernel_log: String,
}

/// Who asks for a dump, and how much is to be in it.
#[derive(Debug, Clone)]
pub struct DumpTerms {
    /// Directory of the flight recorder.
    pub directory: PathBuf,
    /// Name of the host.
    pub node: String,
    /// Nanoseconds back from the newest row.
    pub back_ns: i64,
}

/// Makes an incident from what a ring has now. The agent whose ring it is goes on, if there is one; it removes the incident some day,
/// so root writes it as the owner of the directory.
///
/// # Errors
/// If there is no ring, root cannot become the owner of the directory, or the incident cannot be written.
pub fn dump(terms: DumpTerms) -> Result<FlightIncident, FlightError> {
    let directory = terms.directory.clone();
    if !place::ring(&directory).is_dir() {
        return Err(FlightError::NoRing { path: directory });
    }
    as_owner(&directory, move || dump_here(terms))
}

fn dump_here(terms: DumpTerms) -> Result<FlightIncident, FlightError> {
    let DumpTerms { directory, node, back_ns } = terms;
    let now_ns = Moment::now().wall_ns;
    // Of a dead agent the newest row may be days old.
    let newest_ns = undisturbed(|| ring::newest_row(read_beside(&place::ring(&directory))?))?;
    let to_ns = newest_ns.unwrap_or(now_ns).min(now_ns);
    let order = Order {
        id: FlightFolder::of(&directory).free_id("dump", now_ns),
        directory,
        node,
        trigger: FlightTrigger::of_node("dump", "somebody asked for it with gpuvitals flight dump", now_ns),
        others: Vec::new(),
        triggers: 1,
        asked: FlightSpan { from_ns: to_ns.saturating_sub(back_ns), to_ns },
        rows_lost: None,
        keep: None,
        kernel_log: "of the agent, if it reads one".to_owned(),
    };
    write(&order)
}

/// Writes an incident. What an earlier try has left of it is replaced.
pub(crate) fn write(order: &Order) -> Result<FlightIncident, FlightError> {
    let incidents = place::incidents(&order.directory);
    make_directory(&incidents).map_err(FlightError::io("create", &incidents))?;
    let part = incidents.join(format!("{}{PART}", order.id));
    let incident = undisturbed(|| fill(order, &part));
    let put = incident.and_then(|incident| {
        let target = incidents.join(&order.id);
        fs::rename(&part, &target).map_err(FlightError::io("rename", &part))?;
        sync_directory(&incidents).map_err(FlightError::io("sync", &incidents))?;
        Ok(incident)
    });
    if put.is_err() {
        // On a full disk its bytes are what is missing. What cannot be removed is shown as torn.
        let _removed = fs::remove_dir_all(&part);
    } else if let Some(keep) = order.keep {
        for id in FlightFolder::of(&order.directory).prune(keep, &order.id) {
            tracing::info!(id, "an old incident was removed");
        }
    }
    put
}

/// What comes of reading a ring, again if its agent removes old rows meanwhile.
pub(crate) fn undisturbed<T>(mut read: impl FnMut() -> Result<T, FlightError>) -> Result<T, FlightError> {
    let mut tries = 1;
    loop {
        match read() {
            Err(error) if error.is_moved_on() && tries < TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

/// Fills the folder of an incident, from its beginning.
fn fill(order: &Order, part: &Path) -> Result<FlightIncident, FlightError> {
    if part.exists() {
        fs::remove_dir_all(part).map_err(FlightError::io("remove", part))?;
    }
    make_directory(part).map_err(FlightError::io("create", part))?;
    let facts = RefCell::new(Facts::around(order.trigger.at_ns));
    let mut rows = BTreeMap::new();
    for table in TABLES {
        let target = part.join(format!("{}.parquet", table.name()));
        let file = TableFile { table, target: &target, facts: footer(order) };
        let count = file.write(|| rows_of(order, table), |batch| facts.borrow_mut().add(batch))?;
        rows.insert(table.name().to_owned(), count);
    }
    let mut processes = Processes::default();
    for batch in rows_of(order, Table::GpuProcesses)? {
        processes.add(&batch?);
    }
    let path = part.join("processes.json");
    let text = processes.json().map_err(|source| FlightError::Json { path: path.clone(), source })?;
    put_file(&path, &text)?;
    let kernel_lines = put_notes(order, &part.join("kernel.log"), "", FlightLine::written)?;
    put_notes(order, &part.join("reads.csv"), FlightRead::HEAD, FlightRead::written)?;
    let facts = facts.into_inner();
    let had = facts.span();
    let (gpus, read_errors) = facts.into_parts();
    let now = Moment::now();
    let incident = FlightIncident {
        schema: INCIDENT_SCHEMA,
        id: order.id.clone(),
        node: order.node.clone(),
        boot_id: boot_id(),
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
        kernel_lines,
        kernel_log: order.kernel_log.clone(),
    };
    put_about(part, &incident)?;
    Ok(incident)
}

/// Writes a file of what was noted beside the rows meanwhile, each as a text behind a head, if there is any; answers how many.
fn put_notes<T: RingNote>(
    order: &Order,
    path: &Path,
    head: &str,
    written: fn(&T) -> String,
) -> Result<u64, FlightError> {
    let FlightSpan { from_ns, to_ns } = order.asked;
    let (mut text, mut count) = (head.to_owned(), 0);
    for note in ring::notes::<T>(read_beside(&place::ring(&order.directory))?, (from_ns, to_ns)) {
        if text.len() >= NOTES_LEN_MAX {
            break;
        }
        text.push_str(&written(&note?));
        count += 1;
    }
    if count > 0 {
        put_file(path, text.as_bytes())?;
    }
    Ok(count)
}

/// Writes a file that was not there.
fn put_file(path: &Path, bytes: &[u8]) -> Result<(), FlightError> {
    let mut file = create_file(path).map_err(FlightError::io("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(FlightError::io("write", path))
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

fn rows_of(
    order: &Order,
    table: Table,
) -> Result<impl Iterator<Item = Result<Batch, FlightError>> + use<>, FlightError> {
    let FlightSpan { from_ns, to_ns } = order.asked;
    Ok(ring::rows(read_beside(&place::ring(&order.directory))?, table, (from_ns, to_ns)))
}

/// What the footers of the Parquet files say, as those of a recording.
fn footer(order: &Order) -> Vec<(&'static str, String)> {
    vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("node", order.node.clone()),
        ("started_ns", order.asked.from_ns.to_string()),
        ("started", time::format(order.asked.from_ns - order.asked.from_ns.rem_euclid(SECOND_NS))),
        ("ended", "incident".to_owned()),
        ("incident", order.id.clone()),
    ]
}

/// What the kernel calls this boot; empty if it does not say.
pub fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.chars().filter(|c| c.is_ascii_hexdigit() || *c == '-').take(36).collect()
}
