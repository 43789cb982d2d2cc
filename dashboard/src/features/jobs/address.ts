import { HOLDERS, LEDGERS } from "../../api/usage";
import { range, type Preset, type Range } from "../../parts/range";
import { address, field, oneOf, pageNumber, sortBy } from "../../shared/address";

export const PRESETS_SHOWN: readonly Preset[] = ["1h", "6h", "24h", "7d"];
/** Each job and pod by itself and each user, by the sums that agents make; or put together, by the rows of the GPUs. */
export const GROUPS = [...LEDGERS, ...HOLDERS] as const;
export type Group = (typeof GROUPS)[number];
const LAST_DAY: Range = { kind: "preset", preset: "24h" };

/** A price as it is typed, also with a decimal comma; null if it is none. */
export function parsePrice(text: string): number | null {
  const trimmed = text.trim().replace(",", ".");
  return /^\d+(\.\d*)?$|^\.\d+$/.test(trimmed) ? Number(trimmed) : null;
}

/** What the page of jobs shows. */
export const JOBS = address(
  "/jobs",
  {
    by: oneOf(GROUPS, "namespace"),
    range: range(LAST_DAY),
    /** Of a GPU hour, in any currency; null: none was typed. */
    price: field<number | null>(null, "a number", parsePrice, (price) => (price === null ? "" : String(price))),
    sort: sortBy(),
    page: pageNumber(),
  },
  // All that there ever was is too much to add up.
  (state) => (state.range.kind === "all" ? { ...state, range: LAST_DAY } : state),
);
