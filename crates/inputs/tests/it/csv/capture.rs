//! A fleet in the long form: the real capture if it is at hand, an imitation always; and round trips.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use arrow_array::cast::AsArray;
use gpuvitals_core::batch::{Value, text_at};
use gpuvitals_core::catalogue::{DcgmName, by_column, by_dcgm};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, time};
use gpuvitals_inputs::csv::write::{WideWriter, WriteError};
use gpuvitals_inputs::csv::{CsvForm, CsvSource};

use super::reading::{NOW, SECOND_NS, config, drain, reader, rows};

/// The latest values of each GPU, whatever rows they came in.
fn merged(batches: &[Batch]) -> BTreeMap<String, BTreeMap<&'static str, f64>> {
    let mut gpus: BTreeMap<String, BTreeMap<&'static str, f64>> = BTreeMap::new();
    for batch in batches {
        for row in 0..batch.rows() {
            let gpu = gpus.entry(batch.identity(row).key().unwrap().to_string()).or_default();
            for (id, column) in batch.metrics() {
                if let Some(value) = column.value(row) {
                    let value = value.to_json().as_f64().unwrap();
                    gpu.insert(id.metric().column, value);
                }
            }
        }
    }
    gpus
}

fn hosts(batches: &[Batch]) -> BTreeSet<String> {
    let all = batches.iter().flat_map(|b| (0..b.rows()).map(|r| b.identity(r).node().unwrap().to_owned()));
    all.collect()
}

#[test]
fn the_dcgm_capture_gives_247_gpus_on_31_hosts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/dcgm/metrics.csv");
    if !path.exists() {
        eprintln!("skipped: {} is not there; the twin of our own is tested", path.display());
        return;
    }
    let mut source = CsvSource::open(path, config(), NOW).unwrap();
    assert_eq!(source.form(), CsvForm::Long);
    let batches = drain(&mut source);
    let counts = source.counts();
    assert_eq!((counts.rows_read, counts.rows_taken, counts.values_invalid), (2470, 2470, 0));
    assert_eq!(source.drain_reports(), []);
    let total: usize = batches.iter().map(Batch::rows).sum();
    assert!((988..=1010).contains(&total), "{total} rows");
    assert!(batches.iter().all(|batch| batch.rows() <= 500));
    assert_eq!(hosts(&batches).len(), 31);
    let gpus = merged(&batches);
    assert_eq!(gpus.len(), 247);
    assert!(gpus.values().all(|metrics| metrics.len() == 10));
    let expected = BTreeMap::from([
        ("utilization_pct", 0.0),
        ("memory_utilization_pct", 0.0),
        ("power_w", 156.596),
        ("temperature_c", 63.0),
        ("memory_used_mb", 73_420.0),
        ("memory_free_mb", 7_587.0),
        ("decoder_utilization_pct", 0.0),
        ("encoder_utilization_pct", 0.0),
        ("sm_clock_mhz", 1980.0),
        ("mem_clock_mhz", 2619.0),
    ]);
    assert_eq!(gpus["GPU-5fd4f087-86f3-7a43-b711-4771313afc50"], expected);
    let identity = batches[0].identity(0);
    let get = |column| identity.get(column).unwrap();
    assert_eq!(identity.index, Some(0));
    assert_eq!(get(IdentityColumn::Node), "mtv5-dgx1-hgpu-031");
    assert_eq!(get(IdentityColumn::Model), "NVIDIA H100 80GB HBM3");
    assert_eq!(get(IdentityColumn::Vendor), "nvidia");
    assert_eq!(get(IdentityColumn::Driver), "535.129.03");
    assert_eq!(get(IdentityColumn::Source), "csv");
    assert_eq!(identity.get(IdentityColumn::Job), None);
    let extras: BTreeSet<&str> = batches[0].extras().map(|(name, _)| name).collect();
    assert_eq!(extras, BTreeSet::from(["device", "label_instance", "label_job"]));
}

/// DCGM name and value of the n-th GPU.
type Series = (&'static str, fn(i32) -> f64);

/// A made-up fleet in the shape of the capture: each metric at its own instant.
fn twin(hosts: i32, gpus: i32) -> Vec<Batch> {
    let metrics: [&[Series]; 2] = [
        &[
            ("DCGM_FI_DEV_GPU_UTIL", |n| f64::from(n % 101)),
            ("DCGM_FI_DEV_POWER_USAGE", |n| 70.0 + f64::from(n) * 0.125),
        ],
        &[
            ("DCGM_FI_DEV_FB_USED", |n| f64::from(n * 17)),
            ("DCGM_FI_DEV_GPU_TEMP", |n| f64::from(30 + n % 40)),
            ("DCGM_FI_DEV_SM_CLOCK", |_| 1410.0),
            ("power_average_w", |n| f64::from(70 + n)),
        ],
    ];
    let mut batches = Vec::new();
    for (second, metrics) in (0_i32..).zip(metrics) {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        for n in 0..hosts * gpus {
            let (host, index) = (n / gpus, n % gpus);
            let mut identity = Identity::default();
            identity.index = Some(index);
            for (column, text) in [
                (IdentityColumn::Node, format!("twin-{host:02}")),
                (IdentityColumn::Uuid, format!("GPU-00000000-0000-0000-0000-{n:012}")),
                (IdentityColumn::Model, "NVIDIA A100-SXM4-40GB".to_owned()),
                (IdentityColumn::Vendor, "nvidia".to_owned()),
                (IdentityColumn::Driver, "550.54.15".to_owned()),
                (IdentityColumn::Source, "simulated".to_owned()),
            ] {
                identity.set(column, &text).unwrap();
            }
            let id = builder.intern(&identity);
            let row = builder.row(NOW - (100 - i64::from(second)) * SECOND_NS, id);
            for (name, value) in metrics {
                let id = by_column(name).or_else(|| by_dcgm(name).map(|(id, _)| id)).unwrap();
                builder.set(row, id, Value::Float(value(n))).unwrap();
            }
            builder.set_extra_text(row, "device", &format!("nvidia{index}")).unwrap();
            builder.set_extra_text(row, "label_instance", &format!("twin-{host:02}:9400")).unwrap();
            builder.set_extra_text(row, "label_job", "twin_exporter").unwrap();
        }
        batches.extend(builder.finish(Origin::default(), u64::from(second.unsigned_abs()) + 1));
    }
    batches
}

const LONG_HEADER: &str =
    "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw";

/// Batches in the long form as Prometheus exports dcgm-exporter's series: every field quoted, DCGM's names where the metric has
/// one that is read back as this metric, metric by metric.
fn long(batches: &[Batch]) -> String {
    let mut text = format!("{LONG_HEADER}\n");
    for batch in batches {
        for (id, column) in batch.metrics() {
            let facts = id.metric();
            let is_read = |name: &&DcgmName| by_dcgm(name.name).is_some_and(|(read, _)| read == id);
            let mut names = facts.dcgm.iter().filter(is_read);
            let dcgm = names.clone().find(|name| !name.modern).or_else(|| names.next());
            let (name, factor) = dcgm.map_or((facts.column, 1.0), |dcgm| (dcgm.name, dcgm.factor));
            for row in (0..batch.rows()).filter(|&row| column.value(row).is_some()) {
                text.push_str(&line(batch, row, name, column.value(row).unwrap().as_f64() * factor));
            }
        }
    }
    text
}

fn line(batch: &Batch, row: usize, name: &str, value: f64) -> String {
    let identity = batch.identity(row);
    let get = |column| identity.get(column).unwrap_or_default().to_owned();
    let extra = |name: &str| {
        let found = batch.extras().find(|(extra, _)| *extra == name);
        found.map_or_else(String::new, |(_, array)| text_at(array.as_dictionary(), row).unwrap().to_owned())
    };
    let (uuid, model) = (get(IdentityColumn::Uuid), get(IdentityColumn::Model));
    let (node, device) = (get(IdentityColumn::Node), extra("device"));
    let index = identity.index.unwrap().to_string();
    let labels = [
        ("DCGM_FI_DRIVER_VERSION", get(IdentityColumn::Driver)),
        ("Hostname", node.clone()),
        ("UUID", uuid.clone()),
        ("__name__", name.to_owned()),
        ("device", device.clone()),
        ("gpu", index.clone()),
        ("instance", extra("label_instance")),
        ("job", extra("label_job")),
        ("modelName", model.clone()),
        ("source", get(IdentityColumn::Source)),
    ];
    let labels = labels.map(|(name, value)| format!("{name}=\"{value}\"")).join(",");
    let timestamp = time::format(batch.timestamps()[row]);
    let blank = String::new;
    let fields = [
        timestamp,
        name.to_owned(),
        index,
        device,
        uuid,
        model,
        node,
        blank(),
        blank(),
        blank(),
        value.to_string(),
        labels,
    ];
    fields.map(|field| format!("\"{}\"", field.replace('"', "\"\""))).join(",") + "\n"
}

#[test]
fn a_twin_in_the_long_form_comes_back_as_it_was() {
    let batches = twin(31, 8);
    let text = long(&batches);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(LONG_HEADER));
    assert_eq!(
        lines.next().unwrap(),
        "\"2026-11-20T11:58:20Z\",\"DCGM_FI_DEV_POWER_USAGE_INSTANT\",\"0\",\"nvidia0\",\
         \"GPU-00000000-0000-0000-0000-000000000000\",\"NVIDIA A100-SXM4-40GB\",\"twin-00\",\"\",\"\",\"\",\"70\",\
         \"DCGM_FI_DRIVER_VERSION=\"\"550.54.15\"\",Hostname=\"\"twin-00\"\",\
         UUID=\"\"GPU-00000000-0000-0000-0000-000000000000\"\",__name__=\"\"DCGM_FI_DEV_POWER_USAGE_INSTANT\"\",\
         device=\"\"nvidia0\"\",gpu=\"\"0\"\",instance=\"\"twin-00:9400\"\",job=\"\"twin_exporter\"\",\
         modelName=\"\"NVIDIA A100-SXM4-40GB\"\",source=\"\"simulated\"\"\""
    );
    assert_eq!(lines.count() + 1, 31 * 8 * 6);
    let mut source = CsvSource::open(reader(text.into_bytes()), config(), NOW).unwrap();
    let read = drain(&mut source);
    assert_eq!(source.drain_reports(), []);
    assert_eq!(hosts(&read).len(), 31);
    assert_eq!(merged(&read), merged(&batches));
    assert_eq!(rows(&read)[0], rows(&batches)[0]);
    assert!(read.iter().all(|batch| (0..batch.rows()).all(|row| batch.identity(row).is_simulated())));
}

#[test]
fn the_wide_form_comes_back_as_it_was() {
    let batches = twin(2, 4);
    for batch in &batches {
        let mut writer = WideWriter::new(Vec::new());
        writer.write(batch).unwrap();
        let text = writer.into_inner();
        let mut source = CsvSource::open(reader(text), config(), NOW).unwrap();
        assert_eq!(rows(&drain(&mut source)), rows(std::slice::from_ref(batch)));
        assert_eq!(source.drain_reports(), []);
    }
    let mut writer = WideWriter::new(Vec::new());
    writer.write(&batches[0]).unwrap();
    assert!(matches!(writer.write(&batches[1]), Err(WriteError::Column(_))));
}
