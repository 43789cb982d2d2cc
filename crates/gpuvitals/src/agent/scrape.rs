//! The text of a scrape: rendered from memory, once for all who ask at the same time.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuvitals_exposition::Format;
use gpuvitals_sources::sampler::Moment;
use tokio::sync::Mutex;

use super::node::Node;
use super::own::{self, Counts};
use crate::ownership::Ownership;

/// A text shorter than this is not worth compressing: it fits into one packet.
const GZIP_LEN_MIN: usize = 1400;

/// Renders what the node says.
#[derive(Debug)]
pub(crate) struct Scraper {
    node: Arc<Node>,
    counts: Arc<Counts>,
    ownership: Arc<Ownership>,
    prometheus: Spelled,
    open_metrics: Spelled,
}

/// A format, plain and compressed.
#[derive(Debug, Default)]
struct Spelled {
    plain: Mutex<Rendered>,
    gzip: Mutex<Rendered>,
}

/// The last text, and when its rendering began (monotonic).
#[derive(Debug, Default)]
struct Rendered {
    begun_ns: i64,
    text: Bytes,
}

/// An answer to a scrape.
#[derive(Debug)]
pub(crate) struct Scrape {
    /// The text, or its gzip.
    pub body: Bytes,
    /// Whether it is compressed.
    pub is_gzip: bool,
}

impl Scraper {
    /// Over what is sampled and counted.
    pub(crate) fn new(node: Arc<Node>, counts: Arc<Counts>, ownership: Arc<Ownership>) -> Self {
        Self { node, counts, ownership, prometheus: Spelled::default(), open_metrics: Spelled::default() }
    }

    /// The present text. Who comes while it is being rendered waits and is rendered for together with all the others who wait.
    pub(crate) async fn scrape(&self, format: Format, gzip: bool) -> Scrape {
        let came = Moment::now();
        let spelled = self.spelled(format);
        let scrape = if gzip {
            self.gzip(spelled, format, came).await
        } else {
            self.plain(spelled, format, came).await
        };
        self.counts.scrapes.fetch_add(1, Ordering::Relaxed);
        let took_ns = (Moment::now().mono_ns - came.mono_ns).max(0).unsigned_abs();
        self.counts.scrape_ns.fetch_add(took_ns, Ordering::Relaxed);
        scrape
    }

    /// The present text, for somebody who is no scraper and is not counted.
    pub(crate) async fn text(&self, format: Format) -> Bytes {
        self.plain(self.spelled(format), format, Moment::now()).await.body
    }

    fn spelled(&self, format: Format) -> &Spelled {
        match format {
            Format::Prometheus => &self.prometheus,
            Format::OpenMetrics => &self.open_metrics,
        }
    }

    async fn plain(&self, spelled: &Spelled, format: Format, came: Moment) -> Scrape {
        let mut last = spelled.plain.lock().await;
        if last.begun_ns < came.mono_ns {
            let now = Moment::now();
            // The buffer of the text before, once nobody sends it any more.
            let mut out = std::mem::take(&mut last.text).try_into_mut().map(Vec::from).unwrap_or_default();
            out.clear();
            let devices = self.node.devices();
            let families = own::families(&self.node, &self.counts, &self.ownership);
            // Last, so that no time or state that is shown is older than the values.
            self.node.catch_up();
            self.node.exposition().render(format, now.wall_ns, &devices, &families, &mut out);
            *last = Rendered { begun_ns: now.mono_ns, text: out.into() };
        }
        Scrape { body: last.text.clone(), is_gzip: false }
    }

    async fn gzip(&self, spelled: &Spelled, format: Format, came: Moment) -> Scrape {
        let mut last = spelled.gzip.lock().await;
        if last.begun_ns < came.mono_ns {
            let begun_ns = Moment::now().mono_ns;
            let plain = self.plain(spelled, format, came).await;
            if plain.body.len() < GZIP_LEN_MIN {
                return plain;
            }
            // In memory it does not fail; if it did, the plain text is an answer as well.
            let Ok(text) = compressed(&plain.body) else { return plain };
            *last = Rendered { begun_ns, text: text.into() };
        }
        Scrape { body: last.text.clone(), is_gzip: true }
    }
}

/// Fast rather than small: it is done while somebody waits.
fn compressed(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 6 + 64), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuvitals_core::catalogue::Series;
    use gpuvitals_exposition::{Compat, ExpositionConfig};
    use gpuvitals_sources::sampler::{Sampler, SamplerConfig};

    use super::*;

    #[tokio::test]
    async fn scrapes_that_wait_together_are_rendered_once() {
        let ownership = Arc::new(Ownership::new());
        let sampler = Sampler::start(Vec::new(), SamplerConfig::default(), Arc::clone(ownership.owners()));
        let window = Duration::from_secs(30);
        let config = ExpositionConfig { set: Series::Basic, compat: Compat::Off, window };
        let node = Arc::new(Node::new(sampler.unwrap(), config));
        let scraper = Arc::new(Scraper::new(node, Arc::new(Counts::new("n1", 0)), ownership));
        let others_render = scraper.prometheus.plain.lock().await;
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let scraper = Arc::clone(&scraper);
                tokio::spawn(async move { scraper.scrape(Format::Prometheus, false).await.body })
            })
            .collect();
        // Each has come and waits for its turn.
        tokio::task::yield_now().await;
        drop(others_render);
        let mut bodies = Vec::new();
        for scrape in waiting {
            bodies.push(scrape.await.unwrap());
        }
        assert!(bodies.iter().all(|body| body.as_ptr() == bodies[0].as_ptr()), "one text for all of them");
        let later = scraper.scrape(Format::Prometheus, false).await.body;
        assert_ne!(later, bodies[0], "who comes later gets a newer one");
    }
}
