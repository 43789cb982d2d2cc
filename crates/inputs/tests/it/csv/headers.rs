//! Headers among the rows: of a log that was begun again by another version, or put together from several.

use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_inputs::csv::CsvSource;
use gpuvitals_inputs::replay::{Cause, ReplayConfig};

use super::reading::{NOW, config, drain, open, reader, rows};

/// What each row has behind its time and GPU.
fn values(text: &str) -> Vec<String> {
    let found = rows(&drain(&mut open(text)));
    found
        .iter()
        .map(|row| row.split_once(":gpu0 ").map_or(row.clone(), |(_, rest)| rest.to_owned()))
        .collect()
}

#[test]
fn units_stand_below_a_later_header_too() {
    let text = "timestamp,gpu,temperature\n1752871354,0,40\ntimestamp,gpu,power\n[s],[-],[mW]\n\
                1752871355,0,60000\n1752871356,0,61000\n";
    let found = values(text);
    assert!(found[1].starts_with("power_w=60 "), "{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn rows_below_a_header_that_cannot_be_read_are_left_out_and_the_rest_is_read() {
    let text = "timestamp,gpu,power_w\n1752871354,0,100\ntimestamp,gpu,power\nlater,0,7\nlater,0,8\n\
                timestamp,gpu,power_w\n1752871356,0,101\n";
    let mut source = open(text);
    let found = rows(&drain(&mut source));
    assert_eq!(found.len(), 2, "{found:?}");
    let counts = source.counts();
    assert_eq!((counts.rows_read, counts.skipped(Cause::Fields)), (4, 2));
    let reports: Vec<String> = source.drain_reports().iter().map(ToString::to_string).collect();
    assert!(reports.iter().any(|it| it.contains("left out")), "{reports:?}");
    assert!(reports.iter().any(|it| it.contains("in line 3, cannot be read")), "{reports:?}");
}

#[test]
fn headers_that_come_in_turn_are_settled_once() {
    let section = |turn: usize| {
        let header = ["timestamp,gpu,power_w", "timestamp,gpu,board_power_w"][turn % 2];
        format!("{header}\n{},0,{}\n", 1_752_871_354 + turn, 100 + turn % 50)
    };
    let text = (0..2_000).map(section).collect::<Vec<_>>().concat();
    let config = ReplayConfig { messages: true, ..config() };
    let mut source = CsvSource::open(reader(text.into_bytes()), config, NOW).unwrap();
    let (mut read, mut messages) = (0, Vec::new());
    while let Poll::Ready(batch) = source.poll(NOW).unwrap() {
        read += batch.rows();
        messages.extend(source.messages().unwrap());
    }
    let with = |name: &str| messages.iter().filter(|it| it["fields"].get(name).is_some()).count();
    assert_eq!((read, with("power_w"), with("board_power_w")), (2_000, 1_000, 1_000), "{:?}", messages[0]);
}

#[test]
fn rows_without_times_go_on_behind_those_of_another_header() {
    let text = "gpu_id,power_w\ng,100\ng,101\ngpu_id,power_w,temperature\ng,200,50\ng,201,51\n";
    let batches = drain(&mut open(text));
    let mut times: Vec<i64> = batches.iter().flat_map(|batch| batch.timestamps().to_vec()).collect();
    times.dedup();
    assert!(times.len() == 4 && times.is_sorted(), "{times:?}");
}

#[test]
fn a_header_that_comes_back_has_the_units_that_stand_below_it() {
    let text = "timestamp,gpu,power\n[s],[-],[mW]\n1752871354,0,60000\ntimestamp,gpu,temperature\n1752871355,0,40\n\
                timestamp,gpu,power\n[s],[-],[W]\n1752871356,0,60\n";
    let found = values(text);
    assert!(found.len() == 3 && found[2].starts_with("power_w=60 "), "{found:?}");
}

#[test]
fn the_last_line_of_a_table_that_our_api_cut_is_no_row_and_is_told() {
    let text = "timestamp,gpu,power_w\n2026-11-20T11:00:00Z,0,100\n2026-11-20T11:00:01Z,0,101\n\
                # 147 rows are left out: offset=100 asks for the next. Not everything could be read: a, b, c\n";
    let mut source = open(text);
    assert_eq!(rows(&drain(&mut source)).len(), 2);
    assert_eq!((source.counts().rows_read, source.counts().rows_skipped()), (2, 0));
    let told: Vec<String> = source.drain_reports().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("a remark, no row: 147 rows are left out") && told[0].ends_with("a, b, c"),
        "{told:?}"
    );
}
