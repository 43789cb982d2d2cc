//! The flight recorder of a node: the last minutes of its rows in a ring on disk, and what of them is kept when something happens.
//!
//! An agent gives a [`FlightRecorder`] each batch that it samples. It lies in the ring, synced, at most five seconds after it was
//! sampled, and outlives a kill and a power cut from then on. A trigger (an XID, an uncorrectable error, heat that slows a GPU, a GPU
//! that is lost, a threshold, somebody who asks) begins an *incident*: when some time after it is over, the ring's rows become
//! files in a folder of their own, with `incident.json`, which says what happened. Whoever starts the recorder writes those of rows
//! ([`IncidentFiles`]): they are Parquet, of which this crate knows nothing.
//! [`window`] and [`FlightRecorder::rest`] are what a node answers about an incident of its whole job.
//!
//! ```text
//! DIR/LOCK, ring/*.wal                 the ring: a log with the rows, and the triggers whose incident is not written yet
//! DIR/boot                             what the kernel calls the boot that the agent runs in
//! DIR/incidents/ID/                    incident.json, gpu_events.parquet, system_events.parquet, processes.json,
//!                                      kernel.log
//! DIR/incidents/ID.part/               one that is being written, or whose writer was killed
//! DIR/jobs/LOCK, ID/                   of a gateway: incident.json of a whole job, NODE.window and NODE.rest
//! ```
//!
//! [`dump`] makes an incident from the ring of an agent that runs, or that is dead: it reads the ring and changes nothing in it.
//! A gateway has [`JobIncidents`]: of a trigger on one node it asks every node of the job.
//! What is in the files is specified in `docs/flight.md`.

mod answering;
mod archive;
mod boot;
mod conditions;
#[cfg(test)]
mod doubles;
mod early;
mod error;
mod facts;
mod filling;
mod folder;
mod incident;
mod job;
mod job_files;
mod job_incident;
mod job_window;
mod line;
mod node_clock;
mod order;
mod owner;
mod place;
mod processes;
mod reads;
mod recorder;
mod ring;
mod rule;
mod sentence;
mod settings;
mod tables;
mod terms;
mod trigger;
mod watch;
mod worker;
mod writing;

pub use answering::{WindowAnswer, window};
pub use archive::{BundlePart, BundledFile, bundle, check_bundle};
pub use boot::boot_id;
pub use error::{FlightError, JobError};
pub use folder::{FlightFolder, IncidentEntry, IncidentState};
pub use incident::{FlightGpu, FlightIncident, FlightSpan, INCIDENT_SCHEMA, ReadError};
pub use job::{
    JOB_REQUEST_STANDS_NS, JOB_REQUESTS_PATH, JobIncidents, JobMembers, JobRequest, StandingRequests,
};
pub use job_incident::{AskedNode, FirstVictim, JobIncident, JobTrigger, NodeWindow, WindowGpu, WindowPart};
pub use job_window::{IncomingWindow, WindowPieces};
pub use line::FlightLine;
pub use node_clock::{NodeClock, RoundTrip};
pub use place::FlightPlace;
pub use recorder::FlightRecorder;
pub use rule::{FlightRule, RuleError};
pub use settings::FlightSettings;
pub use tables::{IncidentFile, IncidentFiles, IncidentRows, IncidentTable};
pub use terms::FlightTerms;
pub use trigger::FlightTrigger;
pub use writing::{DumpTerms, dump};
