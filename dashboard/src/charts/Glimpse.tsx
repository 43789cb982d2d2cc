import { memo } from "react";
import { formatValue } from "../shared/format";
import { formatInstant } from "../shared/time";
import { bridged } from "./frame";
import { bandPath, sparkPath } from "./spark";

/** The course of one value as a small picture: what stands around it is told in words beside. */
export interface GlimpseOf {
  /** What is drawn, in words: also for those who do not see it. */
  readonly label: string;
  readonly unit: string;
  readonly stepMs: number;
  readonly times: readonly number[];
  readonly line: readonly (number | null)[];
  /** Between which values others are. */
  readonly band: { readonly low: readonly (number | null)[]; readonly high: readonly (number | null)[] } | null;
  /** A level across the whole picture: a limit, or what others have. */
  readonly level: number | null;
  /** An instant that is marked. */
  readonly mark: number | null;
  /** Whether the line ended: then its last value is marked. */
  readonly hasEnded: boolean;
}

const WIDTH = 300;
const HEIGHT = 60;
/** Room above the highest and below the lowest value, as a share of the picture. */
const AIR = 0.08;

/** Drawn as SVG: twenty of them cost a list of findings no time. */
export const Glimpse = memo(function Glimpse({ label, unit, stepMs, times, line, band, level, mark, hasEnded }: GlimpseOf) {
  const [first, last] = [times[0] ?? 0, times.at(-1) ?? 0];
  const range = rangeOf([...line, ...(band === null ? [] : [...band.low, ...band.high]), level], unit);
  const [low, high] = range;
  const across = (instant: number) => (last === first ? 0 : Math.min(1, Math.max(0, (instant - first) / (last - first))));
  const up = (value: number) => 1 - (value - low) / (high - low);
  const end = line.findLastIndex((value) => value !== null);
  const [endValue, endTime] = [line[end] ?? null, times[end] ?? null];
  return (
    <div className="num text-[11px] text-faint">
      <div className="flex gap-1.5">
        <div className="flex w-16 shrink-0 flex-col justify-between py-px text-right leading-none whitespace-nowrap" aria-hidden>
          <span>{formatValue(high, unit)}</span>
          <span>{formatValue(low, unit)}</span>
        </div>
        <div className="relative min-w-0 flex-1">
          <svg role="img" aria-label={label} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" className="block h-15 w-full border-b border-l border-line">
            {band !== null && <path d={bandPath(band.low, band.high, WIDTH, HEIGHT, range)} fill="var(--spark)" opacity="0.28" />}
            {mark !== null && <line x1={across(mark) * WIDTH} x2={across(mark) * WIDTH} y1="0" y2={HEIGHT} stroke="var(--warn)" strokeWidth="1" strokeDasharray="2 2" vectorEffect="non-scaling-stroke" />}
            {level !== null && <line x1="0" x2={WIDTH} y1={up(level) * HEIGHT} y2={up(level) * HEIGHT} stroke="var(--muted)" strokeWidth="1" strokeDasharray="5 3" vectorEffect="non-scaling-stroke" />}
            <path d={sparkPath(bridged(times, line, stepMs), WIDTH, HEIGHT, range)} fill="none" stroke="var(--line-1)" strokeWidth="1.75" strokeLinejoin="round" strokeLinecap="round" vectorEffect="non-scaling-stroke" />
          </svg>
          {hasEnded && endValue !== null && endTime !== null && (
            <span aria-hidden className="absolute size-2 -translate-x-1/2 -translate-y-1/2 rounded-full bg-bad" style={{ left: `${across(endTime) * 100}%`, top: `${up(endValue) * 100}%` }} />
          )}
        </div>
      </div>
      <div className="mt-0.5 flex justify-between pl-17.5 leading-none" aria-hidden>
        <span>{formatInstant(first, last).slice(0, -3)}</span>
        <span>{formatInstant(last, last).slice(0, -3)}</span>
      </div>
    </div>
  );
});

/** All values with a little air; shares have their whole range. */
function rangeOf(values: readonly (number | null)[], unit: string): readonly [number, number] {
  const held = values.filter((value) => value !== null);
  if (unit === "%") return [Math.min(0, ...held), Math.max(100, ...held)];
  if (held.length === 0) return [0, 1];
  const [low, high] = [Math.min(...held), Math.max(...held)];
  const air = Math.max((high - low) * AIR, Math.abs(high) * 0.02, 0.5);
  return [low >= 0 ? Math.max(0, low - air) : low - air, high + air];
}
