//! Field values: many metrics in one call.

use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::Tier;
use gpuvitals_core::number::float;
use gpuvitals_core::{AbsenceReason, Identity, IdentityColumn, MetricId};
use nvml_wrapper_sys::bindings::field_id as id;

use super::code::{Answer, Code, Meaning};
use super::ledger::{Gate, Ledger};
use super::raw::{FieldValue, Gpu, LinkEnd, Number, Raw, field_answer, field_value};
use super::tick::{DeviceReading, GpuTick};
use crate::probe::{Instance, ProbeError, Row};

/// A field and the column it fills.
#[derive(Debug)]
struct FieldColumn {
    id: u32,
    scope: u32,
    metric: MetricId,
    scale: FieldScale,
}

/// From the field's unit to the column's.
#[derive(Debug, Clone, Copy)]
enum FieldScale {
    /// As it is.
    One,
    /// Milliwatts to watts.
    Thousandth,
    /// KiB to bytes.
    Kibi,
    /// Degrees; 0 means that there is no sensor.
    Celsius,
}

/// Payload of NVLinks, in KiB.
const THROUGHPUT_TX: u32 = id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX;
const THROUGHPUT_RX: u32 = id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX;

/// The GPU alone, and the whole module of a GPU with a CPU.
const GPU: u32 = 0;
const MODULE: u32 = 1;
/// All links at once.
const LINKS: u32 = u32::MAX;

const fn field(id: u32, scope: u32, column: &str, scale: FieldScale) -> FieldColumn {
    FieldColumn { id, scope, metric: MetricId::of(column), scale }
}

/// Values read as field values, at the tier of the metric. Ids from 251 on were renumbered and are listed
/// only in [`RENUMBERED`].
const FIELDS: &[FieldColumn] = &[
    field(id::NVML_FI_DEV_POWER_INSTANT, GPU, "power_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_AVERAGE, GPU, "power_average_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_INSTANT, MODULE, "module_power_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_MEMORY_TEMP, 0, "temperature_memory_c", FieldScale::Celsius),
    field(id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0, "energy_mj", FieldScale::One),
    field(id::NVML_FI_DEV_POWER_REQUESTED_LIMIT, GPU, "power_limit_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_CURRENT_LIMIT, GPU, "power_limit_enforced_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_CURRENT_LIMIT, MODULE, "module_power_limit_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_DEFAULT_LIMIT, GPU, "power_limit_default_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_MIN_LIMIT, GPU, "power_limit_min_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_POWER_MAX_LIMIT, GPU, "power_limit_max_w", FieldScale::Thousandth),
    field(id::NVML_FI_DEV_PERF_POLICY_POWER, 0, "throttled_power_ns", FieldScale::One),
    field(id::NVML_FI_DEV_PERF_POLICY_THERMAL, 0, "throttled_thermal_ns", FieldScale::One),
    field(id::NVML_FI_DEV_PERF_POLICY_SYNC_BOOST, 0, "throttled_sync_boost_ns", FieldScale::One),
    field(id::NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT, 0, "throttled_board_limit_ns", FieldScale::One),
    field(id::NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION, 0, "throttled_low_utilization_ns", FieldScale::One),
    field(id::NVML_FI_DEV_PERF_POLICY_RELIABILITY, 0, "throttled_reliability_ns", FieldScale::One),
    field(
        id::NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS,
        0,
        "throttled_application_clocks_ns",
        FieldScale::One,
    ),
    field(id::NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS, 0, "throttled_base_clocks_ns", FieldScale::One),
    field(id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0, "throttled_sw_power_cap_ns", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, "pcie_tx_bytes", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, "pcie_rx_bytes", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_REPLAY_COUNTER, 0, "pcie_replays", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, 0, "pcie_replay_rollovers", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, 0, "pcie_correctable_errors", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_COUNT_NAKS_SENT, 0, "pcie_naks_sent", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED, 0, "pcie_naks_received", FieldScale::One),
    field(id::NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, 0, "pcie_recoveries", FieldScale::One),
    field(THROUGHPUT_TX, LINKS, "interconnect_tx_bytes", FieldScale::Kibi),
    field(THROUGHPUT_RX, LINKS, "interconnect_rx_bytes", FieldScale::Kibi),
    field(
        id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
        0,
        "interconnect_crc_flit_errors",
        FieldScale::One,
    ),
    field(
        id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
        0,
        "interconnect_crc_data_errors",
        FieldScale::One,
    ),
    field(id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0, "interconnect_replay_errors", FieldScale::One),
    field(
        id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
        0,
        "interconnect_recovery_errors",
        FieldScale::One,
    ),
    field(id::NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, 0, "interconnect_ecc_errors", FieldScale::One),
    field(id::NVML_FI_DEV_C2C_LINK_COUNT, 0, "c2c_links", FieldScale::One),
    field(id::NVML_FI_DEV_RETIRED_SBE, 0, "retired_pages_sbe", FieldScale::One),
    field(id::NVML_FI_DEV_RETIRED_DBE, 0, "retired_pages_dbe", FieldScale::One),
    field(id::NVML_FI_DEV_RETIRED_PENDING, 0, "retired_pages_pending", FieldScale::One),
    field(id::NVML_FI_DEV_REMAPPED_COR, 0, "remapped_rows_correctable", FieldScale::One),
    field(id::NVML_FI_DEV_REMAPPED_UNC, 0, "remapped_rows_uncorrectable", FieldScale::One),
    field(id::NVML_FI_DEV_REMAPPED_PENDING, 0, "remapped_rows_pending", FieldScale::One),
    field(id::NVML_FI_DEV_REMAPPED_FAILURE, 0, "remapped_rows_failed", FieldScale::One),
    field(id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0, "recovery_action", FieldScale::One),
];

/// Fields whose ids moved by [`RENUMBERED_BY`] with driver 580.82; with their earlier ids.
const RENUMBERED: &[FieldColumn] = &[
    field(
        id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        0,
        "throttled_sw_thermal_ns",
        FieldScale::One,
    ),
    field(
        id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        0,
        "throttled_hw_thermal_ns",
        FieldScale::One,
    ),
    field(
        id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        0,
        "throttled_hw_power_brake_ns",
        FieldScale::One,
    ),
];
const RENUMBERED_BY: u32 = 18;
const RENUMBERED_SINCE: (u32, u32) = (580, 82);

/// Counts of each NVLink; the columns hold the sums, unless a field gives the total. Fields of other generations answer that they
/// are not supported; of two fields of one metric the first counts.
const LINK_FIELDS: &[(u32, MetricId)] = &[
    (THROUGHPUT_TX, MetricId::of("interconnect_tx_bytes")),
    (THROUGHPUT_RX, MetricId::of("interconnect_rx_bytes")),
    (id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, MetricId::of("interconnect_replay_errors")),
    (id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, MetricId::of("interconnect_recovery_errors")),
    (id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC, MetricId::of("interconnect_crc_errors")),
    (id::NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, MetricId::of("interconnect_tx_bytes")),
    (id::NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, MetricId::of("interconnect_rx_bytes")),
    (id::NVML_FI_DEV_NVLINK_COUNT_XMIT_PACKETS, MetricId::of("interconnect_tx_packets")),
    (id::NVML_FI_DEV_NVLINK_COUNT_RCV_PACKETS, MetricId::of("interconnect_rx_packets")),
    (id::NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, MetricId::of("interconnect_rx_errors")),
    (id::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, MetricId::of("interconnect_symbol_errors")),
    (id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, MetricId::of("interconnect_effective_errors")),
    (id::NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, MetricId::of("interconnect_integrity_errors")),
    (
        id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
        MetricId::of("interconnect_recoveries_succeeded"),
    ),
    (
        id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
        MetricId::of("interconnect_recoveries_failed"),
    ),
];
const LINKS_UP: MetricId = MetricId::of("interconnect_links_up");
const LINK_ENDS: MetricId = MetricId::of("interconnect_links");
/// Most links of one GPU that are asked.
const LINKS_MAX: i64 = 36;

/// The fields of one tier that a device still answers, asked in one call.
#[derive(Default)]
pub(super) struct FieldGroup {
    metrics: Vec<MetricId>,
    scales: Vec<FieldScale>,
    request: Vec<FieldValue>,
    /// Fields whose id this driver version does not tell.
    unasked: Vec<MetricId>,
    gate: Gate,
}

impl FieldGroup {
    /// All fields of a tier, by the ids of this driver version.
    pub(super) fn new(tier: Tier, driver: &str) -> Self {
        let moved = is_renumbered(driver).map(|is| if is { RENUMBERED_BY } else { 0 });
        let renumbered = RENUMBERED.iter().map(|field| (field, moved));
        let all = FIELDS.iter().map(|field| (field, Some(0))).chain(renumbered);
        let mut group = Self::default();
        for (field, moved) in all.filter(|(field, _)| field.metric.metric().tier == tier) {
            let Some(moved) = moved else {
                group.unasked.push(field.metric);
                continue;
            };
            group.metrics.push(field.metric);
            group.scales.push(field.scale);
            group.request.push(field_value(field.id + moved, field.scope));
        }
        group
    }

    /// Whether the device may give this metric, be it not this time.
    pub(super) fn has(&self, metric: MetricId) -> bool {
        self.gate != Gate::Shut && self.metrics.contains(&metric)
    }

    /// The number of fields.
    pub(super) fn len(&self) -> usize {
        self.request.len()
    }

    /// Asks for all fields in one call.
    pub(super) fn ask(&mut self, raw: &Raw, gpu: Gpu) -> Answer<()> {
        raw.field_values(gpu, &mut self.request)
    }

    /// Reads them into the row. Fields that the device will never provide are not read again.
    pub(super) fn read(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        let DeviceReading { tick: GpuTick { raw, gpu, .. }, ledger, row } = device;
        ledger.never(&self.unasked, AbsenceReason::NotSupported);
        if self.gate == Gate::Shut || self.request.is_empty() {
            return Ok(());
        }
        if let Err(code) = self.ask(raw, *gpu) {
            return ledger.refused(&mut self.gate, &self.metrics, code);
        }
        self.gate = Gate::Open;
        let (mut at, mut has_answer, mut unknown) = (0, false, None);
        while let (Some(&metric), Some(&scale), Some(asked)) =
            (self.metrics.get(at), self.scales.get(at), self.request.get(at))
        {
            at += 1;
            let code = match field_answer(asked).and_then(|number| scale.set(number, metric, row)) {
                Ok(()) => {
                    has_answer = true;
                    continue;
                }
                // A field id that a driver does not know is an invalid argument.
                Err(Code::INVALID_ARGUMENT) => Code::NOT_SUPPORTED,
                Err(code) => code,
            };
            if code.meaning() == Meaning::Unknown {
                unknown = Some(code);
                ledger.not_now(&[metric], AbsenceReason::Invalid);
                continue;
            }
            let mut gate = Gate::Open;
            ledger.refused(&mut gate, &[metric], code)?;
            if gate == Gate::Shut {
                at -= 1;
                self.metrics.swap_remove(at);
                self.scales.swap_remove(at);
                self.request.swap_remove(at);
            }
        }
        if has_answer {
            ledger.answered();
        } else if let Some(code) = unknown {
            // However many fields: it is one call that gave nothing.
            ledger.refused(&mut Gate::Open, &[], code)?;
        }
        Ok(())
    }
}

impl FieldScale {
    fn set(self, number: Number, metric: MetricId, row: &mut Row) -> Answer<()> {
        match (self, number) {
            (Self::Celsius, Number::Int(0)) => return Err(Code::NOT_SUPPORTED),
            (Self::One | Self::Celsius, Number::Int(value)) => row.int(metric, value),
            (Self::One | Self::Celsius, Number::Float(value)) => row.double(metric, value),
            (Self::Kibi, Number::Int(value)) => row.int(metric, value.saturating_mul(1024)),
            (Self::Kibi, Number::Float(value)) => row.double(metric, value * 1024.0),
            (Self::Thousandth, number) => row.double(metric, as_f64(number) / 1000.0),
        }
        Ok(())
    }
}

fn as_f64(number: Number) -> f64 {
    match number {
        Number::Int(value) => float(value),
        Number::Float(value) => value,
    }
}

/// The counters of the NVLinks of a device.
#[derive(Default)]
pub(super) struct Links {
    request: Vec<FieldValue>,
    /// None until the device has answered.
    count: Option<u32>,
    gate: Gate,
    ends: LinkEnds,
    /// The links that have ever answered, a bit each, by field of [`LINK_FIELDS`].
    answered: [u64; LINK_FIELDS.len()],
}

/// What a link leads to.
enum LinkPeer {
    /// A GPU by its PCI address, or `switch`.
    Named(Arc<str>),
    /// What the driver does not tell.
    Nameless,
}

/// What the links lead to.
#[derive(Default)]
struct LinkEnds {
    /// By link, once it has been told: a link stays where it is.
    peers: Vec<Option<LinkPeer>>,
    /// The links that are up, a bit each.
    up: u64,
}

/// A counter over all links.
enum LinkSum {
    Whole(i64),
    /// A link that counts did not answer: without it the sum would fall, and rise again later.
    Partial,
    /// No link has it.
    None,
}

impl Links {
    /// Reads each link in detail, and links that are up and the sums over all links, but for those that `totals` gives.
    pub(super) fn read(
        &mut self,
        totals: [&FieldGroup; 2],
        device: &mut DeviceReading<'_>,
    ) -> Result<(), ProbeError> {
        let GpuTick { raw, gpu, .. } = device.tick;
        let missing =
            |row: &Row, metric| row.get(metric).is_none() && totals.iter().all(|group| !group.has(metric));
        let count = match self.learn(raw, gpu) {
            Ok(count) => count,
            Err(code) => {
                let metrics = LINK_FIELDS.iter().map(|(_, metric)| *metric);
                let metrics: Vec<MetricId> = metrics
                    .filter(|metric| missing(device.row, *metric))
                    .chain([LINKS_UP, LINK_ENDS])
                    .collect();
                return device.ledger.refused(&mut Gate::Open, &metrics, code);
            }
        };
        if count == 0 {
            device.ledger.never(&[LINKS_UP, LINK_ENDS], AbsenceReason::NotSupported);
            for (_, metric) in LINK_FIELDS {
                if missing(device.row, *metric) {
                    device.ledger.never(&[*metric], AbsenceReason::NotSupported);
                }
            }
            return Ok(());
        }
        self.ends.count_up(count, device)?;
        if self.gate == Gate::Shut {
            return Ok(());
        }
        if let Err(code) = raw.field_values(gpu, &mut self.request) {
            return device.ledger.refused(&mut self.gate, &[], code);
        }
        for (at, (id, metric)) in LINK_FIELDS.iter().enumerate() {
            let (before, rest) = self.answered.split_at_mut(at);
            // Of several fields that count the same, the first that has ever answered counts: they are other counters.
            let mut earlier = LINK_FIELDS.iter().zip(before);
            if earlier.any(|((_, other), answered)| other == metric && *answered != 0) {
                continue;
            }
            let Some(answered) = rest.first_mut() else { break };
            let sum = sum(&self.request, *id, answered, |link, count| {
                device.row.detail(*metric, Instance::Number(link), Value::Int(count));
            })?;
            if !missing(device.row, *metric) {
                continue;
            }
            match sum {
                LinkSum::Whole(sum) => {
                    device.ledger.has(*metric);
                    device.row.int(*metric, sum);
                }
                LinkSum::Partial => {
                    device.ledger.has(*metric);
                    device.ledger.not_now(&[*metric], AbsenceReason::Invalid);
                }
                LinkSum::None => device.ledger.never(&[*metric], AbsenceReason::NotSupported),
            }
        }
        Ok(())
    }

    /// Number of links, queried until the device has answered.
    fn learn(&mut self, raw: &Raw, gpu: Gpu) -> Answer<u32> {
        if let Some(count) = self.count {
            return Ok(count);
        }
        let mut asked = [field_value(id::NVML_FI_DEV_NVLINK_LINK_COUNT, 0)];
        let answer = raw
            .field_values(gpu, &mut asked)
            .and_then(|()| asked.first().map_or(Ok(Number::Int(0)), field_answer));
        let links = match answer {
            Ok(Number::Int(links)) => links,
            Ok(Number::Float(_)) | Err(Code::INVALID_ARGUMENT) => 0,
            Err(code) if matches!(code.meaning(), Meaning::Never(_)) => 0,
            Err(code) => return Err(code),
        };
        let count = u32::try_from(links.clamp(0, LINKS_MAX)).unwrap_or(0);
        for link in 0..count {
            self.request.extend(LINK_FIELDS.iter().map(|(id, _)| field_value(*id, link)));
        }
        self.count = Some(count);
        Ok(count)
    }
}

impl LinkEnds {
    /// Counts the links that are up, of this many, and tells what they lead to.
    fn count_up(&mut self, count: u32, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        let DeviceReading { tick: GpuTick { raw, gpu, .. }, ledger, row } = device;
        let mut up = None;
        self.up = 0;
        for link in 0..count {
            match raw.link_state(*gpu, link) {
                Ok(state) => {
                    let is_up = i64::from(state == 1);
                    *up.get_or_insert(0) += is_up;
                    row.detail(LINKS_UP, Instance::Number(link), Value::Int(is_up));
                    if state == 1 {
                        self.learn(raw, *gpu, link);
                    }
                }
                // A link that this board does not have is not up.
                Err(Code::NOT_SUPPORTED | Code::INVALID_ARGUMENT) => {}
                Err(code) => return ledger.refused(&mut Gate::Open, &[LINKS_UP], code),
            }
        }
        match up {
            Some(up) => row.int(LINKS_UP, up),
            None => ledger.never(&[LINKS_UP], AbsenceReason::NotSupported),
        }
        self.tell(ledger, row);
        Ok(())
    }

    /// Notes a link that is up, and asks what it leads to until that has been told.
    fn learn(&mut self, raw: &Raw, gpu: Gpu, link: u32) {
        let at = link as usize;
        if self.peers.len() <= at {
            self.peers.resize_with(at + 1, || None);
        }
        self.up |= 1 << link;
        if let Some(peer) = self.peers.get_mut(at).filter(|peer| peer.is_none()) {
            *peer = end_of(raw, gpu, link);
        }
    }

    /// The names of what the links that are up lead to, link by link.
    fn named(&self) -> impl Iterator<Item = &Arc<str>> {
        let up = self.peers.iter().enumerate().filter(|(link, _)| self.up >> link & 1 == 1);
        up.filter_map(|(_, peer)| match peer {
            Some(LinkPeer::Named(name)) => Some(name),
            _ => None,
        })
    }

    /// Tells how many links lead to each.
    fn tell(&self, ledger: &mut Ledger, row: &mut Row) {
        let mut total = 0;
        for (at, name) in self.named().enumerate() {
            total += 1;
            if !self.named().take(at).any(|earlier| earlier == name) {
                let links = self.named().filter(|other| *other == name).count();
                let links = i64::try_from(links).unwrap_or(i64::MAX);
                row.detail(LINK_ENDS, Instance::Name(Arc::clone(name)), Value::Int(links));
            }
        }
        if total > 0 {
            row.int(LINK_ENDS, total);
        } else {
            ledger.never(&[LINK_ENDS], AbsenceReason::NotSupported);
        }
    }
}

/// What a link leads to; none if it is not told this time. Nothing rests on it, so a refusal is none that counts.
fn end_of(raw: &Raw, gpu: Gpu, link: u32) -> Option<LinkPeer> {
    let name = match raw.link_end(gpu, link) {
        Ok(LinkEnd::Gpu(address)) => {
            let spelled = Identity::default().with(IdentityColumn::Pci, &address).ok();
            spelled.and_then(|spelled| spelled.get(IdentityColumn::Pci).map(Arc::from))
        }
        Ok(LinkEnd::Switch) => Some(Arc::from("switch")),
        Ok(LinkEnd::Other) => None,
        Err(code) if matches!(code.meaning(), Meaning::Never(_)) => None,
        Err(_) => return None,
    };
    Some(name.map_or(LinkPeer::Nameless, LinkPeer::Named))
}

/// Sum of a field over the links that have it: a link has it once it has `answered`. `each` gets the link and its count.
fn sum(
    values: &[FieldValue],
    id: u32,
    answered: &mut u64,
    mut each: impl FnMut(u32, i64),
) -> Result<LinkSum, ProbeError> {
    let unit = if [THROUGHPUT_TX, THROUGHPUT_RX].contains(&id) { 1024 } else { 1 };
    let (mut sum, mut now, mut is_sure) = (0_i64, 0_u64, true);
    for value in values.iter().filter(|value| value.fieldId == id) {
        match field_answer(value) {
            // All bits set is how a driver says that it does not know.
            Ok(Number::Int(..0)) => is_sure = false,
            Ok(Number::Int(count)) => {
                let count = count.saturating_mul(unit);
                sum = sum.saturating_add(count);
                each(value.scopeId, count);
                now |= 1 << value.scopeId;
            }
            Ok(Number::Float(_)) | Err(Code::INVALID_ARGUMENT) => {}
            Err(code) => match code.meaning() {
                Meaning::Never(_) => {}
                Meaning::Device(error) => return Err(error),
                Meaning::Stale | Meaning::NotNow(_) | Meaning::Unknown => is_sure = false,
            },
        }
    }
    is_sure &= *answered & !now == 0;
    *answered |= now;
    Ok(match now {
        _ if !is_sure => LinkSum::Partial,
        0 => LinkSum::None,
        _ => LinkSum::Whole(sum),
    })
}

/// Whether a driver version (`580.82.07`) has the field ids of CUDA 13.0 Update 1; none if it cannot be told.
fn is_renumbered(driver: &str) -> Option<bool> {
    let mut parts = driver.split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    let minor: u32 = parts.next()?.parse().ok()?;
    Some((major, minor) >= RENUMBERED_SINCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_ids_follow_the_driver_version() {
        for (driver, is) in [
            ("575.51.03", Some(false)),
            ("580.65.06", Some(false)),
            ("580.82.07", Some(true)),
            ("590.10", Some(true)),
            ("", None),
            ("580", None),
            ("r580.82", None),
        ] {
            assert_eq!(is_renumbered(driver), is, "{driver}");
            let group = FieldGroup::new(Tier::Slow, driver);
            let ids: Vec<u32> = group.request.iter().map(|value| value.fieldId).collect();
            assert_eq!(ids.contains(&251), is == Some(false), "{driver}");
            assert_eq!(ids.contains(&269), is == Some(true), "{driver}");
            let is_unasked = group.unasked.contains(&MetricId::of("throttled_sw_thermal_ns"));
            assert_eq!(is_unasked, is.is_none(), "{driver}: neither id is guessed");
        }
    }
}
