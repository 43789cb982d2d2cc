//! Against sums that are known exactly.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::IdentityColumn;
use crate::energy::EnergySource;
use crate::throttle::ByLimit;
use crate::time::SECOND_NS;

mod counted;

const GPU: &str = "GPU-1";

/// A row: its time in milliseconds, holder, watts, utilisation, throttling and counter.
#[derive(Debug, Clone, Copy)]
struct UseRow {
    at_ms: i64,
    holder: u32,
    watts: Option<f64>,
    is_average: bool,
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

impl UseRow {
    /// 100 W without work.
    fn at(at_s: i64) -> Self {
        let (watts, utilization) = (Some(100.0), Some(0.0));
        Self {
            at_ms: at_s * 1_000,
            holder: 0,
            watts,
            is_average: false,
            utilization,
            throttled: Throttled::Untold,
            counter: None,
        }
    }

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
            throttled_told_ns: time_ns,
            throttled_by: ByLimit::default(),
            utilization_after: self.utilization,
            utilization_told_ns: time_ns,
            power: self.watts.map(|watts| PowerSpan {
                is_average: self.is_average,
                first: (time_ns, watts),
                last: (time_ns, watts),
                joules: 0.0,
                seconds: 0.0,
                idle_joules: 0.0,
                open_joules: 0.0,
                max_w: watts,
            }),
            counter: self.counter.map(|joules| CounterSpan::reading(time_ns, joules)),
            limit_w: 0.0,
        }
    }
}

fn names(width_ns: Option<i64>) -> (Usage, [u32; 2]) {
    let mut usage = Usage::of(&UseQuery { step_ns: width_ns, ..UseQuery::of(0, 0) });
    let holders =
        ["a", "b"].map(|job| usage.holder(&[None, None, None, None, Some(Arc::from(job)), None, None]));
    (usage, holders)
}

fn by_rows(rows: &[UseRow]) -> Vec<GpuUse> {
    by_rows_and_steps(rows, None)
}

fn by_rows_and_steps(rows: &[UseRow], width_ns: Option<i64>) -> Vec<GpuUse> {
    let (mut usage, holders) = names(width_ns);
    for row in rows {
        usage.add(&Arc::from(GPU), holders[row.holder as usize], row.stay());
    }
    usage.finish()
}

/// The same by rollups of so many milliseconds.
fn by_stays(rows: &[UseRow], step_ms: i64) -> Vec<GpuUse> {
    by_stays_and_steps(rows, step_ms, None)
}

fn by_stays_and_steps(rows: &[UseRow], step_ms: i64, width_ns: Option<i64>) -> Vec<GpuUse> {
    let (mut usage, holders) = names(width_ns);
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
        usage.add(&Arc::from(GPU), holders[of_run[run as usize] as usize], stay);
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
fn rows() -> impl Strategy<Value = Vec<UseRow>> {
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
        let (mut is_told, mut is_throttling_told) = (false, false);
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
                // What is told lasts until the next, at most the gap: so it is told again, and behind a gap at once.
                let has_gap = gap && n > 3 && n % 4 == 0;
                let tells = |is_told: bool| !has_gap && (n < 3 || is_told);
                let utilization = if tells(is_told) { utilization } else { utilization.or(Some(0.0)) };
                let throttled = match throttled {
                    Throttled::Untold if !tells(is_throttling_told) => Throttled::State(0.0),
                    throttled => throttled,
                };
                (is_told, is_throttling_told) = (utilization.is_some(), throttled.told().is_some());
                let (watts, counter) = (Some(watts), counts.then_some(counter));
                UseRow { at_ms, holder, watts, is_average: false, utilization, throttled, counter }
            });
        made.collect()
    })
}

/// Joules, seconds, idle seconds and joules, busy and throttled seconds of each holder, from the rows alone: without a counter.
fn sums(rows: &[UseRow]) -> [[f64; 6]; 2] {
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
        let joules = f64::midpoint(pair[0].watts.unwrap(), pair[1].watts.unwrap()) * seconds;
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
        let without: Vec<UseRow> = rows.iter().map(|row| UseRow { counter: None, ..*row }).collect();
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
    fn steps_add_up_to_the_whole_and_rollups_have_those_of_their_rows(rows in rows(), rolled_s in prop::sample::select(vec![10_i64, 60]), step_s in prop::sample::select(vec![60_i64, 120, 3_600])) {
        let width_ns = step_s * 1_000_000_000;
        let (whole, by_row) = (by_rows(&rows), by_rows_and_steps(&rows, Some(width_ns)));
        for job in ["a", "b"] {
            let mut sum = HolderUse::default();
            for one in by_row.iter().filter(|one| one.text(IdentityColumn::Job).is_some_and(|text| text.as_ref() == job)) {
                sum.and(&one.held);
            }
            let all = of(&whole, job);
            let figures = |held: HolderUse| [Some(held.seconds), held.busy_s, held.idle_s, held.throttled_s, held.joules, held.idle_joules, Some(held.power.joules), Some(held.power.seconds)];
            for (found, wanted) in figures(sum).into_iter().zip(figures(all)) {
                prop_assert!(near(found.unwrap_or(0.0), wanted.unwrap_or(0.0)), "{sum:?}, not {all:?}");
            }
        }
        let by_stay = by_stays_and_steps(&rows, rolled_s * 1_000, Some(width_ns));
        prop_assert_eq!(by_row.len(), by_stay.len());
        for (one, other) in by_row.iter().zip(&by_stay) {
            prop_assert_eq!((&one.holder, one.step_ns), (&other.holder, other.step_ns));
            prop_assert!(near(one.held.seconds, other.held.seconds) && near(one.held.power.joules, other.held.power.joules), "{one:?} {other:?}");
        }
        // A step has the power of its rows, though a counter goes on over a gap.
        let most = rows.iter().filter_map(|row| row.watts).fold(0.0, f64::max);
        for power in by_row.iter().map(|one| one.held.power).filter(|power| power.seconds > 0.0) {
            prop_assert!(power.joules <= (most + 1e-6) * power.seconds, "{power:?} beside {most} W");
        }
    }

    #[test]
    fn a_range_and_the_next_are_the_whole(rows in rows(), cut in 0.0..1.0_f64) {
        let rows: Vec<UseRow> = rows.iter().map(|row| UseRow { counter: None, ..*row }).collect();
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
        let alone: Vec<UseRow> = rows.iter().map(|row| UseRow { holder: 0, ..*row }).collect();
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
    by_rows(&times.into_iter().map(UseRow::at).collect::<Vec<_>>())
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
fn pairs_of_rows_with_a_pause_between_lose_nothing() {
    for (apart_s, offset_s) in [(60, 1), (60, 3), (60, 9), (60, 12), (30, 2), (600, 5)] {
        let rows: Vec<UseRow> =
            (0..120).flat_map(|n| [n * apart_s, n * apart_s + offset_s]).map(UseRow::at).collect();
        let seconds = f64::from(i32::try_from(119 * apart_s + offset_s).unwrap());
        for uses in [by_rows(&rows), by_stays(&rows, 600_000)] {
            let held = of(&uses, "a");
            assert!(
                near(held.seconds, seconds) && near(held.joules.unwrap(), 100.0 * seconds),
                "{apart_s} {offset_s}: {held:?}"
            );
            assert!(near(held.idle_s.unwrap(), seconds), "{apart_s} {offset_s}: {held:?}");
        }
    }
    let held = of(
        &constant((0..=60).map(|n| n * 60).chain([61, 62]).collect::<std::collections::BTreeSet<_>>()),
        "a",
    );
    assert!(near(held.seconds, 3_600.0), "{held:?}");
}

/// Rows each ten seconds for some hours, with a counter of 100 W.
fn counted(hours: i64, watts: impl Fn(i64) -> Option<f64>) -> Vec<UseRow> {
    let row = |n: i64| {
        let counter = Some(1_000.0 * f64::from(i32::try_from(n).unwrap()));
        UseRow { watts: watts(n * 10), counter, ..UseRow::at(n * 10) }
    };
    (0..=hours * 360).map(row).collect()
}

fn joules(rows: &[UseRow]) -> [f64; 3] {
    [by_rows(rows), by_stays(rows, 60_000), by_stays(rows, 3_600_000)]
        .map(|uses| of(&uses, "a").joules.unwrap())
}

#[test]
fn a_counter_below_the_power_is_the_energy_of_each_hour_and_of_all() {
    for watts in [92.0, 105.0, 109.0] {
        let rows = counted(6, |_| Some(watts));
        for energy in joules(&rows) {
            assert!(near(energy, 6.0 * 360_000.0), "{watts} W: {energy} J");
        }
        for hour in rows[..rows.len() - 1].chunks(360) {
            for energy in joules(hour) {
                assert!(near(energy, 359_000.0), "{watts} W: {energy} J");
            }
        }
    }
}

#[test]
fn what_a_counter_counts_without_power_and_over_a_gap_is_kept_in_rollups() {
    // No power for a quarter of an hour; no rows for two hours; no power at all, and a reset.
    let without_power = counted(2, |at_s| Some(100.0).filter(|_| !(2_400..3_300).contains(&at_s)));
    let with_gap: Vec<UseRow> = counted(24, |_| Some(100.0))
        .into_iter()
        .filter(|row| !(36_000_000..43_200_000).contains(&row.at_ms))
        .collect();
    for (rows, wanted) in [(&without_power, 7_200.0), (&with_gap, 86_400.0)] {
        for energy in joules(rows) {
            assert!(near(energy, 100.0 * wanted), "{energy} J of {wanted} s");
        }
        let day = of(&by_stays(rows, 86_400_000), "a").joules.unwrap();
        assert!(near(day, 100.0 * wanted), "{day} J of {wanted} s");
    }
    let mut reset = counted(3, |_| None);
    for (n, row) in reset.iter_mut().enumerate() {
        row.counter = row.counter.map(|joules| if n < 500 { joules } else { joules - 500_000.0 });
    }
    for energy in joules(&reset) {
        // What it counted from its last reading to its reset is not known.
        assert!(near(energy, 100.0 * 10_790.0), "{energy} J");
    }
}

#[test]
fn power_beside_a_counter_is_its_holders_and_counts_where_the_counter_says_nothing() {
    // The counter in rows of its own, 8 % below the power, in several rhythms.
    for (apart_s, later_s) in [(10, 5), (60, 30), (60, 1)] {
        let rows = (0..3_600 / apart_s).flat_map(|n| {
            let counter = Some(92.0 * f64::from(i32::try_from(n * apart_s + later_s).unwrap()));
            let watts = UseRow { holder: u32::from(n % 7 == 0), ..UseRow::at(n * apart_s) };
            [
                watts,
                UseRow { counter, watts: None, holder: watts.holder, ..UseRow::at(n * apart_s + later_s) },
            ]
        });
        let rows: Vec<UseRow> = rows.collect();
        let alone: Vec<UseRow> = rows.iter().map(|row| UseRow { holder: 0, ..*row }).collect();
        for uses in [by_rows(&rows), by_stays(&rows, 600_000), by_rows(&alone), by_stays(&alone, 600_000)] {
            let sum: f64 = uses.iter().filter_map(|one| one.held.joules).sum();
            assert!((sum / (92.0 * 3_600.0) - 1.0).abs() < 0.03, "{apart_s} {later_s}: {sum} J");
        }
    }
    // The counter begins at noon, or ends then.
    for counts in [|at_s: i64| at_s >= 43_200, |at_s: i64| at_s < 43_200] {
        let mut rows = counted(24, |_| Some(100.0));
        for row in &mut rows {
            row.counter = row.counter.filter(|_| counts(row.at_ms / 1_000));
        }
        let day = of(&by_stays(&rows, 86_400_000), "a").joules.unwrap();
        for energy in joules(&rows).into_iter().chain([day]) {
            assert!(near(energy, 8_640_000.0), "{energy} J");
        }
    }
}

#[test]
fn averages_count_where_power_is_sampled_no_more() {
    let row = |n: i64| {
        let is_average = n >= 120;
        UseRow { is_average, watts: Some(if is_average { 200.0 } else { 100.0 }), ..UseRow::at(n * 10) }
    };
    let rows: Vec<UseRow> = (0..=720).map(row).collect();
    for uses in [by_rows(&rows), by_stays(&rows, 600_000)] {
        let energy = of(&uses, "a").joules.unwrap();
        // The first averages may be of the same time as the samples.
        let most = 100.0 * 1_190.0 + 200.0 * 6_010.0;
        assert!((most - 200.0 * 70.0..=most).contains(&energy), "{energy} J");
    }
}

#[test]
fn a_state_that_is_told_no_more_lasts_no_longer_than_a_gap() {
    let row = |n: i64| {
        let is_told = n <= 60;
        let throttled = if is_told { Throttled::State(1.0) } else { Throttled::Untold };
        UseRow { utilization: Some(0.0).filter(|_| is_told), throttled, ..UseRow::at(n * 10) }
    };
    let rows: Vec<UseRow> = (0..=720).map(row).collect();
    for uses in [by_rows(&rows), by_stays(&rows, 60_000), by_stays(&rows, 3_600_000)] {
        let held = of(&uses, "a");
        assert!(near(held.seconds, 7_200.0) && near(held.joules.unwrap(), 720_000.0), "{held:?}");
        assert!(near(held.idle_s.unwrap(), 650.0) && near(held.throttled_s.unwrap(), 650.0), "{held:?}");
        assert!(near(held.idle_joules.unwrap(), 65_000.0), "{held:?}");
    }
    let later: Vec<UseRow> = rows[70..].to_vec();
    assert_eq!(of(&by_rows(&later), "a").idle_s, None);
}

#[test]
fn a_counter_that_agrees_is_the_energy_from_its_first_reading_on() {
    let rows: Vec<UseRow> = (0..600_i64)
        .map(|n| {
            let energy = 105.0 * f64::from(i32::try_from(n).unwrap());
            UseRow {
                holder: u32::from(n >= 300),
                utilization: Some(50.0),
                counter: Some(energy),
                ..UseRow::at(n)
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
