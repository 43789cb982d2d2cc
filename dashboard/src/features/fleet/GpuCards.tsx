import type { Gpu } from "../../api/client";
import { GPU } from "../../parts/addresses";
import { formatValue, shareOf, shortId } from "../../shared/format";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { Link } from "../../shared/location";
import { Heat, MemoryUse, Reason, SimulatedBadge, StateBadge } from "../../parts/gpuLook";
import { Course, seenText } from "./GpuTable";
import { rowOf, titleOf } from "./row";
import { sparkKey, type Spark } from "./sparks";

interface GpuCardsProps {
  readonly gpus: readonly Gpu[];
  readonly sparks: ReadonlyMap<string, Spark>;
  readonly now: number;
}

/** The list on a phone: a card a GPU, all of it the way to its page. */
export function GpuCards({ gpus, sparks, now }: GpuCardsProps) {
  return (
    <ul className="space-y-2" aria-label="GPUs with their latest values">
      {gpus.map((gpu) => {
        const row = rowOf(gpu);
        return (
          <li key={gpu.id} className="card relative p-3 focus-within:bg-raised" data-gpu={gpu.id}>
            <div className="flex items-start gap-2">
              <div className="min-w-0 flex-1">
                <Link
                  to={GPU.to({ id: gpu.id })}
                  data-row=""
                  className="block truncate font-medium after:absolute after:inset-0 after:rounded-lg"
                >
                  {titleOf(gpu)}
                </Link>
                <p className="truncate text-xs text-muted">
                  {gpu.hostname ?? "host unknown"}
                  {gpu.index !== null && ` · #${gpu.index}`}
                  <span className="font-mono text-[11px] text-faint"> {shortId(gpu.id)}</span>
                </p>
              </div>
              <div className="flex flex-col items-end gap-1">
                <StateBadge state={row.state} reason={gpu.state_reason} />
                {gpu.simulated && <SimulatedBadge />}
              </div>
            </div>
            <Reason gpu={gpu} />
            <div className="mt-2.5 grid grid-cols-2 gap-x-3 gap-y-2 text-[13px]">
              <Course
                name="Utilization"
                spark={sparks.get(sparkKey(gpu.id, UTILIZATION))}
                fixed={[0, 100]}
                text={formatValue(row.utilization, "%")}
                share={shareOf(row.utilization, 100)}
              />
              <Course
                name="Power"
                spark={sparks.get(sparkKey(gpu.id, POWER))}
                fixed={null}
                text={formatValue(row.power, "W")}
                share={shareOf(row.power, row.powerLimit)}
              />
              <MemoryUse used={row.memoryUsed} total={row.memoryTotal} />
              <div className="flex items-start justify-between">
                <Heat celsius={row.temperature} />
                <span className="num text-xs leading-5 text-faint">{seenText(row.lastSeen, now)}</span>
              </div>
            </div>
          </li>
        );
      })}
    </ul>
  );
}

const ORDERS: readonly (readonly [string, string])[] = [
  ["", "The sick first"],
  ["hostname", "By host and index"],
  ["model", "Model"],
  [`-${UTILIZATION}`, "Utilization, highest first"],
  [`-${POWER}`, "Power, highest first"],
  [`-${TEMPERATURE}`, "Temperature, highest first"],
  [`-${MEMORY_USED}`, "Memory, highest first"],
  ["-last_seen", "Last seen, newest first"],
];

/** Cards have no column headers: the order is chosen here. */
export function SortSelect({ sort, onChange }: { readonly sort: string; readonly onChange: (sort: string) => void }) {
  const listed = ORDERS.some(([order]) => order === sort);
  return (
    <label className="min-w-0 flex-1">
      <span className="sr-only">Order</span>
      <select className="field w-full" value={sort} onChange={(event) => onChange(event.target.value)}>
        {ORDERS.map(([order, name]) => (
          <option key={order} value={order}>
            {name}
          </option>
        ))}
        {!listed && <option value={sort}>{sort}</option>}
      </select>
    </label>
  );
}
