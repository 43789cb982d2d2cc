import { useQueries, useQuery, type UseQueryResult } from "@tanstack/react-query";
import { useMemo } from "react";
import type { GpuDetail } from "../../api/client";
import { catalogueQuery, gpuQuery } from "../../api/queries";
import { EMPTY, framesOf } from "../../charts/frame";
import { groupTitle, isDrawn, LINES_MAX, rowsOf, type CatalogueRow, type Panel } from "../../charts/panels";
import { TimeChart } from "../../charts/TimeChart";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { capital, metricTitle } from "../../shared/format";
import { COMPARE, FLEET, GPU } from "../../parts/addresses";
import { useAddress } from "../../shared/address";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { parseInstant, SECOND, useNow } from "../../shared/time";
import { SimulatedBanner } from "../../parts/gpuLook";
import { chartActions } from "./exports";
import { historyQuery } from "./history";
import { canBeLive, defaultRange, isRecorded, spanOf, stepOf } from "../../parts/range";
import { Toolbar } from "./Toolbar";

/** Some GPUs over each other: a chart for each metric, a line for each GPU. */
export function ComparePage() {
  const { state } = useAddress(COMPARE);
  const gpus = state.gpus.slice(0, LINES_MAX);
  const details = useQueries({ queries: gpus.map((id) => gpuQuery(id, REFRESH_INTERVAL_MS)) });
  const known = details.flatMap((detail) => detail.data ?? []);
  const failed = details.find((detail) => detail.isError && detail.data === undefined);
  if (gpus.length === 0) {
    return (
      <Empty title="No GPUs to compare">
        <p>Pick some on the heat map: Shift and click, or Space.</p>
        <Link to={FLEET.to({ view: "map" })} className="button mt-4">
          To the heat map
        </Link>
      </Empty>
    );
  }
  if (failed?.error) return <Failed what="One of these GPUs" error={failed.error} retry={() => void failed.refetch()} />;
  if (known.length < gpus.length) return <div role="status" aria-label="Loading the GPUs" className="waiting h-64" />;
  return <Comparison known={known} details={details} />;
}

interface ComparisonProps {
  readonly known: readonly GpuDetail[];
  /** The answers that these come from. */
  readonly details: readonly UseQueryResult<GpuDetail>[];
}

function Comparison({ known, details }: ComparisonProps) {
  const { state, change, pathTo } = useAddress(COMPARE);
  const now = useNow(SECOND);
  const catalogue = useQuery(catalogueQuery());
  const ids = known.map((detail) => detail.gpu.id);
  const columns = [...new Set(known.flatMap((detail) => Object.keys(detail.latest)))].sort().join(",");
  const rows = useMemo(() => rowsOf(catalogue.data?.metrics ?? [], columns.split(",")).filter(isDrawn), [catalogue.data, columns]);
  const seen = Math.max(...known.map((detail) => parseInstant(detail.gpu.last_seen) ?? 0));
  const all = { start: Math.min(...known.map((detail) => parseInstant(detail.first_seen) ?? seen)), end: seen };
  const recorded = isRecorded(seen, now);
  const range = state.range ?? defaultRange(recorded, all);
  const live = canBeLive(range) && !recorded;
  const anchor = recorded ? seen : null;
  const history = useQuery(historyQuery({ gpus: ids, columns: rows.map((row) => row.column), range, aggregates: [state.aggregate], anchor, all, live, polling: true }));
  const frames = useMemo(() => (history.data === undefined ? new Map<string, typeof EMPTY>() : framesOf(history.data.answer, state.aggregate)), [history.data, state.aggregate]);
  const span = history.data?.span ?? spanOf(range, anchor ?? now, all);
  const names = new Map(known.map((detail) => [detail.gpu.id, detail.gpu.name]));
  const simulated = known.filter((detail) => detail.gpu.simulated).length;
  const partial = history.data?.answer.partial ?? [];
  return (
    <div data-testid="compare">
      {simulated > 0 && <SimulatedBanner>{simulated === known.length ? "These GPUs are" : "Some of these GPUs are"} simulated: their values were made up by gpuvitals, not measured.</SimulatedBanner>}
      <h1 className="text-lg font-semibold tracking-tight">{ids.length === 1 ? "1 GPU" : `${ids.length} GPUs`} compared</h1>
      <ul className="mt-1 flex flex-wrap gap-x-4 gap-y-1 text-[13px]">
        {known.map(({ gpu }, place) => (
          <li key={gpu.id} className="flex items-center gap-1.5">
            <span aria-hidden className="h-0.5 w-3 rounded-full" style={{ background: `var(--line-${place + 1})` }} />
            <Link to={GPU.to({ id: gpu.id })} className="rounded hover:underline">
              {gpu.name}
            </Link>
            {ids.length > 1 && (
              <button type="button" className="text-faint hover:text-fg" aria-label={`Without ${gpu.name}`} onClick={() => change({ gpus: ids.filter((id) => id !== gpu.id) })}>
                ×
              </button>
            )}
          </li>
        ))}
      </ul>
      <NotRenewed of={[...details, history]} />
      {state.gpus.length > LINES_MAX && <p className="mt-1 text-xs text-muted">The first {LINES_MAX} of {state.gpus.length}: a chart tells no more apart.</p>}
      <Toolbar range={range} aggregate={state.aggregate} span={span} onRange={(next) => change({ range: next })} onAggregate={(aggregate) => change({ aggregate })} />
      {partial.length > 0 && (
        <p role="note" aria-label="Incomplete" className="mb-3 text-[13px] text-warn">
          Not everything could be read: {partial.join("; ")}
        </p>
      )}
      {history.isError && history.data === undefined ? (
        <Failed what="The course of the values" error={history.error} retry={() => void history.refetch()} />
      ) : (
        <div className="grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
          {first(rows, state.metric).map((row) => (
            <TimeChart
              key={row.column}
              panel={panelOf(row, ids)}
              nameOf={(id) => names.get(id) ?? id}
              subject={known.map((detail) => detail.gpu.name).join(", ")}
              actionsOf={() => chartActions({
                metrics: [row.column],
                gpus: ids,
                stepMs: stepOf(span),
                aggregates: [state.aggregate],
                identities: known.map(({ gpu, labels }) => ({ uuid: labels.uuid ?? gpu.id, partition: labels.partition })),
                span,
                title: metricTitle(row.column),
                catalogue: catalogue.data?.metrics ?? [],
              })}
              marked={false}
              frame={frames.get(row.column) ?? EMPTY}
              span={span}
              now={now}
              // A step of its own in the history: going back leaves the range again.
              onSelect={(start, end) => goTo(pathTo({ range: { kind: "custom", start, end } }))}
            />
          ))}
        </div>
      )}
    </div>
  );
}

function first(rows: readonly CatalogueRow[], metric: string): CatalogueRow[] {
  return [...rows.filter((row) => row.column === metric), ...rows.filter((row) => row.column !== metric)];
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
