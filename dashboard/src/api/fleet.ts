import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { HEALTH_INTERVAL_MS } from "../shared/config";
import { api, dataOf, partialOf } from "./client";
import { stateOf, type State } from "./queries";

/** The server's limit on the GPUs of one answer. */
const GPUS_MAX = 10_000;

/** What of a GPU is known where all of them are shown at once. */
export interface FleetGpu {
  readonly id: string;
  readonly name: string;
  readonly host: string;
  readonly index: number | null;
  readonly state: State;
  readonly reason: string | null;
}

/** All GPUs by host and index, as far as one answer goes, without their values. */
export function wholeFleetQuery() {
  return queryOptions({
    queryKey: ["gpus", "whole fleet"],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/gpus", { params: { query: { limit: GPUS_MAX } }, signal });
      const { gpus, total } = dataOf(answer);
      const cells = gpus.map((gpu): FleetGpu => ({
        id: gpu.id,
        name: gpu.name,
        host: gpu.hostname ?? "",
        index: gpu.index,
        state: stateOf(gpu),
        reason: gpu.state_reason,
      }));
      return { gpus: cells, total, simulated: gpus.filter((gpu) => gpu.simulated).length, partial: partialOf(answer) };
    },
    refetchInterval: HEALTH_INTERVAL_MS,
    placeholderData: keepPreviousData,
    // Comparing 10,000 GPUs with those of before costs more than drawing them.
    structuralSharing: false,
  });
}
