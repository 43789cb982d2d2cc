import { useMemo } from "react";
import type { Span } from "../../api/queries";
import type { Frame } from "../../charts/frame";
import { panelsOf, type CatalogueRow } from "../../charts/panels";
import { TimeChart } from "../../charts/TimeChart";

interface ChartGroupsProps {
  readonly rows: readonly CatalogueRow[];
  readonly frame: Frame;
  readonly span: Span;
  readonly now: number;
  readonly loading: boolean;
  readonly truncated: boolean;
  readonly onSelect: (start: number, end: number) => void;
}

/** A section a group of the catalogue, in its order, with a chart for each unit. */
export function ChartGroups({ rows, frame, span, now, loading, truncated, onSelect }: ChartGroupsProps) {
  const groups = useMemo(() => panelsOf(rows), [rows]);
  if (loading) {
    return (
      <div role="status" aria-label="Loading charts" className="grid gap-3 lg:grid-cols-2">
        {["a", "b", "c", "d"].map((key) => (
          <div key={key} className="waiting h-60" />
        ))}
      </div>
    );
  }
  return (
    <div className="space-y-5">
      {truncated && (
        <p role="note" className="text-[13px] text-warn">
          The server left some values out of this range. Choose a shorter range to see all of them.
        </p>
      )}
      {groups.map((group) => (
        <section key={group.group} aria-label={group.title}>
          <h2 className="mb-2 text-[13px] font-semibold text-muted">{group.title}</h2>
          <div className="grid gap-3 lg:grid-cols-2">
            {group.panels.map((panel) => (
              <TimeChart key={panel.id} panel={panel} frame={frame} span={span} now={now} onSelect={onSelect} />
            ))}
          </div>
        </section>
      ))}
    </div>
  );
}
