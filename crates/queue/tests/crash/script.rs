//! One script, cut off at every call to the disk.

use gpuvitals_log::fault::{Fault, FaultDisk};
use gpuvitals_queue::{FrameDurability, QueueConfig};

use crate::dice::Dice;
use crate::life::{Harm, Life, config};

fn setting() -> QueueConfig {
    QueueConfig {
        spare_segments: 0,
        segment_len: 4 << 10,
        memory_max: 1 << 20,
        unwritten_max: 16 << 20,
        durability: FrameDurability::Synced,
        ..config(&mut Dice(1))
    }
}

/// About twenty operations: both topics, dead letters that come back, segments that fill.
async fn play(disk: FaultDisk) -> Option<Life> {
    let mut life = Life::begin(disk, setting()).await?;
    life.publish("busy", &[3, 1, 2], true).await;
    life.receive(0).await;
    life.receive(1).await;
    life.answer(0).await;
    life.answer(0).await;
    life.publish("quiet", &[2, 2], true).await;
    life.answer(5).await;
    life.publish("busy", &[6, 5], true).await;
    life.take_dead("busy", true).await;
    for who in 0..4 {
        life.receive(who).await;
        life.answer(7).await;
        life.answer(1).await;
    }
    for _ in 0..4 {
        life.publish("busy", &[1, 4, 1], true).await;
    }
    life.publish("quiet", &[1], false).await;
    life.publish("busy", &[2], true).await;
    life.take_dead("busy", false).await;
    Some(life)
}

/// How many calls to the disk the script makes.
pub(crate) fn calls() -> u64 {
    let disk = FaultDisk::new();
    let played = disk.clone();
    crate::on_a_runtime(async move {
        play(played).await.expect("a disk without faults");
    });
    disk.calls_all()
}

/// The power goes off at the `at`-th call.
pub(crate) async fn cut_off_at(at: u64, seed: u64) {
    let disk = FaultDisk::new();
    disk.fail_call(None, at, Fault::PowerOff);
    if let Some(mut life) = play(disk.clone()).await {
        let crashed = life.crash(seed);
        life.begin_again(crashed, Harm::None).await;
    }
}
