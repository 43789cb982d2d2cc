//! What the links of a simulated GPU lead to, as rows of `gpu_details`: in the words of NVML and of the compute driver of AMD.

use gpuvitals_core::batch::Value;
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::{BatchBuilder, IdentityColumn};

use super::gpu::Gpu;

const LINKS: MetricId = MetricId::of("interconnect_links");
/// The other end of a link that leads to no GPU.
const SWITCH: &str = "switch";

/// Writes the ends of a GPU's links, which is one of these. A driver of AMD tells which GPUs are linked, not by how many links.
pub(super) fn write(gpu: &Gpu, board: &[Gpu], timestamp_ns: i64, builder: &mut BatchBuilder) {
    let mut tell = |end: &str, links: f64| {
        let id = builder.intern(&gpu.identity);
        let row = builder.row(timestamp_ns, id);
        let set = builder
            .set_extra_text(row, "metric", LINKS.metric().column)
            .and_then(|()| builder.set_extra_text(row, "instance", end))
            .and_then(|()| builder.set_extra(row, "value", Value::Float(links)));
        debug_assert!(set.is_ok(), "{set:?}");
    };
    if gpu.model.links < 1.0 {
        return;
    }
    if gpu.model.is_nvidia() {
        return tell(SWITCH, gpu.model.links);
    }
    for other in board.iter().filter(|other| gpu.is_beside(other)) {
        if let Some(address) = other.identity.get(IdentityColumn::Pci) {
            tell(address, 1.0);
        }
    }
}
