import { useMemo } from "react";
import type { Span } from "../../api/queries";
import type { Frame } from "../../charts/frame";
import { panelsOf, type CatalogueRow } from "../../charts/panels";
import { TimeChart } from "../../charts/TimeChart";

interface ChartsProps {
  readonly rows: readonly CatalogueRow[];
  readonly frame: Frame;
  readonly span: Span;
  readonly now: number;
  readonly loading: boolean;
  readonly truncated: boolean;
  readonly onSelect: (start: number, end: number) => void;
}

/** A chart for each group and unit of the catalogue. */
export function Charts({ rows, frame, span, now, loading, truncated, onSelect }: ChartsProps) {
  const panels = useMemo(() => panelsOf(rows), [rows]);
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
    <>
      {truncated && (
        <p role="note" className="mb-3 text-[13px] text-warn">
          The server left some values out of this range. Choose a shorter range to see all of them.
        </p>
      )}
      <div className="grid gap-3 lg:grid-cols-2">
        {panels.map((panel) => (
          <TimeChart key={panel.id} panel={panel} frame={frame} span={span} now={now} onSelect={onSelect} />
        ))}
      </div>
    </>
  );
}
