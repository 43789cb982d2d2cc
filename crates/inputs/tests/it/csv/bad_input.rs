//! Input that must not be taken, and its messages.

use std::io::{self, Read};

use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_inputs::csv::{CsvInput, CsvSource};
use gpuvitals_inputs::replay::{Cause, REPORTS_MAX};
use proptest::prelude::*;

use super::reading::{NOW, config, drain, open, reader, reports, rows};

#[test]
fn a_file_that_cannot_be_worked_with_is_refused_at_once() {
    let check = |bytes: &[u8], expected: &str| {
        let error = CsvSource::open(reader(bytes.to_vec()), config(), NOW).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    let empty = "rows.csv: the file is empty; give a CSV file with a header line such as timestamp,gpu_id,temperature";
    check(b"", empty);
    check(b"\n\r\n\n", empty);
    check(b"\xef\xbb\xbf", empty);
    check(
        b"2026-01-01T00:00:00Z,gpu_0,61\n2026-01-01T00:00:01Z,gpu_0,61\n",
        "rows.csv: line 1: the header is missing: \"2026-01-01T00:00:00Z\" is data, not the name of a column; put a \
         line of names first, such as timestamp,gpu_id,temperature",
    );
    check(
        b"\ngpu_0,61,300\n",
        "rows.csv: line 2: the header is missing: \"61\" is data, not the name of a column; put a line of names \
         first, such as timestamp,gpu_id,temperature",
    );
    let binary = |line: u32, what: &str| {
        format!(
            "rows.csv: line {line}: this is no text ({what}); give a CSV file in UTF-8, compressed with gzip or not"
        )
    };
    check(b"\x7fELF\x02\x01\0\0\0,\n", &binary(1, "it has NUL bytes"));
    check(b"\x89PNG\r\n\x1a\n", &binary(1, "it is not UTF-8"));
    check(&vec![0; 3 << 20], &binary(1, "it has NUL bytes"));
    check(
        &vec![b'x'; 3 << 20],
        "rows.csv: line 1: the first line has no end within 1048576 bytes; is this a CSV file?",
    );
    check(
        b"timestamp,gpu_id\n1,2\n",
        "rows.csv: line 1: no column has a metric; add one such as temperature or power_draw, or the pair \
         metric_name and value, or say what a column is with --column NAME=METRIC[:UNIT]; found: timestamp (time), gpu_id (GPU)",
    );
    check(
        b"name,\x1b[31mred\n1,2\n",
        "rows.csv: line 1: no column has a metric; add one such as temperature or power_draw, or the pair \
         metric_name and value, or say what a column is with --column NAME=METRIC[:UNIT]; found: name (model), [31mred (unknown)",
    );
    let missing = CsvSource::open(CsvInput::File("/nowhere/rows.csv".into()), config(), NOW).unwrap_err();
    assert_eq!(missing.to_string(), "/nowhere/rows.csv: cannot be opened");
}

/// Rows under `timestamp,gpu_id,temperature,memory_used`, with a good one before and behind.
fn one_bad(row: &[u8]) -> (Vec<String>, CsvSource) {
    let mut text = b"timestamp,gpu_id,temperature,memory_used\n2026-01-01T00:00:00Z,g,50,100\n".to_vec();
    text.extend(row);
    text.extend(b"\n2026-01-01T00:00:02Z,g,51,101\n");
    let mut source = CsvSource::open(reader(text), config(), NOW).unwrap();
    let taken = rows(&drain(&mut source));
    assert_eq!(
        taken.first().unwrap(),
        "2026-01-01T00:00:00Z g memory_used_mb=100 temperature_c=50 source=csv"
    );
    assert_eq!(
        taken.last().unwrap(),
        "2026-01-01T00:00:02Z g memory_used_mb=101 temperature_c=51 source=csv"
    );
    (taken[1..taken.len() - 1].to_vec(), source)
}

#[test]
fn a_bad_row_is_skipped_counted_and_reported_with_its_place() {
    let check = |row: &[u8], cause: Cause, expected: &str| {
        let (taken, mut source) = one_bad(row);
        assert_eq!(taken, [""; 0], "{expected}");
        let counts = source.counts();
        assert_eq!((counts.rows_read, counts.rows_taken, counts.rows_skipped()), (3, 2, 1), "{expected}");
        assert_eq!((counts.skipped(cause), counts.values_invalid), (1, 0), "{expected}");
        assert_eq!(reports(&mut source), [format!("rows.csv: line 3: {expected}")]);
    };
    check(b"2026-01-01T00:00:01Z,g,50", Cause::Fields, "3 fields where the header has 4");
    check(b"2026-01-01T00:00:01Z,g,50,1,2", Cause::Fields, "5 fields where the header has 4");
    let time = "is not a time; write RFC 3339 (2026-01-31T12:00:00Z) or seconds, milliseconds or nanoseconds since 1970";
    check(b"yesterday,g,50,1", Cause::Time, &format!("column timestamp: \"yesterday\" {time}"));
    check(b",g,50,1", Cause::Time, &format!("column timestamp: \"\" {time}"));
    check(
        b"2026-11-20T13:00:00.1Z,g,50,1",
        Cause::Future,
        "column timestamp: 2026-11-20T13:00:00.1Z is more than an hour ahead of now",
    );
    check(
        b"2026-01-01T00:00:01Z,../../x,50,1",
        Cause::Identity,
        "column gpu_id: uuid begins with a dot or has two in a row",
    );
    check(
        b"2026-01-01T00:00:01Z,..,50,1",
        Cause::Identity,
        "column gpu_id: uuid begins with a dot or has two in a row",
    );
    check(b"2026-01-01T00:00:01Z,-1,50,1", Cause::Identity, "column gpu_id: the GPU index -1 is negative");
    check(b"2026-01-01T00:00:01Z,,50,1", Cause::Identity, "column gpu_id: the row names no GPU");
    check(
        b"2026-01-01T00:00:01Z,\"g\nh\",50,1",
        Cause::Identity,
        "column gpu_id: uuid has the character '\\n', which no uuid has",
    );
    check(
        [b"2026-01-01T00:00:01Z,".as_slice(), &[b'g'; 300], b",50,1"].concat().as_slice(),
        Cause::Identity,
        "column gpu_id: uuid is 300 bytes long, more than 256",
    );
    check(
        [b"2026-01-01T00:00:01Z,g,\"".as_slice(), &vec![b'9'; 10 << 20], b"\",1"].concat().as_slice(),
        Cause::Oversize,
        "column temperature: field of 10485760 bytes, more than 65536",
    );
    check(b"2026-01-01T00:00:01Z,g,\xff,1", Cause::Encoding, "column temperature: not UTF-8");
    check(b"2026-01-01T00:00:01Z,g,,N/A", Cause::NoValue, "no field has a value");
}

#[test]
fn a_value_that_cannot_be_true_is_left_out_and_its_row_stays() {
    let check = |cell: &str, expected: &str| {
        let (taken, mut source) = one_bad(format!("2026-01-01T00:00:01Z,g,50,{cell}").as_bytes());
        assert_eq!(taken, ["2026-01-01T00:00:01Z g temperature_c=50 source=csv"], "{cell}");
        let counts = source.counts();
        assert_eq!((counts.rows_taken, counts.rows_skipped(), counts.values_invalid), (3, 0, 1), "{cell}");
        let report = source.drain_reports().pop().unwrap();
        assert_eq!(report.to_string(), format!("rows.csv: line 3: column memory_used: {expected}"));
        assert_eq!(
            (report.line, report.column.as_deref(), report.cause),
            (3, Some("memory_used"), Cause::Value)
        );
    };
    check("1e999", "memory_used_mb is not a finite number");
    check("-5", "memory_used_mb is -5, outside 0 to 67108864");
    check("-5 MiB", "memory_used_mb is -5, outside 0 to 67108864");
    check("99999999999", "memory_used_mb is 99999999999, outside 0 to 67108864");
    check("much", "\"much\" is no number");
    check("12 W", "\"12 W\" has a unit that the column memory_used_mb cannot have");
    check("0x10", "\"0x10\" has a unit that the column memory_used_mb cannot have");
}

#[test]
fn a_row_in_which_only_nonsense_stands_is_skipped() {
    let (taken, mut source) = one_bad(b"2026-01-01T00:00:01Z,g,-400,-1");
    assert_eq!(taken, [""; 0]);
    assert_eq!((source.counts().values_invalid, source.counts().skipped(Cause::NoValue)), (2, 1));
    assert_eq!(source.drain_reports().len(), 2);
}

#[test]
fn a_last_row_that_the_end_of_the_file_cuts_within_a_value_is_skipped() {
    let check = |names: &str, cells: &[&str], last: &str, is_cut: bool| {
        let row = |(at, cell): (usize, &&str)| format!("0,{},{cell}\n", 1_700_000_000 + at);
        let rows = cells.iter().enumerate().map(row).collect::<String>();
        for (end, is_cut) in [("", is_cut), ("\n", false)] {
            let text = format!("gpu,timestamp,{names}\n{rows}0,1700000099,{last}{end}");
            let mut source = CsvSource::open(reader(text.clone().into_bytes()), config(), NOW).unwrap();
            let read = rows_of(&mut source);
            let skipped = source.counts().skipped(Cause::Fields);
            assert_eq!((read, skipped), (cells.len() + usize::from(!is_cut), u64::from(is_cut)), "{text}");
            if is_cut {
                let reports = reports(&mut source).join("\n");
                assert!(reports.contains("the file ends within this field"), "{reports}");
            }
        }
    };
    check("power.draw [W]", &["250.40 W", "99.5 W"], "25", true);
    check("temperature.gpu,memory.used [MiB]", &["60,100 MiB", "60,1000 MiB"], "60,100 M", true);
    let some = ["60,250.40 W", "60,[N/A]", "60,99.5 W"];
    check("temperature.gpu,power.draw [W]", &some, "60,[N/A]", false);
    check("temperature.gpu,power.draw [W]", &some, "60,9", true);
    check("power_w", &["250.40", "99.5"], "25", false);
    check("power_w", &["250.40"; 20], "25", true);
    check("power_w", &["250.40"; 20], "25.10", false);
    check("power_w,clock", &["250,14:22:01", "250,14:22:02"], "250,14:2", true);
}

fn rows_of(source: &mut CsvSource) -> usize {
    rows(&drain(source)).len()
}

#[test]
fn a_quote_that_is_never_closed_ends_the_file_with_a_report() {
    let mut source = open("gpu_id,temperature\ng,1\nh,\"2\ni,3\n");
    assert_eq!(drain(&mut source)[0].rows(), 1);
    assert_eq!(
        reports(&mut source),
        ["rows.csv: line 3: column temperature: the quoted field is never closed"]
    );
    assert_eq!((source.counts().rows_read, source.counts().skipped(Cause::Quote)), (2, 1));
}

#[test]
fn the_first_reports_of_a_cause_are_kept_and_all_are_counted() {
    let mut text = "timestamp,gpu_id,temperature\n".to_owned();
    for _ in 0..1000 {
        text.push_str("1700000000,g,1\n1700000000,g,1\nnever,g,1\n1,g\n");
    }
    let mut source = open(&text);
    drain(&mut source);
    let counts = source.counts();
    assert_eq!((counts.skipped(Cause::Time), counts.skipped(Cause::Fields)), (1000, 1000));
    assert_eq!(source.drain_reports().len(), 2 * REPORTS_MAX as usize);
    assert!(source.drain_reports().is_empty());
}

/// A record of any length, made while it is read.
struct Endless {
    head: io::Cursor<Vec<u8>>,
    left: u64,
    tail: io::Cursor<Vec<u8>>,
}

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.head.read(to)?;
        if read > 0 {
            return Ok(read);
        }
        let fill = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        if fill > 0 {
            to[..fill].fill(b'"');
            self.left -= fill as u64;
            return Ok(fill);
        }
        self.tail.read(to)
    }
}

#[test]
fn one_call_works_through_a_bounded_part_of_endless_nonsense() {
    let endless = Endless {
        head: io::Cursor::new(b"gpu_id,temperature\ng,\"".to_vec()),
        left: 64 << 20,
        tail: io::Cursor::new(b"\"\nh,2\n".to_vec()),
    };
    let input = CsvInput::Reader { name: "rows.csv".to_owned(), reader: Box::new(endless) };
    let mut source = CsvSource::open(input, config(), NOW).unwrap();
    let mut calls = 0;
    let batch = loop {
        calls += 1;
        match source.poll(NOW).unwrap() {
            Poll::Ready(batch) => break batch,
            Poll::NotBefore(at) => assert_eq!(at, NOW),
            Poll::End => panic!("nothing was taken"),
        }
    };
    assert!(calls > 10, "{calls} calls");
    assert_eq!(rows(&[batch]), ["2026-11-20T12:00:00Z h temperature_c=2 source=csv"]);
    assert_eq!(source.counts().skipped(Cause::Oversize), 1);
}

proptest! {
    #[test]
    fn any_bytes_are_worked_through(
        wide in any::<bool>(),
        bytes in proptest::collection::vec(
            prop_oneof![
                4 => prop::sample::select(&b"0159.,\"\n\r-eE;%W/:TZ[]NaP "[..]),
                1 => any::<u8>(),
            ],
            0..400,
        ),
    ) {
        let mut text = if wide {
            b"timestamp,gpu_id,temperature,x\n".to_vec()
        } else {
            b"gpu_id,metric_name,value,labels_raw\n".to_vec()
        };
        text.extend(bytes);
        let Ok(mut source) = CsvSource::open(reader(text), config(), NOW) else { return Ok(()) };
        let taken: usize = drain(&mut source).iter().map(gpuvitals_core::Batch::rows).sum();
        let counts = source.counts();
        prop_assert_eq!(counts.rows_read, counts.rows_taken + counts.rows_skipped());
        prop_assert!(taken as u64 <= counts.rows_taken + 1);
    }

    #[test]
    fn any_file_opens_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(mut source) = CsvSource::open(reader(bytes), config(), NOW) {
            drain(&mut source);
        }
    }
}
