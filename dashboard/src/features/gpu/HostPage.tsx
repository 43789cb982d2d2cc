import { useQuery } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import { useMemo } from "react";
import type { Gpu } from "../../api/client";
import { ALL_FINDINGS, findingsQuery, type Finding } from "../../api/findings";
import { verdictOf, type Verdict } from "../../api/judgement";
import { catalogueQuery, hostCourseQuery, hostGpusQuery, type Span } from "../../api/queries";
import { EMPTY, frameOf, framesOf, lastValue, type Frame } from "../../charts/frame";
import { MarkLegend } from "../../charts/MarkLegend";
import type { Panel } from "../../charts/panels";
import { TimeChart } from "../../charts/TimeChart";
import { COMPARE, FLEET, GPU, HOST } from "../../parts/addresses";
import { List, type ListOf } from "../../parts/columns";
import { FindingItem } from "../../parts/findings/FindingItem";
import { useFindingDoubts } from "../../parts/findings/doubts";
import { useGpuNames } from "../../parts/findings/names";
import { SilenceForm, Silences } from "../../parts/findings/Silencing";
import { Heat, LastSeen, Level, MemoryUse, Reason, SimulatedBadge, SimulatedBanner, VerdictBadge } from "../../parts/gpuLook";
import { isSilent } from "../../parts/judgement";
import { defaultRange, isRecorded, PRESETS, spanOf, stepOf, type Preset, type Range } from "../../parts/range";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import { Tile, TILES } from "../../parts/tiles";
import { useAddress } from "../../shared/address";
import { ABSENT, formatValue, numberIn, shareOf } from "../../shared/format";
import { HOST_CPU, HOST_MEMORY_AVAILABLE, HOST_MEMORY_TOTAL, LINKS_UP, MEMORY_TOTAL, MEMORY_USED, PCIE_GEN, PCIE_GEN_MAX, PCIE_WIDTH, PCIE_WIDTH_MAX, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { goTo, Link } from "../../shared/location";
import { useShared } from "../../shared/same";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { MINUTE, parseInstant, useNow } from "../../shared/time";
import { COMPARED, usePanels } from "./gpuPanels";
import { historyQuery } from "./history";
import { HolderStrips } from "./HolderStrips";
import { useSharedMarks } from "./incident";
import { Topology } from "./Topology";

const ALL_PRESETS = Object.keys(PRESETS) as Preset[];
const NO_GPUS: readonly Gpu[] = [];
const NO_FINDINGS: readonly Finding[] = [];

/** The range that was chosen on a chart. A step of its own in the history: going back leaves it again. */
function chooseRange(start: number, end: number): void {
  const { pathname } = window.location;
  goTo(pathname + HOST.search({ range: { kind: "custom", start, end } }));
}

/** One host: what it does itself, what is wrong there, its GPUs with their holders and links, and their courses over each other. */
export function HostPage({ name }: { readonly name: string }) {
  const { state, change } = useAddress(HOST);
  const now = useNow(MINUTE);
  const list = useQuery(hostGpusQuery(name));
  const judged = useQuery(findingsQuery({ ...ALL_FINDINGS, host: name }));
  const doubts = useFindingDoubts(judged);
  const gpus = list.data?.gpus ?? NO_GPUS;
  const seen = latestOf(gpus);
  const recorded = isRecorded(seen, now);
  const range = state.range ?? defaultRange(recorded, null);
  const rows = useShared(useMemo(() => gpus.map((gpu): JudgedGpu => ({ ...gpu, verdict: verdictOf(gpu) })), [gpus]));
  const findings = judged.data?.findings ?? NO_FINDINGS;
  const names = useGpuNames(findings, gpus);

  if (list.data === undefined) {
    if (list.isError) return <Failed what="This host" error={list.error} retry={() => void list.refetch()} />;
    return <div role="status" aria-label="Loading the host" className="waiting h-64" />;
  }
  if (gpus.length === 0) {
    return (
      <Empty title="No such host">
        <p>
          No GPU of <code className="font-mono break-all">{name}</code> has ever been reported.
        </p>
        <Link to="/hosts" className="button mt-4">
          To the list of hosts
        </Link>
      </Empty>
    );
  }
  const models = [...new Set(gpus.flatMap((gpu) => gpu.model ?? []))];
  const drivers = [...new Set(gpus.flatMap((gpu) => gpu.driver_version ?? []))];
  return (
    <div data-testid="host" data-host={name} data-last-update={list.dataUpdatedAt}>
      {gpus.some((gpu) => gpu.simulated) && <SimulatedBanner>GPUs of this host are simulated: their values were made up by gpuvitals, not measured.</SimulatedBanner>}
      <nav aria-label="Path" className="flex items-center gap-1 text-xs text-muted">
        <Link to="/hosts" className="hover:text-fg hover:underline">
          Hosts
        </Link>
        <ChevronRight size={12} aria-hidden />
      </nav>
      <div className="mt-1 flex flex-wrap items-center gap-x-3 gap-y-1">
        <h1 className="text-lg font-semibold tracking-tight break-all">{name}</h1>
        {gpus.every((gpu) => gpu.simulated) && <SimulatedBadge />}
      </div>
      <p className="num mt-1 flex flex-wrap gap-x-5 gap-y-1 text-[13px] text-muted">
        <span>{models.join(", ") || "model unknown"}</span>
        <span>
          Driver {drivers.join(", ") || ABSENT}
          {drivers.length > 1 && <span className="text-warn"> (they differ)</span>}
        </span>
        {seen !== null && (
          <span>
            Last seen <LastSeen at={seen} />
          </span>
        )}
      </p>
      <NotRenewed of={[list]} />
      {list.data.partial !== null && (
        <p role="note" aria-label="Partly read" className="mt-2 text-[13px] text-warn">
          Not everything could be read: {list.data.partial}
        </p>
      )}
      <Silences host={name} />
      <SilenceForm choices={[{ type: "host", id: name }]} />
      <Vitals gpus={rows} total={list.data.total} />
      {(findings.length > 0 || doubts.length > 0) && (
        <section aria-label="Findings" className="mt-3">
          {doubts.length > 0 && (
            <p role="status" className="mb-2 text-sm text-warn">
              Findings: {doubts.join(" ")}
            </p>
          )}
          <ul className="grid gap-2 min-[2000px]:grid-cols-2">
            {findings.map((finding) => (
              <FindingItem key={finding.id} finding={finding} index={gpus.find((gpu) => gpu.id === finding.subject.id)?.index ?? null} names={names} />
            ))}
          </ul>
        </section>
      )}
      <section aria-label="GPUs of this host" className="mt-4">
        <List of={GPU_LIST} rows={rows} without={withoutOf(gpus)} />
        <p className="mt-2 flex flex-wrap gap-3 text-xs text-muted">
          <Link to={FLEET.to({ host: name })} className="hover:text-fg hover:underline">
            In the list of GPUs
          </Link>
          {gpus.length > 1 && (
            <Link to={COMPARE.to({ host: name })} className="hover:text-fg hover:underline">
              Compare them: where they differ
            </Link>
          )}
        </p>
      </section>
      <Topology host={name} gpus={gpus} />
      <Courses name={name} gpus={gpus} range={range} anchor={recorded ? seen : null} now={now} onRange={(next) => change({ range: next })} />
    </div>
  );
}

function latestOf(gpus: readonly Gpu[]): number | null {
  const instants = gpus.flatMap((gpu) => parseInstant(gpu.last_seen) ?? []);
  return instants.length === 0 ? null : Math.max(...instants);
}

/** Sums and means of the values that there are; null: none. */
function sumOf(gpus: readonly Gpu[], column: string): number | null {
  const values = gpus.flatMap((gpu) => numberIn(gpu.metrics, column) ?? []);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
}

/** What a GPU that is silent did last says nothing of the host now. If all are silent it is all that there is, and looks old. */
function Vitals({ gpus, total }: { readonly gpus: readonly JudgedGpu[]; readonly total: number }) {
  const reporting = gpus.filter(({ verdict }) => !isSilent(verdict));
  const isOld = reporting.length === 0;
  const counted = isOld ? gpus : reporting;
  const silent = gpus.length - reporting.length;
  const busy = counted.flatMap((gpu) => numberIn(gpu.metrics, UTILIZATION) ?? []);
  const mean = busy.length === 0 ? null : busy.reduce((sum, value) => sum + value, 0) / busy.length;
  const heat = counted.flatMap((gpu) => numberIn(gpu.metrics, TEMPERATURE) ?? []);
  const [power, limit] = [sumOf(counted, POWER), sumOf(counted, POWER_LIMIT)];
  const memory = sumOf(counted, MEMORY_TOTAL);
  const held = gpus.filter((gpu) => holderOf(gpu) !== "").length;
  return (
    <>
      <dl className={`mt-3 ${TILES}`} {...(isOld && { "data-old": "" })}>
        <Tile name="GPUs" value={String(total)} />
        <Tile name="Held by somebody" value={String(held)} />
        <Tile name="Mean utilization" value={formatValue(mean, "%")} />
        <Tile name="Power of the GPUs" value={formatValue(power, "W")}>
          {limit !== null && <span className="ml-1.5 text-xs text-faint">of {formatValue(limit, "W")}</span>}
        </Tile>
        <Tile name="Hottest GPU" value={formatValue(heat.length === 0 ? null : Math.max(...heat), "°C")} />
        <Tile name="GPU memory in use" value={formatValue(sumOf(counted, MEMORY_USED), "MiB")}>
          {memory !== null && <span className="ml-1.5 text-xs text-faint">of {formatValue(memory, "MiB")}</span>}
        </Tile>
      </dl>
      {silent > 0 && (
        <p role="note" aria-label="Silent GPUs" className="mt-1.5 text-xs text-muted">
          {isOld ? "No GPU reports any more: these are the last values." : `Without ${silent === 1 ? "1 GPU that is" : `${silent} GPUs that are`} silent.`}
        </p>
      )}
    </>
  );
}

/** Who has the GPU: namespace and job, or else pod. Empty: nobody is known. */
function holderOf({ labels }: Gpu): string {
  return [labels?.namespace, labels?.job ?? labels?.pod].filter((part) => part !== undefined && part !== null && part !== "").join(" / ");
}

/** `Gen 5 ×16`, and what it could be where that is more: a link that came up slow. */
function pcieOf({ metrics }: Gpu): { readonly text: string; readonly isLess: boolean } {
  const [width, widthMax] = [numberIn(metrics, PCIE_WIDTH), numberIn(metrics, PCIE_WIDTH_MAX)];
  const words = (gen: number | null, lanes: number | null) => [gen === null ? "" : `Gen ${gen}`, lanes === null ? "" : `×${lanes}`].filter((part) => part !== "").join(" ");
  const is = words(numberIn(metrics, PCIE_GEN), width);
  // An idle link rests at a lower generation; one with fewer lanes has lost some.
  const isLess = width !== null && widthMax !== null && width < widthMax;
  return { text: is === "" ? "" : isLess ? `${is} of ${words(numberIn(metrics, PCIE_GEN_MAX), widthMax)}` : is, isLess };
}

function withoutOf(gpus: readonly Gpu[]): string[] {
  const isEmpty = (of: (gpu: Gpu) => unknown) => gpus.every((gpu) => of(gpu) === "" || of(gpu) === null || of(gpu) === undefined);
  return [
    ...(isEmpty(holderOf) ? ["holder"] : []),
    ...(isEmpty((gpu) => gpu.labels?.pci) ? ["pci"] : []),
    ...(isEmpty((gpu) => pcieOf(gpu).text) ? ["pcie"] : []),
    ...(isEmpty((gpu) => numberIn(gpu.metrics, LINKS_UP)) ? ["links"] : []),
  ];
}

/** A GPU and how it does. */
type JudgedGpu = Gpu & { readonly verdict: Verdict };

const GPU_LIST: ListOf<JudgedGpu> = {
  label: "GPUs of this host with their holders and links",
  keyOf: (gpu) => gpu.id,
  mark: (gpu) => ({ "data-gpu": gpu.id, ...(isSilent(gpu.verdict) && { "data-old": "" }) }),
  pathOf: (gpu) => GPU.to({ id: gpu.id }),
  columns: [
    {
      id: "gpu",
      title: "GPU",
      value: ({ name }) => name,
      card: "name",
      cell: (gpu) => (
        <Link to={GPU.to({ id: gpu.id })} data-row="" className="rounded hover:underline" title={gpu.id}>
          {gpu.index === null ? gpu.name : `GPU ${gpu.index}`}
        </Link>
      ),
      className: "font-medium whitespace-nowrap",
    },
    {
      id: "state",
      title: "State",
      value: ({ verdict }) => verdict.word,
      card: "line",
      cell: (gpu) => (
        <>
          <VerdictBadge verdict={gpu.verdict} />
          <Reason verdict={gpu.verdict} />
        </>
      ),
    },
    { id: "holder", title: "Holder", value: holderOf, cell: (gpu) => <span className="text-muted [overflow-wrap:anywhere]">{holderOf(gpu) || ABSENT}</span> },
    { id: "utilization", title: "Utilization", value: ({ metrics }) => numberIn(metrics, UTILIZATION), cell: (gpu) => <Level text={formatValue(numberIn(gpu.metrics, UTILIZATION), "%")} share={shareOf(numberIn(gpu.metrics, UTILIZATION), 100)} label="Utilization" /> },
    { id: "power", title: "Power", value: ({ metrics }) => numberIn(metrics, POWER), cell: (gpu) => <Level text={formatValue(numberIn(gpu.metrics, POWER), "W")} share={shareOf(numberIn(gpu.metrics, POWER), numberIn(gpu.metrics, POWER_LIMIT))} label="Power as a share of its limit" /> },
    { id: "temperature", title: "Temperature", value: ({ metrics }) => numberIn(metrics, TEMPERATURE), cell: (gpu) => <Heat celsius={numberIn(gpu.metrics, TEMPERATURE)} /> },
    { id: "memory", title: "Memory", value: ({ metrics }) => numberIn(metrics, MEMORY_USED), cell: (gpu) => <MemoryUse used={numberIn(gpu.metrics, MEMORY_USED)} total={gpu.memory_mb} /> },
    { id: "pci", title: "PCI", value: ({ labels }) => labels?.pci ?? null, cell: (gpu) => <span className="font-mono text-xs whitespace-nowrap">{gpu.labels?.pci ?? ABSENT}</span> },
    { id: "pcie", title: "PCIe", value: (gpu) => pcieOf(gpu).text, cell: (gpu) => <span className={`num whitespace-nowrap ${pcieOf(gpu).isLess ? "text-warn" : ""}`}>{pcieOf(gpu).text || ABSENT}</span> },
    { id: "links", title: "Links up", value: ({ metrics }) => numberIn(metrics, LINKS_UP), cell: (gpu) => <span className="num">{numberIn(gpu.metrics, LINKS_UP) ?? ABSENT}</span> },
  ],
};

interface CoursesProps {
  readonly name: string;
  readonly gpus: readonly Gpu[];
  readonly range: Range;
  /** Where a preset ends; null: now. */
  readonly anchor: number | null;
  readonly now: number;
  readonly onRange: (range: Range) => void;
}

/** What the host itself does, and its GPUs over each other. */
function Courses({ name, gpus, range, anchor, now, onRange }: CoursesProps) {
  const catalogue = useQuery(catalogueQuery()).data?.metrics;
  const ids = useMemo(() => gpus.map((gpu) => gpu.id), [gpus]);
  const isLive = range.kind === "preset" && anchor === null;
  const history = useQuery(historyQuery({ gpus: ids, columns: COMPARED, range, aggregates: ["mean"], anchor, all: null, live: isLive, polling: true }));
  const { start, end } = history.data?.span ?? spanOf(range, anchor ?? now, null);
  const span = useMemo((): Span => ({ start, end }), [start, end]);
  const answer = history.data?.answer;
  // The span moves until there is an answer.
  const own = useQuery({ ...hostCourseQuery(name, span, stepOf(span)), enabled: answer !== undefined });
  const frames = useMemo(() => (answer === undefined ? new Map<string, Frame>() : framesOf(answer, "mean")), [answer]);
  const host = useMemo(() => (own.data === undefined ? EMPTY : frameOf(own.data, "", "mean")), [own.data]);
  const read = useMemo(() => COMPARED.filter((column) => gpus.some((gpu) => numberIn(gpu.metrics, column) !== null)), [gpus]);
  const panels = usePanels(ids, read, catalogue);
  const named = useMemo(() => gpus.map(({ id, index, name: whole }) => ({ id, name: index === null ? whole : `GPU ${index}` })), [gpus]);
  const names = useMemo(() => new Map(named.map((gpu) => [gpu.id, gpu.name])), [named]);
  const marks = useSharedMarks(ids);
  const common = { marked: false, marks, span, now, subject: [name, ...new Set(gpus.flatMap((gpu) => gpu.model ?? []))].join(", "), onSelect: chooseRange };
  const shownOwn = OWN.filter(({ columns }) => columns.some((column) => lastValue(host.values.get(column)) !== null));
  return (
    <>
      <section aria-label="Time range" className="mt-4 mb-3 flex flex-wrap items-center gap-2">
        <RangeChoices range={range} span={span} presets={ALL_PRESETS} hasAll={false} onRange={onRange} />
        <CustomRange range={range} onRange={onRange} />
      </section>
      <NotRenewed of={[history, own]} />
      <HolderStrips gpus={named} span={span} now={now} isAsked={answer !== undefined} />
      <MarkLegend marks={marks} now={now} />
      {history.isError && answer === undefined ? (
        <Failed what="The course of the values" error={history.error} retry={() => void history.refetch()} />
      ) : (
        <div className="grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
          {shownOwn.map((panel) => (
            <TimeChart key={panel.id} panel={panel} frame={host} {...common} />
          ))}
          {panels.map(({ panel, column }) => (
            <TimeChart key={panel.id} panel={panel} frame={frames.get(column) ?? EMPTY} nameOf={(id) => names.get(id) ?? id} {...common} />
          ))}
        </div>
      )}
      {own.isSuccess && shownOwn.length === 0 && <p className="mt-2 text-xs text-muted">No agent reports CPU and memory of this host in this range.</p>}
    </>
  );
}

const OWN: readonly Panel[] = [
  { id: "host-cpu", title: "CPU of the host", unit: "%", columns: [HOST_CPU] },
  { id: "host-memory", title: "Memory of the host", unit: "MiB", columns: [HOST_MEMORY_AVAILABLE, HOST_MEMORY_TOTAL], limits: new Set([HOST_MEMORY_TOTAL]) },
];
