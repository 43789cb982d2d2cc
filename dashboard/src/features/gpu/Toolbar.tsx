import { Clock, Radio } from "lucide-react";
import { useState, type ReactNode } from "react";
import { AGGREGATES, type Aggregate, type Span } from "../../api/queries";
import { parseField, toField } from "../../shared/time";
import { hasZones, nextZone, useZone } from "../../shared/zone";
import { isPreset, PRESETS, type Preset, type Range } from "../../parts/range";
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

const NAMES: Readonly<Record<Preset, string>> = {
  "5m": "5 minutes",
  "15m": "15 minutes",
  "1h": "1 hour",
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
};

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

interface RangeChoicesProps {
  readonly range: Range;
  readonly span: Span;
  readonly presets: readonly Preset[];
  /** Whether everything that is recorded can be asked for. */
  readonly hasAll: boolean;
  readonly onRange: (range: Range) => void;
}

export function RangeChoices({ range, span, presets, hasAll, onRange }: RangeChoicesProps) {
  const chosen = range.kind === "preset" ? range.preset : range.kind;
  const choose = (name: string) => {
    if (isPreset(name)) onRange({ kind: "preset", preset: name });
    else if (name === "all") onRange({ kind: "all" });
    else onRange({ kind: "custom", start: Math.floor(span.start), end: Math.ceil(span.end) });
  };
  return (
    <>
      <div role="group" aria-label="Range" className="card flex max-w-full overflow-x-auto rounded-md! p-0.5">
        {presets.map((preset) => (
          <Choice key={preset} name={preset} label={`Last ${NAMES[preset]}`} pressed={chosen === preset} onClick={choose} />
        ))}
        {hasAll && <Choice name="all" label="All recorded" text="All" pressed={chosen === "all"} onClick={choose} />}
        <Choice name="custom" label="Custom range" text="Custom" pressed={chosen === "custom"} onClick={choose} />
      </div>
      <Zone />
    </>
  );
}

/** The zone of all times of the page, which can be changed where the other one differs. */
function Zone() {
  const zone = useZone();
  if (!hasZones()) return <span className="text-xs text-muted">{zone}</span>;
  return (
    <button type="button" className="button quiet text-xs!" aria-label={`Times in ${zone}. Change`} title={`Times in ${zone} (u)`} onClick={nextZone}>
      <Clock size={13} aria-hidden /> {zone}
    </button>
  );
}

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
      <Radio size={14} className={isOn && status === "live" ? "animate-pulse" : ""} aria-hidden />
      Live
    </button>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly label: string;
  readonly text?: string;
  readonly pressed: boolean;
  readonly onClick: (name: string) => void;
}

function Choice({ name, label, text, pressed, onClick }: ChoiceProps) {
  return (
    <button
      type="button"
      aria-label={label}
      aria-pressed={pressed}
      title={label}
      className={`num h-7 rounded px-2 text-[13px] ${pressed ? "bg-raised font-medium" : "text-muted hover:text-fg"}`}
      onClick={() => onClick(name)}
    >
      {text ?? name}
    </button>
  );
}

/** Fields for a range from one instant to another, if one is chosen. */
export function CustomRange({ range, onRange }: Pick<RangeChoicesProps, "range" | "onRange">) {
  const zone = useZone();
  if (range.kind !== "custom") return null;
  return <CustomFields key={`${range.start} ${range.end} ${zone}`} start={range.start} end={range.end} onRange={onRange} />;
}

interface CustomFieldsProps extends Span {
  readonly onRange: (range: Range) => void;
}

function CustomFields({ start, end, onRange }: CustomFieldsProps) {
  const [from, setFrom] = useState(toField(start));
  const [to, setTo] = useState(toField(end));
  const parsed = { start: parseField(from), end: parseField(to) };
  const valid = parsed.start < parsed.end;
  return (
    <form
      className="mt-2 flex flex-wrap items-center gap-2 text-xs text-muted"
      onSubmit={(event) => {
        event.preventDefault();
        if (valid) onRange({ kind: "custom", ...parsed });
      }}
    >
      <label className="flex items-center gap-1.5">
        From
        <input type="datetime-local" step="1" className="field num" value={from} onChange={(event) => setFrom(event.target.value)} />
      </label>
      <label className="flex items-center gap-1.5">
        to
        <input type="datetime-local" step="1" className="field num" value={to} onChange={(event) => setTo(event.target.value)} />
      </label>
      <button type="submit" className="button" disabled={!valid}>
        Apply
      </button>
      {!valid && <span role="alert">The start must lie before the end.</span>}
    </form>
  );
}
