//! Links, fans and drivers, compared with those of the same model, XIDs that come again and again, and readings that have slowed down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::GpuState;
use gpuvitals_core::number::float;
use gpuvitals_core::{IdentityColumn, MetricId};

use super::repeats::XidTimes;
use super::threshold::{
    COMMON_LINK_SHARE, FAN_AT_LIMIT_PCT, FAN_NEEDED_FROM_C, FAN_OF_PEERS_PCT, REPEATED_XID_HOLDERS,
    REPEATED_XID_TIMES,
};
use super::{Began, Candidate, Evidence, GpuWindow, Member, Reach, Subject, Survey, common, finding};
use crate::condition::xid;
use crate::robust::Spread;

/// Most nodes that a sentence names.
const NAMED_NODES_MAX: usize = 5;
const PCIE_WIDTH_MAX: MetricId = MetricId::of("pcie_width_max");
const PCIE_WIDTH: MetricId = MetricId::of("pcie_width");
const PCIE_GENERATION: MetricId = MetricId::of("pcie_gen");
const LINKS_UP: MetricId = MetricId::of("interconnect_links_up");

/// A property of a link that most GPUs of a model share.
struct LinkProperty {
    kind: &'static str,
    metric: MetricId,
    of: fn(&GpuWindow) -> Option<f64>,
    sentence: fn(f64, f64) -> String,
}

const LINKS: [LinkProperty; 3] = [
    LinkProperty {
        kind: "pcie_degraded",
        metric: PCIE_WIDTH,
        of: |window| window.pcie_width,
        sentence: |has, others| {
            format!("its PCIe link has {has} lanes, that of the same model elsewhere {others}")
        },
    },
    LinkProperty {
        kind: "pcie_degraded",
        metric: PCIE_GENERATION,
        of: |window| window.pcie_generation,
        sentence: |has, others| {
            format!("its PCIe link runs at generation {has}, that of the same model elsewhere at {others}")
        },
    },
    LinkProperty {
        kind: "links_down",
        metric: LINKS_UP,
        of: |window| window.links_up,
        sentence: |has, others| {
            format!("{has} links to other GPUs are up, on the same model elsewhere {others}")
        },
    },
];

impl Survey<'_> {
    /// GPUs on which the work of several holders met the same kind of fault.
    pub(super) fn repeated_xids(&self, found: &mut Vec<Candidate>) {
        for Member { gpu, .. } in &self.present {
            let Some(of_day) = self.now.recent.xids.of(&gpu.key) else { continue };
            let XidTimes { code, times, holders, are } = of_day;
            if times < REPEATED_XID_TIMES || holders < REPEATED_XID_HOLDERS {
                continue;
            }
            let last = xid::named(code);
            let unless =
                if are == "jobs" { "these jobs run one program" } else { "these programs share their code" };
            let sentence = format!(
                "XIDs that programs cause came {times} times in a day, to {holders} {are}, the last {last}: suspect the GPU, unless {unless}"
            );
            let evidence = vec![Evidence::derived("xids_in_a_day", "", float(times))];
            let finding = self.about_gpu("xid_repeats", gpu, sentence, evidence);
            found.push(Candidate { opens: true, began: None, finding });
        }
    }

    /// GPUs of which readings have become slow, as their agents say.
    pub(super) fn slow_reads(&self, found: &mut Vec<Candidate>) {
        for Member { gpu, .. } in &self.present {
            let Some(slowed) = self.now.recent.told.slowed(&gpu.key, self.now.fresh.now_ns) else { continue };
            let took = slowed.code.map(|microseconds| float(microseconds) / 1e3);
            let evidence = took.map(|ms| Evidence::derived("reading_time", "ms", ms)).into_iter().collect();
            let finding = self.about_gpu("reads_slowed", gpu, slowed.detail.to_string(), evidence);
            found.push(Candidate { opens: true, began: Some(Began::exactly(slowed.at_ns)), finding });
        }
    }

    pub(super) fn links(&self, found: &mut Vec<Candidate>) {
        for (model, places) in &self.models {
            let members: Vec<Member<'_>> = self.members(places).collect();
            for link in &LINKS {
                let value = |member: &Member<'_>| (link.of)(&member.window?);
                let values = members.iter().filter_map(value).filter(|value| *value >= 0.0);
                // Bits have an order, and are equal where the values are.
                let common = common(values.map(f64::to_bits), COMMON_LINK_SHARE).map(f64::from_bits);
                let common = common.filter(|_| model.is_some());
                for member in &members {
                    let Some(has) = value(member) else { continue };
                    // A GPU alone is compared with what it could have.
                    let most = || self.now.fresh.recent(member.gpu, PCIE_WIDTH_MAX).map(Value::as_f64);
                    let (others, origin) = match common {
                        Some(common) => (common, "most GPUs of the model"),
                        None if link.metric == PCIE_WIDTH => match most() {
                            Some(most) => (most, "what the GPU can do"),
                            None => continue,
                        },
                        None => continue,
                    };
                    if has >= others {
                        continue;
                    }
                    let evidence = vec![Evidence::of(link.metric, has).beside(others, origin)];
                    let sentence = (link.sentence)(has, others);
                    let finding = self.about_gpu(link.kind, member.gpu, sentence, evidence);
                    found.push(Candidate { opens: true, began: None, finding });
                }
            }
        }
    }

    pub(super) fn fans(&self, found: &mut Vec<Candidate>) {
        for (model, places) in &self.models {
            let members: Vec<Member<'_>> = self.members(places).collect();
            let fan = |member: &Member<'_>| member.window?.fan_pct;
            let speeds = members.iter().filter_map(fan).map(|(mean, _)| mean);
            let median = Spread::of_group(speeds).filter(|_| model.is_some()).map(|spread| spread.median);
            for member in &members {
                let (Some((mean, highest)), Some(window)) = (fan(member), member.window) else { continue };
                let hot = window.temperature_max_c.filter(|celsius| *celsius >= FAN_NEEDED_FROM_C);
                let speed = Evidence::derived("fan_speed_pct", "%", mean.round_ties_even());
                if let (true, Some(celsius)) = (highest <= 0.0, hot) {
                    let sentence = format!("its fan stands still at {celsius} °C");
                    let evidence = vec![speed, Evidence::derived("temperature_c", "°C", celsius)];
                    let finding = self.about_gpu("fan_stopped", member.gpu, sentence, evidence);
                    found.push(Candidate { opens: true, began: None, finding });
                } else if let Some(median) = median.filter(|median| *median <= FAN_OF_PEERS_PCT)
                    && mean >= FAN_AT_LIMIT_PCT.1
                {
                    let sentence =
                        format!("its fan runs at {mean:.0} %, the median of its model is {median:.0} %");
                    let evidence = vec![speed.beside(median.round_ties_even(), "median of the model")];
                    let finding = self.about_gpu("fan_at_limit", member.gpu, sentence, evidence);
                    found.push(Candidate { opens: mean >= FAN_AT_LIMIT_PCT.0, began: None, finding });
                }
            }
        }
    }

    /// Nodes with one model and different drivers: a finding of the model.
    pub(super) fn drivers(&self, found: &mut Vec<Candidate>) {
        for (model, places) in
            self.models.iter().filter_map(|(model, places)| Some((model.as_ref()?, places)))
        {
            let mut versions: BTreeMap<&str, Vec<&Arc<GpuState>>> = BTreeMap::new();
            for Member { gpu, .. } in self.members(places) {
                if let Some(version) = gpu.identity.get(IdentityColumn::Driver) {
                    versions.entry(version).or_default().push(gpu);
                }
            }
            let nodes = |gpus: &[&Arc<GpuState>]| -> Vec<String> {
                let nodes: BTreeSet<&str> = gpus.iter().filter_map(|gpu| gpu.identity.node()).collect();
                nodes.into_iter().map(str::to_owned).collect()
            };
            let mut by_nodes: Vec<(&str, Vec<String>)> =
                versions.iter().map(|(version, gpus)| (*version, nodes(gpus))).collect();
            by_nodes.retain(|(_, nodes)| !nodes.is_empty());
            by_nodes.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
            let [(most, of_most), (_, of_next), ..] = by_nodes.as_slice() else { continue };
            // Of as many nodes with one version as with another neither is the odd one.
            let most = Some(*most).filter(|_| of_most.len() > of_next.len());
            let odd = by_nodes.iter().filter(|(version, _)| Some(*version) != most);
            let odd: Vec<String> =
                odd.map(|(version, nodes)| format!("{version} on {}", named(nodes))).collect();
            let rest = most.map_or(String::new(), |most| format!(", most have {most}"));
            let sentence = format!("nodes with {model} have driver {}{rest}", odd.join(" and "));
            let others = versions.iter().filter(|(version, _)| Some(**version) != most);
            let others: Vec<&Arc<GpuState>> = others.flat_map(|(_, gpus)| gpus.iter().copied()).collect();
            let subject = Subject::Model(Arc::clone(model));
            let finding = finding("driver_mismatch", subject, sentence, Vec::new(), Reach::of(&others));
            found.push(Candidate { opens: true, began: None, finding });
        }
    }
}

/// Names of nodes, the first ones.
fn named(nodes: &[String]) -> String {
    let first: Vec<&str> = nodes.iter().take(NAMED_NODES_MAX).map(String::as_str).collect();
    let dots = if nodes.len() > first.len() { ", …" } else { "" };
    format!("{}{dots}", first.join(", "))
}
