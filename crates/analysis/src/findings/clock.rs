//! Hosts whose clock is ahead: their rows have times that have not come.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Identity, IdentityColumn, time};

use super::{Candidate, Evidence, Reach, Subject, finding};

/// Sources send a row a minute at least.
const RISES_WITHIN_NS: i64 = 2 * MINUTE_NS;

/// The newest row of a host, whose time has not come.
#[derive(Debug, Clone, PartialEq)]
pub struct RowAhead {
    /// Its time, nanoseconds UTC since 1970.
    pub at_ns: i64,
    /// Its identity.
    pub identity: Identity,
}

/// The clocks that are ahead. A clock is wrong while more and more rows of it are: those that came before it was set right stay
/// ahead until their time.
#[derive(Debug, Default)]
pub struct ClockWatch {
    hosts: HashMap<Subject, HostClock>,
}

#[derive(Debug)]
struct HostClock {
    /// The newest row that was ahead.
    newest: RowAhead,
    /// When one was last seen to be.
    seen_ns: i64,
    /// By how much it was ahead when it was first seen.
    lead_ns: i64,
    /// When a newer one came, after the first.
    rose_ns: Option<i64>,
}

impl ClockWatch {
    /// The wrong clocks of the hosts of these rows, and of those whose rows were ahead a moment ago; of a row without a host that of
    /// its GPU. A row a minute of a clock that is half a minute ahead is so for half of the time.
    pub fn look(&mut self, ahead: &[RowAhead], gpus: &[Arc<GpuState>], now_ns: i64) -> Vec<Candidate> {
        for row in ahead {
            let Some(subject) = subject(row) else { continue };
            let clock = self.hosts.entry(subject).or_insert_with(|| HostClock {
                newest: row.clone(),
                lead_ns: row.at_ns.saturating_sub(now_ns),
                seen_ns: now_ns,
                rose_ns: None,
            });
            clock.seen_ns = now_ns;
            if row.at_ns > clock.newest.at_ns {
                clock.lead_ns = row.at_ns.saturating_sub(now_ns);
                (clock.newest, clock.rose_ns) = (row.clone(), Some(now_ns));
            }
        }
        let is_recent = |at_ns: i64| now_ns.saturating_sub(at_ns) <= RISES_WITHIN_NS;
        self.hosts.retain(|_, clock| is_recent(clock.seen_ns));
        let mut rising: Vec<(&Subject, &HostClock)> =
            self.hosts.iter().filter(|(_, clock)| clock.rose_ns.is_some_and(is_recent)).collect();
        rising.sort_unstable_by_key(|(subject, _)| *subject);
        rising.into_iter().filter_map(|(subject, clock)| wrong_clock(clock, subject.clone(), gpus)).collect()
    }
}

fn subject(row: &RowAhead) -> Option<Subject> {
    let (cluster, node) = (row.identity.get(IdentityColumn::Cluster), row.identity.node());
    match node {
        Some(node) => Some(Subject::node(cluster, node)),
        None => row.identity.key().map(Subject::Gpu),
    }
}

fn wrong_clock(clock: &HostClock, subject: Subject, gpus: &[Arc<GpuState>]) -> Option<Candidate> {
    let HostClock { newest: RowAhead { at_ns, identity }, lead_ns, .. } = clock;
    let (cluster, node, key) = (identity.get(IdentityColumn::Cluster), identity.node(), identity.key()?);
    let is_of_host = |gpu: &&Arc<GpuState>| match node {
        Some(_) => gpu.identity.node() == node && gpu.identity.get(IdentityColumn::Cluster) == cluster,
        None => gpu.key == key,
    };
    let of_host: Vec<&Arc<GpuState>> = gpus.iter().filter(is_of_host).collect();
    let reach = if of_host.is_empty() {
        Reach {
            gpus: vec![key],
            concerned_gpus: 1,
            cluster: identity.shared(IdentityColumn::Cluster).cloned(),
            node: identity.shared(IdentityColumn::Node).cloned(),
            is_simulated: identity.is_simulated(),
            ..Reach::default()
        }
    } else {
        Reach::of(&of_host)
    };
    let sentence = format!(
        "its rows come with a time {} ahead (the newest is of {}); they count for the latest values when that time has come",
        lead(*lead_ns),
        time::format(*at_ns)
    );
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let evidence = Evidence::derived("clock_ahead", "s", (*lead_ns / SECOND_NS) as f64);
    let finding = finding("clock_wrong", subject, sentence, vec![evidence], reach);
    Some(Candidate { opens: true, began: None, finding })
}

fn lead(lead_ns: i64) -> String {
    if lead_ns < 2 * MINUTE_NS {
        format!("{} s", lead_ns / SECOND_NS)
    } else {
        format!("{} min", lead_ns / MINUTE_NS)
    }
}
