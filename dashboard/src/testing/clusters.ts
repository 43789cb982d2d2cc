import type { Cluster, ClusterNode, ClusterSummary, GpuProcess, NodeGpu } from "../api/clusters";

const SINCE = "2026-11-20T10:00:00Z";

export function cluster(part: Partial<Cluster> = {}): Cluster {
  return {
    cluster_id: "east",
    state: "ok",
    since: SINCE,
    error: null,
    has_gpu: true,
    skips_tls_verify: false,
    node_count: 1,
    nodes: { waiting: 0, ok: 1, partial: 0, failing: 0, no_driver_pod: 0, driver_pod_not_ready: 0, no_tool: 0 },
    gpu_count: 1,
    newest_reading_age_seconds: 4,
    oldest_reading_age_seconds: 4,
    missing: [],
    ...part,
  };
}

export function node(part: Partial<ClusterNode> = {}): ClusterNode {
  return {
    node_name: "node-1",
    cluster_id: "east",
    vendor: "nvidia",
    state: "ok",
    since: SINCE,
    error: null,
    stale: false,
    age_seconds: 4,
    gpu_count: 1,
    gpus_announced: 1,
    total_memory_mb: 81_920,
    labels: {},
    gpus: [nodeGpu()],
    processes_error: null,
    ...part,
  };
}

/** A node of which nothing was ever read. */
export function unread(part: Partial<ClusterNode> = {}): ClusterNode {
  return node({ state: "failing", error: "no answer within 9s", age_seconds: null, gpu_count: 0, gpus_announced: 8, total_memory_mb: 0, gpus: [], ...part });
}

export function nodeGpu(part: Partial<NodeGpu> = {}): NodeGpu {
  return {
    index: 0,
    uuid: "GPU-a",
    name: "NVIDIA H100",
    driver_version: "590.48.01",
    temperature_celsius: 61,
    utilization_gpu_percent: 87,
    utilization_memory_percent: 12,
    memory_total_mb: 81_920,
    memory_used_mb: 40_960,
    memory_free_mb: 40_960,
    power_draw_watts: 512,
    power_limit_watts: 700,
    pcie_generation: 5,
    pcie_link_width: 16,
    fan_speed_percent: 40,
    processes: [],
    ...part,
  };
}

/** A GPU of which nothing but its existence was read. */
export function silentGpu(part: Partial<NodeGpu> = {}): NodeGpu {
  const values = Object.keys(nodeGpu()).filter((field) => !["index", "uuid", "name", "processes"].includes(field));
  return nodeGpu({ ...Object.fromEntries(values.map((field) => [field, null])), ...part });
}

export function process(part: Partial<GpuProcess> = {}): GpuProcess {
  return {
    pid: 4711,
    gpu_index: 0,
    process_type: "compute",
    sm_utilization: 42,
    memory_utilization: 7,
    encoder_utilization: null,
    decoder_utilization: null,
    fb_memory_mb: 2048,
    command: "python3",
    node_name: "node-1",
    cluster_id: "east",
    ...part,
  };
}

export function summary(part: Partial<ClusterSummary> = {}): ClusterSummary {
  return {
    cluster_id: null,
    node_count: 2,
    gpu_count: 16,
    total_memory_mb: 2_097_152,
    used_memory_mb: 1_048_576,
    memory_utilization_percent: 50,
    average_gpu_utilization_percent: 63.4,
    average_temperature_celsius: 55.5,
    ...part,
  };
}
