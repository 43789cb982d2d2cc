import { fetchText, type Schemas } from "./client";

// Incidents of jobs: what the flight recorders of its nodes have kept of one.

export type Incident = Schemas["IncidentNote"];

/** Values of a GPU around an incident, all that the recorder of its node took. */
export interface IncidentRows {
  /** The node that has sent them. */
  readonly node: string;
  readonly times: readonly number[];
  /** By column; null: not read at that time. */
  readonly values: Readonly<Record<string, readonly (number | null)[]>>;
}

/** The server's limit on the metrics of one question. */
const METRICS_MAX = 64;

/** What the gateway has of a GPU in the window of an incident. Many metrics are asked for in parts. */
export async function fetchIncidentRows(id: string, gpu: string, metrics: readonly string[], signal: AbortSignal): Promise<IncidentRows> {
  const parts: (readonly string[])[] = [];
  for (let at = 0; at < metrics.length; at += METRICS_MAX) parts.push(metrics.slice(at, at + METRICS_MAX));
  const answers = await Promise.all(parts.map((part) => fetchPart(id, gpu, part, signal)));
  // The same rows: the parts have the same times.
  return answers.reduce((whole, part) => ({ ...whole, values: { ...whole.values, ...part.values } }));
}

async function fetchPart(id: string, gpu: string, metrics: readonly string[], signal: AbortSignal): Promise<IncidentRows> {
  const question = new URLSearchParams({ gpu, metrics: metrics.join(",") });
  const text = await fetchText(`/api/v1/flight/incidents/${encodeURIComponent(id)}/rows?${question.toString()}`, signal, "application/json");
  return JSON.parse(text) as IncidentRows;
}
