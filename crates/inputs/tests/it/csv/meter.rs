//! Logs of nvidia-smi that were written beside a power meter: a row every few milliseconds, local times, no column for the GPU.

use std::path::Path;

use gpuvitals_core::time::Zone;
use gpuvitals_inputs::csv::{CsvSource, Hints};

use super::logs::{hinted, read_with};
use super::reading::NOW;

#[test]
fn each_log_beside_the_meter_is_of_one_gpu_in_watts_at_the_zones_times() {
    // Clocks in London were an hour ahead of UTC.
    for (name, first, last) in [
        (
            "5050_3090",
            "2023-07-08T18:28:27.236Z 5050_3090:gpu0 performance_state=0 power_average_w=126.96 power_w=126.8 \
             sm_clock_mhz=1800 temperature_c=54 utilization_pct=0",
            "2023-07-08T18:28:27.445Z",
        ),
        (
            "4090_TR",
            "2023-07-20T13:16:34.315Z 4090_TR:gpu0 performance_state=0 power_w=50.81 sm_clock_mhz=2520 \
             temperature_c=40 utilization_pct=0",
            "2023-07-20T13:16:34.538Z",
        ),
        (
            "K40m_TR",
            "2023-07-13T17:15:32.351Z K40m_TR:gpu0 performance_state=0 power_w=60.16 sm_clock_mhz=745 \
             temperature_c=34 utilization_pct=0",
            "2023-07-13T17:15:32.577Z",
        ),
        (
            "update_A100",
            "2023-07-30T16:28:02.589Z update_A100:gpu0 performance_state=0 power_w=78.66 sm_clock_mhz=1410 \
             temperature_c=53 utilization_pct=0",
            "2023-07-30T16:28:03.048Z",
        ),
    ] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/logs/meter/{name}.csv"));
        let zone = Zone::named("Europe/London").unwrap();
        let config = hinted(Hints { timezone: Some(zone), ..Hints::default() });
        let units = |column: &str| {
            let source = CsvSource::open(path.clone(), config.clone(), NOW).unwrap();
            let found =
                source.description().columns.into_iter().find(|it| it.column.as_deref() == Some(column));
            found.and_then(|column| Some((column.unit?, column.factor?)))
        };
        assert_eq!(units("power_w"), Some(("W", 1.0)), "{name}");
        let (rows, skipped) = read_with(path.clone(), config.clone());
        assert_eq!((rows.len(), skipped), (30, 0), "{name}");
        assert_eq!(rows[0], format!("{first} gpu=0 node={name}"));
        assert!(rows[29].starts_with(last), "{name}: {}", rows[29]);
    }
}
