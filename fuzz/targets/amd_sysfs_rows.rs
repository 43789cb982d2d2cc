//! Any two `gpu_metrics` tables, one after the other, through the whole AMD probe: units, rates, partitions.
#![no_main]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

use gpuvitals_sources::dialect::amd_sysfs;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Due, Reading};
use libfuzzer_sys::fuzz_target;

/// A machine of one MI300X of which nothing is known but its table.
static PLACE: LazyLock<(Machine, File)> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("gpuvitals-fuzz-{}", std::process::id()));
    let device = root.join("sys/class/drm/card0/device");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("uevent"), "DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:05:00.0\n")
        .unwrap();
    let table = File::create(device.join("gpu_metrics")).unwrap();
    let [sysfs, procfs, dev] = ["sys", "proc", "dev"].map(|name| root.join(name));
    (Machine { sysfs, procfs, dev, node: Arc::from("node") }, table)
});

fuzz_target!(|bytes: &[u8]| {
    let (machine, table) = &*PLACE;
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut probes = amd_sysfs::find(machine).probes;
    let probe = probes.first_mut().expect("the card is found without its table");
    let mut reading = Reading::default();
    for (half, due) in [(first, Due::ALL), (second, Due::default()), (first, Due::ALL)] {
        table.set_len(0).unwrap();
        table.write_all_at(half, 0).unwrap();
        reading.clear();
        if probe.read(due, &mut reading).is_err() {
            continue;
        }
        let mut keys = BTreeSet::new();
        for row in reading.rows() {
            assert!(keys.insert(row.identity().key()), "one row each");
            for (metric, value) in row.values() {
                assert!(value.as_f64().is_finite(), "{metric:?} {value:?}");
            }
        }
    }
});
