import { queryOptions } from "@tanstack/react-query";
import { api, dataOf, fetchText, type Stats } from "../../api/client";
import { parseFigures, type FigureSet } from "../../api/exposition";
import { extended, type Course, type StatsReading } from "./course";

const KEY = ["course"];

/** Reads the figures again and again, and keeps their course until the browser loads the page anew. */
export function courseQuery(refetchInterval: number) {
  return queryOptions({
    queryKey: KEY,
    queryFn: async ({ client, signal }) => extended(client.getQueryData<Course>(KEY), await read(signal)),
    refetchInterval,
    gcTime: Infinity,
    structuralSharing: false,
  });
}

async function read(signal: AbortSignal): Promise<StatsReading> {
  const [stats, figures] = await Promise.allSettled([statsNow(signal), figuresNow(signal)]);
  if (stats.status === "rejected") throw stats.reason;
  const at = Date.now();
  if (figures.status === "fulfilled") return { at, stats: stats.value, figures: figures.value, missing: [] };
  const reason = figures.reason instanceof Error ? figures.reason.message : "no answer";
  return { at, stats: stats.value, figures: new Map(), missing: [`Latencies: ${reason}`] };
}

async function statsNow(signal: AbortSignal): Promise<Stats> {
  return dataOf(await api.GET("/stats", { signal }));
}

async function figuresNow(signal: AbortSignal): Promise<FigureSet> {
  return parseFigures(await fetchText("/metrics", signal));
}
