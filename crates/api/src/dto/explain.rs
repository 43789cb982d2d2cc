//! Why a GPU was slow.

use gpuvitals_analysis::explain::SlowCause;
use gpuvitals_analysis::findings::GpuWindow;
use gpuvitals_analysis::health_event::HealthEvent;
use gpuvitals_core::batch::Value;
use gpuvitals_core::integral::rounded;
use serde::Serialize;
use utoipa::ToSchema;

use super::{EvidenceEntry, Moment};

/// Why a GPU was slow in a range of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation<'a> {
    /// Key of the GPU.
    pub(crate) gpu: &'a str,
    /// Its name for people.
    pub(crate) name: String,
    /// First instant of the range, on a whole minute.
    pub(crate) start: Moment,
    /// Last instant of that range.
    pub(crate) end: Moment,
    /// The answer in a sentence.
    pub(crate) verdict: String,
    /// Everything that held it up, the heaviest first; empty if nothing unusual is known.
    pub(crate) causes: Vec<CauseEntry<'a>>,
    /// What it is compared with.
    pub(crate) peers: PeerGroup<'a>,
    /// Its figures; null if it had no value in the range.
    pub(crate) figures: Option<RangeFigures>,
    /// Events in its health, in order.
    pub(crate) events: Vec<EventEntry<'a>>,
}

/// Something that made a GPU slow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CauseEntry<'a> {
    /// `events`, `heat`, `power_brake`, `power_limit`, `clock`, `application_clock`, `pcie`, `links`, `little_work`, `low_power`
    /// or `no_data`.
    id: &'static str,
    /// How much of the lost speed it can explain, 0 to 1: a share of the time, or a difference to the peers.
    weight: f64,
    /// The cause in a sentence, with the values that show it.
    sentence: &'a str,
    /// The values that show it.
    evidence: Vec<EvidenceEntry>,
}

/// The GPUs that a GPU is compared with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PeerGroup<'a> {
    /// `job`: the others of its job; `model`: others of its model; null: there are none.
    pub(crate) basis: Option<&'static str>,
    /// The job, `cluster/namespace/name`, or the model.
    pub(crate) name: Option<&'a str>,
    /// How many with values.
    pub(crate) count: usize,
}

/// A GPU in a range of time. Null: not measured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RangeFigures {
    /// Minutes with any value.
    minutes: usize,
    /// Minutes with a mean utilisation of 50 % or more.
    loaded_minutes: usize,
    /// Mean utilisation, %.
    utilization_pct: Option<f64>,
    /// Mean power, W.
    power_w: Option<f64>,
    /// Mean clock of the loaded minutes, MHz.
    loaded_clock_mhz: Option<f64>,
    /// Highest temperature, °C.
    temperature_max_c: Option<f64>,
    /// Share of the time that heat held the clock down.
    heat_share: Option<f64>,
    /// Share at the power limit.
    power_limit_share: Option<f64>,
    /// Share under the power brake of the chassis.
    power_brake_share: Option<f64>,
}

/// An event in the health of a GPU.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventEntry<'a> {
    /// When it happened.
    timestamp: Moment,
    /// `xid`, `ecc`, `ras`, `throttle`, `lost`, `back`, `reads_slowed`, `reads_usual` or `kernel`.
    kind: &'a str,
    /// In the agent's words.
    detail: &'a str,
}

impl<'a> From<&'a SlowCause> for CauseEntry<'a> {
    fn from(cause: &'a SlowCause) -> Self {
        Self {
            id: cause.id,
            weight: rounded(cause.weight),
            sentence: &cause.sentence,
            evidence: EvidenceEntry::all(&cause.evidence),
        }
    }
}

impl From<GpuWindow> for RangeFigures {
    fn from(window: GpuWindow) -> Self {
        let single = |figure: Option<f64>| figure.map(Value::figure_of_singles);
        Self {
            minutes: window.minutes,
            loaded_minutes: window.loaded_minutes,
            utilization_pct: single(window.utilization_pct),
            power_w: single(window.power_w),
            loaded_clock_mhz: window.loaded_clock_mhz,
            temperature_max_c: single(window.temperature_max_c),
            heat_share: window.heat_share,
            power_limit_share: window.power_share,
            power_brake_share: window.brake_share,
        }
    }
}

impl<'a> From<&'a HealthEvent> for EventEntry<'a> {
    fn from(event: &'a HealthEvent) -> Self {
        Self { timestamp: Moment(event.at_ns), kind: &event.kind, detail: &event.detail }
    }
}
