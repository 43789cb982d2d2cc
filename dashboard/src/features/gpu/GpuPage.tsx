import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ApiError } from "../../api/client";
import { ALL_FINDINGS, findingsQuery, type Finding } from "../../api/findings";
import { catalogueQuery, gpuQuery, stateOf } from "../../api/queries";
import { EMPTY, extend, frameOf } from "../../charts/frame";
import { isDrawn, rowsOf, type Panel } from "../../charts/panels";
import type { Behind } from "../../charts/plot";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { FLEET, GPU, type GpuState } from "../../parts/addresses";
import { useAddress } from "../../shared/address";
import { goTo, Link } from "../../shared/location";
import { useShortcuts } from "../../shared/shortcuts";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { formatAge, formatInstant, parseInstant, SECOND, useNow } from "../../shared/time";
import { SimulatedBanner } from "../../parts/gpuLook";
import { Charts } from "./Charts";
import { findingDoubts } from "../../parts/findings/doubts";
import { chartActions } from "./exports";
import { GpuFindings } from "./GpuFindings";
import { GpuHeader } from "./GpuHeader";
import { GpuOutlook } from "./GpuOutlook";
import { aggregatesOf, historyQuery } from "./history";
import { lastSeenOf, latestOf } from "./latest";
import { LatestTable } from "./LatestTable";
import { useMarks } from "./marks";
import { useGpuOutlook } from "./outlook";
import { usePeers } from "./peers";
import { canBeLive, defaultRange, isRecorded, spanOf, stepOf } from "../../parts/range";
import { useStream } from "./stream";
import { Tiles } from "./Tiles";
import { Toolbar } from "./Toolbar";
import { WhySlow } from "./WhySlow";

const NONE: readonly Finding[] = [];

/** One GPU: what is wrong with it, who it is, its latest values, and their course, drawn from the catalogue. */
export function GpuPage({ id }: { readonly id: string }) {
  const { state, change, pathTo } = useAddress(GPU);
  const view = useGpuView(id, state);
  useShortcuts({ l: () => view.liveAllowed && change({ live: !view.live }) });

  const { detail, history, now } = view;
  if (detail.data === undefined) {
    if (!detail.isError) return <Waiting />;
    return isMissing(detail.error) ? <Missing id={id} /> : <Failed what="This GPU" error={detail.error} retry={() => void detail.refetch()} />;
  }
  const gpu = detail.data.gpu;
  return (
    <div data-testid="gpu" data-last-update={view.lastSeen ?? ""} data-live={view.stream.status}>
      {gpu.simulated && <SimulatedBanner>This GPU is simulated: its values were made up by gpuvitals, not measured.</SimulatedBanner>}
      <GpuHeader gpu={gpu} labels={detail.data.labels} state={stateOf(gpu)} lastSeen={view.lastSeen} now={now} />
      {view.recorded && view.lastSeen !== null && (
        <p role="note" aria-label="Age of the data" className="mt-2 text-[13px] text-warn">
          Last seen {formatInstant(view.lastSeen, now)} ({formatAge(view.lastSeen, now)}). Ranges end there, not now.
        </p>
      )}
      <NotRenewed of={[detail, history]} />
      <GpuFindings findings={view.findings} index={gpu.index} now={now} doubts={findingDoubts(view.judged, now)} />
      <GpuOutlook {...view.outlook} now={now} />
      <Tiles latest={view.latest} memoryMb={gpu.memory_mb ?? null} />
      <Toolbar
        range={view.range}
        aggregate={state.aggregate}
        live={{ isOn: view.live, isAllowed: view.liveAllowed, status: view.stream.status, onChange: (live) => change({ live }) }}
        span={view.span}
        onRange={(range) => change({ range })}
        onAggregate={(aggregate) => change({ aggregate })}
      >
        <button
          type="button"
          className={`button ${state.peers ? "" : "text-muted!"}`}
          aria-pressed={state.peers}
          title="Dashed: the median of the GPUs of this host with this model"
          onClick={() => change({ peers: !state.peers })}
        >
          Peers{view.peers === null ? "" : ` (${view.peers.count})`}
        </button>
        <button type="button" className="button" aria-pressed={state.why} title="Of the range that the charts show; drag over a chart to choose one" onClick={() => change({ why: !state.why })}>
          Why was it slow?
        </button>
      </Toolbar>
      {state.why && <WhySlow gpu={gpu.id} span={view.span} now={now} onClose={() => change({ why: false })} />}
      <div className="grid items-start gap-4 xl:grid-cols-[minmax(0,1fr)_21rem]">
        <div className="min-w-0" aria-busy={history.isFetching}>
          {history.isError && history.data === undefined ? (
            <Failed what="The course of the values" error={history.error} retry={() => void history.refetch()} />
          ) : !view.rows.some(isDrawn) ? (
            <Empty title="No values yet">This GPU is known, but none of its metrics has been read.</Empty>
          ) : (
            <Charts
              rows={view.rows}
              frame={view.frame}
              behind={view.behind}
              marks={view.marks}
              subject={gpu.id}
              actionsOf={view.actionsOf}
              span={view.span}
              now={now}
              loading={history.data === undefined}
              partial={view.partial}
              evidence={view.evidence}
              // A step of its own in the history: going back leaves the range again.
              onSelect={(start, end) => goTo(pathTo({ range: { kind: "custom", start, end } }))}
            />
          )}
        </div>
        <LatestTable rows={view.rows} latest={view.latest} />
      </div>
    </div>
  );
}

/** Everything the page shows, from the address, the server and the stream. */
function useGpuView(id: string, state: GpuState) {
  const now = useNow(SECOND);
  const detail = useQuery(gpuQuery(id, REFRESH_INTERVAL_MS));
  const catalogue = useQuery(catalogueQuery());
  // Rows carry the id; the address may hold another name of the GPU.
  const key = detail.data?.gpu.id ?? id;
  const said = lastSeenOf(detail.data, []);
  const recorded = isRecorded(said, now);
  const first = parseInstant(detail.data?.first_seen);
  const all = first === null || said === null ? null : { start: first, end: said };
  const range = state.range ?? defaultRange(recorded, all);
  const liveAllowed = canBeLive(range);
  const live = liveAllowed && (state.live ?? (said !== null && !recorded));
  const stream = useStream(key, live && detail.data !== undefined);

  const wrong = useQuery({ ...findingsQuery({ ...ALL_FINDINGS, gpus: key }), enabled: detail.data !== undefined });
  const findings = wrong.data?.findings ?? NONE;

  const columns = Object.keys(detail.data?.latest ?? {}).sort().join(",");
  const rows = useMemo(
    () => rowsOf(catalogue.data?.metrics ?? [], columns === "" ? [] : columns.split(",")),
    [catalogue.data, columns],
  );
  const drawnRows = useMemo(() => rows.filter(isDrawn), [rows]);
  const drawn = useMemo(() => drawnRows.map((row) => row.column), [drawnRows]);
  const anchor = recorded && !live ? said : null;
  const history = useQuery({
    ...historyQuery({
      gpus: [key],
      columns: drawn,
      range,
      aggregates: aggregatesOf(state.aggregate),
      anchor,
      all,
      live,
      polling: live && stream.status !== "live",
    }),
  });

  const outlook = useGpuOutlook(key, now, history.isFetched);
  const evidence = useMemo(
    () => new Set([...findings.flatMap((finding) => finding.evidence.map((each) => each.quantity)), ...outlook.trends.map((trend) => trend.metric)]),
    [findings, outlook],
  );

  const span = live ? spanOf(range, now, null) : (history.data?.span ?? spanOf(range, anchor ?? now, all));
  const { start } = span;
  const answer = history.data?.answer;
  const frames = useMemo(() => {
    const of = (aggregate: string) => {
      const base = answer === undefined ? EMPTY : frameOf(answer, key, aggregate);
      return live ? extend(base, stream.samples, start, aggregate) : base;
    };
    const frame = of(state.aggregate);
    return { frame, band: state.aggregate === "mean" ? { low: of("min"), high: of("max") } : null };
  }, [answer, key, live, stream.samples, start, state.aggregate]);
  const peers = usePeers(detail.data?.gpu, state.peers, drawnRows, { range, anchor, all, live });
  const behind = useMemo((): Behind => ({ band: frames.band, peers: state.peers ? (peers?.frame ?? EMPTY) : null }), [frames.band, peers, state.peers]);
  // A short spell of throttling does not show in the mean of its step.
  const marks = useMarks({ gpu: key, range, anchor, all, live }, detail.data !== undefined, frames.band?.high ?? frames.frame, drawnRows, findings);
  const labels = detail.data?.labels;
  const actionsOf = (panel: Panel) => {
    const ask = { metrics: panel.columns, gpus: [key], stepMs: stepOf(span), aggregates: aggregatesOf(state.aggregate) };
    const identity = { uuid: typeof labels?.uuid === "string" ? labels.uuid : key, partition: typeof labels?.partition === "string" ? labels.partition : null };
    return chartActions({ ...ask, identities: [identity], span, title: panel.title, catalogue: catalogue.data?.metrics ?? [] });
  };
  const partial = [...new Set([...(history.data?.answer.partial ?? []), ...stream.partial])];
  const latest = useMemo(() => latestOf(detail.data, stream.samples), [detail.data, stream.samples]);
  return {
    now,
    detail,
    history,
    stream,
    recorded,
    range,
    live,
    liveAllowed,
    rows,
    findings,
    judged: wrong,
    evidence,
    outlook,
    frame: frames.frame,
    behind,
    marks,
    peers,
    actionsOf,
    span,
    partial,
    latest,
    lastSeen: lastSeenOf(detail.data, stream.samples),
  };
}

function isMissing(error: Error): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.status === 404;
}

function Missing({ id }: { readonly id: string }) {
  return (
    <Empty title="No such GPU">
      <p>
        Nothing has been recorded under <code className="font-mono break-all">{id}</code>.
      </p>
      <Link to={FLEET.path} className="button mt-4">
        To the list of GPUs
      </Link>
    </Empty>
  );
}

function Waiting() {
  return (
    <div role="status" aria-label="Loading the GPU" className="space-y-4">
      <div className="waiting h-14" />
      <div className="grid grid-cols-2 gap-3 md:grid-cols-4">
        {["a", "b", "c", "d"].map((key) => (
          <div key={key} className="waiting h-20" />
        ))}
      </div>
      <div className="waiting h-64" />
    </div>
  );
}
