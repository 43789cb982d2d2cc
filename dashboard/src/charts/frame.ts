/** Values of several metrics on one time axis: what the charts of a page draw. `null` is "not read". */
export interface Frame {
  readonly stepMs: number;
  readonly times: readonly number[];
  readonly values: ReadonlyMap<string, readonly (number | null)[]>;
}

/** The columnar answer of `/api/v1/query`, as far as a chart needs it. */
export interface Columns {
  readonly times: readonly number[];
  readonly step_ms: number;
  readonly series: readonly {
    readonly metric: string;
    readonly gpu?: string | null;
    readonly aggregate?: string;
    readonly values: readonly (number | null)[];
  }[];
}

/** One row that just arrived. */
export interface Sample {
  readonly timestamp: number;
  readonly metrics: Readonly<Record<string, unknown>>;
}

export const EMPTY: Frame = { stepMs: 1000, times: [], values: new Map() };

/** The series of one GPU, or of several together, of one aggregate of the answer. */
export function frameOf(answer: Columns, gpu: string, aggregate: string): Frame {
  const own = answer.series.filter((series) => (series.gpu ?? gpu) === gpu && (series.aggregate ?? aggregate) === aggregate);
  return {
    stepMs: answer.step_ms,
    times: answer.times,
    values: new Map(own.map((series) => [series.metric, series.values])),
  };
}

/** The other way round: of each metric the lines of several GPUs, of one aggregate. */
export function framesOf(answer: Columns, of: string): Map<string, Frame> {
  const frames = new Map<string, { readonly stepMs: number; readonly times: readonly number[]; readonly values: Map<string, readonly (number | null)[]> }>();
  for (const { metric, gpu, aggregate = of, values } of answer.series) {
    if (gpu === undefined || gpu === null || aggregate !== of) continue;
    const frame = frames.get(metric) ?? { stepMs: answer.step_ms, times: answer.times, values: new Map<string, readonly (number | null)[]>() };
    frame.values.set(gpu, values);
    frames.set(metric, frame);
  }
  return frames;
}

/** How a bucket takes in one more value until the server's own answer replaces it. */
function combine(held: number | null, value: number, aggregate: string): number {
  if (held === null) return value;
  if (aggregate === "min") return Math.min(held, value);
  if (aggregate === "max" || aggregate === "p99") return Math.max(held, value);
  return value;
}

/**
 * Adds samples behind the last bucket and drops what lies before `start`. A sample falls into its bucket of `stepMs`,
 * so that a live chart never holds more points than its range has buckets. Samples older than the frame's last bucket
 * are the server's business and are left out.
 */
export function extend(frame: Frame, samples: readonly Sample[], start: number, aggregate: string): Frame {
  const times = [...frame.times];
  const values = new Map([...frame.values].map(([metric, held]) => [metric, [...held]]));
  for (const sample of samples) {
    const bucket = Math.floor(sample.timestamp / frame.stepMs) * frame.stepMs;
    const last = times.at(-1);
    if (last !== undefined && bucket < last) continue;
    if (last === undefined || bucket > last) {
      times.push(bucket);
      for (const held of values.values()) held.push(null);
    }
    const place = times.length - 1;
    for (const [metric, value] of Object.entries(sample.metrics)) {
      if (typeof value !== "number" || !Number.isFinite(value)) continue;
      let held = values.get(metric);
      if (held === undefined) {
        held = times.map(() => null);
        values.set(metric, held);
      }
      held[place] = combine(held[place] ?? null, value, aggregate);
    }
  }
  return from({ stepMs: frame.stepMs, times, values }, start);
}

function from(frame: Frame, start: number): Frame {
  const keep = frame.times.findIndex((time) => time + frame.stepMs > start);
  if (keep === 0) return frame;
  const at = keep < 0 ? frame.times.length : keep;
  return {
    stepMs: frame.stepMs,
    times: frame.times.slice(at),
    values: new Map([...frame.values].map(([metric, held]) => [metric, held.slice(at)])),
  };
}

/** The values of a column at the times of another frame; null where it has none. */
export function aligned(frame: Frame | null, column: string, times: readonly number[]): readonly (number | null)[] {
  const values = frame?.values.get(column);
  if (frame === null || values === undefined) return times.map(() => null);
  if (frame.times.length === times.length && frame.times[0] === times[0]) return values;
  const places = new Map(frame.times.map((time, place) => [time, place]));
  return times.map((time) => values[places.get(time) ?? -1] ?? null);
}

export function countPoints(frame: Frame, metrics: readonly string[]): number {
  return metrics.reduce(
    (sum, metric) => sum + (frame.values.get(metric)?.reduce<number>((n, v) => (v === null ? n : n + 1), 0) ?? 0),
    0,
  );
}

export function lastValue(values: readonly (number | null)[] | undefined): number | null {
  return values?.findLast((value) => value !== null) ?? null;
}

/** The value that holds at a place until another is read; before the first one, that. */
export function heldValue(values: readonly (number | null)[] | undefined, place: number): number | null {
  return lastValue(values?.slice(0, place + 1)) ?? values?.find((value) => value !== null) ?? null;
}

/** Three quarters of the distances between neighbouring values are at most this, in ms; `null` under three values. */
function cadence(times: readonly number[], held: readonly number[]): number | null {
  if (held.length < 3) return null;
  const distances = held.slice(1).map((place, n) => (times[place] ?? 0) - (times[held[n] ?? 0] ?? 0));
  distances.sort((a, b) => a - b);
  return distances[Math.floor((distances.length - 1) * 0.75)] ?? null;
}

/**
 * Tells buckets that are empty because the source is slower than the step (`undefined`: the line goes on) from gaps in
 * the data (`null`: the line breaks). A source that reports every 15 s has no gap in a chart with a step of 1 s.
 */
export function bridged(
  times: readonly number[],
  values: readonly (number | null)[],
  stepMs: number,
): (number | null | undefined)[] {
  const held = values.flatMap((value, place) => (value === null ? [] : [place]));
  const usual = cadence(times, held);
  const out: (number | null | undefined)[] = [...values];
  if (usual === null || usual <= stepMs) return out;
  const longest = Math.max(usual * 1.6, usual + stepMs);
  for (let n = 1; n < held.length; n += 1) {
    const before = held[n - 1] ?? 0;
    const after = held[n] ?? 0;
    if ((times[after] ?? 0) - (times[before] ?? 0) > longest) continue;
    for (let place = before + 1; place < after; place += 1) out[place] = undefined;
  }
  return out;
}

/** Places of values that no line reaches: they are drawn as dots, or nobody would see them. */
export function isolated(values: readonly (number | null | undefined)[]): number[] {
  const places: number[] = [];
  let run: number[] = [];
  const close = () => {
    if (run.length === 1) places.push(...run);
    run = [];
  };
  values.forEach((value, place) => {
    if (value === null) close();
    else if (value !== undefined) run.push(place);
  });
  close();
  return places;
}
