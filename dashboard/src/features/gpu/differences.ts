import type { Gpu } from "../../api/client";
import type { CatalogueRow } from "../../charts/panels";
import { csvOf } from "../../parts/csv";

/** How the GPUs differ in one metric. */
export interface Difference {
  readonly row: CatalogueRow;
  readonly median: number;
  /** By id; a GPU of which it was not read has none. */
  readonly values: ReadonlyMap<string, number>;
  /** Where a value comes from, in words, by id; of most metrics nothing. */
  readonly sources: ReadonlyMap<string, string>;
  /** The largest distance of a GPU from the median, of whichever sign. */
  readonly most: number;
}

/** GPUs that are nearer to each other are alike. */
const DIFFERS_FROM = 0.05;
const NEAR = 0.1;
const FAR = 0.2;

/** How far a value is from the median: as a share of it, or of the whole where the value itself is a share. */
export function distanceOf(value: number, median: number, { unit, column }: CatalogueRow): number {
  if (unit === "%") return (value - median) / 100;
  if (column.endsWith("_ratio")) return value - median;
  if (median === 0) return Math.sign(value);
  return (value - median) / Math.abs(median);
}

/** What a GPU did in one metric. */
export interface Sum {
  readonly metric: string;
  readonly gpu?: string | null;
  readonly value: number | null;
  /** Where the value comes from, in words. */
  readonly source?: string;
}

const NOTHING = { values: new Map<string, number>(), sources: new Map<string, string>() };

/** Where the GPUs differ, what differs much first, and where they are alike. What was read of one GPU alone is neither. */
export function differencesOf(rows: readonly CatalogueRow[], sums: readonly Sum[]): { readonly differing: readonly Difference[]; readonly alike: readonly CatalogueRow[] } {
  const byMetric = new Map<string, { readonly values: Map<string, number>; readonly sources: Map<string, string> }>();
  for (const { metric, gpu, value, source } of sums) {
    if (gpu === null || gpu === undefined || value === null) continue;
    const read = byMetric.get(metric) ?? { values: new Map<string, number>(), sources: new Map<string, string>() };
    byMetric.set(metric, read);
    read.values.set(gpu, value);
    if (source !== undefined) read.sources.set(gpu, source);
  }
  const all = rows.flatMap((row): Difference[] => {
    const { values, sources } = byMetric.get(row.column) ?? NOTHING;
    if (values.size < 2) return [];
    const median = medianOf([...values.values()]);
    const most = Math.max(...[...values.values()].map((value) => Math.abs(distanceOf(value, median, row))));
    return [{ row, median, values, sources, most }];
  });
  // What is far is far. Among those that are, what everybody looks at first stands first: the order of the catalogue's groups.
  const rank = ({ most }: Difference) => (most >= FAR ? 2 : most >= NEAR ? 1 : 0);
  return {
    differing: all.filter(({ most }) => most >= DIFFERS_FROM).sort((a, b) => rank(b) - rank(a)),
    alike: all.filter(({ most }) => most < DIFFERS_FROM).map(({ row }) => row),
  };
}

function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (place: number) => sorted[place] ?? 0;
  const half = sorted.length / 2;
  return sorted.length % 2 === 1 ? at(Math.floor(half)) : (at(half - 1) + at(half)) / 2;
}

/** As many GPUs as can be told apart: those that differ the most in anything, in their order. */
export function furthest(ids: readonly string[], differing: readonly Difference[], most: number): string[] {
  if (ids.length <= most) return [...ids];
  const farOf = new Map<string, number>();
  for (const { row, median, values } of differing) {
    for (const [id, value] of values) farOf.set(id, Math.max(farOf.get(id) ?? 0, Math.min(1, Math.abs(distanceOf(value, median, row)))));
  }
  const first = new Set([...ids].sort((a, b) => (farOf.get(b) ?? 0) - (farOf.get(a) ?? 0)).slice(0, most));
  return ids.filter((id) => first.has(id));
}

/** The table as a file: a row for each metric, with a column for each GPU. */
export function differencesCsv(differing: readonly Difference[], gpus: readonly Pick<Gpu, "id" | "name">[]): string {
  const rows = differing.map(({ row, median, values }) => [row.column, row.unit, median, ...gpus.map(({ id }) => values.get(id) ?? null)]);
  return csvOf(["metric", "unit", "median", ...gpus.map(({ name }) => name)], rows);
}
