//! Why a GPU was slow in some time: everything that held it up, the heaviest first.
//!
//! Made from its minutes and those of its peers: the GPUs of its job, or others of its model. A cause weighs as much as it can explain
//! of the lost speed, 0 to 1: a share of time, or a difference to the peers. Whether the neighbours, the other GPUs of the host, were held
//! down as well tells a fault of the GPU from one of the host's cooling or power supply.

mod happened;
mod presence;

use gpuvitals_core::history::{Fleet, GpuState};
use gpuvitals_core::number::float;
use gpuvitals_core::{IdentityColumn, MetricId};

use crate::condition;
use crate::findings::threshold::HUNG_BUSY_PCT;
use crate::findings::{Evidence, GpuWindow, POWERS};
use crate::health_event::HealthEvent;
use crate::robust::Spread;

pub use happened::Happened;
pub use presence::Presence;

/// Smallest weight of a cause that is worth a line.
const WEIGHT_MIN: f64 = 0.02;
/// Share of time from which a neighbour counts as held down, too.
const NEIGHBOUR_SHARE_MIN: f64 = 0.05;
const POWER_SET: MetricId = MetricId::of("power_limit_w");
const POWER_DEFAULT: MetricId = MetricId::of("power_limit_default_w");
const CLOCK_MAX: MetricId = MetricId::of("gpu_clock_max_mhz");
const CLOCK_APPLICATION: MetricId = MetricId::of("gpu_clock_application_mhz");
const XID_LAST: MetricId = MetricId::of("xid_last");

const NO_DATA: &str = "no_data";
const LOW_POWER: &str = "low_power";
/// Power as a share of its limit, or of what its model draws, up to which a GPU that says that it is busy all the time does little.
const LOW_POWER_SHARE: f64 = 0.35;
/// Weight of an XID that came before the time: what it broke may be broken still.
const XID_BEFORE_WEIGHT: f64 = 0.5;

/// Something that made a GPU slow.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowCause {
    /// Name for programs: `events`, `heat`, `power_brake`, `power_limit`, `clock`, `application_clock`, `pcie`, `links`, `little_work`,
    /// `low_power` or `no_data`.
    pub id: &'static str,
    /// How much of the lost speed it can explain, 0 to 1.
    pub weight: f64,
    /// What it did to the GPU, in words with the values.
    pub sentence: String,
    /// The values that show it.
    pub evidence: Vec<Evidence>,
}

/// What is known about the time.
#[derive(Debug, Clone, Copy)]
pub struct SlowTime<'a> {
    /// The GPU that was slow.
    pub gpu: &'a GpuState,
    /// Its minutes; none: it had no value.
    pub own: Option<GpuWindow>,
    /// Those of its peers.
    pub peers: &'a [GpuWindow],
    /// Those of the other GPUs of its host.
    pub neighbours: &'a [GpuWindow],
    /// In which minutes it reported.
    pub presence: Presence,
    /// Events in the time: those that its agent wrote, and those that its values show.
    pub events: &'a [HealthEvent],
    /// The XID that it reported last, if it came before.
    pub xid_before: Option<i64>,
    /// What [`model_power_w`] says.
    pub model_power_w: Option<f64>,
}

/// The highest power of a GPU of this one's model, W, by the latest value of each: what to compare with where no limit is known. None: its
/// model is not known, or the power of none of them.
pub fn model_power_w(gpu: &GpuState, fleet: &Fleet) -> Option<f64> {
    let model = gpu.identity.get(IdentityColumn::Model)?;
    let alike = fleet.gpus.iter().filter(|other| other.identity.get(IdentityColumn::Model) == Some(model));
    let power = |other: &GpuState| POWERS.iter().find_map(|metric| Fleet::latest(other, *metric));
    alike.filter_map(|other| Some(power(other)?.value.as_f64())).max_by(f64::total_cmp)
}

/// The causes, the heaviest first; none: nothing unusual is known.
pub fn explain(time: &SlowTime<'_>) -> Vec<SlowCause> {
    let failures = failures(time.events).or_else(|| failed_before(time.xid_before?));
    let mut causes: Vec<SlowCause> = failures.into_iter().chain(no_data(time)).collect();
    if let Some(own) = time.own {
        causes.extend(limits(time, &own));
        causes.extend(clock(time, &own));
        causes.extend(links(time, &own));
        causes.extend(little_work(time, &own));
        causes.extend(stands_still(&own).or_else(|| low_power(time, &own)));
    }
    causes.retain(|cause| cause.weight >= WEIGHT_MIN);
    // What is not known explains nothing: it comes last.
    let rank = |cause: &SlowCause| [LOW_POWER, NO_DATA].iter().position(|id| *id == cause.id);
    causes.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.weight.total_cmp(&a.weight)));
    causes
}

/// Events that stop work.
fn failures(events: &[HealthEvent]) -> Option<SlowCause> {
    let grave: Vec<&HealthEvent> =
        events.iter().filter(|event| matches!(event.kind.as_ref(), "xid" | "ecc" | "ras" | "lost")).collect();
    let first = grave.first()?;
    let more = if grave.len() > 1 { format!(" and {} more", grave.len() - 1) } else { String::new() };
    let evidence = vec![Evidence::derived("health_events", "", float(grave.len()))];
    let sentence = format!("it had events that interrupt work: {}{more}", first.detail);
    Some(SlowCause { id: "events", weight: 1.0, sentence, evidence })
}

/// An XID from before, which applications do not cause.
fn failed_before(xid: i64) -> Option<SlowCause> {
    let sentence =
        format!("{} came before this time, and nothing has cleared it", condition::xid::named(xid));
    let evidence = vec![Evidence::of(XID_LAST, float(xid))];
    let is_own = xid > 0 && !condition::xid::is_of_application(xid);
    is_own.then_some(SlowCause { id: "events", weight: XID_BEFORE_WEIGHT, sentence, evidence })
}

fn no_data(time: &SlowTime<'_>) -> Option<SlowCause> {
    let Presence { minutes, silent } = time.presence;
    if silent == 0 {
        return None;
    }
    let weight = float(silent) / float(minutes);
    let sentence = format!("it reported nothing for {silent} of {minutes} minutes");
    let evidence = vec![Evidence::derived("minutes_without_values", "min", float(silent))];
    Some(SlowCause { id: NO_DATA, weight, sentence, evidence })
}

fn limits(time: &SlowTime<'_>, own: &GpuWindow) -> Vec<SlowCause> {
    type Share = fn(&GpuWindow) -> Option<f64>;
    let cause = |id, share: Share, what: &str, quantity| {
        let (held, all) = held_down(time.neighbours, share);
        let share = share(own)?;
        let sentence = format!("{what} held the clock down for {:.0} % of the time", 100.0 * share);
        let mut cause = SlowCause {
            id,
            weight: share,
            sentence,
            evidence: vec![Evidence::derived(quantity, "ratio", share)],
        };
        if all > 0 {
            let others = match (held, all) {
                (0, _) => "no other GPU".to_owned(),
                (1, 1) => "the other GPU".to_owned(),
                _ => format!("{held} of the {all} other GPUs"),
            };
            cause.sentence = format!("{}; it held down {others} of the host", cause.sentence);
            let neighbours = Evidence::derived("neighbours_held_down", "", float(held))
                .beside(float(all), "other GPUs of its host");
            cause.evidence.push(neighbours);
        }
        Some(cause)
    };
    let mut heat = cause("heat", |window| window.heat_share, "heat", "share_of_time_held_down_by_heat");
    if let (Some(heat), Some(celsius)) = (&mut heat, own.temperature_max_c) {
        heat.sentence = format!("{}; the GPU reached {celsius:.0} °C", heat.sentence);
        heat.evidence.push(Evidence::derived("temperature_c", "°C", celsius));
    }
    let brake = cause(
        "power_brake",
        |window| window.brake_share,
        "the power brake of the chassis",
        "share_of_time_under_power_brake",
    );
    let mut power =
        cause("power_limit", |window| window.power_share, "the power limit", "share_of_time_at_power_limit");
    if let Some(power) = &mut power {
        // At the power limit a GPU still does its work, a little slower than with more power.
        power.weight /= 2.0;
        let latest = |metric| Fleet::latest(time.gpu, metric).map(|latest| latest.value.as_f64());
        if let (Some(set), Some(usual)) = (latest(POWER_SET), latest(POWER_DEFAULT))
            && set < usual
        {
            power.sentence =
                format!("{}; the limit is set to {set:.0} W, the default is {usual:.0} W", power.sentence);
            power.evidence.push(Evidence::of(POWER_SET, set).beside(usual, "the default"));
        }
    }
    [heat, brake, power].into_iter().flatten().collect()
}

/// How many of these were held down as well, and of how many it is known.
fn held_down(neighbours: &[GpuWindow], share: fn(&GpuWindow) -> Option<f64>) -> (usize, usize) {
    let shares: Vec<f64> = neighbours.iter().filter_map(share).collect();
    (shares.iter().filter(|share| **share >= NEIGHBOUR_SHARE_MIN).count(), shares.len())
}

/// The clock beside that of the peers, and beside what the GPU can do.
fn clock(time: &SlowTime<'_>, own: &GpuWindow) -> Vec<SlowCause> {
    let Some(clock) = own.loaded_clock_mhz else { return Vec::new() };
    let mut causes = Vec::new();
    if let Some(median) = median(time.peers, |peer| peer.loaded_clock_mhz).filter(|median| *median > 0.0) {
        let weight = 1.0 - clock / median;
        let sentence =
            format!("under load it ran at {clock:.0} MHz, the median of its peers is {median:.0} MHz");
        let evidence = Evidence::derived("gpu_clock_mhz", "MHz", clock.round_ties_even());
        let evidence = vec![evidence.beside(median.round_ties_even(), "median of its peers")];
        causes.push(SlowCause { id: "clock", weight, sentence, evidence });
    }
    let latest = |metric| Fleet::latest(time.gpu, metric).map(|latest| latest.value.as_f64());
    if let (Some(set), Some(most)) = (latest(CLOCK_APPLICATION), latest(CLOCK_MAX))
        && set < most
        && clock <= 1.01 * set
    {
        let sentence = format!("its application clock is set to {set:.0} MHz, it can run at {most:.0} MHz");
        let evidence = vec![Evidence::of(CLOCK_APPLICATION, set).beside(most, "what the GPU can do")];
        causes.push(SlowCause { id: "application_clock", weight: 1.0 - set / most, sentence, evidence });
    }
    causes
}

fn links(time: &SlowTime<'_>, own: &GpuWindow) -> Vec<SlowCause> {
    type Of = fn(&GpuWindow) -> Option<f64>;
    type Sentence = fn(f64, f64) -> String;
    let all: [(&str, MetricId, Of, Sentence); 3] = [
        (
            "pcie",
            MetricId::of("pcie_width"),
            |window| window.pcie_width,
            |has, peers| format!("its PCIe link has {has} lanes, its peers' {peers}"),
        ),
        (
            "pcie",
            MetricId::of("pcie_gen"),
            |window| window.pcie_generation,
            |has, peers| format!("its PCIe link runs at generation {has}, its peers' at {peers}"),
        ),
        (
            "links",
            MetricId::of("interconnect_links_up"),
            |window| window.links_up,
            |has, peers| format!("{has} links to other GPUs are up, its peers have {peers}"),
        ),
    ];
    let mut causes = Vec::new();
    for (id, metric, of, sentence) in all {
        let (Some(has), Some(median)) = (of(own), median(time.peers, of)) else { continue };
        if has < median {
            let sentence = sentence(has, median);
            let evidence = vec![Evidence::of(metric, has).beside(median, "median of its peers")];
            causes.push(SlowCause { id, weight: 1.0 - has / median, sentence, evidence });
        }
    }
    causes
}

/// It was not busy: it waited for input, for the network or for others, or had nothing to do.
fn little_work(time: &SlowTime<'_>, own: &GpuWindow) -> Option<SlowCause> {
    let busy = own.utilization_pct?;
    let median = median(time.peers, |peer| peer.utilization_pct);
    let evidence = Evidence::derived("utilization_pct", "%", busy.round_ties_even());
    let (behind, sentence, evidence) = match median {
        Some(median) => (
            median - busy,
            format!("it was busy for {busy:.0} % of the time, the median of its peers is {median:.0} %"),
            evidence.beside(median.round_ties_even(), "median of its peers"),
        ),
        None => (
            100.0 - busy,
            format!("it was busy for {busy:.0} % of the time: it waited, or had no work"),
            evidence,
        ),
    };
    Some(SlowCause { id: "little_work", weight: behind / 100.0, sentence, evidence: vec![evidence] })
}

/// It worked, and then said that it is busy and did far less. Its own values do not tell a kernel that waits for others from other work.
fn stands_still(own: &GpuWindow) -> Option<SlowCause> {
    let ((minutes, power_w), level) = own.busy_for_less.zip(own.level)?;
    let share = power_w / level.power_w;
    let sentence = format!(
        "for {minutes} of {} minutes it said that it is busy and drew {power_w:.0} W, {:.0} % of the power of its work before: it waits \
         in a kernel, as in a job that hangs, or does other work; its values cannot tell which",
        own.minutes,
        100.0 * share
    );
    let evidence = Evidence::derived("power_w", "W", power_w.round_ties_even())
        .beside(level.power_w.round_ties_even(), "before");
    let weight = (1.0 - share) * float(minutes) / float(own.minutes.max(1));
    Some(SlowCause { id: LOW_POWER, weight, sentence, evidence: vec![evidence] })
}

/// It said all the time that it is busy, and drew little of the power that it may draw, or of what its model draws.
fn low_power(time: &SlowTime<'_>, own: &GpuWindow) -> Option<SlowCause> {
    let latest = |metric| Fleet::latest(time.gpu, metric).map(|latest| latest.value.as_f64());
    let limit_w = latest(POWER_SET).or_else(|| latest(POWER_DEFAULT)).filter(|watts| *watts > 0.0);
    let most_w = limit_w.or(time.model_power_w.filter(|watts| *watts > 0.0))?;
    let power_w = own.power_w.filter(|watts| *watts <= LOW_POWER_SHARE * most_w)?;
    own.utilization_pct.filter(|busy| *busy >= HUNG_BUSY_PCT)?;
    let (beside, what) = match limit_w {
        Some(limit_w) => (format!(" of {limit_w:.0} W"), "its limit"),
        None => (format!(", while a GPU of its model draws {most_w:.0} W"), "a GPU of its model"),
    };
    let sentence = format!(
        "it said all the time that it is busy and drew {power_w:.0} W{beside}: many small kernels look like that, and so does a \
         kernel that waits; its values cannot tell which"
    );
    let evidence = vec![Evidence::derived("power_w", "W", power_w.round_ties_even()).beside(most_w, what)];
    Some(SlowCause { id: LOW_POWER, weight: 1.0 - power_w / most_w, sentence, evidence })
}

/// The median of all peers that have a value: one that does nothing is a peer, too.
fn median(peers: &[GpuWindow], of: impl Fn(&GpuWindow) -> Option<f64>) -> Option<f64> {
    Spread::of_peers(peers.iter().filter_map(of)).map(|spread| spread.median)
}

#[cfg(test)]
mod tests;
