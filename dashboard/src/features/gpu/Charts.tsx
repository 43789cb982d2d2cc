import { memo, useMemo, useState } from "react";
import type { Span } from "../../api/queries";
import type { EnergyGroup } from "../../api/usage";
import type { ChartAction } from "../../charts/ChartMenu";
import type { Frame } from "../../charts/frame";
import { MarkLegend } from "../../charts/MarkLegend";
import type { Marks } from "../../charts/marks";
import { evidenceFirst, isEvidence, panelsOf, type CatalogueRow, type Panel } from "../../charts/panels";
import type { Behind } from "../../charts/plot";
import type { Movement, StillRow } from "../../charts/still";
import { TimeChart } from "../../charts/TimeChart";
import { countedShare, kwh, sourceWords } from "../../parts/energy";
import { formatValue, metricTitle } from "../../shared/format";

interface ChartsProps {
  readonly rows: readonly CatalogueRow[];
  readonly movement: Movement;
  readonly frame: Frame;
  readonly behind: Behind;
  readonly marks: Marks;
  /** The GPU with its host and model, for those who see a picture elsewhere. */
  readonly subject: string;
  readonly actionsOf: (panel: Panel) => readonly ChartAction[];
  readonly span: Span;
  /** To the minute: it only says which day is today. */
  readonly now: number;
  /** What the GPU used in the range; undefined: not known. */
  readonly energy: EnergyGroup | undefined;
  /** Columns that show what is wrong: their charts stand first. */
  readonly evidence: ReadonlySet<string>;
  readonly onSelect: (start: number, end: number) => void;
}

/** A chart for each group and unit of what moved, and what did not in a line. */
export const Charts = memo(function Charts({ rows, movement, frame, behind, marks, subject, actionsOf, span, now, energy, evidence, onSelect }: ChartsProps) {
  const { moved, still, unread } = movement;
  // The plots are built anew for other panels: they stay as long as the same rows move.
  const names = moved.map((row) => row.column).join(",");
  const panels = useMemo(() => panelsOf(rows.filter((row) => names.split(",").includes(row.column))), [rows, names]);
  return (
    <>
      <MarkLegend marks={marks} now={now} />
      {energy !== undefined && energy.energy_kwh !== null && <Energy energy={energy} />}
      {panels.length === 0 && still.length === 0 && <p className="card grid h-40 place-items-center text-xs text-muted">No values in this range</p>}
      <div className="grid gap-3 lg:grid-cols-2 min-[2000px]:grid-cols-3">
        {evidenceFirst(panels, evidence).map((panel) => (
          <TimeChart
            key={panel.id}
            panel={panel}
            marked={isEvidence(panel, evidence)}
            frame={frame}
            behind={behind}
            marks={marks}
            subject={subject}
            actionsOf={actionsOf}
            span={span}
            now={now}
            onSelect={onSelect}
          />
        ))}
      </div>
      {still.length > 0 && <Folded name="Did not move in this range" items={still.map(wordsOf)} />}
      {unread.length > 0 && (panels.length > 0 || still.length > 0) && <Folded name="Not read in this range" items={unread.map(({ column }) => metricTitle(column))} />}
    </>
  );
});

function Energy({ energy }: { readonly energy: EnergyGroup }) {
  const source = sourceWords(countedShare(energy));
  return (
    <p className="num mb-2 text-xs text-muted" data-testid="energy">
      Energy in this range <span className="text-fg">{kwh(energy.energy_kwh)}</span>
      {source !== "" && <span className="text-faint"> ({source})</span>}
    </p>
  );
}

function wordsOf({ row, value }: StillRow): string {
  return `${metricTitle(row.column)} ${formatValue(value, row.unit)}`;
}

/** Names in one line, all of them on demand. */
function Folded({ name, items }: { readonly name: string; readonly items: readonly string[] }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <button
      type="button"
      className={`num mt-3 block w-full rounded text-left text-xs text-muted hover:text-fg ${isOpen ? "" : "truncate"}`}
      aria-expanded={isOpen}
      data-testid="folded"
      onClick={() => setIsOpen(!isOpen)}
    >
      {name} ({items.length}): {items.join(" · ")}
    </button>
  );
}
