//! Requests as they wait: in the version that the receiver speaks, compressed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use gpuvitals_core::clock;
use prost::Message as _;

use super::message::Request;
use crate::receiver::Packed;

/// How often metrics are described to a receiver of 1.0.
const DESCRIBE_EVERY: Duration = Duration::from_mins(10);

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// 1.0, whose body is a `prometheus.WriteRequest`.
    One,
    /// 2.0, whose body is an `io.prometheus.write.v2.Request`.
    Two,
}

/// The families that were described to a receiver of 1.0, since a time. With 2.0 each request describes its own.
#[derive(Debug, Default)]
pub(super) struct Described {
    since: Option<Instant>,
    families: HashSet<String>,
}

impl Described {
    /// Those that were described in the last minutes.
    fn lately(&mut self) -> &mut HashSet<String> {
        let now = clock::instant();
        if self.since.is_none_or(|since| now.duration_since(since) >= DESCRIBE_EVERY) {
            *self = Self { since: Some(now), families: HashSet::new() };
        }
        &mut self.families
    }
}

/// A request in this version. None if it is too long for the compression, which is 4 GiB.
pub(super) fn pack(
    request: &Request,
    version: Version,
    described: &mut Described,
) -> Option<Packed<Version>> {
    let body = match version {
        Version::One => compressed(&request.for_version_1(described.lately()).encode_to_vec()),
        Version::Two => compressed(&request.encode_to_vec()),
    };
    Some(Packed {
        body: body?.into(),
        form: version,
        samples: request.timeseries.len().try_into().unwrap_or(u64::MAX),
        newest_ms: request.newest_ms(),
    })
}

/// The body of a request of 2.0 for a receiver of 1.0. Only those are written anew that waited when it said so. Each describes
/// its metrics, since it may be the first that is taken. None if it is no request.
pub(super) fn older(body: &[u8]) -> Option<Vec<u8>> {
    let plain = snap::raw::Decoder::new().decompress_vec(body).ok()?;
    let request = Request::decode(plain.as_slice()).ok()?;
    compressed(&request.for_version_1(&mut HashSet::new()).encode_to_vec())
}

/// As Snappy's block format has it.
fn compressed(plain: &[u8]) -> Option<Vec<u8>> {
    snap::raw::Encoder::new().compress_vec(plain).ok()
}
