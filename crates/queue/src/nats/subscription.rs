//! A group's consumer on a connection, and its pulls.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::Consumer as PullConsumer;
use async_nats::jetstream::consumer::pull::{Batch, Config};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::error::NatsError;
use super::session::Session;

/// How long a pull waits for the first message, and how much longer its end is waited for. The server answers nothing
/// if the group is gone.
const PULL_WAITS: Duration = Duration::from_secs(5);
const PULL_GRACE: Duration = Duration::from_secs(2);

/// Pause after a pull that was refused: the server ends one at once if the pulls of other members are enough for
/// the messages it has.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a pull or an acknowledgement waits for room in the client, and all of them for their way out at the end.
pub(super) const SENDS_WITHIN: Duration = Duration::from_secs(2);

/// A group's consumer on a connection.
pub(super) struct Subscription {
    pub(super) session: Session,
    pub(super) consumer: PullConsumer<Config>,
    /// Number of the connection on which the group was looked for.
    connection: u64,
    pub(super) ack_wait: Duration,
    pull: Option<Pull>,
}

/// A pull under way.
struct Pull {
    batch: Batch,
    /// Number of the connection it was sent on; it is lost with that.
    connection: u64,
    sent: Instant,
    has_messages: bool,
}

impl Subscription {
    /// A consumer that was looked for on the connection with this number.
    pub(super) fn new(session: Session, consumer: PullConsumer<Config>, connection: u64) -> Self {
        let ack_wait = consumer.cached_info().config.ack_wait;
        Self { session, consumer, connection, ack_wait, pull: None }
    }

    /// Whether a pull is under way.
    pub(super) fn is_pulling(&self) -> bool {
        self.pull.is_some()
    }

    /// Whether the client, once it is connected, still has the connection on which the group was looked for.
    pub(super) async fn is_of_this_connection(&self) -> bool {
        self.session.connected().await;
        self.session.connections() == self.connection
    }

    /// Asks for up to `frames` messages: those that are there, or else the first one to come.
    pub(super) async fn pull(&mut self, frames: usize) -> Result<(), NatsError> {
        // One that waits in the client would be taken for lost with the next connection, and its messages too.
        self.session.connected().await;
        let (connection, sent) = (self.session.connections(), Instant::now());
        let pull = self.consumer.fetch().max_messages(frames).expires(PULL_WAITS).messages();
        match tokio::time::timeout(SENDS_WITHIN, pull).await {
            Ok(Ok(batch)) => self.pull = Some(Pull { batch, connection, sent, has_messages: false }),
            Ok(Err(error)) => return Err(NatsError::unavailable(error)),
            Err(_) => return Err(NatsError::unavailable("a pull could not be sent")),
        }
        Ok(())
    }

    /// The next message of the pull. `None`: the pull has ended.
    pub(super) async fn next(&mut self) -> Result<Option<jetstream::Message>, NatsError> {
        let Some(Pull { batch, connection, sent, has_messages }) = &mut self.pull else { return Ok(None) };
        let session = &self.session;
        let came = tokio::select! {
            biased;
            came = session.permitted(async { Ok(batch.next().await) }) => came?,
            () = session.reconnected(*connection) => None,
            () = tokio::time::sleep_until(*sent + PULL_WAITS + PULL_GRACE) => {
                return Err(NatsError::unavailable("a pull was not answered"));
            }
        };
        match came {
            Some(Ok(message)) => {
                *has_messages = true;
                return Ok(Some(message));
            }
            // The group is gone, has no leader, or is at a limit.
            Some(Err(error)) => return Err(NatsError::unavailable(error)),
            None if session.is_closed() => return Err(NatsError::unavailable("the connection was given up")),
            None => {
                let is_refused = !*has_messages && sent.elapsed() < PAUSE;
                self.pull = None;
                if is_refused {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Ok(None)
    }
}
