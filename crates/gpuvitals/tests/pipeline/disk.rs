//! A full disk: nothing is acknowledged, the state is `degraded` with the reason, and it recovers.

use std::fmt::Write as _;
use std::io::Write;
use std::process::Command;

use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::small_disk::SmallDisk;
use gpuvitals_rig::waiting;

use crate::server::Server;

/// More than the log has zero-filled ahead.
const ROWS: u64 = 260_000;

#[test]
fn a_full_disk_degrades_and_recovers_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let Some(mount) = SmallDisk::mount(&disk, "96m") else { return };
    // The header and a row are needed before anything is opened.
    let mut begun = b"timestamp,uuid,power_w,noise_a,noise_b,noise_c\n".to_vec();
    write_rows(&mut begun, 0..1);
    let mut server = Server::start_fed(&disk.join("data"), &["--csv", "-"], &begun);
    let mut input = server.child.stdin.take().unwrap();
    write_rows(&mut input, 1..30_000);
    server.until("/stats", "the first rows", |stats| stats["source"]["rows_stored"].as_u64() > Some(0));

    // Fill the disk to its last byte, then send the rest.
    let ballast = disk.join("ballast");
    let filled = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", ballast.display()))
        .finished();
    assert!(!filled.unwrap().status.success(), "dd stops when the disk is full");
    let writer = std::thread::spawn(move || write_rows(&mut input, 30_000..ROWS));
    let health = server.until("/health", "degraded", |health| health["collector"]["status"] == "degraded");
    let reason = health["collector"]["reason"].as_str().unwrap();
    assert!(reason.contains("No space left"), "{reason}");
    assert_eq!(health["status"], "degraded");
    assert!(
        server.get("/stats")["source"]["rows_stored"].as_u64() < Some(ROWS),
        "nothing more is acknowledged"
    );

    std::fs::remove_file(&ballast).unwrap();
    let stats =
        server.until("/stats", "all rows", |stats| stats["source"]["rows_stored"].as_u64() == Some(ROWS));
    waiting::within("the end of the writer", move || writer.join().unwrap());
    assert_eq!(stats["topics"]["gpu-telemetry"]["dead"], 0, "nothing was given up on");
    server.until("/health", "healthy again", |health| health["status"] == "healthy");
    let total = |server: &Server| server.get("/api/v1/telemetry?limit=1")["total"].as_u64();
    assert_eq!(total(&server), Some(ROWS));
    server.kill();

    let server = Server::start(&disk.join("data"), &[]);
    assert_eq!(total(&server), Some(ROWS), "after a kill all of it is there, once");
    drop(server);
    drop(mount);
}

/// Rows that do not compress well.
fn write_rows(input: &mut impl Write, rows: std::ops::Range<u64>) {
    let mut text = String::new();
    for row in rows {
        let noise = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let power = f64::from(u32::try_from(noise >> 44).unwrap()) / 2000.0;
        let (a, b) = (noise, noise.rotate_left(21) ^ row);
        let (second, milli, gpu) = (1_767_225_600 + row / 1000, row % 1000, row % 8);
        writeln!(
            text,
            "{second}.{milli:03},GPU-{gpu},{power:.3},0.{a:020},0.{b:020},0.{:020}",
            a ^ b.rotate_left(40)
        )
        .unwrap();
    }
    input.write_all(text.as_bytes()).unwrap();
}
