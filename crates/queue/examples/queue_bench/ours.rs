//! gpuvitals broker: rows in frames of at most a hundred, over gRPC.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use gpuvitals_queue::link::{AnyConsumer, AnyProducer, Client, Credentials};
use gpuvitals_queue::{Consumer, ConsumerOptions, ContentType, Encoding, Frame, Producer};

use crate::{Outcome, row};

/// Rows of a frame at most.
const FRAME_ROWS: usize = 100;

/// A producer of a topic.
pub(crate) struct Publisher {
    producer: Arc<AnyProducer>,
    compressed: bool,
}

impl Publisher {
    pub(crate) fn new(url: &str, topic: &str, compressed: bool) -> Outcome<Self> {
        let client = Client::new(url.parse()?, Credentials::default());
        Ok(Self { producer: Arc::new(client.producer(topic)?), compressed })
    }

    pub(crate) async fn publish(&self, rows: &[Vec<u8>]) -> Outcome<()> {
        let frames: Vec<Frame> =
            rows.chunks(FRAME_ROWS).map(|rows| self.frame(rows)).collect::<Outcome<_>>()?;
        try_join_all(frames.into_iter().map(|frame| self.producer.publish(frame))).await?;
        Ok(())
    }

    fn frame(&self, rows: &[Vec<u8>]) -> Outcome<Frame> {
        let text = row::array(rows);
        let count = u32::try_from(rows.len())?;
        if !self.compressed {
            return Ok(Frame::new(ContentType::Json, count, text));
        }
        let packed = zstd::bulk::compress(&text, 1)?;
        Ok(Frame::new(ContentType::Json, count, packed).encoded(Encoding::Zstd))
    }
}

/// A consumer of a topic.
pub(crate) struct Subscriber(AnyConsumer);

impl Subscriber {
    pub(crate) async fn new(url: &str, topic: &str) -> Outcome<Self> {
        let client = Client::new(url.parse()?, Credentials::default());
        let options = ConsumerOptions {
            max_in_flight: NonZeroU32::MIN.saturating_add(19_999),
            ..ConsumerOptions::default()
        };
        Ok(Self(client.consumer(topic, "bench", &options).await?))
    }

    /// Receives and acknowledges; answers when the rows were published (for all rows of a frame, when its first was).
    pub(crate) async fn take(&mut self) -> Outcome<Vec<u64>> {
        let deliveries = self.0.receive().await?;
        let mut times = Vec::new();
        for delivery in &deliveries {
            let payload = &delivery.frame.payload;
            let text = match delivery.frame.encoding {
                Encoding::Identity => payload.clone(),
                Encoding::Zstd => {
                    Bytes::from(zstd::bulk::decompress(payload, FRAME_ROWS * (row::LEN + 1) + 1)?)
                }
            };
            let at = row::published_ns(&text).ok_or("a row without its time")?;
            times.extend(std::iter::repeat_n(at, usize::try_from(delivery.frame.count)?));
        }
        let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        self.0.ack(&ids).await?;
        Ok(times)
    }
}
