import type { EnergyGroup } from "../api/usage";
import { formatValue, shareOf } from "../shared/format";

/** The share of an energy that counters say; the rest is integrated power. Null: there is none. */
export function countedShare(energy: Pick<EnergyGroup, "energy_kwh" | "counted_kwh">): number | null {
  return shareOf(energy.counted_kwh, energy.energy_kwh);
}

/** Where the energy's figures come from, in words. */
export function sourceWords(counted: number | null): string {
  if (counted === null) return "";
  if (counted >= 0.995) return "counters";
  return counted < 0.005 ? "integrated power" : `${Math.round(counted * 100)}% counters, the rest integrated power`;
}

/** Less than this of an hour or kWh is no figure that anybody reads. */
const LEAST = 0.01;

/** An energy; a very small one in watt hours. */
export function kwh(value: number | null): string {
  return value !== null && value > 0 && value < LEAST ? formatValue(value * 1000, "Wh") : formatValue(value, "kWh");
}

/** Hours, of which a very few are told from none. */
export function hours(value: number | null): string {
  return value !== null && value > 0 && value < LEAST ? `< ${formatValue(LEAST, "h")}` : formatValue(value, "h");
}
