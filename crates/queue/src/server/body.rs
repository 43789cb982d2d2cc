//! Bodies of requests, unpacked within bounds.

use std::io::{BufRead, Read};

use bytes::Bytes;
use gpuvitals_listener::body::Share;
use gpuvitals_listener::echo;
use utoipa::ToSchema;

use super::refusal::Refusal;

/// How much is unpacked before it is counted again.
const STEP: usize = 64 << 10;
/// Largest window of a zstd body, as RFC 9659 has it: 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase", default = json!("identity"))]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    /// Reads a `content-encoding`.
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            _ => Err(Refusal::Coding(echo(text))),
        }
    }
}

/// Unpacks a body to at most `limit` bytes.
pub(crate) fn unpack(body: Bytes, coding: Coding, limit: usize, share: &mut Share) -> Result<Bytes, Refusal> {
    match coding {
        Coding::Identity => Ok(body),
        Coding::Gzip => read_all(flate2::bufread::MultiGzDecoder::new(body.as_ref()), "gzip", limit, share),
        Coding::Zstd => read_all(unzstd(body.as_ref())?, "zstd", limit, share),
    }
}

/// Unpacks with a bound on the memory that it takes.
pub(crate) fn unzstd<R: BufRead>(packed: R) -> Result<zstd::stream::read::Decoder<'static, R>, Refusal> {
    let broken = |_| Refusal::Packing { coding: "zstd" };
    let mut unpacking = zstd::stream::read::Decoder::with_buffer(packed).map_err(broken)?;
    unpacking.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(broken)?;
    Ok(unpacking)
}

fn read_all(
    mut packed: impl Read,
    coding: &'static str,
    limit: usize,
    share: &mut Share,
) -> Result<Bytes, Refusal> {
    let mut whole = Vec::new();
    loop {
        share.grow(STEP)?;
        let before = whole.len();
        let step = u64::try_from(STEP).unwrap_or(u64::MAX);
        packed.by_ref().take(step).read_to_end(&mut whole).map_err(|_| Refusal::Packing { coding })?;
        if whole.len() > limit {
            return Err(Refusal::UnpacksTooLarge(limit));
        }
        if whole.len() - before < STEP {
            return Ok(whole.into());
        }
    }
}
