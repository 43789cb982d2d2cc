import { memo } from "react";
import { bridged } from "./frame";
import { sparkPath, sparkRange } from "./spark";

interface SparklineProps {
  readonly label: string;
  readonly times: readonly number[];
  readonly stepMs: number;
  readonly values: readonly (number | null)[];
  readonly fixed: readonly [number, number] | null;
}

const WIDTH = 64;
const HEIGHT = 20;

/** The course of a value in a table cell. */
export const Sparkline = memo(function Sparkline({ label, times, stepMs, values, fixed }: SparklineProps) {
  const points = values.filter((value) => value !== null).length;
  // A single value has no course; it stands beside as a number.
  if (points < 2) return null;
  const line = bridged(times, values, stepMs);
  const path = sparkPath(line, WIDTH, HEIGHT, sparkRange(line, fixed));
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      className="h-5 w-16 shrink-0 overflow-visible"
      preserveAspectRatio="none"
      data-points={points}
    >
      <path d={path} fill="none" stroke="var(--spark)" strokeWidth="1.25" strokeLinejoin="round" strokeLinecap="round" vectorEffect="non-scaling-stroke" />
    </svg>
  );
});
