//! The latest state: the newest value of each column, and the identity of the GPU.

use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{ExtraValue, FleetBounds, NoGpu};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue, clock};
use gpuvitals_store::{Store, StoreConfig};

use crate::support::{HOUR, SECOND, everything, quiet, rows_of, wait_for};

fn identity(columns: &[(IdentityColumn, &str)], index: Option<i32>) -> Identity {
    let mut identity = Identity::default();
    identity.index = index;
    for (column, text) in columns {
        identity.set(*column, text).unwrap();
    }
    identity
}

fn one(identity: &Identity, time: i64, power: Option<f64>, state: Option<&str>) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = builder.intern(identity);
    let row = builder.row(time, id);
    if let Some(power) = power {
        builder.set(row, catalogue::by_column("power_w").unwrap(), Value::Float(power)).unwrap();
    }
    if let Some(state) = state {
        builder.set_extra_text(row, "foreign state", state).unwrap();
    }
    builder.finish(Origin::default(), 0).unwrap()
}

#[tokio::test]
async fn a_pod_that_is_gone_is_gone_but_the_model_stays() {
    use IdentityColumn::{Model, Node, Pod, Uuid};
    let dir = tempfile::tempdir().unwrap();
    let held = identity(&[(Uuid, "GPU-1"), (Node, "n1"), (Model, "H100"), (Pod, "train-0")], Some(3));
    let free = identity(&[(Uuid, "GPU-1"), (Node, "n1")], None);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    store.append(vec![one(&held, HOUR, Some(500.0), Some("warm"))]).await.unwrap();
    // The other half of the same row takes nothing away.
    store.append(vec![one(&free, HOUR, None, None)]).await.unwrap();
    assert_eq!(store.fleet().get("GPU-1").unwrap().identity.get(Pod), Some("train-0"));
    store.append(vec![one(&free, HOUR + SECOND, None, None)]).await.unwrap();
    // A late row changes nothing of who the GPU is now.
    store.append(vec![one(&held, HOUR - SECOND, Some(1.0), Some("cold"))]).await.unwrap();
    for flushed in [false, true] {
        let gpu = store.fleet().get("GPU-1").cloned().unwrap();
        assert_eq!((gpu.first_seen_ns, gpu.last_seen_ns), (HOUR - SECOND, HOUR + SECOND));
        assert_eq!((gpu.identity.get(Pod), gpu.identity.get(Model)), (None, Some("H100")));
        assert_eq!(gpu.identity.index, Some(3));
        assert_eq!((gpu.latest[0].1.value, gpu.latest[0].1.timestamp_ns), (Value::Float32(500.0), HOUR));
        assert_eq!(gpu.extras, [("foreign state".into(), ExtraValue::Text("warm".into()), HOUR)]);
        if !flushed {
            store.flush().await.unwrap();
        }
    }
    let before = store.fleet();
    store.close().await.unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(store.fleet().gpus, before.gpus);
}

#[tokio::test]
async fn a_gpu_answers_to_every_name_that_is_its_own() {
    use IdentityColumn::{Node, Partition, Pci, Uuid};
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let gpus = [
        identity(&[(Uuid, "B"), (Node, "n1"), (Pci, "0000:0c:00.0")], Some(1)),
        identity(&[(Uuid, "A"), (Node, "n1"), (Pci, "0000:0b:00.0")], Some(0)),
        identity(&[(Uuid, "C"), (Node, "n2"), (Pci, "0000:0c:00.0")], Some(0)),
        identity(&[(Uuid, "D"), (Node, "n2"), (Partition, "cpx0")], None),
        identity(&[(Uuid, "D"), (Node, "n2"), (Partition, "cpx1")], None),
        identity(&[(Uuid, "E"), (Node, "n2"), (Partition, "cpx0")], None),
        identity(&[(Uuid, "gpu_0@n3"), (Node, "n3")], None),
        identity(&[(Uuid, "gpu_1@n3"), (Node, "n3")], None),
        identity(&[(Uuid, "gpu_1@n4"), (Node, "n4")], None),
        identity(&[(Uuid, "0000:0d:00.0@n4"), (Node, "n4"), (Pci, "0000:0d:00.0")], None),
        identity(&[(Uuid, "unknown:gpu7")], Some(7)),
    ];
    let rows = gpus.iter().map(|gpu| one(gpu, HOUR, Some(1.0), None)).collect();
    store.append(rows).await.unwrap();
    let fleet = store.fleet();
    let order: Vec<&str> = fleet.gpus.iter().map(|gpu| gpu.key.as_ref()).collect();
    assert_eq!(order[..7], ["unknown:gpu7", "A", "B", "D:cpx0", "D:cpx1", "E:cpx0", "C"]);
    assert_eq!(order[7..], ["gpu_0@n3", "gpu_1@n3", "0000:0d:00.0@n4", "gpu_1@n4"]);
    for (name, key) in [
        ("A", Some("A")),
        ("n1:gpu1", Some("B")),
        ("n1 / GPU 1", Some("B")),
        ("n1 / GPU 2", None),
        ("n2 / D:cpx1", Some("D:cpx1")),
        ("0000:0b:00.0", Some("A")),
        ("0000:0c:00.0", None),
        ("0000:0c:00.0@n2", Some("C")),
        ("D", None),
        ("D:cpx1", Some("D:cpx1")),
        ("E", Some("E:cpx0")),
        ("n1", None),
        ("gpu_0", Some("gpu_0@n3")),
        ("gpu_1", None),
        ("gpu_1@n4", Some("gpu_1@n4")),
        ("0000:0d:00.0", Some("0000:0d:00.0@n4")),
        ("7", Some("unknown:gpu7")),
        ("unknown:gpu7", Some("unknown:gpu7")),
        ("0", None),
    ] {
        assert_eq!(fleet.get(name).map(|gpu| gpu.key.as_ref()), key, "{name}");
    }
    let several = |keys: &[&str]| NoGpu::Ambiguous(keys.iter().map(|key| Arc::from(*key)).collect());
    for (name, why) in [
        ("n1", NoGpu::Unknown),
        ("0", NoGpu::Unknown),
        ("0000:0c:00.0", several(&["B", "C"])),
        ("D", several(&["D:cpx0", "D:cpx1"])),
        ("gpu_1", several(&["gpu_1@n3", "gpu_1@n4"])),
    ] {
        assert_eq!(fleet.find(name).unwrap_err(), why, "{name}");
    }
    for gpu in &fleet.gpus {
        assert_eq!(fleet.get(&gpu.name()).map(|found| &found.key), Some(&gpu.key), "{}", gpu.name());
    }
    assert!(std::sync::Arc::ptr_eq(&store.fleet(), &fleet), "the fleet was made anew without need");
}

#[tokio::test]
async fn a_row_of_a_clock_ahead_is_kept_and_counts_when_its_time_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetBounds { ahead_max_ns: SECOND / 10, ..FleetBounds::default() };
    let config = || StoreConfig { fleet, ..quiet(dir.path()) };
    let (store, _) = Store::open(config()).unwrap();
    let (now, gpu) = (clock::now_ns(), identity(&[(IdentityColumn::Uuid, "GPU-1")], None));
    let (hour_ahead, soon) = (now + 3_000 * SECOND, now + SECOND / 2);
    store.append(vec![one(&gpu, hour_ahead, Some(1.0), None)]).await.unwrap();
    assert_eq!(store.fleet().gpus.len(), 0);
    // With the right time again it goes on at once, also after a restart.
    store.append(vec![one(&gpu, now, Some(2.0), None)]).await.unwrap();
    assert_eq!(store.fleet().gpus[0].last_seen_ns, now);
    drop(store);
    let (store, _) = Store::open(config()).unwrap();
    assert_eq!(store.fleet().gpus[0].last_seen_ns, now);
    // Nothing else comes, and its time does.
    store.append(vec![one(&gpu, soon, Some(3.0), None)]).await.unwrap();
    let version = store.version();
    wait_for(&store, |store| store.fleet().gpus[0].last_seen_ns == soon).await;
    assert!(store.version() > version && clock::now_ns() >= soon);
    assert_eq!(rows_of(&store, everything()).answer.total, Some(3));
}

#[tokio::test]
async fn the_longest_silent_gpus_leave_the_latest_state_and_their_rows_stay() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetBounds { gpus_max: 2, ..FleetBounds::default() };
    let config = || StoreConfig { fleet, ..quiet(dir.path()) };
    let (store, _) = Store::open(config()).unwrap();
    for (second, gpu) in [(1, "GPU-1"), (2, "GPU-2"), (3, "GPU-3"), (4, "GPU-4")] {
        let gpu = identity(&[(IdentityColumn::Uuid, gpu)], None);
        store.append(vec![one(&gpu, HOUR + second * SECOND, Some(1.0), None)]).await.unwrap();
    }
    let held = |store: &Store| {
        let fleet = store.fleet();
        fleet.gpus.iter().map(|gpu| gpu.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(held(&store), ["GPU-3", "GPU-4"]);
    assert_eq!((store.stats().gpus, store.stats().gpus_forgotten), (2, 2));
    assert_eq!(rows_of(&store, everything()).answer.total, Some(4));
    store.close().await.unwrap();
    drop(store);
    let (store, _) = Store::open(config()).unwrap();
    assert_eq!(held(&store), ["GPU-3", "GPU-4"]);
}
