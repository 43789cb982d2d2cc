//! `gpuvitals flight`: the incidents that the flight recorder of this node keeps, and those of whole jobs that a gateway keeps.

mod bundle;
mod fetch;
mod words;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::time::{self, MINUTE_NS, SECOND_NS};
use gpuvitals_flight::{
    DumpTerms, FlightFolder, FlightIncident, FlightTrigger, IncidentEntry, IncidentState,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::STATE_DIRECTORY;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::incident_files::PARQUET;
use crate::table::aligned;
use crate::terminal::print;
use words::{failure, pretty, safe};

/// Errors of an incident that are shown; the file has all.
const ERRORS_MAX: usize = 20;

/// `gpuvitals flight`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals flight list --flight-dir /var/lib/gpuvitals/flight
  gpuvitals flight list --flight-dir /mnt/node-17/var/lib/gpuvitals/flight
  export STATE_DIRECTORY=/var/lib/gpuvitals     then none of these needs --flight-dir:
  gpuvitals flight show 20261130T031459Z-xid
  gpuvitals flight dump                         what the ring has now, also of a dead agent
  gpuvitals flight bundle 20261130T031459Z-xid --run \"/usr/bin/nvidia-smi -q\"
  gpuvitals flight fetch 20261130T031459Z-xid --url http://gateway:8081

Docs: docs/flight.md.")]
pub(crate) struct FlightCommand {
    /// What to do
    #[command(subcommand)]
    command: FlightDeed,
}

/// What to do with incidents.
#[derive(Debug, Subcommand)]
enum FlightDeed {
    /// The incidents that are kept, the oldest first
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// What happened, in a sentence; then what the incident has
    Show {
        /// The incident, as `list` names it
        id: String,
        /// Print incident.json
        #[arg(long)]
        json: bool,
    },
    /// Keep what the ring has now as an incident
    Dump,
    /// Make an archive of an incident for a vendor's case
    Bundle(bundle::Bundle),
    /// Fetch an incident of a whole job from a gateway: what the recorders of all its nodes have
    Fetch(fetch::Fetch),
}

/// Does it.
///
/// # Errors
/// If there is no directory, no such incident, or something cannot be read or written.
pub(crate) fn run(command: &FlightCommand, config: &Config) -> Result<(), Failure> {
    let folder = || directory(config).map(|directory| FlightFolder::of(&directory));
    match &command.command {
        FlightDeed::List { json } => {
            let entries = folder()?.list_begun().map_err(failure)?;
            print(&if *json { list_json(&entries)? } else { list(&entries) })
        }
        FlightDeed::Show { id, json } => {
            let folder = folder()?;
            let incident = folder.read(id).map_err(failure)?;
            let path = folder.path(id).map_err(failure)?;
            print(&if *json { pretty(&value_of(&incident)?)? } else { shown(&incident, &path) })
        }
        FlightDeed::Dump => dump(directory(config)?, config),
        FlightDeed::Bundle(wanted) => bundle::run(wanted, &folder()?),
        FlightDeed::Fetch(wanted) => fetch::run(wanted),
    }
}

/// The directory of this node's flight recorder.
fn directory(config: &Config) -> Result<PathBuf, Failure> {
    let state = std::env::var_os(STATE_DIRECTORY);
    config.flight.directory(state.as_deref()).map_err(|why| {
        let way = "--flight-dir DIR names the directory here, or --config FILE the agent's settings";
        Failure::new(Exit::Usage, format!("{why}; {way}"))
    })
}

fn dump(directory: PathBuf, config: &Config) -> Result<(), Failure> {
    let terms = DumpTerms {
        node: config.sampling.node(),
        back_ns: i64::from(config.flight.minutes) * MINUTE_NS,
        keep: config.flight.keep,
        directory,
        files: PARQUET,
    };
    let folder = FlightFolder::of(&terms.directory);
    let incident = gpuvitals_flight::dump(terms).map_err(failure)?;
    let path = folder.path(&incident.id).map_err(failure)?;
    print(&shown(&incident, &path))
}

fn value_of(part: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(part).map_err(|error| Failure::caused(Exit::Bug, "cannot write JSON", error))
}

/// What can be said of an incident in a line.
fn state(entry: &IncidentEntry) -> String {
    match &entry.state {
        IncidentState::Whole(incident) => safe(&incident.sentence()),
        IncidentState::Torn => "torn: it is being written, or its writer was killed".to_owned(),
        IncidentState::Begun(trigger) => {
            let end = "to be written when its time is over, or by the next agent";
            safe(&format!("begun by {} {}; {end}", trigger.kind, told(trigger)))
        }
        IncidentState::Unreadable(error) => safe(&format!("unreadable: {}", gpuvitals_core::causes(error))),
    }
}

fn list(entries: &[IncidentEntry]) -> String {
    if entries.is_empty() {
        return "no incident is kept\n".to_owned();
    }
    let head = ["ID", "MiB", "WHAT"].map(str::to_owned).to_vec();
    let row = |entry: &IncidentEntry| vec![entry.id.clone(), mebibytes(entry.bytes), state(entry)];
    aligned(&std::iter::once(head).chain(entries.iter().map(row)).collect::<Vec<_>>())
}

/// Bytes in MiB, with a digit behind the point.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn list_json(entries: &[IncidentEntry]) -> Result<String, Failure> {
    let row = |entry: &IncidentEntry| -> Result<Value, Failure> {
        let (word, incident, trigger) = match &entry.state {
            IncidentState::Whole(incident) => ("whole", Some(value_of(incident)?), None),
            IncidentState::Torn => ("torn", None, None),
            IncidentState::Begun(trigger) => ("begun", None, Some(value_of(trigger)?)),
            IncidentState::Unreadable(_) => ("unreadable", None, None),
        };
        Ok(json!({
            "id": entry.id,
            "bytes": entry.bytes,
            "state": word,
            "incident": incident,
            "begun": trigger,
        }))
    };
    pretty(&Value::Array(entries.iter().map(row).collect::<Result<_, _>>()?))
}

/// What a trigger tells: when, of which GPU, what.
fn told(trigger: &FlightTrigger) -> String {
    let gpu = trigger.gpu.as_ref().map_or_else(String::new, |gpu| format!("{gpu}: "));
    format!("{} {gpu}{}", time::format(trigger.at_ns), trigger.detail)
}

/// An incident for people: a sentence, then what it has.
fn shown(incident: &FlightIncident, path: &Path) -> String {
    let span = incident.had.map_or_else(
        || "no row".to_owned(),
        |had| {
            let seconds = (had.to_ns - had.from_ns) / SECOND_NS;
            format!(
                "{} to {}, {}",
                time::format(had.from_ns),
                time::format(had.to_ns),
                counted(seconds.unsigned_abs(), "second")
            )
        },
    );
    let rows: Vec<String> = incident.rows.iter().map(|(table, rows)| format!("{rows} of {table}")).collect();
    let lost = incident.rows_lost.map_or_else(|| "not known".to_owned(), |rows| rows.to_string());
    let mut facts = vec![
        vec!["files".to_owned(), path.display().to_string()],
        vec!["time".to_owned(), span],
        vec!["rows".to_owned(), rows.join(", ")],
        vec!["lost rows".to_owned(), lost],
        vec!["kernel".to_owned(), format!("{} lines ({})", incident.kernel_lines, incident.kernel_log)],
        vec!["boot".to_owned(), incident.boot_id.clone()],
        vec!["version".to_owned(), incident.version.clone()],
        vec!["other nodes".to_owned(), format!("clock offset {}", incident.offset)],
    ];
    let other = |trigger: &FlightTrigger| vec![trigger.kind.clone(), told(trigger)];
    facts.extend(incident.others.iter().map(other));
    let error = |error: &gpuvitals_flight::ReadError| {
        let words = format!("{} of {}: {} rows {}", error.metric, error.gpu, error.count, error.reason);
        vec!["not read".to_owned(), words]
    };
    facts.extend(incident.read_errors.iter().take(ERRORS_MAX).map(error));
    if incident.read_errors.len() > ERRORS_MAX {
        let more = incident.read_errors.len() - ERRORS_MAX;
        facts.push(vec!["not read".to_owned(), format!("{more} more stand in incident.json")]);
    }
    let facts: Vec<Vec<String>> =
        facts.into_iter().map(|fact| fact.iter().map(|cell| safe(cell)).collect()).collect();
    format!("{}\n\n{}", safe(&incident.sentence()), aligned(&facts))
}
