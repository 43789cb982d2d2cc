//! v1.9, which describes itself.
//!
//! At 4 an `i32` number of attributes, then each attribute, unaligned: a `u64` encoding and its values.
//! Encoding: bits 31-24 unit, 23-20 type, 19-10 attribute, 9-0 number of values. The attribute determines the
//! unit so far, so the unit bits are ignored. An unknown attribute is skipped by type and number; at an
//! unknown type or values beyond the end, the walk stops and the earlier attributes count.

use super::field::Field;
use super::slot::{Slot, SlotKind, Slots};
use super::{TableError, Version};

/// Most attributes read: more than the numbers allow.
const ATTRIBUTES_MAX: usize = 1024;

/// The attributes by their number.
const ATTRIBUTES: [Field; 49] = [
    Field::TemperatureHotspot,
    Field::TemperatureMem,
    Field::TemperatureVrsoc,
    Field::CurrentSocketPower,
    Field::AverageGfxActivity,
    Field::AverageUmcActivity,
    Field::MemMaxBandwidth,
    Field::EnergyAccumulator,
    Field::SystemClockCounter,
    Field::AccumulationCounter,
    Field::ProchotResidencyAcc,
    Field::PptResidencyAcc,
    Field::SocketThmResidencyAcc,
    Field::VrThmResidencyAcc,
    Field::HbmThmResidencyAcc,
    Field::GfxclkLockStatus,
    Field::PcieLinkWidth,
    Field::PcieLinkSpeed,
    Field::XgmiLinkWidth,
    Field::XgmiLinkSpeed,
    Field::GfxActivityAcc,
    Field::MemActivityAcc,
    Field::PcieBandwidthAcc,
    Field::PcieBandwidthInst,
    Field::PcieL0ToRecovCountAcc,
    Field::PcieReplayCountAcc,
    Field::PcieReplayRoverCountAcc,
    Field::PcieNakSentCountAcc,
    Field::PcieNakRcvdCountAcc,
    Field::XgmiReadDataAcc,
    Field::XgmiWriteDataAcc,
    Field::XgmiLinkStatus,
    Field::FirmwareTimestamp,
    Field::CurrentGfxclk,
    Field::CurrentSocclk,
    Field::CurrentVclk0,
    Field::CurrentDclk0,
    Field::CurrentUclk,
    Field::NumPartition,
    Field::PcieLcPerfOtherEndRecovery,
    Field::XcpGfxBusyInst,
    Field::XcpJpegBusy,
    Field::XcpVcnBusy,
    Field::XcpGfxBusyAcc,
    Field::XcpGfxBelowHostLimitPptAcc,
    Field::XcpGfxBelowHostLimitThmAcc,
    Field::XcpGfxLowUtilizationAcc,
    Field::XcpGfxBelowHostLimitTotalAcc,
    Field::TemperatureHbm,
];

/// The places of a table's fields, by its own description.
pub(super) fn slots(version: Version, bytes: &[u8]) -> Result<Slots, TableError> {
    let Some(count) = bytes.get(4..).and_then(<[u8]>::first_chunk) else {
        return Err(TableError::Truncated { version, len: bytes.len() });
    };
    let count = i32::from_le_bytes(*count);
    let Ok(attributes) = usize::try_from(count) else {
        return Err(TableError::AttributeCount { version, count });
    };
    let mut slots = Slots::EMPTY;
    let mut at = 8;
    for _ in 0..attributes.min(ATTRIBUTES_MAX) {
        let Some((attribute, slot)) = record(bytes, at) else { break };
        at = usize::from(slot.offset) + usize::from(slot.count) * usize::from(slot.kind.width());
        if let Some(field) = ATTRIBUTES.get(attribute) {
            slots.set(*field, slot);
        }
    }
    Ok(slots)
}

/// The number of an attribute and the place of its values, unless they end beyond the table.
fn record(bytes: &[u8], at: usize) -> Option<(usize, Slot)> {
    let encoding = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    let bits = |shift: u32, mask: u64| u16::try_from(encoding >> shift & mask).ok();
    let kind = SlotKind::by_code(usize::from(bits(20, 0xf)?))?;
    let count = bits(0, 0x3ff)?;
    let offset = at + 8;
    let end = offset + usize::from(count) * usize::from(kind.width());
    bytes.get(offset..end)?;
    Some((
        usize::from(bits(10, 0x3ff)?),
        Slot { offset: u16::try_from(offset).ok()?, count, stride: 0, kind },
    ))
}
