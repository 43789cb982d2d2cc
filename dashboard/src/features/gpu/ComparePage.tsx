import { useQueries, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import type { Gpu, GpuDetail } from "../../api/client";
import { catalogueQuery, gpuListQuery, gpuQuery } from "../../api/queries";
import { whereWords } from "../../api/where";
import { EMPTY, framesOf } from "../../charts/frame";
import { MarkLegend } from "../../charts/MarkLegend";
import { groupTitle, isDrawn, isLimit, LINES_MAX, rowsOf, type CatalogueRow, type Panel } from "../../charts/panels";
import { TimeChart } from "../../charts/TimeChart";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { capital, metricTitle } from "../../shared/format";
import { COMPARE, FLEET, GPU } from "../../parts/addresses";
import { useAddress } from "../../shared/address";
import { ENERGY, POWER } from "../../shared/headline";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed, NotRenewed, type Renewed } from "../../shared/states";
import { HOUR, MINUTE, parseInstant, useNow } from "../../shared/time";
import { SimulatedBanner } from "../../parts/gpuLook";
import { chartActions } from "./exports";
import { differencesOf, furthest } from "./differences";
import { Differences } from "./DifferenceTable";
import { historyQuery, sumsQuery, unread } from "./history";
import { useSharedMarks } from "./incident";
import { canBeLive, defaultRange, isRecorded, spanOf, stepOf } from "../../parts/range";
import { Toolbar } from "./Toolbar";

/** As many as are compared at once: more lie beyond what one question may ask. */
const COMPARED_MAX = 64;
const NONE: readonly Compared[] = [];

/** A GPU that is compared, and what is known of it. */
interface Compared {
  readonly gpu: Gpu;
  readonly uuid: string;
  readonly partition: string | null;
  readonly columns: readonly string[];
  readonly firstSeen: number | null;
}

/** Some GPUs beside each other: where they differ, and the courses of that over each other, a line for each GPU. */
export function ComparePage() {
  const { state } = useAddress(COMPARE);
  const named = state.gpus.slice(0, LINES_MAX);
  const details = useQueries({ queries: named.map((id) => gpuQuery(id, REFRESH_INTERVAL_MS)) });
  const isGroup = named.length === 0 && `${state.host}${state.where}${state.search}` !== "";
  const group = useQuery({
    ...gpuListQuery({ search: state.search, judgement: "", host: state.host, where: state.where, sort: "", limit: COMPARED_MAX, offset: 0, labels: "uuid,partition" }),
    enabled: isGroup,
  });
  const list = group.data?.gpus;
  const ofGroup = useMemo(() => list?.map(comparedOf) ?? NONE, [list]);
  if (named.length === 0 && !isGroup) {
    return (
      <Empty title="No GPUs to compare">
        <p>Pick some on the heat map: Shift and click, or Space. The pages of hosts and jobs compare theirs.</p>
        <Link to={FLEET.to({ view: "map" })} className="button mt-4">
          To the heat map
        </Link>
      </Empty>
    );
  }
  const failed = (isGroup ? [group] : details).find(({ isError, data }) => isError && data === undefined);
  if (failed?.error) return <Failed what={isGroup ? "These GPUs" : "One of these GPUs"} error={failed.error} retry={() => void failed.refetch()} />;
  const known = isGroup ? ofGroup : details.flatMap(({ data }) => (data === undefined ? [] : detailOf(data)));
  if (isGroup ? group.data === undefined : known.length < named.length) return <div role="status" aria-label="Loading the GPUs" className="waiting h-64" />;
  if (known.length === 0) return <Empty title="No GPU fits">None is of this host or passes these tests now.</Empty>;
  return <Comparison known={known} total={isGroup ? (group.data?.total ?? 0) : state.gpus.length} of={isGroup ? [group] : details} />;
}

function comparedOf(gpu: Gpu): Compared {
  const { uuid, partition } = gpu.labels ?? {};
  return { gpu, uuid: uuid ?? gpu.id, partition: partition ?? null, columns: Object.keys(gpu.metrics ?? {}), firstSeen: null };
}

function detailOf({ gpu, labels, latest, first_seen: first }: GpuDetail): Compared {
  const { uuid, partition } = labels;
  return { gpu, uuid: uuid ?? gpu.id, partition: partition ?? null, columns: Object.keys(latest), firstSeen: parseInstant(first) };
}

interface ComparisonProps {
  readonly known: readonly Compared[];
  /** How many were asked for. */
  readonly total: number;
  /** The answers that these come from. */
  readonly of: readonly Renewed[];
}

function Comparison({ known, total, of }: ComparisonProps) {
  const { state, change, pathTo } = useAddress(COMPARE);
  const now = useNow(MINUTE);
  const [isAll, setIsAll] = useState(false);
  const catalogue = useQuery(catalogueQuery());
  const ids = useMemo(() => known.map(({ gpu }) => gpu.id), [known]);
  const columns = [...new Set(known.flatMap((each) => each.columns))].sort().join(",");
  const compared = useMemo(() => comparedRows(catalogue.data?.metrics ?? [], columns.split(",")), [catalogue.data, columns]);
  const rows = useMemo(() => compared.filter(({ column }) => columns.split(",").includes(column)), [compared, columns]);
  const seen = Math.max(...known.map(({ gpu }) => parseInstant(gpu.last_seen) ?? 0));
  const all = { start: Math.min(...known.map(({ firstSeen }) => firstSeen ?? seen - HOUR)), end: seen };
  const recorded = isRecorded(seen, now);
  const range = state.range ?? defaultRange(recorded, all);
  const view = { range, anchor: recorded ? seen : null, all, live: canBeLive(range) && !recorded };
  const isCounter = useCallback((column: string) => rows.some((row) => row.column === column && row.instrument === "counter"), [rows]);
  const isAlone = ids.length === 1;
  const sums = useQuery(sumsQuery({ ...view, gpus: ids, columns: isAlone ? [] : compared.map(({ column }) => column) }, isCounter));
  const { differing, alike } = useMemo(() => differencesOf(compared, sums.data?.sums ?? []), [compared, sums.data]);
  const lines = useMemo(() => furthest(ids, differing, LINES_MAX), [ids, differing]);
  // Until it is known what differs there is nothing to draw; if it cannot be known, everything is drawn.
  const isKnown = sums.data !== undefined;
  const isWhole = isAlone || (sums.isError && !isKnown);
  const asked = useMemo(() => {
    if (isWhole) return first(rows, rows, state.metric);
    const drawn = [...differing.map(({ row }) => row), ...(isAll ? alike : [])].filter((row) => rows.includes(row));
    return isKnown ? first(drawn, rows, state.metric) : [];
  }, [isWhole, isKnown, rows, differing, isAll, alike, state.metric]);
  const history = useQuery(historyQuery({ ...view, gpus: lines, columns: asked.map(({ column }) => column), aggregates: [state.aggregate], polling: true }));
  const marks = useSharedMarks(lines);
  const frames = useMemo(() => (history.data === undefined ? new Map<string, typeof EMPTY>() : framesOf(history.data.answer, state.aggregate)), [history.data, state.aggregate]);
  const span = history.data?.span ?? spanOf(range, view.anchor ?? now, all);
  const shown = lines.flatMap((id) => known.find(({ gpu }) => gpu.id === id) ?? []);
  const isOneHost = known.every(({ gpu }) => gpu.hostname === known[0]?.gpu.hostname && gpu.index !== null);
  const names = new Map(known.map(({ gpu }) => [gpu.id, isOneHost && state.gpus.length === 0 ? `GPU ${gpu.index}` : gpu.name]));
  const nameOf = (id: string) => names.get(id) ?? id;
  const partial = unread(history.data?.answer.partial ?? [], sums.data?.partial ?? null);
  // The legend of a picture names the GPUs.
  const subject = [...(isOneHost ? [known[0]?.gpu.hostname ?? "GPUs"] : ["GPUs compared"]), ...new Set(shown.flatMap(({ gpu }) => gpu.model ?? []))].join(", ");
  return (
    <div data-testid="compare">
      <Head known={known} total={total} remove={(id) => change({ gpus: ids.filter((other) => other !== id) })} />
      <NotRenewed of={[...of, sums, history]} />
      <Toolbar range={range} aggregate={state.aggregate} span={span} onRange={(next) => change({ range: next })} onAggregate={(aggregate) => change({ aggregate })} />
      {partial.length > 0 && (
        <p role="note" aria-label="Incomplete" className="mb-3 text-[13px] text-warn">
          Not everything could be read: {partial.join("; ")}
        </p>
      )}
      {!isAlone && isKnown && <Differences differing={differing} gpus={shown.map(({ gpu }) => gpu)} nameOf={nameOf} all={known.map(({ gpu }) => gpu)} />}
      {!isAlone && sums.isPending && rows.length > 0 && <div role="status" aria-label="Loading the differences" className="waiting h-40" />}
      <MarkLegend marks={marks} now={now} />
      {history.isError && history.data === undefined ? (
        <Failed what="The course of the values" error={history.error} retry={() => void history.refetch()} />
      ) : (
        <div className="mt-3 grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
          {asked.map((row) => (
            <TimeChart
              key={row.column}
              panel={panelOf(row, lines)}
              nameOf={nameOf}
              subject={subject}
              actionsOf={() => chartActions({
                metrics: [row.column],
                gpus: lines,
                stepMs: stepOf(span),
                aggregates: [state.aggregate],
                identities: shown.map(({ uuid, partition }) => ({ uuid, partition })),
                span,
                title: metricTitle(row.column),
                catalogue: catalogue.data?.metrics ?? [],
              })}
              marked={false}
              marks={marks}
              frame={frames.get(row.column) ?? EMPTY}
              span={span}
              now={now}
              // A step of its own in the history: going back leaves the range again.
              onSelect={(start, end) => goTo(pathTo({ range: { kind: "custom", start, end } }))}
            />
          ))}
        </div>
      )}
      {alike.length > 0 && (
        <p className="mt-3 flex flex-wrap items-center gap-x-3 gap-y-1 text-xs text-muted">
          <span className="min-w-0">Alike ({alike.length}): {alike.map(({ column }) => metricTitle(column)).join(" · ")}</span>
          <button type="button" className="button quiet" aria-pressed={isAll} onClick={() => setIsAll(!isAll)}>
            {isAll ? "Without their charts" : "Draw them too"}
          </button>
        </p>
      )}
    </div>
  );
}

/** Who is compared, and what of them is not the same by itself. */
function Head({ known, total, remove }: { readonly known: readonly Compared[]; readonly total: number; readonly remove: (id: string) => void }) {
  const { state } = useAddress(COMPARE);
  const simulated = known.filter(({ gpu }) => gpu.simulated).length;
  const isNamed = state.gpus.length > 0;
  const groupWords = [state.host, state.where === "" ? "" : whereWords(state.where), state.search === "" ? "" : `“${state.search}”`].filter((part) => part !== "").join(", ");
  return (
    <>
      {simulated > 0 && <SimulatedBanner>{simulated === known.length ? "These GPUs are" : "Some of these GPUs are"} simulated: their values were made up by gpuvitals, not measured.</SimulatedBanner>}
      <h1 className="text-lg font-semibold tracking-tight">
        {known.length === 1 ? "1 GPU" : `${known.length} GPUs`}
        {isNamed ? "" : ` of ${groupWords}`} compared
      </h1>
      {isNamed && (
        <ul className="mt-1 flex flex-wrap gap-x-4 gap-y-1 text-[13px]">
          {known.map(({ gpu }, place) => (
            <li key={gpu.id} className="flex items-center gap-1.5">
              <span aria-hidden className="h-0.5 w-3 rounded-full" style={{ background: `var(--line-${place + 1})` }} />
              <Link to={GPU.to({ id: gpu.id })} className="rounded hover:underline">
                {gpu.name}
              </Link>
              {known.length > 1 && (
                <button type="button" className="grid size-6 place-items-center text-faint hover:text-fg" aria-label={`Without ${gpu.name}`} onClick={() => remove(gpu.id)}>
                  ×
                </button>
              )}
            </li>
          ))}
        </ul>
      )}
      {total > known.length && <p className="mt-1 text-xs text-muted">{isNamed ? `The first ${LINES_MAX} of ${total}: a chart tells no more apart.` : `The first ${known.length} of ${total.toLocaleString("en")}.`}</p>}
      {!isNamed && known.length > LINES_MAX && <p className="mt-1 text-xs text-muted">Shown are the {LINES_MAX} that differ the most.</p>}
      {OWN.map(([name, of]) => {
        const words = kindsOf(known, of);
        return words !== "" && <p key={name} className="num mt-1 text-[13px] text-warn">{name}: {words}</p>;
      })}
    </>
  );
}

const OWN: readonly (readonly [string, (gpu: Gpu) => string | null])[] = [
  ["Models differ", (gpu) => gpu.model],
  ["Drivers differ", (gpu) => gpu.driver_version],
];

/** `535.1 (7), 550.2 (1)`; empty: all are the same. */
function kindsOf(known: readonly Compared[], of: (gpu: Gpu) => string | null): string {
  const counts = new Map<string, number>();
  for (const { gpu } of known) counts.set(of(gpu) ?? "unknown", (counts.get(of(gpu) ?? "unknown") ?? 0) + 1);
  return counts.size < 2 ? "" : [...counts].map(([name, count]) => `${name} (${count})`).join(", ");
}

/** What is compared of GPUs with these columns. Their energy is known by their power, too. */
function comparedRows(catalogue: readonly CatalogueRow[], columns: readonly string[]): CatalogueRow[] {
  const isKnown = columns.includes(POWER) && catalogue.some(({ column }) => column === ENERGY);
  return rowsOf(catalogue, isKnown ? [...columns, ENERGY] : columns).filter((row) => isDrawn(row) && !isLimit(row));
}

/** The row that the address names stands first, also where the GPUs are alike in it. */
function first(drawn: readonly CatalogueRow[], rows: readonly CatalogueRow[], metric: string): CatalogueRow[] {
  return [...rows.filter((row) => row.column === metric), ...drawn.filter((row) => row.column !== metric)];
}

const panels = new WeakMap<CatalogueRow, Panel>();

/** A chart of one metric with a line for each GPU. The same object as long as both are: the plot is built anew for another. */
function panelOf(row: CatalogueRow, gpus: readonly string[]): Panel {
  const held = panels.get(row);
  if (held !== undefined && held.columns.join(",") === gpus.join(",")) return held;
  const title = metricTitle(row.column);
  const group = groupTitle(row.group);
  const made = { id: row.column, title: title === group ? title : `${capital(group)} · ${title}`, unit: row.unit, columns: gpus };
  panels.set(row, made);
  return made;
}
