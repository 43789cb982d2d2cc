//! Parts of a whole.

use super::MetricId;

/// A part of a memory, its share of the whole where one is measured, and the whole. A part is never larger.
pub const MEMORY_PARTS: [(MetricId, Option<MetricId>, MetricId); 4] = [
    (MetricId::of("memory_used_mb"), Some(MetricId::of("memory_used_pct")), MetricId::of("memory_total_mb")),
    (MetricId::of("visible_memory_used_mb"), None, MetricId::of("visible_memory_total_mb")),
    (MetricId::of("gtt_used_mb"), None, MetricId::of("gtt_total_mb")),
    (MetricId::of("bar1_used_mb"), None, MetricId::of("bar1_total_mb")),
];
