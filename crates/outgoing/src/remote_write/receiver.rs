//! One request to the receiver, and the meaning of its answer.

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gpuvitals_core::{causes, clock};
use gpuvitals_listener::client::retry_after;
use gpuvitals_queue::Frame;
use gpuvitals_queue::link::{OutboxReceiver, SendLater};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode};
use prost::Message as _;

use super::message::Request;
use super::settings::{ProtocolVersion, RemoteWriteSettings};
use super::shared::Shared;

/// How often metrics are described to a receiver of 1.0.
const DESCRIBE_EVERY: Duration = Duration::from_mins(10);
/// Longest part of a receiver's message in a log line, bytes.
const ECHO_MAX: u64 = 300;
/// Samples that a receiver of 2.0 has written.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";
/// Names the version of the protocol.
const VERSION: &str = "x-prometheus-remote-write-version";

/// A request as it waits: the time of its newest sample, milliseconds since 1970, and its compressed form of 2.0. None if it is
/// too long for the compression.
pub(crate) fn pack(request: &Request) -> Option<Vec<u8>> {
    let mut packed = request.newest_ms().to_le_bytes().to_vec();
    packed.extend(compressed(&request.encode_to_vec())?);
    Some(packed)
}

/// As Snappy's block format has it; none beyond 4 GiB.
fn compressed(plain: &[u8]) -> Option<Vec<u8>> {
    snap::raw::Encoder::new().compress_vec(plain).ok()
}

/// The receiver, as the outbox sees it.
#[derive(Debug)]
pub(crate) struct Receiver {
    settings: RemoteWriteSettings,
    http: ureq::Agent,
    shared: Arc<Shared>,
    speaks_2: AtomicBool,
    /// The families that were described since then, to a receiver of 1.0.
    described: Mutex<(Option<Instant>, HashSet<String>)>,
}

/// An answer, as far as it is read.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// The beginning of its text.
    text: String,
}

/// What an answer means for the samples of its request.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// So many are written, and the others never will be.
    Settled(u64),
    /// Again, and not before so long, if it says so.
    Later(Option<Duration>),
    /// Again, in version 1.0.
    Older,
}

impl Receiver {
    /// As the settings say.
    pub(crate) fn new(settings: &RemoteWriteSettings, http: ureq::Agent, shared: Arc<Shared>) -> Self {
        if settings.shows_secrets() {
            tracing::warn!(
                "a secret goes over the network in the clear; https:// in remote_write.url does not show it"
            );
        }
        let speaks_2 = AtomicBool::new(settings.protocol != ProtocolVersion::One);
        Self { settings: settings.clone(), http, shared, speaks_2, described: Mutex::default() }
    }

    /// Sends a request until its fate is known, or it has to be sent again later.
    ///
    /// # Errors
    /// When it has to be sent again.
    async fn deliver(&self, samples: u64, packed: &Bytes) -> Result<(), SendLater> {
        loop {
            let is_2 = self.speaks_2.load(Ordering::Relaxed);
            let Some(body) = self.body(packed, is_2) else {
                self.shared.counts.answered(0, samples);
                tracing::error!(samples, "a request of remote write cannot be written; a bug");
                return Ok(());
            };
            let answer = self.post(body, is_2).await?;
            match verdict(&answer, is_2, self.settings.protocol, samples) {
                Verdict::Settled(written) => {
                    self.settled(&answer, written.min(samples), samples);
                    return Ok(());
                }
                Verdict::Later(retry_after) => {
                    return Err(SendLater { reason: answer.reason().into(), retry_after });
                }
                Verdict::Older => {
                    self.speaks_2.store(false, Ordering::Relaxed);
                    tracing::info!(status = %answer.status, "the receiver does not take remote write 2.0; 1.0 is spoken");
                }
            }
        }
    }

    fn settled(&self, answer: &Answer, written: u64, samples: u64) {
        let counts = &self.shared.counts;
        counts.answered(written, samples - written);
        if written < samples {
            counts.refused(samples - written, &answer.reason());
        } else {
            counts.accepted();
        }
    }

    /// The body of a waiting request; none if it is not one.
    fn body(&self, packed: &Bytes, is_2: bool) -> Option<Vec<u8>> {
        if is_2 {
            return Some(packed.to_vec());
        }
        let plain = snap::raw::Decoder::new().decompress_vec(packed).ok()?;
        let request = Request::decode(plain.as_slice()).ok()?;
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        if described.0.is_none_or(|since| clock::instant().duration_since(since) >= DESCRIBE_EVERY) {
            *described = (Some(clock::instant()), HashSet::new());
        }
        compressed(&request.for_version_1(&mut described.1).encode_to_vec())
    }

    /// # Errors
    /// When no answer comes, or a file with a secret cannot be used.
    async fn post(&self, body: Vec<u8>, is_2: bool) -> Result<Answer, SendLater> {
        let unavailable = |reason: String| SendLater { reason: reason.into(), retry_after: None };
        let mut headers = self.settings.headers().map_err(|error| unavailable(causes(&error)))?;
        let (content, version) = if is_2 {
            ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0")
        } else {
            ("application/x-protobuf", "0.1.0")
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(VERSION, HeaderValue::from_static(version));
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("gpuvitals/", env!("CARGO_PKG_VERSION"))));
        self.shared.counts.goes_out(body.len());
        let (http, url) = (self.http.clone(), self.settings.url.clone());
        // The client blocks, for its timeout at most.
        let posting = tokio::task::spawn_blocking(move || {
            let mut request = http::Request::post(url).body(body)?;
            *request.headers_mut() = headers;
            let (head, mut body) = http.run(request)?.into_parts();
            let mut text = Vec::new();
            // Its beginning says enough, and the status more.
            let _cut_off = body.as_reader().take(ECHO_MAX).read_to_end(&mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok::<_, ureq::Error>(Answer { status: head.status, headers: head.headers, text })
        });
        let answer = posting.await.map_err(|error| unavailable(error.to_string()))?;
        answer.map_err(|error| unavailable(causes(&error)))
    }
}

impl OutboxReceiver for Receiver {
    async fn send(&self, frame: Frame) -> Result<(), SendLater> {
        let samples = u64::from(frame.count);
        if let Some((newest_ms, packed)) = unpack(&frame.payload) {
            let age_ms = (clock::now_ns() / 1_000_000).saturating_sub(newest_ms);
            if u128::try_from(age_ms).is_ok_and(|age_ms| age_ms > self.settings.max_age.as_millis()) {
                self.shared.counts.too_old(samples);
            } else {
                self.deliver(samples, &packed).await?;
            }
        }
        Ok(())
    }
}

/// The parts of a packed request.
fn unpack(payload: &Bytes) -> Option<(i64, Bytes)> {
    let (newest_ms, _) = payload.split_first_chunk()?;
    Some((i64::from_le_bytes(*newest_ms), payload.slice(newest_ms.len()..)))
}

impl Answer {
    /// The status, and what else it says; of a denial only the status, since the text may repeat what was sent.
    fn reason(&self) -> String {
        let line = self.text.lines().next().unwrap_or_default().trim();
        match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.status.to_string(),
            status if line.is_empty() => status.to_string(),
            status => format!("{status}: {line}"),
        }
    }

    /// Samples that are written, if it says so.
    fn written(&self) -> Option<u64> {
        self.headers.get(WRITTEN)?.to_str().ok()?.trim().parse().ok()
    }
}

/// What an answer to so many samples means.
fn verdict(answer: &Answer, is_2: bool, wanted: ProtocolVersion, samples: u64) -> Verdict {
    let may_speak_1 = is_2 && wanted == ProtocolVersion::Auto;
    let status = answer.status;
    if status.is_success() {
        return match answer.written() {
            Some(written) if is_2 => Verdict::Settled(written),
            // A receiver of 1.0 that does not look at the type finds an empty request, and is content.
            None if may_speak_1 => Verdict::Older,
            None if is_2 => Verdict::Settled(0),
            _ => Verdict::Settled(samples),
        };
    }
    match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE if may_speak_1 => Verdict::Older,
        StatusCode::TOO_MANY_REQUESTS => Verdict::Later(retry_after(&answer.headers)),
        _ if status.is_server_error() => Verdict::Later(retry_after(&answer.headers)),
        _ => Verdict::Settled(answer.written().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)]) -> Answer {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            text: String::new(),
        }
    }

    #[test]
    fn an_answer_settles_a_request_or_has_it_sent_again() {
        use ProtocolVersion::{Auto, One, Two};
        let wrote = |samples| [(WRITTEN, samples)];
        let after = |time| [("retry-after", time)];
        for (status, headers, is_2, wanted, verdict_) in [
            (204, &[][..], false, One, Verdict::Settled(9)),
            (204, &[], false, Auto, Verdict::Settled(9)),
            (204, &wrote("9"), true, Auto, Verdict::Settled(9)),
            (200, &wrote("7"), true, Two, Verdict::Settled(7)),
            (204, &[], true, Auto, Verdict::Older),
            (204, &[], true, Two, Verdict::Settled(0)),
            (415, &[], true, Auto, Verdict::Older),
            (415, &[], true, Two, Verdict::Settled(0)),
            (415, &[], false, Auto, Verdict::Settled(0)),
            (400, &wrote("5"), true, Auto, Verdict::Settled(5)),
            (400, &[], false, One, Verdict::Settled(0)),
            (401, &[], true, Auto, Verdict::Settled(0)),
            (302, &[], true, Auto, Verdict::Settled(0)),
            (500, &[], true, Auto, Verdict::Later(None)),
            (429, &after("7"), true, Auto, Verdict::Later(Some(Duration::from_secs(7)))),
            (503, &after("Sun, 06 Nov 1994 08:49:37 GMT"), false, One, Verdict::Later(Some(Duration::ZERO))),
            (429, &after("soon"), true, Auto, Verdict::Later(None)),
        ] {
            let answer = answer(status, headers);
            assert_eq!(verdict(&answer, is_2, wanted, 9), verdict_, "{answer:?} {wanted:?}");
        }
    }
}
