import { describe, expect, it } from "vitest";
import { node, nodeGpu, process, silentGpu, unread } from "../../testing/clusters";
import { inOrder } from "../../parts/order";
import { CLUSTERS, type ClustersState } from "./address";
import { NODE_LIST } from "./nodeList";
import { PROCESS_LIST } from "./processList";
import { choicesOf, labelsInOrder, loadOf, memoryOf, modelsOf, nodeRows, processRows } from "./rows";

const DEFAULT = CLUSTERS.defaults;

describe("what a node's GPUs do together", () => {
  it("is nothing where none of them says", () => {
    const nothing = { utilization: null, temperature: null, memory: { used: null, total: null } };
    expect(loadOf([])).toEqual(nothing);
    expect(loadOf([silentGpu(), silentGpu()])).toEqual(nothing);
  });

  it("is the mean utilization, the highest temperature and the sum of memory of those that say", () => {
    const gpus = [nodeGpu({ utilization_gpu_percent: 0, temperature_celsius: 40 }), nodeGpu({ utilization_gpu_percent: 100, temperature_celsius: 70 }), silentGpu()];
    expect(loadOf(gpus)).toEqual({ utilization: 50, temperature: 70, memory: { used: 81_920, total: 163_840 } });
  });

  it("is never a share of another whole", () => {
    expect(memoryOf([nodeGpu({ memory_used_mb: 10, memory_total_mb: 100 }), nodeGpu({ memory_used_mb: null, memory_total_mb: 100 })])).toEqual({ used: 10, total: 100 });
    expect(memoryOf([nodeGpu({ memory_used_mb: null, memory_total_mb: 100 })])).toEqual({ used: null, total: 100 });
  });
});

describe("the list of nodes", () => {
  const names = (nodes: Parameters<typeof nodeRows>[0], part: Partial<ClustersState> = {}) => inOrder(nodeRows(nodes, { ...DEFAULT, ...part }, 0), NODE_LIST.columns, part.sort ?? "").map(({ node: { cluster_id, node_name } }) => `${cluster_id}/${node_name}`);

  it("has the sick first, then clusters and names as a person orders them", () => {
    const nodes = [
      node({ node_name: "node-10" }),
      node({ node_name: "node-2" }),
      node({ node_name: "amd", state: "no_tool" }),
      node({ node_name: "new", state: "waiting" }),
      node({ node_name: "novel", state: "melting" as "ok" }),
      node({ node_name: "bare", state: "no_driver_pod" }),
      unread({ node_name: "hung", cluster_id: "west" }),
      unread({ node_name: "hung" }),
      node({ node_name: "building", state: "driver_pod_not_ready" }),
    ];
    expect(names(nodes)).toEqual(["east/hung", "west/hung", "east/novel", "east/bare", "east/building", "east/new", "east/amd", "east/node-2", "east/node-10"]);
  });

  it("has what is not known last in both directions", () => {
    const nodes = [unread({ node_name: "hung" }), node({ node_name: "cool", gpus: [nodeGpu({ temperature_celsius: 30 })] }), node({ node_name: "hot", gpus: [nodeGpu({ temperature_celsius: 90 })] })];
    expect(names(nodes, { sort: "-temperature" })).toEqual(["east/hot", "east/cool", "east/hung"]);
    expect(names(nodes, { sort: "temperature" })).toEqual(["east/cool", "east/hot", "east/hung"]);
    expect(names(nodes, { sort: "-node" })).toEqual(["east/hung", "east/hot", "east/cool"]);
  });

  it("is searched by name, cluster, label, model and error, and filtered by state", () => {
    const nodes = [node({ node_name: "a", labels: { "topology.kubernetes.io/zone": "z1" } }), node({ node_name: "b", cluster_id: "west" }), unread({ node_name: "c" })];
    expect(names(nodes, { search: "ZONE=z1" })).toEqual(["east/a"]);
    expect(names(nodes, { search: "west" })).toEqual(["west/b"]);
    expect(names(nodes, { search: "h100 east" })).toEqual(["east/a"]);
    expect(names(nodes, { search: "no answer" })).toEqual(["east/c"]);
    expect(names(nodes, { state: "failing" })).toEqual(["east/c"]);
    expect(names(nodes, { search: "nothing" })).toEqual([]);
  });
});

describe("the list of processes", () => {
  const processes = [
    process({ pid: 3, command: "python3", sm_utilization: 10 }),
    process({ pid: 1, command: "ffmpeg", sm_utilization: null, process_type: "graphics", node_name: "node-10" }),
    process({ pid: 2, command: null, sm_utilization: 90, node_name: "node-2" }),
  ];
  const pids = (part: Partial<ClustersState> = {}) => inOrder(processRows(processes, { ...DEFAULT, view: "processes", ...part }), PROCESS_LIST.columns, part.sort ?? "").map(({ pid }) => pid);

  it("keeps the server's order until another is asked for", () => {
    expect(pids()).toEqual([3, 1, 2]);
    expect(pids({ sort: "-sm" })).toEqual([2, 3, 1]);
    expect(pids({ sort: "command" })).toEqual([1, 3, 2]);
    expect(pids({ sort: "node" })).toEqual([3, 2, 1]);
  });

  it("is filtered by node, type, command and PID", () => {
    expect(pids({ node: "node-1" })).toEqual([3]);
    expect(pids({ type: "graphics" })).toEqual([1]);
    expect(pids({ search: "PYTHON" })).toEqual([3]);
    expect(pids({ search: "2" })).toEqual([2]);
  });

  it("offers each node and type once", () => {
    expect(choicesOf([...processes, ...processes], "node_name")).toEqual(["node-1", "node-2", "node-10"]);
    expect(choicesOf(processes, "process_type")).toEqual(["compute", "graphics"]);
  });
});

it("names each model once, and no model that was not read", () => {
  expect(modelsOf([nodeGpu(), nodeGpu(), silentGpu({ name: null })])).toEqual(["NVIDIA H100"]);
});

it("has the labels of vendors' tools last", () => {
  const labels = { "nvidia.com/gpu.present": "true", "topology.kubernetes.io/zone": "z", "beta.amd.com/gpu.vram": "64G", "node.kubernetes.io/instance-type": "p5" };
  expect(labelsInOrder(labels).map(([name]) => name)).toEqual(["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "beta.amd.com/gpu.vram", "nvidia.com/gpu.present"]);
});
