import { useQuery } from "@tanstack/react-query";
import type { Counts } from "../api/judgement";
import { fleetCountsQuery } from "../api/fleet";

/** How many GPUs there are, and how they do; `null`: not counted yet. */
export interface FleetCounts {
  readonly byWord: Counts;
  readonly total: number | null;
}

export const NOT_COUNTED: FleetCounts = { byWord: new Map(), total: null };

/** The server counts them: no list is read. */
export function useFleetCounts(): FleetCounts {
  return useQuery(fleetCountsQuery()).data ?? NOT_COUNTED;
}
