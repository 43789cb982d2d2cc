import type { Gpu } from "../../api/client";
import { JUDGEMENTS } from "../../api/judgement";
import { Sparkline } from "../../charts/Sparkline";
import { GPU } from "../../parts/addresses";
import type { ListOf } from "../../parts/columns";
import { Cut, Heat, LastSeen, Level, MemoryUse, Reason, SimulatedBadge, VerdictBadge } from "../../parts/gpuLook";
import { isSilent } from "../../parts/judgement";
import { highestFirst, lowestFirst } from "../../parts/order";
import { ABSENT, formatValue, shareOf, shortId } from "../../shared/format";
import { MEMORY_USED, POWER, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { Link } from "../../shared/location";
import { isoOf } from "../../shared/time";
import { titleOf, type Row } from "./row";
import type { Spark } from "../../parts/sparks";

const SHARE = [0, 100] as const;

/** The GPUs with their latest values. The server orders them by the same. */
export const GPU_LIST: ListOf<Row> = {
  label: "GPUs with their latest values",
  unsorted: "The sick first",
  keyOf: ({ gpu }) => gpu.id,
  mark: ({ gpu, verdict }) => ({ "data-gpu": gpu.id, ...(isSilent(verdict) && { "data-old": "" }) }),
  pathOf: ({ gpu }) => GPU.to({ id: gpu.id }),
  columns: [
    { id: "model", title: "GPU", card: "name", sort: lowestFirst(({ gpu }) => gpu.model), cell: ({ gpu }) => <Name gpu={gpu} />, className: "font-normal" },
    { id: "hostname", title: "Host", sort: lowestFirst(({ gpu }) => gpu.hostname), cell: ({ gpu }) => <Cut text={gpu.hostname ?? ""} />, className: "text-muted", limit: "max-w-52" },
    { id: "index", title: "#", spoken: "Index", sort: lowestFirst(({ gpu }) => gpu.index), cell: ({ gpu }) => gpu.index ?? ABSENT, className: "num text-muted", width: "w-12" },
    { id: "judgement", title: "State", card: "line", sort: lowestFirst(({ verdict }) => JUDGEMENTS.indexOf(verdict.word)), value: ({ verdict }) => verdict.word, cell: (row) => <State row={row} />, width: "lg:w-48" },
    {
      id: UTILIZATION,
      title: "Utilization",
      sort: highestFirst(({ utilization }) => utilization),
      cell: (row) => <Course name="Utilization" spark={row.utilizationCourse} fixed={SHARE} text={formatValue(row.utilization, "%")} share={shareOf(row.utilization, 100)} />,
      width: "lg:w-44",
    },
    {
      id: POWER,
      title: "Power",
      sort: highestFirst(({ power }) => power),
      cell: (row) => <Course name="Power" spark={row.powerCourse} fixed={null} text={formatValue(row.power, "W")} share={shareOf(row.power, row.powerLimit)} />,
      width: "lg:w-44",
    },
    { id: TEMPERATURE, title: "Temperature", sort: highestFirst(({ temperature }) => temperature), cell: (row) => <Heat celsius={row.temperature} />, width: "lg:w-28" },
    { id: MEMORY_USED, title: "Memory", sort: highestFirst(({ memoryUsed }) => memoryUsed), cell: (row) => <MemoryUse used={row.memoryUsed} total={row.memoryTotal} />, width: "lg:w-40" },
    { id: "last_seen", title: "Last seen", sort: highestFirst(({ lastSeen }) => lastSeen), value: ({ lastSeen }) => isoOf(lastSeen), cell: (row) => <LastSeen at={row.lastSeen} />, className: "num whitespace-nowrap text-muted", width: "lg:w-28" },
  ],
};

function Name({ gpu }: { readonly gpu: Gpu }) {
  return (
    <div className="flex items-center gap-2">
      <Link to={GPU.to({ id: gpu.id })} data-row="" className="group min-w-0 rounded" title={gpu.id}>
        <span className="block truncate font-medium group-hover:underline">{titleOf(gpu)}</span>
        <span className="block truncate font-mono text-[11px] text-faint">{shortId(gpu.id)}</span>
      </Link>
      {gpu.simulated && <SimulatedBadge />}
    </div>
  );
}

function State({ row: { verdict } }: { readonly row: Row }) {
  return (
    <>
      <VerdictBadge verdict={verdict} />
      <Reason verdict={verdict} />
    </>
  );
}

interface CourseProps {
  readonly name: string;
  readonly spark: Spark | undefined;
  readonly fixed: readonly [number, number] | null;
  readonly text: string;
  readonly share: number | null;
}

/** The last minutes as a line, the present as a number and, where the whole is known, as a bar. */
function Course({ name, spark, fixed, text, share }: CourseProps) {
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
