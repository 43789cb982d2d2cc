//! A full disk: nothing is acknowledged, the state is `degraded` with the reason, and it recovers.

use std::path::Path;
use std::process::Command;

use crate::server::Server;

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_degrades_and_recovers_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(&disk).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this machine lets nobody mount a small disk: {mounted:?}");
        return;
    }
    let mount = Mounted(&disk);
    let server =
        Server::start(&disk.join("data"), &["--source", "simulated", "--gpus", "64", "--hosts", "8"]);
    server.until("/stats", "the first rows", |stats| stats["source"]["rows_stored"].as_u64() > Some(0));

    // Fill the disk to its last byte.
    let ballast = disk.join("ballast");
    let filled =
        Command::new("dd").args(["if=/dev/zero", "bs=64k"]).arg(format!("of={}", ballast.display())).output();
    assert!(!filled.unwrap().status.success(), "dd stops when the disk is full");
    let health = server.until("/health", "degraded", |health| health["collector"]["status"] == "degraded");
    let reason = health["collector"]["reason"].as_str().unwrap();
    assert!(reason.contains("No space left"), "{reason}");
    assert_eq!(health["status"], "degraded");
    let stuck = server.get("/stats")["source"]["rows_stored"].as_u64();

    std::fs::remove_file(&ballast).unwrap();
    server.until("/health", "healthy again", |health| health["status"] == "healthy");
    let stats = server.until("/stats", "more rows", |stats| stats["source"]["rows_stored"].as_u64() > stuck);
    assert_eq!(stats["topics"]["gpu-telemetry"]["dead"], 0, "nothing was given up on");
    assert_eq!(server.terminate(), Some(0));
    drop(mount);
}
