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
    /// The time of its newest row.
    newest_ns: i64,
    /// When that last rose, after it was first seen.
    rose_ns: Option<i64>,
}

impl ClockWatch {
    /// The wrong clocks of the hosts of these rows; of a row without a host that of its GPU.
    pub fn look(&mut self, ahead: &[RowAhead], gpus: &[Arc<GpuState>], now_ns: i64) -> Vec<Candidate> {
        let mut before = std::mem::take(&mut self.hosts);
        let mut found = Vec::new();
        for row in ahead {
            let Some(subject) = subject(row) else { continue };
            let mut clock =
                before.remove(&subject).unwrap_or(HostClock { newest_ns: row.at_ns, rose_ns: None });
            if row.at_ns > clock.newest_ns {
                (clock.newest_ns, clock.rose_ns) = (row.at_ns, Some(now_ns));
            }
            if clock.rose_ns.is_some_and(|rose_ns| now_ns.saturating_sub(rose_ns) <= RISES_WITHIN_NS) {
                found.extend(wrong_clock(row, subject.clone(), gpus, now_ns));
            }
            self.hosts.insert(subject, clock);
        }
        found
    }
}

fn subject(row: &RowAhead) -> Option<Subject> {
    let (cluster, node) = (row.identity.get(IdentityColumn::Cluster), row.identity.node());
    match node {
        Some(node) => Some(Subject::node(cluster, node)),
        None => row.identity.key().map(Subject::Gpu),
    }
}

fn wrong_clock(row: &RowAhead, subject: Subject, gpus: &[Arc<GpuState>], now_ns: i64) -> Option<Candidate> {
    let RowAhead { at_ns, identity } = row;
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
    let lead_ns = at_ns.saturating_sub(now_ns);
    let sentence = format!(
        "its rows come with a time {} ahead (the newest is of {}); they count for the latest values when that time has come",
        lead(lead_ns),
        time::format(*at_ns)
    );
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let evidence = Evidence::derived("clock_ahead", "s", (lead_ns / SECOND_NS) as f64);
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
