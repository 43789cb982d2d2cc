import { queryOptions, useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { GpuDetail } from "../../api/client";
import { fetchIncidentRows, type Incident, type IncidentRows } from "../../api/incidents";
import { gpuQuery } from "../../api/queries";
import type { Frame } from "../../charts/frame";
import { NO_MARKS, type IncidentMark, type Marks } from "../../charts/marks";
import { GPU, type GpuState } from "../../parts/addresses";
import type { Range } from "../../parts/range";
import { MINUTE, parseInstant } from "../../shared/time";

/** Stands for the rows while no incident is looked at, or none of its rows are here. */
const NONE = "";

/** The rows of a window: they do not change once they are there. */
function rowsQuery(incident: Incident | null, gpu: string, columns: readonly string[]) {
  const id = incident?.has_rows === true ? incident.id : NONE;
  return queryOptions({
    queryKey: ["incident", id, gpu, columns],
    queryFn: ({ signal }) => fetchIncidentRows(id, gpu, columns, signal),
    enabled: id !== NONE && columns.length > 0,
    staleTime: Infinity,
    gcTime: MINUTE,
  });
}

/** What a page shows of an incident. */
export interface ShownIncident {
  readonly incident: Incident;
  /** Its rows; null: they are not here, or not yet. */
  readonly rows: IncidentRows | null;
  readonly frame: Frame | null;
  readonly error: Error | null;
}

/** The incident of a GPU that is looked at, with its rows; null: there is none. */
export function useIncident(incident: Incident | null, gpu: string, columns: readonly string[]): ShownIncident | null {
  const { data: rows = null, error } = useQuery(rowsQuery(incident, gpu, columns));
  const frame = useMemo(() => (rows === null ? null : frameOfRows(rows)), [rows]);
  return useMemo(() => (incident === null ? null : { incident, rows, frame, error }), [incident, rows, frame, error]);
}

/** The time that its nodes were asked for. */
export function windowOf({ start, end }: Incident): Range | null {
  const [from, to] = [parseInstant(start), parseInstant(end)];
  return from === null || to === null ? null : { kind: "custom", start: from, end: to };
}

/** Rows as the charts draw them: with a step that half of them are at most apart. */
export function frameOfRows({ times, values }: IncidentRows): Frame {
  const apart = times.slice(1).map((time, place) => time - (times[place] ?? time));
  apart.sort((a, b) => a - b);
  const stepMs = Math.max(1, apart[Math.floor(apart.length / 2)] ?? 1);
  return { stepMs, times, values: new Map(Object.entries(values)) };
}

/** Incidents as marks that open their window on the page of a GPU; what else that shows stays. */
export function incidentMarks(incidents: readonly Incident[], id: string, state: GpuState): IncidentMark[] {
  return marksOf(incidents.map((incident) => ({ incident, path: GPU.to({ ...state, id, range: null, incident: incident.id }) })));
}

/** An incident, and the way to its window. */
interface IncidentWay {
  readonly incident: Incident;
  readonly path: string;
}

/** The oldest first. */
function marksOf(ways: readonly IncidentWay[]): IncidentMark[] {
  const marks = ways.flatMap(({ incident, path }): IncidentMark[] => {
    const at = parseInstant(incident.at);
    return at === null ? [] : [{ at, severity: null, text: `Incident ${incident.id}: ${incident.detail || incident.kind}`, path }];
  });
  return marks.sort((a, b) => a.at - b.at);
}

/** A GPU, and the incidents that it has a part in. */
export interface GpuIncidents {
  readonly gpu: string;
  readonly incidents: readonly Incident[];
}

/** Incidents of GPUs that share a chart, each once. It opens on the page of the GPU that failed first, or else of one that has rows of it. */
export function sharedMarks(known: readonly GpuIncidents[]): IncidentMark[] {
  const best = new Map<string, { readonly incident: Incident; readonly gpu: string; readonly rank: number }>();
  for (const { gpu, incidents } of known) {
    for (const incident of incidents) {
      const rank = incident.first?.gpu === gpu ? 2 : incident.has_rows ? 1 : 0;
      const held = best.get(incident.id);
      if (held === undefined || held.rank < rank) best.set(incident.id, { incident, gpu, rank });
    }
  }
  return marksOf([...best.values()].map(({ incident, gpu }) => ({ incident, path: GPU.to({ id: gpu, incident: incident.id }) })));
}

interface ReadDetail {
  readonly data: GpuDetail | undefined;
  readonly error: Error | null;
}

function collected(details: readonly ReadDetail[]) {
  const known = details.flatMap(({ data }): GpuIncidents[] => (data === undefined ? [] : [{ gpu: data.gpu.id, incidents: data.incidents ?? [] }]));
  return { known, failure: details.find(({ error }) => error !== null)?.error?.message ?? "" };
}

/** What stands above the charts that some GPUs share. Charts without it are still charts: it may fail alone. */
export function useSharedMarks(gpus: readonly string[]): Marks {
  const { known, failure } = useQueries({ queries: gpus.map((id) => gpuQuery(id, MINUTE)), combine: collected });
  return useMemo(() => ({ ...NO_MARKS, incidents: sharedMarks(known), doubt: failure === "" ? "" : `Incidents may be missing: ${failure}` }), [known, failure]);
}
