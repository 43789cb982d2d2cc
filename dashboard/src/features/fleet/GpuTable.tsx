import { memo } from "react";
import type { Gpu } from "../../api/client";
import type { SORTABLE } from "../../parts/addresses";
import { GPU } from "../../parts/addresses";
import { Sparkline } from "../../charts/Sparkline";
import { ABSENT, formatValue, shareOf, shortId } from "../../shared/format";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { Link } from "../../shared/location";
import { formatAge, formatInstant } from "../../shared/time";
import { Heat, Level, MemoryUse, Reason, SimulatedBadge, StateBadge } from "../../parts/gpuLook";
import { HeaderCell, OpeningRow, type Header } from "../../parts/list";
import { rowOf, titleOf } from "./row";
import { sparkKey, type Spark } from "./sparks";

interface GpuTableProps {
  readonly gpus: readonly Gpu[];
  readonly sparks: ReadonlyMap<string, Spark>;
  readonly now: number;
  readonly sort: string;
  readonly onSort: (sort: string) => void;
  readonly dim: boolean;
}

/** Numbers are first looked at from the top. */
const HIGHEST_FIRST = new Set<string>([UTILIZATION, POWER, TEMPERATURE, MEMORY_USED, "last_seen"]);

function header(column: (typeof SORTABLE)[number], title: string, className: string, spoken?: string): Header {
  return { column, title, className, highestFirst: HIGHEST_FIRST.has(column), ...(spoken === undefined ? {} : { spoken }) };
}

const HEADERS: readonly Header[] = [
  header("model", "GPU", ""),
  header("hostname", "Host", ""),
  header("index", "#", "w-12", "Index"),
  header("state", "State", "lg:w-48"),
  header(UTILIZATION, "Utilization", "lg:w-44"),
  header(POWER, "Power", "lg:w-44"),
  header(TEMPERATURE, "Temperature", "lg:w-28"),
  header(MEMORY_USED, "Memory", "lg:w-40"),
  header("last_seen", "Last seen", "lg:w-28"),
];

export function GpuTable({ gpus, sparks, now, sort, onSort, dim }: GpuTableProps) {
  return (
    <div className={`card overflow-x-auto transition-opacity ${dim ? "opacity-60" : ""}`}>
      <table className="w-full min-w-[740px] text-[13px]">
        <caption className="sr-only">GPUs with their latest values</caption>
        <thead>
          <tr className="border-b border-line text-xs text-muted">
            {HEADERS.map((header) => (
              <HeaderCell key={header.column} header={header} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {gpus.map((gpu) => (
            <GpuRow
              key={gpu.id}
              gpu={gpu}
              utilization={sparks.get(sparkKey(gpu.id, UTILIZATION))}
              power={sparks.get(sparkKey(gpu.id, POWER))}
              seen={seenText(rowOf(gpu).lastSeen, now)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The age as text, so that a row is drawn again only when its words change. */
export function seenText(lastSeen: number | null, now: number): string {
  return lastSeen === null ? ABSENT : formatAge(lastSeen, now);
}

interface GpuRowProps {
  readonly gpu: Gpu;
  readonly utilization: Spark | undefined;
  readonly power: Spark | undefined;
  readonly seen: string;
}

const GpuRow = memo(function GpuRow({ gpu, utilization, power, seen }: GpuRowProps) {
  const row = rowOf(gpu);
  const path = GPU.to({ id: gpu.id });
  return (
    <OpeningRow to={path} data-gpu={gpu.id}>
      <th scope="row" className="px-2 py-1.5 lg:px-3 text-left font-normal">
        <div className="flex items-center gap-2">
          <Link to={path} data-row="" className="group min-w-0 rounded" title={gpu.id}>
            <span className="block truncate font-medium group-hover:underline">{titleOf(gpu)}</span>
            <span className="block truncate font-mono text-[11px] text-faint">{shortId(gpu.id)}</span>
          </Link>
          {gpu.simulated && <SimulatedBadge />}
        </div>
      </th>
      <td className="max-w-52 truncate px-2 py-1.5 lg:px-3 text-muted" title={gpu.hostname ?? undefined}>
        {gpu.hostname ?? ABSENT}
      </td>
      <td className="num px-2 py-1.5 lg:px-3 text-muted">{gpu.index ?? ABSENT}</td>
      <td className="px-2 py-1.5 lg:px-3">
        <StateBadge state={row.state} reason={gpu.state_reason} />
        <Reason gpu={gpu} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Course name="Utilization" spark={utilization} fixed={[0, 100]} text={formatValue(row.utilization, "%")} share={shareOf(row.utilization, 100)} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Course name="Power" spark={power} fixed={null} text={formatValue(row.power, "W")} share={shareOf(row.power, row.powerLimit)} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Heat celsius={row.temperature} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <MemoryUse used={row.memoryUsed} total={row.memoryTotal} />
      </td>
      <td className="num px-2 py-1.5 lg:px-3 whitespace-nowrap text-muted" title={row.lastSeen === null ? "never seen" : formatInstant(row.lastSeen, 0)}>
        {seen}
      </td>
    </OpeningRow>
  );
});

interface CourseProps {
  readonly name: string;
  readonly spark: Spark | undefined;
  readonly fixed: readonly [number, number] | null;
  readonly text: string;
  readonly share: number | null;
}

/** The last minutes as a line, the present as a number and, where the whole is known, as a bar. */
export function Course({ name, spark, fixed, text, share }: CourseProps) {
  return (
    <div className="flex items-center gap-2.5">
      <span className="hidden h-5 w-16 shrink-0 lg:block max-[760px]:block">
        {spark !== undefined && (
          <Sparkline label={`${name} over the last 15 minutes of data`} times={spark.times} stepMs={spark.stepMs} values={spark.values} fixed={fixed} />
        )}
      </span>
      <Level text={text} share={share} label={`${name} as a share of its limit`} />
    </div>
  );
}
