import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { ApiError } from "../../api/client";
import { ALL_FINDINGS, findingsQuery, type Finding } from "../../api/findings";
import { verdictOf } from "../../api/judgement";
import type { Incident } from "../../api/incidents";
import { catalogueQuery, gpuQuery, type Span } from "../../api/queries";
import { EMPTY, extend, frameOf } from "../../charts/frame";
import { isCode, isDrawn, rowsOf, type Panel } from "../../charts/panels";
import type { Behind } from "../../charts/plot";
import { tellsOfThrottling } from "../../charts/marks";
import { movementOf } from "../../charts/still";
import { REFRESH_INTERVAL_MS } from "../../shared/config";
import { FLEET, GPU, type GpuState } from "../../parts/addresses";
import { useAddress } from "../../shared/address";
import { ENERGY, POWER } from "../../shared/headline";
import { goTo, Link } from "../../shared/location";
import { useShortcuts } from "../../shared/shortcuts";
import { Empty, Failed, NotRenewed } from "../../shared/states";
import { useInstant } from "../../shared/instant";
import { MINUTE, parseInstant, SECOND, useNow } from "../../shared/time";
import { LastSeen, SimulatedBanner } from "../../parts/gpuLook";
import { Charts } from "./Charts";
import { useFindingDoubts } from "../../parts/findings/doubts";
import { chartActions } from "./exports";
import { GpuFindings } from "./GpuFindings";
import { GpuHeader } from "./GpuHeader";
import { GpuOutlook } from "./GpuOutlook";
import { aggregatesOf, energyQuery, historyQuery, unread } from "./history";
import { HolderStrips } from "./HolderStrips";
import { incidentMarks, useIncident, windowOf } from "./incident";
import { IncidentNotice } from "./IncidentNotice";
import { lastSeenOf, latestOf } from "./latest";
import { LatestTable } from "./LatestTable";
import { useMarks } from "./marks";
import { useGpuOutlook } from "./outlook";
import { usePeers } from "./peers";
import { canBeLive, defaultRange, isRecorded, spanOf, stepOf, type Range } from "../../parts/range";
import { usePoints, useStream } from "./stream";
import { Tiles } from "./Tiles";
import { Toolbar } from "./Toolbar";
import { WhySlow } from "./WhySlow";

const NONE: readonly Finding[] = [];
const NO_INCIDENTS: readonly Incident[] = [];

/** The range that was chosen on a chart. A step of its own in the history: going back leaves it again. */
function chooseRange(start: number, end: number): void {
  const { pathname, search } = window.location;
  goTo(pathname + GPU.search({ ...GPU.read(search), range: { kind: "custom", start, end } }));
}

/** One GPU: who it is, its latest values, what is wrong with it, and the course of its values, drawn from the catalogue. */
export function GpuPage({ id }: { readonly id: string }) {
  const { state, change } = useAddress(GPU);
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
      <GpuHeader gpu={gpu} labels={detail.data.labels} verdict={verdictOf(gpu)} lastSeen={view.lastSeen} />
      {view.recorded && view.lastSeen !== null && (
        <p role="note" aria-label="Age of the data" className="mt-2 text-[13px] text-warn">
          Last seen <LastSeen at={view.lastSeen} />. Ranges end there, not now.
        </p>
      )}
      <NotRenewed of={[detail, history]} />
      <Tiles latest={view.latest} memoryMb={gpu.memory_mb ?? null} now={now} />
      <GpuFindings findings={view.findings} gpu={gpu} doubts={view.doubts} />
      <GpuOutlook {...view.outlook} now={now} />
      <Toolbar
        range={view.range}
        aggregate={state.aggregate}
        live={{ isOn: view.live, isAllowed: view.liveAllowed, status: view.stream.status, onChange: (live) => change({ live }) }}
        span={view.span}
        onRange={(range) => change({ range, incident: "" })}
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
          {state.incident !== "" && <IncidentNotice name={state.incident} shown={view.shown} back={GPU.to({ ...state, id, range: view.range, incident: "" })} />}
          <HolderStrips gpus={view.named} span={view.span} now={Math.floor(now / MINUTE) * MINUTE} isAsked={history.data !== undefined} isHere />
          {view.partial.length > 0 && (
            <p role="note" aria-label="Incomplete" className="mb-3 text-[13px] text-warn">
              Not everything could be read: {view.partial.join("; ")}
            </p>
          )}
          {history.isError && history.data === undefined ? (
            <Failed what="The course of the values" error={history.error} retry={() => void history.refetch()} />
          ) : view.rows.length === 0 ? (
            <Empty title="No values yet">This GPU is known, but none of its metrics has been read.</Empty>
          ) : history.data === undefined && view.hasLines ? (
            <WaitingCharts />
          ) : (
            <Charts
              rows={view.rows}
              movement={view.movement}
              frame={view.frame}
              behind={view.behind}
              marks={view.marks}
              subject={gpu.model === null ? gpu.name : `${gpu.name}, ${gpu.model}`}
              actionsOf={view.actionsOf}
              span={view.span}
              now={Math.floor(now / MINUTE) * MINUTE}
              energy={view.energy}
              evidence={view.evidence}
              onSelect={chooseRange}
            />
          )}
        </div>
        <LatestTable name={gpu.name} rows={view.rows} latest={view.latest} />
      </div>
    </div>
  );
}

/** Everything the page shows, from the address, the server and the stream. */
function useGpuView(id: string, state: GpuState) {
  const now = useNow(SECOND);
  const instant = useInstant();
  const detail = useQuery(gpuQuery(id, REFRESH_INTERVAL_MS));
  const catalogue = useQuery(catalogueQuery());
  // Rows carry the id; the address may hold another name of the GPU.
  const key = detail.data?.gpu.id ?? id;
  const said = lastSeenOf(detail.data, []);
  const recorded = isRecorded(said, now);
  const first = parseInstant(detail.data?.first_seen);
  const all = first === null || said === null ? null : { start: first, end: said };
  const incidents = detail.data?.incidents ?? NO_INCIDENTS;
  const incident = useMemo(() => incidents.find((each) => each.id === state.incident) ?? null, [incidents, state.incident]);
  const range = state.range ?? (incident === null ? null : windowOf(incident)) ?? defaultRange(recorded, all);
  const liveAllowed = canBeLive(range) && instant === null;
  const live = liveAllowed && (state.live ?? (said !== null && !recorded));
  const stream = useStream(key, live && detail.data !== undefined);

  const wrong = useQuery({ ...findingsQuery({ ...ALL_FINDINGS, gpus: key }), enabled: detail.data !== undefined });
  const findings = wrong.data?.findings ?? NONE;
  const doubts = useFindingDoubts(wrong);

  const columns = Object.keys(detail.data?.latest ?? {}).sort().join(",");
  const rows = useMemo(
    () => rowsOf(catalogue.data?.metrics ?? [], columns === "" ? [] : columns.split(",")),
    [catalogue.data, columns],
  );
  // What a counter of energy has come to says nothing: what it grew by stands in a line.
  const drawnRows = useMemo(() => rows.filter((row) => isDrawn(row) && row.column !== ENERGY), [rows]);
  // A short spell of throttling does not show in the last state of its step.
  const asked = useMemo(() => [...drawnRows, ...rows.filter((row) => isCode(row) && tellsOfThrottling(row))].map((row) => row.column), [drawnRows, rows]);
  const coded = useMemo(() => rows.filter((row) => isCode(row) && !tellsOfThrottling(row)).map((row) => row.column), [rows]);
  const kept = useMemo(() => [...asked, ...coded], [asked, coded]);
  const shown = useIncident(incident, key, kept);
  // All rows of a window say more than the steps of the store.
  const full = shown?.frame ?? null;
  const anchor = recorded && !live ? said : null;
  const seen = { gpus: [key], range, anchor, all, live, polling: live && stream.status !== "live" };
  const history = useQuery(historyQuery({ ...seen, columns: asked, aggregates: aggregatesOf(state.aggregate) }));
  const codes = useQuery(historyQuery({ ...seen, columns: coded, aggregates: ["last"] })).data?.answer;
  const energy = useQuery(energyQuery(seen, rows.some((row) => row.column === ENERGY || row.column === POWER))).data;

  const outlook = useGpuOutlook(key, now, history.isFetched);
  const evidence = useMemo(
    () => new Set([...findings.flatMap((finding) => finding.evidence.map((each) => each.quantity)), ...outlook.trends.map((trend) => trend.metric)]),
    [findings, outlook],
  );

  const { start, end } = live ? liveSpan(range, now) : (history.data?.span ?? spanOf(range, anchor ?? now, all));
  const span = useMemo(() => ({ start, end }), [start, end]);
  const answer = history.data?.answer;
  const points = usePoints(stream.samples, stepOf(span));
  const frames = useMemo(() => {
    if (full !== null) return { frame: full, codes: full, band: null };
    const of = (aggregate: string, from = answer) => {
      const base = from === undefined ? EMPTY : frameOf(from, key, aggregate);
      return live ? extend(base, points, start, aggregate) : base;
    };
    const frame = of(state.aggregate);
    return { frame, codes: of("last", codes), band: state.aggregate === "mean" ? { low: of("min"), high: of("max") } : null };
  }, [answer, codes, full, key, live, points, start, state.aggregate]);
  const movement = useMemo(() => movementOf(drawnRows, frames.band === null ? [frames.frame] : [frames.frame, frames.band.low, frames.band.high], evidence), [drawnRows, frames, evidence]);
  const withPeers = state.peers && full === null;
  const peers = usePeers(detail.data?.gpu, withPeers, drawnRows, { range, anchor, all, live });
  const behind = useMemo((): Behind => ({ band: frames.band, peers: withPeers ? (peers?.frame ?? EMPTY) : null }), [frames.band, peers, withPeers]);
  const { frame, codes: coding, band } = frames;
  const markFrames = useMemo(() => ({ highest: band?.high ?? frame, codes: coding }), [band, frame, coding]);
  const known = useMemo(() => ({ findings, incidents: incidentMarks(incidents, id, state) }), [findings, incidents, id, state]);
  const marks = useMarks({ gpu: key, range, anchor, all, live }, detail.data !== undefined, markFrames, rows, known);
  const labels = detail.data?.labels;
  const metrics = catalogue.data?.metrics;
  const actionsOf = useCallback(
    (panel: Panel) => {
      const ask = { metrics: panel.columns, gpus: [key], stepMs: stepOf(span), aggregates: aggregatesOf(state.aggregate) };
      const identity = { uuid: typeof labels?.uuid === "string" ? labels.uuid : key, partition: typeof labels?.partition === "string" ? labels.partition : null };
      return chartActions({ ...ask, identities: [identity], span, title: panel.title, catalogue: metrics ?? [] });
    },
    [key, labels, metrics, span, state.aggregate],
  );
  const name = detail.data?.gpu.name ?? key;
  const named = useMemo(() => [{ id: key, name }], [key, name]);
  const partial = unread([...new Set([...(history.data?.answer.partial ?? []), ...stream.partial])], energy?.partial ?? null);
  const latest = useMemo(() => latestOf(detail.data, stream.samples), [detail.data, stream.samples]);
  return {
    now,
    detail,
    history,
    named,
    stream,
    recorded,
    range,
    live,
    liveAllowed,
    rows,
    hasLines: asked.length > 0,
    movement,
    energy: energy?.groups.find(({ group }) => group === key),
    findings,
    doubts,
    evidence,
    outlook,
    frame: frames.frame,
    behind,
    marks,
    shown,
    peers,
    actionsOf,
    span,
    partial,
    latest,
    lastSeen: lastSeenOf(detail.data, stream.samples),
  };
}

/** The range up to now, moved on a step at a time: between two steps there is nothing to draw. */
function liveSpan(range: Range, now: number): Span {
  const step = stepOf(spanOf(range, now, null));
  return spanOf(range, Math.ceil(now / step) * step, null);
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

function WaitingCharts() {
  return (
    <div role="status" aria-label="Loading charts" className="grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
      {["a", "b", "c", "d"].map((key) => (
        <div key={key} className="waiting h-60" />
      ))}
    </div>
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
