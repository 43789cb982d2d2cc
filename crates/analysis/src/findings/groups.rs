//! GPUs that work together: stragglers among them, and jobs whose GPUs do nothing.

use std::sync::Arc;

use gpuvitals_core::history::GpuState;
use gpuvitals_core::{IdentityColumn, quantity};

use super::threshold::{
    DEVIATION_MIN, IDLE_AFTER_NS, LOADED_MINUTES_MIN, STARVED_GPUS_MIN, STARVED_PCT, STARVED_POWER,
    STRAGGLER_CLOCK, STRAGGLER_DISTANCE, STRAGGLER_GPUS_MIN, UTILIZATION_DEVIATION_MIN_PCT,
};
use super::throttling::percent;
use super::{Began, Candidate, Evidence, GpuWindow, Member, Reach, Situation, Subject, Survey, finding};
use crate::robust::Spread;
use gpuvitals_core::integral::{rounded, seconds};

/// The GPUs of one job in the last minutes, and how they spread.
#[derive(Debug, Clone, PartialEq)]
pub struct HolderLoad {
    /// The job, as `cluster/namespace/name`.
    pub holder: Arc<str>,
    /// The GPUs that it holds now, with their last minutes.
    pub members: Vec<MemberLoad>,
    /// Spread of their clocks under load, MHz.
    pub clock: Option<Spread>,
    /// Spread of their power under load, W.
    pub power: Option<Spread>,
    /// Spread of their utilisation, %.
    pub utilization: Option<Spread>,
}

/// A GPU of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberLoad {
    /// Key of the GPU.
    pub gpu: Arc<str>,
    /// Its last minutes.
    pub window: GpuWindow,
}

impl HolderLoad {
    /// Distance of the clock of one of its GPUs under load from the median, in robust deviations; negative: below.
    pub fn clock_distance(&self, member: &MemberLoad) -> Option<f64> {
        distance(self.clock, member.window.steady_clock(), share_of_median)
    }

    /// The same of its power under load.
    pub fn power_distance(&self, member: &MemberLoad) -> Option<f64> {
        distance(self.power, member.window.loaded_power_w, share_of_median)
    }

    /// The same of its utilisation.
    pub fn utilization_distance(&self, member: &MemberLoad) -> Option<f64> {
        distance(self.utilization, member.window.utilization_pct, |_| UTILIZATION_DEVIATION_MIN_PCT)
    }
}

fn distance(spread: Option<Spread>, value: Option<f64>, least: fn(Spread) -> f64) -> Option<f64> {
    spread.zip(value).map(|(spread, value)| rounded(spread.distance(value, least(spread))))
}

fn share_of_median(spread: Spread) -> f64 {
    DEVIATION_MIN * spread.median
}

/// The jobs with several GPUs, by name, and how their GPUs spread.
pub fn holder_loads(situation: &Situation<'_>) -> Vec<HolderLoad> {
    let survey = Survey::of(*situation);
    let several = survey.holders.iter().filter(|(_, places)| places.len() > 1);
    let mut loads: Vec<HolderLoad> =
        several.map(|(holder, places)| load(holder, survey.members(places)).0).collect();
    loads.sort_by(|a, b| a.holder.cmp(&b.holder));
    loads
}

/// The GPUs of a job, and the state of each.
fn load<'a>(
    holder: &Arc<str>,
    members: impl Iterator<Item = Member<'a>>,
) -> (HolderLoad, Vec<&'a Arc<GpuState>>) {
    let member = |Member { gpu, window }: Member<'a>| {
        Some((MemberLoad { gpu: Arc::clone(&gpu.key), window: window? }, gpu))
    };
    let (members, states): (Vec<MemberLoad>, Vec<_>) = members.filter_map(member).unzip();
    let load = HolderLoad {
        holder: Arc::clone(holder),
        clock: Spread::of(members.iter().filter_map(|member| member.window.steady_clock())),
        power: Spread::of(members.iter().filter_map(|member| member.window.loaded_power_w)),
        utilization: Spread::of(members.iter().filter_map(|member| member.window.utilization_pct)),
        members,
    };
    (load, states)
}

impl Survey<'_> {
    pub(super) fn stragglers(&self, found: &mut Vec<Candidate>) {
        for (holder, places) in &self.holders {
            if places.len() < STRAGGLER_GPUS_MIN {
                continue;
            }
            let (load, states) = load(holder, self.members(places));
            let loaded = load.members.iter().filter(|member| member.window.steady_clock().is_some()).count();
            for (member, gpu) in load.members.iter().zip(states) {
                if loaded >= STRAGGLER_GPUS_MIN {
                    found.extend(self.straggler(&load, member, gpu));
                }
                if load.members.len() >= STARVED_GPUS_MIN {
                    found.extend(self.starved(&load, member, gpu));
                }
            }
        }
    }

    fn straggler(&self, load: &HolderLoad, member: &MemberLoad, gpu: &Arc<GpuState>) -> Option<Candidate> {
        let (spread, clock, distance) =
            (load.clock?, member.window.steady_clock()?, load.clock_distance(member)?);
        let share = clock / spread.median;
        if share >= STRAGGLER_CLOCK.1 || distance > -STRAGGLER_DISTANCE.1 {
            return None;
        }
        let opens = share < STRAGGLER_CLOCK.0 && distance <= -STRAGGLER_DISTANCE.0;
        let others = quantity::counted((load.members.len() - 1) as u64, "other GPU");
        let sentence = format!(
            "its clock of {clock:.0} MHz is {} below that of its job, whose {others} wait for it",
            percent(1.0 - share)
        );
        let mut evidence = vec![
            Evidence::derived("gpu_clock_mhz", "MHz", clock.round_ties_even())
                .beside(spread.median.round_ties_even(), "median of the job"),
            Evidence::derived("robust_distance", "deviations", distance),
        ];
        let power = member.window.loaded_power_w.zip(load.power);
        evidence.extend(power.map(|(watts, spread)| {
            Evidence::derived("power_w", "W", watts.round_ties_even())
                .beside(spread.median.round_ties_even(), "median of the job")
        }));
        let finding = self.about_gpu("straggler", gpu, sentence, evidence);
        Some(Candidate { opens, began: None, finding })
    }

    /// A GPU that does much less than the others of its job, by utilisation and power.
    fn starved(&self, load: &HolderLoad, member: &MemberLoad, gpu: &Arc<GpuState>) -> Option<Candidate> {
        if member.window.held_minutes < LOADED_MINUTES_MIN {
            return None;
        }
        let (busy, spread) = (member.window.utilization_pct?, load.utilization?);
        let (work, others) = (member.window.power_w?, load.all_power()?);
        let (behind, share) = (spread.median - busy, work / others.median);
        // Servers of one service differ among each other; then one of them is no exception.
        let is_far = load.utilization_distance(member)? <= -STRAGGLER_DISTANCE.0;
        if behind < STARVED_PCT.1 || share > STARVED_POWER.1 || !is_far {
            return None;
        }
        let opens = behind >= STARVED_PCT.0 && share <= STARVED_POWER.0;
        let sentence = format!(
            "it is busy for {busy:.0} % of the time, the median of its job is {:.0} %",
            spread.median
        );
        let evidence = vec![
            Evidence::derived("utilization_pct", "%", busy.round_ties_even())
                .beside(spread.median.round_ties_even(), "median of the job"),
            Evidence::derived("power_w", "W", work.round_ties_even())
                .beside(others.median.round_ties_even(), "median of the job"),
        ];
        let finding = self.about_gpu("starved", gpu, sentence, evidence);
        Some(Candidate { opens, began: None, finding })
    }

    /// Jobs whose GPUs have done nothing for long: one finding a job.
    pub(super) fn idle_holders(&self, found: &mut Vec<Candidate>) {
        for (holder, places) in &self.holders {
            let all = places.len();
            let since = |Member { gpu, window }: Member<'_>| {
                let Began { at_ns, is_bound } = window?.idle_since?;
                // Before its first row nothing is known of it.
                Some(Began { at_ns, is_bound: is_bound && gpu.first_seen_ns < at_ns })
            };
            let idle = self.members(places).filter_map(|member| Some((member.gpu, since(member)?)));
            let idle: Vec<_> =
                idle.filter(|(_, since)| self.now.fresh.now_ns - since.at_ns >= IDLE_AFTER_NS).collect();
            let Some(began) = idle.iter().map(|(_, since)| *since).min_by_key(|since| since.at_ns) else {
                continue;
            };
            let gpus: Vec<&Arc<GpuState>> = idle.iter().map(|(gpu, _)| *gpu).collect();
            let minutes = seconds(self.now.fresh.now_ns - began.at_ns) / 60.0;
            let name = job_name(gpus.first().copied());
            let held = if gpus.len() == all {
                quantity::counted(all as u64, "GPU")
            } else {
                format!("{} of its {all} GPUs", gpus.len())
            };
            let least = if began.is_bound { "at least " } else { "" };
            let sentence = format!("{name} holds {held} that did nothing for {least}{}", span(minutes));
            let evidence = vec![
                Evidence::derived("idle_minutes", "min", minutes.floor())
                    .beside(seconds(IDLE_AFTER_NS) / 60.0, "limit"),
            ];
            let reach = Reach { concerned_gpus: gpus.len(), ..Reach::of(&gpus) };
            let finding = finding("idle_held", Subject::Job(Arc::clone(holder)), sentence, evidence, reach);
            found.push(Candidate { opens: true, began: Some(began), finding });
        }
    }
}

/// What people call the job that holds a GPU.
pub(super) fn job_name(gpu: Option<&Arc<GpuState>>) -> &str {
    gpu.map_or("", |gpu| {
        let job = gpu.identity.get(IdentityColumn::Job);
        job.or_else(|| gpu.identity.get(IdentityColumn::Pod)).unwrap_or_default()
    })
}

/// A span in minutes; from two hours on in hours.
pub(super) fn span(minutes: f64) -> String {
    if minutes < 120.0 { format!("{minutes:.0} minutes") } else { format!("{:.1} hours", minutes / 60.0) }
}

impl HolderLoad {
    /// Spread of the power over all minutes, W.
    fn all_power(&self) -> Option<Spread> {
        Spread::of(self.members.iter().filter_map(|member| member.window.power_w))
    }
}
