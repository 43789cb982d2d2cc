//! The same with an energy counter that is believed: it is reset or jumps now and then, and counts on over gaps.

use super::*;
use crate::energy::Energy;

/// Rows at the beginning that one busy holder has, and at the end that draw much: by each of the two the counter is believed, and
/// what a correction took back has come again.
const SETTLED: usize = 12;
const GAP_MS: i64 = 600_000;
/// By so much the counter jumps, joules.
const JUMP_J: f64 = 1e9;

#[derive(Debug, Clone, Copy, PartialEq)]
enum CounterEvent {
    Reset,
    Jump,
}

/// A row: the milliseconds before it, whether a gap is before it, what happened to the counter in them, and by how much the counter is
/// beside the power.
#[derive(Debug, Clone)]
struct Counted {
    row: UseRow,
    apart_ms: i64,
    has_gap: bool,
    event: Option<CounterEvent>,
    beside: f64,
    is_read: bool,
}

fn counted_row() -> impl Strategy<Value = Counted> {
    (
        5_000_i64..25_000,
        [0.2, 0.7].map(prop::bool::weighted),
        prop::option::of(prop_oneof![Just(CounterEvent::Reset), Just(CounterEvent::Jump)]),
        0_u32..2,
        50.0..700.0_f64,
        prop_oneof![Just(0.0), 1.0..100.0_f64],
        prop_oneof![
            (0_u8..2).prop_map(|held| Throttled::State(f64::from(held))),
            (0.0..1.0_f64).prop_map(Throttled::Share)
        ],
        0.93..1.07_f64,
    )
        .prop_map(|(apart_ms, [has_gap, is_read], event, holder, watts, percent, throttled, beside)| {
            let (watts, utilization) = (Some(watts), Some(percent));
            let row = UseRow { holder, watts, utilization, throttled, ..UseRow::at(0) };
            Counted { row, apart_ms, has_gap, event, beside, is_read }
        })
}

/// Rows with a counter, which each of them has or some, and which is reset or jumps now and then. Distances are some 15
/// seconds, or a fifth of that.
fn counted_rows(is_always_read: bool) -> impl Strategy<Value = Vec<UseRow>> {
    let rows = prop::collection::vec(counted_row(), 2 * SETTLED + 1..160);
    (rows, any::<bool>()).prop_map(move |(mut rows, is_fast)| {
        let count = rows.len();
        for (n, one) in rows.iter_mut().enumerate() {
            let is_within = (SETTLED..count - SETTLED).contains(&n);
            // Gaps and resets are apart, each from its kind: the counter is believed again before the next reset.
            one.has_gap &= is_within && n % 4 == 0;
            let place = n % if is_always_read { 5 } else { 20 };
            one.event = one
                .event
                .filter(|event| is_within && place == if *event == CounterEvent::Reset { 0 } else { 2 });
            // A reset that nobody reads looks like a rise.
            one.is_read |= is_always_read || !is_within || one.event.is_some();
            one.apart_ms = one.apart_ms / if is_fast { 5 } else { 1 } + if one.has_gap { GAP_MS } else { 0 };
            if n < SETTLED {
                (one.row.holder, one.row.utilization) = (0, Some(50.0));
            }
            if n >= count - SETTLED {
                one.row.watts = Some(700.0);
            }
        }
        at_their_times(rows)
    })
}

fn at_their_times(rows: Vec<Counted>) -> Vec<UseRow> {
    let (mut at_ms, mut counter, mut before) = (1_700_000_000_000, 5_000.0, None);
    let made = rows.into_iter().map(|Counted { row, apart_ms, event, beside, is_read, .. }| {
        at_ms += apart_ms;
        if let Some(before) = before.replace(row.watts.unwrap()) {
            counter += beside * f64::midpoint(before, row.watts.unwrap()) * seconds(apart_ms);
        }
        match event {
            Some(CounterEvent::Reset) => counter = 0.0,
            Some(CounterEvent::Jump) => counter += JUMP_J,
            None => {}
        }
        UseRow { at_ms, counter: is_read.then_some(counter), ..row }
    });
    made.collect()
}

#[expect(clippy::cast_precision_loss, reason = "some minutes")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1e3
}

fn is_gap(pair: &[UseRow]) -> bool {
    pair[1].at_ms - pair[0].at_ms >= GAP_MS
}

/// Power between two rows, joules; none over a gap.
fn integral(pair: &[UseRow]) -> f64 {
    let joules = f64::midpoint(pair[0].watts.unwrap(), pair[1].watts.unwrap())
        * seconds(pair[1].at_ms - pair[0].at_ms);
    if is_gap(pair) { 0.0 } else { joules }
}

/// What was counted between two rows that both have a reading; none where the counter was reset or jumped.
fn counted_between(pair: &[UseRow]) -> Option<f64> {
    Some(pair[1].counter.unwrap() - pair[0].counter.unwrap()).filter(|joules| (0.0..JUMP_J).contains(joules))
}

/// Energy between two such rows: what was counted, or the power.
fn joules_between(pair: &[UseRow]) -> f64 {
    counted_between(pair).unwrap_or_else(|| integral(pair))
}

/// Joules, and those of idle time, of a holder, from the rows alone, each of which has a reading.
fn counted_sums(rows: &[UseRow], holder: u32) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for pair in rows.windows(2).filter(|pair| pair[0].holder == holder) {
        sums[0] += joules_between(pair);
        if pair[0].utilization.unwrap() < IDLE_BELOW_PCT && !is_gap(pair) {
            sums[1] += joules_between(pair);
        }
    }
    sums
}

/// Joules of the GPU, from rows that have a reading now and then.
fn counted_sum(rows: &[UseRow]) -> f64 {
    let read: Vec<usize> = (0..rows.len()).filter(|n| rows[*n].counter.is_some()).collect();
    let spans = read.windows(2).map(|span| {
        let within = &rows[span[0]..=span[1]];
        let ends = [within[0], within[within.len() - 1]];
        counted_between(&ends).unwrap_or_else(|| within.windows(2).map(integral).sum())
    });
    spans.sum()
}

fn all_joules(uses: &[GpuUse]) -> f64 {
    uses.iter().filter_map(|one| one.held.joules).sum()
}

proptest! {
    #[test]
    fn counted_energy_is_the_exact_sum_of_each_holder(rows in counted_rows(true)) {
        let uses = by_rows(&rows);
        prop_assert_eq!(uses[0].source, Some(EnergySource::Counter));
        for (job, holder) in [("a", 0), ("b", 1)] {
            let held = of(&uses, job);
            let [joules, idle_joules] = counted_sums(&rows, holder);
            prop_assert!(near(held.joules.unwrap_or(0.0), joules), "{job} {held:?}, not {joules}");
            prop_assert!(near(held.idle_joules.unwrap_or(0.0), idle_joules), "{job} {held:?}, not {idle_joules}");
        }
    }

    #[test]
    fn energy_of_a_counter_that_is_read_now_and_then_is_the_exact_sum(rows in counted_rows(false)) {
        let (found, wanted) = (all_joules(&by_rows(&rows)), counted_sum(&rows));
        prop_assert!(near(found, wanted), "{found}, not {wanted}");
    }

    #[test]
    fn rollups_have_the_counted_energy_of_their_rows(rows in counted_rows(true), step_s in prop::sample::select(vec![10_i64, 60, 3_600])) {
        let uses = by_stays(&rows, step_s * 1_000);
        prop_assert_eq!(uses[0].source, Some(EnergySource::Counter));
        for (job, holder) in [("a", 0), ("b", 1)] {
            let (found, [wanted, _]) = (of(&uses, job).joules.unwrap_or(0.0), counted_sums(&rows, holder));
            prop_assert!(near(found, wanted), "{job}: {found}, not {wanted}");
        }
    }

    #[test]
    fn rollups_have_the_energy_of_a_counter_that_is_read_now_and_then(rows in counted_rows(false), step_s in prop::sample::select(vec![10_i64, 60, 3_600])) {
        let (found, wanted) = (all_joules(&by_stays(&rows, step_s * 1_000)), counted_sum(&rows));
        prop_assert!(near(found, wanted), "{found}, not {wanted}");
    }

    /// Agent and recorder keep it, and know which distances are gaps.
    #[test]
    fn a_running_total_of_the_same_rows_has_their_joules(rows in counted_rows(false)) {
        let (mut energy, gap_max_ns) = (Energy::default(), 1_000_000 * (GAP_MS - 1));
        for row in &rows {
            let time_ns = 1_000_000 * row.at_ms;
            energy.begin_row();
            energy.sample(time_ns, row.watts.unwrap(), gap_max_ns);
            if let Some(counter_j) = row.counter {
                energy.read(time_ns, counter_j, gap_max_ns);
            }
        }
        let (found, wanted) = (energy.total().unwrap().joules, all_joules(&by_rows(&rows)));
        prop_assert!(near(found, wanted), "{found}, not {wanted}");
    }

    #[test]
    fn a_range_and_the_next_are_the_whole_with_counters_and_gaps(rows in counted_rows(true), cut in 0.0..1.0_f64) {
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among the rows")]
        let cut = SETTLED + ((rows.len() - 2 * SETTLED) as f64 * cut) as usize;
        let (before, after, whole) = (by_rows(&rows[..=cut]), by_rows(&rows[cut..]), by_rows(&rows));
        let (found, wanted) = (all_joules(&before) + all_joules(&after), all_joules(&whole));
        prop_assert!(near(found, wanted), "{found}, not {wanted}");
        for job in ["a", "b"] {
            let (one, other, all) = (of(&before, job), of(&after, job), of(&whole, job));
            let figures = |held: HolderUse| [Some(held.seconds), held.busy_s, held.idle_s, held.throttled_s, Some(held.power.joules), Some(held.power.seconds)];
            for ((one, other), all) in figures(one).into_iter().zip(figures(other)).zip(figures(all)) {
                let found = one.unwrap_or(0.0) + other.unwrap_or(0.0);
                prop_assert!(near(found, all.unwrap_or(0.0)), "{job}: {found}, not {all:?}");
            }
        }
    }
}

#[test]
fn a_step_in_which_a_counter_was_reset_or_jumped_has_what_it_counted_before_and_after() {
    // 8 % below the power, and reset in the second hour of three, or set to another count.
    for change in [-500_000.0, JUMP_J] {
        let mut rows = counted(3, |_| Some(108.0));
        for (n, row) in rows.iter_mut().enumerate() {
            row.counter = row.counter.map(|joules| if n < 500 { joules } else { joules + change });
        }
        for energy in super::joules(&rows) {
            assert!(near(energy, 100.0 * 10_790.0 + 108.0 * 10.0), "{change}: {energy} J");
        }
    }
}
