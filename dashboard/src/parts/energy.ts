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

export const kwh = (value: number | null) => formatValue(value, "kWh");
