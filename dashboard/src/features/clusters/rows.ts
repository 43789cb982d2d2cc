// What the lists of nodes and processes show. All of it is at hand: the server has no order or search here.

import type { ClusterNode, GpuProcess, NodeGpu, NodeState } from "../../api/clusters";
import { compareText } from "../../parts/order";
import type { ClustersState } from "./address";

/** The sick before the well. What cannot be read by intent is not sick. */
const SEVERITY: Readonly<Record<NodeState, number>> = { failing: 0, partial: 1, no_driver_pod: 2, driver_pod_not_ready: 3, waiting: 4, no_tool: 5, ok: 6 };
/** A state of a newer server: rather too far up than overlooked. */
const UNHEARD_OF = 1;

export interface Memory {
  readonly used: number | null;
  readonly total: number | null;
}

/** What a node's GPUs do together; `null` where none of them says. */
export interface Load {
  /** Their mean, %. */
  readonly utilization: number | null;
  /** Of the hottest, °C. */
  readonly temperature: number | null;
  readonly memory: Memory;
}

const isNumber = (value: number | null): value is number => value !== null;

export function sumOf(values: readonly (number | null)[]): number | null {
  const known = values.filter(isNumber);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
}

/** Used and total memory of the GPUs that tell both, else what is known of either, so that the share is never of another whole. */
export function memoryOf(gpus: readonly NodeGpu[]): Memory {
  const both = gpus.filter((gpu) => gpu.memory_used_mb !== null && gpu.memory_total_mb !== null);
  const counted = both.length > 0 ? both : gpus;
  return { used: sumOf(counted.map((gpu) => gpu.memory_used_mb)), total: sumOf(counted.map((gpu) => gpu.memory_total_mb)) };
}

export function loadOf(gpus: readonly NodeGpu[]): Load {
  const busy = gpus.map((gpu) => gpu.utilization_gpu_percent).filter(isNumber);
  const hot = gpus.map((gpu) => gpu.temperature_celsius).filter(isNumber);
  const sum = sumOf(busy);
  return {
    utilization: sum === null ? null : sum / busy.length,
    temperature: hot.length === 0 ? null : Math.max(...hot),
    memory: memoryOf(gpus),
  };
}

/** A node, and what its GPUs do. */
export interface NodeRow {
  readonly node: ClusterNode;
  readonly load: Load;
  /** When the server told of it. */
  readonly at: number;
}

/** Whether each of the words is part of one of the texts; case does not count. */
export function matches(search: string, texts: readonly string[]): boolean {
  const all = texts.join("\n").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

export function severity(state: string): number {
  return (SEVERITY as Readonly<Record<string, number>>)[state] ?? UNHEARD_OF;
}

/** The nodes that fit the filters, the sick first, then by cluster and name. `at` is when the server told of them. */
export function nodeRows(nodes: readonly ClusterNode[], state: ClustersState, at: number): NodeRow[] {
  const fits = (node: ClusterNode) =>
    (state.state === "" || node.state === state.state) &&
    matches(state.search, [node.node_name, node.cluster_id, node.error ?? "", ...Object.entries(node.labels).map(([name, value]) => `${name}=${value}`), ...modelsOf(node.gpus)]);
  const rows = nodes.filter(fits).map((node) => ({ node, load: loadOf(node.gpus), at }));
  return rows.sort(
    (a, b) =>
      severity(a.node.state) - severity(b.node.state) ||
      compareText(a.node.cluster_id, b.node.cluster_id) ||
      compareText(a.node.node_name, b.node.node_name),
  );
}

/** The different models among GPUs. */
export function modelsOf(gpus: readonly NodeGpu[]): string[] {
  return [...new Set(gpus.map((gpu) => gpu.name).filter((name) => name !== null))];
}

/** Labels that say something to people first: where and what the machine is, before what a GPU vendor's tools put there. */
export function labelsInOrder(labels: Readonly<Record<string, string>>): [string, string][] {
  const rank = (name: string) => Number(/^(\w+\.)?(nvidia|amd)\.com\//.test(name));
  return Object.entries(labels).sort(([a], [b]) => rank(a) - rank(b) || compareText(a, b));
}

/** The processes that fit the filters, in the server's order, by cluster and node. */
export function processRows(processes: readonly GpuProcess[], state: ClustersState): GpuProcess[] {
  const fits = (process: GpuProcess) =>
    (state.node === "" || process.node_name === state.node) &&
    (state.type === "" || process.process_type === state.type) &&
    matches(state.search, [process.command ?? "", String(process.pid)]);
  return processes.filter(fits);
}

/** The different values of a field, for a choice. */
export function choicesOf(processes: readonly GpuProcess[], field: "node_name" | "process_type"): string[] {
  return [...new Set(processes.map((process) => process[field]))].sort(compareText);
}
