//! Clusters that are read from outside, made up for tests of those who show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::batch::Value;
use gpuvitals_core::clusters::{ClusterState, ClusterView, NodeReading, NodeState, NodeView};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};

fn identity(cluster: &str, node: &str, index: i32) -> Identity {
    let mut identity = Identity::default();
    identity.index = Some(index);
    for (column, text) in [
        (IdentityColumn::Uuid, format!("GPU-{node}-{index}")),
        (IdentityColumn::Node, node.to_owned()),
        (IdentityColumn::Cluster, cluster.to_owned()),
        (IdentityColumn::Model, "NVIDIA H200".to_owned()),
        (IdentityColumn::Driver, "580.65.06".to_owned()),
    ] {
        identity.set(column, &text).unwrap();
    }
    identity
}

/// Two GPUs, the second without a temperature, and a process on the first; read five seconds before `now_ns`.
///
pub fn reading(cluster: &str, node: &str, now_ns: i64) -> NodeReading {
    let taken_ns = now_ns - 5 * SECOND_NS;
    let mut gpus = BatchBuilder::new(Table::GpuEvents);
    let values: [&[(&str, f64)]; 2] = [
        &[
            ("temperature_c", 41.0),
            ("utilization_pct", 99.0),
            ("memory_total_mb", 1000.0),
            ("memory_used_mb", 250.0),
            ("power_w", 412.12),
        ],
        &[("utilization_pct", 0.5), ("memory_total_mb", 1000.0), ("memory_used_mb", 0.0)],
    ];
    for (index, values) in (0..).zip(values) {
        let id = gpus.intern(&identity(cluster, node, index));
        let row = gpus.row(taken_ns, id);
        for (column, value) in values {
            gpus.set(row, catalogue::by_column(column).unwrap(), Value::Float(*value)).unwrap();
        }
    }
    let mut processes = BatchBuilder::new(Table::GpuProcesses);
    let id = processes.intern(&identity(cluster, node, 0));
    let row = processes.row(taken_ns, id);
    processes.set_extra(row, "pid", Value::Int(42)).unwrap();
    processes.set_extra(row, "sm_utilization", Value::Float(99.0)).unwrap();
    processes.set_extra_text(row, "process_type", "compute").unwrap();
    processes.set_extra_text(row, "command", "python3").unwrap();
    NodeReading {
        taken_ns,
        gpus: gpus.finish(Origin::default(), 1).unwrap(),
        processes: Some(processes.finish(Origin::default(), 1).unwrap()),
        processes_error: None,
    }
}

/// A node of two GPUs, which was read if there is a reading; one that fails says why.
pub fn node(name: &str, state: NodeState, reading: Option<NodeReading>, now_ns: i64) -> Arc<NodeView> {
    Arc::new(NodeView {
        name: Arc::from(name),
        vendor: "nvidia",
        labels: Arc::new(BTreeMap::from([("nvidia.com/gpu.product".to_owned(), "NVIDIA-H200".to_owned())])),
        gpus_announced: Some(2),
        state,
        since_ns: now_ns,
        error: (state == NodeState::Failing).then(|| Arc::from("no answer within 10s")),
        reading: reading.map(Arc::new),
    })
}

/// A cluster with these nodes, and nothing to say about its state.
pub fn cluster(name: &str, state: ClusterState, nodes: Vec<Arc<NodeView>>, now_ns: i64) -> ClusterView {
    ClusterView {
        name: Arc::from(name),
        has_gpu: state != ClusterState::NoGpu,
        skips_tls_verify: false,
        state,
        since_ns: now_ns,
        error: None,
        has_driver_pods: !matches!(state, ClusterState::NoGpu | ClusterState::NoGpuOperator),
        nodes,
    }
}
