//! Bodies of requests: received and unpacked within bounds, whoever sends them.

use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::{Refusal, echo};

/// How much is unpacked before it is counted again.
const STEP: usize = 64 << 10;
/// Largest window of a zstd body, as RFC 9659 has it: 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// How much of a body that is refused is still received and thrown away, so that the client reads the answer.
const DISCARD_MAX: usize = 16 << 20;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Bytes that all bodies together may take, and messages of gRPC that have come in part.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
    all: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let all = bytes.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all }
    }

    /// Bytes that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// A share of nothing, which can grow.
    pub(crate) fn share(&self) -> Share {
        Share { budget: Arc::clone(&self.free), held: None }
    }
}

/// The bytes that a request takes of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Takes so much, whatever it took before.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes < held {
            self.clear();
            return self.grow(bytes);
        }
        self.grow(bytes - held)
    }

    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        self.held = None;
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        let bytes = u32::try_from(bytes).map_err(|_| Refusal::Overloaded)?;
        let more = Arc::clone(&self.budget).try_acquire_many_owned(bytes).map_err(|_| Refusal::Overloaded)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Receives a whole body of at most `limit` bytes.
pub(crate) async fn receive(body: &mut Body, limit: usize, share: &mut Share) -> Result<Bytes, Refusal> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > limit {
        return Err(Refusal::BodyTooLarge(limit));
    }
    let mut whole = Vec::new();
    while let Some(part) = body.frame().await {
        let Ok(data) = part.map_err(|_| Refusal::BodyCut)?.into_data() else { continue };
        if data.len() > limit - whole.len() {
            return Err(Refusal::BodyTooLarge(limit));
        }
        share.grow(data.len())?;
        if whole.is_empty() && data.len() == expected {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

/// Receives what is left of a refused body, within bounds: a client that still sends when the connection closes would
/// not read why.
pub(crate) async fn discard(body: &mut Body) {
    let rest = async {
        let mut left = DISCARD_MAX;
        while let Some(Ok(part)) = body.frame().await {
            let len = part.data_ref().map_or(0, Bytes::remaining);
            match left.checked_sub(len) {
                Some(less) => left = less,
                None => return,
            }
        }
    };
    // Over time or not: the answer goes out.
    let _in_time = tokio::time::timeout(DISCARD_TIME, rest).await.is_ok();
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
