import type { GpuDetail } from "../../api/client";
import type { Sample } from "../../charts/frame";
import type { CatalogueRow } from "../../charts/panels";
import { csvOf } from "../../parts/csv";
import { isoOf, parseInstant } from "../../shared/time";

/** The newest value of a column with its own time: columns are read at different paces. */
export interface LatestValue {
  readonly value: unknown;
  readonly at: number | null;
}

export type LatestValues = ReadonlyMap<string, LatestValue>;

/** What the server said, and over it what the stream has brought since. */
export function latestOf(detail: GpuDetail | undefined, samples: readonly Sample[]): LatestValues {
  const values = new Map<string, LatestValue>();
  for (const [column, held] of Object.entries(detail?.latest ?? {})) {
    values.set(column, { value: held.value, at: parseInstant(held.timestamp) });
  }
  for (const sample of samples) {
    for (const [column, value] of Object.entries(sample.metrics)) {
      const held = values.get(column);
      if (value !== null && (held?.at ?? 0) <= sample.timestamp) values.set(column, { value, at: sample.timestamp });
    }
  }
  return values;
}

/** When the GPU was last heard of. */
export function lastSeenOf(detail: GpuDetail | undefined, samples: readonly Sample[]): number | null {
  const said = parseInstant(detail?.gpu.last_seen);
  const streamed = samples.at(-1)?.timestamp ?? null;
  if (said === null || streamed === null) return said ?? streamed;
  return Math.max(said, streamed);
}

/** The values as a file: a row for each metric, with its own time. */
export function latestCsv(rows: readonly CatalogueRow[], latest: LatestValues): string {
  const lines = rows.map(({ column, unit }) => {
    const held = latest.get(column);
    const value = held?.value;
    return [column, unit, typeof value === "number" || typeof value === "string" ? value : null, isoOf(held?.at ?? null)];
  });
  return csvOf(["metric", "unit", "value", "read_at"], lines);
}
