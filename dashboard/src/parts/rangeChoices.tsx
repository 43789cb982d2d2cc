import { Clock } from "lucide-react";
import { useState } from "react";
import type { Span } from "../api/queries";
import { parseField, toField } from "../shared/time";
import { hasZones, nextZone, useZone } from "../shared/zone";
import { isPreset, type Preset, type Range } from "./range";

const NAMES: Readonly<Record<Preset, string>> = {
  "5m": "5 minutes",
  "15m": "15 minutes",
  "1h": "1 hour",
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
};

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
