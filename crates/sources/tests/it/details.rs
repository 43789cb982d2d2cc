//! The rows of `gpu_details` that a sampler makes.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvitals_core::{Table, message};
use gpuvitals_sources::attribution::Owners;
use gpuvitals_sources::probe::Probe;
use gpuvitals_sources::sampler::{Sampler, SamplerConfig};

/// The details of the first reading: values by GPU, metric and instance.
pub(crate) fn details(probe: Box<dyn Probe>) -> BTreeMap<[String; 3], f64> {
    let config = SamplerConfig { hand_on: Duration::ZERO, ..SamplerConfig::default() };
    let sampler = Sampler::start(vec![probe], config, Owners::new()).unwrap();
    let whole = sampler.next(Duration::from_mins(1)).unwrap();
    assert_eq!(whole.table(), Table::GpuEvents);
    let batch = sampler.next(Duration::from_mins(1)).unwrap();
    assert_eq!((batch.table(), batch.timestamps()[0]), (Table::GpuDetails, whole.timestamps()[0]));
    let mut values = BTreeMap::new();
    for row in 0..batch.rows() {
        let fields = &message::render(&batch, row).unwrap()["fields"];
        let key = ["uuid", "metric", "instance"].map(|column| fields[column].as_str().unwrap().to_owned());
        assert_eq!(values.insert(key, fields["value"].as_f64().unwrap()), None, "{fields}");
    }
    values
}
