//! Calls of the rare tier that give several numbers each.

use gpuvitals_core::{AbsenceReason, MetricId};

use super::code::Answer;
use super::ledger::Gate;
use super::raw::{Gpu, Raw};
use super::singles::count_wide;
use super::tick::DeviceReading;
use crate::probe::ProbeError;

const REMAP_BANKS: [MetricId; 5] = [
    MetricId::of("remap_banks_max"),
    MetricId::of("remap_banks_high"),
    MetricId::of("remap_banks_partial"),
    MetricId::of("remap_banks_low"),
    MetricId::of("remap_banks_none"),
];
const SRAM: [MetricId; 10] = [
    MetricId::of("ecc_sram_parity_volatile"),
    MetricId::of("ecc_sram_secded_volatile"),
    MetricId::of("ecc_sram_parity_aggregate"),
    MetricId::of("ecc_sram_secded_aggregate"),
    MetricId::of("ecc_sram_source_l2"),
    MetricId::of("ecc_sram_source_sm"),
    MetricId::of("ecc_sram_source_mcu"),
    MetricId::of("ecc_sram_source_pcie"),
    MetricId::of("ecc_sram_source_other"),
    MetricId::of("sram_threshold_exceeded"),
];
const SESSIONS: MetricId = MetricId::of("encoder_sessions");
const FPS: MetricId = MetricId::of("encoder_fps");
const LATENCY: MetricId = MetricId::of("encoder_latency_ns");
const FABRIC_STATE: MetricId = MetricId::of("fabric_state");
const FABRIC_HEALTH: MetricId = MetricId::of("fabric_health");

/// NVML's number for a state or a health that this GPU does not support.
const NO_FABRIC: u32 = 0;

/// Makes a call and drops its answer.
type SeveralCall = fn(&Raw, Gpu) -> Answer<()>;

/// All of the calls, by what they are about.
pub(super) const ALL: [(&str, SeveralCall); 4] = [
    ("row remapping", |raw, gpu| raw.remap_banks(gpu).map(drop)),
    ("SRAM errors", |raw, gpu| raw.sram_errors(gpu).map(drop)),
    ("encoder sessions", |raw, gpu| raw.encoder_sessions(gpu).map(drop)),
    ("NVLink fabric", |raw, gpu| raw.fabric(gpu).map(drop)),
];

/// The state of the calls.
#[derive(Default)]
pub(super) struct Several {
    banks: Gate,
    sram: Gate,
    encoder: Gate,
    fabric: Gate,
}

impl Several {
    pub(super) fn read(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        if let Some(banks) = device.ask(&mut self.banks, &REMAP_BANKS, Raw::remap_banks)? {
            REMAP_BANKS.iter().zip(banks).for_each(|(metric, count)| device.row.int(*metric, count));
        }
        self.read_sram(device)?;
        self.read_encoder(device)?;
        self.read_fabric(device)
    }

    fn read_sram(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        if let Some(errors) = device.ask(&mut self.sram, &SRAM, Raw::sram_errors)? {
            let counts = [
                errors.volatileUncParity,
                errors.volatileUncSecDed,
                errors.aggregateUncParity,
                errors.aggregateUncSecDed,
                errors.aggregateUncBucketL2,
                errors.aggregateUncBucketSm,
                errors.aggregateUncBucketMcu,
                errors.aggregateUncBucketPcie,
                errors.aggregateUncBucketOther,
                errors.bThresholdExceeded.into(),
            ];
            SRAM.iter().zip(counts).for_each(|(metric, count)| device.row.set(*metric, count_wide(count)));
        }
        Ok(())
    }

    /// Without a session the driver's rate and latency are 0, which nothing has measured: they are left out.
    fn read_encoder(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        let metrics = [SESSIONS, FPS, LATENCY];
        if let Some([sessions, fps, latency_us]) =
            device.ask(&mut self.encoder, &metrics, Raw::encoder_sessions)?
        {
            device.row.int(SESSIONS, sessions);
            if sessions > 0 {
                device.row.int(FPS, fps);
                device.row.int(LATENCY, i64::from(latency_us) * 1000);
            }
        }
        Ok(())
    }

    fn read_fabric(&mut self, device: &mut DeviceReading<'_>) -> Result<(), ProbeError> {
        let metrics = [FABRIC_STATE, FABRIC_HEALTH];
        if let Some((state, health)) = device.ask(&mut self.fabric, &metrics, Raw::fabric)? {
            for (metric, value) in metrics.into_iter().zip([Some(state), health]) {
                match value {
                    None | Some(NO_FABRIC) => device.ledger.never(&[metric], AbsenceReason::NotSupported),
                    Some(value) => {
                        device.ledger.has(metric);
                        device.row.int(metric, value);
                    }
                }
            }
        }
        Ok(())
    }
}
