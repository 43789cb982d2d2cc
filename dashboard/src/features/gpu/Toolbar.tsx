import { Radio } from "lucide-react";
import type { ReactNode } from "react";
import { AGGREGATES, type Aggregate, type Span } from "../../api/queries";
import { PRESETS, type Preset, type Range } from "../../parts/range";
import { CustomRange, RangeChoices } from "../../parts/rangeChoices";
import type { StreamStatus } from "./stream";

interface ToolbarProps {
  readonly range: Range;
  readonly aggregate: Aggregate;
  readonly span: Span;
  readonly onRange: (range: Range) => void;
  readonly onAggregate: (aggregate: Aggregate) => void;
  /** Where new samples can be shown as they arrive. */
  readonly live?: LiveProps;
  /** What else there is to choose. */
  readonly children?: ReactNode;
}

interface LiveProps {
  readonly isOn: boolean;
  readonly isAllowed: boolean;
  readonly status: StreamStatus;
  readonly onChange: (live: boolean) => void;
}

const STATUS_TEXT: Readonly<Record<StreamStatus, string>> = {
  off: "",
  connecting: "Connecting to the stream",
  live: "",
  polling: "The stream is not available: asking every few seconds instead",
};

/** Time range, how buckets are summed up, and live mode. */
export function Toolbar(props: ToolbarProps) {
  const { range, aggregate, live, span, onRange, onAggregate, children } = props;
  return (
    <section aria-label="Time range" className="sticky top-0 z-20 md:top-12 -mx-3 mt-4 mb-3 border-y border-transparent bg-page/95 px-3 py-2 backdrop-blur sm:-mx-5 sm:px-5">
      <div className="flex flex-wrap items-center gap-2">
        <RangeChoices range={range} span={span} presets={ALL_PRESETS} hasAll onRange={onRange} />
        <label className="flex items-center gap-1.5 text-xs text-muted">
          <span className="sr-only sm:not-sr-only">Buckets</span>
          <select
            className="field"
            aria-label="How the values of a bucket are summed up"
            value={aggregate}
            onChange={(event) => onAggregate(AGGREGATES.find((known) => known === event.target.value) ?? "mean")}
          >
            {AGGREGATES.map((known) => (
              <option key={known}>{known}</option>
            ))}
          </select>
        </label>
        {live !== undefined && <LiveButton {...live} />}
        {children}
        {live !== undefined && (
          <p role="status" className="text-xs text-warn">
            {live.isOn ? STATUS_TEXT[live.status] : ""}
          </p>
        )}
      </div>
      <CustomRange range={range} onRange={onRange} />
    </section>
  );
}

const ALL_PRESETS = Object.keys(PRESETS) as Preset[];

function LiveButton({ isOn, isAllowed, status, onChange }: LiveProps) {
  return (
    <button
      type="button"
      className={`button ${isOn ? "text-good!" : ""}`}
      aria-pressed={isOn}
      disabled={!isAllowed}
      title={isAllowed ? "Live: new samples as they arrive (l)" : "Only a range that ends now can be live"}
      onClick={() => onChange(!isOn)}
    >
      {/* No pulse: an animation paints 60 times a second, which cost more than all charts. */}
      <Radio size={14} className={isOn && status !== "live" ? "text-warn" : ""} aria-hidden />
      Live
    </button>
  );
}
