import type { EnergyGroup, Holder, IdleGroup } from "../../api/usage";
import { countedShare } from "../../parts/energy";
import { compareText } from "../../parts/order";
import { formatNumber } from "../../shared/format";

/** What one holder used, and what of it was for nothing; null: not known. */
export interface UsageRow {
  /** Null: GPUs without such a holder. */
  readonly group: string | null;
  readonly gpus: number;
  readonly gpuHours: number | null;
  readonly energyKwh: number | null;
  /** The share of the energy that counters say; the rest is integrated power. */
  readonly counted: number | null;
  readonly heldHours: number | null;
  readonly idleHours: number | null;
  readonly idleKwh: number | null;
  readonly cost: number | null;
}

type Part<Group> = Omit<Group, "group" | "idle_cost">;

/** `isHeld`: what is not among the idle ones was held all the time, and worked if its use is known; otherwise nothing is known of it. */
function rowOf(group: string | null, energy: Part<EnergyGroup> | undefined, idle: Part<IdleGroup> | undefined, price: number | null, isHeld: boolean): UsageRow {
  // A single row is no duration, and without a utilisation nothing is known of work.
  const isKnown = (energy?.gpu_hours ?? null) !== null && (energy?.busy_gpu_hours ?? null) !== null;
  const worked = isHeld && isKnown ? 0 : null;
  const idleHours = idle?.idle_gpu_hours ?? worked;
  return {
    group,
    gpus: energy?.gpus ?? idle?.gpus ?? 0,
    gpuHours: energy?.gpu_hours ?? idle?.held_gpu_hours ?? null,
    energyKwh: energy?.energy_kwh ?? null,
    counted: energy === undefined ? null : countedShare(energy),
    heldHours: idle?.held_gpu_hours ?? (isHeld ? (energy?.gpu_hours ?? null) : null),
    idleHours,
    idleKwh: idle === undefined ? worked : idle.idle_energy_kwh,
    cost: price === null || idleHours === null ? null : price * idleHours,
  };
}

/** Energy and idle hours of each holder side by side. A holder whose GPUs always worked has no group among the idle ones. */
export function rowsOf(by: Holder, energy: readonly EnergyGroup[], idle: readonly IdleGroup[], price: number | null): UsageRow[] {
  const idleOf = new Map(idle.map((group) => [group.group, group]));
  const rows = energy.map((group) => rowOf(group.group, group, idleOf.get(group.group), price, by !== "node" && group.group !== null));
  const known = new Set(energy.map((group) => group.group));
  return [...rows, ...idle.filter(({ group }) => !known.has(group)).map((group) => rowOf(group.group, undefined, group, price, false))];
}

/** All of them together. */
export function wholeOf(energy: EnergyGroup, idle: IdleGroup, price: number | null): UsageRow {
  return rowOf(null, energy, idle, price, false);
}

/** By name, those without a holder last. */
export function byName(rows: readonly UsageRow[]): UsageRow[] {
  return [...rows].sort((a, b) => Number(a.group === null) - Number(b.group === null) || compareText(a.group ?? "", b.group ?? ""));
}

export const percent = (share: number | null) => (share === null ? "" : `${formatNumber(share * 100)}%`);
