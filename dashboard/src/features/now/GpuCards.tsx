import { useQuery } from "@tanstack/react-query";
import { memo, useMemo } from "react";
import type { Gpu } from "../../api/client";
import { JUDGEMENTS, verdictOf, type Verdict } from "../../api/judgement";
import { gpuListQuery } from "../../api/queries";
import { Sparkline } from "../../charts/Sparkline";
import { GPU } from "../../parts/addresses";
import { Bar, heatColour, LastSeen, VerdictBadge } from "../../parts/gpuLook";
import { isSilent } from "../../parts/judgement";
import { compareText } from "../../parts/order";
import { sparkKey, useSparks, type Spark } from "../../parts/sparks";
import { formatValue, numberIn, shareOf } from "../../shared/format";
import { MEMORY_TOTAL, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE, UTILIZATION } from "../../shared/headline";
import { Link } from "../../shared/location";
import { useShared } from "../../shared/same";
import { parseInstant } from "../../shared/time";

/** Of as many GPUs each has a card: a person can look at all of them. */
export const CARDS_MAX = 32;

const VITALS = [UTILIZATION, POWER, TEMPERATURE, MEMORY_USED];
const NONE: readonly Gpu[] = [];

/** A card for each GPU of a small fleet, with its vitals and their last minutes: those that need somebody first, else in order. */
export function GpuCards() {
  const list = useQuery(gpuListQuery({ search: "", judgement: "", host: "", where: "", sort: "", limit: CARDS_MAX, offset: 0, metrics: [...VITALS, POWER_LIMIT, MEMORY_TOTAL].join(",") }));
  const gpus = list.data?.gpus ?? NONE;
  const sparks = useSparks(gpus, VITALS);
  const cards = useShared(
    useMemo(() => {
      const ordered = [...gpus].sort((a, b) => urgency(verdictOf(a)) - urgency(verdictOf(b)) || compareText(a.name, b.name));
      return ordered.map((gpu): CardProps => ({ gpu, courses: VITALS.map((column) => sparks.get(sparkKey(gpu.id, column)) ?? null) }));
    }, [gpus, sparks]),
  );
  if (list.data === undefined) return list.isError ? null : <div role="status" aria-label="Loading the GPUs" className="waiting mt-3 h-24" />;
  return (
    <section aria-label="GPUs" className="mt-3" data-testid="cards">
      <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,23rem),1fr))] gap-2">
        {cards.map(({ gpu, courses }) => (
          <Card key={gpu.id} gpu={gpu} courses={courses} />
        ))}
      </ul>
    </section>
  );
}

/** Those that work or rest stay in their places: a card must not move because its GPU pauses. */
function urgency({ word }: Verdict): number {
  return Math.min(JUDGEMENTS.indexOf(word), JUDGEMENTS.indexOf("active"));
}

interface CardProps {
  readonly gpu: Gpu;
  /** The last minutes of its vitals; null: not known. */
  readonly courses: readonly (Spark | null)[];
}

/** Drawn again when its GPU has news, not when another has. */
const Card = memo(function Card({ gpu, courses }: CardProps) {
  const verdict = verdictOf(gpu);
  const value = (column: string) => numberIn(gpu.metrics, column);
  const memory = gpu.memory_mb ?? value(MEMORY_TOTAL);
  const celsius = value(TEMPERATURE);
  const isOld = isSilent(verdict);
  const at = (column: string) => courses[VITALS.indexOf(column)] ?? null;
  return (
    <li className="card p-3 text-[13px]" data-gpu={gpu.id} {...(isOld && { "data-old": "" })}>
      <div className="flex items-center gap-2">
        <Link to={GPU.to({ id: gpu.id })} data-row="" className="min-w-0 flex-1 truncate rounded font-semibold hover:underline" title={gpu.id}>
          {gpu.name}
        </Link>
        <VerdictBadge verdict={verdict} />
      </div>
      <p className="num flex gap-2 text-xs text-faint">
        <span className="min-w-0 truncate">{gpu.model}</span>
        {isOld && (
          <span className="ml-auto shrink-0 text-muted">
            last seen <LastSeen at={parseInstant(gpu.last_seen)} />
          </span>
        )}
      </p>
      <dl className="mt-2 grid grid-cols-4 gap-x-3">
        <Vital name="Utilization" text={formatValue(value(UTILIZATION), "%")} share={shareOf(value(UTILIZATION), 100)} spark={at(UTILIZATION)} fixed={SHARE} />
        <Vital name="Power" text={formatValue(value(POWER), "W")} share={shareOf(value(POWER), value(POWER_LIMIT))} spark={at(POWER)} fixed={null} />
        <Vital name="Temperature" short="Temp." text={formatValue(celsius, "°C")} share={shareOf(celsius, 100)} spark={at(TEMPERATURE)} fixed={null} colour={heatColour(celsius)} />
        <Vital name="Memory" text={formatValue(value(MEMORY_USED), "MiB")} share={shareOf(value(MEMORY_USED), memory)} spark={at(MEMORY_USED)} fixed={memory === null ? null : [0, memory]} />
      </dl>
    </li>
  );
});

const SHARE = [0, 100] as const;

interface VitalProps {
  readonly name: string;
  /** Where the name is too long for its place. */
  readonly short?: string;
  readonly text: string;
  readonly share: number | null;
  readonly spark: Spark | null;
  readonly fixed: readonly [number, number] | null;
  readonly colour?: string;
}

function Vital({ name, short, text, share, spark, fixed, colour }: VitalProps) {
  return (
    <div className="min-w-0">
      <dt className="truncate text-[11px] text-faint">{short === undefined ? name : <abbr title={name} className="no-underline">{short}</abbr>}</dt>
      <dd>
        <span className="num block truncate leading-5">{text}</span>
        <Bar share={share} label={name} {...(colour === undefined ? {} : { colour })} />
        <span className="mt-1 block h-5">
          {spark !== null && <Sparkline label={`${name} over the last 15 minutes of data`} times={spark.times} stepMs={spark.stepMs} values={spark.values} fixed={fixed} />}
        </span>
      </dd>
    </div>
  );
}
