//! What the kernel says about the GPUs, beside what their drivers count: events of their health, lines for the flight recorder, and whether
//! one of two sources of XIDs is silent.

mod xids;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_analysis::condition::xid;
use gpuvitals_analysis::health_event::{HealthEvent, event_rows};
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::identity::AGENT;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Batch, Identity, IdentityColumn, Origin, Table};
use gpuvitals_flight::{FlightLine, FlightTrigger};
use gpuvitals_sources::kernel::{KernelKind, KernelLine, KernelLog, bridges_of};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::sampler::TargetState;

use xids::{KernelXid, XidSources};

/// How long to wait for a line before checking whether to end.
const PATIENCE: Duration = Duration::from_millis(250);
/// Lines that wait to be taken.
const LINES_MAX: usize = 4_096;
/// Lines of one kind about one GPU are one event if they come within this time.
const GRAVE_QUIET_NS: i64 = 10 * SECOND_NS;
/// The same of what can be put right by itself: such lines may come every second for days.
const MILD_QUIET_NS: i64 = 10 * MINUTE_NS;
/// Events whose last time is remembered; a node has fewer.
const QUIET_MAX: usize = 4_096;
/// Bytes of a line in an event, less than a text of a row may have.
const DETAIL_LEN_MAX: usize = 240;

/// The kernel's lines of this node.
#[derive(Debug)]
pub(crate) struct KernelWatch {
    machine: Machine,
    origin: Origin,
    heard: Mutex<HeardLines>,
}

/// What has come of them since the last look.
#[derive(Debug, Default)]
pub(crate) struct KernelNews {
    /// For the flight recorder.
    pub(crate) lines: Vec<FlightLine>,
    /// Where lines are from, or why there are none, if that is new.
    pub(crate) log: Option<String>,
    /// Rows of `gpu_health_events`.
    pub(crate) rows: Option<Batch>,
}

#[derive(Debug, Default)]
struct HeardLines {
    is_up: bool,
    news: Option<String>,
    waiting: VecDeque<KernelLine>,
    /// Lines that did not fit, and those that the log itself has lost.
    lost: u64,
    lost_by_log: u64,
    lines: BTreeMap<KernelKind, u64>,
    /// When a line of a kind about a GPU last was an event, monotonic.
    quiet: HashMap<(Arc<str>, KernelKind, Option<i64>), i64>,
    /// By the address of a GPU.
    bridges: HashMap<Arc<str>, Vec<String>>,
    xids: XidSources,
    /// Number of the last event.
    number: i64,
}

/// An event and its GPU.
type GpuEvent = (HealthEvent, Arc<Identity>);

impl KernelWatch {
    /// Of a machine, where no line was heard yet.
    pub(crate) fn new(machine: Machine, origin: Origin) -> Self {
        Self { machine, origin, heard: Mutex::default() }
    }

    fn heard(&self) -> MutexGuard<'_, HeardLines> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads lines until the other end of `stop` is dropped, or no more can come.
    pub(crate) fn watch(&self, stop: &Receiver<()>) {
        let is_wanted = || stop.try_recv() != Err(TryRecvError::Disconnected);
        let mut log = match KernelLog::open(&self.machine, &is_wanted) {
            Ok(log) => log,
            Err(why) => {
                if is_wanted() {
                    tracing::info!(why, "the kernel's lines are not read");
                }
                self.heard().news = Some(why);
                return;
            }
        };
        tracing::info!(source = log.name(), "the kernel's lines are read");
        self.began(log.name());
        while is_wanted() {
            let line = match log.next(PATIENCE) {
                Ok(line) => line,
                Err(error) => {
                    let source = log.name();
                    tracing::warn!(source, %error, "the kernel's lines are not read any more, until the next start");
                    let mut heard = self.heard();
                    (heard.is_up, heard.news) = (false, Some(format!("{source}, until it ended: {error}")));
                    return;
                }
            };
            self.heard().lost_by_log = log.lost();
            if let Some(line) = line {
                self.hear(line);
            }
        }
    }

    fn began(&self, source: &str) {
        let mut heard = self.heard();
        (heard.is_up, heard.news) = (true, Some(source.to_owned()));
    }

    fn hear(&self, line: KernelLine) {
        let mut heard = self.heard();
        *heard.lines.entry(line.kind).or_default() += 1;
        if heard.waiting.len() < LINES_MAX {
            heard.waiting.push_back(line);
        } else {
            heard.lost += 1;
        }
    }

    /// Looks at rows of the sampler: at how many XIDs the drivers have counted.
    pub(crate) fn sampled(&self, batch: &Batch, now: Moment) {
        self.heard().xids.counted(batch, now);
    }

    /// What has come since the last call, of these GPUs.
    pub(crate) fn take(&self, states: &[TargetState], now: Moment) -> KernelNews {
        let mut heard = self.heard();
        let heard = &mut *heard;
        let (mut lines, mut events) = (Vec::new(), Vec::new());
        for line in std::mem::take(&mut heard.waiting) {
            let gpus = self.gpus_of(&line, states, &mut heard.bridges);
            lines.push(flight_line(&line, gpus.first().and_then(|gpu| gpu.key())));
            for gpu in gpus {
                events.extend(heard.event(&line, gpu, now));
            }
        }
        let is_up = heard.is_up;
        events.extend(heard.xids.due(now, is_up).into_iter().map(|(xid, is_alone)| of_xid(xid, is_alone)));
        let events = events.iter().map(|(event, gpu)| (event, &**gpu));
        let rows = event_rows(events, self.origin.clone(), &mut heard.number);
        KernelNews { lines, log: heard.news.take(), rows }
    }

    /// The GPUs that a line is about: the one that it names, or those below the bridge that it names. Of one in partitions it is the whole.
    fn gpus_of(
        &self,
        line: &KernelLine,
        states: &[TargetState],
        bridges: &mut HashMap<Arc<str>, Vec<String>>,
    ) -> Vec<Arc<Identity>> {
        let Some(device) = &line.device else { return Vec::new() };
        let mut found = Vec::new();
        for state in states.iter().filter(|state| state.table == Table::GpuEvents) {
            let Some(pci) = state.identity.shared(IdentityColumn::Pci) else { continue };
            let mut is_below = || {
                let known = bridges.entry(Arc::clone(pci));
                known.or_insert_with(|| bridges_of(&self.machine, pci)).contains(device)
            };
            if line.is_about(pci) || (line.kind.is_of_path() && is_below()) {
                found.push(Arc::clone(&state.identity));
            }
        }
        let is_whole = |gpu: &Arc<Identity>| gpu.get(IdentityColumn::Partition).is_none();
        if found.iter().any(is_whole) {
            found.retain(is_whole);
        }
        found
    }

    /// What it counts, as families of metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        let heard = self.heard();
        let count = |kind: KernelKind| (kind.name(), heard.lines.get(&kind).copied().unwrap_or(0));
        vec![
            Family::gauge("gpuvitals_kernel_log_up", "Whether the kernel's lines are read.", heard.is_up),
            Family::new(
                "gpuvitals_kernel_lines_total",
                Kind::Counter,
                "Lines of the kernel about GPUs and what they need, by what they tell of.",
            )
            .by("kind", KernelKind::ALL.map(count)),
            Family::counter(
                "gpuvitals_kernel_lost_lines_total",
                "Lines of the kernel that were overwritten before they were read, or too many at once.",
                heard.lost.saturating_add(heard.lost_by_log),
            ),
            Family::new(
                "gpuvitals_xids_missed_total",
                Kind::Counter,
                "XIDs that one source told of and the other did not: the driver's count, or the kernel's log.",
            )
            .by("source", heard.xids.missed()),
        ]
    }
}

impl HeardLines {
    /// The event of a line about a GPU, unless the same was one just now. XIDs wait until it is known whether the driver counts them.
    fn event(&mut self, line: &KernelLine, gpu: Arc<Identity>, now: Moment) -> Option<GpuEvent> {
        let key = gpu.key()?;
        let quiet_ns = if line.is_grave { GRAVE_QUIET_NS } else { MILD_QUIET_NS };
        let cause = (Arc::clone(&key), line.kind, line.code);
        let is_quiet = |last_ns: &i64| now.mono_ns.saturating_sub(*last_ns) < quiet_ns;
        if self.quiet.get(&cause).is_some_and(is_quiet) {
            return None;
        }
        if self.quiet.len() >= QUIET_MAX {
            self.quiet.retain(|_, last_ns| now.mono_ns.saturating_sub(*last_ns) < MILD_QUIET_NS);
        }
        self.quiet.insert(cause, now.mono_ns);
        if let Some(code) = line.code {
            let (at_ns, mono_ns, text) = (line.at_ns, now.mono_ns, line.text.clone());
            self.xids.said(KernelXid { gpu, key, at_ns, mono_ns, code, text });
            return None;
        }
        Some((event_of("kernel", key, line.at_ns, &line.text), gpu))
    }
}

/// The event of an XID of the kernel's log: its text, or the XID itself if nobody else tells of it.
fn of_xid(xid: KernelXid, is_alone: bool) -> GpuEvent {
    let KernelXid { gpu, key, at_ns, code, text, .. } = xid;
    let (kind, detail, gpu) = if is_alone {
        // The agent says so, and no driver: gateways find what has no value by that.
        let of_agent = Identity::clone(&gpu).with(IdentityColumn::Source, AGENT);
        let detail = format!("{}, by the kernel's log alone: {text}", xid::sentence(code));
        ("xid", detail, of_agent.map_or(gpu, Arc::new))
    } else {
        ("kernel", text, gpu)
    };
    (HealthEvent { code: Some(code), ..event_of(kind, key, at_ns, &detail) }, gpu)
}

fn event_of(kind: &str, gpu: Arc<str>, at_ns: i64, detail: &str) -> HealthEvent {
    HealthEvent { gpu, at_ns, kind: kind.into(), detail: cut(detail).into(), ..HealthEvent::default() }
}

/// As much of a text as a row may have.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(DETAIL_LEN_MAX)).unwrap_or(text)
}

/// A line for the flight recorder, with the trigger that it is.
fn flight_line(line: &KernelLine, gpu: Option<Arc<str>>) -> FlightLine {
    let kind = match line.kind {
        KernelKind::Xid => Some("xid"),
        KernelKind::Lost => Some("lost"),
        KernelKind::Ras => Some("ras"),
        KernelKind::Reset | KernelKind::Timeout => Some("reset"),
        KernelKind::Aer | KernelKind::Link | KernelKind::MachineCheck | KernelKind::OutOfMemory => None,
    };
    // Without a device nobody knows whether a program has its name in the line.
    let kind = kind.filter(|_| line.is_grave && line.device.is_some());
    let detail = || line.code.map_or_else(|| cut(&line.text).to_owned(), xid::sentence);
    let trigger = kind.map(|kind| FlightTrigger {
        kind: kind.to_owned(),
        gpu: gpu.map(|gpu| gpu.to_string()),
        code: line.code,
        detail: detail(),
        rule: None,
        at_ns: line.at_ns,
    });
    FlightLine { at_ns: line.at_ns, text: line.text.clone(), trigger }
}

#[cfg(test)]
mod tests;
