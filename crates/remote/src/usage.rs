//! Uses of GPUs as messages and back.

use std::sync::Arc;

use gpuvitals_core::energy::EnergySource;
use gpuvitals_core::history::Part;
use gpuvitals_core::usage::{GpuUse, HOLDER_COLUMNS, HolderUse, SeenPower};
use tonic::Status;

use crate::v1;

/// Uses of a message.
const PART_USES: usize = 4_096;

/// An answer as messages.
pub(crate) fn parts(answer: Part<Vec<GpuUse>>) -> impl Iterator<Item = Result<v1::UsagePart, Status>> {
    let Part { answer: uses, missing } = answer;
    let head = v1::UsagePart { missing, ..Default::default() };
    let of_uses = (0..uses.len()).step_by(PART_USES).map(move |start| {
        let some = uses.iter().skip(start).take(PART_USES);
        Ok(v1::UsagePart { uses: some.map(message).collect(), ..Default::default() })
    });
    std::iter::once(Ok(head)).chain(of_uses)
}

fn message(one: &GpuUse) -> v1::GpuUse {
    let text = |text: &Option<Arc<str>>| v1::group::Text { text: text.as_ref().map(ToString::to_string) };
    // The rest is a ledger's alone.
    let HolderUse { seconds, busy_s, idle_s, throttled_s, joules, idle_joules, power, .. } = one.held;
    v1::GpuUse {
        gpu: one.gpu.to_string(),
        holder: Some(v1::Group { texts: one.holder.iter().map(text).collect() }),
        seconds,
        busy_seconds: busy_s,
        idle_seconds: idle_s,
        throttled_seconds: throttled_s,
        joules,
        idle_joules,
        power_joules: power.joules,
        power_seconds: power.seconds,
        step_ns: one.step_ns,
        from_ns: one.rows_ns.0,
        until_ns: one.rows_ns.1,
        source: one.source.map_or("", EnergySource::name).to_owned(),
        first_ns: one.first_ns,
        last_ns: one.last_ns,
    }
}

/// A use as it was sent. A holder of a later release may have more texts, of which the first are known.
pub(crate) fn read(sent: v1::GpuUse) -> GpuUse {
    let texts = sent.holder.unwrap_or_default().texts.into_iter().map(|text| text.text.map(Arc::from));
    let mut holder: Vec<Option<Arc<str>>> = texts.collect();
    holder.resize(HOLDER_COLUMNS.len(), None);
    GpuUse {
        gpu: sent.gpu.into(),
        holder: holder.into(),
        step_ns: sent.step_ns,
        rows_ns: (sent.from_ns, sent.until_ns),
        held: HolderUse {
            seconds: sent.seconds,
            busy_s: sent.busy_seconds,
            idle_s: sent.idle_seconds,
            throttled_s: sent.throttled_seconds,
            joules: sent.joules,
            idle_joules: sent.idle_joules,
            power: SeenPower { joules: sent.power_joules, seconds: sent.power_seconds },
            ..HolderUse::default()
        },
        source: EnergySource::by_name(&sent.source),
        first_ns: sent.first_ns,
        last_ns: sent.last_ns,
    }
}
