//! The `gpu_metrics` decoder against captured tables, against the kernel's layouts, and against anything else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gpuvitals_sources::dialect::amd_gpu_metrics::{Field, GpuMetrics, TableError, Version, XCP_MAX};
use proptest::prelude::*;
use serde::Deserialize;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/gpu-metrics-blobs")
}

#[derive(Deserialize)]
struct Layout {
    size: u16,
    fields: Vec<FieldLayout>,
}

#[derive(Deserialize)]
struct FieldLayout {
    name: String,
    offset: usize,
    #[serde(rename = "type")]
    kind: String,
    count: usize,
}

impl FieldLayout {
    fn width(&self) -> usize {
        self.kind.strip_prefix('u').unwrap().parse::<usize>().unwrap() / 8
    }

    /// The field, if it is one that is read.
    fn field(&self) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| field.as_str() == self.name)
    }
}

/// The layouts of the kernel by name.
fn layouts() -> BTreeMap<String, Layout> {
    serde_json::from_slice(&std::fs::read(fixtures().join("layouts.json")).unwrap()).unwrap()
}

/// Format and content revision of a layout by its name, none for a partition's.
fn revision(name: &str) -> Option<(u8, u8)> {
    let (format, content) = name.strip_prefix('v')?.split_once('.')?;
    Some((format.parse().unwrap(), content.trim_end_matches("-early").parse().unwrap()))
}

/// A table under construction and its expected values.
struct Encoder {
    bytes: Vec<u8>,
    expected: BTreeMap<(usize, Field), Vec<Option<i64>>>,
    next: i64,
}

impl Encoder {
    fn new(size: u16, (format, content): (u8, u8)) -> Self {
        let mut bytes = vec![0xff; usize::from(size)];
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        bytes[2..4].copy_from_slice(&[format, content]);
        Self { bytes, expected: BTreeMap::new(), next: 0 }
    }

    /// Every element a value of its own with its top bits set, but each fourth is left all ones.
    fn fill(&mut self, layout: &Layout, base: usize, partition: usize) {
        for described in &layout.fields {
            let Some(field) = described.field() else { continue };
            let width = described.width();
            let elements: Vec<_> = (0..described.count)
                .map(|element| {
                    self.next += 1;
                    if self.next % 4 == 0 {
                        return None;
                    }
                    let top = [0, 0, 0xa000, 0, 0xa000_0000, 0, 0, 0, 0x7a00_0000_0000_0000][width];
                    let value: i64 = top | self.next;
                    let at = base + described.offset + element * width;
                    self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                    Some(value)
                })
                .collect();
            self.expected.insert((partition, field), elements);
        }
    }
}

fn assert_reads(bytes: &[u8], expected: &BTreeMap<(usize, Field), Vec<Option<i64>>>, name: &str) {
    let metrics = GpuMetrics::decode(bytes).unwrap();
    for (partition, field) in (0..XCP_MAX).flat_map(|xcp| Field::ALL.iter().map(move |field| (xcp, *field))) {
        let wanted = expected.get(&(partition, field)).cloned().unwrap_or_default();
        let read: Vec<_> = metrics.xcp(partition, field).collect();
        assert_eq!(read, wanted, "{name} partition {partition} {}", field.as_str());
        if partition == 0 {
            assert_eq!(metrics.get(field), wanted.first().copied().flatten(), "{name} {}", field.as_str());
        }
    }
}

#[test]
fn every_layout_of_the_kernel_is_read_at_its_offsets() {
    let layouts = layouts();
    let mut seen = 0;
    for (name, layout) in &layouts {
        let Some(revision) = revision(name) else { continue };
        let mut encoder = Encoder::new(layout.size, revision);
        encoder.fill(layout, 0, 0);
        for part in layout.fields.iter().filter(|field| field.name == "xcp_stats") {
            let xcp = &layouts[&part.kind];
            for partition in 0..part.count {
                encoder.fill(xcp, part.offset + partition * usize::from(xcp.size), partition);
            }
        }
        assert_reads(&encoder.bytes, &encoder.expected, name);
        seen += 1;
    }
    assert_eq!(seen, 16);
}

#[test]
fn an_unfilled_table_gives_the_shape_and_no_value() {
    for (name, layout) in &layouts() {
        let Some(revision) = revision(name) else { continue };
        let blank = Encoder::new(layout.size, revision);
        let metrics = GpuMetrics::decode(&blank.bytes).unwrap();
        for described in &layout.fields {
            let Some(field) = described.field() else { continue };
            assert_eq!(metrics.all(field).len(), described.count, "{name} {}", described.name);
            assert!(metrics.all(field).all(|element| element.is_none()), "{name} {}", described.name);
        }
    }
}

#[test]
fn captured_tables_read_as_the_kernel_wrote_them() {
    let layouts = layouts();
    let mut seen = 0;
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        let Some(stem) = path.to_str().and_then(|path| path.strip_suffix(".decoded.json")) else { continue };
        let bytes = std::fs::read(format!("{stem}.bin")).unwrap();
        let decoded: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let layout = &layouts[&format!("v{}.{}", decoded["format_revision"], decoded["content_revision"])];
        let mut expected = BTreeMap::new();
        for described in &layout.fields {
            let Some(field) = described.field() else { continue };
            let value = &decoded[&described.name];
            let ones = u64::MAX >> (64 - 8 * described.width());
            let elements = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            let elements = elements.iter().map(|element| {
                let element = element.as_u64().unwrap();
                (element != ones).then(|| i64::try_from(element).unwrap())
            });
            expected.insert((0, field), elements.collect());
        }
        assert_reads(&bytes, &expected, stem);
        seen += 1;
    }
    assert_eq!(seen, 6);
}

fn refusal(bytes: &[u8]) -> TableError {
    GpuMetrics::decode(bytes).unwrap_err()
}

#[test]
fn what_does_not_fit_its_header_is_refused_and_says_why() {
    let invalid = std::fs::read(fixtures().join("mangohud-invalid.bin")).unwrap();
    assert_eq!(refusal(&invalid), TableError::Unfilled(Version { format: 0, content: 0, size: 0 }));
    assert_eq!(refusal(&[]), TableError::NoHeader { len: 0 });
    assert_eq!(refusal(&[8, 0, 1]), TableError::NoHeader { len: 3 });

    let whole = std::fs::read(fixtures().join("rx6900xt-v1.3.bin")).unwrap();
    for len in 4..whole.len() {
        let version = Version { format: 1, content: 3, size: 120 };
        assert_eq!(refusal(&whole[..len]), TableError::Truncated { version, len });
    }
    let mut longer = whole.clone();
    longer.extend([7; 9]);
    assert!(GpuMetrics::decode(&longer).is_ok(), "what follows the table is not its own");

    let header = |size: u16, format, content| Encoder::new(size, (format, content)).bytes;
    for (size, format, content) in [(264, 3, 1), (120, 2, 5), (120, 0, 3), (4096, 1, 10), (8, 255, 255)] {
        let version = Version { format, content, size };
        assert_eq!(refusal(&header(size, format, content)), TableError::Unknown(version));
    }
    for (size, format, content) in [(119, 1, 3), (1663, 1, 6), (2200, 1, 7), (120, 2, 2), (4, 3, 0)] {
        let version = Version { format, content, size };
        assert_eq!(refusal(&header(size, format, content)), TableError::WrongSize(version));
        assert!(refusal(&header(size, format, content)).to_string().contains(&version.to_string()));
    }
}

#[test]
fn the_two_forms_of_v1_6_are_told_apart_by_size() {
    let early = Encoder::new(384, (1, 6)).bytes;
    let early = GpuMetrics::decode(&early).unwrap();
    assert_eq!((early.all(Field::VcnActivity).len(), early.all(Field::XcpVcnBusy).len()), (4, 0));
    let late = Encoder::new(1664, (1, 6)).bytes;
    let late = GpuMetrics::decode(&late).unwrap();
    assert_eq!((late.all(Field::VcnActivity).len(), late.all(Field::XcpVcnBusy).len()), (0, 4));
    assert_eq!(late.xcp(XCP_MAX - 1, Field::XcpVcnBusy).len(), 4);
    assert_eq!(late.xcp(XCP_MAX, Field::XcpVcnBusy).len(), 0);
    assert_eq!(late.xcp(1, Field::CurrentGfxclk).len(), 0, "a field of the package is of no partition");
}

const U8: u64 = 0;
const U16: u64 = 2;
const S16: u64 = 3;
const U64: u64 = 6;
const HOTSPOT: u64 = 0;
const POWER: u64 = 3;
const ENERGY: u64 = 7;
const XGMI_READ: u64 = 29;

/// A record of a self-describing table.
fn record(kind: u64, attribute: u64, count: u64, values: &[u8]) -> Vec<u8> {
    let encoding: u64 = 2 << 24 | kind << 20 | attribute << 10 | count;
    [&encoding.to_le_bytes(), values].concat()
}

fn described(count: i32, records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let size = u16::try_from(8 + records.len()).unwrap();
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend([1, 9]);
    bytes.extend(count.to_le_bytes());
    bytes.extend(records);
    bytes
}

#[test]
fn a_self_describing_table_is_read_past_what_is_not_known() {
    let bytes = described(
        6,
        &[
            record(U8, HOTSPOT, 1, &[61]),
            record(U64, 900, 3, &[9; 24]),
            record(S16, POWER, 1, &(-5_i16).to_le_bytes()),
            record(U64, XGMI_READ, 3, &[[1; 8], [0xff; 8], [2; 8]].concat()),
            record(U64, ENERGY, 1, &(1_u64 << 63).to_le_bytes()),
            record(U16, 40, 0, &[]),
        ],
    );
    let metrics = GpuMetrics::decode(&bytes).unwrap();
    assert_eq!(
        metrics.version(),
        Version { format: 1, content: 9, size: u16::try_from(bytes.len()).unwrap() }
    );
    assert_eq!(metrics.get(Field::TemperatureHotspot), Some(61));
    assert_eq!(metrics.get(Field::CurrentSocketPower), Some(-5));
    let links: Vec<_> = metrics.all(Field::XgmiReadDataAcc).collect();
    assert_eq!(links, [Some(0x0101_0101_0101_0101), None, Some(0x0202_0202_0202_0202)]);
    assert_eq!(metrics.get(Field::EnergyAccumulator), None, "no counter gets there");
    assert_eq!(metrics.all(Field::EnergyAccumulator).len(), 1);
    assert_eq!(metrics.all(Field::XcpGfxBusyInst).len(), 0);
    assert_eq!(metrics.get(Field::TemperatureMem), None);
}

#[test]
fn a_self_describing_table_ends_where_it_no_longer_makes_sense() {
    let first = record(U16, HOTSPOT, 1, &61_u16.to_le_bytes());
    let last = record(U16, POWER, 1, &750_u16.to_le_bytes());
    let overrun = record(U64, XGMI_READ, 1023, &[0; 8]);
    let unknown_type = record(8, XGMI_READ, 1, &[0; 8]);
    for (bytes, what) in [
        (described(3, &[first.clone(), overrun, last.clone()]), "overrun"),
        (described(3, &[first.clone(), unknown_type, last.clone()]), "unknown type"),
        (described(i32::MAX, std::slice::from_ref(&first)), "more promised than there is"),
        (described(2, &[first.clone(), last[..9].to_vec()]), "cut in a value"),
        (described(2, &[first.clone(), last[..7].to_vec()]), "cut in an encoding"),
        (described(1, &[first.clone(), last.clone()]), "more than counted"),
    ] {
        let metrics = GpuMetrics::decode(&bytes).unwrap();
        assert_eq!(metrics.get(Field::TemperatureHotspot), Some(61), "{what}");
        assert_eq!(metrics.all(Field::CurrentSocketPower).len(), 0, "{what}");
    }
    let negative = described(-1, &[first]);
    let version = Version { format: 1, content: 9, size: u16::try_from(negative.len()).unwrap() };
    assert_eq!(refusal(&negative), TableError::AttributeCount { version, count: -1 });
    let headless = [6, 0, 1, 9, 0, 0];
    assert!(matches!(refusal(&headless), TableError::Truncated { len: 6, .. }));
}

fn walk(bytes: &[u8]) {
    let Ok(metrics) = GpuMetrics::decode(bytes) else { return };
    for field in Field::ALL {
        for partition in [0, 1, XCP_MAX - 1, XCP_MAX, usize::MAX] {
            let elements = metrics.xcp(partition, *field);
            assert_eq!(elements.len(), elements.clone().count());
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..4200)) {
        walk(&bytes);
    }

    #[test]
    fn no_bytes_under_a_good_header_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 8..4200),
        version in prop::sample::select(vec![(1, 3, 120_u16), (1, 6, 1664), (1, 8, 3872), (1, 9, 0), (3, 0, 264)]),
    ) {
        let (format, content, size) = version;
        let size = if size == 0 { u16::try_from(bytes.len()).unwrap() } else { size };
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        bytes[2..4].copy_from_slice(&[format, content]);
        if content == 9 {
            bytes[5..8].fill(0);
        }
        walk(&bytes);
    }
}
