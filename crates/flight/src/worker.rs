//! The work of a flight recorder, with the time passed in: rows into the ring, triggers into incidents.

mod ends;

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpuvitals_analysis::row_reads::RowReads;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Batch, Table, causes};

use crate::boot::{self, boot_id};
use crate::early::EarlyIncident;
use crate::error::FlightError;
use crate::folder::{FlightFolder, IncidentState};
use crate::incident::{FlightIncident, OTHERS_MAX};
use crate::line::FlightLine;
use crate::place::FlightPlace;
use crate::reads;
use crate::ring::{self, Before, Ring, RingTrigger};
use crate::terms::{FlightCounts, FlightTerms};
use crate::trigger::{Cause, FlightTrigger, JOB};
use crate::watch::{Watch, Watched};

/// Oldest age of a row here: with what it waits in the sampler before, less than the five seconds that a power cut may cost.
const FLUSH_NS: i64 = 3 * SECOND_NS;
/// Rows that go into the ring at once.
const FLUSH_ROWS: usize = 16_384;
/// How long rows of a moment may still be on their way here, as samplers hand them on each second: those of a window are there then.
const SETTLE_NS: i64 = SECOND_NS + SECOND_NS / 4;
/// How long before the end of an incident its writing begins: minutes of rows take some seconds, and it is to be there at its end.
const LEAD_NS: i64 = 15 * SECOND_NS;
/// Triggers within this time after the first are its incident's.
const JOIN_NS: i64 = MINUTE_NS;
/// Lines of the kernel that wait; of more the newest are lost.
const LINES_MAX: usize = 4_096;
/// Causes that are remembered; a node has fewer.
const CAUSES_MAX: usize = 4_096;
/// Between two openings of a ring whose disk fails.
const REOPEN_NS: i64 = 30 * SECOND_NS;

/// What comes to a flight recorder.
#[derive(Debug)]
pub(crate) enum Input {
    /// Rows of the agent's sampler.
    Sampled(Batch),
    /// Rows of GPUs for the ring alone.
    Faster(Batch),
    /// A line of the kernel.
    Kernel(FlightLine),
    /// Where such lines are from, or why there are none.
    KernelLog(String),
    /// A GPU whose reading is out past its deadline.
    Stuck(String),
    /// Somebody asks by a signal.
    Signal,
    /// A gateway asks, for an incident of a whole job.
    Asked { incident: String, at_ns: i64 },
    /// Nothing more comes: wakes who waits for it.
    End,
}

impl Input {
    /// How many rows it brings.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Sampled(batch) | Self::Faster(batch) => batch.rows(),
            Self::Kernel(_)
            | Self::KernelLog(_)
            | Self::Stuck(_)
            | Self::Signal
            | Self::Asked { .. }
            | Self::End => 0,
        }
    }
}

/// A flight recorder without its thread.
#[derive(Debug)]
pub(crate) struct Worker {
    terms: FlightTerms,
    ring: Ring,
    watch: Watch,
    waiting: Vec<Batch>,
    rows: usize,
    lines: Vec<FlightLine>,
    reads: RowReads,
    kernel_log: String,
    /// When the first of what waits came, monotonic.
    since_ns: i64,
    /// Incidents that are not over. The first is worked on, the last takes triggers.
    open: VecDeque<OpenIncident>,
    /// Those of what was before the start that are not written: until then the ring keeps its rows of that time.
    from_before: usize,
    /// When a poisoned ring is opened anew at the earliest, monotonic.
    reopen_ns: i64,
    /// When each cause last was a trigger, nanoseconds UTC.
    seen: HashMap<Cause, i64>,
    /// The first open incident, as far as it is written.
    writing: Option<EarlyIncident>,
    counts: Arc<FlightCounts>,
    /// What the kernel calls this boot, and the one in which the agent before ran.
    boot: String,
    boot_before: String,
    directory: PathBuf,
    /// Owned until this is dropped, after the ring.
    place: FlightPlace,
}

/// An incident that still takes triggers.
#[derive(Debug)]
struct OpenIncident {
    begun: RingTrigger,
    others: Vec<FlightTrigger>,
    triggers: u64,
    /// When it is to be written, monotonic.
    due_ns: i64,
    /// Until when it takes triggers.
    until_ns: i64,
    /// Whether its writing began.
    is_early: bool,
    /// Whether its time is over.
    is_ordered: bool,
    /// Whether it began before the start.
    is_from_before: bool,
    /// As it was written.
    written: Option<FlightIncident>,
}

impl OpenIncident {
    /// Counts a trigger, and names it if there is room. One of the node itself takes the place of one that a gateway asked for: such an
    /// incident is known for the node's own.
    fn note(&mut self, trigger: FlightTrigger) {
        self.triggers += 1;
        if self.others.len() < OTHERS_MAX {
            self.others.push(trigger);
        } else if !trigger.is_of_job()
            && let Some(asked) = self.others.iter_mut().rev().find(|other| other.is_of_job())
        {
            *asked = trigger;
        }
    }

    /// Whether a trigger is the first one of this node in an incident that a gateway asked for: that one knows of none here.
    fn is_first_own(&self, trigger: &FlightTrigger) -> bool {
        let mut before = std::iter::once(&self.begun.trigger).chain(&self.others);
        !trigger.is_of_job() && before.all(FlightTrigger::is_of_job)
    }

    /// Whether a trigger is its own: it will have the trigger's rows, or the cause of one of its triggers goes on.
    fn takes(&self, trigger: &FlightTrigger, after_ns: i64, is_repeat: bool) -> bool {
        let ago_ns = trigger.at_ns.saturating_sub(self.begun.trigger.at_ns);
        (!self.is_ordered && ago_ns <= after_ns) || (is_repeat && ago_ns <= after_ns.max(JOIN_NS))
    }
}

impl Worker {
    /// Opens the ring of a place.
    pub(crate) fn open(
        place: FlightPlace,
        terms: FlightTerms,
        counts: Arc<FlightCounts>,
        now: Moment,
    ) -> Result<Self, FlightError> {
        let (ring, before) = open_ring(&place, &terms)?;
        counts.is_up.store(true, Ordering::Relaxed);
        let directory = place.directory().to_owned();
        let boot = boot_id();
        let boot_before = boot::noted(&directory).unwrap_or_else(|| boot.clone());
        if let Err(error) = boot::note(&directory, &boot) {
            tracing::debug!(
                error = causes(&error),
                "after a crash it is not known which boot the rows are of"
            );
        }
        let mut worker = Self {
            watch: Watch::new(terms.rules.clone()),
            terms,
            ring,
            waiting: Vec::new(),
            rows: 0,
            lines: Vec::new(),
            reads: RowReads::default(),
            kernel_log: "not read".to_owned(),
            since_ns: 0,
            open: VecDeque::new(),
            from_before: 0,
            reopen_ns: 0,
            seen: causes_on_disk(&FlightFolder::of(&directory)),
            writing: None,
            counts,
            boot,
            boot_before,
            directory,
            place,
        };
        worker.resume(before, now);
        Ok(worker)
    }

    /// Goes on with incidents that a killed agent had begun. If it had begun none, its end is one.
    fn resume(&mut self, before: Before, now: Moment) {
        let Before { pending, cut_ns } = before;
        for begun in pending {
            if FlightFolder::of(&self.directory).read(&begun.id).is_ok() {
                // It was killed between the incident and the note that it is written.
                self.ended(&begun.id);
                continue;
            }
            tracing::info!(id = begun.id, "an incident goes on that was begun before the agent ended");
            self.seen.insert(begun.trigger.cause(), begun.trigger.at_ns);
            self.go_on(begun, now);
        }
        if let Some(cut_ns) = cut_ns.filter(|_| self.open.is_empty()) {
            let detail = "the agent ended without a word: it was killed, it crashed, or the node did";
            let ended = FlightTrigger::of_node("ended", detail, cut_ns);
            self.trigger(ended.clone(), now);
            if self.open.is_empty() {
                self.note_again(ended);
            }
        }
        self.open.iter_mut().for_each(|open| open.is_from_before = true);
        self.from_before = self.open.len();
    }

    /// Takes what has come.
    pub(crate) fn take(&mut self, input: Input, now: Moment) {
        match input {
            Input::Sampled(batch) => {
                let Watched { triggers, lasting } = self.watch.look(&batch);
                for trigger in triggers {
                    self.trigger(trigger, now);
                }
                // What goes on is not quiet.
                for (cause, at_ns) in lasting {
                    if let Some(last_ns) = self.seen.get_mut(&cause) {
                        *last_ns = at_ns.max(*last_ns);
                    }
                }
                self.reads.take(&batch);
                if batch.table() != Table::GpuEvents || !self.terms.is_faster {
                    self.wait(batch, now);
                }
            }
            Input::Faster(batch) => self.wait(batch, now),
            Input::Kernel(line) => self.take_line(line, now),
            Input::KernelLog(what) => self.kernel_log = what,
            Input::Stuck(gpu) => {
                let detail = "a reading is out past its deadline";
                let trigger = FlightTrigger::of_node("stuck", detail, now.wall_ns);
                self.trigger(FlightTrigger { gpu: Some(gpu), ..trigger }, now);
            }
            Input::Signal => {
                self.trigger(FlightTrigger::of_node("signal", "SIGUSR1 asked for it", now.wall_ns), now);
            }
            Input::Asked { incident, at_ns } => self.take_asked(incident, at_ns, now),
            Input::End => {}
        }
    }

    /// A gateway asks again and again until it is answered.
    fn take_asked(&mut self, incident: String, at_ns: i64, now: Moment) {
        let trigger = FlightTrigger::of_node(JOB, "another node of the job keeps an incident", at_ns);
        let trigger = FlightTrigger { rule: Some(incident), ..trigger };
        if !self.seen.contains_key(&trigger.cause()) {
            self.trigger(trigger, now);
        }
    }

    fn wait(&mut self, batch: Batch, now: Moment) {
        if !ring::holds(batch.table()) {
            return;
        }
        self.note_first(now);
        self.rows += batch.rows();
        self.waiting.push(batch);
    }

    fn take_line(&mut self, mut line: FlightLine, now: Moment) {
        if let Some(trigger) = line.trigger.take() {
            self.trigger(trigger, now);
        }
        if self.lines.len() < LINES_MAX {
            self.note_first(now);
            self.lines.push(line);
        }
    }

    /// Whether nothing waits for the disk.
    fn is_flushed(&self) -> bool {
        self.waiting.is_empty() && self.lines.is_empty()
    }

    fn note_first(&mut self, now: Moment) {
        if self.is_flushed() {
            self.since_ns = now.mono_ns;
        }
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, now: Moment) {
        for trigger in reads::triggers(&mut self.reads, now.wall_ns) {
            self.trigger(trigger, now);
        }
        let is_old = now.mono_ns.saturating_sub(self.since_ns) >= FLUSH_NS;
        if !self.is_flushed() && (is_old || self.rows >= FLUSH_ROWS) {
            self.flush(now);
        }
        if self.writing.as_ref().is_some_and(EarlyIncident::is_done) {
            self.take_written();
        }
        if let Some(open) = self.open.front().filter(|open| !open.is_ordered) {
            if now.mono_ns >= open.due_ns {
                self.order(now);
            } else if !open.is_early && now.mono_ns >= open.due_ns.saturating_sub(LEAD_NS) {
                self.write_early(now);
            }
        }
        let has_next = self.open.len() > 1;
        let is_over = |open: &OpenIncident| open.is_ordered && (has_next || now.mono_ns >= open.until_ns);
        if self.writing.is_none() && self.open.front().is_some_and(is_over) {
            self.close();
        }
    }

    /// Writes what waits, and the open incidents as far as they go.
    pub(crate) fn finish(mut self, now: Moment) {
        self.flush(now);
        while let Some(open) = self.open.front() {
            if !open.is_ordered {
                self.order(now);
            }
            self.take_written();
            self.close();
        }
        if let Err(error) = self.ring.note_end() {
            tracing::warn!(error = causes(&error), "the next start takes this end for a crash");
        }
    }

    /// Puts the waiting rows into the ring. Those that it does not take are lost, and counted.
    fn flush(&mut self, now: Moment) {
        if self.is_flushed() {
            return;
        }
        let (waiting, rows) = (mem::take(&mut self.waiting), mem::take(&mut self.rows));
        let mut outcome = self.ring.append_lines(&mem::take(&mut self.lines));
        for table in ring::TABLES {
            let of_table: Vec<Batch> = waiting.iter().filter(|it| it.table() == table).cloned().collect();
            let joined = Batch::concat(&of_table).map_or(of_table, |whole| vec![whole]);
            for batch in joined {
                let appended = self.ring.append(&batch);
                let count = if appended.is_ok() { &self.counts.rows } else { &self.counts.rows_lost };
                count.fetch_add(batch.rows() as u64, Ordering::Relaxed);
                outcome = outcome.and(appended);
            }
        }
        // Rows that are read are not taken away meanwhile.
        if !self.is_read() {
            // However long the agent was away, what was before is no less wanted.
            let now_ns = if self.from_before > 0 { i64::MIN } else { now.wall_ns };
            outcome = outcome.and(self.ring.trim(now_ns));
        }
        let was_up = self.counts.is_up.swap(outcome.is_ok(), Ordering::Relaxed);
        match outcome {
            Err(error) if was_up => {
                let (error, directory) = (causes(&error), self.directory.display());
                tracing::error!(error, %directory, rows, "the ring of the flight recorder stores nothing; sampling goes on");
            }
            Ok(()) if !was_up => tracing::info!("the ring of the flight recorder stores rows again"),
            _ => {}
        }
        if self.ring.is_poisoned() {
            self.reopen(now);
        }
    }

    /// Opens a ring anew of which a failed sync has left nobody knows what, with a pause after each time.
    fn reopen(&mut self, now: Moment) {
        if self.is_read() || now.mono_ns < self.reopen_ns {
            return;
        }
        self.reopen_ns = now.mono_ns.saturating_add(REOPEN_NS);
        self.ring.close();
        match open_ring(&self.place, &self.terms) {
            // Its triggers are those that are open here.
            Ok((ring, _)) => self.ring = ring,
            Err(error) => {
                tracing::debug!(error = causes(&error), "the ring of the flight recorder cannot be opened");
            }
        }
    }

    /// A trigger begins an incident, or is counted in the open one.
    fn trigger(&mut self, trigger: FlightTrigger, now: Moment) {
        if self.seen.len() >= CAUSES_MAX {
            let oldest_ns = now.wall_ns.saturating_sub(self.terms.before_ns);
            self.seen.retain(|_, at_ns| *at_ns >= oldest_ns);
        }
        let mut is_repeat = false;
        if let Some(last_ns) = self.seen.get_mut(&trigger.cause()) {
            is_repeat = (0..self.terms.before_ns).contains(&trigger.at_ns.saturating_sub(*last_ns));
            *last_ns = trigger.at_ns;
        } else if self.seen.len() < CAUSES_MAX {
            self.seen.insert(trigger.cause(), trigger.at_ns);
        }
        if !is_repeat {
            self.tell(&trigger);
        }
        let after_ns = self.terms.after_ns;
        let open = self.open.back_mut().filter(|open| open.takes(&trigger, after_ns, is_repeat));
        if let Some(open) = open {
            if let (Some(told), true) = (&self.terms.begun, open.is_first_own(&trigger)) {
                let _full = told.try_send((open.begun.id.clone(), trigger.clone()));
            }
            open.note(trigger);
        } else if !is_repeat || trigger.is_asked() {
            self.begin(trigger, now);
        }
        self.counts.triggers.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells who samples faster of the GPU of a trigger, unless it answers no more.
    fn tell(&self, trigger: &FlightTrigger) {
        let is_read = !matches!(trigger.kind.as_str(), "lost" | "stuck");
        if let (Some(triggered), Some(gpu), true) = (&self.terms.triggered, &trigger.gpu, is_read) {
            // If many wait already, more would tell nothing.
            let _full = triggered.try_send(gpu.clone());
        }
    }

    fn begin(&mut self, trigger: FlightTrigger, now: Moment) {
        let id = FlightFolder::of(&self.directory).free_id(&trigger.kind, trigger.at_ns);
        let begun = RingTrigger { id, trigger };
        if let Err(error) = self.ring.begin(&begun) {
            tracing::warn!(
                error = causes(&error),
                "an incident is lost if the agent is killed before it is written"
            );
        }
        let RingTrigger { id, trigger: FlightTrigger { kind, gpu, detail, .. } } = &begun;
        tracing::warn!(id, kind, gpu = gpu.as_deref(), detail, "the flight recorder keeps an incident");
        self.go_on(begun, now);
    }

    /// Opens an incident that has begun.
    fn go_on(&mut self, begun: RingTrigger, now: Moment) {
        let since_ns = now.wall_ns.saturating_sub(begun.trigger.at_ns);
        let left = |whole_ns: i64| whole_ns.saturating_sub(since_ns).clamp(0, whole_ns);
        let due_ns = now.mono_ns.saturating_add(left(self.terms.after_ns) + SETTLE_NS);
        let until_ns = due_ns.max(now.mono_ns.saturating_add(left(JOIN_NS)));
        let (others, triggers) = (Vec::new(), 1);
        if let Some(told) = &self.terms.begun {
            // If so many wait, more would tell nothing.
            let _full = told.try_send((begun.id.clone(), begun.trigger.clone()));
        }
        self.open.push_back(OpenIncident {
            begun,
            others,
            triggers,
            due_ns,
            until_ns,
            is_early: false,
            is_ordered: false,
            is_from_before: false,
            written: None,
        });
    }
}

/// The ring of a place, with what was before.
fn open_ring(place: &FlightPlace, terms: &FlightTerms) -> Result<(Ring, Before), FlightError> {
    let keep_ns = terms.before_ns.saturating_add(terms.after_ns).saturating_add(MINUTE_NS);
    Ring::open(place.disk()?, keep_ns, ring::config())
}

/// When the causes of the incidents of a directory last were triggers, so that a restart begins none anew.
fn causes_on_disk(folder: &FlightFolder) -> HashMap<Cause, i64> {
    let mut seen = HashMap::new();
    for entry in folder.list().unwrap_or_default() {
        let IncidentState::Whole(incident) = entry.state else { continue };
        for trigger in std::iter::once(&incident.trigger).chain(&incident.others) {
            let last_ns = seen.entry(trigger.cause()).or_insert(trigger.at_ns);
            *last_ns = trigger.at_ns.max(*last_ns);
        }
    }
    seen
}

#[cfg(test)]
mod tests;
