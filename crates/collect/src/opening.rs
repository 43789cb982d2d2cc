//! Opening frames: here bytes from anyone become rows.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use gpuvitals_core::batch::text_at;
use gpuvitals_core::time::{AHEAD_MAX_NS, FUTURE_MAX_NS};
use gpuvitals_core::{Batch, IdentityColumn, Origin, causes, message, wire};
use gpuvitals_queue::{ContentType, Delivery, Encoding, Frame};

use crate::{CollectorProgress, bad};

/// Refused messages of one document that are logged one by one; all are counted.
const REFUSALS_LOGGED: usize = 5;
/// Largest window of a compressed payload, as a power of 2: the memory for unpacking in addition to the
/// result.
const WINDOW_LOG_MAX: u32 = 23;

/// The contents of a frame.
pub(super) struct Opened {
    /// The rows; none if no row is acceptable.
    pub rows: Option<Batch>,
    /// Dead letters of the others.
    pub bad: Vec<Frame>,
}

/// Opens a frame for the collector's group at `now_ns` (nanoseconds UTC since 1970). Rows whose time is more than
/// [`FUTURE_MAX_NS`] ahead are bad.
///
/// # Errors
/// The reason why it can never be stored, in words.
pub(super) fn open(
    delivery: &Delivery,
    group: &str,
    now_ns: i64,
    progress: &CollectorProgress,
) -> Result<Opened, String> {
    let payload = unpacked(&delivery.frame)?;
    let mut letters = Vec::new();
    let batch = match delivery.frame.content_type {
        ContentType::Batch => wire::decode_keeping(&payload).map_err(|e| causes(&e))?,
        ContentType::Json => {
            let origin = Origin { node: Arc::clone(&delivery.topic), started_ns: 0 };
            let parsed = message::parse(&payload, origin, delivery.id.offset).map_err(|e| causes(&e))?;
            for (index, error) in parsed.refused.iter().take(REFUSALS_LOGGED) {
                tracing::warn!(offset = delivery.id.offset, index, %error, "message refused");
            }
            progress.messages_refused.fetch_add(parsed.refused.len() as u64, Ordering::Relaxed);
            for (index, error) in &parsed.invalid {
                tracing::debug!(offset = delivery.id.offset, index, %error, "value left out");
            }
            progress.values_invalid.fetch_add(parsed.invalid.len() as u64, Ordering::Relaxed);
            let Some(batch) = parsed.batch else { return Err("no message in it can be stored".to_owned()) };
            letters.extend(bad::messages(delivery, group, &payload, &parsed.refused)?);
            batch
        }
    };
    let (kept, ahead) = split(&batch, now_ns.saturating_add(FUTURE_MAX_NS));
    if let Some(ahead) = ahead {
        progress.rows_future.fetch_add(ahead.rows() as u64, Ordering::Relaxed);
        letters.push(bad::ahead(delivery, group, &ahead)?);
    }
    if let Some(kept) = &kept {
        count_ahead(kept, now_ns.saturating_add(AHEAD_MAX_NS), progress);
    }
    Ok(Opened { rows: kept, bad: letters })
}

/// Counts the rows with times after `limit_ns`, by host.
fn count_ahead(batch: &Batch, limit_ns: i64, progress: &CollectorProgress) {
    let times = batch.timestamps();
    if times.iter().all(|time| *time <= limit_ns) {
        return;
    }
    let hosts = batch.identity_column(IdentityColumn::Node);
    let mut rows: BTreeMap<&str, u64> = BTreeMap::new();
    for (row, _) in times.iter().enumerate().filter(|(_, time)| **time > limit_ns) {
        let host = hosts.and_then(|hosts| text_at(hosts, row)).unwrap_or_default();
        *rows.entry(host).or_default() += 1;
    }
    for (host, rows) in rows {
        progress.ahead(host, rows);
    }
}

/// The unpacked payload. A few bytes can unpack to any size, so there is a bound.
///
/// # Errors
/// The reason why it cannot be unpacked, in words.
pub fn unpacked(frame: &Frame) -> Result<Bytes, String> {
    if frame.encoding == Encoding::Identity {
        return Ok(frame.payload.clone());
    }
    let max = match frame.content_type {
        ContentType::Batch => wire::BODY_LEN_MAX,
        ContentType::Json => message::DOCUMENT_LEN_MAX,
    };
    let damaged = |error| format!("the payload does not unpack: {error}");
    let mut decoder = zstd::Decoder::with_buffer(frame.payload.as_ref()).map_err(damaged)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(damaged)?;
    let mut whole = Vec::new();
    decoder.take(max as u64 + 1).read_to_end(&mut whole).map_err(damaged)?;
    if whole.len() > max {
        return Err(format!("the payload unpacks to more than {max} bytes"));
    }
    Ok(whole.into())
}

/// The rows with times up to `latest_ns`, and the others.
fn split(batch: &Batch, latest_ns: i64) -> (Option<Batch>, Option<Batch>) {
    let keep: Vec<bool> = batch.timestamps().iter().map(|&t| t <= latest_ns).collect();
    let others: Vec<bool> = keep.iter().map(|kept| !kept).collect();
    (batch.filter(&keep), batch.filter(&others))
}
