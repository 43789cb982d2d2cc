//! Memory that the allocator holds though nothing uses it goes back to the system.
//!
//! glibc keeps what was freed in an arena for each thread. A flush of a thousand GPUs, or a page's list of them, takes hundreds of
//! megabytes for a moment; without this a service keeps them for good.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "malloc_trim is a function of the C library"))]

use std::time::Duration;

use gpuvitals_core::figures::resident_bytes;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// Growth since the last time that is worth the work at once, and the size below which nothing is, bytes.
const WORTH: u64 = 48 << 20;
/// After so many looks it is done without growth: what was in use at the last time may be free by now, and would be kept for good.
const LOOKS: u32 = 12;

/// Gives memory back as long as the runtime lives.
pub(crate) async fn give_back() {
    let (mut left, mut looks) = (0, 0);
    loop {
        tokio::time::sleep(PAUSE).await;
        looks += 1;
        let taken = resident_bytes().unwrap_or(0);
        if taken < WORTH || (taken.saturating_sub(left) < WORTH && looks < LOOKS) {
            continue;
        }
        looks = 0;
        // It looks through all of the heap.
        if tokio::task::spawn_blocking(trim).await.is_err() {
            return;
        }
        left = resident_bytes().unwrap_or(taken);
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes no pointer, and the C library locks its arenas itself.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give back by themselves, or cannot be asked.
#[cfg(not(target_env = "gnu"))]
fn trim() {}
