//! The hour that a clock shows twice in autumn, in files of both directions.

use std::fmt::Write as _;

use gpuvitals_core::time::{self, MINUTE_NS, SECOND_NS, Zone};
use gpuvitals_inputs::csv::Hints;
use gpuvitals_inputs::replay::ReplayConfig;
use proptest::prelude::*;

use super::logs::{hinted, read_with};
use super::reading::reader;

/// Zones, the instant at which their clocks are put back, and the minutes by which they are ahead of UTC before and after.
const ZONES: [(&str, &str, i64, i64); 6] = [
    ("Europe/Berlin", "2024-10-27T01:00:00Z", 120, 60),
    ("America/New_York", "2024-11-03T06:00:00Z", -240, -300),
    ("America/St_Johns", "2024-11-03T04:30:00Z", -150, -210),
    ("Atlantic/Azores", "2024-10-27T01:00:00Z", 0, -60),
    ("Pacific/Auckland", "2024-04-06T14:00:00Z", 780, 720),
    // By half an hour.
    ("Australia/Lord_Howe", "2024-04-06T15:00:00Z", 660, 630),
];

/// Rows outside of the hour that a file has before it, at least, and behind it.
const OUTSIDE: i64 = 3;

#[derive(Debug, Clone, Copy)]
enum Written {
    Oldest,
    Newest,
}

/// A file of some GPUs, whose rows stand beside each other or in blocks.
#[derive(Debug)]
struct Case {
    zone: usize,
    step_s: i64,
    phase_s: i64,
    gpus: usize,
    in_blocks: bool,
    first: Written,
}

fn cases() -> impl Strategy<Value = Case> {
    let order = prop_oneof![Just(Written::Oldest), Just(Written::Newest)];
    (0..ZONES.len(), 20_i64..=3_600, 0_i64..3_600, 1_usize..4, any::<bool>(), order).prop_map(
        |(zone, step_s, phase_s, gpus, in_blocks, first)| {
            let width_s = (ZONES[zone].2 - ZONES[zone].3) * 60;
            let (step_s, phase_s) = (step_s.min(width_s), phase_s % step_s.min(width_s));
            Case { zone, step_s, phase_s, gpus, in_blocks, first }
        },
    )
}

impl Case {
    /// The instants of a GPU's rows, as the file has them.
    fn instants(&self) -> Vec<i64> {
        let (_, back, before, after) = ZONES[self.zone];
        let (back_s, width_s) = (time::parse(back).unwrap() / SECOND_NS, (before - after) * 60);
        let from = back_s - width_s - (OUTSIDE + 1) * self.step_s + self.phase_s;
        let to = back_s + width_s + (OUTSIDE + 1) * self.step_s;
        let rows = (to - from) / self.step_s;
        let mut all: Vec<i64> = (0..=rows).map(|row| from + row * self.step_s).collect();
        if matches!(self.first, Written::Newest) {
            all.reverse();
        }
        all.into_iter().map(|second| second * SECOND_NS).collect()
    }

    /// GPU and instant of each row.
    fn rows(&self) -> Vec<(usize, i64)> {
        let instants = self.instants();
        let gpus = || 0..self.gpus;
        if self.in_blocks {
            gpus().flat_map(|gpu| instants.iter().map(move |at| (gpu, *at))).collect()
        } else {
            instants.iter().flat_map(|at| gpus().map(move |gpu| (gpu, *at))).collect()
        }
    }
}

/// What the clocks of a zone show at an instant.
fn shown(zone: usize, at: i64) -> String {
    let (_, back, before, after) = ZONES[zone];
    let minutes = if at < time::parse(back).unwrap() { before } else { after };
    time::format(at + minutes * MINUTE_NS).trim_end_matches('Z').replace('T', " ")
}

fn in_zone(zone: usize) -> ReplayConfig {
    hinted(Hints { timezone: Some(Zone::named(ZONES[zone].0).unwrap()), ..Hints::default() })
}

/// GPU and instant of each row that a file has, read in a zone.
fn read(zone: usize, rows: impl Iterator<Item = (usize, String)>) -> Vec<(usize, i64)> {
    let mut text = "timestamp,index,power_w\n".to_owned();
    for (gpu, shown) in rows {
        writeln!(text, "{shown},{gpu},100").unwrap();
    }
    let (rows, skipped) = read_with(reader(text.into_bytes()), in_zone(zone));
    assert_eq!(skipped, 0);
    let of_row = |row: &String| {
        let mut words = row.split(' ');
        let at = time::parse(words.next().unwrap()).unwrap();
        (words.next().unwrap().trim_start_matches("rows:gpu").parse().unwrap(), at)
    };
    rows.iter().map(of_row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn the_instants_of_a_file_in_either_direction_come_back_exactly(case in cases()) {
        let mut rows = case.rows();
        let mut found = read(case.zone, rows.iter().map(|(gpu, at)| (*gpu, shown(case.zone, *at))));
        rows.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, rows);
    }
}

#[test]
fn a_file_in_no_order_is_read_as_one_that_is_written_oldest_first() {
    let texts = ["01:40", "01:20", "01:50", "01:30", "02:00", "02:30", "02:00", "02:30", "03:10", "03:00"];
    let rows = texts.iter().map(|text| (0, format!("2024-10-27 {text}:00")));
    let found: Vec<String> =
        read(0, rows).iter().map(|(_, at)| time::format(*at).get(11..16).unwrap().to_owned()).collect();
    let expected = ["23:40", "23:20", "23:50", "23:30", "00:00", "00:30", "01:00", "01:30", "02:10", "02:00"];
    assert_eq!(found, expected);
}
