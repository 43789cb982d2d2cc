import type { Schemas } from "../../api/client";

type Topology = Schemas["Topology"];
export type Place = Topology["gpus"][number];

/** GPUs on one NUMA node, by index; null: not known. */
export interface NumaGroup {
  readonly numa: number | null;
  readonly gpus: readonly Place[];
}

/** Links between two GPUs, as places in the row of GPUs; `links`: the more of what the two tell. */
export interface Span {
  readonly from: number;
  readonly to: number;
  readonly links: number;
}

/** What is drawn: GPUs in a row, grouped by NUMA node; links between two of them; links of each to switches. */
export interface Picture {
  readonly groups: readonly NumaGroup[];
  readonly spans: readonly Span[];
  readonly switched: readonly { readonly at: number; readonly links: number }[];
}

/** More are a list, not a picture. */
export const DRAWN_MAX = 32;
const SWITCH = "switch";

export function pictureOf(topology: Topology): Picture {
  const groups = groupsOf(topology.gpus);
  const order = groups.flatMap(({ gpus }) => gpus.map(({ id }) => id));
  const at = new Map(order.map((id, place) => [id, place]));
  const spans = new Map<string, Span>();
  const switched = new Map<number, number>();
  for (const { gpu, to_gpu: to, peer, links } of topology.links) {
    const from = at.get(gpu);
    if (from === undefined) continue;
    if (peer === SWITCH) switched.set(from, (switched.get(from) ?? 0) + links);
    const other = to === null ? undefined : at.get(to);
    if (other === undefined || other === from) continue;
    const [a, b] = [Math.min(from, other), Math.max(from, other)];
    spans.set(`${a}-${b}`, { from: a, to: b, links: Math.max(links, spans.get(`${a}-${b}`)?.links ?? 0) });
  }
  return { groups, spans: [...spans.values()].sort((x, y) => x.from - y.from || x.to - y.to), switched: [...switched].map(([place, links]) => ({ at: place, links })).sort((x, y) => x.at - y.at) };
}

function groupsOf(gpus: readonly Place[]): NumaGroup[] {
  const groups = new Map<number | null, Place[]>();
  for (const gpu of gpus) {
    const numa = gpu.numa_node ?? null;
    groups.set(numa, [...(groups.get(numa) ?? []), gpu]);
  }
  return [...groups].map(([numa, of]) => ({ numa, gpus: of })).sort((x, y) => (x.numa ?? Infinity) - (y.numa ?? Infinity));
}

export const shortName = ({ index, name }: Place): string => (index === null ? name : `GPU ${index}`);
const counted = (count: number, noun: string) => `${count} ${count === 1 ? noun : `${noun}s`}`;

/** The picture in sentences, for those who do not see it, and what is odd about it. */
export function wordsOf(topology: Topology): { readonly all: readonly string[]; readonly odd: readonly string[] } {
  const { groups, spans, switched } = pictureOf(topology);
  const row = groups.flatMap(({ gpus }) => gpus);
  const nodes = groups.filter(({ numa }) => numa !== null);
  const all = nodes.length === 0 ? [] : [`${nodes.map(({ numa, gpus }) => `NUMA node ${numa}: ${gpus.map(shortName).join(", ")}`).join("; ")}.`];
  if (spans.length > 0) all.push(meshWords(row, spans));
  if (switched.length > 0) all.push(`${switched.length === row.length ? "Every GPU" : switched.map(({ at }) => row[at]).flatMap((gpu) => (gpu === undefined ? [] : [shortName(gpu)])).join(", ")} ${switched.length === 1 || switched.length === row.length ? "is" : "are"} linked to a switch.`);
  // What was not read is not missing there.
  const isWhole = (topology.partial ?? []).length === 0;
  return { all, odd: isWhole ? [...fewer(row, spans, switched), ...outside(topology)] : [] };
}

function meshWords(row: readonly Place[], spans: readonly Span[]): string {
  if (row.length > 2 && spans.length === (row.length * (row.length - 1)) / 2) return "Every GPU is linked to every other one.";
  const name = (place: number) => (row[place] === undefined ? "" : shortName(row[place]));
  return `Linked: ${spans.map(({ from, to, links }) => `${name(from)} and ${name(to)}${links > 1 ? ` (${counted(links, "link")})` : ""}`).join("; ")}.`;
}

/** GPUs with fewer links than most of the others have; those of which nobody tells are not compared. */
function fewer(row: readonly Place[], spans: readonly Span[], switched: Picture["switched"]): string[] {
  const known = row.flatMap((gpu, place) => {
    const ends = [...spans.filter(({ from, to }) => from === place || to === place), ...switched.filter(({ at }) => at === place)];
    const links = gpu.links_up ?? (ends.length === 0 ? null : ends.reduce((sum, end) => sum + end.links, 0));
    return links === null ? [] : [{ gpu, links }];
  });
  const usual = known.map(({ links }) => links).sort((x, y) => x - y)[Math.floor(known.length / 2)] ?? 0;
  return known.flatMap(({ gpu, links }) => (links < usual ? [`${shortName(gpu)} has ${counted(links, "link")}, the others ${usual}.`] : []));
}

/** Ends of links that are no GPU of this host: one that is lost, or not read. */
function outside({ gpus, links }: Topology): string[] {
  const missing = [...new Set(links.filter(({ to_gpu: to, peer }) => to === null && peer !== SWITCH).map(({ peer }) => peer))];
  return gpus.length === 0 ? [] : missing.map((peer) => `Links lead to ${peer}, which no GPU of this host reports.`);
}
