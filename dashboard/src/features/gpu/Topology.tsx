import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { topologyQuery } from "../../api/queries";
import { verdictOf } from "../../api/judgement";
import type { Gpu } from "../../api/client";
import { GPU } from "../../parts/addresses";
import { JUDGEMENT_LOOKS } from "../../parts/gpuLook";
import { Link } from "../../shared/location";
import { NotRenewed } from "../../shared/states";
import { DRAWN_MAX, pictureOf, shortName, wordsOf, type Picture } from "./topology";

/** Size of a GPU in the picture, the space between two, and what stands between two NUMA nodes. */
const [WIDTH, HEIGHT, GAP, APART] = [64, 30, 10, 22];
/** Where the row of GPUs begins. */
const TOP = 24;

/** The NUMA nodes that GPUs are plugged into, and what their links lead to; nothing where no driver tells. */
export function Topology({ host, gpus }: { readonly host: string; readonly gpus: readonly Gpu[] }) {
  const answer = useQuery(topologyQuery(host));
  const topology = answer.data;
  const picture = useMemo(() => (topology === undefined ? null : pictureOf(topology)), [topology]);
  if (topology === undefined || picture === null) return null;
  const { all, odd } = wordsOf(topology);
  if (all.length === 0) return null;
  return (
    <section aria-label="NUMA nodes and links" className="mt-4 rounded-lg border border-line bg-card p-3">
      <h2 className="text-[13px] font-semibold">NUMA nodes and links</h2>
      <NotRenewed of={[answer]} />
      {(topology.partial ?? []).length > 0 && <p className="mt-1 text-[13px] text-warn">Not everything could be read: {(topology.partial ?? []).join("; ")}</p>}
      {odd.map((words) => (
        <p key={words} className="mt-1 text-[13px] text-warn">
          {words}
        </p>
      ))}
      {topology.gpus.length <= DRAWN_MAX && <Drawing picture={picture} gpus={gpus} words={all.join(" ")} />}
      <p className="mt-2 text-xs text-muted">{all.join(" ")}</p>
    </section>
  );
}

interface Box {
  readonly x: number;
  readonly gpu: Picture["groups"][number]["gpus"][number];
}

function boxesOf({ groups }: Picture): { readonly boxes: readonly Box[]; readonly nodes: readonly { readonly numa: number | null; readonly x: number; readonly width: number }[]; readonly width: number } {
  const boxes: Box[] = [];
  const nodes = [];
  let x = GAP;
  for (const { numa, gpus } of groups) {
    nodes.push({ numa, x: x - GAP / 2, width: gpus.length * (WIDTH + GAP) });
    for (const gpu of gpus) {
      boxes.push({ x, gpu });
      x += WIDTH + GAP;
    }
    x += APART - GAP;
  }
  return { boxes, nodes, width: x - APART + 2 * GAP };
}

function Drawing({ picture, gpus, words }: { readonly picture: Picture; readonly gpus: readonly Gpu[]; readonly words: string }) {
  const { boxes, nodes, width } = boxesOf(picture);
  const middle = (place: number) => (boxes[place]?.x ?? 0) + WIDTH / 2;
  const below = TOP + HEIGHT;
  // An arc is as deep as its ends are apart, but never deeper than a picture is high.
  const depth = (from: number, to: number) => Math.min(18 + 9 * (to - from), 110);
  const arcs = picture.spans.length === 0 ? 0 : Math.max(...picture.spans.map(({ from, to }) => depth(from, to))) * 0.75 + 6;
  const bar = below + Math.max(arcs, 14) + 8;
  const height = picture.switched.length === 0 ? below + arcs + 8 : bar + 26;
  const most = Math.max(1, ...picture.spans.map(({ links }) => links));
  const colours = new Map(gpus.map((gpu) => [gpu.id, verdictOf(gpu)]));
  return (
    <div className="mt-2 overflow-x-auto">
      <svg role="group" aria-label={words} width={width} height={height} viewBox={`0 0 ${width} ${height}`} className="block max-w-none">
        {nodes.map(({ numa, x, width: wide }) => (
          <g key={numa ?? "none"}>
            <rect x={x} y={2} width={wide} height={TOP + HEIGHT + 4} rx={6} className="fill-raised stroke-line" />
            <text x={x + 8} y={16} className="fill-muted text-[11px]">
              {numa === null ? "NUMA node not known" : `NUMA node ${numa}`}
            </text>
          </g>
        ))}
        {picture.spans.map(({ from, to, links }) => (
          <path
            key={`${from}-${to}`}
            data-span={`${from}-${to}`}
            d={`M ${middle(from)} ${below} C ${middle(from)} ${below + depth(from, to)}, ${middle(to)} ${below + depth(from, to)}, ${middle(to)} ${below}`}
            fill="none"
            className="stroke-accent"
            strokeWidth={1 + (1.5 * links) / most}
            strokeOpacity={0.65}
          />
        ))}
        {picture.switched.map(({ at, links }) => (
          <line key={at} data-switched={at} x1={middle(at)} x2={middle(at)} y1={below} y2={bar} className="stroke-accent" strokeWidth={1 + Math.min(links, 18) / 9} strokeOpacity={0.65} />
        ))}
        {picture.switched.length > 0 && (
          <g>
            <rect x={GAP} y={bar} width={width - 2 * GAP} height={18} rx={4} className="fill-raised stroke-line" />
            <text x={width / 2} y={bar + 13} textAnchor="middle" className="fill-muted text-[11px]">
              switch
            </text>
          </g>
        )}
        {boxes.map(({ x, gpu }) => {
          const verdict = colours.get(gpu.id);
          return (
            <Link key={gpu.id} to={GPU.to({ id: gpu.id })}>
              <g data-place={gpu.id} className={verdict === undefined ? "text-faint" : JUDGEMENT_LOOKS[verdict.word].colour}>
                <title>{[gpu.name, gpu.pci, verdict?.word].filter((part) => part !== null && part !== undefined).join(", ")}</title>
                <rect x={x} y={TOP} width={WIDTH} height={HEIGHT} rx={5} className="fill-card" stroke="currentColor" strokeWidth={1.5} />
                <text x={x + WIDTH / 2} y={TOP + 19} textAnchor="middle" className="fill-fg text-[12px]">
                  {shortName(gpu)}
                </text>
              </g>
            </Link>
          );
        })}
      </svg>
    </div>
  );
}
