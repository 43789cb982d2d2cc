import { queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { fetchIncidentRows, type Incident, type IncidentRows } from "../../api/incidents";
import type { Frame } from "../../charts/frame";
import type { IncidentMark } from "../../charts/marks";
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
  const marks = incidents.flatMap((incident): IncidentMark[] => {
    const at = parseInstant(incident.at);
    if (at === null) return [];
    const path = GPU.to({ ...state, id, range: null, incident: incident.id });
    return [{ at, severity: null, text: `Incident ${incident.id}: ${incident.detail || incident.kind}`, path }];
  });
  return marks.sort((a, b) => a.at - b.at);
}
