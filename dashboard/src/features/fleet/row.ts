import type { Gpu } from "../../api/client";
import { verdictOf, type Verdict } from "../../api/judgement";
import { numberIn } from "../../shared/format";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { parseInstant } from "../../shared/time";
import { sparkKey, type Spark } from "../../parts/sparks";

/** What the list shows of a GPU. */
export interface Row {
  readonly gpu: Gpu;
  readonly verdict: Verdict;
  readonly utilization: number | null;
  readonly power: number | null;
  readonly powerLimit: number | null;
  readonly temperature: number | null;
  readonly memoryUsed: number | null;
  readonly memoryTotal: number | null;
  readonly lastSeen: number | null;
  /** The last minutes; absent: not known. */
  readonly utilizationCourse: Spark | undefined;
  readonly powerCourse: Spark | undefined;
}

export function rowOf(gpu: Gpu, sparks: ReadonlyMap<string, Spark>): Row {
  const value = (column: string) => numberIn(gpu.metrics, column);
  return {
    gpu,
    verdict: verdictOf(gpu),
    utilization: value(UTILIZATION),
    power: value(POWER),
    powerLimit: value(POWER_LIMIT),
    temperature: value(TEMPERATURE),
    memoryUsed: value(MEMORY_USED),
    memoryTotal: gpu.memory_mb ?? value(MEMORY_TOTAL),
    lastSeen: parseInstant(gpu.last_seen),
    utilizationCourse: sparks.get(sparkKey(gpu.id, UTILIZATION)),
    powerCourse: sparks.get(sparkKey(gpu.id, POWER)),
  };
}

/** What a GPU is called where its host and number stand beside it. */
export function titleOf(gpu: Gpu): string {
  return gpu.model ?? gpu.name;
}
