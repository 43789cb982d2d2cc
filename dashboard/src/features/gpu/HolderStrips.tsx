import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { occupancyQuery, STEPS_MAX, type Occupancy } from "../../api/holders";
import type { Span } from "../../api/queries";
import { stepFor } from "../../charts/axis";
import { stretchesOf, type StripLine } from "../../charts/strips";
import { Strips } from "../../charts/Strips";
import { GPU } from "../../parts/addresses";
import { MINUTE } from "../../shared/time";

const NOBODY = "nobody";
const PLAIN = { [NOBODY]: "transparent" };

interface NamedGpu {
  readonly id: string;
  readonly name: string;
}

interface HolderStripsProps {
  readonly gpus: readonly NamedGpu[];
  readonly span: Span;
  readonly now: number;
  /** Whether the span is known; until then nothing is asked. */
  readonly isAsked: boolean;
  /** Whether this is the page of the GPU, to which no line leads. */
  readonly isHere?: boolean;
}

/** Who had these GPUs in a span: a strip of time for each. Nothing where nobody is known to have had one. */
export function HolderStrips({ gpus, span, now, isAsked, isHere = false }: HolderStripsProps) {
  const ids = useMemo(() => gpus.map(({ id }) => id), [gpus]);
  const stepMs = Math.max(MINUTE, stepFor(span.end - span.start, STEPS_MAX));
  const { data } = useQuery({ ...occupancyQuery({ gpus: ids, groupBy: "gpu,namespace,pod,job", span, stepMs }), enabled: isAsked && gpus.length > 0 });
  const lines = useMemo(() => (data === undefined ? [] : holderLines(data, gpus, isHere)), [data, gpus, isHere]);
  const isHeld = lines.some(({ stretches }) => stretches.some(({ what }) => what !== NOBODY));
  if (!isHeld) return null;
  return <Strips title={isHere ? "Who had it" : "Who had the GPUs"} lines={lines} span={span} now={now} plain={PLAIN} note="Where there is no colour, nothing was read. Of several at once all are named." />;
}

/** A line for each GPU, in the order of the GPUs. */
export function holderLines({ times, stepMs, lines }: Occupancy, gpus: readonly NamedGpu[], isHere: boolean): StripLine[] {
  return gpus.map(({ id, name }) => {
    const own = lines.filter(({ labels }) => labels.gpu === id).map(({ labels, values }) => ({ holder: holderIn(labels), values }));
    const what = (step: number) => {
      const there = own.filter(({ values }) => (values[step] ?? null) !== null).map(({ holder }) => holder);
      const holders = [...new Set(there)].filter((holder) => holder !== NOBODY).sort();
      return there.length === 0 ? null : holders.join(", ") || NOBODY;
    };
    return { id, name, path: isHere ? null : GPU.to({ id }), stretches: stretchesOf(times, stepMs, what) };
  });
}

/** Namespace and job, or else pod. */
function holderIn({ namespace, pod, job }: Readonly<Record<string, string | null>>): string {
  const names = [namespace, job ?? pod].filter((name) => name !== undefined && name !== null && name !== "");
  return (job ?? pod ?? "") === "" ? NOBODY : names.join(" / ");
}
