//! How the incidents of a worker come to their end: they are written, and closed.

use std::sync::atomic::Ordering;

use gpuvitals_core::causes;
use gpuvitals_core::clock::Moment;

use super::{OpenIncident, Worker};
use crate::early::EarlyIncident;
use crate::error::FlightError;
use crate::filling::put_about;
use crate::folder::{FlightFolder, IncidentState};
use crate::incident::{FlightIncident, FlightSpan, OTHERS_MAX};
use crate::order::Order;
use crate::trigger::{Cause, FlightTrigger};

impl Worker {
    /// Whether the ring is read for an incident.
    pub(super) fn is_read(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| !writing.is_waiting())
    }

    /// Has what there is of the first open incident written, on a thread of its own.
    pub(super) fn write_early(&mut self, now: Moment) {
        self.flush(now);
        let Some(open) = self.open.front_mut() else { return };
        open.is_early = true;
        let begun = self.open.front().map(|open| EarlyIncident::begin(self.order_of(open)));
        match begun {
            Some(Ok(writing)) => self.writing = Some(writing),
            Some(Err(error)) => self.failed(&error),
            None => {}
        }
    }

    /// Ends the time of the first open incident, and has the rest of it written.
    pub(super) fn order(&mut self, now: Moment) {
        // What has ended before its time has failed: it is tried once more.
        if self.writing.as_ref().is_some_and(EarlyIncident::is_done) {
            self.take_written();
        }
        if self.writing.is_none() {
            self.write_early(now);
        } else {
            self.flush(now);
        }
        let Some(open) = self.open.front_mut() else { return };
        open.is_ordered = true;
        let order = self.open.front().map(|open| self.order_of(open));
        if let (Some(writing), Some(order)) = (&mut self.writing, order) {
            writing.end(order);
        }
    }

    /// What an incident is to be, by what is known now.
    fn order_of(&self, open: &OpenIncident) -> Order {
        let at_ns = open.begun.trigger.at_ns;
        Order {
            directory: self.directory.clone(),
            id: open.begun.id.clone(),
            node: self.terms.node.clone(),
            boot_id: if open.is_from_before { &self.boot_before } else { &self.boot }.clone(),
            trigger: open.begun.trigger.clone(),
            others: open.others.clone(),
            triggers: open.triggers,
            asked: FlightSpan {
                from_ns: at_ns.saturating_sub(self.terms.before_ns),
                to_ns: at_ns.saturating_add(self.terms.after_ns),
            },
            rows_lost: Some(self.counts.rows_lost.load(Ordering::Relaxed)),
            keep: Some(self.terms.keep),
            kernel_log: self.kernel_log.clone(),
            files: self.terms.files,
        }
    }

    /// Takes the incident that is written, and waits for it if its time is over.
    pub(super) fn take_written(&mut self) {
        let is_ordered = self.open.front().is_some_and(|open| open.is_ordered);
        let Some(writing) = self.writing.take_if(|writing| is_ordered || writing.is_done()) else { return };
        let written = writing.join();
        if !is_ordered {
            if let Some(Err(error)) = written {
                // At its end the disk may have room again.
                tracing::debug!(error = causes(&error), "an incident cannot be written yet");
            }
            return;
        }
        let Some(written) = written else {
            self.counts.incidents_failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!("the writing of an incident ended by a panic");
            return;
        };
        let Some(open) = self.open.front_mut() else { return };
        let (id, is_from_before) = (open.begun.id.clone(), open.is_from_before);
        match written {
            Ok(incident) => {
                self.counts.incidents.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(id, summary = incident.sentence(), "an incident is written");
                open.written = Some(incident);
                self.from_before -= usize::from(is_from_before);
                self.ended(&id);
            }
            Err(error) => {
                self.failed(&error);
                // The rows of one from before are in no other place: the next start tries again.
                if !is_from_before {
                    self.ended(&id);
                }
            }
        }
    }

    fn failed(&self, error: &FlightError) {
        self.counts.incidents_failed.fetch_add(1, Ordering::Relaxed);
        tracing::error!(error = causes(error), "an incident cannot be written");
    }

    pub(super) fn ended(&self, id: &str) {
        if let Err(error) = self.ring.end(id) {
            // The next start finds the incident, and tries again.
            tracing::debug!(error = causes(&error), id, "the end of an incident is not noted");
        }
    }

    /// Notes a trigger whose cause goes on in the newest incident that has it: the next start knows of it by that alone.
    pub(super) fn note_again(&self, trigger: FlightTrigger) {
        let (folder, cause) = (FlightFolder::of(&self.directory), trigger.cause());
        let newest =
            folder.list().unwrap_or_default().into_iter().rev().find_map(|entry| match entry.state {
                IncidentState::Whole(incident) if has(&incident, &cause) => Some(incident),
                _ => None,
            });
        let Some(mut incident) = newest else { return };
        incident.triggers += 1;
        incident.others.truncate(OTHERS_MAX - 1);
        incident.others.push(trigger);
        let path = folder.path(&incident.id);
        if let Err(error) = path.and_then(|path| put_about(&path, &incident)) {
            tracing::warn!(
                error = causes(&error),
                id = incident.id,
                "a trigger that goes on is not in its incident"
            );
        }
    }

    /// Ends the first open incident, with the triggers that came after it was written.
    pub(super) fn close(&mut self) {
        let Some(OpenIncident { written: Some(mut incident), others, triggers, .. }) = self.open.pop_front()
        else {
            return;
        };
        if incident.triggers == triggers {
            return;
        }
        (incident.triggers, incident.others) = (triggers, others);
        let folder = FlightFolder::of(&self.directory).path(&incident.id);
        if let Err(error) = folder.and_then(|folder| put_about(&folder, &incident)) {
            tracing::warn!(
                error = causes(&error),
                id = incident.id,
                "later triggers are not in the incident"
            );
        }
    }
}

/// Whether an incident has a trigger of a cause.
fn has(incident: &FlightIncident, cause: &Cause) -> bool {
    std::iter::once(&incident.trigger).chain(&incident.others).any(|trigger| trigger.cause() == *cause)
}
