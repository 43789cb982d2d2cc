import type { Gpu } from "../../api/client";
import { stateOf, type State } from "../../api/queries";
import { numberIn } from "../../shared/format";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { parseInstant } from "../../shared/time";

/** What a row or card of the list shows of a GPU. */
export interface Row {
  readonly state: State;
  readonly utilization: number | null;
  readonly power: number | null;
  readonly powerLimit: number | null;
  readonly temperature: number | null;
  readonly memoryUsed: number | null;
  readonly memoryTotal: number | null;
  readonly lastSeen: number | null;
}

export function rowOf(gpu: Gpu): Row {
  const value = (column: string) => numberIn(gpu.metrics, column);
  return {
    state: stateOf(gpu),
    utilization: value(UTILIZATION),
    power: value(POWER),
    powerLimit: value(POWER_LIMIT),
    temperature: value(TEMPERATURE),
    memoryUsed: value(MEMORY_USED),
    memoryTotal: gpu.memory_mb ?? value(MEMORY_TOTAL),
    lastSeen: parseInstant(gpu.last_seen),
  };
}

/** What a GPU is called where its host and number stand beside it. */
export function titleOf(gpu: Gpu): string {
  return gpu.model ?? gpu.name;
}
