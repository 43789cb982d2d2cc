import { ArrowDown, ArrowUp } from "lucide-react";
import { memo, type MouseEvent } from "react";
import type { Gpu } from "../../api/client";
import { Sparkline } from "../../charts/Sparkline";
import { ABSENT, formatValue, shortId } from "../../shared/format";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { goTo, Link } from "../../shared/location";
import { formatAge, formatInstant } from "../../shared/time";
import { Bar, heatColour, SimulatedBadge, StateBadge } from "../gpuLook";
import { ariaSort, nextSort, type SortColumn } from "./fleetState";
import { rowOf, shareOf, titleOf, type Row } from "./row";
import { sparkKey, type Spark } from "./sparks";

interface GpuTableProps {
  readonly gpus: readonly Gpu[];
  readonly sparks: ReadonlyMap<string, Spark>;
  readonly now: number;
  readonly sort: string;
  readonly onSort: (sort: string) => void;
  readonly dim: boolean;
}

interface Header {
  readonly column: SortColumn;
  readonly title: string;
  readonly className: string;
}

const HEADERS: readonly Header[] = [
  { column: "model", title: "GPU", className: "" },
  { column: "hostname", title: "Host", className: "" },
  { column: "index", title: "#", className: "w-12" },
  { column: "state", title: "State", className: "lg:w-28" },
  { column: UTILIZATION, title: "Utilization", className: "lg:w-44" },
  { column: POWER, title: "Power", className: "lg:w-44" },
  { column: TEMPERATURE, title: "Temperature", className: "lg:w-28" },
  { column: MEMORY_USED, title: "Memory", className: "lg:w-40" },
  { column: "last_seen", title: "Last seen", className: "lg:w-28" },
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

interface HeaderCellProps {
  readonly header: Header;
  readonly sort: string;
  readonly onSort: (sort: string) => void;
}

function HeaderCell({ header, sort, onSort }: HeaderCellProps) {
  const direction = ariaSort(sort, header.column);
  const Icon = direction === "descending" ? ArrowDown : ArrowUp;
  return (
    <th scope="col" aria-sort={direction} className={`px-2 py-0 lg:px-3 text-left font-medium ${header.className}`}>
      <button
        type="button"
        className={`-mx-1.5 flex items-center gap-1 rounded px-1.5 py-2 whitespace-nowrap hover:text-fg ${direction === "none" ? "" : "text-fg"}`}
        title={`Sort by ${header.title === "#" ? "index" : header.title.toLowerCase()}`}
        aria-label={header.title === "#" ? "Index" : undefined}
        onClick={() => onSort(nextSort(sort, header.column))}
      >
        {header.title}
        <Icon size={12} className={direction === "none" ? "opacity-0" : ""} aria-hidden />
      </button>
    </th>
  );
}

interface GpuRowProps {
  readonly gpu: Gpu;
  readonly utilization: Spark | undefined;
  readonly power: Spark | undefined;
  readonly seen: string;
}

const GpuRow = memo(function GpuRow({ gpu, utilization, power, seen }: GpuRowProps) {
  const row = rowOf(gpu);
  const path = `/gpus/${encodeURIComponent(gpu.id)}`;
  // The link is for keyboard, screen reader and new tabs; the rest of the row is a larger target for the same.
  const open = (event: MouseEvent) => {
    const selecting = window.getSelection()?.isCollapsed === false;
    if (!selecting && event.target instanceof Element && event.target.closest("a, button") === null) {
      goTo(path);
    }
  };
  return (
    <tr className="cursor-pointer border-b border-line last:border-0 focus-within:bg-raised hover:bg-raised/60" data-gpu={gpu.id} onClick={open}>
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
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Course name="Utilization" spark={utilization} fixed={[0, 100]} text={formatValue(row.utilization, "%")} share={shareOf(row.utilization, 100)} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Course name="Power" spark={power} fixed={null} text={formatValue(row.power, "W")} share={shareOf(row.power, row.powerLimit)} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Temperature row={row} />
      </td>
      <td className="px-2 py-1.5 lg:px-3">
        <Memory row={row} />
      </td>
      <td className="num px-2 py-1.5 lg:px-3 whitespace-nowrap text-muted" title={row.lastSeen === null ? "never seen" : formatInstant(row.lastSeen, 0)}>
        {seen}
      </td>
    </tr>
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
      <div className="w-16 min-w-0">
        <span className="num block leading-5">{text}</span>
        {share !== null && <Bar share={share} label={`${name} as a share of its limit`} />}
      </div>
    </div>
  );
}

export function Temperature({ row }: { readonly row: Row }) {
  return (
    <div className="w-16">
      <span className="num block leading-5">{formatValue(row.temperature, "°C")}</span>
      {row.temperature !== null && <Bar share={row.temperature / 100} label="Temperature from 0 to 100 °C" colour={heatColour(row.temperature)} />}
    </div>
  );
}

export function Memory({ row }: { readonly row: Row }) {
  const share = shareOf(row.memoryUsed, row.memoryTotal);
  return (
    <div className="w-36 max-w-full max-lg:min-[761px]:w-32">
      <span className="num block truncate leading-5">
        {formatValue(row.memoryUsed, "MiB")}
        {row.memoryTotal !== null && <span className="text-faint"> / {formatValue(row.memoryTotal, "MiB")}</span>}
      </span>
      {share !== null && <Bar share={share} label="Memory in use" />}
    </div>
  );
}
