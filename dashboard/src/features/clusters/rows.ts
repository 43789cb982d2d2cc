// What the lists of nodes and processes show, in which order. All of it is at hand: the server has no order or search here.

import type { ClusterNode, GpuProcess, NodeGpu, NodeState } from "../../api/clusters";
import type { ClustersState, NodeColumn, ProcessColumn } from "./address";

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

/** A node, and what it is sorted by. */
export interface NodeRow {
  readonly node: ClusterNode;
  readonly load: Load;
}

type Key = string | number | null;

/** By text or number, unknown ones last in either direction. */
function compareKeys(a: Key, b: Key, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * compareText(String(a), String(b));
}

const TEXT = new Intl.Collator("en", { numeric: true });

/** As a person orders names: node-2 before node-10. */
export function compareText(a: string, b: string): number {
  return TEXT.compare(a, b);
}

type Keys<Row, Column extends string> = Readonly<Record<Column, (row: Row) => Key>>;

function ordered<Row>(rows: readonly Row[], sort: string, keys: Keys<Row, string>): Row[] {
  const keyOf = keys[sort.replace(/^-/, "")];
  if (keyOf === undefined) return [...rows];
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => compareKeys(keyOf(a), keyOf(b), sign));
}

/** Whether each of the words is part of one of the texts; case does not count. */
export function matches(search: string, texts: readonly string[]): boolean {
  const all = texts.join("\n").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

function severity(state: string): number {
  return (SEVERITY as Readonly<Record<string, number>>)[state] ?? UNHEARD_OF;
}

const NODE_KEYS: Keys<NodeRow, NodeColumn> = {
  node: (row) => row.node.node_name,
  cluster: (row) => row.node.cluster_id,
  state: (row) => severity(row.node.state),
  gpus: (row) => Math.max(row.node.gpu_count, row.node.gpus_announced ?? 0),
  utilization: (row) => row.load.utilization,
  temperature: (row) => row.load.temperature,
  memory: (row) => row.load.memory.used,
  age: (row) => row.node.age_seconds,
};

/** The nodes that fit the filters, in the order asked; without one the sick first, then by cluster and name. */
export function nodeRows(nodes: readonly ClusterNode[], state: ClustersState): NodeRow[] {
  const fits = (node: ClusterNode) =>
    (state.state === "" || node.state === state.state) &&
    matches(state.search, [node.node_name, node.cluster_id, node.error ?? "", ...Object.entries(node.labels).map(([name, value]) => `${name}=${value}`), ...modelsOf(node.gpus)]);
  const rows = nodes.filter(fits).map((node) => ({ node, load: loadOf(node.gpus) }));
  rows.sort(
    (a, b) =>
      severity(a.node.state) - severity(b.node.state) ||
      compareText(a.node.cluster_id, b.node.cluster_id) ||
      compareText(a.node.node_name, b.node.node_name),
  );
  return ordered(rows, state.sort, NODE_KEYS);
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

const PROCESS_KEYS: Keys<GpuProcess, ProcessColumn> = {
  command: (process) => process.command,
  pid: (process) => process.pid,
  type: (process) => process.process_type,
  cluster: (process) => process.cluster_id,
  node: (process) => process.node_name,
  gpu: (process) => process.gpu_index,
  sm: (process) => process.sm_utilization,
  memory_activity: (process) => process.memory_utilization,
  encoder: (process) => process.encoder_utilization,
  decoder: (process) => process.decoder_utilization,
  memory: (process) => process.fb_memory_mb,
};

/** The processes that fit the filters, in the order asked; without one in the server's, by cluster and node. */
export function processRows(processes: readonly GpuProcess[], state: ClustersState): GpuProcess[] {
  const fits = (process: GpuProcess) =>
    (state.node === "" || process.node_name === state.node) &&
    (state.type === "" || process.process_type === state.type) &&
    matches(state.search, [process.command ?? "", String(process.pid)]);
  return ordered(processes.filter(fits), state.sort, PROCESS_KEYS);
}

/** The different values of a field, for a choice. */
export function choicesOf(processes: readonly GpuProcess[], field: "node_name" | "process_type"): string[] {
  return [...new Set(processes.map((process) => process[field]))].sort(compareText);
}
