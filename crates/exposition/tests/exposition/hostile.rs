//! Whatever comes in, the text keeps the format and holds no series twice.

use std::sync::Arc;

use gpuvitals_core::catalogue::{METRICS, Series, Table};
use gpuvitals_core::figures::{Family, Format, Kind};
use gpuvitals_core::{Identity, IdentityColumn};
use gpuvitals_exposition::{Compat, DeviceStatus};
use proptest::prelude::*;

use crate::fleet::{NOON, S, batch, exposition, host, text, up};
use crate::reader::read;

#[test]
fn hostile_names_are_escaped() {
    let mut evil = Identity::default();
    evil.set(IdentityColumn::Uuid, "GPU-1").unwrap();
    let model = "A\"} 1 \\ {x=\"y\" Ünïcode # TYPE";
    evil.set(IdentityColumn::Model, model).unwrap();
    let mut exposition = exposition(Series::Standard, Compat::Both);
    let evil = Arc::new(evil);
    exposition.observe(&batch(&evil, &[(NOON, &[("power_w", 1.0)])]));
    let own =
        Family::new("gpuvitals_x", Kind::Gauge, "Back\\slash and\nline.").by("text", [("a\nb\"c\\", 1.0)]);
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = text(&mut exposition, format, NOON, &[up(&evil)], std::slice::from_ref(&own));
        let samples = read(format, text.as_bytes());
        let info = samples.iter().find(|sample| sample.name == "gpu_info").unwrap();
        assert_eq!(info.labels["model"], model);
        assert_eq!(samples.last().unwrap().labels["text"], "a\nb\"c\\");
    }
}

fn identities() -> impl Strategy<Value = Arc<Identity>> {
    let text = "[ -~]{0,12}";
    ("[a-c]{1,2}", proptest::option::of("[a-b:]{1,3}"), text, text, proptest::option::of(0..3_i32)).prop_map(
        |(uuid, partition, model, vendor, index)| {
            let mut identity = Identity::default();
            identity.set(IdentityColumn::Uuid, &uuid).unwrap();
            if let Some(partition) = partition {
                identity.set(IdentityColumn::Partition, &partition).unwrap();
            }
            identity.set(IdentityColumn::Model, &model).unwrap();
            identity.set(IdentityColumn::Vendor, &vendor).unwrap();
            identity.index = index;
            Arc::new(identity)
        },
    )
}

fn statuses() -> impl Strategy<Value = DeviceStatus> {
    (identities(), any::<bool>(), any::<bool>(), any::<i64>()).prop_map(
        |(identity, is_up, stuck, since_ns)| DeviceStatus { up: is_up, stuck, since_ns, ..up(&identity) },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_rows_make_a_text_that_can_be_read(
        rows in proptest::collection::vec(
            (identities(), -40_000_i64..40_000, proptest::collection::vec((0..METRICS.len(), 0.0_f64..1.0), 1..12)),
            0..20,
        ),
        devices in proptest::collection::vec(statuses(), 0..6),
        set in prop_oneof![Just(Series::Basic), Just(Series::Standard), Just(Series::All)],
        compat in prop_oneof![Just(Compat::Off), Just(Compat::Dcgm), Just(Compat::DcgmLegacy), Just(Compat::Both)],
    ) {
        let mut exposition = exposition(set, compat);
        for (identity, at_ms, values) in rows {
            for (table, who) in [(Table::GpuEvents, &identity), (Table::SystemEvents, &host())] {
                let values: Vec<(&str, f64)> = values
                    .iter()
                    .map(|(metric, share)| (&METRICS[*metric], share))
                    .filter(|(metric, _)| metric.table == table)
                    .map(|(metric, share)| {
                        let (low, high) = metric.range;
                        (metric.column, (low + (high - low) * share).clamp(low, high))
                    })
                    .collect();
                if !values.is_empty() {
                    exposition.observe(&batch(who, &[(NOON + at_ms * S / 1_000, &values)]));
                }
            }
        }
        let mut first = None;
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = text(&mut exposition, format, NOON, &devices, &[]);
            let samples = read(format, text.as_bytes());
            prop_assert_eq!(first.get_or_insert_with(|| samples.clone()), &samples, "both formats say the same");
        }
    }
}
