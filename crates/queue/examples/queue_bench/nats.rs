//! NATS JetStream: publishes pipelined, a pull consumer, every message acknowledged by itself.

use async_nats::jetstream::{self, consumer, stream};
use futures_util::{FutureExt, StreamExt};

use crate::{Outcome, row};

/// Messages that one pull asks for, and one take at most.
const COUNT: usize = 1000;

/// A connection and a stream.
pub(crate) struct Nats {
    context: jetstream::Context,
    subject: String,
    messages: Option<consumer::pull::Stream>,
}

impl Nats {
    /// Makes the stream if it is not there: a work queue, so that what is acknowledged goes.
    pub(crate) async fn connect(address: &str, subject: &str, in_memory: bool) -> Outcome<Self> {
        let client = async_nats::connect(address).await?;
        let context = jetstream::new(client);
        let storage = if in_memory { stream::StorageType::Memory } else { stream::StorageType::File };
        let config = stream::Config {
            name: subject.to_owned(),
            subjects: vec![subject.to_owned()],
            storage,
            retention: stream::RetentionPolicy::WorkQueue,
            ..stream::Config::default()
        };
        context.get_or_create_stream(config).await?;
        Ok(Self { context, subject: subject.to_owned(), messages: None })
    }

    pub(crate) async fn make_consumer(&mut self) -> Outcome<()> {
        let config = consumer::pull::Config {
            durable_name: Some("bench".to_owned()),
            ack_policy: consumer::AckPolicy::Explicit,
            max_ack_pending: 20_000,
            ..consumer::pull::Config::default()
        };
        let stream = self.context.get_stream(&self.subject).await?;
        let consumer = stream.get_or_create_consumer("bench", config).await?;
        self.messages = Some(consumer.stream().max_messages_per_batch(COUNT).messages().await?);
        Ok(())
    }

    pub(crate) async fn publish(&self, rows: &[Vec<u8>]) -> Outcome<()> {
        let mut acknowledgements = Vec::with_capacity(rows.len());
        for row in rows {
            acknowledgements.push(self.context.publish(self.subject.clone(), row.clone().into()).await?);
        }
        for acknowledgement in acknowledgements {
            acknowledgement.await?;
        }
        Ok(())
    }

    /// Receives what is there and acknowledges it; answers when the rows were published.
    pub(crate) async fn take(&mut self) -> Outcome<Vec<u64>> {
        let messages = self.messages.as_mut().ok_or("no consumer")?;
        let mut times = Vec::new();
        let mut next = messages.next().await;
        while let Some(message) = next {
            let message = message?;
            times.extend(row::published_ns(&message.payload));
            message.ack().await?;
            next = if times.len() < COUNT { messages.next().now_or_never().flatten() } else { None };
        }
        Ok(times)
    }
}
