import { ApiError, type QueryAnswer } from "../../api/client";
import { fetchGpusHeld } from "../../api/fleet";
import { fetchHistory, type HistoryAsk, type Span } from "../../api/queries";
import { whereOneOf } from "../../api/where";

// The pictures that come onto the screen together ask together: a question costs the server more than the GPUs that it names.

/** Whose courses are asked for: these GPUs, or all of a host or of a job. */
export type Whose =
  | { readonly of: "gpus"; readonly gpus: readonly string[] }
  | { readonly of: "host"; readonly host: string }
  | { readonly of: "job"; readonly job: string; readonly namespace: string | null };

/** A question for the mean course of some metrics. */
export interface CoursesAsk {
  readonly metrics: readonly string[];
  readonly whose: Whose;
  readonly stepMs: number;
  readonly span: Span;
}

interface Waiting {
  readonly ask: CoursesAsk;
  readonly resolve: (answer: QueryAnswer) => void;
  readonly reject: (error: unknown) => void;
}

/** How many are asked for together: fewer than an address has room for, whose GPUs are named where it is a job. */
const TOGETHER_MAX: Readonly<Record<Whose["of"], number>> = { gpus: 16, host: 16, job: 4 };

let waiting: Waiting[] = [];

/** The answer to one question, which others may have been asked with. It goes on when nobody waits any more: who comes back finds it. */
export function fetchCourses(ask: CoursesAsk): Promise<QueryAnswer> {
  return new Promise((resolve, reject) => {
    if (waiting.length === 0) setTimeout(askAll, 0);
    waiting.push({ ask, resolve, reject });
  });
}

function askAll(): void {
  const all = waiting;
  waiting = [];
  for (const group of groupsOf(all)) void askTogether(group);
}

/** Those that one question can ask for: of the same metrics, steps and kind of owner, and together not twice as long as one of them. */
function groupsOf(all: readonly Waiting[]): readonly (readonly Waiting[])[] {
  const groups: Waiting[][] = [];
  const open = new Map<string, { readonly first: Span; readonly group: Waiting[] }>();
  for (const one of [...all].sort((a, b) => a.ask.span.start - b.ask.span.start)) {
    const { metrics, stepMs, whose, span } = one.ask;
    const key = [stepMs, whose.of, ...metrics].join(" ");
    const held = open.get(key);
    if (held !== undefined && held.group.length < TOGETHER_MAX[whose.of] && span.end - held.first.start <= 2 * (held.first.end - held.first.start)) {
      held.group.push(one);
      continue;
    }
    const group = [one];
    open.set(key, { first: span, group });
    groups.push(group);
  }
  return groups;
}

async function askTogether(group: readonly Waiting[]): Promise<void> {
  const asks = group.map(({ ask }) => ask);
  const span = { start: Math.min(...asks.map((ask) => ask.span.start)), end: Math.max(...asks.map((ask) => ask.span.end)) };
  try {
    const answer = await fetchHistory(await questionOf(asks), span, new AbortController().signal);
    for (const { ask, resolve } of group) resolve(partOf(answer, ask));
  } catch (error) {
    // One of them may name a host that is no longer known: the others have their pictures all the same.
    if (group.length > 1 && isRefused(error)) for (const one of group) void askTogether([one]);
    else for (const { reject } of group) reject(error);
  }
}

/** Whether it is the question's fault: then a smaller one may be answered. */
function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.status < 500;
}

/** One question for all of them, which are alike in all but their owners and spans. */
async function questionOf(asks: readonly CoursesAsk[]): Promise<HistoryAsk> {
  const all = (of: (whose: Whose) => readonly string[]) => [...new Set(asks.flatMap(({ whose }) => of(whose)))];
  const hosts = all((whose) => (whose.of === "host" ? [whose.host] : []));
  const jobs = all((whose) => (whose.of === "job" ? [whose.job] : []));
  const where = whereOneOf("job", jobs);
  const held = jobs.length === 0 ? [] : await gpusHeld(where, asks);
  return {
    metrics: asks[0]?.metrics ?? [],
    stepMs: asks[0]?.stepMs ?? 0,
    aggregates: ["mean"],
    gpus: [...all((whose) => (whose.of === "gpus" ? whose.gpus : [])), ...held],
    ...(hosts.length > 0 && { hosts }),
    ...(jobs.length > 0 && { where, groupBy: "gpu,namespace,job" }),
  };
}

/** The GPUs of the jobs: a question that names a job alone reads the rows of the whole fleet. */
async function gpusHeld(where: string, asks: readonly CoursesAsk[]): Promise<readonly string[]> {
  const gpus = await fetchGpusHeld(where);
  return gpus.flatMap(({ id, labels = {} }) => (asks.some(({ whose }) => isHeld(labels, whose)) ? [id] : []));
}

/** What of an answer one question asked for, as if it had been asked alone. */
function partOf(answer: QueryAnswer, { whose, span }: CoursesAsk): QueryAnswer {
  const isAsked = (time: number) => time + answer.step_ms > span.start && time <= span.end;
  const within = <T>(of: readonly T[]) => of.filter((_, place) => isAsked(answer.times[place] ?? NaN));
  const own = answer.series.filter((series) => isOf(series, whose)).map((series) => ({ ...series, values: within(series.values) }));
  return { ...answer, times: within(answer.times), series: own.filter(({ values }) => values.some((value) => value !== null)) };
}

function isOf({ gpu, hostname, labels }: QueryAnswer["series"][number], whose: Whose): boolean {
  switch (whose.of) {
    case "gpus":
      return gpu !== null && whose.gpus.includes(gpu);
    case "host":
      return hostname === whose.host;
    case "job":
      return isHeld(labels, whose);
  }
}

function isHeld(labels: Readonly<Record<string, string | null>>, whose: Whose): boolean {
  return whose.of === "job" && labels.job === whose.job && (labels.namespace ?? null) === whose.namespace;
}
