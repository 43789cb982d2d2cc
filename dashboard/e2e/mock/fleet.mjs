// Made-up fleets for developing the page and its browser tests without a gpuvitals server. Never part of the bundle.

const METRICS = [
  ["utilization_pct", "%", "utilization", "gauge", "Share of the sampling period in which the GPU had work."],
  ["memory_utilization_pct", "%", "utilization", "gauge", "Share of the sampling period in which memory was read or written."],
  ["encoder_utilization_pct", "%", "utilization", "gauge", "How busy the encoder is."],
  ["decoder_utilization_pct", "%", "utilization", "gauge", "How busy the decoder is."],
  ["power_w", "W", "power", "gauge", "Power of the board."],
  ["power_limit_w", "W", "power", "info", "Power limit in force."],
  ["energy_mj", "mJ", "power", "counter", "Energy since the driver was loaded."],
  ["temperature_c", "°C", "temperature", "gauge", "Main temperature of the GPU."],
  ["memory_temperature_c", "°C", "temperature", "gauge", "Temperature of the device memory."],
  ["gpu_clock_mhz", "MHz", "clock", "gauge", "Clock of the graphics and compute engine."],
  ["mem_clock_mhz", "MHz", "clock", "gauge", "Clock of the device memory."],
  ["memory_used_mb", "MiB", "memory", "gauge", "Device memory in use."],
  ["memory_free_mb", "MiB", "memory", "gauge", "Device memory that is free."],
  ["pcie_rx_bytes_per_s", "B/s", "pcie", "gauge", "Received over PCIe."],
  ["pcie_tx_bytes_per_s", "B/s", "pcie", "gauge", "Sent over PCIe."],
  ["ecc_uncorrected", "", "reliability", "counter", "Errors that were not corrected."],
];

export const CATALOGUE = METRICS.map(([column, unit, group, instrument, help]) => ({
  column, table: "gpu_events", type: "float32", unit, group, instrument, help, scope: "device", tier: "fast", min: 0, max: 1e12, bits: [],
  series: "standard", prometheus: { name: `gpu_${column}`, labels: {}, unit, factor: 1 },
}));
const UNITS = new Map(METRICS.map(([column, unit]) => [column, unit]));
const RECORDED_COLUMNS = ["utilization_pct", "power_w", "temperature_c", "gpu_clock_mhz", "mem_clock_mhz", "memory_used_mb", "memory_free_mb", "memory_temperature_c", "encoder_utilization_pct", "decoder_utilization_pct"];
const CAPTURE_AT = Date.parse("2025-07-18T20:42:34Z");

/** A number in 0..1 that depends only on its parts. */
function dice(...parts) {
  let hash = 2166136261;
  for (const char of parts.join("/")) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 2246822519);
  hash ^= hash >>> 13;
  return (hash >>> 0) / 4294967296;
}

/** Smooth noise in 0..1 with a period of about `period` ms. */
function wave(seed, time, period) {
  const at = time / period;
  const cell = Math.floor(at);
  const part = at - cell;
  const ease = part * part * (3 - 2 * part);
  return dice(seed, cell) * (1 - ease) + dice(seed, cell + 1) * ease;
}

function uuid(n) {
  const hex = (length, salt) => Math.floor(dice(n, salt) * 16 ** length).toString(16).padStart(length, "0");
  return `GPU-${hex(8, "a")}-${hex(4, "b")}-${hex(4, "c")}-${hex(4, "d")}-${hex(6, "e")}${hex(6, "f")}`;
}

const MODELS = [
  ["NVIDIA H100 80GB HBM3", "NVIDIA", 81559, 700],
  ["AMD Instinct MI300X", "AMD", 196592, 750],
  ["NVIDIA A100-SXM4-80GB", "NVIDIA", 81920, 400],
];

export class Fleet {
  constructor({ mode, gpus }) {
    this.mode = mode;
    this.started = Date.now() - 1_800_000;
    const recorded = mode === "recorded";
    this.gpus = Array.from({ length: gpus }, (_, n) => {
      const [name, vendor, memory, limit] = recorded ? MODELS[0] : MODELS[Math.floor(n / 8) % MODELS.length];
      const host = recorded ? `twin-dgx-${String(Math.floor(n / 8) + 1).padStart(3, "0")}` : `sim-node-${String(Math.floor(n / 8) + 1).padStart(2, "0")}`;
      return { n, id: uuid(n), name, vendor, memory, limit, host, index: n % 8, fate: recorded ? "" : ["", "", "", "idle", "", "gone", "", "", "sick"][n % 9] };
    });
    this.byId = new Map(this.gpus.map((gpu) => [gpu.id, gpu]));
  }

  columns() {
    return this.mode === "recorded" ? RECORDED_COLUMNS : METRICS.map(([column]) => column);
  }

  /** Values are functions of time: history needs no memory. `null` is a gap. */
  value(gpu, column, time) {
    if (gpu.fate === "gone" && time > this.goneSince) return null;
    const hole = Math.floor(time / 60_000) % 23 === gpu.n % 23 && Math.floor(time / 20_000) % 3 === 0;
    if (hole && this.mode === "live") return null;
    const busy = gpu.fate === "idle" || dice(gpu.n, "job", Math.floor(time / 420_000)) < 0.25 ? 0 : 1;
    const load = busy * (0.72 + 0.28 * wave(`${gpu.n}load`, time, 25_000));
    switch (column) {
      case "utilization_pct": return Math.round(load * 100);
      case "memory_utilization_pct": return Math.round(load * 61 * (0.8 + 0.2 * wave(`${gpu.n}mu`, time, 9000)));
      case "encoder_utilization_pct": case "decoder_utilization_pct": return 0;
      case "power_w": return +(70 + load * (gpu.limit - 110) + 12 * wave(`${gpu.n}p`, time, 4000)).toFixed(3);
      case "power_limit_w": return gpu.limit;
      case "energy_mj": return Math.floor((time - CAPTURE_AT) / 1000) * 310_000;
      case "temperature_c": return Math.round(31 + 44 * load + 4 * wave(`${gpu.n}t`, time, 60_000) + (gpu.fate === "sick" ? 12 : 0));
      case "memory_temperature_c": return Math.round(38 + 45 * load + 4 * wave(`${gpu.n}mt`, time, 60_000));
      case "gpu_clock_mhz": return load > 0 ? 1980 - 15 * Math.floor(wave(`${gpu.n}c`, time, 8000) * 9) : 345;
      case "mem_clock_mhz": return 2619;
      case "memory_used_mb": return Math.round(busy * gpu.memory * (0.55 + 0.3 * dice(gpu.n, "mem", Math.floor(time / 420_000))) + 560);
      case "memory_free_mb": return gpu.memory - this.value(gpu, "memory_used_mb", time);
      case "pcie_rx_bytes_per_s": return Math.round(load * 9e9 * wave(`${gpu.n}rx`, time, 3000));
      case "pcie_tx_bytes_per_s": return Math.round(load * 6e9 * wave(`${gpu.n}tx`, time, 3000));
      case "ecc_uncorrected": return gpu.fate === "sick" ? 3 : 0;
      default: return null;
    }
  }

  get goneSince() {
    return Date.now() - 9 * 60_000;
  }

  firstSeen() {
    return this.mode === "recorded" ? CAPTURE_AT : this.started;
  }

  lastSeen(gpu) {
    if (this.mode === "recorded") return CAPTURE_AT + 9_000;
    return gpu.fate === "gone" ? this.goneSince : Date.now();
  }

  state(gpu) {
    if (this.mode === "recorded" || gpu.fate === "gone") return "stale";
    if (gpu.fate === "sick") return "unhealthy";
    return (this.value(gpu, "utilization_pct", Date.now()) ?? 1) > 0 ? "active" : "idle";
  }

  /** What is wrong: errors of memory, and GPUs that are gone. */
  findings(params) {
    const entry = (gpu) => {
      const sick = gpu.fate === "sick";
      const kind = sick ? "ecc_uncorrected" : "gpu_lost";
      return {
        id: `${kind}:${gpu.id}`, kind, severity: "critical", subject: { type: "gpu", id: gpu.id, name: `${gpu.host} / GPU ${gpu.index}` },
        since: new Date(sick ? this.started : this.goneSince).toISOString(),
        sentence: sick ? "3 errors of device memory were not corrected" : "it reports nothing any more, while its node does",
        evidence: sick ? [{ quantity: "ecc_uncorrected", unit: "", value: 3, compared_with: null }] : [],
        reach: { gpus: [gpu.id], gpu_count: 1, concerned_gpus: 1, cluster: null, hostname: gpu.host, namespace: null, pod: null, job: null },
        meaning: sick ? "Device memory had an error beyond correction." : "A GPU reports nothing any more, while its node does.",
        next_step: "Drain the node and look at `nvidia-smi -q -i INDEX`.", simulated: true,
      };
    };
    const all = this.mode === "recorded" ? [] : this.gpus.filter((gpu) => gpu.fate === "sick" || gpu.fate === "gone").map(entry);
    const fits = (name, of) => (one) => !params.get(name) || params.get(name).split(",").includes(of(one));
    return all.filter(fits("severity", (one) => one.severity)).filter(fits("kind", (one) => one.kind)).filter(fits("host", (one) => one.reach.hostname)).filter(fits("gpus", (one) => one.subject.id));
  }

  latest(gpu) {
    const seen = this.lastSeen(gpu);
    const entries = this.columns().map((column, place) => {
      const at = this.mode === "recorded" ? CAPTURE_AT + (place % 4) * 3000 : seen - 1;
      return [column, { value: this.value(gpu, column, at) ?? this.value(gpu, column, at - 40_000), timestamp: new Date(at).toISOString() }];
    });
    return Object.fromEntries(entries);
  }

  describe(gpu, withMetrics) {
    const metrics = withMetrics ? Object.fromEntries(Object.entries(this.latest(gpu)).map(([column, held]) => [column, held.value])) : undefined;
    return {
      id: gpu.id, name: `${gpu.host} / GPU ${gpu.index}`, model: gpu.name, vendor: gpu.vendor.toLowerCase(), hostname: gpu.host, index: gpu.index,
      memory_mb: gpu.memory, driver_version: gpu.vendor === "AMD" ? "6.12.12" : "535.129.03", state: this.state(gpu), state_reason: gpu.fate === "sick" ? "ecc_uncorrected is 3" : null,
      last_seen: new Date(this.lastSeen(gpu)).toISOString(), simulated: this.mode === "live", ...(metrics && { metrics }),
    };
  }

  /** Jobs of 24 GPUs, every fourth of them of nobody. */
  labels(gpu) {
    const job = Math.floor(this.byId.get(gpu.id).n / 24);
    const isHeld = this.mode === "live" && job % 4 !== 3;
    const namespace = isHeld ? ["research", "vision", "speech"][job % 3] : null;
    return { node: gpu.hostname, model: gpu.model, vendor: gpu.vendor, cluster: this.mode === "live" ? "sim" : null, namespace, job: isHeld ? `train-${job}` : null, pod: isHeld ? `train-${job}-0` : null };
  }

  query({ metrics, gpus, start, end, step }) {
    const times = [];
    for (let at = Math.floor(start / step) * step; at < end && times.length < 5000; at += step) times.push(at);
    const series = gpus.flatMap((id) => {
      const gpu = this.byId.get(id);
      return gpu === undefined ? [] : metrics.map((metric) => ({
        metric, gpu: id, hostname: gpu.host, unit: UNITS.get(metric) ?? "", values: times.map((at) => this.bucket(gpu, metric, at, step)),
      }));
    });
    return { times, series, step_ms: step };
  }

  bucket(gpu, metric, at, step) {
    if (at > Date.now()) return null;
    if (this.mode === "live") return this.value(gpu, metric, at + step / 2);
    const place = this.columns().indexOf(metric);
    const taken = CAPTURE_AT + (place % 4) * 3000;
    return place >= 0 && at <= taken && taken < at + step ? this.value(gpu, metric, taken) : null;
  }
}
