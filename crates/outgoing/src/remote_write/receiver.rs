//! A receiver of remote write: what is new becomes requests in the version that it speaks, sent by HTTP.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use gpuvitals_core::{causes, clock};
use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};

use super::answer::{AskedVersion, ReceiverAnswer};
use super::packing::{Described, Version, older, pack};
use super::series::Tracker;
use super::settings::{ProtocolVersion, RemoteWriteSettings};
use crate::counts::{ReceiverCounts, add};
use crate::families::FamilyParts;
use crate::receiver::{Packed, Receiver};
use crate::verdict::{Standing, Verdict};

/// Longest part of a receiver's message in a log line, bytes.
const ECHO_MAX: u64 = 300;
/// Names the version of the protocol.
const VERSION: &str = "x-prometheus-remote-write-version";

/// The receiver that the settings name.
#[derive(Debug)]
pub(super) struct PrometheusReceiver {
    settings: RemoteWriteSettings,
    http: ureq::Agent,
    counts: ReceiverCounts,
    speaks_2: AtomicBool,
    told: Mutex<Told>,
}

/// What the receiver has been sent.
#[derive(Debug)]
struct Told {
    tracker: Tracker,
    described: Described,
}

impl PrometheusReceiver {
    /// As the settings say; `origin` is the node's name.
    pub(super) fn new(settings: &RemoteWriteSettings, http: ureq::Agent, origin: &str) -> Self {
        if settings.shows_secrets() {
            tracing::warn!(
                "a secret goes over the network in the clear; https:// in remote_write.url does not show it"
            );
        }
        let tracker = Tracker::new(settings.external(origin), now_ms());
        Self {
            settings: settings.clone(),
            http,
            counts: ReceiverCounts::default(),
            speaks_2: AtomicBool::new(settings.protocol != ProtocolVersion::One),
            told: Mutex::new(Told { tracker, described: Described::default() }),
        }
    }

    /// The version that is spoken now, and whether it is a question.
    fn asked(&self) -> AskedVersion {
        match self.settings.protocol {
            _ if !self.speaks_2.load(Ordering::Relaxed) => AskedVersion::One,
            ProtocolVersion::Auto => AskedVersion::TwoFirst,
            ProtocolVersion::One | ProtocolVersion::Two => AskedVersion::Two,
        }
    }

    fn version(&self) -> Version {
        if self.asked() == AskedVersion::One { Version::One } else { Version::Two }
    }

    /// # Errors
    /// When no answer comes, or a file with a secret cannot be used.
    async fn post(&self, body: Bytes, asked: AskedVersion) -> Result<ReceiverAnswer, String> {
        let mut headers = self.settings.headers().map_err(|error| causes(&error))?;
        let (content, version) = match asked {
            AskedVersion::One => ("application/x-protobuf", "0.1.0"),
            AskedVersion::Two | AskedVersion::TwoFirst => {
                ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0")
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(VERSION, HeaderValue::from_static(version));
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("gpuvitals/", env!("CARGO_PKG_VERSION"))));
        self.counts.goes_out(body.len());
        let (http, url) = (self.http.clone(), self.settings.url.clone());
        // The client blocks, for its timeout at most.
        let posting = tokio::task::spawn_blocking(move || {
            let mut request = http::Request::post(url).body(&*body)?;
            *request.headers_mut() = headers;
            let (head, mut body) = http.run(request)?.into_parts();
            let mut text = Vec::new();
            // Its beginning says enough, and the status more.
            let _cut_off = body.as_reader().take(ECHO_MAX).read_to_end(&mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok::<_, ureq::Error>(ReceiverAnswer { status: head.status, headers: head.headers, text })
        });
        let answer = posting.await.map_err(|error| error.to_string())?;
        answer.map_err(|error| causes(&error))
    }
}

impl Receiver for PrometheusReceiver {
    const PROTOCOL: &str = "remote write";
    const SAMPLES: &str = "samples";
    type Form = Version;

    fn counts(&self) -> &ReceiverCounts {
        &self.counts
    }

    fn pack(&self, families: FamilyParts, emit: &mut dyn FnMut(Packed<Version>)) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Told { tracker, described } = &mut *told;
        let out_of_order = tracker.take(families, now_ms(), &mut |request| {
            if let Some(packed) = pack(&request, self.version(), described) {
                emit(packed);
            }
        });
        add(&self.counts.out_of_order, out_of_order);
    }

    async fn send(&self, request: &Packed<Version>) -> Verdict {
        loop {
            let asked = self.asked();
            let body = match (request.form, asked) {
                (Version::Two, AskedVersion::One) => older(&request.body).map(Bytes::from),
                _ => Some(request.body.clone()),
            };
            let Some(body) = body else {
                let reason = "a request of remote write cannot be written; a bug".to_owned();
                return Verdict::Refused { samples: request.samples, reason };
            };
            let answer = match self.post(body, asked).await {
                Ok(answer) => answer,
                Err(reason) => return Verdict::Later { reason, after: None },
            };
            if let Some(verdict) = answer.verdict(asked, request.samples) {
                return verdict;
            }
            self.speaks_2.store(false, Ordering::Relaxed);
            tracing::info!(status = %answer.status, "the receiver does not take remote write 2.0; 1.0 is spoken");
        }
    }

    fn tell(&self, before: Standing, verdict: &Verdict) {
        match verdict {
            Verdict::Later { reason, .. } if !before.is_away => {
                tracing::warn!(reason, "the receiver of remote write takes nothing; samples wait");
            }
            Verdict::Taken { .. } | Verdict::Refused { .. } if before.is_away => {
                tracing::info!("the receiver of remote write answers again");
            }
            _ => {}
        }
        match verdict {
            Verdict::Refused { samples, reason } if before.is_refusing => {
                tracing::debug!(
                    samples,
                    reason,
                    "the receiver of remote write refuses samples, which are dropped"
                );
            }
            Verdict::Refused { samples, reason } => {
                tracing::warn!(
                    samples,
                    reason,
                    "the receiver of remote write refuses samples, which are dropped"
                );
            }
            Verdict::Taken { .. } if before.is_refusing => {
                tracing::info!("the receiver of remote write takes samples again");
            }
            _ => {}
        }
    }
}

fn now_ms() -> i64 {
    clock::now_ns() / 1_000_000
}
