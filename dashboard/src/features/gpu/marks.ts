import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, dataOf, isNotKept, type TelemetryEntry } from "../../api/client";
import type { Finding } from "../../api/findings";
import type { Frame } from "../../charts/frame";
import { codeChanges, throttleSpans, type EventMark, type IncidentMark, type Marks } from "../../charts/marks";
import type { CatalogueRow } from "../../charts/panels";
import { present } from "../../shared/instant";
import { metricTitle } from "../../shared/format";
import { MINUTE, parseInstant, SECOND } from "../../shared/time";
import type { PeersView } from "./history";
import { spanOf } from "../../parts/range";

/** As many as a chart can tell apart, and more. */
const EVENTS_MAX = 1000;

interface EventRows {
  readonly rows: readonly TelemetryEntry[];
  /** What of the range is missing, in words; empty: nothing. */
  readonly doubt: string;
}

type EventsView = Omit<PeersView, "gpus" | "columns"> & { readonly gpu: string };

/** The health events of a GPU in the range that the charts show. Charts without them are still charts: they may fail alone. */
function eventsQuery({ gpu, range, anchor, all, live }: EventsView) {
  return queryOptions({
    queryKey: ["events", gpu, range, anchor, live, range.kind === "all" ? all : null],
    queryFn: async ({ signal }): Promise<EventRows> => {
      const span = spanOf(range, anchor ?? present(), all);
      const query = { table: "gpu_health_events", start_time: new Date(span.start).toISOString(), end_time: new Date(span.end).toISOString(), limit: EVENTS_MAX };
      try {
        const { data, total, partial } = dataOf(await api.GET("/api/v1/gpus/{id}/telemetry", { params: { path: { id: gpu }, query }, signal }));
        const older = (total ?? data.length) > data.length ? [`these are the newest ${data.length.toLocaleString("en")} of ${(total ?? 0).toLocaleString("en")} rows`] : [];
        const doubts = [...older, ...(partial ?? [])];
        return { rows: data, doubt: doubts.length === 0 ? "" : `Events may be missing: ${doubts.join("; ")}` };
      } catch (error) {
        // A server that keeps no such rows has none to show.
        if (isNotKept(error)) return { rows: [], doubt: "" };
        throw error;
      }
    },
    refetchInterval: live ? MINUTE / 4 : false,
    placeholderData: keepPreviousData,
    gcTime: 30 * SECOND,
  });
}

/** The beginning of throttling: of that the charts have a band, which says more. */
const ONSET = "throttle";

/** Rows as marks, the oldest first. How bad an event is only the open finding knows that it belongs to. */
export function eventMarks(rows: readonly TelemetryEntry[], findings: readonly Finding[]): EventMark[] {
  const marks = rows.flatMap(({ timestamp, metrics }): EventMark[] => {
    const at = parseInstant(timestamp);
    const text = (name: string) => (typeof metrics[name] === "string" ? metrics[name] : "");
    const [kind, detail, finding] = [text("kind"), text("detail"), text("finding")];
    if (at === null || kind === ONSET) return [];
    // What the agent calls `xid` is a finding `xid` or `xid_nonfatal`.
    const open = findings.find(({ id, kind: its }) => (finding === "" ? its === kind || its.startsWith(`${kind}_`) : id === finding));
    const words = finding === "" ? detail || metricTitle(kind) : [metricTitle(kind), detail].filter((part) => part !== "").join(": ");
    return [{ at, severity: open?.severity ?? null, text: words }];
  });
  return marks.sort((a, b) => a.at - b.at);
}

interface MarkFrames {
  readonly highest: Frame;
  readonly codes: Frame;
}

/** What is known of a GPU beside its rows. */
interface KnownOfGpu {
  readonly findings: readonly Finding[];
  readonly incidents: readonly IncidentMark[];
}

/** What stands above the charts of a GPU: `highest` has the largest value of each step, `codes` the last code of each. */
export function useMarks(view: EventsView, isKnown: boolean, { highest, codes }: MarkFrames, rows: readonly CatalogueRow[], { findings, incidents }: KnownOfGpu): Marks {
  const { data, error } = useQuery({ ...eventsQuery(view), enabled: isKnown });
  const spans = useMemo(() => throttleSpans(highest, rows), [highest, rows]);
  const changes = useMemo(() => codeChanges(codes, rows, spans), [codes, rows, spans]);
  const events = useMemo(() => eventMarks(data?.rows ?? [], findings), [data, findings]);
  const doubt = error === null ? (data?.doubt ?? "") : `Events could not be read: ${error.message}`;
  return useMemo(() => ({ spans, events, changes, incidents, doubt }), [spans, events, changes, incidents, doubt]);
}
