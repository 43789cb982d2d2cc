//! The text of a scrape: rendered from memory, once for all concurrent requests.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::{Family, Format};
use gpuvitals_sources::attribution::Ownership;
use tokio::sync::Mutex;

use crate::node::Node;
use crate::own::{self, AgentCounts};

/// A text shorter than this is not worth compressing: it fits into one packet.
const GZIP_LEN_MIN: usize = 1400;

/// Renders the node's state.
#[derive(Debug)]
pub(crate) struct Scraper {
    node: Arc<Node>,
    counts: Arc<AgentCounts>,
    ownership: Arc<Ownership>,
    prometheus: FormatTexts,
    open_metrics: FormatTexts,
}

/// A format, plain and compressed.
#[derive(Debug, Default)]
struct FormatTexts {
    plain: Mutex<Rendered>,
    gzip: Mutex<Rendered>,
}

/// The last text, and when its rendering began (monotonic).
#[derive(Debug, Default)]
struct Rendered {
    begun_ns: i64,
    text: Bytes,
}

/// How the text of a scrape is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextCoding {
    Plain,
    Gzip,
}

/// An answer to a scrape.
#[derive(Debug)]
pub(crate) struct Scrape {
    /// The text, or its gzip.
    pub body: Bytes,
    pub coding: TextCoding,
}

impl Scraper {
    /// For a node and its counts.
    pub(crate) fn new(node: Arc<Node>, counts: Arc<AgentCounts>, ownership: Arc<Ownership>) -> Self {
        Self {
            node,
            counts,
            ownership,
            prometheus: FormatTexts::default(),
            open_metrics: FormatTexts::default(),
        }
    }

    /// The present text. Requests during a rendering wait, and the next one serves all of them.
    pub(crate) async fn scrape(&self, format: Format, coding: TextCoding) -> Scrape {
        let came = Moment::now();
        let spelled = self.spelled(format);
        let scrape = match coding {
            TextCoding::Plain => self.plain(spelled, format, came).await,
            TextCoding::Gzip => self.gzip(spelled, format, came).await,
        };
        self.counts.scrapes.fetch_add(1, Ordering::Relaxed);
        let took_ns = (Moment::now().mono_ns - came.mono_ns).max(0).unsigned_abs();
        self.counts.scrape_ns.fetch_add(took_ns, Ordering::Relaxed);
        scrape
    }

    /// The families of a scrape at this moment; not counted as one.
    pub(crate) fn families(&self) -> Vec<Family> {
        let own = own::families(&self.node, &self.counts, &self.ownership);
        self.node.catch_up();
        let devices = self.node.devices();
        let mut families = self.node.exposition().families(Moment::now().wall_ns, &devices);
        families.extend(own);
        families
    }

    fn spelled(&self, format: Format) -> &FormatTexts {
        match format {
            Format::Prometheus => &self.prometheus,
            Format::OpenMetrics => &self.open_metrics,
        }
    }

    async fn plain(&self, spelled: &FormatTexts, format: Format, came: Moment) -> Scrape {
        let mut last = spelled.plain.lock().await;
        if last.begun_ns < came.mono_ns {
            let now = Moment::now();
            // The buffer of the previous text, once nobody sends it any more.
            let mut out = std::mem::take(&mut last.text).try_into_mut().map(Vec::from).unwrap_or_default();
            out.clear();
            let families = own::families(&self.node, &self.counts, &self.ownership);
            // States last: a device that is down by then shows no values, and one that is up shows those it gave.
            self.node.catch_up();
            let devices = self.node.devices();
            self.node.exposition().render(format, now.wall_ns, &devices, &families, &mut out);
            *last = Rendered { begun_ns: now.mono_ns, text: out.into() };
        }
        Scrape { body: last.text.clone(), coding: TextCoding::Plain }
    }

    async fn gzip(&self, spelled: &FormatTexts, format: Format, came: Moment) -> Scrape {
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
        Scrape { body: last.text.clone(), coding: TextCoding::Gzip }
    }
}

/// Fast rather than small: a client waits for it.
fn compressed(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 6 + 64), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Duration;

    use gpuvitals_core::catalogue::Series;
    use gpuvitals_core::{Identity, IdentityColumn, MetricId};
    use gpuvitals_exposition::{Compat, ExpositionConfig};
    use gpuvitals_rig::waiting;
    use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
    use gpuvitals_sources::sampler::{Sampler, SamplerConfig};

    use super::*;

    const WATTS: f32 = 200.0;
    const WATTS_F64: f64 = 200.0;

    /// A GPU that always draws the same and whose memory in use, in MiB, is the number of the tick. The channel gets a message at each tick.
    struct Ticking {
        gpu: Arc<Identity>,
        tick: i32,
        told: SyncSender<i32>,
    }

    impl Probe for Ticking {
        fn driver(&self) -> Driver {
            Driver::AmdSysfs
        }
        fn targets(&self) -> Vec<Arc<Identity>> {
            vec![Arc::clone(&self.gpu)]
        }
        fn fill(&mut self, due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
            self.tick += 1;
            let row = reading.row(&self.gpu);
            row.float(MetricId::of("power_w"), WATTS);
            row.int(MetricId::of("memory_used_mb"), self.tick);
            if due.slow {
                row.int(MetricId::of("energy_mj"), 1_000_000_000);
            }
            // Nobody may listen any more.
            let _unheard = self.told.try_send(self.tick);
            Ok(())
        }
    }

    /// One scrape: tick, energy, and when the last sample was taken, in seconds.
    fn shown(text: &Bytes) -> Option<[f64; 3]> {
        let text = std::str::from_utf8(text).unwrap();
        let value = |name| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.rsplit_once(' ')?.1.parse::<f64>().ok()
        };
        Some([
            value("gpu_memory_used_bytes{")? / 1_048_576.0,
            value("gpu_energy_joules_total{")?,
            value("gpu_last_sample_timestamp_seconds{")?,
        ])
    }

    /// Scrapes at every fifth of a second's tick, for `seconds`.
    fn scrape_while_it_ticks(hz: i32, seconds: i32) {
        let (told, ticks): (_, Receiver<i32>) = sync_channel(64);
        let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        let probe = Ticking { gpu, tick: 0, told };
        let ownership = Arc::new(Ownership::new());
        let interval = Duration::from_secs(1) / hz.unsigned_abs();
        let config = SamplerConfig { interval, monotonic: true, ..SamplerConfig::default() };
        let sampler = Sampler::start(vec![Box::new(probe)], config, Arc::clone(ownership.owners())).unwrap();
        let window = Duration::from_secs(30);
        let config =
            ExpositionConfig { set: Series::Basic, compat: Compat::Off, window, interval: Duration::ZERO };
        let node = Arc::new(Node::new(sampler, config));
        let scraper =
            Scraper::new(Arc::clone(&node), Arc::new(AgentCounts::new("n1", 0, Vec::new)), ownership);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (stop, stopped) = sync_channel(0);
        let feeding = Arc::clone(&node);
        let feed = std::thread::spawn(move || feeding.feed(&stopped));
        let (mut scrapes, mut stalled_s) = (Vec::new(), 0.0_f64);
        for tick in ticks.iter().take_while(|tick| *tick <= hz * seconds) {
            if tick % (hz / 5) != 0 {
                continue;
            }
            let Some(known_s) = node.sampler().states()[0].last_row_ns.map(seconds_of) else { continue };
            let now_s = seconds_of(Moment::now().wall_ns);
            let text = runtime.block_on(scraper.scrape(Format::Prometheus, TextCoding::Plain)).body;
            let Some(shown) = shown(&text) else { continue };
            // The rows of a tick are there when the next one begins; a scrape shows them, or later ones.
            assert!(shown[0] >= f64::from(tick - 1), "{hz} Hz: tick {tick} {shown:?}");
            assert!(shown[2] >= known_s - 1e-3, "{hz} Hz: older than what is known, {known_s} {shown:?}");
            // On a busy machine the sampler itself may be late.
            stalled_s = stalled_s.max(seconds_of(Moment::now().wall_ns) - known_s);
            scrapes.push((now_s, shown));
        }
        drop(stop);
        waiting::until("the end of the feed", || feed.is_finished(), |is_over| *is_over);
        feed.join().unwrap();
        let lateness = node.sampler().stats()[0].lateness.quantile(1.0).unwrap().as_secs_f64();
        let tick_s = interval.as_secs_f64();
        let (_, first) = scrapes[0];
        for (_, [tick, joules, last_s]) in &scrapes {
            let passed_s = last_s - first[2];
            let by_energy = (joules - first[1]) / WATTS_F64;
            assert!((by_energy - passed_s).abs() <= tick_s, "{hz} Hz: total and time stamp differ");
            // Ticks that were missed have no number.
            assert!(
                passed_s - (tick - first[0]) * tick_s >= -tick_s - lateness,
                "{hz} Hz: value and time stamp"
            );
        }
        let (first, last) = (scrapes[0], scrapes[scrapes.len() - 1]);
        let (span_s, used) = (last.0 - first.0, last.1[1] - first.1[1]);
        assert!(span_s > f64::from(seconds - 1), "{hz} Hz: {span_s} s");
        let allowed = WATTS_F64 * (0.01 + (tick_s + lateness.max(stalled_s)) / span_s);
        assert!((used / span_s - WATTS_F64).abs() <= allowed, "{hz} Hz: {} W", used / span_s);
    }

    fn seconds_of(ns: i64) -> f64 {
        Duration::from_nanos(ns.unsigned_abs()).as_secs_f64()
    }

    #[test]
    fn a_scrape_shows_value_total_and_time_stamp_of_one_moment() {
        let seconds = if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { 60 } else { 6 };
        std::thread::scope(|scope| {
            for hz in [10, 100, 1_000] {
                scope.spawn(move || scrape_while_it_ticks(hz, seconds));
            }
        });
    }

    #[tokio::test]
    async fn scrapes_that_wait_together_are_rendered_once() {
        let ownership = Arc::new(Ownership::new());
        let sampler = Sampler::start(Vec::new(), SamplerConfig::default(), Arc::clone(ownership.owners()));
        let window = Duration::from_secs(30);
        let config =
            ExpositionConfig { set: Series::Basic, compat: Compat::Off, window, interval: Duration::ZERO };
        let node = Arc::new(Node::new(sampler.unwrap(), config));
        let scraper = Arc::new(Scraper::new(node, Arc::new(AgentCounts::new("n1", 0, Vec::new)), ownership));
        let others_render = scraper.prometheus.plain.lock().await;
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let scraper = Arc::clone(&scraper);
                tokio::spawn(async move { scraper.scrape(Format::Prometheus, TextCoding::Plain).await.body })
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
        let later = scraper.scrape(Format::Prometheus, TextCoding::Plain).await.body;
        assert_ne!(later, bodies[0], "who comes later gets a newer one");
    }
}
