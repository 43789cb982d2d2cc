//! The row that every contestant carries: 270 bytes of JSON, of which only number and time vary.

use bytes::Bytes;

/// Bytes of a row.
pub(crate) const LEN: usize = 270;
/// Digits of number and time.
const DIGITS: usize = 20;
const TIME_AT: usize = 34;

/// A row with this number, published at this time (nanoseconds of the bench's clock).
pub(crate) fn row(number: u64, at_ns: u64) -> Vec<u8> {
    let head = format!(
        "{{\"id\":\"{number:020}\",\"t\":\"{at_ns:020}\",\"host\":\"gpu-node-0042\",\"uuid\":\"GPU-5fd4f087-86f3-7a43-b711-\
         4771313afc50\",\"model\":\"NVIDIA H100 80GB HBM3\",\"fields\":{{\"utilization_pct\":97,\"power_w\":683.4,\
         \"temperature_c\":64,\"memory_used_mb\":71234"
    );
    let mut text = head.into_bytes();
    text.extend_from_slice(b",\"pad\":\"");
    text.resize(LEN - 3, b'x');
    text.extend_from_slice(b"\"}}");
    text
}

/// The time of a row: of the first of an array, too.
pub(crate) fn published_ns(row: &[u8]) -> Option<u64> {
    let at = row.iter().position(|&byte| byte == b'{')? + TIME_AT;
    std::str::from_utf8(row.get(at..at + DIGITS)?).ok()?.parse().ok()
}

/// Rows as one JSON array.
pub(crate) fn array(rows: &[Vec<u8>]) -> Bytes {
    let mut text = Vec::with_capacity(rows.len() * (LEN + 1) + 1);
    for row in rows {
        text.push(if text.is_empty() { b'[' } else { b',' });
        text.extend_from_slice(row);
    }
    text.push(b']');
    text.into()
}
