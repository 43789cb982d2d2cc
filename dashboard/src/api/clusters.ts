import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { HEALTH_INTERVAL_MS } from "../shared/config";
import { MINUTE } from "../shared/time";
import { api, dataOf, partialOf, type Schemas } from "./client";
import { GPUS_MAX } from "./fleet";

// Clusters that the gateway reads from outside. A node is read every 30 s or so: asking as often as for health is enough.

export type Cluster = Schemas["ClusterInfo"];
export type ClusterSummary = Schemas["ClusterSummary"];
export type ClusterNode = Schemas["ClusterNode"];
export type MissingNode = Schemas["MissingNode"];
export type NodeGpu = Schemas["GpuRecord"];
export type GpuProcess = Schemas["ProcessRecord"];
export type ClusterState = Schemas["ClusterState"];
export type NodeState = Schemas["NodeState"];

const ofCluster = (cluster: string) => (cluster === "" ? {} : { cluster_id: cluster });

/** All clusters of the configuration; none: the gateway reads no clusters. */
export function clustersQuery(refetchInterval: number) {
  return queryOptions({
    queryKey: ["clusters"],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/gpu/clusters", { signal })),
    refetchInterval,
  });
}

/** Sums and means of a cluster; of all together if none is named. */
export function summaryQuery(cluster: string) {
  return queryOptions({
    queryKey: ["clusters", "summary", cluster],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/gpu/summary", { params: { query: ofCluster(cluster) }, signal })),
    refetchInterval: HEALTH_INTERVAL_MS,
  });
}

/** The GPU nodes of a cluster; of all if none is named. */
export function nodesQuery(cluster: string) {
  return queryOptions({
    queryKey: ["clusters", "nodes", cluster],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/gpu/nodes", { params: { query: ofCluster(cluster) }, signal })),
    refetchInterval: HEALTH_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

export function nodeQuery(cluster: string, node: string) {
  return queryOptions({
    queryKey: ["clusters", "node", cluster, node],
    queryFn: async ({ signal }) => dataOf(await api.GET("/api/v1/gpu/nodes/{cluster}/{node}", { params: { path: { cluster, node } }, signal })),
    refetchInterval: HEALTH_INTERVAL_MS,
  });
}

/** The processes on the GPUs of a cluster, or of all, and what of them could not be read. */
export function processesQuery(cluster: string) {
  return queryOptions({
    queryKey: ["clusters", "processes", cluster],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/gpu/processes", { params: { query: ofCluster(cluster) }, signal });
      return { processes: dataOf(answer), partial: partialOf(answer) };
    },
    refetchInterval: HEALTH_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

/** The ids of the GPUs of a host that history has: those have a page of their own. */
export function recordedGpusQuery(host: string) {
  return queryOptions({
    queryKey: ["gpus", "ids", host],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/gpus", { params: { query: { host, limit: GPUS_MAX } }, signal });
      return dataOf(answer).gpus.map((gpu) => gpu.id);
    },
    refetchInterval: MINUTE,
  });
}
