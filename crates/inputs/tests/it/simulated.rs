//! The simulated fleet is believable, deterministic and labelled.
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::{Value, numbers, text_at};
use gpuvitals_core::catalogue;
use gpuvitals_core::history::ExtraValue;
use gpuvitals_core::identity::{IdentityColumn, SIMULATED};
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, Identity, Table};
use gpuvitals_inputs::simulated::{BATCH_ROWS_MAX, SimConfig, SimError, SimPace, Simulated};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;

fn config(gpus: usize, seed: u64, interval_s: u64, ticks: i64) -> SimConfig {
    SimConfig {
        gpus,
        seed,
        interval: Duration::from_secs(interval_s),
        pace: SimPace::Unpaced { end_ns: (ticks - 1) * i64::try_from(interval_s).unwrap() * SECOND },
        ..SimConfig::default()
    }
}

fn each(source: &mut Simulated, mut see: impl FnMut(Batch)) {
    while let Poll::Ready(batch) = source.poll(0).unwrap() {
        see(batch);
    }
}

type Values = BTreeMap<&'static str, f64>;

/// One row with its place and time.
#[derive(Debug, Clone, PartialEq)]
struct SimulatedRow {
    at: i64,
    identity: Identity,
    values: Values,
}

fn rows(batch: &Batch) -> Vec<SimulatedRow> {
    (0..batch.rows())
        .map(|row| SimulatedRow {
            at: batch.timestamps()[row],
            identity: batch.identity(row),
            values: batch
                .metrics()
                .filter_map(|(id, column)| Some((id.metric().column, column.value(row)?.as_f64())))
                .collect(),
        })
        .collect()
}

fn all_rows(config: SimConfig) -> Vec<SimulatedRow> {
    let mut source = Simulated::new(config).unwrap();
    let mut out = Vec::new();
    each(&mut source, |batch| out.extend(rows(&batch)));
    out
}

#[test]
fn ticks_lie_on_whole_milliseconds() {
    let start_ns = 1_795_176_000_700_068_843;
    let pace = SimPace::Unpaced { end_ns: start_ns + SECOND };
    let rows = all_rows(SimConfig { start_ns, pace, ..config(1, 1, 1, 1) });
    assert!(!rows.is_empty() && rows.iter().all(|row| row.at % 1_000_000 == 0));
}

/// Series of one column of one GPU: times and values.
fn series(rows: &[SimulatedRow], key: &str, column: &str) -> Vec<(i64, f64)> {
    let own = rows.iter().filter(|row| row.identity.uuid() == Some(key));
    own.filter_map(|row| Some((row.at, *row.values.get(column)?))).collect()
}

fn mean(series: &[(i64, f64)]) -> f64 {
    series.iter().map(|(_, v)| v).sum::<f64>() / f64::from(u32::try_from(series.len()).unwrap())
}

/// Key of a GPU of the first host, where the special cases are.
fn first_host(config: SimConfig, index: i32) -> Arc<str> {
    let rows = all_rows(SimConfig { pace: SimPace::Unpaced { end_ns: 0 }, ..config });
    let is_it = |row: &&SimulatedRow| {
        row.identity.node() == Some("sim-node-0001") && row.identity.index == Some(index)
    };
    rows.iter().find(is_it).unwrap().identity.key().unwrap()
}

const STRAGGLER: i32 = 1;
const IDLE: i32 = 3;
const THROTTLING: i32 = 4;
const VANISHING: i32 = 5;
const FAILING_MEMORY: i32 = 6;

#[test]
fn a_day_of_64_gpus_stays_in_every_range_and_is_labelled() {
    let mut source = Simulated::new(config(64, 3, 10, 8640)).unwrap();
    assert_eq!((source.gpus(), source.hosts()), (64, 8));
    let (mut seen, mut columns) = (0, BTreeMap::new());
    each(&mut source, |batch| {
        seen += batch.rows();
        assert!(batch.rows() <= BATCH_ROWS_MAX);
        assert!(batch.absences().is_empty(), "{:?}", batch.absences());
        let sources = batch.identity_column(IdentityColumn::Source).unwrap();
        assert_eq!(sources.keys().iter().flatten().count(), batch.rows());
        for row in [0, batch.rows() - 1] {
            assert!(batch.identity(row).is_simulated());
        }
        for (id, _) in batch.metrics() {
            *columns.entry(id.metric().column).or_insert(0) += 1;
        }
    });
    assert_eq!(seen, 64 * 8640 - (8640 - 30), "all but the vanished GPU's");
    let names = Simulated::metrics().map(|id| id.metric().column);
    let unused: Vec<_> = names.filter(|name| !columns.contains_key(name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn names_say_that_they_are_made_up() {
    for row in all_rows(config(64, 5, 1, 1)) {
        let get = |column| row.identity.get(column).unwrap_or_default();
        assert_eq!(get(IdentityColumn::Source), SIMULATED);
        assert!(get(IdentityColumn::Uuid).trim_start_matches("GPU-").starts_with("51300000"));
        assert!(get(IdentityColumn::Node).starts_with("sim-node-000"));
        assert_eq!(get(IdentityColumn::Pod).is_empty(), get(IdentityColumn::Job).is_empty());
        let held = row.values["process_count"] > 0.0;
        assert_eq!(held, !get(IdentityColumn::Namespace).is_empty());
    }
}

fn live(gpus: usize, seed: u64) -> Simulated {
    Simulated::new(SimConfig { gpus, seed, ..SimConfig::default() }).unwrap()
}

fn poll_all(source: &mut Simulated, now: i64, out: &mut Vec<SimulatedRow>) -> i64 {
    loop {
        match source.poll(now).unwrap() {
            Poll::Ready(batch) => out.extend(rows(&batch)),
            Poll::NotBefore(at) => return at,
            Poll::End => panic!("a live fleet does not end"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn when_it_is_polled_changes_no_row(seed in any::<u64>(), gaps in prop::collection::vec(0_i64..4_000_000_000, 1..60)) {
        let reference: HashMap<(i64, String), SimulatedRow> = all_rows(config(10, seed, 1, 250))
            .into_iter()
            .map(|row| ((row.at, row.identity.uuid().unwrap().to_owned()), row))
            .collect();
        let mut source = live(10, seed);
        let (mut now, mut out) = (0, Vec::new());
        for gap in gaps {
            now += gap;
            let next = poll_all(&mut source, now, &mut out);
            prop_assert!(next > now && next <= now + SECOND);
        }
        let mut ticks: Vec<i64> = out.iter().map(|row| row.at / SECOND).collect();
        ticks.dedup();
        prop_assert_eq!(ticks.len() as u64 + source.skipped_ticks(), u64::try_from(now / SECOND).unwrap() + 1);
        let (mut before_ns, mut is_rare_due) = (-1, true);
        for row in out {
            let key = (row.at, row.identity.uuid().unwrap().to_owned());
            let wanted = &reference[&key];
            prop_assert_eq!(&row.identity, &wanted.identity);
            for (column, value) in &wanted.values {
                prop_assert_eq!(row.values.get(column), Some(value), "{}", column);
            }
            // The rare columns of a tick that was skipped come with the next row.
            let rare = |at: i64| at.div_euclid(30 * SECOND);
            let is_first_tick = row.at != before_ns;
            if is_first_tick {
                is_rare_due = before_ns < 0 || rare(row.at) != rare(before_ns);
                before_ns = row.at;
            }
            prop_assert_eq!(row.values.contains_key("power_limit_default_w"), is_rare_due, "at {}", row.at);
        }
    }
}

#[test]
fn the_size_of_the_fleet_changes_no_gpu() {
    let small = all_rows(config(5, 11, 1, 60));
    let large = all_rows(config(200, 11, 1, 60));
    let first: Vec<SimulatedRow> = large
        .into_iter()
        .filter(|r| r.identity.node() == Some("sim-node-0001") && r.identity.index < Some(5))
        .collect();
    assert_eq!(small, first);
    let other = all_rows(config(5, 12, 1, 60));
    assert_ne!(small[0].identity.uuid(), other[0].identity.uuid());
    assert_ne!(small[0].values, other[0].values);
}

#[test]
fn large_fleets_come_in_batches_of_500_once_per_tick() {
    let mut source = live(1001, 1);
    let mut sizes = Vec::new();
    let answer = loop {
        match source.poll(0).unwrap() {
            Poll::Ready(batch) => sizes.push((batch.rows(), batch.sequence())),
            other => break other,
        }
    };
    assert_eq!(sizes, [(500, 1), (500, 2), (1, 3)]);
    assert!(matches!(answer, Poll::NotBefore(SECOND)));
}

#[test]
fn a_long_sleep_is_slept_through_by_the_fleet() {
    let mut source = live(8, 1);
    let mut out = Vec::new();
    poll_all(&mut source, 0, &mut out);
    let year = 365 * 86_400 * SECOND + 7;
    assert_eq!(poll_all(&mut source, year, &mut out), year - 7 + SECOND);
    assert_eq!(out.len(), 16);
    assert_eq!(source.rows(), 16);
    assert_eq!(source.skipped_ticks(), 365 * 86_400 - 1);
    // And a clock that goes back waits for its time.
    assert_eq!(poll_all(&mut source, 0, &mut out), year - 7 + SECOND);
    assert_eq!(out.len(), 16);
}

#[test]
fn energy_is_the_integral_of_power() {
    let rows = all_rows(config(64, 2, 2, 400));
    let mut checked = 0;
    let keys: Vec<&str> = rows.iter().take(64).map(|row| row.identity.uuid().unwrap()).collect();
    for key in keys {
        let (power, energy) = (series(&rows, key, "power_w"), series(&rows, key, "energy_mj"));
        assert_eq!(power.len(), energy.len());
        let (first, last) = (energy.first().unwrap(), energy.last().unwrap());
        let integral: f64 = power[1..].iter().map(|(_, watts)| watts * 2.0).sum();
        let counted = (last.1 - first.1) / 1e3;
        assert!((integral - counted).abs() < 0.05 + 1e-6 * integral, "{key}: {integral} {counted}");
        checked += 1;
    }
    assert_eq!(checked, 64);
}

#[test]
fn memory_adds_up() {
    let mut reserved_seen = false;
    for row in all_rows(config(64, 4, 5, 300)) {
        let get = |name: &str| row.values.get(name).copied();
        let reserved = get("memory_reserved_mb");
        assert_eq!(reserved.is_some(), row.identity.get(IdentityColumn::Vendor) == Some("nvidia"));
        reserved_seen |= reserved.is_some();
        let sum = get("memory_used_mb").unwrap() + get("memory_free_mb").unwrap() + reserved.unwrap_or(0.0);
        assert!((sum - get("memory_total_mb").unwrap()).abs() < 0.5, "{row:?}");
        assert!(get("memory_free_mb").unwrap() >= 0.0);
    }
    assert!(reserved_seen);
}

#[test]
fn temperature_follows_power_later() {
    let mut source = Simulated::new(config(64, 1, 1, 1800)).unwrap();
    let mut tracks: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    each(&mut source, |batch| {
        let of = |column: &str| batch.metric(catalogue::by_column(column).unwrap()).unwrap();
        let (power, heat) = (of("power_w"), of("temperature_c"));
        let uuids = batch.identity_column(IdentityColumn::Uuid).unwrap();
        for row in 0..batch.rows() {
            let Some(watts) = power.value(row) else { continue };
            let track = tracks.entry(text_at(uuids, row).unwrap().to_owned()).or_default();
            track.0.push(watts.as_f64());
            track.1.push(heat.value(row).unwrap().as_f64());
        }
    });
    let mean = |values: &[f64]| values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap());
    let mut starts = 0;
    for (key, (power, heat)) in tracks {
        // Half a minute of calm, then load for more than a minute.
        for at in 30..power.len().saturating_sub(70) {
            if power[at] < 2.0 * power[at - 1] {
                continue;
            }
            let (before, after) = (mean(&power[at - 30..at]), mean(&power[at..at + 70]));
            let calm = power[at - 30..at].iter().all(|watts| *watts < 1.3 * before);
            if !calm || after < 3.0 * before {
                continue;
            }
            let risen = |seconds: usize| heat[at + seconds] - heat[at - 1];
            assert!(
                risen(60) > 5.0 && risen(1) < 0.35 * risen(60),
                "{key} at {at}: {} {}",
                risen(1),
                risen(60)
            );
            starts += 1;
        }
    }
    assert!(starts >= 5, "{starts}");
}

#[test]
fn the_straggler_is_slower_and_its_fellows_wait() {
    let sim = config(8, 6, 1, 1200);
    let key = &*first_host(sim, STRAGGLER);
    let rows = all_rows(sim);
    let job = rows.iter().find(|r| r.identity.uuid() == Some(key)).unwrap().identity.clone();
    let job = job.get(IdentityColumn::Job).unwrap();
    let members: Vec<&str> = rows[..8]
        .iter()
        .filter(|row| row.identity.get(IdentityColumn::Job) == Some(job))
        .map(|row| row.identity.uuid().unwrap())
        .collect();
    assert_eq!(members.len(), 3);
    for member in members.into_iter().filter(|member| *member != key) {
        let of = |key: &str, column: &str| mean(&series(&rows, key, column));
        assert!(of(key, "gpu_clock_mhz") < 0.85 * of(member, "gpu_clock_mhz"));
        assert!(of(key, "tensor_active_ratio") > 1.1 * of(member, "tensor_active_ratio"));
        assert!((of(key, "utilization_pct") - of(member, "utilization_pct")).abs() < 5.0);
    }
    assert!(series(&rows, key, "throttle_reasons").iter().all(|(_, bits)| *bits as i64 & 2 != 0));
}

#[test]
fn the_idle_gpu_is_full_and_does_nothing() {
    let sim = config(8, 6, 1, 300);
    let key = &*first_host(sim, IDLE);
    let rows = all_rows(sim);
    assert!(series(&rows, key, "utilization_pct").iter().all(|(_, v)| *v == 0.0));
    assert!(series(&rows, key, "memory_used_pct").iter().all(|(_, v)| *v > 75.0));
    assert!(series(&rows, key, "gpu_clock_mhz").iter().all(|(_, v)| (*v - 1980.0).abs() < 1.0));
    assert!((90.0..140.0).contains(&mean(&series(&rows, key, "power_w"))));
    assert!(
        rows.iter().all(|r| r.identity.uuid() != Some(key) || r.identity.get(IdentityColumn::Pod).is_some())
    );
}

#[test]
fn the_throttling_gpu_is_hot_and_slow() {
    for interval in [1, 10] {
        let sim = config(8, 6, interval, 900);
        let key = &*first_host(sim, THROTTLING);
        let rows = all_rows(sim);
        let bits = series(&rows, key, "throttle_reasons");
        let hot = bits.iter().filter(|(_, bits)| *bits as i64 & 0x20 != 0).count();
        assert!(hot * 2 > bits.len(), "{hot} of {}", bits.len());
        let time = series(&rows, key, "throttled_thermal_ns");
        let gained = time.last().unwrap().1 - time[0].1;
        assert!(gained > 400e9, "{gained}");
        let peak = series(&rows, key, "temperature_c").iter().map(|(_, v)| *v).fold(0.0, f64::max);
        assert!((83.0..93.0).contains(&peak), "{peak}");
        assert!(mean(&series(&rows, key, "gpu_clock_mhz")) < 1950.0);
        let others = rows.iter().filter(|row| row.identity.uuid() != Some(key));
        assert!(others.clone().all(|row| row.values["temperature_c"] < 84.0));
        for (_, sound) in others.map(|row| (row.at, row.values["throttle_reasons"] as i64 & 0x60)) {
            assert_eq!(sound, 0);
        }
    }
}

#[test]
fn the_vanishing_gpu_goes_for_good() {
    let sim = config(8, 6, 1, 900);
    let key = &*first_host(sim, VANISHING);
    let rows = all_rows(sim);
    let times: Vec<i64> = series(&rows, key, "power_w").iter().map(|(at, _)| at / SECOND).collect();
    assert_eq!(times, (0..300).collect::<Vec<_>>());
    assert_eq!(rows.len(), 8 * 900 - 600);
}

#[test]
fn corrected_errors_come_ever_more_often() {
    let sim = config(8, 6, 1, 3600);
    let key = &*first_host(sim, FAILING_MEMORY);
    let rows = all_rows(sim);
    let errors = series(&rows, key, "ecc_corrected_volatile");
    let (first, half, last) = (errors[0].1, errors[errors.len() / 2].1, errors.last().unwrap().1);
    assert!(half > first && last - half > 1.5 * (half - first), "{first} {half} {last}");
    assert!(series(&rows, key, "xid_last").iter().all(|(_, xid)| *xid as i64 == 63));
    assert!(series(&rows, key, "remapped_rows_pending").iter().all(|(_, pending)| *pending as i64 == 1));
    for row in rows.iter().filter(|row| row.identity.uuid() != Some(key)) {
        assert!(row.values.get("ecc_corrected_volatile").is_none_or(|count| *count < 2.0));
        assert!(row.values.get("xid_last").is_none_or(|xid| *xid as i64 == 0));
    }
}

#[test]
fn each_model_has_its_own_columns() {
    let rows = all_rows(config(64, 9, 1, 1));
    let of = |model: &str| -> Vec<&SimulatedRow> {
        rows.iter().filter(|row| row.identity.get(IdentityColumn::Model) == Some(model)).collect()
    };
    let has = |model: &str, column: &str| {
        let found: Vec<bool> = of(model).iter().map(|row| row.values.contains_key(column)).collect();
        assert!(!found.is_empty(), "no {model}");
        (found.iter().any(|x| *x), found.iter().all(|x| *x))
    };
    let (all, none) = ((true, true), (false, false));
    for (model, column, expected) in [
        ("NVIDIA H100 80GB HBM3", "sm_active_ratio", all),
        ("NVIDIA H100 80GB HBM3", "temperature_junction_c", none),
        ("NVIDIA H100 80GB HBM3", "ras_corrected", none),
        ("NVIDIA H100 80GB HBM3", "fan_speed_pct", none),
        ("NVIDIA A100-SXM4-80GB", "interconnect_tx_bytes", all),
        ("NVIDIA RTX 6000 Ada Generation", "fan_speed_pct", all),
        ("NVIDIA RTX 6000 Ada Generation", "interconnect_tx_bytes", none),
        ("NVIDIA RTX 6000 Ada Generation", "temperature_memory_c", none),
        ("AMD Instinct MI300X", "temperature_edge_c", none),
        ("AMD Instinct MI300X", "throttle_ppt_count", all),
        ("AMD Instinct MI300X", "sm_active_ratio", none),
        ("AMD Instinct MI300X", "ecc_corrected_volatile", none),
        ("AMD Instinct MI300X", "power_w", all),
    ] {
        assert_eq!(has(model, column), expected, "{model} {column}");
    }
}

#[test]
fn the_fleet_looks_like_a_fleet() {
    let rows = all_rows(config(248, 1, 120, 90));
    let share = |test: &dyn Fn(&Values) -> bool| {
        let count = rows.iter().filter(|row| test(&row.values)).count();
        f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(rows.len()).unwrap())
    };
    let idle = share(&|v| v["utilization_pct"] == 0.0);
    let full = share(&|v| v["utilization_pct"] >= 95.0);
    let parked = share(&|v| v["utilization_pct"] == 0.0 && v["memory_used_pct"] > 70.0);
    assert!((0.3..0.7).contains(&idle), "idle {idle}");
    assert!((0.1..0.5).contains(&full), "full {full}");
    assert!((0.001..0.2).contains(&parked), "parked {parked}");
}

#[test]
fn impossible_fleets_are_refused() {
    let build = |gpus, hosts, interval| {
        Simulated::new(SimConfig { gpus, hosts, interval, ..SimConfig::default() }).map(|s| s.hosts())
    };
    let second = Duration::from_secs(1);
    assert_eq!(build(0, None, second), Err(SimError::Gpus(0)));
    assert_eq!(build(4, Some(5), second), Err(SimError::Hosts { gpus: 4, hosts: 5 }));
    assert_eq!(build(100, Some(2), second), Err(SimError::Hosts { gpus: 100, hosts: 2 }));
    assert_eq!(build(8, None, Duration::ZERO), Err(SimError::Interval(Duration::ZERO)));
    assert_eq!(build(247, Some(31), second), Ok(31));
    assert_eq!(build(9, None, second), Ok(2));
}

#[test]
fn values_have_the_resolution_of_their_sensors() {
    let mut source = Simulated::new(config(16, 1, 1, 3)).unwrap();
    each(&mut source, |batch| {
        let power = batch.metric(catalogue::by_column("power_w").unwrap()).unwrap();
        for row in 0..batch.rows() {
            let Some(Value::Float32(watts)) = power.value(row) else { continue };
            let milliwatts = f64::from(watts) * 1000.0;
            assert!((milliwatts - milliwatts.round()).abs() < 0.05, "{watts}");
            if batch.identity(row).get(IdentityColumn::Vendor) == Some("amd") {
                assert!((watts - watts.round()).abs() < 1e-6, "{watts}");
            }
        }
    });
}

/// Seconds since the start, the PCI address of a GPU, what it is linked to, and by how many links.
type LinkEnd = (i64, String, String, f64);

/// The ends of a host's links, and the PCI addresses of its GPUs.
fn links(gpus: usize, host: &str, end_s: i64) -> (BTreeSet<String>, Vec<LinkEnd>) {
    let pace = SimPace::Unpaced { end_ns: end_s * SECOND };
    let mut source = Simulated::new(SimConfig { links: true, pace, ..config(gpus, 1, 60, 1) }).unwrap();
    let (mut addresses, mut ends) = (BTreeSet::new(), Vec::new());
    each(&mut source, |batch| {
        assert!(batch.rows() <= BATCH_ROWS_MAX);
        let column = |name| batch.records().column_by_name(name);
        for row in 0..batch.rows() {
            let identity = batch.identity(row);
            assert!(identity.is_simulated());
            if identity.node() != Some(host) {
                continue;
            }
            let address = identity.get(IdentityColumn::Pci).unwrap().to_owned();
            if batch.table() == Table::GpuEvents {
                addresses.insert(address);
                continue;
            }
            let text = |name| match ExtraValue::of(column(name).unwrap(), row) {
                Some(ExtraValue::Text(text)) => text.to_string(),
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(text("metric"), "interconnect_links");
            let links = column("value").and_then(numbers).unwrap().value(row).unwrap().as_f64();
            ends.push((batch.timestamps()[row] / SECOND, address, text("instance"), links));
        }
    });
    (addresses, ends)
}

#[test]
fn nvlinks_lead_to_a_switch_and_xgmi_links_to_every_other_gpu_of_the_board() {
    let (gpus, ends) = links(16, "sim-node-0001", 0);
    let expected = gpus.iter().map(|gpu| (0, gpu.clone(), "switch".to_owned(), 18.0));
    assert_eq!((gpus.len(), ends), (8, expected.collect()));

    let (gpus, ends) = links(16, "sim-node-0002", 0);
    let pairs = gpus.iter().flat_map(|gpu| gpus.iter().map(move |other| (gpu, other)));
    let expected = pairs.filter(|(gpu, other)| gpu != other);
    let expected: Vec<_> = expected.map(|(gpu, other)| (0, gpu.clone(), other.clone(), 1.0)).collect();
    assert_eq!((gpus.len(), ends.len(), ends), (8, 56, expected));

    let (gpus, ends) = links(64, "sim-node-0008", 0);
    assert_eq!((gpus.len(), ends), (8, Vec::new()), "a workstation card has no links");
    let (gpus, ends) = links(1024, "sim-node-0126", 0);
    assert_eq!((gpus.len(), ends.len()), (8, 56), "also where the ends are more than a batch holds");
}

#[test]
fn links_are_told_every_ten_minutes_and_only_to_gpus_that_are_there() {
    let (gpus, ends) = links(11, "sim-node-0002", 1260);
    assert_eq!(gpus.len(), 3);
    assert!(ends.iter().all(|(_, _, end, _)| gpus.contains(end)), "{ends:?}");
    let times: Vec<i64> = ends.iter().map(|(at, ..)| *at).collect();
    assert_eq!(times, [[0; 6], [600; 6], [1200; 6]].concat());
    let (_, ends) = links(8, "sim-node-0001", 600);
    assert_eq!(ends.iter().filter(|(at, ..)| *at == 600).count(), 7, "one has vanished");
}
