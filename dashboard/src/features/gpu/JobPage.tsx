import { useQuery } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import { useCallback, useMemo } from "react";
import { ApiError } from "../../api/client";
import { ALL_FINDINGS, findingsQuery, type Finding } from "../../api/findings";
import { occupancyQuery, STEPS_MAX, type Occupancy } from "../../api/holders";
import { catalogueQuery, hostsQuery, type Span } from "../../api/queries";
import { oneJobQuery, type JobDetail, type JobUse } from "../../api/usage";
import { stepFor } from "../../charts/axis";
import { EMPTY, framesOf, lastValue, type Frame } from "../../charts/frame";
import { stretchesOf, type StripLine } from "../../charts/strips";
import { Strips } from "../../charts/Strips";
import { TimeChart } from "../../charts/TimeChart";
import { COMPARE, HOST, JOB } from "../../parts/addresses";
import { List } from "../../parts/columns";
import { hours, kwh } from "../../parts/energy";
import { useFindingDoubts } from "../../parts/findings/doubts";
import { FindingItem } from "../../parts/findings/FindingItem";
import { SimulatedBanner } from "../../parts/gpuLook";
import { toldOf, whereOf } from "../../parts/jobs";
import { anchorOf, askedRange, spanOf, type Preset, type Range } from "../../parts/range";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import { RangeNotes } from "../../parts/rangeNotes";
import { Tile, TILES, WaitingTiles } from "../../parts/tiles";
import { useAddress } from "../../shared/address";
import { formatNumber } from "../../shared/format";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { MINUTE, parseInstant, useNow } from "../../shared/time";
import { COMPARED, usePanels } from "./gpuPanels";
import { historyQuery } from "./history";
import { gpuName, JOB_GPUS, JOB_STEPS, type JobGpu } from "./jobLists";

const PRESETS_SHOWN: readonly Preset[] = ["1h", "6h", "24h", "7d"];
const JOBS_PATH = "/jobs?by=holder";
const NO_FINDINGS: readonly Finding[] = [];
/** GPUs whose courses are drawn, and about which it is asked what is wrong: four charts a metric. */
const DRAWN_MAX = 24;

/** One job or pod: who runs it, what it used, what is wrong with its GPUs, its hosts over time and its GPUs over each other. */
export function JobPage({ id }: { readonly id: string }) {
  const { state, change } = useAddress(JOB);
  const now = useNow(MINUTE);
  const hosts = useQuery(hostsQuery());
  const anchor = anchorOf(hosts.data?.hosts ?? [], now);
  const range = askedRange(state.range, anchor);
  const answer = useQuery({ ...oneJobQuery({ id, cluster: state.cluster, range }), enabled: hosts.data !== undefined || hosts.isError });
  const { data } = answer;
  const span = data?.span ?? spanOf(state.range, anchor ?? now, null);
  const onRange = (next: Range) => change({ range: next });
  return (
    <div data-testid="job" data-last-update={answer.dataUpdatedAt}>
      <nav aria-label="Path" className="flex items-center gap-1 text-xs text-muted">
        <Link to={JOBS_PATH} className="hover:text-fg hover:underline">
          Jobs
        </Link>
        <ChevronRight size={12} aria-hidden />
      </nav>
      <h1 className="mt-1 text-lg font-semibold tracking-tight break-all">{data?.detail.job.holder ?? id}</h1>
      <section aria-label="Time range" className="my-3 flex flex-wrap items-center gap-2">
        <RangeChoices range={state.range} span={span} presets={PRESETS_SHOWN} hasAll={false} onRange={onRange} />
        <CustomRange range={state.range} onRange={onRange} />
      </section>
      <RangeNotes endsAt={state.range.kind === "preset" ? anchor : null} now={now} partial={data?.partial ?? null} />
      {data !== undefined ? (
        <Shown detail={data.detail} span={span} now={now} />
      ) : !answer.isError ? (
        <WaitingTiles label="Loading what the job used" />
      ) : isMissing(answer.error) ? (
        <Empty title="It held no GPU in this range">
          <p>
            Nothing called <code className="font-mono break-all">{id}</code> had a GPU then. Choose an earlier or longer range.
          </p>
        </Empty>
      ) : (
        <Failed what="What the job used" error={answer.error} retry={() => void answer.refetch()} />
      )}
    </div>
  );
}

function isMissing(error: Error): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.status === 404;
}

interface ShownProps {
  readonly detail: JobDetail;
  /** What was asked for. */
  readonly span: Span;
  readonly now: number;
}

function Shown({ detail, span, now }: ShownProps) {
  const { job, gpus, steps = [] } = detail;
  const own = useOwn(job, span);
  const stepsTotal = detail.steps_total ?? steps.length;
  return (
    <>
      {job.simulated === true && <SimulatedBanner>Some of these GPUs are simulated: what they use was made up by gpuvitals, not measured.</SimulatedBanner>}
      <About job={job} span={span} />
      <Totals job={job} />
      {detail.advice !== undefined && (
        <p role="note" aria-label="Advice" className="mt-2 text-[13px]">
          {detail.advice.text}.
        </p>
      )}
      <Findings job={job} gpus={gpus} />
      <div className="mt-4">
        <Hosts job={job} span={own} now={now} />
        <Courses job={job} gpus={gpus} span={own} now={now} />
      </div>
      <section aria-label="GPUs of the job" className="mt-4">
        <List of={JOB_GPUS} rows={gpus} />
      </section>
      {steps.length > 0 && (
        <section aria-label="Steps" className="mt-4">
          <List of={JOB_STEPS} rows={steps} />
          <p className="mt-2 text-xs text-muted">
            Seen to half a minute. What the job used of a step&apos;s GPUs while it ran: steps at one time on the same GPUs have the same.
            {stepsTotal > steps.length && ` These are the ${steps.length} that began last of ${stepsTotal.toLocaleString("en")}.`}
          </p>
        </section>
      )}
      {detail.interpolated && <p className="mt-2 text-xs text-muted">Of an hour in which the range begins or ends, a part is taken that is as long.</p>}
    </>
  );
}

/** The part of a span in which the job ran, as far as that is known. */
function useOwn(job: JobUse, { start, end }: Span): Span {
  const [began, ended] = [parseInstant(job.about?.start), parseInstant(job.about?.end)];
  return useMemo(() => {
    const own = { start: Math.max(start, began ?? start), end: Math.min(end, ended ?? end) };
    return own.start < own.end ? own : { start, end };
  }, [start, end, began, ended]);
}

/** Whose job it is and how it ended, with a link to the range of its whole life. */
function About({ job, span }: { readonly job: JobUse; readonly span: Span }) {
  const { pathTo } = useAddress(JOB);
  const told = [...toldOf(job), job.cluster, job.running === true ? "has a GPU now" : null].filter((part) => part !== null);
  const [start, end] = [parseInstant(job.about?.start), parseInstant(job.about?.end)];
  const isCut = start !== null && end !== null && start < end && (start < span.start || end < span.end);
  return (
    <p className="mb-3 flex flex-wrap items-center gap-x-4 gap-y-1 text-[13px] text-muted">
      <span>{told.join(", ")}</span>
      {isCut && (
        <Link to={pathTo({ range: { kind: "custom", start, end } })} className="rounded text-accent hover:underline">
          From its begin to its end
        </Link>
      )}
    </p>
  );
}

function Totals({ job }: { readonly job: JobUse }) {
  const asked = job.about?.gpus_asked ?? null;
  return (
    <dl className={TILES} aria-label="All together">
      <Tile name="GPUs" value={formatNumber(job.gpus)}>
        {asked !== null && <span className="ml-1.5 text-xs text-faint">{formatNumber(asked)} asked</span>}
      </Tile>
      <Tile name="Held" value={hours(job.held_gpu_hours)} />
      <Tile name="Busy" value={hours(job.busy_gpu_hours)} />
      <Tile name="Wasted" value={hours(job.wasted_gpu_hours)}>
        {job.idle_gpu_hours !== null && <span className="block text-xs text-faint">{hours(job.idle_gpu_hours)} of it never used</span>}
      </Tile>
      <Tile name="Shared" value={hours(job.shared_gpu_hours)} />
      <Tile name="Energy" value={kwh(job.energy_kwh)} />
    </dl>
  );
}

/** What is wrong now with its GPUs, as long as it has them. */
function Findings({ job, gpus }: { readonly job: JobUse; readonly gpus: readonly JobGpu[] }) {
  const ids = gpus.slice(0, DRAWN_MAX).map(({ gpu }) => gpu);
  const judged = useQuery({ ...findingsQuery({ ...ALL_FINDINGS, gpus: ids.join(",") }), enabled: job.running === true && ids.length > 0 });
  const doubts = useFindingDoubts(judged);
  const findings = judged.data?.findings ?? NO_FINDINGS;
  const names = useMemo(() => new Map(gpus.map((gpu) => [gpu.gpu, gpuName(gpu)])), [gpus]);
  if (job.running !== true || (findings.length === 0 && doubts.length === 0)) return null;
  return (
    <section aria-label="Findings" className="mt-3">
      {doubts.length > 0 && (
        <p role="status" className="mb-2 text-sm text-warn">
          Findings: {doubts.join(" ")}
        </p>
      )}
      <ul className="grid gap-2 min-[2000px]:grid-cols-2">
        {findings.map((finding) => (
          <FindingItem key={finding.id} finding={finding} index={gpus.find(({ gpu }) => gpu === finding.subject.id)?.index ?? null} names={names} />
        ))}
      </ul>
      {gpus.length > ids.length && <p className="mt-1 text-xs text-muted">Of the first {ids.length} of its {gpus.length.toLocaleString("en")} GPUs.</p>}
    </section>
  );
}

const BUSY = "busy";
const IDLE = "idle";
const LOOKS = { [BUSY]: "var(--line-1)", [IDLE]: "color-mix(in srgb, var(--line-2) 45%, transparent)" };
/** Utilization below which a GPU does nothing, %. */
const IDLE_BELOW = 1;

/** Its hosts, each a strip of time: when GPUs of the job were there, and whether they worked. */
function Hosts({ job, span, now }: { readonly job: JobUse; readonly span: Span; readonly now: number }) {
  const where = whereOf(job);
  const stepMs = Math.max(MINUTE, stepFor(span.end - span.start, STEPS_MAX));
  const { data } = useQuery({ ...occupancyQuery({ where: where ?? "", groupBy: "node", span, stepMs }), enabled: where !== null });
  const lines = useMemo(() => (data === undefined ? [] : hostLines(data)), [data]);
  if (lines.length === 0) return null;
  return <Strips title="Its hosts over time" lines={lines} span={span} now={now} plain={LOOKS} note="By the mean utilization of its GPUs there; idle is below 1 %. Where there is no colour, the job had no GPU, or nothing was read." />;
}

function hostLines({ times, stepMs, lines }: Occupancy): StripLine[] {
  return lines.map(({ labels, values }) => {
    const name = labels.node ?? "";
    const what = (step: number) => {
      const value = values[step] ?? null;
      return value === null ? null : value < IDLE_BELOW ? IDLE : BUSY;
    };
    return { id: name, name: name === "" ? "no host" : name, path: name === "" ? null : HOST.to({ name }), stretches: stretchesOf(times, stepMs, what) };
  });
}

interface CoursesProps {
  readonly job: JobUse;
  readonly gpus: readonly JobGpu[];
  readonly span: Span;
  readonly now: number;
}

/** Its GPUs over each other while it had them. */
function Courses({ job, gpus, span, now }: CoursesProps) {
  const { pathTo } = useAddress(JOB);
  const catalogue = useQuery(catalogueQuery()).data?.metrics;
  const ids = useMemo(() => gpus.slice(0, DRAWN_MAX).map(({ gpu }) => gpu), [gpus]);
  const range: Range = { kind: "custom", start: span.start, end: span.end };
  const history = useQuery({ ...historyQuery({ gpus: ids, columns: COMPARED, range, aggregates: ["mean"], anchor: null, all: null, live: false, polling: false }), enabled: ids.length > 0 });
  const answer = history.data?.answer;
  const frames = useMemo(() => (answer === undefined ? new Map<string, Frame>() : framesOf(answer, "mean")), [answer]);
  const read = useMemo(() => COMPARED.filter((column) => [...(frames.get(column)?.values.values() ?? [])].some((values) => lastValue(values) !== null)), [frames]);
  const panels = usePanels(ids, read, catalogue);
  const names = useMemo(() => new Map(gpus.map((gpu) => [gpu.gpu, gpuName(gpu)])), [gpus]);
  const nameOf = useCallback((id: string) => names.get(id) ?? id, [names]);
  // A step of its own in the history: going back leaves the range again.
  const select = useCallback((start: number, end: number) => goTo(pathTo({ range: { kind: "custom", start, end } })), [pathTo]);
  if (history.isError && answer === undefined) return <Failed what="The course of the values" error={history.error} retry={() => void history.refetch()} />;
  const where = whereOf(job);
  return (
    <section aria-label="Its GPUs over each other">
      <NotRenewed of={[history]} />
      <div className="grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
        {panels.map(({ panel, column }) => (
          <TimeChart key={panel.id} panel={panel} marked={false} frame={frames.get(column) ?? EMPTY} nameOf={nameOf} subject={job.holder ?? ""} span={span} now={now} onSelect={select} />
        ))}
      </div>
      <p className="mt-2 flex flex-wrap gap-3 text-xs text-muted">
        {gpus.length > ids.length && <span>The first {ids.length} of its {gpus.length.toLocaleString("en")} GPUs.</span>}
        {where !== null && job.running === true && gpus.length > 1 && (
          <Link to={COMPARE.to({ where })} className="hover:text-fg hover:underline">
            Compare them: where they differ
          </Link>
        )}
      </p>
    </section>
  );
}
