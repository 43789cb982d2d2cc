import createClient from "openapi-fetch";
import { API_BASE_URL, MQ_BASE_URL } from "../shared/config";
import { answered, unanswered } from "./reachability";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Gpu = Schemas["Gpu"];
export type GpuDetail = Schemas["GpuDetail"];
export type GpuList = Schemas["GpuList"];
export type HostList = Schemas["HostList"];
export type Metric = Schemas["CatalogueMetric"];
export type QueryAnswer = Schemas["QueryAnswer"];
export type Health = Schemas["HealthReport"];
export type Stats = Schemas["Stats"];
export type TelemetryEntry = Schemas["TelemetryEntry"];

/** What went wrong: nobody answered, the answer was no JSON, or the server refused. */
export type Failure =
  | { readonly kind: "network"; readonly cause: unknown }
  | { readonly kind: "json"; readonly status: number }
  | { readonly kind: "server"; readonly status: number; readonly code: string; readonly message: string };

export class ApiError extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(describe(failure));
    this.name = "ApiError";
    this.failure = failure;
  }
}

function describe(failure: Failure): string {
  switch (failure.kind) {
    case "network":
      return "The API did not answer.";
    case "json":
      return `The API answered with status ${failure.status} and something that is not JSON.`;
    case "server":
      return failure.message;
  }
}

/** Statuses with which a proxy says that nobody is behind it. */
const NOBODY_BEHIND = new Set([502, 503, 504]);
const ANSWER_WITHIN_MS = 15_000;
/** Header that says what of an answer could not be read. */
const PARTIAL = "x-partial";

/** The one place that fetches. It tells errors apart and keeps the page's view of whether the API can be reached. */
async function ask(request: Request): Promise<Response> {
  let response: Response;
  let text: string;
  try {
    const patience = AbortSignal.timeout(ANSWER_WITHIN_MS);
    response = await fetch(request, { signal: AbortSignal.any([request.signal, patience]) });
    text = await response.text();
  } catch (cause) {
    if (request.signal.aborted) throw cause;
    unanswered();
    throw new ApiError({ kind: "network", cause });
  }
  const body = parse(text);
  if (body === undefined) {
    if (NOBODY_BEHIND.has(response.status)) unanswered();
    else answered();
    throw new ApiError({ kind: "json", status: response.status });
  }
  answered();
  // An unhealthy gateway says so with 503 and a whole health report: that is an answer, not a refusal.
  if (!response.ok && !isHealthReport(body)) throw new ApiError(refusal(response.status, body));
  const headers = new Headers({ "content-type": "application/json" });
  const partial = response.headers.get(PARTIAL);
  if (partial !== null) headers.set(PARTIAL, partial);
  return new Response(text, { status: 200, headers });
}

function isHealthReport(body: unknown): boolean {
  return typeof body === "object" && body !== null && "service" in body && "status" in body;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function refusal(status: number, body: unknown): Failure {
  const parts = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const words = (name: string) => (typeof parts[name] === "string" ? parts[name] : "");
  const message = words("message") || words("error") || `The API refused with status ${status}.`;
  return { kind: "server", status, code: words("code"), message };
}

/** An answer of the gateway that is no JSON. */
export async function fetchText(path: string, signal: AbortSignal, accept = "*/*"): Promise<string> {
  const response = await fetch(new Request((API_BASE_URL || window.location.origin) + path, { signal, headers: { accept } }));
  const text = await response.text();
  if (!response.ok) throw new ApiError(refusal(response.status, parse(text)));
  return text;
}

const options = { fetch: ask, querySerializer: { array: { style: "form" as const, explode: false } } };
// Some answers come in other forms as well, for those who ask for them: this page reads JSON alone.
export const api = createClient<paths, "application/json">({ baseUrl: API_BASE_URL || window.location.origin, ...options });
export const queueApi = createClient<paths, "application/json">({ baseUrl: MQ_BASE_URL || window.location.origin, ...options });

/** What of an answer could not be read, in the server's words; null if it is whole. */
export function partialOf(answer: { response: Response }): string | null {
  return answer.response.headers.get(PARTIAL);
}

/** The data of an answer. Failures were thrown by `ask`; an answer without data is a broken promise of the document. */
export function dataOf<T>(answer: { data?: T; response: Response }): T {
  if (answer.data === undefined) throw new ApiError({ kind: "json", status: answer.response.status });
  return answer.data;
}
