//! `gpuvitals flight fetch`: an incident of a whole job, from the gateway that keeps it, as a recording.

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gpuvitals_core::quantity::counted;
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_core::{Table, clock};
use gpuvitals_flight::{AskedNode, JobError, JobIncident, JobIncidents, WindowPart, WindowPieces};
use gpuvitals_log::create_file;
use gpuvitals_record::{TableFile, TableFileError};
use serde_json::json;
use ureq::http::Method;

use super::words::{pretty, safe};
use crate::failure::{Exit, Failure};
use crate::percent::escaped;
use crate::query;
use crate::query::flags::Server;
use crate::terminal::print;

/// How long the nodes may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Nobody else enters the folder.
const MODE: u32 = 0o700;

/// What of a job's incident its nodes have.
#[derive(Debug, Args)]
pub(super) struct Fetch {
    /// The incident, as the gateway names it
    id: String,
    /// The folder, a new one; without it ID in this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The gateway.
    #[command(flatten)]
    server: Server,
}

/// Asks all nodes for the rest, waits for them, and writes what came.
///
/// # Errors
/// If the gateway cannot be reached or refuses it, or something cannot be written.
pub(super) fn run(fetch: &Fetch) -> Result<(), Failure> {
    let rest = json!({ "rest": fetch.id });
    query::send(&fetch.server, Method::POST, "/api/v1/flight/requests", Some(&rest))?;
    let folder = fetch.output.clone().unwrap_or_else(|| PathBuf::from(&fetch.id));
    let made = DirBuilder::new().mode(MODE).create(&folder);
    made.map_err(|error| Failure::io(format!("cannot create {}", folder.display()), error))?;
    let filled = fill(fetch, &folder);
    if filled.is_err() {
        // A part of an incident would be in the way of the next try.
        let _left = fs::remove_dir_all(&folder);
    }
    print(&filled?)
}

/// Writes what comes; answers what is said of it.
fn fill(fetch: &Fetch, folder: &Path) -> Result<String, Failure> {
    let (incident, text) = answered(fetch)?;
    let rows = put(fetch, &incident, folder)?;
    let about = folder.join("incident.json");
    let written = create_file(&about).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::io(format!("cannot write {}", about.display()), error))?;
    Ok(if fetch.server.json { text } else { shown(&incident, folder, rows) })
}

/// The incident, when all nodes have answered or the time is over; and as it is shown.
fn answered(fetch: &Fetch) -> Result<(JobIncident, String), Failure> {
    let began = clock::instant();
    loop {
        let answer = query::ask(&fetch.server, &path(&fetch.id))?;
        let text = pretty(&answer)?;
        let incident: JobIncident = serde_json::from_value(answer).map_err(|error| {
            Failure::caused(Exit::Data, "the gateway gave an incident of another version", error)
        })?;
        let is_whole = incident.nodes.iter().all(|node| node.rest.is_some());
        if is_whole || began.elapsed() >= PATIENCE {
            return Ok((incident, text));
        }
        std::thread::park_timeout(PAUSE);
    }
}

fn path(id: &str) -> String {
    format!("/api/v1/flight/incidents/{}", escaped(id))
}

/// The most that a node has sent; none: nothing. The rest has the window, too.
fn best(node: &AskedNode) -> Option<WindowPart> {
    [WindowPart::Rest, WindowPart::Window].into_iter().find(|part| node.answer(*part).is_some())
}

/// Writes the rows of all nodes as one table; answers how many there are.
fn put(fetch: &Fetch, incident: &JobIncident, folder: &Path) -> Result<u64, Failure> {
    let pieces = folder.join("rows.part");
    let failed = |error| Failure::io(format!("cannot write {}", pieces.display()), error);
    let mut file = create_file(&pieces).map_err(failed)?;
    for node in &incident.nodes {
        let Some(part) = best(node).filter(|_| JobIncidents::is_node(&node.node)) else { continue };
        let of_node = format!("{}/nodes/{}?part={}", path(&fetch.id), escaped(&node.node), part.name());
        file.write_all(&query::bytes(&fetch.server, &of_node)?).map_err(failed)?;
    }
    drop(file);
    let target = folder.join("gpu_events.parquet");
    let from_ns = incident.asked.from_ns;
    let facts = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("node", incident.job.clone()),
        ("started_ns", from_ns.to_string()),
        ("started", time::format(from_ns - from_ns.rem_euclid(SECOND_NS))),
        ("ended", "incident".to_owned()),
        ("incident", incident.id.clone()),
    ];
    let table = TableFile { table: Table::GpuEvents, target: &target, facts };
    let rows = table.write(|| WindowPieces::open(&pieces));
    let rows = rows.map_err(|error: TableFileError<JobError>| {
        Failure::caused(Exit::Data, format!("cannot write {}", target.display()), error)
    })?;
    fs::remove_file(&pieces).map_err(failed)?;
    Ok(rows)
}

fn shown(incident: &JobIncident, folder: &Path, rows: u64) -> String {
    let first = incident.first.as_ref().map_or_else(
        || "which GPU failed first is not known".to_owned(),
        |first| {
            let at = time::format(first.at_ns);
            let said = format!("GPU {} of {} failed first, at {at}: {}", first.gpu, first.node, first.why);
            match &first.doubt {
                Some(doubt) => format!("{doubt}; by the clocks {said}"),
                None => said,
            }
        },
    );
    let sent = |part| incident.nodes.iter().filter(|node| best(node) == Some(part)).count() as u64;
    let (rest, windows) = (sent(WindowPart::Rest), sent(WindowPart::Window));
    let silent = incident.nodes.len() as u64 - rest - windows;
    format!(
        "{}: {}.\n{} of {} sent all that they have, {windows} the time around it alone, {silent} nothing; {} in {}\n",
        safe(&incident.id),
        safe(&first),
        rest,
        counted(incident.nodes.len() as u64, "node"),
        counted(rows, "row"),
        folder.display()
    )
}
