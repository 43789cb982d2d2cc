//! Publishing by gRPC.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::stream;
use gpuvitals_core::backoff::Backoff;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::dial::{Dial, Lost, Outlook};
use super::exchange::Answers;
use crate::broker::{PublishError, Receipt};
use crate::frame::Frame;
use crate::link::resend::Stamps;
use crate::link::{ConnectError, Credentials, QueueUrl};
use crate::protocol::{self, v1};
use crate::service::Producer;

/// Time limit of an answer; a queue that takes longer counts as away.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a new stream.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// Delays before retrying a queue that is away; in between, publishes fail at once.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(2) };

/// Publishes frames to one topic of a remote queue, over one stream that stays open. Any number of publishes
/// may be called concurrently; [`GrpcProducer::WINDOW`] are in flight together, and each gets the queue's
/// answer.
///
/// Frames without a stamp get one. When the connection is lost, publishes in flight fail with
/// [`PublishError::Unavailable`]: it is unknown whether they were taken, and a caller that wants to send them
/// again stamps them before ([`Stamps`]). The next publish reconnects, as often as a backoff allows.
#[derive(Debug)]
pub struct GrpcProducer {
    dial: Arc<Dial>,
    topic: Arc<str>,
    stamps: Stamps,
    link: tokio::sync::Mutex<Link>,
}

#[derive(Debug, Default)]
struct Link {
    session: Option<Arc<Session>>,
    failures: u32,
    /// The last failure, and until when further attempts get it.
    rests: Option<(Instant, PublishError)>,
}

/// One stream of frames, from its opening until it is lost.
#[derive(Debug)]
struct Session {
    outgoing: Mutex<Outgoing>,
    window: Arc<Semaphore>,
    answers: Answers<v1::PublishReply>,
    /// Largest payload that the queue takes.
    max_frame_bytes: usize,
    has_answered: AtomicBool,
    lost: OnceLock<Lost>,
}

#[derive(Debug)]
struct Outgoing {
    requests: mpsc::Sender<v1::PublishRequest>,
    /// The queue knows the topic from the first request.
    is_named: bool,
    /// Waiters for an answer, in the order of the requests.
    waiting: VecDeque<WaitingFrame>,
}

#[derive(Debug)]
struct WaitingFrame {
    sent_at: Instant,
    answer: oneshot::Sender<Result<Receipt, PublishError>>,
    /// Messages and bytes of the frame.
    size: (u32, u64),
    _slot: OwnedSemaphorePermit,
}

impl GrpcProducer {
    /// Most frames in flight.
    pub const WINDOW: usize = 8;

    /// A producer without a connection.
    ///
    /// # Errors
    ///
    /// The topic's name is refused, or a credential cannot be read.
    pub fn new(
        url: &QueueUrl,
        access: &Credentials,
        topic: impl Into<Arc<str>>,
    ) -> Result<Self, ConnectError> {
        let topic = topic.into();
        crate::name::check_destination(&topic)
            .map_err(|source| ConnectError::Name { what: "topic", source })?;
        Ok(Self {
            dial: Arc::new(Dial::new(url, access)?),
            topic,
            stamps: Stamps::new(),
            link: tokio::sync::Mutex::default(),
        })
    }

    /// The open stream, or a new one.
    async fn session(&self) -> Result<Arc<Session>, PublishError> {
        let mut link = self.link.lock().await;
        if let Some(session) = &link.session {
            if session.is_stalled(Instant::now()) {
                session.end(self.dial.lost("no answer in time"));
            }
            match session.lost.get() {
                None => return Ok(Arc::clone(session)),
                Some(lost) if !session.has_answered.load(Ordering::Relaxed) => {
                    let error = unavailable(lost);
                    link.failed(error);
                }
                Some(_) => link.failures = 0,
            }
            link.session = None;
        }
        if let Some((_, error)) = link.rests.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Err(error.clone());
        }
        let opened = tokio::time::timeout(OPEN_LIMIT, self.open()).await;
        match opened.unwrap_or_else(|_| Err(self.dial.lost("no answer to a new stream"))) {
            Ok(session) => {
                let session = Arc::new(session);
                link.session = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(lost) => Err(link.failed(unavailable(&lost))),
        }
    }

    async fn open(&self) -> Result<Session, Lost> {
        let mut client = self.dial.connect().await?;
        let (requests, mut outgoing) = mpsc::channel(Self::WINDOW);
        let body = stream::poll_fn(move |context| outgoing.poll_recv(context));
        let opened = client.publish_stream(self.dial.request(body)).await;
        let response = opened.map_err(|status| self.dial.ended(&status))?;
        let said = response.metadata().get(protocol::MAX_FRAME_BYTES).and_then(|max| max.to_str().ok());
        Ok(Session {
            max_frame_bytes: said.and_then(|max| max.parse().ok()).unwrap_or(usize::MAX),
            outgoing: Mutex::new(Outgoing { requests, is_named: false, waiting: VecDeque::new() }),
            window: Arc::new(Semaphore::new(Self::WINDOW)),
            answers: Answers::new(response.into_inner()),
            has_answered: AtomicBool::new(false),
            lost: OnceLock::new(),
        })
    }

    /// Waits for a result that the session's answers complete.
    async fn wait<W>(&self, session: &Session, wanted: impl Future<Output = W>) -> Result<W, PublishError> {
        let waited = session.answers.until(wanted, |answer| session.answered(&self.topic, answer));
        let lost = match tokio::time::timeout(ANSWER_LIMIT, waited).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(Some(status))) => self.dial.ended(&status),
            Ok(Err(None)) => self.dial.lost("the queue ended the stream"),
            Err(_) => self.dial.lost("no answer in time"),
        };
        Err(session.end(lost))
    }
}

impl Producer for GrpcProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        loop {
            let session = self.session().await?;
            let slot = self.wait(&session, Arc::clone(&session.window).acquire_owned()).await?;
            let Ok(slot) = slot else { continue };
            if frame.payload.len() > session.max_frame_bytes {
                let bytes = u64::try_from(frame.payload.len()).unwrap_or(u64::MAX);
                return Err(PublishError::TooLarge { messages: frame.count, bytes });
            }
            match session.send(&self.topic, &frame, &self.stamps, slot) {
                Some(answer) => {
                    let answer = self.wait(&session, answer).await?;
                    return answer.unwrap_or_else(|_| Err(session.end(self.dial.lost("the stream ended"))));
                }
                // Nothing was sent: the stream had ended before.
                None => {
                    session.end(self.dial.lost("the stream ended"));
                }
            }
        }
    }
}

impl Link {
    fn failed(&mut self, error: PublishError) -> PublishError {
        self.failures = self.failures.saturating_add(1);
        self.rests = Some((Instant::now() + BACKOFF.after(self.failures), error.clone()));
        error
    }
}

impl Session {
    /// Sends a frame; returns its future answer. `None`: the stream has ended and nothing was sent.
    fn send(
        &self,
        topic: &Arc<str>,
        frame: &Frame,
        stamps: &Stamps,
        slot: OwnedSemaphorePermit,
    ) -> Option<oneshot::Receiver<Result<Receipt, PublishError>>> {
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lost.get().is_some() {
            return None;
        }
        // Under the lock, so that stamps are sent in order.
        let frame = stamps.stamp(frame.clone());
        let topic = if outgoing.is_named { "" } else { topic };
        // The channel has room for as many requests as there are slots.
        outgoing.requests.try_send(protocol::publish_request(topic, &frame)).ok()?;
        outgoing.is_named = true;
        let (answer, answered) = oneshot::channel();
        let size = (frame.count, frame.cost_bytes());
        outgoing.waiting.push_back(WaitingFrame { sent_at: Instant::now(), answer, size, _slot: slot });
        Some(answered)
    }

    fn answered(&self, topic: &Arc<str>, reply: v1::PublishReply) {
        self.has_answered.store(true, Ordering::Relaxed);
        let first = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front();
        if let Some(waiting) = first {
            // The caller may have stopped waiting.
            waiting.answer.send(protocol::outcome_of(topic, waiting.size, reply)).ok();
        }
    }

    /// Whether an answer is overdue that nobody waited for long enough: callers that give up earlier would
    /// never notice.
    fn is_stalled(&self, now: Instant) -> bool {
        let outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        outgoing.waiting.front().is_some_and(|waiting| now.duration_since(waiting.sent_at) >= ANSWER_LIMIT)
    }

    /// The stream is unusable from now on: all waiters get the error.
    fn end(&self, lost: Lost) -> PublishError {
        let error = unavailable(self.lost.get_or_init(|| lost));
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        for waiting in std::mem::take(&mut outgoing.waiting) {
            waiting.answer.send(Err(error.clone())).ok();
        }
        error
    }
}

fn unavailable(lost: &Lost) -> PublishError {
    let reason = Arc::clone(&lost.reason);
    match lost.outlook {
        Outlook::Denied => PublishError::Denied { reason },
        Outlook::Lasting => PublishError::Refused { reason },
        Outlook::Passing | Outlook::Removed => PublishError::Unavailable { reason },
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;

    use axum::response::IntoResponse as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::frame::ContentType;

    /// Opens every stream and answers nothing on it.
    async fn mute(opened: Arc<AtomicUsize>) -> QueueUrl {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
        let open = async move |request: axum::extract::Request| {
            opened.fetch_add(1, Ordering::Relaxed);
            // The stream is open as long as the requests are not dropped.
            let silence = request.into_body().into_data_stream();
            let silence = futures_util::StreamExt::filter(silence, |_| std::future::ready(false));
            let body = axum::body::Body::from_stream(silence);
            ([("content-type", "application/grpc")], body).into_response()
        };
        let app = axum::Router::new().fallback(open);
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    #[tokio::test]
    async fn a_stream_that_never_answers_is_replaced_though_everybody_gives_up_sooner() {
        let opened = Arc::new(AtomicUsize::new(0));
        let url = mute(Arc::clone(&opened)).await;
        let producer = GrpcProducer::new(&url, &Credentials::default(), "t").unwrap();
        let publish = async || {
            let frame = Frame::new(ContentType::Json, 1, "{}");
            tokio::time::timeout(Duration::from_secs(1), producer.publish(frame)).await
        };
        for _ in 0..2 {
            assert!(publish().await.is_err(), "nothing is answered");
        }
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        tokio::time::pause();
        tokio::time::advance(ANSWER_LIMIT).await;
        tokio::time::resume();
        // The stall is reported once; a publish after the pause gets a new stream.
        let told = publish().await;
        assert!(matches!(&told, Ok(Err(PublishError::Unavailable { .. }))), "{told:?}");
        tokio::time::pause();
        tokio::time::advance(BACKOFF.cap).await;
        tokio::time::resume();
        assert!(publish().await.is_err());
        assert_eq!(opened.load(Ordering::Relaxed), 2);
    }
}
