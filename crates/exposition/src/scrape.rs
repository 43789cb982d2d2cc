//! The two forms of a scrape: text, written into one buffer, and typed families.

use gpuvitals_core::Identity;
use gpuvitals_core::figures::{Family, Format, Labels, Number, Sample, SampleValue};

use crate::family::{FamilyPlan, Line};
use crate::gpu::Gpu;
use crate::labels::GpuLabels;

/// Receives the families of a scrape and, after each, its samples.
pub(crate) trait Scrape {
    /// A family begins.
    fn family(&mut self, plan: &FamilyPlan);
    /// A sample of a GPU.
    fn gpu(&mut self, line: &Line, gpu: &Gpu, number: Number);
    /// A sample of a GPU under one of the pods that share it.
    fn sharer(&mut self, line: &Line, sharer: &Identity, number: Number);
    /// A sample of the host, or of one of its CPUs, measured at this time if it has one of its own.
    fn host(&mut self, line: &Line, core: Option<u32>, number: Number, at_ns: Option<i64>);
}

/// Text. A scrape takes well under a millisecond: names, fixed labels and labels of GPUs are copied from
/// prepared text.
pub(crate) struct TextScrape<'a> {
    format: Format,
    out: &'a mut Vec<u8>,
    /// Beginning and end of the present family's head.
    head: (usize, usize),
}

impl<'a> TextScrape<'a> {
    pub(crate) fn new(format: Format, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { format, out, head: (start, start) }
    }

    /// Removes the head of a family without samples.
    pub(crate) fn finish(&mut self) {
        let (start, end) = self.head;
        if self.out.len() == end {
            self.out.truncate(start);
        }
    }

    fn line(&mut self, line: &Line, labels: &[u8], number: Number) {
        let start = self.out.len();
        self.out.extend_from_slice(&line.prefix);
        self.out.extend_from_slice(labels);
        if number.write(self.out) {
            self.out.push(b'\n');
        } else {
            self.out.truncate(start);
        }
    }
}

impl Scrape for TextScrape<'_> {
    fn family(&mut self, plan: &FamilyPlan) {
        self.finish();
        let start = self.out.len();
        self.out.extend_from_slice(plan.head(self.format));
        self.head = (start, self.out.len());
    }

    fn gpu(&mut self, line: &Line, gpu: &Gpu, number: Number) {
        let labels = gpu.labels.text(line.labels);
        if !labels.is_empty() {
            self.line(line, labels, number);
        }
    }

    fn sharer(&mut self, line: &Line, sharer: &Identity, number: Number) {
        self.line(line, GpuLabels::new(sharer).text(line.labels), number);
    }

    fn host(&mut self, line: &Line, core: Option<u32>, number: Number, _at_ns: Option<i64>) {
        match core {
            Some(core) => self.line(line, format!("core=\"{core}\"}} ").as_bytes(), number),
            None => self.line(line, &[], number),
        }
    }
}

/// A scrape as families, for those who send them on as numbers.
pub(crate) struct TypedScrape {
    pub(crate) families: Vec<Family>,
    now_ns: i64,
    /// The present family, without samples.
    head: Option<Family>,
    /// Whether it is the last of `families`.
    is_begun: bool,
}

impl TypedScrape {
    /// Those of a scrape at this time.
    pub(crate) fn at(now_ns: i64) -> Self {
        Self { families: Vec::new(), now_ns, head: None, is_begun: false }
    }

    pub(crate) fn sample(&mut self, line: &Line, labels: Labels, number: Number, at_ns: Option<i64>) {
        let otel = line.metric.and_then(|metric| metric.otel);
        if !(self.is_begun && self.families.last().is_some_and(|family| family.otel == otel)) {
            self.families.extend(self.head.clone().map(|head| Family { otel, ..head }));
            self.is_begun = true;
        }
        let fixed = line.fixed.iter().map(|(label, text)| (*label, (*text).to_owned()));
        let sample =
            Sample { labels: fixed.chain(labels).collect(), value: SampleValue::Number(number), at_ns };
        if let Some(family) = self.families.last_mut() {
            family.samples.push(sample);
        }
    }
}

impl Scrape for TypedScrape {
    fn family(&mut self, plan: &FamilyPlan) {
        self.head = Some(plan.family.clone());
        self.is_begun = false;
    }

    fn gpu(&mut self, line: &Line, gpu: &Gpu, number: Number) {
        let labels = gpu.identity().map(|identity| line.labels.of(identity)).unwrap_or_default();
        if !labels.is_empty() {
            self.sample(line, labels, number, line.reading.measured_ns(gpu, self.now_ns));
        }
    }

    fn sharer(&mut self, line: &Line, sharer: &Identity, number: Number) {
        self.sample(line, line.labels.of(sharer), number, None);
    }

    fn host(&mut self, line: &Line, core: Option<u32>, number: Number, at_ns: Option<i64>) {
        let labels = core.map(|core| ("core", core.to_string())).into_iter().collect();
        self.sample(line, labels, number, at_ns);
    }
}
