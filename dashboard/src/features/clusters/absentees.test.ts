import { expect, it } from "vitest";
import { cluster } from "../../testing/clusters";
import { absentees, nodesOf } from "./absentees";

const missing = (...names: string[]) => names.map((node_name) => ({ node_name, state: "failing" as const, since: "2026-11-20T10:00:00Z", error: "x", stale: false }));
const hidden = (cluster_id: string) => cluster({ cluster_id, state: "unauthorized", node_count: null, gpu_count: 0, nodes: { ...cluster().nodes, ok: 0 } });

it.each([
  ["all well", [cluster(), cluster({ state: "no_gpu", has_gpu: false, node_count: null })], null],
  ["a node", [cluster({ state: "degraded", missing: missing("a") })], "1 node"],
  ["nodes of two clusters", [cluster({ missing: missing("a", "b") }), cluster({ missing: missing("a") })], "3 nodes"],
  ["a cluster", [cluster(), hidden("lab")], "the cluster lab"],
  ["clusters and a node", [cluster({ missing: missing("a") }), hidden("lab"), hidden("edge"), hidden("far")], "1 node, and the clusters lab, edge and far"],
  ["a cluster whose nodes were known before", [cluster({ state: "unreachable", missing: missing("a", "b") })], "the cluster east"],
])("says what is missing: %s", (_case, clusters, words) => {
  expect(absentees(clusters)).toBe(words);
});

it("counts nodes, and says whether there may be more", () => {
  expect(nodesOf([])).toEqual({ read: 0, known: 0, all: true });
  expect(nodesOf([cluster({ node_count: 5, nodes: { ...cluster().nodes, ok: 4 } }), cluster()])).toEqual({ read: 5, known: 6, all: true });
  expect(nodesOf([cluster(), hidden("lab")])).toEqual({ read: 1, known: 1, all: false });
  expect(nodesOf([cluster(), cluster({ has_gpu: false, node_count: null, nodes: { ...cluster().nodes, ok: 0 } })])).toEqual({ read: 1, known: 1, all: true });
});
