//! From families to samples: which series have something new, and which have ended.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use gpuvitals_core::figures::{Family, Kind, Labels, SampleValue};

use super::message::{About, Draft, MetricType, NAME, Request, Sample};
use crate::receiver::SAMPLES_MAX;

/// Value of a sample that says that its series has ended: Prometheus' own NaN.
const STALE: u64 = 0x7ff0_0000_0000_0002;
/// How long an ended series is remembered, so that a sample older than its end is not sent after it.
const MEMORY_MS: i64 = 600_000;
/// Between the texts of a key.
const SEPARATOR: char = '\0';

/// The series that were sent, by their labels.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Labels of every series.
    external: Vec<(String, String)>,
    /// When the program started to count, milliseconds since 1970.
    started_ms: i64,
    series: HashMap<Box<str>, Sent, RandomState>,
    round: u32,
}

/// The last sample of a series.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at_ms: i64,
    /// Round of the tracker in which the series was last there.
    round: u32,
    has_ended: bool,
}

/// Where the samples of one look at the families go.
struct Harvest<'e> {
    draft: Draft,
    /// Takes a request of [`SAMPLES_MAX`] samples at most.
    emit: &'e mut dyn FnMut(Request),
    out_of_order: u64,
}

impl Harvest<'_> {
    fn add<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        sample: Sample,
        about: Option<About<'_>>,
    ) {
        self.draft.add(labels, sample, about);
        if self.draft.samples() >= SAMPLES_MAX {
            (self.emit)(std::mem::take(&mut self.draft).finish());
        }
    }
}

/// A series of a family.
struct Series<'a> {
    name: Cow<'a, str>,
    labels: &'a Labels,
    /// Upper bound, of a bucket.
    le: Option<&'a str>,
    value: f64,
}

impl Tracker {
    /// Of a program that has counted since `started_ms`.
    pub(crate) fn new(external: Vec<(String, String)>, started_ms: i64) -> Self {
        Self { external, started_ms, series: HashMap::default(), round: 0 }
    }

    /// The samples of these families that have not been sent, and an end for each series that is no longer among them, as
    /// requests for `emit`. `now_ms` is the time of values without one of their own. Returns the number of values that are
    /// older than one that was sent: the clock was set back.
    pub(crate) fn take(
        &mut self,
        parts: impl Iterator<Item = Vec<Family>>,
        now_ms: i64,
        emit: &mut dyn FnMut(Request),
    ) -> u64 {
        self.round = self.round.wrapping_add(1);
        let mut harvest = Harvest { draft: Draft::default(), emit, out_of_order: 0 };
        for family in parts.flatten() {
            self.take_family(&family, now_ms, &mut harvest);
        }
        self.end_missing(now_ms, &mut harvest);
        if harvest.draft.samples() > 0 {
            (harvest.emit)(harvest.draft.finish());
        }
        harvest.out_of_order
    }

    fn take_family(&mut self, family: &Family, now_ms: i64, harvest: &mut Harvest<'_>) {
        let about = About { kind: metric_type(family.kind), help: &family.help, unit: family.unit };
        let start_timestamp = self.start_of(family);
        let mut key = String::new();
        for sample in &family.samples {
            let at_ms = sample.at_ns.map_or(now_ms, |at_ns| at_ns.div_euclid(1_000_000));
            each_series(&family.name, &sample.labels, &sample.value, |series| {
                self.write_key(&series, &mut key);
                if self.is_new(&key, at_ms, &mut harvest.out_of_order) {
                    let sample = Sample { value: series.value, timestamp: at_ms, start_timestamp };
                    harvest.add(pairs(&key), sample, Some(about));
                }
            });
        }
    }

    /// Whether a value is newer than the one that was sent of the series.
    fn is_new(&mut self, key: &str, at_ms: i64, out_of_order: &mut u64) -> bool {
        let now = Sent { at_ms, round: self.round, has_ended: false };
        let Some(sent) = self.series.get_mut(key) else {
            self.series.insert(key.into(), now);
            return true;
        };
        if at_ms > sent.at_ms {
            // The first of two series with the same labels holds.
            let is_first = sent.round != self.round;
            *sent = if is_first { now } else { *sent };
            return is_first;
        }
        *out_of_order += u64::from(at_ms < sent.at_ms && !sent.has_ended);
        sent.round = self.round;
        false
    }

    fn end_missing(&mut self, now_ms: i64, harvest: &mut Harvest<'_>) {
        let round = self.round;
        self.series.retain(|key, sent| {
            if sent.round == round {
                return true;
            }
            if sent.has_ended {
                return now_ms.saturating_sub(sent.at_ms) < MEMORY_MS;
            }
            let timestamp = now_ms.max(sent.at_ms.saturating_add(1));
            let sample = Sample { value: f64::from_bits(STALE), timestamp, start_timestamp: 0 };
            harvest.add(pairs(key), sample, None);
            (sent.at_ms, sent.has_ended) = (timestamp, true);
            true
        });
    }

    fn start_of(&self, family: &Family) -> i64 {
        let counts = matches!(family.kind, Kind::Counter | Kind::Histogram);
        if counts && family.is_own() { self.started_ms } else { 0 }
    }

    /// The labels by name, each with its value; those without a value are left out. One with the name of an external label is
    /// called as Prometheus calls it after a scrape.
    fn write_key(&self, series: &Series<'_>, key: &mut String) {
        let own = series.labels.iter().map(|(name, value)| match *name {
            name if self.external.iter().any(|(external, _)| external == name) => {
                (Cow::Owned(format!("exported_{name}")), value.as_str())
            }
            name => (Cow::Borrowed(name), value.as_str()),
        });
        let external =
            self.external.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), value.as_str()));
        let le = series.le.map(|bound| (Cow::Borrowed("le"), bound));
        let name = (Cow::Borrowed(NAME), &*series.name);
        let mut labels: Vec<_> = own.chain(external).chain(le).chain([name]).collect();
        labels.retain(|(_, value)| !value.is_empty());
        labels.sort_unstable();
        key.clear();
        for (name, value) in &labels {
            for text in [&**name, *value] {
                key.extend(text.chars().filter(|letter| *letter != SEPARATOR));
                key.push(SEPARATOR);
            }
        }
    }
}

/// The labels of a key.
fn pairs(key: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut texts = key.split_terminator(SEPARATOR);
    std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
}

fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
        Kind::Info => MetricType::Info,
        Kind::Histogram => MetricType::Histogram,
    }
}

/// The series of a sample: one, or those of a histogram. Values that a page would not show are left out.
fn each_series(name: &str, labels: &Labels, value: &SampleValue, mut take: impl FnMut(Series<'_>)) {
    match value {
        SampleValue::Number(number) if number.is_finite() => {
            take(Series { name: name.into(), labels, le: None, value: number.as_f64() });
        }
        SampleValue::Number(_) => {}
        SampleValue::Buckets(buckets) => {
            for (suffix, bound, number) in buckets.series() {
                let name = format!("{name}{suffix}").into();
                take(Series { name, labels, le: bound.as_deref(), value: number.as_f64() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuvitals_core::figures::{self, BUCKET_BOUNDS, Number, Sample as Figure};

    use super::*;

    fn tracker() -> Tracker {
        let external = [("instance", "n1"), ("job", "gpuvitals")];
        Tracker::new(external.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(), 1_000)
    }

    fn watts(gpus: &[(&str, f64, i64)]) -> Vec<Family> {
        let mut family = Family::new("gpu_power_watts", Kind::Gauge, "Power.");
        family.unit = "watts";
        for (gpu, watts, at_ms) in gpus {
            let labels = vec![("uuid", (*gpu).to_owned()), ("pod", String::new())];
            let value = SampleValue::Number(Number::F64(*watts));
            family.samples.push(Figure { labels, value, at_ns: Some(at_ms * 1_000_000 + 5) });
        }
        vec![family]
    }

    /// The requests, and the number of values out of order.
    fn take(tracker: &mut Tracker, families: Vec<Family>, now_ms: i64) -> (Vec<Request>, u64) {
        let mut requests = Vec::new();
        let parts = families.into_iter().map(|family| vec![family]);
        let out_of_order = tracker.take(parts, now_ms, &mut |request| requests.push(request));
        (requests, out_of_order)
    }

    /// Labels, value, time, start and type of each sample.
    fn lines(taken: &(Vec<Request>, u64)) -> Vec<String> {
        let mut lines = Vec::new();
        for request in &taken.0 {
            let text = |place: u32| request.symbols[place as usize].as_str();
            assert_eq!(text(0), "");
            for series in &request.timeseries {
                let labels: Vec<String> = series
                    .labels_refs
                    .chunks(2)
                    .map(|pair| format!("{}={}", text(pair[0]), text(pair[1])))
                    .collect();
                let [sample] = series.samples.as_slice() else { panic!("{series:?}") };
                let is_end = sample.value.to_bits() == STALE;
                let value = if is_end { "end".to_owned() } else { sample.value.to_string() };
                let kind = series.metadata.map(|about| format!("{:?}", about.r#type())).unwrap_or_default();
                let (at, start) = (sample.timestamp, sample.start_timestamp);
                lines.push(format!("{} {value} {at} {start} {kind}", labels.join(",")));
            }
        }
        lines
    }

    const A: &str = "__name__=gpu_power_watts,instance=n1,job=gpuvitals,uuid=a";
    const B: &str = "__name__=gpu_power_watts,instance=n1,job=gpuvitals,uuid=b";

    #[test]
    fn a_value_is_sent_once_and_a_series_that_is_gone_is_ended_once() {
        let mut tracker = tracker();
        let first = take(&mut tracker, watts(&[("a", 1.0, 90), ("b", 2.0, 91)]), 100);
        assert_eq!(lines(&first), [format!("{A} 1 90 0 Gauge"), format!("{B} 2 91 0 Gauge")]);
        let again = take(&mut tracker, watts(&[("a", 1.0, 90), ("b", 3.0, 92)]), 110);
        assert_eq!((lines(&again), again.1), (vec![format!("{B} 3 92 0 Gauge")], 0));
        let without = take(&mut tracker, watts(&[("a", 4.0, 120)]), 125);
        assert_eq!(lines(&without), [format!("{A} 4 120 0 Gauge"), format!("{B} end 125 0 ")]);
        assert_eq!(lines(&take(&mut tracker, watts(&[("a", 4.0, 120)]), 130)), Vec::<String>::new());
        // A value from before the end is not sent behind it; a later one is.
        let before = take(&mut tracker, watts(&[("a", 4.0, 120), ("b", 5.0, 124)]), 140);
        assert_eq!((lines(&before), before.1), (vec![], 0));
        let back = take(&mut tracker, watts(&[("a", 4.0, 120), ("b", 5.0, 150)]), 150);
        assert_eq!(lines(&back), [format!("{B} 5 150 0 Gauge")]);
    }

    #[test]
    fn ended_series_are_forgotten() {
        let mut tracker = tracker();
        take(&mut tracker, watts(&[("a", 1.0, 90)]), 100);
        take(&mut tracker, Vec::new(), 110);
        take(&mut tracker, Vec::new(), 110 + MEMORY_MS - 1);
        assert_eq!(tracker.series.len(), 1);
        take(&mut tracker, Vec::new(), 110 + MEMORY_MS);
        assert_eq!(tracker.series.len(), 0);
    }

    #[test]
    fn a_clock_that_was_set_back_is_counted() {
        let mut tracker = tracker();
        take(&mut tracker, watts(&[("a", 1.0, 90)]), 100);
        let back = take(&mut tracker, watts(&[("a", 1.0, 50)]), 60);
        assert_eq!((lines(&back), back.1), (vec![], 1));
    }

    #[test]
    fn own_counters_have_a_start_and_a_histogram_is_its_buckets() {
        let histogram = figures::Histogram::default();
        histogram.observe(Duration::from_millis(3));
        let families = [
            Family::counter("gpuvitals_rows_total", "Rows.", 7_u64),
            Family::counter("gpu_ecc_errors_total", "Errors.", 7_u64),
            Family::gauge("absent", "None.", f64::NAN),
            Family::new("gpuvitals_wait_seconds", Kind::Histogram, "Wait.")
                .with(vec![("job", "own".to_owned())], histogram.read()),
        ];
        let harvest = take(&mut tracker(), families.to_vec(), 2_000);
        let lines = lines(&harvest);
        assert_eq!(lines.len(), 2 + BUCKET_BOUNDS.len() + 3);
        assert_eq!(lines[0], "__name__=gpuvitals_rows_total,instance=n1,job=gpuvitals 7 2000 1000 Counter");
        assert_eq!(lines[1], "__name__=gpu_ecc_errors_total,instance=n1,job=gpuvitals 7 2000 0 Counter");
        let of = |name: &str, le: &str, value: &str| {
            format!(
                "__name__=gpuvitals_wait_seconds_{name},exported_job=own,instance=n1,job=gpuvitals{le} {value} 2000 1000 Histogram"
            )
        };
        for line in [
            of("bucket", ",le=0.0025", "0"),
            of("bucket", ",le=0.005", "1"),
            of("bucket", ",le=+Inf", "1"),
            of("sum", "", "0.003"),
            of("count", "", "1"),
        ] {
            assert!(lines.contains(&line), "{line} is not in {lines:#?}");
        }
    }

    #[test]
    fn a_request_has_a_bound() {
        let uuids: Vec<String> = (0..=SAMPLES_MAX).map(|at| at.to_string()).collect();
        let gpus: Vec<_> = uuids.iter().map(|uuid| (uuid.as_str(), 1.0, 90)).collect();
        let harvest = take(&mut tracker(), watts(&gpus), 100);
        let sizes: Vec<_> = harvest.0.iter().map(|request| request.timeseries.len()).collect();
        assert_eq!(sizes, [SAMPLES_MAX, 1]);
    }
}
