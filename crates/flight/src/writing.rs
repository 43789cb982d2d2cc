//! Writes incidents: what a ring has becomes a folder of files.

use std::fs;
use std::path::{Path, PathBuf};

use gpuvitals_core::clock::Moment;
use gpuvitals_log::{make_directory, read_beside, sync_directory};

use crate::boot;
use crate::error::FlightError;
use crate::filling::Filling;
use crate::folder::{FlightFolder, PART};
use crate::incident::{FlightIncident, FlightSpan, OTHERS_MAX};
use crate::order::Order;
use crate::owner::as_owner;
use crate::place;
use crate::ring::{self, undisturbed};
use crate::tables::IncidentFiles;
use crate::trigger::{DUMP, FlightTrigger};

/// Who asks for a dump, and how much is to be in it.
#[derive(Debug, Clone)]
pub struct DumpTerms {
    /// Directory of the flight recorder.
    pub directory: PathBuf,
    /// Name of the host, if its rows do not say it: the disk may be another's.
    pub node: String,
    /// Nanoseconds back from the newest row.
    pub back_ns: i64,
    /// Most incidents: beyond them the oldest dumps go.
    pub keep: usize,
    /// How its rows become files.
    pub files: IncidentFiles,
}

/// Makes an incident from what a ring has now, with the triggers of incidents that are not written: of a dead agent nobody else tells
/// of them. The agent whose ring it is goes on, if there is one; it removes the incident some day, so root writes it as the owner of
/// the directory.
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
    let DumpTerms { directory, node, back_ns, keep, files } = terms;
    let now_ns = Moment::now().wall_ns;
    // Of a dead agent the newest row may be days old.
    let newest = undisturbed(|| ring::newest_row(read_beside(&place::ring(&directory))?))?;
    let (newest_ns, of_rows) = newest.unwrap_or((now_ns, None));
    let to_ns = newest_ns.min(now_ns);
    let from_ns = to_ns.saturating_sub(back_ns);
    let boot_id = boot::noted(&directory).unwrap_or_else(boot::boot_id);
    let begun = undisturbed(|| ring::pending(read_beside(&place::ring(&directory))?))?;
    // What a gateway asked for is known by the incident that it begins, not by this one.
    let is_named = |trigger: &FlightTrigger| !trigger.is_of_job() && trigger.at_ns >= from_ns;
    let mut others: Vec<FlightTrigger> =
        begun.into_iter().map(|begun| begun.trigger).filter(is_named).collect();
    let triggers = 1 + others.len() as u64;
    others.truncate(OTHERS_MAX);
    let order = Order {
        id: FlightFolder::of(&directory).free_id(DUMP, now_ns),
        directory,
        node: of_rows.unwrap_or(node),
        boot_id,
        trigger: FlightTrigger::of_node(DUMP, "somebody asked for it with gpuvitals flight dump", now_ns),
        others,
        triggers,
        asked: FlightSpan { from_ns, to_ns },
        rows_lost: None,
        keep: None,
        kernel_log: "of the agent, if it reads one".to_owned(),
        files,
    };
    let written = write(&order)?;
    FlightFolder::of(&order.directory).prune_dumps(keep, &order.id);
    Ok(written)
}

/// Writes an incident whose time is over. What an earlier try has left of it is replaced.
pub(crate) fn write(order: &Order) -> Result<FlightIncident, FlightError> {
    write_until(order, || Some(order.clone()))
}

/// Writes an incident whose time may go on. `over` waits for its end when all that the ring has until then is written, and gives the
/// order as it is then; none: the incident is given up.
pub(crate) fn write_until(
    order: &Order,
    over: impl FnOnce() -> Option<Order>,
) -> Result<FlightIncident, FlightError> {
    let incidents = place::incidents(&order.directory);
    make_directory(&incidents).map_err(FlightError::io("create", &incidents))?;
    let part = incidents.join(format!("{}{PART}", order.id));
    let put = filled(order, &part, over).and_then(|incident| {
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

/// Fills the folder of an incident: with what the ring has now, and then with what came until the end.
fn filled(
    order: &Order,
    part: &Path,
    over: impl FnOnce() -> Option<Order>,
) -> Result<FlightIncident, FlightError> {
    let mut filling = undisturbed(|| begun(order, part))?;
    let order = over().ok_or(FlightError::GivenUp)?;
    match filling.go_on() {
        Err(error) if error.is_moved_on() => {
            // Its files go before others take their names.
            drop(filling);
            undisturbed(|| begun(&order, part))?.end(&order)
        }
        gone_on => gone_on.and_then(|()| filling.end(&order)),
    }
}

/// A folder with what the ring has now.
fn begun(order: &Order, part: &Path) -> Result<Filling, FlightError> {
    if part.exists() {
        fs::remove_dir_all(part).map_err(FlightError::io("remove", part))?;
    }
    make_directory(part).map_err(FlightError::io("create", part))?;
    let mut filling = Filling::begin(order, part)?;
    filling.go_on()?;
    filling.settle()?;
    Ok(filling)
}
