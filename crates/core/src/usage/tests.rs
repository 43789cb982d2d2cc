//! Against sums that are known exactly.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::IdentityColumn;
use crate::energy::EnergySource;
use crate::time::SECOND_NS;

const GPU: &str = "GPU-1";

/// A row: its time in milliseconds, holder, watts, utilisation, throttling and counter.
#[derive(Debug, Clone, Copy)]
struct Row {
    at_ms: i64,
    holder: u32,
    watts: f64,
    utilization: Option<f64>,
    throttled: Throttled,
    counter: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
enum Throttled {
    Untold,
    /// Lasts until the next.
    State(f64),
    /// Of the time before.
    Share(f64),
}

impl Throttled {
    fn told(self) -> Option<f64> {
        match self {
            Self::Untold => None,
            Self::State(share) | Self::Share(share) => Some(share),
        }
    }
}

impl Row {
    fn stay(&self) -> Stay {
        let time_ns = self.at_ms * 1_000_000;
        Stay {
            first_ns: time_ns,
            last_ns: time_ns,
            pace_ns: 0,
            seconds: 0.0,
            busy_s: 0.0,
            idle_s: 0.0,
            utilization_open_s: 0.0,
            throttled_s: 0.0,
            throttled_open_s: 0.0,
            throttled_before: if let Throttled::Share(share) = self.throttled { Some(share) } else { None },
            throttled_after: self.throttled.told(),
            utilization_after: self.utilization,
            power: Some(PowerSpan {
                is_average: false,
                first: (time_ns, self.watts),
                last: (time_ns, self.watts),
                joules: 0.0,
                seconds: 0.0,
                idle_joules: 0.0,
                open_joules: 0.0,
                max_w: self.watts,
            }),
            counter: self.counter.map(|joules| CounterSpan {
                first: (time_ns, joules),
                last: (time_ns, joules),
                fell: false,
            }),
            limit_w: 0.0,
        }
    }
}

fn names() -> (Usage, [u32; 2]) {
    let mut usage = Usage::default();
    let holders = ["a", "b"].map(|job| usage.holder(&[None, None, None, None, Some(Arc::from(job))]));
    (usage, holders)
}

fn by_rows(rows: &[Row]) -> Vec<GpuUse> {
    let (mut usage, holders) = names();
    for row in rows {
        usage.gpu(&Arc::from(GPU)).add(holders[row.holder as usize], row.stay());
    }
    usage.finish()
}

/// The same by rollups of so many milliseconds.
fn by_stays(rows: &[Row], step_ms: i64) -> Vec<GpuUse> {
    let (mut usage, holders) = names();
    let (mut fold, mut stays) = (StayFold::default(), Vec::new());
    let (mut run, mut before, mut of_run) = (0, None, Vec::new());
    for row in rows {
        let key = (row.at_ms.div_euclid(step_ms), row.holder);
        if before.replace(key).is_some_and(|before| before != key) {
            run += 1;
        }
        of_run.resize(run as usize + 1, row.holder);
        fold.push(run, row.stay(), &mut |run, stay| stays.push((run, stay)));
    }
    fold.finish(&mut |run, stay| stays.push((run, stay)));
    for (run, stay) in stays {
        usage.gpu(&Arc::from(GPU)).add(holders[of_run[run as usize] as usize], stay);
    }
    usage.finish()
}

fn of(uses: &[GpuUse], job: &str) -> HolderUse {
    let one = uses.iter().find(|one| one.text(IdentityColumn::Job).is_some_and(|text| text.as_ref() == job));
    one.map_or(HolderUse::default(), |one| one.held)
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0)
}

/// Rows some 15 seconds apart that two holders have in turn, with gaps; and a counter that is reset now and then, or none.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (
        5_000_i64..25_000,
        prop::bool::weighted(0.05),
        0_u32..2,
        50.0..700.0_f64,
        prop_oneof![2 => Just(Some(0.0)), 2 => (1.0..100.0_f64).prop_map(Some), 1 => Just(None)],
        prop_oneof![
            Just(Throttled::Untold),
            (0_u8..2).prop_map(|held| Throttled::State(f64::from(held))),
            (0.0..1.0_f64).prop_map(Throttled::Share),
        ],
    );
    let rows = prop::collection::vec(row, 4..200);
    (rows, any::<bool>(), prop::option::of(3_usize..100)).prop_map(|(rows, counts, reset)| {
        let (mut at_ms, mut counter, mut before) = (1_700_000_000_000, 5_000.0, 0.0);
        let made =
            rows.into_iter().enumerate().map(|(n, (apart, gap, holder, watts, utilization, throttled))| {
                // The usual distance is known when a gap comes, and gaps are apart.
                let distance = apart + if gap && n > 3 && n % 4 == 0 { 600_000 } else { 0 };
                at_ms += distance;
                #[expect(clippy::cast_precision_loss, reason = "some minutes")]
                if n > 0 {
                    counter += f64::midpoint(before, watts) * distance as f64 / 1e3;
                }
                if reset == Some(n) {
                    counter = 0.0;
                }
                before = watts;
                Row { at_ms, holder, watts, utilization, throttled, counter: counts.then_some(counter) }
            });
        made.collect()
    })
}

/// Joules, seconds, idle seconds and joules, busy and throttled seconds of each holder, from the rows alone: without a counter.
fn sums(rows: &[Row]) -> [[f64; 6]; 2] {
    let mut sums = [[0.0; 6]; 2];
    let (mut utilization, mut throttled) = (None, None);
    for pair in rows.windows(2) {
        utilization = pair[0].utilization.or(utilization);
        throttled = pair[0].throttled.told().or(throttled);
        #[expect(clippy::cast_precision_loss, reason = "some minutes")]
        let seconds = (pair[1].at_ms - pair[0].at_ms) as f64 / 1e3;
        if seconds > 100.0 {
            continue;
        }
        let joules = f64::midpoint(pair[0].watts, pair[1].watts) * seconds;
        let is_idle = utilization.is_some_and(|percent| percent < IDLE_BELOW_PCT);
        let share = if let Throttled::Share(share) = pair[1].throttled { Some(share) } else { throttled };
        let more = [
            joules,
            seconds,
            if is_idle { seconds } else { 0.0 },
            if is_idle { joules } else { 0.0 },
            utilization.map_or(0.0, |percent: f64| seconds * percent / 100.0),
            share.map_or(0.0, |share| seconds * share),
        ];
        for (sum, more) in sums[pair[0].holder as usize].iter_mut().zip(more) {
            *sum += more;
        }
    }
    sums
}

proptest! {
    #[test]
    fn energy_and_hours_are_the_exact_sums_of_each_holder(rows in rows(), step_s in prop::sample::select(vec![10_i64, 60, 3_600])) {
        let without: Vec<Row> = rows.iter().map(|row| Row { counter: None, ..*row }).collect();
        let wanted = sums(&without);
        for uses in [by_rows(&without), by_stays(&without, step_s * 1_000)] {
            for (job, wanted) in ["a", "b"].into_iter().zip(wanted) {
                let held = of(&uses, job);
                let found = [held.joules, Some(held.seconds), held.idle_s, held.idle_joules, held.busy_s, held.throttled_s];
                for (found, wanted) in found.into_iter().zip(wanted) {
                    prop_assert!(near(found.unwrap_or(0.0), wanted), "{job} {held:?}, not {wanted}");
                }
            }
        }
    }

    #[test]
    fn a_range_and_the_next_are_the_whole(rows in rows(), cut in 0.0..1.0_f64) {
        let rows: Vec<Row> = rows.iter().map(|row| Row { counter: None, ..*row }).collect();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among the rows")]
        let cut = (rows.len() as f64 * cut) as usize;
        // An end that begins with a gap does not know that it is one.
        prop_assume!(cut + 3 < rows.len() && rows[cut..cut + 4].windows(2).all(|pair| pair[1].at_ms - pair[0].at_ms < 100_000));
        let (before, after, whole) = (by_rows(&rows[..=cut]), by_rows(&rows[cut..]), by_rows(&rows));
        for job in ["a", "b"] {
            let (one, other, all) = (of(&before, job), of(&after, job), of(&whole, job));
            prop_assert!(near(one.seconds + other.seconds, all.seconds), "{one:?} {other:?} {all:?}");
            prop_assert!(near(one.joules.unwrap_or(0.0) + other.joules.unwrap_or(0.0), all.joules.unwrap_or(0.0)), "{one:?} {other:?} {all:?}");
        }
    }

    #[test]
    fn rollups_give_the_energy_of_their_rows_and_holders_that_of_the_gpu(rows in rows(), step_s in prop::sample::select(vec![10_i64, 60])) {
        let (by_row, by_stay) = (by_rows(&rows), by_stays(&rows, step_s * 1_000));
        let sum = |uses: &[GpuUse]| uses.iter().filter_map(|one| one.held.joules).fold(0.0, |sum, joules| sum + joules);
        // The energy of the GPU, whoever holds it.
        let alone: Vec<Row> = rows.iter().map(|row| Row { holder: 0, ..*row }).collect();
        prop_assert!(near(sum(&by_row), sum(&by_rows(&alone))));
        prop_assert!((sum(&by_row) - sum(&by_stay)).abs() <= 0.01 * sum(&by_row) + 1e-9, "{by_row:?} {by_stay:?}");
        for (one, other) in by_row.iter().zip(&by_stay) {
            prop_assert!(near(one.held.seconds, other.held.seconds) && one.held.busy_s.is_some() == other.held.busy_s.is_some());
            prop_assert!(near(one.held.busy_s.unwrap_or(0.0), other.held.busy_s.unwrap_or(0.0)), "{one:?} {other:?}");
        }
    }
}

/// 100 W at these times, in seconds.
fn constant(times: impl IntoIterator<Item = i64>) -> Vec<GpuUse> {
    let row = |at_s: i64| Row {
        at_ms: at_s * 1_000,
        holder: 0,
        watts: 100.0,
        utilization: Some(0.0),
        throttled: Throttled::Untold,
        counter: None,
    };
    by_rows(&times.into_iter().map(row).collect::<Vec<_>>())
}

#[test]
fn constant_power_is_its_energy_however_the_rows_lie() {
    let hour = || (0..=3_600).step_by(15);
    let irregular = {
        let mut times: Vec<i64> = hour().chain([7, 1_801, 3_599]).chain(1_200..1_260).collect();
        times.sort_unstable();
        times.dedup();
        times
    };
    for times in [hour().collect(), irregular, (0..=3_600).step_by(60).collect(), (0..=3_600).collect()] {
        let held = of(&constant(times), "a");
        assert!(near(held.joules.unwrap(), 360_000.0) && near(held.seconds, 3_600.0), "{held:?}");
        assert!(near(held.idle_s.unwrap(), 3_600.0) && near(held.idle_joules.unwrap(), 360_000.0));
    }
}

#[test]
fn one_row_is_no_duration() {
    let uses = constant([0]);
    assert_eq!((uses.len(), uses[0].held, uses[0].source), (1, HolderUse::default(), None));
    assert_eq!(uses[0].first_ns, uses[0].last_ns);
}

#[test]
fn an_outage_at_the_beginning_is_a_gap() {
    let held = of(&constant([0, 1_000, 1_001, 1_002, 1_003]), "a");
    assert!(near(held.seconds, 3.0), "{held:?}");
    let held = of(&constant([0, 1_800, 3_600]), "a");
    assert!(near(held.seconds, 3_600.0), "{held:?}");
}

#[test]
fn a_counter_that_agrees_is_the_energy_from_its_first_reading_on() {
    let rows: Vec<Row> = (0..600_i64)
        .map(|n| {
            let energy = 105.0 * f64::from(i32::try_from(n).unwrap());
            Row {
                at_ms: n * 1_000,
                holder: u32::from(n >= 300),
                watts: 100.0,
                utilization: Some(50.0),
                throttled: Throttled::Untold,
                counter: Some(energy),
            }
        })
        .collect();
    for uses in [by_rows(&rows), by_stays(&rows, 60_000)] {
        assert_eq!(uses[0].source, Some(EnergySource::Counter));
        let (a, b) = (of(&uses, "a"), of(&uses, "b"));
        assert!(near(a.joules.unwrap() + b.joules.unwrap(), 105.0 * 599.0), "{uses:?}");
        assert!((a.joules.unwrap() - 105.0 * 300.0).abs() < 1.0 && near(a.busy_s.unwrap(), 150.0), "{a:?}");
        assert_eq!(uses[0].last_ns, 599 * SECOND_NS);
    }
}
