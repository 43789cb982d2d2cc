//! Findings: what is wrong with a fleet now, why that is believed, whom it concerns and what to do.
//!
//! [`judge`] looks at the latest state of all GPUs and their last ten minutes ([`Recent`]) and returns candidates. A
//! [`Tracker`] turns candidates into findings: a finding opens after it has held for a while and closes later than it
//! opened, and keeps its beginning meanwhile. [`KINDS`] and [`threshold`] hold all rules and numbers; docs/findings.md
//! explains them.

mod began;
mod boots;
mod clock;
mod evidence;
mod groups;
mod hardware;
mod hung;
mod kinds;
mod level;
mod life;
mod marked;
mod ras;
mod recent;
mod repeats;
mod rhythm;
mod silenced;
mod silent;
mod since;
mod stalled;
mod subject;
mod survey;
pub mod threshold;
mod throttling;
mod told;
mod tracker;
mod twice;

use survey::{Member, Survey, common};

pub use began::{LookBack, Shown};
pub use boots::HostBoots;
pub use clock::{ClockWatch, RowAhead};
pub use evidence::{ComparedValue, Evidence};
pub use groups::{HolderLoad, MemberLoad, holder_loads};
pub use kinds::{FindingKind, KINDS};
pub use level::WorkLevel;
pub use life::{LIFE_KINDS, LifeChange, life_rows};
pub use marked::RunMarks;
pub use ras::RasBlocks;
pub(crate) use recent::POWERS;
pub use recent::{GpuWindow, Recent};
pub use repeats::RepeatedXids;
pub use rhythm::WorkRhythm;
pub use silenced::{SILENCE_MAX_NS, Silence, Silenced};
pub use silent::lost_gpus;
pub use since::{Began, LOOK_BACK_NS};
pub use subject::{Candidate, FleetFinding, Reach, Subject, host_of};
pub use survey::{LostGpu, Situation, holder_of};
pub use told::AgentWords;
pub use tracker::Tracker;

pub(crate) use since::SETTLE_NS;
pub(crate) use survey::finding;

/// Everything that may be wrong, in no particular order.
pub fn judge(situation: &Situation<'_>) -> Vec<Candidate> {
    let survey = Survey::of(*situation);
    let mut found = Vec::new();
    survey.conditions(&mut found);
    survey.repeated_xids(&mut found);
    survey.slow_reads(&mut found);
    survey.silent(&mut found);
    survey.missing(&mut found);
    survey.two_nodes(&mut found);
    survey.two_agents(&mut found);
    survey.throttling(&mut found);
    survey.links(&mut found);
    survey.fans(&mut found);
    survey.drivers(&mut found);
    survey.stragglers(&mut found);
    survey.idle_holders(&mut found);
    survey.hung_jobs(&mut found);
    survey.stalled_jobs(&mut found);
    found
}

#[cfg(test)]
mod tests;
