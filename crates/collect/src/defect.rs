//! A panic while a frame is decoded or stored: a defect that costs only that frame.
//!
//! Such a frame is rejected. Otherwise it would be delivered again, and end this process after each start.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt as _;

/// Does something with a frame; a panic is the reason why that is impossible.
///
/// # Errors
/// The error of the work, or its panic in words.
pub(super) fn caught<T>(doing: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(in_words(doing, &*panic)))
}

/// The same for work that waits.
///
/// # Errors
/// The panic in words.
pub(super) async fn caught_later<T>(doing: &str, work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| in_words(doing, &*panic))
}

fn in_words(doing: &str, panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().copied();
    let words = literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "a defect of the collector: it panicked while {doing} the frame: {}",
        words.unwrap_or("no message")
    )
}
