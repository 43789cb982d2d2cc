import { vi } from "vitest";
import type { Gpu, Schemas } from "../api/client";
import type { Finding } from "../api/findings";
import type { Incident } from "../api/incidents";
import { JUDGEMENTS } from "../api/judgement";
import { group, topic } from "./queue";

/** An answer of the mock server; a function decides by the request's query. */
export type Answer = { readonly status?: number; readonly body: unknown; readonly headers?: Record<string, string> } | "unreachable" | "never";
export type Handler = Answer | ((params: URLSearchParams) => Answer);

interface MockRequest {
  readonly path: string;
  readonly params: URLSearchParams;
  readonly method: string;
  readonly authorization: string | null;
  readonly body: string;
}

export interface MockApi {
  readonly asked: MockRequest[];
  readonly set: (path: string, handler: Handler) => void;
  /** Nobody answers anything, or everybody again. */
  readonly goDown: (down: boolean) => void;
}

export const ok = (body: unknown): Answer => ({ body });

export function gpu(part: Partial<Gpu> = {}): Gpu {
  return {
    id: "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
    name: "node-1 / GPU 0",
    model: "H100",
    vendor: "nvidia",
    hostname: "node-1",
    index: 0,
    memory_mb: 81_559,
    driver_version: "535.129.03",
    state: "active",
    state_reason: null,
    last_seen: new Date().toISOString(),
    simulated: false,
    metrics: { utilization_pct: 87, power_w: 512.25, temperature_c: 61, memory_used_mb: 40_960 },
    // As the server says where no finding is open.
    judgement: part.state ?? "active",
    judgement_reason: part.state_reason ?? null,
    ...part,
  };
}

export function judgementsOf(gpus: readonly Pick<Gpu, "judgement">[]): Schemas["JudgementCounts"] {
  const counts = Object.fromEntries(JUDGEMENTS.map((word) => [word, 0])) as Schemas["JudgementCounts"];
  for (const { judgement } of gpus) counts[judgement] += 1;
  return counts;
}

export function listOf(gpus: readonly Gpu[], total = gpus.length): Answer {
  return ok({ gpus, judgements: judgementsOf(gpus), total, pagination: { limit: 50, offset: 0, has_next: total > gpus.length } });
}

export function finding(part: Partial<Finding> = {}): Finding {
  return {
    id: "xid:GPU-a",
    kind: "xid",
    severity: "critical",
    subject: { type: "gpu", id: "GPU-a", name: "node-1 / GPU 6" },
    // Far from a whole minute, and from where another range begins: tests take their time.
    since: new Date(Date.now() - 10.5 * 60_000).toISOString(),
    since_at_least: false,
    sentence: "XID 63",
    evidence: [{ quantity: "xid_last", unit: "", value: 63, compared_with: null, text: "XID 63: bad memory was marked for replacement" }],
    reach: { gpus: ["GPU-a"], gpu_count: 1, concerned_gpus: 8, cluster: null, hostname: "node-1", namespace: "research", pod: "train-7-0", job: "train-7" },
    meaning: "The driver reported an XID that applications do not cause.",
    next_step: "Reset it with `nvidia-smi --gpu-reset -i INDEX`, or reboot the node.",
    simulated: false,
    silenced: null,
    ...part,
  };
}

export function incident(part: Partial<Incident> = {}): Incident {
  return {
    id: "20261120T100030Z-xid",
    job: "a/research/train-7",
    kind: "xid",
    detail: "XID 79",
    at: "2026-11-20T10:00:30Z",
    start: "2026-11-20T09:59:30Z",
    end: "2026-11-20T10:01:00Z",
    nodes_asked: 3,
    nodes_had: 2,
    first: { gpu: "GPU-b", hostname: "node-2", at: "2026-11-20T10:00:20Z", why: "it gave no value after that", doubt: "cannot tell which came first: how far the clocks of node-1 and node-2 are apart is not known" },
    has_rows: true,
    ...part,
  };
}

export function findingsOf(findings: readonly Finding[], total = findings.length): Exclude<Answer, string> {
  return { body: { findings, total, judged_at: new Date().toISOString(), pagination: { limit: 500, offset: 0, has_next: total > findings.length } } };
}

const spanOf = (params: URLSearchParams) => ({ start: "2026-11-19T10:00:00Z", end: params.get("end") ?? "" });

export function trend(part: Partial<Schemas["TrendEntry"]> = {}): Schemas["TrendEntry"] {
  const reaches_limit_at = new Date(Date.now() + 50.5 * 3_600_000).toISOString();
  return { gpu: "GPU-a", name: "node-1 / GPU 6", metric: "temperature_c", unit: "°C", level: 82, per_day: 3, steadiness: 0.9, points: 64, limit: 89, reaches_limit_at, ...part };
}

export function trendsOf(params: URLSearchParams, trends: readonly Schemas["TrendEntry"][]): Answer {
  return ok({ trends, total: trends.length, pagination: { limit: 1000, offset: 0, has_next: false }, ...spanOf(params) });
}

export function anomaliesOf(params: URLSearchParams, anomalies: readonly Schemas["AnomalyEntry"][], note: string | null = null): Answer {
  return ok({ anomalies, note, too_young: 0, total: anomalies.length, pagination: { limit: 1000, offset: 0, has_next: false }, ...spanOf(params) });
}

export function metric(column: string, unit: string, group: string, instrument = "gauge") {
  return { column, table: "gpu_events", type: "float32", unit, group, instrument, scope: "device", min: 0, max: 10_000, help: `About ${column}.`, bits: [] as { bit: number; name: string }[], series: "standard", prometheus: { name: `gpu_${column}`, labels: {} as Record<string, string>, unit: "", factor: 1 } };
}

const healthy = { status: "healthy", reason: "", since: "2026-11-20T10:00:00Z" };
export const HEALTH = {
  status: "healthy",
  service: "telemetry-api-gateway",
  timestamp: "2026-11-20T12:00:00Z",
  version: "0.1.0",
  collector: healthy,
  collectors: [],
  queue: healthy,
  queues: [],
  store: healthy,
};

const DEFAULTS: Readonly<Record<string, Handler>> = {
  "/health": ok(HEALTH),
  "/stats": ok({
    topics: { telemetry: topic({ published: 1200, throughput_msg_per_sec: 64, groups: { collector: group({ lag: 3 }) } }) },
    total_processed: 1197,
    uptime_seconds: 3700,
    gateway: { cache_hit_rate: 0.875, cache_hits: 7, cache_misses: 1, requests: 64, uptime_seconds: 3700, streams: 2, connections: 9, memory_bytes: 83_886_080 },
    collectors: { "this process": { total_processed: 1000 } },
  }),
  "/metrics": { body: "" },
  "/api/v1/gpus": listOf([]),
  "/api/v1/gpu/clusters": ok([]),
  // Judged as it is asked: an answer made as the file was read is old after a minute, and the page says so.
  "/api/v1/analysis/findings": () => findingsOf([]),
  "/api/v1/analysis/silences": ok({ silences: [], judged_at: "" }),
  "/api/v1/analysis/trends": (params) => trendsOf(params, []),
  "/api/v1/analysis/changes": ok({ changes: [], total: 0, start: "", end: "", pagination: { limit: 500, offset: 0, has_next: false } }),
  "/api/v1/analysis/stragglers": ok({ jobs: [], total: 0, judged_at: "", pagination: { limit: 50, offset: 0, has_next: false } }),
  "/api/v1/schedule/hints": ok({ nodes: [], totals: { free: 0, busy: 0, memory_in_use: 0, unhealthy: 0, whole_nodes: 0, fragmentation: null }, judged_at: "", total: 0, pagination: { limit: 10_000, offset: 0, has_next: false } }),
  "/api/v1/analysis/anomalies": (params) => anomaliesOf(params, []),
  "/api/v1/hosts": ok({ hosts: [{ hostname: "node-1", gpu_count: 2, simulated: false }], total: 1, pagination: { limit: 1000, offset: 0, has_next: false } }),
  "/api/v1/query": ok({ times: [], series: [], step_ms: 1000 }),
  "/api/v1/metrics": ok({
    metrics: [
      metric("utilization_pct", "%", "utilization"),
      metric("power_w", "W", "power"),
      metric("power_limit_w", "W", "power", "info"),
      metric("temperature_c", "°C", "temperature"),
    ],
  }),
};

/** Answers the page's requests from a table of paths; what is not in the table is a 404 as the server words it. */
export function mockApi(handlers: Readonly<Record<string, Handler>> = {}): MockApi {
  const table = new Map<string, Handler>(Object.entries({ ...DEFAULTS, ...handlers }));
  const asked: MockRequest[] = [];
  let silent = false;
  vi.stubGlobal("fetch", async (request: Request) => {
    const url = new URL(request.url);
    const body = request.body === null ? "" : await request.text();
    asked.push({ path: url.pathname, params: url.searchParams, method: request.method, authorization: request.headers.get("authorization"), body });
    const handler = table.get(url.pathname);
    const answer = typeof handler === "function" ? handler(url.searchParams) : handler;
    return respond(silent ? "unreachable" : answer, url.pathname);
  });
  return { asked, set: (path, handler) => void table.set(path, handler), goDown: (down) => void (silent = down) };
}

function respond(answer: Answer | undefined, path: string): Promise<Response> {
  if (answer === "never") return new Promise(() => undefined);
  if (answer === "unreachable") return Promise.reject(new TypeError("fetch failed"));
  if (answer === undefined) {
    const body = { error: "not found", message: `there is no ${path}`, code: "not_found" };
    return Promise.resolve(new Response(JSON.stringify(body), { status: 404 }));
  }
  const text = typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body);
  return Promise.resolve(new Response(text, { status: answer.status ?? 200, headers: answer.headers ?? {} }));
}
