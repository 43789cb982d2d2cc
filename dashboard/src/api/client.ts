import createClient from "openapi-fetch";
import { API_BASE_URL, MQ_BASE_URL } from "../shared/config";
import { chosenInstant } from "../shared/instant";
import { authorization, noteAccess } from "./access";
import type { paths as QueuePaths } from "./queue-schema";
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

/** Whether the server keeps no such rows: that is no failure, there is only nothing to show. */
export function isNotKept(error: unknown): error is ApiError {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.code === "not_kept";
}

/** Whether the server knows no such host. */
export function isUnknownHost(error: unknown): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.code === "unknown_host";
}

/** Whether the question asks for more values than an answer has. */
export function isTooLarge(error: unknown): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.code === "too_large";
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
const UNAUTHORIZED = 401;
const ANSWER_WITHIN_MS = 15_000;
/** A replay of dead letters answers after 20 s with what is left. */
const QUEUE_WITHIN_MS = 30_000;
/** Header that says what of an answer could not be read. */
const PARTIAL = "x-partial";

/** Questions for the state of the fleet, which may be asked as of an instant. */
const OF_STATE = /\/api\/v1\/(gpus(\/[^/]+)?|hosts(\/[^/]+\/(gpus|topology))?|analysis\/(findings|silences|stragglers)|schedule\/hints)$/;

/** The question as of the chosen instant, unless it names another. */
function asOf(request: Request): Request {
  const at = chosenInstant();
  const url = new URL(request.url);
  if (at === null || request.method !== "GET" || !OF_STATE.test(url.pathname) || url.searchParams.has("at")) return request;
  url.searchParams.set("at", new Date(at).toISOString());
  return new Request(url, request);
}

/** Asks the gateway, and keeps the page's view of whether it can be reached. */
async function ask(request: Request): Promise<Response> {
  try {
    const response = await fetchAnswer(asOf(request), ANSWER_WITHIN_MS);
    answered();
    // The health is told to everyone.
    if (!request.url.endsWith("/health")) noteAccess(false);
    return response;
  } catch (error) {
    if (error instanceof ApiError) {
      const { failure } = error;
      if (failure.kind === "server" && failure.status === UNAUTHORIZED) noteAccess(true);
      if (failure.kind === "network" || (failure.kind === "json" && NOBODY_BEHIND.has(failure.status))) unanswered();
      else answered();
    }
    throw error;
  }
}

/** Asks the broker, which may be away while the gateway answers. */
function askQueue(request: Request): Promise<Response> {
  return fetchAnswer(request, QUEUE_WITHIN_MS);
}

async function fetchAnswer(request: Request, within: number): Promise<Response> {
  const { response, text } = await fetchWhole(request, within);
  return asJson(response, text);
}

/** The one place that fetches. */
async function fetchWhole(request: Request, within: number): Promise<{ readonly response: Response; readonly text: string }> {
  try {
    const login = authorization();
    if (login !== null) request.headers.set("authorization", login);
    const patience = AbortSignal.timeout(within);
    const response = await fetch(request, { signal: AbortSignal.any([request.signal, patience]) });
    const text = await response.text();
    return { response, text };
  } catch (cause) {
    if (request.signal.aborted) throw cause;
    throw new ApiError({ kind: "network", cause });
  }
}

/** Tells errors apart. */
function asJson(response: Response, text: string): Response {
  const body = parse(text);
  if (body === undefined) throw new ApiError({ kind: "json", status: response.status });
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
  const request = asOf(new Request(absolute(API_BASE_URL) + path, { signal, headers: { accept } }));
  const { response, text } = await fetchWhole(request, ANSWER_WITHIN_MS);
  if (!response.ok) asJson(response, text);
  return text;
}

/** An answer as a file: of the chosen instant, as everything else. */
export function fetchCsv(path: string): Promise<string> {
  return fetchText(path, new AbortController().signal, "text/csv");
}

const querySerializer = { array: { style: "form" as const, explode: false } };
const absolute = (base: string) => new URL(base, window.location.origin).href.replace(/\/$/, "");
// Some answers come in other forms as well, for those who ask for them: this page reads JSON alone.
export const api = createClient<paths, "application/json">({ baseUrl: absolute(API_BASE_URL), fetch: ask, querySerializer });
export const queueApi = createClient<QueuePaths, "application/json">({ baseUrl: absolute(MQ_BASE_URL), fetch: askQueue, querySerializer });

/** What of an answer could not be read, in the server's words; null if it is whole. */
export function partialOf(answer: { response: Response }): string | null {
  return answer.response.headers.get(PARTIAL);
}

/** The data of an answer. Failures were thrown by `ask`; an answer without data is a broken promise of the document. */
export function dataOf<T>(answer: { data?: T; response: Response }): T {
  if (answer.data === undefined) throw new ApiError({ kind: "json", status: answer.response.status });
  return answer.data;
}
