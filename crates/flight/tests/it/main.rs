//! Incidents through the public face: those of a node, and those of whole jobs.

mod asked;
mod jobs;
