import { HOLDERS, type Holder } from "../../api/usage";
import { searchOf } from "../../shared/location";
import { parseRange, rangeParts, type Preset, type Range } from "../gpu/range";

export const COLUMNS = ["group", "gpus", "gpu_hours", "energy", "held", "idle", "idle_energy", "cost"] as const;
export type Column = (typeof COLUMNS)[number];
export const PRESETS_SHOWN: readonly Preset[] = ["1h", "6h", "24h", "7d"];

/** What the page of jobs shows; all of it stands in the address. */
export interface JobsState {
  readonly by: Holder;
  readonly range: Range;
  /** Of a GPU hour, in any currency; null: none was typed. */
  readonly price: number | null;
  /** A column, with `-` before it for descending. */
  readonly sort: string;
  /** Counted from 1. */
  readonly page: number;
}

export const MOST_WASTE = "-idle";
export const DEFAULT: JobsState = { by: "namespace", range: { kind: "preset", preset: "24h" }, price: null, sort: MOST_WASTE, page: 1 };

/** Reads the address; what is not understood is left at its default, so that an old link still opens. */
export function parseJobs(search: string): JobsState {
  const params = new URLSearchParams(search);
  const text = (name: string) => params.get(name) ?? "";
  const range = parseRange(params);
  const sort = text("sort");
  const page = Number(text("page"));
  return {
    by: HOLDERS.find((known) => known === text("by")) ?? DEFAULT.by,
    range: range === null || range.kind === "all" ? DEFAULT.range : range,
    price: parsePrice(text("price")),
    sort: COLUMNS.some((column) => column === sort.replace(/^-/, "")) ? sort : DEFAULT.sort,
    page: Number.isSafeInteger(page) && page > 0 ? page : 1,
  };
}

/** A price as it is typed, also with a decimal comma; null if it is none. */
export function parsePrice(text: string): number | null {
  const trimmed = text.trim().replace(",", ".");
  return /^\d+(\.\d*)?$|^\.\d+$/.test(trimmed) ? Number(trimmed) : null;
}

export function jobsPath({ by, range, price, sort, page }: JobsState): string {
  const isDefault = range.kind === "preset" && DEFAULT.range.kind === "preset" && range.preset === DEFAULT.range.preset;
  return `/jobs${searchOf({
    by: by === DEFAULT.by ? "" : by,
    ...rangeParts(isDefault ? null : range),
    price: price === null ? "" : String(price),
    sort: sort === DEFAULT.sort ? "" : sort,
    page: page > 1 ? String(page) : "",
  })}`;
}
