import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { fleetUsePath, fleetUseQuery, SHARES, type FleetUse, type Share } from "../../api/fleetUse";
import { hostsQuery, type Span } from "../../api/queries";
import { whereIs, whereWords } from "../../api/where";
import { stepFor } from "../../charts/axis";
import { TimeChart } from "../../charts/TimeChart";
import { List } from "../../parts/columns";
import { hours, kwh } from "../../parts/energy";
import { queryActions } from "../../parts/exports";
import { SimulatedBanner } from "../../parts/gpuLook";
import { ClearFilters, WaitingRows } from "../../parts/list";
import { anchorOf, askedRange } from "../../parts/range";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import { RangeNotes } from "../../parts/rangeNotes";
import { Tile, TILES } from "../../parts/tiles";
import { useAddress } from "../../shared/address";
import { formatNumber, formatValue, shareOf } from "../../shared/format";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed } from "../../shared/states";
import { formatClock, formatInstant, MINUTE, useNow } from "../../shared/time";
import { PRESETS_SHOWN, USE } from "./address";
import { groupList } from "./groupList";
import { lastReported, linesOf, sharedCourses, wholeCourses, within, type Course, type NamedLine } from "./lines";

const NAMES: Readonly<Record<Share, string>> = { namespace: "Namespaces", job: "Jobs", model: "Models", node: "Nodes", rack: "Racks", cluster: "Clusters" };

/** How much of the fleet was used over time, and by whom. */
export function FleetUsePage() {
  const { state, change, pathTo } = useAddress(USE);
  const { by, where } = state;
  const now = useNow(MINUTE);
  const hosts = useQuery(hostsQuery());
  const anchor = anchorOf(hosts.data?.hosts ?? [], now);
  const range = askedRange(state.range, anchor);
  const ask = { by, where, range, stepMs: stepOf("end" in range ? range.end - range.start : range.lengthMs) };
  const answer = useQuery({ ...fleetUseQuery(ask), enabled: hosts.data !== undefined || hosts.isError });
  const { data } = answer;
  const span = data?.span ?? { start: now - MINUTE, end: now };
  return (
    <div data-testid="use" data-last-update={answer.dataUpdatedAt}>
      {data?.use.whole.simulated === true && <SimulatedBanner>Some of these GPUs are simulated: what they use was made up by gpuvitals, not measured.</SimulatedBanner>}
      <h1 className="sr-only">Fleet over time</h1>
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <nav aria-label="Groups" className="card flex max-w-full overflow-x-auto rounded-md! p-0.5">
          {SHARES.map((share) => (
            <Link
              key={share}
              to={pathTo({ by: share })}
              aria-current={by === share ? "page" : undefined}
              className={`flex h-7 shrink-0 items-center rounded px-2.5 text-[13px] ${by === share ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
            >
              {NAMES[share]}
            </Link>
          ))}
        </nav>
        <RangeChoices range={state.range} span={span} presets={PRESETS_SHOWN} hasAll={false} onRange={(range) => change({ range })} />
        {where !== "" && (
          <>
            <span className="badge h-7! text-accent" title={`Only GPUs and holders with ${where}`}>
              {whereWords(where)}
            </span>
            <ClearFilters onClick={() => goTo(pathTo({ where: "" }))} />
          </>
        )}
        <p role="status" className="num ml-auto text-xs text-muted">
          {answer.isError && data !== undefined ? `Not renewed: as of ${formatClock(answer.dataUpdatedAt)}` : data !== undefined && `${formatInstant(span.start, now)} – ${formatInstant(span.end, now)}`}
        </p>
      </div>
      <CustomRange range={state.range} onRange={(range) => change({ range })} />
      <RangeNotes endsAt={state.range.kind === "preset" ? anchor : null} now={now} partial={data?.partial ?? null} />
      {data === undefined ? (
        answer.isError ? (
          <Failed what="The use of the fleet" error={answer.error} retry={() => void answer.refetch()} />
        ) : (
          <WaitingRows label="Loading what the fleet did" />
        )
      ) : data.use.whole.gpus_seen === 0 ? (
        <Empty title="No values in this range">{where === "" ? "No GPU reported anything in this time." : "No GPU or holder that passes the filter reported anything in this time."}</Empty>
      ) : (
        <div className={answer.isPlaceholderData ? "opacity-60" : ""}>
          <Shown use={data.use} span={span} now={now} path={fleetUsePath(ask, span)} />
        </div>
      )}
    </div>
  );
}

interface ShownProps {
  readonly use: FleetUse;
  readonly span: Span;
  readonly now: number;
  /** The question, as an address. */
  readonly path: string;
}

function Shown({ use, span, now, path }: ShownProps) {
  const { state, pathTo } = useAddress(USE);
  const { by, where } = state;
  const whole = useMemo(() => wholeCourses(use), [use]);
  const shared = useMemo(() => sharedCourses(use, by), [use, by]);
  const lines = useMemo(() => linesOf(use, by), [use, by]);
  const list = useMemo(() => groupList(by, (line) => alone(line, by, where, pathTo)), [by, where, pathTo]);
  const charts = { span, now, path, subject: where === "" ? "Fleet" : `Fleet, ${whereWords(where)}` };
  return (
    <>
      <Totals use={use} />
      <Charts title="Together" courses={whole} {...charts} />
      <Charts title={`By ${by}`} courses={shared} {...charts} />
      <div className="mt-4">
        <List of={list} rows={lines} />
      </div>
      <p className="mt-2 text-xs text-muted">
        A value is the sum over GPUs of what each did on average in a step of {stepWords(use.step_ms)}; GPUs without values are in none. Held: a namespace, pod or job has the GPU. Idle: held, with a
        utilization below 1 %. A GPU that changes hands counts by its share of the time.
        {use.rest !== null && ` These are the ${use.groups.length} with the most energy of ${use.total.toLocaleString("en")}.`}
      </p>
    </>
  );
}

/** Points of a line. Each is a sum over the whole fleet, so a question for more takes longer. */
const POINTS = 100;

/** GPUs that are sampled once a minute still report in every step. */
function stepOf(lengthMs: number): number {
  return Math.max(MINUTE, stepFor(lengthMs, POINTS));
}

/** A group alone, by what it consists of. What has no such name, and a rack, cannot be asked for. */
function alone({ group, isRest }: NamedLine, by: Share, where: string, pathTo: (part: { readonly by: Share; readonly where: string }) => string): string | null {
  if (isRest || by === "rack") return null;
  const test = whereIs(by, group);
  return where.split(";").includes(test) ? null : pathTo({ by: within(by), where: where === "" ? test : `${where};${test}` });
}

function stepWords(ms: number): string {
  const minutes = ms / MINUTE;
  return minutes >= 60 && minutes % 60 === 0 ? formatValue(minutes / 60, "h") : formatValue(minutes, "min");
}

interface ChartsProps extends Omit<ShownProps, "use"> {
  readonly title: string;
  readonly courses: readonly Course[];
  readonly subject: string;
}

function Charts({ title, courses, subject, span, now, path }: ChartsProps) {
  const { pathTo } = useAddress(USE);
  // A step of its own in the history: going back leaves the range again.
  const select = useCallback((start: number, end: number) => goTo(pathTo({ range: { kind: "custom", start, end } })), [pathTo]);
  return (
    <section aria-label={title} className="mt-4">
      <h2 className="mb-2 text-sm font-medium">{title}</h2>
      <div className="grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
        {courses.map(({ panel, frame }) => (
          <TimeChart
            key={`${panel.id} ${panel.columns.join("\n")}`}
            panel={panel}
            marked={false}
            frame={frame}
            nameOf={asItIs}
            subject={subject}
            actionsOf={(of) => queryActions(path, subject, of.title)}
            span={span}
            now={now}
            onSelect={select}
          />
        ))}
      </div>
    </section>
  );
}

const asItIs = (name: string) => name;

/** The range as a whole. */
function Totals({ use: { whole } }: { readonly use: FleetUse }) {
  const reporting = lastReported(whole.gpus);
  const metered = lastReported(whole.power_gpus);
  return (
    <dl className={TILES} aria-label="All together">
      <Tile name="GPUs that reported" value={formatNumber(whole.gpus_seen)}>
        {reporting !== null && <span className="block text-xs text-faint">{formatNumber(reporting)} in the last step</span>}
      </Tile>
      <Tile name="Energy" value={kwh(whole.energy_kwh)}>
        {reporting !== null && metered !== reporting && <span className="block text-xs text-faint">{metered === null ? "no GPU reports power" : `power of ${formatNumber(metered)} GPUs`}</span>}
      </Tile>
      <Tile name="GPU hours" value={hours(whole.gpu_hours)} />
      <Tile name="Busy" value={hours(whole.busy_gpu_hours)}>
        <PartOf part={whole.busy_gpu_hours} whole={whole.gpu_hours} of="of all" />
      </Tile>
      <Tile name="Held" value={hours(whole.held_gpu_hours)}>
        <PartOf part={whole.held_gpu_hours} whole={whole.gpu_hours} of="of all" />
      </Tile>
      <Tile name="Held but idle" value={hours(whole.idle_gpu_hours)}>
        <PartOf part={whole.idle_gpu_hours} whole={whole.held_gpu_hours} of="of held" />
      </Tile>
    </dl>
  );
}

function PartOf({ part, whole, of }: { readonly part: number | null; readonly whole: number | null; readonly of: string }) {
  const share = shareOf(part, whole);
  return share !== null && <span className="ml-1.5 text-xs text-faint">{`${formatNumber(share * 100)}% ${of}`}</span>;
}
