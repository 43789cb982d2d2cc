import { searchOf } from "../../shared/location";
import { parseGpu, rangeParts, type GpuState } from "./range";

/** Which GPUs are beside each other, in which range; all of it stands in the address. */
export interface CompareState extends Pick<GpuState, "range" | "aggregate"> {
  readonly gpus: readonly string[];
  /** The column whose chart stands first; empty: none. */
  readonly metric: string;
}

export function parseCompare(search: string): CompareState {
  const params = new URLSearchParams(search);
  const { range, aggregate } = parseGpu(search);
  const gpus = (params.get("gpus") ?? "").split(",").filter((id) => id !== "");
  return { gpus: [...new Set(gpus)], metric: params.get("metric") ?? "", range, aggregate };
}

export function comparePath({ gpus, metric, range = null, aggregate = "mean" }: Pick<CompareState, "gpus" | "metric"> & Partial<CompareState>): string {
  return `/compare${searchOf({ gpus: gpus.join(","), metric, ...rangeParts(range), aggregate: aggregate === "mean" ? "" : aggregate })}`;
}
