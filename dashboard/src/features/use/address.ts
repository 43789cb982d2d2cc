import { SHARES } from "../../api/fleetUse";
import { range, type Preset, type Range } from "../../parts/range";
import { address, oneOf, text } from "../../shared/address";

export const PRESETS_SHOWN: readonly Preset[] = ["1h", "6h", "24h", "7d"];
const LAST_DAY: Range = { kind: "preset", preset: "24h" };

/** What the page of the fleet over time shows. */
export const USE = address(
  "/fleet",
  { by: oneOf(SHARES, "namespace"), where: text(), range: range(LAST_DAY) },
  // All that there ever was is too much to add up.
  (state) => (state.range.kind === "all" ? { ...state, range: LAST_DAY } : state),
);
