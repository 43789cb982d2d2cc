//! Clusters whose GPU nodes are read from outside: what is known of them at one moment.
//!
//! Who reads them makes these views; REST and figures show them.

mod records;
mod selection;
mod summary;
mod view;
pub mod whole;

pub use records::{GpuRecord, ProcessRecord};
pub use selection::{ClusterSelection, NoCluster, SelectedClusters};
pub use summary::{ClusterSummary, total_memory_mb};
pub use view::{ClusterState, ClusterView, NodeReading, NodeState, NodeView};
