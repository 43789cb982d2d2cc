//! Rows to which none are added any more: `/health` says when they end, and pages open as of then.

use gpuvitals_core::clock;
use gpuvitals_core::time::{self, HOUR_NS, SECOND_NS};
use serde_json::Value;

use crate::import::import;
use crate::restore::fleet;
use crate::server::Server;

/// Ten seconds of rows, and how they are served.
struct Served {
    what: &'static str,
    /// How long ago they began.
    age_ns: i64,
    /// Whether they are in the store before the server starts; else it replays them.
    is_stored: bool,
    more: &'static [&'static str],
    /// Whether enough has happened, by the statistics of the source.
    is_ready: fn(&Value) -> bool,
    is_recording: bool,
}

const ROWS: u64 = 80;

fn has_been_replayed(source: &Value) -> bool {
    source["ended"] == true && has_stored(source, ROWS)
}

fn has_stored(source: &Value, rows: u64) -> bool {
    source["rows_stored"].as_u64() >= Some(rows)
}

const TABLE: [Served; 4] = [
    Served {
        what: "a replay that has ended",
        age_ns: HOUR_NS / 2,
        is_stored: false,
        more: &[],
        is_ready: has_been_replayed,
        is_recording: true,
    },
    Served {
        what: "a replay that begins again",
        age_ns: HOUR_NS / 2,
        is_stored: false,
        more: &["--loop", "true", "--rate", "400"],
        is_ready: |source| source["rows_published"].as_u64() >= Some(2 * ROWS),
        is_recording: false,
    },
    // That its nodes are silent is no news of today, and no row of a finding.
    Served {
        what: "a store that is older than an hour",
        age_ns: 2 * HOUR_NS,
        is_stored: true,
        more: &["--source", "none"],
        is_ready: |source| source["kind"] == "none",
        is_recording: true,
    },
    // Here it is a finding, whose row is stored and is none of a GPU.
    Served {
        what: "a store that may go on",
        age_ns: HOUR_NS / 2,
        is_stored: true,
        more: &["--source", "none"],
        is_ready: |source| has_stored(source, 1),
        is_recording: false,
    },
];

#[test]
fn where_rows_end_is_said_when_none_come_any_more() {
    for Served { what, age_ns, is_stored, more, is_ready, is_recording } in TABLE {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let start_ns = (clock::now_ns() - age_ns).div_euclid(SECOND_NS) * SECOND_NS;
        let csv = fleet(folder.path(), 10, &time::format(start_ns));
        let mut arguments = more.to_vec();
        if is_stored {
            let (code, said, _) = import(&[&csv], &data);
            assert_eq!(code, Some(0), "{said}");
        } else {
            arguments.extend(["--replay", csv.to_str().unwrap()]);
        }
        let server = Server::start(&data, &arguments);
        server.until("/stats", what, |stats| is_ready(&stats["source"]));
        if is_recording {
            let end = time::format(start_ns + 9 * SECOND_NS);
            server.until("/health", what, |health| health["recording_end"] == end.as_str());
        } else {
            assert_eq!(server.get("/health")["recording_end"], Value::Null, "{what}");
        }
        assert_eq!(server.terminate(), Some(0), "{what}");
    }
}

#[test]
fn a_replay_ends_with_its_own_last_row_in_a_store_that_has_newer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let before = |age_ns: i64| (clock::now_ns() - age_ns).div_euclid(SECOND_NS) * SECOND_NS;
    let newer = fleet(folder.path(), 10, &time::format(before(HOUR_NS / 2)));
    let (code, said, _) = import(&[&newer], &data);
    assert_eq!(code, Some(0), "{said}");
    let start_ns = before(2 * HOUR_NS);
    let older = fleet(folder.path(), 10, &time::format(start_ns));
    let server = Server::start(&data, &["--replay", older.to_str().unwrap()]);
    server.until("/stats", "the end of the file", |stats| has_been_replayed(&stats["source"]));
    assert_eq!(server.get("/health")["recording_end"], time::format(start_ns + 9 * SECOND_NS));
    assert_eq!(server.terminate(), Some(0));
}
