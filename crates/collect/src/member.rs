//! A member is one consumer of the collector's group.

use gpuvitals_queue::link::{self, AnyConsumer, Client, ConnectError};
use gpuvitals_queue::{ConsumerOptions, dead_topic};

use crate::bad::BadRows;
use crate::settings::CollectorSettings;

/// How workers join their group of a topic, as often as need be.
#[derive(Debug, Clone)]
pub struct Member {
    pub(crate) client: Client,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) options: ConsumerOptions,
}

impl Member {
    /// Joins the settings' group of a topic through this client.
    pub fn new(settings: &CollectorSettings, topic: &str, client: Client) -> Self {
        let (topic, group) = (topic.to_owned(), settings.group.clone());
        Self { client, topic, group, options: link::of_one_consumer(settings.options()) }
    }

    /// The publisher of bad rows as dead letters.
    pub(crate) fn bad_rows(&self) -> Result<BadRows, ConnectError> {
        let producer = self.client.producer(dead_topic(&self.topic))?;
        Ok(BadRows { group: self.group.clone(), producer })
    }

    /// Joins. A remote queue is not contacted before the first receive.
    pub(crate) async fn join(&self) -> Result<AnyConsumer, ConnectError> {
        self.client.consumer(self.topic.as_str(), self.group.as_str(), &self.options).await
    }
}
