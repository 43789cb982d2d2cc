//! The power fails between any two calls of the disk, syncs fail, and the disk is full: every acknowledged row has its line,
//! and no row has two.

use std::io::ErrorKind;

use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{Status, causes};
use gpuvitals_jsonl::{Jsonl, JsonlConfig, JsonlError};
use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_log::{Durability, Log, LogConfig};
use gpuvitals_rig::waiting::within;
use proptest::prelude::*;

use crate::support::{Kept, Row, batch, read};

const GPUS: [&str; 3] = ["gpu_0", "gpu_1@n", "GPU-2:cpx1"];
const METRICS: [&str; 3] = ["power_w", "temperature_c", "foreign"];

/// A row of a test: GPU, second, metric, value.
type Cell = (usize, i64, usize, u8);

#[derive(Debug, Clone)]
enum Action {
    Accept(Vec<Cell>),
    Flush,
    Restart,
    /// The power fails after so many calls, in the middle of the next actions.
    PowerOff {
        calls: u64,
        seed: u64,
    },
    /// A sync fails after so many others, and the process ends.
    FailSync {
        syncs: u64,
    },
    /// A write is cut short by a full disk, once.
    FullDisk {
        writes: u64,
    },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let cell = (0..GPUS.len(), 0_i64..12, 0..METRICS.len(), 0_u8..3);
    let action = prop_oneof![
        6 => proptest::collection::vec(cell, 1..8).prop_map(Action::Accept),
        3 => Just(Action::Flush),
        1 => Just(Action::Restart),
        3 => (0_u64..60, any::<u64>()).prop_map(|(calls, seed)| Action::PowerOff { calls, seed }),
        1 => (0_u64..4).prop_map(|syncs| Action::FailSync { syncs }),
        1 => (0_u64..6).prop_map(|writes| Action::FullDisk { writes }),
    ];
    proptest::collection::vec(action, 1..40)
}

/// The sink under test, on a disk that holds files and log.
struct World {
    disk: FaultDisk,
    jsonl: Option<Jsonl>,
    /// Everything that was acknowledged.
    model: Kept,
    /// A crash leaves the disk as this seed says.
    seed: Option<u64>,
}

impl World {
    fn open(&mut self) -> &Jsonl {
        let (disk, seed) = (&self.disk, &mut self.seed);
        self.jsonl.get_or_insert_with(|| {
            let config = JsonlConfig { file_bytes: 700, segment_bytes: 8 << 10, ..JsonlConfig::new("") };
            loop {
                match Jsonl::open_on(&config, disk.clone(), disk.clone()) {
                    Ok((jsonl, found)) => {
                        assert_eq!(found.damage, Vec::<String>::new());
                        break jsonl;
                    }
                    // The power fails while it opens, or a sync does.
                    Err(_) => seed.take().into_iter().for_each(|seed| disk.crash(seed)),
                }
            }
        })
    }

    /// The process is dead; after a power failure so is what the disk had not synced.
    fn end(&mut self) {
        self.jsonl = None;
        if let Some(seed) = self.seed.take() {
            self.disk.crash(seed);
        }
    }

    /// Accepts as the queue delivers: until it is acknowledged.
    async fn accept(&mut self, cells: &[Cell]) {
        let row =
            |&(gpu, second, metric, value): &Cell| (GPUS[gpu], second, [(METRICS[metric], f64::from(value))]);
        let rows: Vec<_> = cells.iter().map(row).collect();
        let rows: Vec<Row<'_>> =
            rows.iter().map(|(gpu, second, values)| (*gpu, *second, values.as_slice())).collect();
        while self.open().accept(vec![batch(&rows)]).await.is_err() {
            self.end();
        }
        for (gpu, second, values) in rows {
            let row = self.model.entry((gpu.to_owned(), second)).or_default();
            row.extend(values.iter().map(|(name, value)| ((*name).to_owned(), *value)));
        }
    }

    async fn flush(&mut self) {
        while self.open().flush().await.is_err() {
            self.end();
        }
    }

    fn check(&self) {
        let mut kept = Kept::new();
        let mut names: Vec<String> =
            self.disk.names().into_iter().filter(|name| name.contains(".jsonl")).collect();
        // Full files first, in their order.
        names.sort_by_key(|name| (!name.contains('~'), name.clone()));
        for name in names {
            read(&mut kept, &String::from_utf8(self.disk.contents(&name).unwrap()).unwrap());
        }
        assert_eq!(kept, self.model);
    }
}

async fn play(actions: &[Action]) {
    let mut world = World { disk: FaultDisk::new(), jsonl: None, model: Kept::new(), seed: None };
    for action in actions {
        match *action {
            Action::Accept(ref cells) => world.accept(cells).await,
            Action::Flush => world.flush().await,
            Action::Restart => {
                let closed = world.open().close().await;
                drop(closed);
                world.end();
            }
            Action::PowerOff { calls, seed } => {
                world.seed = Some(seed);
                world.disk.fail_call(None, calls, Fault::PowerOff);
            }
            Action::FailSync { syncs } => {
                world.disk.fail_call(Some(Op::SyncData), syncs, Fault::Error(ErrorKind::Other));
            }
            Action::FullDisk { writes } => {
                world.disk.fail_call(Some(Op::Write), writes, Fault::Error(ErrorKind::StorageFull));
            }
        }
    }
    world.flush().await;
    world.check();
    // Durable: a power failure that loses all it can changes nothing.
    world.end();
    world.disk.crash(0);
    world.flush().await;
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_acknowledged_row_is_lost_and_none_is_doubled(actions in actions()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(play(&actions));
    }
}

/// The sync of one file fails, and in the same pass another file cannot be written: the first is not forgotten.
#[tokio::test]
async fn a_failed_sync_ends_the_sink_whatever_fails_after_it() {
    let [files, log] = [FaultDisk::new(), FaultDisk::new()];
    // Every line fills its file, which is synced then.
    let config = JsonlConfig { file_bytes: 1, ..JsonlConfig::new("") };
    let (jsonl, _) = Jsonl::open_on(&config, files.clone(), log.clone()).unwrap();
    files.fail_call(Some(Op::SyncData), 0, Fault::Error(ErrorKind::Other));
    files.fail_call(Some(Op::Write), 1, Fault::Error(ErrorKind::StorageFull));
    let value = [("power_w", 7.0)];
    let rows = || vec![batch(&[("gpu_0", 0, &value), ("gpu_1", 0, &value)])];
    jsonl.accept(rows()).await.unwrap();
    let flushed = jsonl.flush().await.unwrap_err();
    assert!(causes(&flushed).contains("cannot sync gpu_0.jsonl"), "{}", causes(&flushed));
    let refused = jsonl.accept(rows()).await.unwrap_err();
    assert!(matches!(refused, SinkError::Failed(_)), "{refused:?}");
    // Nothing was noted as written: the log still has what the sync lost.
    drop(jsonl.close().await);
    files.crash(0);
    log.crash(0);
    let (jsonl, found) = Jsonl::open_on(&config, files.clone(), log).unwrap();
    assert_eq!((found.rows, found.damage), (2, Vec::new()));
    jsonl.flush().await.unwrap();
    for gpu in ["gpu_0", "gpu_1"] {
        let lines = String::from_utf8(files.contents(&format!("{gpu}~00000001.jsonl")).unwrap()).unwrap();
        assert_eq!(lines.lines().count(), 1);
    }
}

/// A log that this version cannot read is left as it is.
#[tokio::test]
async fn a_record_that_cannot_be_read_refuses_to_open_and_stays() {
    let config = JsonlConfig::new("");
    for (kind, payload) in [(9, "rows of a later version"), (1, "no rows")] {
        let [files, disk] = [FaultDisk::new(), FaultDisk::new()];
        let (jsonl, _) = Jsonl::open_on(&config, files.clone(), disk.clone()).unwrap();
        jsonl.accept(vec![batch(&[("gpu_0", 0, &[("power_w", 7.0)])])]).await.unwrap();
        jsonl.close().await.unwrap();
        let log_config = LogConfig { segment_len: config.segment_bytes, spares: 0, ..LogConfig::default() };
        let (log, recovery) = Log::open(disk.clone(), log_config.clone()).unwrap();
        let next = recovery.next_sequence;
        let ticket = log.append(kind, payload.into(), Durability::Synced);
        let appended = within("the outcome of an append", move || ticket.wait()).unwrap();
        assert_eq!(appended.sequence, next);
        log.close().unwrap();

        for _ in 0..2 {
            let error = Jsonl::open_on(&config, files.clone(), disk.clone()).unwrap_err();
            let is_named = match &error {
                JsonlError::UnknownRecord { sequence, kind: 9 } => *sequence == next && kind == 9,
                JsonlError::Undecodable { sequence, .. } => *sequence == next && kind == 1,
                _ => false,
            };
            assert!(is_named, "{}", causes(&error));
        }
        let (_log, recovery) = Log::open(disk, log_config).unwrap();
        let last = recovery.map(Result::unwrap).last().unwrap();
        assert_eq!((last.sequence, last.kind, &*last.payload), (next, kind, payload.as_bytes()));
    }
}

/// The log takes nothing while earlier rows are written: that these can be written does not end the other cause.
#[tokio::test]
async fn each_cause_of_degraded_health_has_its_own_end() {
    let [files, log] = [FaultDisk::new(), FaultDisk::new()];
    let (jsonl, _) = Jsonl::open_on(&JsonlConfig::new(""), files.clone(), log.clone()).unwrap();
    let row = |second| vec![batch(&[("gpu_0", second, &[("power_w", 7.0)])])];
    jsonl.accept(row(0)).await.unwrap();
    files.fail_all(Op::Write, Some(ErrorKind::PermissionDenied));
    jsonl.flush().await.unwrap_err();
    log.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    let busy = jsonl.accept(row(1)).await.unwrap_err();
    assert!(matches!(busy, SinkError::Busy(_)), "{busy:?}");
    let reason = jsonl.health().reason;
    assert!(
        reason.contains("rows are not taken: ") && reason.contains("; JSON lines are not written: "),
        "{reason}"
    );

    files.fail_all(Op::Write, None);
    jsonl.flush().await.unwrap();
    let health = jsonl.health();
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reason.starts_with("rows are not taken: ") && !health.reason.contains(';'), "{health:?}");

    log.fail_all(Op::Write, None);
    jsonl.accept(row(1)).await.unwrap();
    assert_eq!(jsonl.health().status, Status::Healthy);
}
