//! Where GPUs are plugged in, and what their links lead to.

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use serde_json::json;

use crate::analysis::H100;
use crate::world::{World, gpu, now_ns, rows};

const HOST: &str = "sim-node-01";

fn plugged(index: i32, bus: &str) -> Identity {
    let card = gpu(&format!("GPU-{index}"), HOST, index, H100);
    card.with(IdentityColumn::Pci, &format!("0000:{bus}:00.0")).unwrap()
}

/// Links of GPUs to their ends, so many seconds before now; and a count of a link, which is another detail.
fn linked(links: &[(&Identity, &str, f64, i64)]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuDetails);
    for (identity, peer, count, ago_s) in links {
        let id = builder.intern(identity);
        for (metric, instance, value) in
            [("interconnect_links", *peer, *count), ("interconnect_links_up", "0", 1.0)]
        {
            let row = builder.row(now_ns() - ago_s * SECOND_NS, id);
            builder.set_extra_text(row, "metric", metric).unwrap();
            builder.set_extra_text(row, "instance", instance).unwrap();
            builder.set_extra(row, "value", Value::Float(value)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

#[tokio::test]
async fn a_host_tells_where_its_gpus_are_and_what_their_links_lead_to() {
    let world = World::empty(|_, _| {}).await;
    let (first, second) = (plugged(0, "1b"), plugged(1, "43"));
    let elsewhere = gpu("GPU-9", "sim-node-02", 0, H100);
    let values: &[(&str, f64)] = &[("numa_node", 1.0), ("interconnect_links_up", 18.0)];
    let power: &[(&str, f64)] = &[("power_w", 100.0)];
    world.append(rows(&[(second.clone(), 100, power), (first.clone(), 100, power)])).await;
    world.append(rows(&[(second.clone(), 0, values), (first.clone(), 5, power)])).await;
    world.append(rows(&[(elsewhere.clone(), 0, values)])).await;
    let links = [
        (&first, "switch", 6.0, 30),
        (&first, "0000:43:00.0", 12.0, 30),
        (&second, "0000:1b:00.0", 12.0, 60),
        (&second, "0000:1b:00.0", 11.0, 90),
        (&second, "0000:ff:00.0", 1.0, 30),
        (&elsewhere, "switch", 18.0, 30),
    ];
    world.append(linked(&links)).await;

    let answer = world.ok(&format!("/api/v1/hosts/{HOST}/topology")).await;
    assert_eq!(answer["as_of"], time::format(now_ns()));
    let place = |gpu: i32, pci: &str, numa: Option<i64>, up: Option<i64>| {
        let name = format!("{HOST} / GPU {gpu}");
        json!({ "id": format!("GPU-{gpu}"), "name": name, "index": gpu, "pci": pci, "numa_node": numa, "links_up": up })
    };
    let places = json!([place(0, "0000:1b:00.0", None, None), place(1, "0000:43:00.0", Some(1), Some(18))]);
    assert_eq!(answer["gpus"], places);
    let link = |gpu: &str, to: Option<&str>, peer: &str, links: i64| json!({ "gpu": gpu, "to_gpu": to, "peer": peer, "links": links });
    assert_eq!(
        answer["links"],
        json!([
            link("GPU-0", Some("GPU-1"), "0000:43:00.0", 12),
            link("GPU-0", None, "switch", 6),
            link("GPU-1", Some("GPU-0"), "0000:1b:00.0", 12),
            link("GPU-1", None, "0000:ff:00.0", 1),
        ]),
        "the newest of each, and nothing of other hosts"
    );

    let before = world.ok(&format!("/api/v1/hosts/{HOST}/topology?at={}", now_ns() - 70 * SECOND_NS)).await;
    assert_eq!(before["links"], json!([link("GPU-1", Some("GPU-0"), "0000:1b:00.0", 11)]), "{before}");
    assert_eq!(world.get("/api/v1/hosts/nohost/topology").await.status, 404);
}
