//! The look-alike follows its rules.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::JoinHandle;

use gpuvitals_rig::faulty_sysfs::FaultySysfs;
use gpuvitals_rig::waiting;
use rustix::io::Errno;
use serde_json::json;

const DEVICE: &str = "/class/drm/card0/device";
const TABLE: &str = "/class/drm/card0/device/gpu_metrics";

fn captured() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs/rx6900xt")
}

fn content(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let len = file.read_at(&mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn each_rule_is_in_force_when_it_is_answered() {
    let Some(mut sysfs) = FaultySysfs::over(&captured()) else { return };
    let path = sysfs.path().join(&TABLE[1..]);
    let whole = std::fs::read(captured().join(&TABLE[1..])).unwrap();
    let file = File::open(&path).unwrap();
    assert_eq!(content(&file).unwrap(), whole);
    sysfs.tell(json!({"path": TABLE, "text": "12\n"}));
    assert_eq!(content(&file).unwrap(), b"12\n");
    sysfs.tell(json!({"path": TABLE, "bytes": [0, 255]}));
    assert_eq!(content(&file).unwrap(), [0, 255]);
    sysfs.tell(json!({"path": TABLE, "keep": 7}));
    assert_eq!(content(&file).unwrap(), whole[..7]);
    sysfs.tell(json!({"path": TABLE, "stamp": 8}));
    let stamps = [(); 2].map(|()| content(&file).unwrap()[8..16].to_vec());
    let [first, second] = stamps.map(|stamp| u64::from_le_bytes(stamp.try_into().unwrap()));
    assert!(0 < first && first < second, "{first} {second}");
    sysfs.tell(json!({"path": TABLE, "read": Errno::IO.raw_os_error()}));
    assert_eq!(errno(content(&file)), Some(Errno::IO));
    sysfs.tell(json!({"path": TABLE, "open": Errno::PERM.raw_os_error()}));
    assert_eq!(errno(File::open(&path)), Some(Errno::PERM));
    assert_eq!(content(&file).unwrap(), whole, "what is open is not opened");
    sysfs.tell(json!({"path": TABLE}));
    assert_eq!(content(&File::open(&path).unwrap()).unwrap(), whole);
}

#[test]
fn what_is_unplugged_is_gone_and_what_was_open_of_it_stays_dead() {
    let Some(mut sysfs) = FaultySysfs::over(&captured()) else { return };
    let path = sysfs.path().join(&TABLE[1..]);
    let before = File::open(&path).unwrap();
    sysfs.tell(json!({"unplug": [DEVICE]}));
    assert_eq!(errno(content(&before)), Some(Errno::NODEV));
    assert_eq!(errno(File::open(&path)), Some(Errno::NOENT));
    let card = sysfs.path().join("class/drm/card0");
    assert!(std::fs::read_dir(&card).unwrap().all(|entry| entry.unwrap().file_name() != "device"));
    sysfs.tell(json!({"plug": [DEVICE]}));
    assert_eq!(errno(content(&before)), Some(Errno::NODEV));
    assert!(content(&File::open(&path).unwrap()).is_ok());
}

/// What a reader found, once its file lets it go.
fn let_go<T>(reader: JoinHandle<T>) -> T {
    waiting::until("the end of the reader", || reader.is_finished(), |is_finished| *is_finished);
    reader.join().unwrap()
}

#[test]
fn a_file_that_hangs_holds_its_reader_and_nobody_else() {
    let Some(mut sysfs) = FaultySysfs::over(&captured()) else { return };
    let path = sysfs.path().join(&TABLE[1..]);
    let reads = sysfs.tell(json!({"path": TABLE, "hang": true}));
    let table = path.clone();
    let reader = std::thread::spawn(move || content(&File::open(table).unwrap()).unwrap().len());
    sysfs.tell(json!({"await": TABLE, "reads": reads + 1}));
    let mut vendor = String::new();
    File::open(sysfs.path().join("class/drm/card0/device/vendor"))
        .unwrap()
        .read_to_string(&mut vendor)
        .unwrap();
    let is_finished = reader.is_finished();
    assert_eq!(sysfs.tell(json!({"path": TABLE, "text": "12"})), 1);
    assert_eq!((vendor.trim(), is_finished, let_go(reader)), ("0x1002", false, 2));
    let reads = sysfs.tell(json!({"path": TABLE, "hang": true}));
    let file = File::open(&path).unwrap();
    let reader = std::thread::spawn(move || content(&file));
    sysfs.tell(json!({"await": TABLE, "reads": reads + 1}));
    drop(sysfs);
    assert!(let_go(reader).is_err(), "the end of the look-alike ends what hangs");
}
