// node e2e/mock/server.mjs [--port 8181] [--mode live|recorded] [--gpus N]: the built page and an API with made-up data.

import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { parseArgs } from "node:util";
import { CATALOGUE, Fleet } from "./fleet.mjs";

const { values: flags } = parseArgs({
  options: { port: { type: "string", default: "8181" }, mode: { type: "string", default: "live" }, gpus: { type: "string" } },
});
const fleet = new Fleet({ mode: flags.mode, gpus: Number(flags.gpus ?? (flags.mode === "recorded" ? 247 : 120)) });
const dist = join(import.meta.dirname, "../../dist");
const started = Date.now();
let requests = 0;
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

function json(response, body, status = 200) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

function refuse(response, status, message) {
  json(response, { error: status === 404 ? "not found" : "bad request", message, code: status === 404 ? "not_found" : "bad_request" }, status);
}

function page(name, all, params) {
  const limit = Number(params.get("limit") ?? 100);
  const offset = Number(params.get("offset") ?? 0);
  return { [name]: all.slice(offset, offset + limit), total: all.length, pagination: { limit, offset, has_next: offset + limit < all.length } };
}

function gpuList(params) {
  const search = (params.get("search") ?? "").toLowerCase();
  let all = fleet.gpus.map((gpu) => fleet.describe(gpu, true));
  if (search) all = all.filter((gpu) => `${gpu.name} ${gpu.id} ${gpu.hostname}`.toLowerCase().includes(search));
  for (const [name, field] of [["state", "state"], ["host", "hostname"]]) {
    if (params.get(name)) all = all.filter((gpu) => gpu[field] === params.get(name));
  }
  for (const test of (params.get("where") ?? "").split(";").filter(Boolean)) {
    const [name, text] = test.split("=");
    all = all.filter((gpu) => (fleet.labels(gpu)[name] ?? "") === text);
  }
  const sort = params.get("sort") ?? "";
  const column = sort.replace(/^-/, "");
  const of = (gpu) => gpu[column] ?? gpu.metrics[column];
  if (column) all.sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (sort.startsWith("-") ? -1 : 1));
  const answer = page("gpus", all, params);
  const columns = params.get("metrics")?.split(",");
  const labels = params.get("labels")?.split(",");
  for (const gpu of answer.gpus) {
    if (columns !== undefined) gpu.metrics = Object.fromEntries(columns.map((column) => [column, gpu.metrics[column]]));
    else if (params.get("include") !== "metrics") delete gpu.metrics;
    if (labels !== undefined) gpu.labels = Object.fromEntries(labels.map((name) => [name, fleet.labels(gpu)[name] ?? null]));
  }
  return answer;
}

function hosts(params) {
  const counts = Map.groupBy ? Map.groupBy(fleet.gpus, (gpu) => gpu.host) : new Map();
  for (const gpu of Map.groupBy ? [] : fleet.gpus) counts.set(gpu.host, [...(counts.get(gpu.host) ?? []), gpu]);
  return page("hosts", [...counts].map(([hostname, gpus]) => ({ hostname, gpu_count: gpus.length, simulated: flags.mode === "live" })), params);
}

/** Every GPU that has a job is busy, and no job has a straggler. */
function hints(params) {
  const rooms = new Map();
  for (const gpu of fleet.gpus) {
    const room = rooms.get(gpu.host) ?? { cluster: null, hostname: gpu.host, model: gpu.name, whole: false, free: [], busy: [], unhealthy: [] };
    const isHeld = fleet.labels({ ...gpu, hostname: gpu.host, model: gpu.name }).job !== null;
    if (gpu.fate === "sick") room.unhealthy.push({ gpu: gpu.id, reasons: ["ecc_uncorrected: 3 errors of device memory were not corrected"] });
    else room[isHeld ? "busy" : "free"].push(gpu.id);
    rooms.set(gpu.host, room);
  }
  const all = [...rooms.values()];
  const count = (name) => all.reduce((sum, room) => sum + room[name].length, 0);
  const whole = all.filter(({ free, busy, unhealthy }) => free.length > 0 && busy.length + unhealthy.length === 0);
  const totals = { free: count("free"), busy: count("busy"), unhealthy: count("unhealthy"), whole_nodes: whole.length, fragmentation: null };
  return { ...page("nodes", all, params), totals, judged_at: new Date().toISOString() };
}

/** Energy or idle hours of the range by holder: every GPU counted all the time. */
function usage(params, isIdle) {
  const hours = (Date.parse(params.get("end")) - Date.parse(params.get("start"))) / 3_600_000;
  const by = params.get("by");
  const wanted = params.get("gpus")?.split(",");
  const asked = wanted === undefined ? fleet.gpus : fleet.gpus.filter((gpu) => wanted.includes(gpu.id));
  const groups = new Map();
  for (const gpu of asked) {
    const name = by === "gpu" ? gpu.id : (fleet.labels({ ...gpu, hostname: gpu.host, model: gpu.name })[by] ?? null);
    if (isIdle && name === null) continue;
    groups.set(name, [...(groups.get(name) ?? []), gpu]);
  }
  const group = (name, gpus) => {
    const idle = gpus.filter((gpu) => gpu.fate === "idle").length;
    if (isIdle) return { group: name, held_gpu_hours: gpus.length * hours, idle_gpu_hours: idle * hours, idle_energy_kwh: idle * hours * 0.08, idle_cost: null, gpus: gpus.length };
    const kwh = gpus.length * hours * 0.5;
    return { group: name, energy_kwh: kwh, counted_kwh: kwh * 0.9, source: "both", gpu_hours: gpus.length * hours, gpus: gpus.length };
  };
  const all = [...groups].map(([name, gpus]) => group(name, gpus));
  return { ...page("groups", all, params), whole: group(null, isIdle ? [...groups.values()].flat() : asked), start: params.get("start"), end: params.get("end"), step_ms: 60_000 };
}

function query(params) {
  return fleet.query({
    metrics: params.get("metrics").split(","),
    gpus: params.get("gpus").split(","),
    start: Date.parse(params.get("start")),
    end: Date.parse(params.get("end")),
    step: Number(params.get("step").replace("ms", "")),
  });
}

function stream(request, response, params) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  response.write(": hello\n\n");
  const wanted = (params.get("gpus") ?? "").split(",");
  const send = () => {
    const now = new Date();
    const rows = wanted.flatMap((id) => {
      const gpu = fleet.byId.get(id);
      if (gpu === undefined || gpu.fate === "gone" || flags.mode === "recorded") return [];
      const metrics = Object.fromEntries(fleet.columns().map((column) => [column, fleet.value(gpu, column, now.getTime())]).filter(([, value]) => value !== null));
      return [{ gpu_id: id, hostname: gpu.host, metrics, timestamp: now.toISOString() }];
    });
    if (rows.length > 0) response.write(`event: samples\ndata: ${JSON.stringify(rows)}\n\n`);
  };
  const timer = setInterval(send, 1000);
  request.on("close", () => clearInterval(timer));
}

function detail(gpu) {
  const labels = { source: flags.mode === "live" ? "simulated" : "csv", pci: "0000:1b:00.0", pod: null, job: null };
  return { gpu: fleet.describe(gpu, false), latest: fleet.latest(gpu), labels, first_seen: new Date(fleet.firstSeen()).toISOString() };
}

function health() {
  const since = new Date(started).toISOString();
  const well = { status: "healthy", reason: "", since };
  return { status: "healthy", service: "telemetry-api-gateway", timestamp: new Date().toISOString(), version: "mock", collector: well, collectors: [], queue: well, queues: [{ name: "inproc:", ...well }], store: well };
}

function queue() {
  const up = (Date.now() - started) / 1000;
  const total = Math.floor(up * fleet.gpus.length);
  const group = { members: 4, lag: 2, in_flight: 2, waiting: 0, redelivered: 0, acked: total - 2, oldest_unacked_seconds: 0 };
  const topic = { messages: 2, subscribers: 1, throughput_msg_per_sec: fleet.gpus.length, acked_msg_per_sec: fleet.gpus.length, bytes: 400, frames: 1, published: total };
  const lost = { acked: total - 2, redelivered: 0, dead: 0, dropped: 0, refused: 0, duplicates: 0, dead_letters: 0, dead_dropped: 0 };
  return { topics: { telemetry: { ...topic, ...lost, groups: { collector: group } } }, total_processed: total, uptime_seconds: up };
}

function stats() {
  const up = (Date.now() - started) / 1000;
  const gateway = { cache_hit_rate: 0.87, cache_hits: 87, cache_misses: 13, requests, uptime_seconds: up, streams: 0, connections: 3, memory_bytes: 80 << 20 };
  return { ...queue(), gateway, collectors: { "this process": { total_processed: queue().total_processed } }, store: {}, source: {} };
}

function file(response, path) {
  const wanted = join(dist, normalize(path));
  const found = wanted.startsWith(dist) && existsSync(wanted) && statSync(wanted).isFile() ? wanted : join(dist, "index.html");
  response.writeHead(200, { "content-type": TYPES[extname(found)] ?? "application/octet-stream" });
  createReadStream(found).pipe(response);
}

createServer((request, response) => {
  requests += 1;
  const { pathname, searchParams: params } = new URL(request.url, "http://mock");
  const one = /^\/api\/v1\/gpus\/([^/]+)$/.exec(pathname);
  if (one !== null) {
    const gpu = fleet.byId.get(decodeURIComponent(one[1]));
    if (gpu === undefined) return refuse(response, 404, `there is no GPU ${one[1]}`);
    return json(response, detail(gpu));
  }
  switch (pathname) {
    case "/api/v1/gpus": return json(response, gpuList(params));
    case "/api/v1/analysis/findings": return json(response, { ...page("findings", fleet.findings(params), params), judged_at: new Date().toISOString() });
    case "/api/v1/analysis/silences": return json(response, { silences: [], judged_at: new Date().toISOString() });
    case "/api/v1/analysis/energy": return json(response, usage(params, false));
    case "/api/v1/analysis/idle": return json(response, usage(params, true));
    case "/api/v1/analysis/stragglers": return json(response, { ...page("jobs", [], params), judged_at: new Date().toISOString() });
    case "/api/v1/schedule/hints": return json(response, hints(params));
    case "/api/v1/gpu/clusters": return json(response, []);
    case "/api/v1/hosts": return json(response, hosts(params));
    case "/api/v1/metrics": return json(response, { metrics: CATALOGUE });
    case "/api/v1/query": return json(response, query(params));
    case "/api/v1/stream": return stream(request, response, params);
    case "/health": return json(response, health());
    case "/stats": return json(response, stats());
    case "/api/v1/queue/stats": return json(response, queue());
    case "/metrics": return void response.writeHead(200, { "content-type": "text/plain" }).end(`gpuvitals_gateway_requests_limited_total 0\n`);
    default: return pathname.startsWith("/api/") ? refuse(response, 404, `there is no ${pathname}`) : file(response, pathname);
  }
}).listen(Number(flags.port), "127.0.0.1");
